# SPDX-License-Identifier: Apache-2.0
"""mxfp diff: every kind of difference planted and named, and the rule that explains it found."""

import json
from collections import Counter
from fractions import Fraction

import gguf
import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file

import mxfp
import oracle
from mutations import mutated
from mxfp.cli import cli, main
from mxfp.files.concluding import ENOUGH, conclude, largest_codes, rules_that_fit
from mxfp.files.difference import compare, pairs_of
from mxfp.files.explaining import explain
from mxfp.files.header import FileError
from mxfp.files.kinds import BLOCK_KINDS, ELEMENT_KINDS, Counts, counts_of
from mxfp.files.model import ModelFile, open_model
from mxfp.files.rules import ROUNDING_TEXTS, SCALE_TEXTS, ZERO_TEXTS, weigh
from mxfp.files.statistics import statistics_of
from mxfp.files.writing import write_model
from mxfp.formats import E8M0, UE4M3, BlockFormat, ElementFormat, ScaleFormat, Specials
from support import FORMATS, MX, hard_array, random_blocks, size, values_of, with_specials

SHAPES = [((6, 64), -1), ((3, 40), 1), ((40, 3), 0), ((2, 33, 3), 1), ((37,), 0)]


def run(*arguments):
    return CliRunner().invoke(cli, ["diff", *map(str, arguments)], catch_exceptions=False)


def as_json(*arguments):
    return json.loads(run(*arguments, "--json").output)


def changed(q, *, codes=(), scales=(), tensor_scale=None):
    """The same blocks but for some codes and scales, given as (index, value)."""
    parts = []
    for given, edits in ((q.codes, codes), (q.scales, scales)):
        array = given.copy()
        for index, value in edits:
            array[index] = value
        parts.append(array)
    return mxfp.BlockArray(*parts, q.format, q.axis, tensor_scale or q.tensor_scale)


# --- kinds, against a classification with exact fractions


def value_of(fmt, scale, code, tensor_scale):
    found = oracle.multiply(oracle.element(fmt.element.name, code), oracle.scale(fmt.scale.name, scale))
    return found if isinstance(found, str) else found * Fraction(tensor_scale)


def kind_of(fmt, a, b, shared, source):
    """How one element differs, (scale code, code) on each side; None if it does not."""
    if a == b:
        return None
    name, nan = fmt.element.name, fmt.scale.nan_code
    exact = [oracle.element(name, code) for _, code in (a, b)]
    if nan in (a[0], b[0]) or any(isinstance(v, str) for v in exact):
        return "nan"
    one, other = (value_of(fmt, *side, t) for side, t in zip((a, b), shared, strict=True))
    minus = [oracle.negative(name, code) for _, code in (a, b)]
    rescaled = a[0] != b[0]
    if rescaled and one == other and (one != 0 or minus[0] == minus[1]):
        return "same_value"
    if exact[0] == exact[1] == 0:
        return "zero_sign"
    largest = oracle.largest(name)
    if rescaled:
        if abs(exact[0]) == largest and abs(other) > abs(one):
            return "saturated_a"
        return "saturated_b" if abs(exact[1]) == largest and abs(one) > abs(other) else "other_scale"
    low, high = sorted(map(abs, exact))
    magnitudes = oracle.magnitudes(name)
    beside = high in magnitudes and low == magnitudes[magnitudes.index(high) - 1] and high > 0
    beside |= high not in magnitudes and low == magnitudes[-1]  # -2 of INT8
    if not beside or (minus[0] != minus[1] and low != 0):
        return "other"
    unit = value_of(fmt, a[0], 0, 1) * 0 + oracle.scale(fmt.scale.name, a[0]) * Fraction(shared[0])
    tie = source is not None and high in magnitudes and abs(source) == (low + high) / 2 * unit
    return "tie" if tie else "step"


def classified(a, b, source=None):
    """Counts by kind, one element at a time."""
    kinds = Counter()
    for index in np.ndindex(a.shape):
        place = tuple(i // a.format.block if n == a.block_axis else i for n, i in enumerate(index))
        sides = [(int(q.scales[place]), int(q.codes[index])) for q in (a, b)]
        shared = (a.tensor_scale, b.tensor_scale)
        kind = kind_of(a.format, *sides, shared, None if source is None else source[index])
        if kind:
            kinds[kind] += 1
    return kinds


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_kinds_are_those_that_fractions_give(fmt, shape, axis):
    rng = np.random.default_rng(1)
    middle = fmt.scale.nan_code // 2
    a = random_blocks(fmt, shape, 2, axis=axis, specials=True, nan_share=0.1, scales=(middle, middle + 3))
    codes, scales = a.codes.copy(), a.scales.copy()
    near = rng.random(shape) < 0.2
    codes[near] = (codes[near] + rng.integers(-1, 2, int(near.sum()))) % fmt.element.code_count
    far = rng.random(shape) < 0.1
    codes[far] = rng.integers(0, fmt.element.code_count, int(far.sum()))
    if fmt.element.negated[0]:
        codes[(codes == 0) & (rng.random(shape) < 0.5)] = fmt.element.negated[0]
    moved = rng.random(scales.shape) < 0.4
    up = (scales[moved] + rng.integers(-1, 2, int(moved.sum()))) % fmt.scale.code_count
    scales[moved] = np.where(rng.random(up.size) < 0.1, fmt.scale.nan_code, up)
    b = mxfp.BlockArray(codes, scales, fmt, axis, a.tensor_scale)
    found = counts_of(a, b, 0, None)
    assert found.elements == classified(a, b)
    assert found.elements.total() >= 5
    assert found.tensor_scales is None


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.MXFP8_E4M3, mxfp.MXINT8, mxfp.NVFP4], ids=str)
def test_ties_are_those_that_fractions_give(fmt, dtype):
    x = hard_array(dtype, fmt.element, (size(24, 12), 64), 3)
    a, b = mxfp.quantize(x, fmt), mxfp.quantize(x, fmt, rounding="toward_zero")
    values = np.array(values_of(x)[0], object).reshape(x.shape)
    found = counts_of(a, b, 0, x).elements
    assert found == classified(a, b, values)
    assert fmt.tensor_scale or (found["tie"] and found["step"])


def test_every_kind_has_a_text_and_every_block_one_kind():
    q = random_blocks(mxfp.MXFP4, (7, 32), 0, scales=(100, 101))
    q = changed(q, codes=[((1, slice(None)), [0, 8] * 16)])
    b = changed(
        q,
        codes=[((6, 3), q.codes[6, 3] ^ 1)],
        scales=[((0, 0), 255), ((1, 0), 7), ((2, 0), 101), ((3, 0), 99), ((4, 0), 50)],
    )
    found, back = counts_of(q, b, 0, None), counts_of(b, q, 0, None)
    assert found.blocks == {k: 1 for k in ("nan_b", "zeros", "up", "down", "other_scale", "codes")}
    assert back.blocks == {k: 1 for k in ("nan_a", "zeros", "up", "down", "other_scale", "codes")}
    assert {*found.blocks, *back.blocks} == {*BLOCK_KINDS}
    assert {*found.elements} <= {*ELEMENT_KINDS}
    assert found.elements["same_value"] == 32 + sum(q.codes[2:5].reshape(-1) % 8 == 0)


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_the_first_is_the_first_in_c_order_with_both_its_sides(shape, axis):
    a = random_blocks(mxfp.MXFP4, shape, 0, axis=axis, scales=(120, 130))
    last = tuple(n - 1 for n in shape)
    b = changed(a, codes=[(last, a.codes[last] ^ 8)])
    x = np.arange(a.codes.size, dtype=np.float32).reshape(shape)
    first = counts_of(a, b, 10, x).first
    assert first.index == (last[0] + 10, *last[1:])
    assert (first.a.code, first.b.code) == (int(a.codes[last]), int(b.codes[last]))
    assert (first.a.value, first.b.value) == (float(a.dequantize()[last]), float(b.dequantize()[last]))
    assert first.source == x[last]
    # A scale that differs is a difference of every element of its block, and so of its first.
    end = tuple(n - 1 for n in a.scales.shape)
    b = changed(a, scales=[(end, 7)])
    found, axis = counts_of(a, b, 0, None), a.block_axis
    assert found.first.index == tuple(n * 32 if k == axis else n for k, n in enumerate(end))
    assert (found.first.a.scale, found.first.b.scale) == (int(a.scales[end]), 7)
    assert found.elements.total() == shape[axis] - 32 * end[axis]


ODD = [
    (exponent, mantissa, specials, twos)
    for exponent in (1, 2, 4)
    for mantissa in (0, 1, 3)
    for specials in Specials
    for twos in (False, True)
]


@pytest.mark.parametrize("scale", [E8M0, UE4M3, ScaleFormat("S5", 5, 0, 15, False)], ids=str)
def test_formats_that_are_none_of_the_family_are_compared_too(scale):
    rng, seen = np.random.default_rng(0), 0
    rules = ("nearest",) if scale.mantissa_bits else mxfp.MXFP4.scale_rules
    for exponent, mantissa, specials, twos in ODD:
        element = ElementFormat("odd", exponent, mantissa, 1, specials, twos)
        fmt = BlockFormat("odd", element, scale, 5, rules)
        a, b = (
            mxfp.BlockArray(
                rng.integers(0, element.code_count, (3, 12)).astype(np.uint8),
                rng.integers(0, scale.code_count, (3, 3)).astype(np.uint8),
                fmt,
            )
            for _ in range(2)
        )
        x = rng.standard_normal((3, 12)).astype(np.float32)
        found = counts_of(a, b, 0, x)
        assert found.elements.total() == int(
            ((a.codes != b.codes) | np.repeat(a.scales != b.scales, 5, axis=1)[:, :12]).sum()
        )
        conclude(found, statistics_of(a), statistics_of(b))
        seen += weigh(x, a).elements
    assert seen > len(ODD) * 18


# --- rules, against the oracle


def misses(x, q):
    """How often each rule and rounding misses, from the oracle alone; and how many blocks tell."""
    fmt, name = q.format, q.format.element.name
    values, signs = values_of(x)
    values, signs = (np.array(v, object).reshape(x.shape) for v in (values, signs))
    magnitudes, largest = oracle.magnitudes(name), len(oracle.magnitudes(name)) - 1
    found, blocks = Counter(), 0
    for place in np.ndindex(q.scales.shape):
        where = tuple(
            slice(n * fmt.block, (n + 1) * fmt.block) if k == q.block_axis else n for k, n in enumerate(place)
        )
        block, minus = values[where].tolist(), signs[where].tolist()
        scale, codes = int(q.scales[place]), q.codes[where].tolist()
        if any(isinstance(v, str) for v in block) or scale == fmt.scale.nan_code:
            continue
        amax = max(map(abs, block))
        if amax:
            blocks += 1
            for rule, code in scale_codes(fmt, block, amax, q.tensor_scale).items():
                found[rule] += code != scale
        unit = oracle.scale(fmt.scale.name, scale) * Fraction(q.tensor_scale) or Fraction(1)
        for v, sign, code in zip(block, minus, codes, strict=True):
            element = oracle.element(name, code)
            size_of = abs(element)
            index = magnitudes.index(size_of) if size_of in magnitudes else -1
            negative, zero = oracle.negative(name, code), size_of == 0
            made = indices(abs(v) / unit, magnitudes, largest)
            for rounding, expected in made.items():
                wrong = index not in expected or (not zero and negative != sign)
                found[rounding] += wrong
            if fmt.element.negated[0]:
                found["kept"] += zero and negative != sign
                found["lost"] += zero and negative
                found["negative"] += zero and negative == (v > 0)
    return +found, blocks


def scale_codes(fmt, block, amax, tensor_scale):
    if fmt.tensor_scale:
        return {r: oracle.nvfp4_scale_code(amax, Fraction(tensor_scale), r) for r in fmt.scale_rules}
    found = {r: oracle.scale_code(fmt.element.name, block, r) for r in ("floor", "ceil", "rceil", "even")}
    floor = oracle.floor_log2(amax)
    log2 = floor + (amax * amax > 2 * oracle.power(2 * floor))
    found["nearest_log2"] = min(max(log2 - oracle.emax(fmt.element.name) + 127, 0), 254)
    return found


def indices(v, magnitudes, largest):
    """By rounding, the indices of the magnitudes that it may give."""
    below = max(i for i, m in enumerate(magnitudes) if m <= v)
    above = below if below == largest or v == magnitudes[below] else below + 1
    found = {
        r: {oracle.round_magnitude(min(v, magnitudes[-1]), magnitudes, r, None)}
        for r in ("nearest_even", "nearest_away", "toward_zero")
    }
    tie = above > below and 2 * v == magnitudes[below] + magnitudes[above]
    found["nearest_zero"] = {below} if tie else found["nearest_even"]
    found["even_but_quarter"] = {1} if tie and below == 0 else found["nearest_even"]
    found["either"] = {below, above}
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_misses_are_those_that_the_oracle_counts(fmt, dtype):
    x = with_specials(
        hard_array(dtype, fmt.element, (size(8, 4), 3 * fmt.block + 5), 4, block=fmt.block), 5, 0.005
    )
    x[0, : fmt.block] = 0
    rng = np.random.default_rng(6)
    q = mxfp.quantize(x, fmt, rounding="stochastic", rng=rng, scale_rule="rceil")
    codes, scales = q.codes.copy(), q.scales.copy()
    edits = rng.random(codes.shape) < 0.05
    codes[edits] = rng.choice(np.flatnonzero(fmt.element.finite), int(edits.sum()))
    moved = rng.random(scales.shape) < 0.1
    scales[moved] = np.minimum(scales[moved] + 1, fmt.scale.nan_code)
    scales[1, 1] = fmt.scale.nan_code
    q = mxfp.BlockArray(codes, scales, fmt, -1, q.tensor_scale)
    found, (expected, blocks) = weigh(x, q), misses(x, q)
    assert {k: v for k, v in found.misses.items() if k != "floor_float32"} == expected
    assert found.blocks == blocks
    assert {*found.tried} >= {*expected}


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_misses_do_not_depend_on_the_axis(axis):
    x = np.random.default_rng(0).standard_normal((40, 33, 35)).astype(np.float32)
    q = mxfp.quantize(x, axis=axis, rounding="toward_zero")
    along = mxfp.quantize(np.moveaxis(x, axis, -1), rounding="toward_zero")
    one, other = weigh(x, q), weigh(np.moveaxis(x, axis, -1), along)
    assert one == other
    assert one.fitting(ROUNDING_TEXTS) == ("toward_zero",)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_every_rule_and_rounding_of_the_package_is_found(fmt):
    x = np.random.default_rng(7).standard_normal((24, 4 * fmt.block)).astype(ml_dtypes.bfloat16)
    x[0, :4] = [0.0, -0.0, 1e-30, -1e-30]
    for rule in fmt.scale_rules:
        for rounding in ("nearest_even", "nearest_away", "toward_zero"):
            q = mxfp.quantize(x, fmt, scale_rule=rule, rounding=rounding)
            if rule == "search" and rounding != "nearest_even":
                continue  # measured with its own rounding
            found = weigh(x, q, search=rule == "search")
            assert rule in found.fitting(SCALE_TEXTS)
            assert rounding in found.fitting(ROUNDING_TEXTS)
            assert "kept" in found.fitting(ZERO_TEXTS)
            assert found.explained
            assert (rounding == "toward_zero") == (found.fitting(ROUNDING_TEXTS) == ("toward_zero",))
    stochastic = mxfp.quantize(x, fmt, rounding="stochastic", rng=np.random.default_rng(0))
    assert weigh(x, stochastic).fitting(ROUNDING_TEXTS) == ("either",)


def test_the_signs_of_zeros_are_told_apart():
    x = np.array([[0.0, -0.0, 0.01, -0.01, 6.0, *[1.0] * 27]], np.float32)
    q = mxfp.quantize(x)
    assert q.codes[0, :4].tolist() == [0, 8, 0, 8]
    for written, expected in (([0, 8, 0, 8], "kept"), ([0, 0, 0, 0], "lost"), ([8, 8, 0, 8], "negative")):
        found = weigh(x, changed(q, codes=[((0, slice(4)), written)]))
        assert found.fitting(ZERO_TEXTS) == (expected,)
        assert found.explained


def test_blocks_that_are_not_finite_are_left_out_and_nan_in_the_file_alone_is_not():
    x = np.ones((4, 32), np.float32)
    x[1, 3], x[2, 5] = np.nan, np.inf
    q = mxfp.quantize(x)
    found = weigh(x, changed(q, scales=[((3, 0), 255)]))
    assert (found.left_out, found.nan, found.blocks, found.elements) == (2, 1, 1, 32)
    assert not found.explained
    assert weigh(x, q).explained


def test_blocks_of_zeros_say_nothing_of_a_rule_but_their_scale_is_counted():
    x = np.zeros((3, 32), np.float32)
    x[2] = 1
    q = changed(mxfp.quantize(x), scales=[((0, 0), 127)])
    found = weigh(x, q)
    assert (found.blocks, found.zero_scales) == (1, 1)
    assert found.fitting(SCALE_TEXTS)[0] == "floor"


# --- two files


def weights(shape=(24, 64), dtype=ml_dtypes.bfloat16, seed=0):
    """Floats with many ties, of both signs, and a matrix that is not quantized."""
    rng = np.random.default_rng(seed)
    made = {f"blk.{n}.w": (rng.standard_normal(shape) * 0.05).astype(dtype) for n in range(2)}
    return {**{k: v.astype(np.float32) for k, v in made.items()}, "norm": np.ones(5, np.float32)}


def quantized(arrays, fmt=mxfp.MXFP4, **options):
    return {k: mxfp.quantize(v, fmt, **options) if v.ndim > 1 else v for k, v in arrays.items()}


def by_gguf(path, arrays):
    """The file that gguf's own quantizer makes."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, x in arrays.items():
        if x.ndim > 1:
            writer.add_tensor(name, gguf.quants.quantize(x, Type.MXFP4), raw_dtype=Type.MXFP4)
        else:
            writer.add_tensor(name, x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def files(tmp_path):
    """A function that writes arrays to a file of that name, and the floats as source.safetensors."""
    source = weights()
    save_file(source, tmp_path / "source.safetensors")

    def write(name, arrays=None, layout=None, **options):
        made = quantized(source, **options) if arrays is None else arrays
        write_model(tmp_path / name, made, layout=layout, overwrite=True)
        return tmp_path / name

    write.source, write.arrays = tmp_path / "source.safetensors", source
    return write


@pytest.mark.parametrize("layout", ["gpt-oss", "compressed-tensors", "modelopt", "mxfp"])
def test_files_in_other_layouts_are_equal(files, layout):
    a, b = files("a.gguf"), files("b.safetensors", layout=layout)
    done = run(a, b)
    assert done.exit_code == 0
    assert "3 tensors in both: 3 equal in every bit, 0 not" in done.output
    assert as_json(a, b)["equal"]
    assert run(a, files("c.onnx")).exit_code == 0


RULES = [("floor", rule) for rule in ("rceil", "ceil", "even", "search")] + [
    ("rceil", "ceil"),
    ("even", "search"),
]


@pytest.mark.parametrize(("one", "other"), RULES)
def test_the_scale_rules_are_named(files, one, other):
    a, b = files("a.gguf", scale_rule=one), files("b.safetensors", layout="gpt-oss", scale_rule=other)
    done = run(a, b, "--source", files.source)
    assert done.exit_code == 1
    assert f"So: B used {other}, A {one}\n" in done.output
    found = as_json(a, b, "--source", files.source)["explained"]["MXFP4"]
    assert (found["a"]["scale_rules"], found["b"]["scale_rules"]) == ([one], [other])
    assert found["a"]["complete"]
    assert found["b"]["complete"]
    assert found["a"]["roundings"] == ["nearest_even"]


ROUNDED = {
    "nearest_away": "ties away from zero",
    "toward_zero": "truncation toward zero",
    "stochastic": "codes on either side, as of stochastic rounding",
}


@pytest.mark.parametrize("rounding", ROUNDED)
def test_the_roundings_are_named(files, rounding):
    rng = np.random.default_rng(0) if rounding == "stochastic" else None
    a, b = files("a.gguf"), files("b.gguf", rounding=rounding, rng=rng)
    assert f"So: B has {ROUNDED[rounding]}, A ties to even\n" in run(a, b, "--source", files.source).output
    (tensor, *_) = as_json(a, b, "--source", files.source)["tensors"]
    # Only ties differ between the two roundings to nearest.
    assert set(tensor["elements"]) == ({"tie"} if rounding == "nearest_away" else {"tie", "step"})


def test_a_file_of_gguf_is_named_by_its_ties_and_zeros(files, tmp_path):
    a, b = files("a.safetensors", layout="gpt-oss"), by_gguf(tmp_path / "theirs.gguf", files.arrays)
    text = run(a, b, "--source", files.source).output
    assert "B: scale rule floor; ties toward zero; -0 is never written; as ggml and gguf\n" in text
    assert "So: B has ties toward zero, A ties to even; in B -0 is never written" in text
    found = as_json(a, b, "--source", files.source)
    assert found["explained"]["MXFP4"]["b"]["writer"] == "ggml and gguf"
    assert {k for t in found["tensors"] for k in t["elements"]} == {"tie", "zero_sign"}


def test_a_logarithm_in_float32_is_named(files, tmp_path):
    below = np.nextafter(np.float32(2.0) ** np.arange(10, 90, dtype=np.float32), np.float32(0))
    x = np.tile(below[:, None], (1, 32)) * np.linspace(0.3, 1, 32, dtype=np.float32)
    assert (np.abs(x).max(axis=1) == below).all()
    x = np.concatenate([x, np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)])
    save_file({"w": x}, tmp_path / "steep.safetensors")
    b = by_gguf(tmp_path / "theirs.gguf", {"w": x})
    a = files("a.gguf", {"w": mxfp.quantize(x)})
    found = as_json(a, b, "--source", tmp_path / "steep.safetensors")["explained"]["MXFP4"]
    assert found["b"]["scale_rules"] == ["floor_float32"]
    assert found["b"]["complete"]
    assert found["verdict"].startswith("B used floor with log2 in float32, A floor")


def test_a_rounded_logarithm_is_named():
    x = np.random.default_rng(0).standard_normal((200, 32)).astype(np.float32)
    amax = np.abs(x).max(axis=1)
    exponent = np.round(np.log2(amax.astype(np.float64))).astype(int) - 2
    scaled = x / np.ldexp(np.float32(1), exponent)[:, None]
    q = mxfp.BlockArray(
        mxfp.encode(scaled, mxfp.E2M1), (exponent + 127).astype(np.uint8)[:, None], mxfp.MXFP4
    )
    found = weigh(x, q)
    assert found.fitting(SCALE_TEXTS) == ("nearest_log2",)
    assert found.explained


@pytest.mark.parametrize(("first", "dtype"), [("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16)])
def test_a_source_that_was_rounded_first_is_named(files, tmp_path, first, dtype):
    x = weights((256, 128), np.float32)
    save_file(x, tmp_path / "fine.safetensors")
    a = files("a.gguf", quantized(x))
    b = files("b.gguf", {k: mxfp.quantize(v.astype(dtype)) if v.ndim > 1 else v for k, v in x.items()})
    found = as_json(a, b, "--source", tmp_path / "fine.safetensors")["explained"]["MXFP4"]
    assert (found["a"]["reading"], found["b"]["reading"]) == (None, first)
    assert found["verdict"] == f"B quantized the source in {first}, A the source as it is"


def test_what_no_rule_gives_is_said_with_the_closest(files):
    made = quantized(files.arrays, scale_rule="rceil")
    made["blk.0.w"] = changed(made["blk.0.w"], codes=[((3, 5), made["blk.0.w"].codes[3, 5] ^ 3)])
    a, b = files("a.gguf"), files("b.gguf", made)
    text = run(a, b, "--source", files.source).output
    assert (
        "B: none of the rules known explains all: scale rule rceil; ties to even, but for 1 of 3,072 elements"
        in text
    )
    assert "So: B used rceil, A floor; none of the rules known explains all of B\n" in text


def test_tensors_that_the_source_lacks_are_said(files, tmp_path):
    some = {k: v for k, v in files.arrays.items() if k != "blk.1.w"}
    some["blk.0.w"] = some["blk.0.w"].astype(np.float16)
    save_file(some, tmp_path / "part.safetensors")
    a, b = files("a.gguf"), files("b.gguf", scale_rule="ceil")
    text = run(a, b, "--source", tmp_path / "part.safetensors").output
    assert "the source has none of this name" in " ".join(text.split())
    assert "So: B used ceil, A floor" in text
    for wrong, piece in (
        ({"blk.0.w": np.ones((2, 2), np.float32)}, "the source has shape (2, 2)"),
        ({"blk.0.w": np.ones((24, 64), np.int8)}, "the source has it in I8, expected floats"),
    ):
        save_file(wrong, tmp_path / "wrong.safetensors")
        text = run(a, b, "--source", tmp_path / "wrong.safetensors").output
        assert piece in " ".join(text.split())
        assert "From codes and scales alone" in text


# --- without a source


def concluded(a, b):
    counts = counts_of(a, b, 0, None)
    return conclude(counts, statistics_of(a), statistics_of(b))


@pytest.fixture(scope="module")
def many():
    """Enough blocks to tell rules apart."""
    return np.random.default_rng(0).standard_normal((64, 32 * 32)).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("fmt", MX, ids=str)
@pytest.mark.parametrize("rule", ["floor", "ceil", "rceil", "even"])
def test_the_largest_codes_fit_the_rule_that_was_used(fmt, rule, many):
    found = statistics_of(mxfp.quantize(many, fmt, scale_rule=rule))
    assert found.largest.sum() >= ENOUGH
    assert rule in rules_that_fit(found)
    shares = largest_codes(fmt, rule)
    assert {int(c) for c in np.flatnonzero(found.largest)} <= {*shares}
    assert sum(shares.values()) == pytest.approx(1)


def test_rules_that_the_largest_codes_exclude_are_named(many):
    fits = {
        r: rules_that_fit(statistics_of(mxfp.quantize(many, scale_rule=r))) for r in mxfp.MXFP4.scale_rules
    }
    assert fits["floor"] == fits["even"] == ("floor", "even")
    assert (fits["ceil"], fits["rceil"]) == (("ceil",), ("rceil",))
    assert rules_that_fit(statistics_of(mxfp.quantize(many, mxfp.NVFP4))) == ()
    said = concluded(mxfp.quantize(many), mxfp.quantize(many, scale_rule="ceil"))
    assert said[0].startswith("wherever scales differ, that of B is one code higher (")
    assert said[-1] == "so B seems to have used ceil, and A floor or even; --source would tell"


def test_codes_that_make_up_for_scales_are_said():
    q = mxfp.quantize(np.random.default_rng(0).choice([1.0, 2.0, 4.0], (4, 32)))
    halved = mxfp.BlockArray(q.codes - 2 * (q.codes > 2) - (q.codes == 2), q.scales + 1, q.format)
    np.testing.assert_array_equal(q.dequantize(), halved.dequantize())
    assert concluded(q, halved) == [
        "wherever scales differ, that of B is one code higher (4 of 4 blocks)",
        "the codes make up for it: every value is the same",
    ]


def test_signs_of_zeros_and_who_never_writes_them_are_said():
    x = np.random.default_rng(0).standard_normal((8, 32)) * 0.2
    x[:, 0] = 4
    q = mxfp.quantize(x)
    without = changed(q, codes=[(q.codes == 8, 0)])
    number = int((q.codes == 8).sum())
    assert concluded(q, without) == [f"{number} zeros differ in sign; B has no -0 at all"]
    assert concluded(without, q) == [f"{number} zeros differ in sign; A has no -0 at all"]
    turned = changed(q, codes=[(q.codes % 8 == 0, q.codes[q.codes % 8 == 0] ^ 8)])
    assert concluded(q, turned) == [f"{int((q.codes % 8 == 0).sum())} zeros differ in sign"]


def test_roundings_are_told_from_neighbours(many):
    even, away = mxfp.quantize(many), mxfp.quantize(many, rounding="nearest_away")
    tie = (even.codes != away.codes).copy()
    below = np.where(tie, even.codes, even.codes)
    scaled = np.abs(many.astype(np.float64)) / np.repeat(
        np.ldexp(1.0, even.scales.astype(int) - 127), 32, axis=1
    )
    low = np.searchsorted(mxfp.E2M1.magnitudes, scaled, side="right") - 1
    middle = np.append((mxfp.E2M1.magnitudes[1:] + mxfp.E2M1.magnitudes[:-1]) / 2, np.inf)[low]
    below = np.where(scaled == middle, low | even.codes & 8, even.codes).astype(np.uint8)
    down = mxfp.BlockArray(below, even.scales, mxfp.MXFP4)
    for a, b, said in (
        (even, away, "as of ties to even in A and away from zero in B"),
        (away, even, "as of ties to even in B and away from zero in A"),
        (even, down, "as of ties to even in A and toward zero in B"),
        (down, even, "as of ties to even in B and toward zero in A"),
        (down, away, "B has the larger in all of them, as of a rounding further from zero"),
        (mxfp.quantize(many, rounding="toward_zero"), even, "B has the larger in all of them"),
        (mxfp.quantize(many, rounding="stochastic", rng=np.random.default_rng(0)), even, "neither has"),
    ):
        (found,) = concluded(a, b)
        assert "elements lie in neighbouring codes of equal scales: " in found
        assert said in found
    few = changed(even, codes=[((0, 0), even.codes[0, 0] ^ 1)])
    assert concluded(even, few) == [
        "1 elements lie in neighbouring codes of equal scales: too few to say more"
    ]


def test_nan_zeros_and_tensor_scales_are_said():
    q = mxfp.quantize(np.concatenate([np.zeros((2, 32)), np.ones((3, 32))]))
    b = changed(q, scales=[((0, 0), 127), ((1, 0), 9), ((2, 0), 255)])
    said = concluded(q, b)
    assert said[0] == "2 blocks of zeros have other scale codes, which changes no value: 0 in A, 9 127 in B"
    assert said[1].startswith("1 blocks have the scale code 255, NaN, in B alone")
    n = mxfp.quantize(np.ones((2, 16)), mxfp.NVFP4)
    other = changed(n, tensor_scale=2 * n.tensor_scale)
    assert concluded(n, other) == ["the tensor scales differ, so that all values do, whatever the codes"]


# --- everything else that can differ


def test_every_kind_is_shown_in_words(files):
    q = random_blocks(mxfp.MXFP4, (8, 64), 0, scales=(120, 121))
    codes = [((0, 0), 0), ((0, 1), 3), ((0, 2), 1), ((1, slice(0, 32)), 7), ((2, slice(0, 32)), 2)]
    a = changed(q, codes=codes)
    b = changed(
        a,
        codes=[((0, 0), 8), ((0, 1), 4), ((0, 2), 7), ((2, slice(0, 32)), 1)],
        scales=[((1, 0), 121), ((2, 0), 121), ((3, 1), 255), ((4, 0), 119)],
    )
    found = as_json(files("a.gguf", {"w": a}), files("b.safetensors", {"w": b}))
    (tensor,) = found["tensors"]
    assert tensor["elements"] == dict(classified(a, b))
    assert {*tensor["elements"]} >= {"zero_sign", "step", "other", "saturated_a", "same_value", "nan"}
    assert tensor["blocks"] == {"codes": 1, "up": 2, "nan_b": 1, "down": 1}
    assert tensor["first"]["index"] == [0, 0]
    assert tensor["first"]["a"] == {"scale": 120, "code": 0, "value": 0.0}
    text = run(files("a.gguf", {"w": a}), files("b.safetensors", {"w": b})).output
    for kind in tensor["elements"]:
        assert ELEMENT_KINDS[kind] in text
    for kind in tensor["blocks"]:
        assert BLOCK_KINDS[kind] in text
    assert "First: w at (0, 0)" in text
    assert " A          78   2^-7     0  0 00 0        0      0" in text


def test_arrays_are_compared_by_bits(files):
    base = {"f": np.array([[1.0, -0.0], [np.nan, 2.0]], np.float32), "i": np.arange(6), "s": np.array(3.0)}
    other = {"f": base["f"].copy(), "i": base["i"].copy(), "s": base["s"]}
    a = files("a.safetensors", base)
    assert run(a, files("b.safetensors", other)).exit_code == 0
    other["f"][0, 1], other["i"][5] = 0.0, 7
    done = run(a, files("b.safetensors", other))
    assert done.exit_code == 1
    assert "First: f at (0, 1): -0.0 in A, 0.0 in B" in done.output
    found = {t["name"]: t for t in as_json(a, files("b.safetensors", other))["tensors"]}
    assert (found["f"]["elements"], found["i"]["elements"]) == ({"bits": 1}, {"bits": 1})
    assert found["i"]["first"] == {"index": [5], "source": None, "a": 5, "b": 7}
    assert found["s"]["status"] == "equal"


def test_floats_of_another_type_are_compared_by_value(files):
    x = np.array([1.0, 1.5, -0.0], np.float32)
    a = files("a.safetensors", {"same": x, "other": x + np.float32(1e-6)})
    b = files("b.safetensors", {k: x.astype(ml_dtypes.bfloat16) for k in ("same", "other")})
    done = run(a, b)
    assert done.exit_code == 1
    text = " ".join(done.output.split())
    assert "F32 in A, BF16 in B; the same values" in text
    assert "F32 in A, BF16 in B; other values too" in text


def test_other_quantized_types_are_compared_as_bytes(tmp_path):
    def write(path, flip):
        writer = gguf.GGUFWriter(path, "llama")
        raw = np.arange(2 * 144, dtype=np.uint32).astype(np.uint8).reshape(2, 144)
        raw[1, 7] ^= flip
        writer.add_tensor("w", raw, raw_dtype=Type.Q4_K)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    a, same, other = (write(tmp_path / f"{n}.gguf", n == 2) for n in range(3))
    assert run(a, same).exit_code == 0
    done = run(a, other)
    assert done.exit_code == 1
    assert "other bytes, of types that are compared as they lie" in done.output
    assert as_json(a, other)["tensors"][0]["elements"] == {"bytes": 1}


def test_shapes_types_axes_and_missing_tensors_are_said(files):
    x = np.ones((64, 64), np.float32)
    a = files(
        "a.safetensors", {"shape": x, "type": mxfp.quantize(x), "axis": mxfp.quantize(x), "a": x, "ok": x}
    )
    b = files(
        "b.safetensors",
        {
            "shape": x[:2],
            "type": mxfp.quantize(x, mxfp.MXFP6_E2M3),
            "axis": mxfp.quantize(x, axis=0),
            "b\x1b": x,
            "ok": x,
        },
    )
    done = run(a, b)
    text = " ".join(done.output.split())
    assert done.exit_code == 1
    for piece in (
        "4 tensors in both: 1 equal in every bit, 3 not",
        "In A alone: a In B alone: b\\x1b",
        "(64, 64) in A, (2, 64) in B",
        "MXFP4 in A, MXFP6_E2M3 in B",
        "blocks along axis 1 in A, 0 in B",
    ):
        assert piece in text
    found = as_json(a, b)
    assert (found["only_a"], found["only_b"]) == (["a"], ["b\x1b"])
    assert [t["status"] for t in found["tensors"]] == ["shape", "type", "type", "equal"]


def test_tensor_scales_that_differ_are_said_and_named(files):
    made = quantized(files.arrays, mxfp.NVFP4)
    other = {k: changed(v, tensor_scale=v.tensor_scale * 2) if v.ndim > 1 else v for k, v in made.items()}
    a, b = files("a.gguf", made), files("b.safetensors", other, layout="modelopt")
    done = run(a, b)
    assert done.exit_code == 1
    assert "the tensor scales differ" in done.output
    found = as_json(a, b)["tensors"][0]
    scale = made["blk.0.w"].tensor_scale
    assert (found["elements"], found["tensor_scales"]) == ({}, [scale, 2 * scale])
    b = files(
        "c.gguf",
        {
            k: mxfp.quantize(v, mxfp.NVFP4, scale_rule="rceil") if v.ndim > 1 else v
            for k, v in files.arrays.items()
        },
    )
    assert "So: B used rceil, A nearest\n" in run(a, b, "--source", files.source).output


def test_formats_are_explained_apart(files):
    x = files.arrays["blk.0.w"]

    def both(**options):
        return {
            "blk.0.w": mxfp.quantize(x, **options),
            "blk.1.w": mxfp.quantize(x, mxfp.MXFP8_E4M3, **options),
        }

    a, b = files("a.safetensors", both()), files("b.safetensors", both(scale_rule="ceil"))
    text = run(a, b, "--source", files.source).output
    assert "MXFP4, A: scale rule floor; ties to even" in text
    assert "MXFP8_E4M3, B: " in text
    assert "From codes and scales alone, MXFP8_E4M3:" in run(a, b).output


def test_names_can_be_made_to_match(files):
    other = {k.replace("blk.", "model.layers."): v for k, v in quantized(files.arrays).items()}
    a, b = files("a.gguf"), files("b.safetensors", other, layout="gpt-oss")
    assert run(a, b).exit_code == 1
    assert run(a, b, "--rename", r"^model\.layers\.=blk.").exit_code == 0
    assert run(a, b, "--rename", r"^model\.=", "--rename", "^layers=blk").exit_code == 0
    done = run(a, b, "--rename", "model")
    assert done.exit_code == 2
    assert "expected a regular expression, =, and what replaces it" in done.output


def test_only_the_tensors_asked_for_are_compared(files):
    made = quantized(files.arrays)
    made["blk.1.w"] = changed(made["blk.1.w"], codes=[((0, 0), made["blk.1.w"].codes[0, 0] ^ 1)])
    a, b = files("a.gguf"), files("b.gguf", made)
    assert run(a, b).exit_code == 1
    assert run(a, b, "--tensor", "blk.0.*", "--tensor", "norm").exit_code == 0
    assert run(a, b, "--tensor", "blk.1.*").exit_code == 1


def test_tensors_that_are_not_shown_are_counted(files):
    a, b = files("a.gguf"), files("b.gguf", scale_rule="ceil")
    text = run(a, b, "--show", "1").output
    assert "and 1 more; --show has them" in text
    assert "blk.1.w" not in text
    assert "blk.1.w" in run(a, b).output


def test_rows_are_read_in_tiles_and_the_first_is_the_first(files, monkeypatch):
    q = random_blocks(mxfp.MXFP4, (32, 32 * 64), 0)
    b = changed(q, codes=[((n, 5), q.codes[n, 5] ^ 1) for n in (30, 17, 9)])
    monkeypatch.setattr("mxfp.files.blockwise.pieces.__kwdefaults__", {"size": 4096})
    seen, read = [], ModelFile.rows

    def watched(self, name, start, stop):
        seen.append((start, stop))
        return read(self, name, start, stop)

    monkeypatch.setattr(ModelFile, "rows", watched)
    with open_model(files("a.gguf", {"w": q})) as one, open_model(files("b.gguf", {"w": b})) as other:
        found = compare(one, other).tensors[0]
    assert found.counts.first.index == (9, 5)
    assert found.counts.elements == {"step": 3}
    assert sorted(seen) == sorted([(n, n + 2) for n in range(0, 32, 2)] * 2)


def test_a_source_is_read_in_tiles_and_both_passes_see_all_of_it(files, tmp_path):
    x = np.random.default_rng(0).standard_normal((40, 4096)).astype(np.float32)
    save_file({"w": x}, tmp_path / "x.safetensors")
    rng = np.random.default_rng(0)
    a = files("a.gguf", {"w": mxfp.quantize(x)})
    b = files("b.gguf", {"w": mxfp.quantize(x, rounding="stochastic", rng=rng, scale_rule="search")})
    done = []
    with open_model(a) as one, open_model(b) as other, open_model(tmp_path / "x.safetensors") as source:
        found = explain(compare(one, other, source), source, progress=lambda name, n: done.append(n))
    assert sum(done) == 2 * x.nbytes
    assert found["MXFP4"].b.scale_rules == ("search",)
    assert found["MXFP4"].b.weighed.elements == x.size
    assert found["MXFP4"].a.weighed.blocks == x.size // 32


def test_search_is_held_against_some_of_many_blocks_and_that_is_said(files, tmp_path, monkeypatch):
    monkeypatch.setattr("mxfp.files.explaining.TILE", 1024)
    monkeypatch.setattr("mxfp.files.explaining.SEARCHED", 2048)
    x = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    save_file({"w": x}, tmp_path / "x.safetensors")
    a = files("a.gguf", {"w": mxfp.quantize(x)})
    b = files("b.gguf", {"w": mxfp.quantize(x, scale_rule="search")})
    text = run(a, b, "--source", tmp_path / "x.safetensors").output
    assert "B: scale rule search (by 64 of 512 blocks); rounding to nearest" in text
    assert "So: B used search, A floor\n" in text


# --- what cannot be compared


def status(capsys, monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["mxfp", "diff", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return (ended.value.code, *capsys.readouterr())


def test_what_cannot_be_read_is_one_line_and_status_2(files, tmp_path, capsys, monkeypatch):
    a = files("a.gguf")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(a.read_bytes()[:-40])
    for arguments, piece in (
        ((a, tmp_path / "none.gguf"), "No such file"),
        ((a, cut), "cut off"),
        ((cut, a), "cut off"),
        ((a, a, "--source", cut), "cut off"),
        ((a, a, "--tensor", "nothing"), "--tensor nothing: no tensor of"),
        ((a, a, "--rename", "(=x"), "--rename (=x:"),
        ((a, a, "--rename", "blk=\\9"), "--rename blk=\\9: invalid group reference"),
        ((a, a, "--rename", ".*=x"), "--rename gives 2 of its tensors names twice"),
    ):
        code, out, err = status(capsys, monkeypatch, *arguments)
        assert code == 2
        assert not out
        assert err.count("\n") == 1
        assert err.startswith("mxfp: ")
        assert piece in err


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_mutated_files_are_compared_or_end_in_one_line(files, kind, capsys, monkeypatch):
    whole = files(f"a.{kind}")
    raw, rng, seen = whole.read_bytes(), np.random.default_rng(9), Counter()
    path = whole.with_name(f"mutated.{kind}")
    for _ in range(size(150, 40)):
        path.write_bytes(mutated(raw, rng))
        code, out, err = status(capsys, monkeypatch, whole, path, "--source", files.source)
        seen[code] += 1
        if code == 2:
            assert not out
            assert err.startswith("mxfp: ")
            assert err.count("\n") == 1
        else:
            assert not err
            assert out
    assert {*seen} == {0, 1, 2} or {*seen} == {1, 2}


def test_a_name_is_renamed_to_one_of_another_only_once(files):
    a, b = files("a.gguf"), files("b.gguf")
    with open_model(a) as one, open_model(b) as other:
        found, only_a, only_b = pairs_of(one, other, renames=[("blk.0", "blk.5")])
        assert [p.name for p in found] == ["blk.1.w", "norm"]
        assert (only_a, only_b) == (["blk.0.w"], ["blk.5.w"])
        with pytest.raises(FileError, match="names twice"):
            pairs_of(one, other, renames=[("blk.0", "blk.1")])


def test_counts_of_nothing_are_equal():
    assert Counts().equal
    q = random_blocks(mxfp.MXFP4, (2, 32), 0)
    assert counts_of(q, q, 0, None).equal
