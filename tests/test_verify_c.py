# SPDX-License-Identifier: Apache-2.0
"""The C model against the reference, by bits: every function, through ctypes and through DPI-C.

CFLAGS are given to the compiler; with -fsanitize=address,undefined (and libasan preloaded) all of it runs
under the sanitizers.
"""

import ctypes
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import mxfp
import oracle
from mxfp.distributions import DISTRIBUTIONS, SCALES, draw
from mxfp.dot import Terms
from mxfp.verify.export import C_FILES, c_files, export_c
from mxfp.verify.unit import Batch, Unit, expected
from mxfp.verify.vectors import Suite
from support import DTYPES, bits, digits, from_bits, golden, name_of, random_blocks, same_bits, size
from test_accumulate import GOLDEN, hard_terms, made_of

SOURCE = Path(mxfp.__file__).parent / "verify" / "c"
HEADER = (SOURCE / "mxfp_dot.h").read_text(encoding="utf-8")
PAGE = (Path(__file__).parents[1] / "docs" / "c-model.md").read_text(encoding="utf-8")
COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
VERILATOR = shutil.which("verilator")
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Werror"]

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler (cc, gcc or clang)")

FORMATS = [mxfp.MXFP4, mxfp.MXFP6_E2M3, mxfp.MXFP6_E3M2, mxfp.MXINT8, mxfp.NVFP4]
"""By the numbers that the header gives them."""
FLOATS = list(DTYPES)
FLOAT = {name: n for n, name in enumerate(("float16", "bfloat16", "float32", "float64"))}
OVERFLOWS = {"raise": 0, "wrap": 1, "saturate": 2}
ROUNDINGS = {"floor": 0, "toward_zero": 1, "nearest_even": 2}
OK, OVERFLOW, BAD = 0, 1, 2
EXACT_WORDS, EXACT_REACH = 21, 288


class Term(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("sum", "exponent", "align", "live", "special")]


class Fixed(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("width", "lsb_exponent", "overflow", "rounding")]


class Fused(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int32)
        for name in ("fraction_bits", "group", "step", "zero_exponent", "products", "result_bits")
    ]


class Accumulator(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("kind", "float_format", "group")] + [
        ("fixed", Fixed),
        ("fused", Fused),
    ]


def of(accumulator: mxfp.accumulate.Accumulator) -> Accumulator:
    """An accumulator as C takes it."""
    found = Accumulator(float_format=FLOAT[accumulator.result_dtype.name])
    if isinstance(accumulator, mxfp.Sequential):
        found.kind, found.group = 0, accumulator.group or 0
    elif isinstance(accumulator, mxfp.Exact):
        found.kind = 1
    elif isinstance(accumulator, mxfp.FixedPoint):
        found.kind, found.fixed = 2, fixed_of(accumulator)
    else:
        found.kind = 3
        found.fused = Fused(
            accumulator.fraction_bits,
            accumulator.group,
            accumulator.step,
            accumulator.zero_exponent,
            accumulator.exponents == "products",
            accumulator.result_bits,
        )
    return found


def fixed_of(register: mxfp.FixedPoint) -> Fixed:
    return Fixed(
        register.width, register.lsb_exponent, OVERFLOWS[register.overflow], ROUNDINGS[register.rounding]
    )


def at(array: np.ndarray | None) -> ctypes.c_void_p:
    assert array is None or array.flags.c_contiguous
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


class Model:
    """The compiled C, taking numpy arrays."""

    def __init__(self, library: Path) -> None:
        self.lib = ctypes.CDLL(str(library))
        for name, kind in (
            ("mxfp_decode", ctypes.c_int32),
            ("mxfp_sequential", ctypes.c_uint64),
            ("mxfp_sequential_f32", ctypes.c_uint32),
            ("mxfp_sequential_f16", ctypes.c_uint16),
            ("mxfp_sequential_bf16", ctypes.c_uint16),
            ("mxfp_exact_result", ctypes.c_uint64),
            ("mxfp_fixed_result", ctypes.c_uint64),
        ):
            getattr(self.lib, name).restype = kind
        word, short = ctypes.c_uint64, ctypes.POINTER(Term)
        self.lib.mxfp_sequential.argtypes = [ctypes.c_int, word, short]
        self.lib.mxfp_sequential_f32.argtypes = [ctypes.c_uint32, short]
        self.lib.mxfp_sequential_f16.argtypes = [ctypes.c_uint16, short]
        self.lib.mxfp_sequential_bf16.argtypes = [ctypes.c_uint16, short]
        self.lib.mxfp_fixed_result.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32]

    def dots(self, accumulator, a: mxfp.BlockArray, b: mxfp.BlockArray) -> tuple[np.ndarray, np.ndarray]:
        """Rows (n, K) of whole blocks -> results of the accumulator's dtype, status of each."""
        cases, length = a.shape
        lanes = a.format.block
        assert length % lanes == 0
        numbers = [FORMATS.index(q.format) for q in (a, b)]
        results, status = np.zeros(cases, np.uint64), np.zeros(cases, np.uint8)
        arrays = [np.ascontiguousarray(x) for x in (a.codes, b.codes, a.scales, b.scales)]
        worst = self.lib.mxfp_dot_batch(
            ctypes.byref(of(accumulator)),
            *numbers,
            ctypes.c_size_t(lanes),
            ctypes.c_size_t(length // lanes),
            ctypes.c_size_t(cases),
            *map(at, arrays),
            at(results),
            at(status),
        )
        assert worst == status.max(initial=0)
        dtype = accumulator.result_dtype
        assert not (results >> np.uint64(min(8 * dtype.itemsize, 63)) > 1).any()
        return results.astype(f"u{dtype.itemsize}").view(dtype), status

    def term(self, fa: int, fb: int, codes_a, codes_b, scale_a: int, scale_b: int) -> Term:
        term = Term()
        sides = [np.ascontiguousarray(x, np.uint8) for x in (codes_a, codes_b)]
        status = self.lib.mxfp_block_term(
            fa, fb, ctypes.c_size_t(len(sides[0])), *map(at, sides), scale_a, scale_b, ctypes.byref(term)
        )
        assert status == OK
        return term


def compile_library(folder: Path, *flags: str) -> Path:
    library = folder / "libmxfp_dot.so"
    given = shlex.split(os.environ.get("CFLAGS", ""))
    command = [COMPILER, "-std=c99", "-O2", "-shared", "-fPIC", *given, *flags]
    subprocess.run([*command, "-o", str(library), str(SOURCE / "mxfp_dot.c")], check=True)
    return library


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Model:
    return Model(compile_library(tmp_path_factory.mktemp("c"), *WARNINGS))


COMPILERS = [
    command
    for command in (
        "cc -std=c99",
        "gcc -std=c99",
        "clang -std=c99",
        "g++ -std=c++11 -x c++",
        "clang++ -std=c++11 -x c++",
    )
    if shutil.which(command.split()[0])
]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_it_compiles_without_a_warning_as_c_and_as_cpp(compiler, tmp_path):
    name, *flags = compiler.split()
    source, target = str(SOURCE / "mxfp_dot.c"), str(tmp_path / "x.o")
    command = [name, *flags, "-O2", *WARNINGS, "-c", source, "-o", target]
    done = subprocess.run(command, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed")
def test_it_needs_no_library_and_keeps_no_state(tmp_path):
    """Nothing undefined, nothing writable: only code and constants."""
    target = tmp_path / "x.o"
    source = str(SOURCE / "mxfp_dot.c")
    subprocess.run([COMPILER, "-std=c99", "-O2", "-c", source, "-o", str(target)], check=True)
    symbols = subprocess.run(["nm", str(target)], check=True, capture_output=True, text=True).stdout
    kinds = {line.split()[-1]: line.split()[-2] for line in symbols.splitlines()}
    assert kinds["mxfp_dot_batch_f32"] == "T"
    assert set(kinds.values()) <= {"T", "t", "r", "R"}


# --- from codes to terms


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_every_code_decodes_to_its_integer(model, fmt):
    number, element = FORMATS.index(fmt), fmt.element
    found = [model.lib.mxfp_decode(number, code) for code in range(element.code_count)]
    assert found == element.integers.tolist()
    assert model.lib.mxfp_lsb_exponent(number) == element.lsb_exponent
    assert model.lib.mxfp_decode(number, 0x1234500 + element.code_count - 1) == found[-1]


def stages(
    model, fa: int, fb: int, codes_a: np.ndarray, codes_b: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Products, each level, and the sum, of rows (n, lanes)."""
    rows, lanes = codes_a.shape
    inner, count = 0, lanes
    while count > 1:
        count = -(-count // 2)
        inner += count
    products, levels = np.zeros((rows, lanes), np.int32), np.zeros((rows, inner), np.int32)
    sums = np.zeros((rows, 1), np.int32)
    for n in range(rows):
        sides = at(codes_a[n]), at(codes_b[n])
        assert (
            model.lib.mxfp_stages(fa, fb, ctypes.c_size_t(lanes), *sides, at(products[n]), at(levels[n])) == 0
        )
        sums[n] = model.lib.mxfp_sum(fa, fb, ctypes.c_size_t(lanes), *sides)
    return products, levels, sums


def expected_stages(fa: mxfp.BlockFormat, fb: mxfp.BlockFormat, a: np.ndarray, b: np.ndarray):
    rows, lanes = a.shape
    none = np.zeros((rows, 1), np.uint8)
    unit = Unit("sum", fa, fb, lanes=lanes)
    found = expected(
        Batch(unit, a, b, none, none, np.ones(rows, bool), np.zeros(rows, np.int64), ("all",)), stages=True
    )
    levels = [found[name] for name in found if name.startswith("level")]
    return [found["product"], np.concatenate(levels, axis=1) if levels else np.zeros((rows, 0)), found["sum"]]


def test_every_pair_of_codes_in_every_lane_stage_by_stage(model):
    """All 256 pairs in each of 32 lanes, the others zero, and with random ones beside it."""
    rng = np.random.default_rng(0)
    for others in (False, True):
        a, b = (rng.integers(0, 16 if others else 1, (32 * 256, 32)).astype(np.uint8) for _ in "ab")
        rows, pair = np.arange(32 * 256), np.arange(256).astype(np.uint8)
        a[rows, rows // 256], b[rows, rows // 256] = np.tile(pair >> 4, 32), np.tile(pair & 15, 32)
        for got, right in zip(
            stages(model, 0, 0, a, b), expected_stages(mxfp.MXFP4, mxfp.MXFP4, a, b), strict=True
        ):
            assert np.array_equal(got, right)


@pytest.mark.parametrize("lanes", [1, 2, 3, 5, 16, 31, 32, 64, 100])
def test_any_two_formats_over_any_number_of_lanes(model, lanes):
    rng = np.random.default_rng(lanes)
    for (n, fa), (m, fb) in itertools.product(enumerate(FORMATS), repeat=2):
        a, b = (rng.integers(0, f.element.code_count, (20, lanes)).astype(np.uint8) for f in (fa, fb))
        a[0], b[0] = np.argmax(fa.element.integers), np.argmin(fb.element.integers)
        for got, right in zip(stages(model, n, m, a, b), expected_stages(fa, fb, a, b), strict=True):
            assert np.array_equal(got, right)


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_every_scale_against_every_fourth_makes_the_terms_of_the_reference(model, fmt):
    number, count = FORMATS.index(fmt), fmt.scale.code_count
    rng = np.random.default_rng(number)
    others = sorted({*range(0, count, 4), 1, count - 2, count - 1})
    pairs = list(itertools.product(range(count), others))
    codes = rng.integers(0, fmt.element.code_count, (2, len(pairs), fmt.block)).astype(np.uint8)
    codes[0, ::7] = 0
    codes[1, ::5, 1:] = 0
    scales = np.array(pairs, np.uint8)
    a, b = (mxfp.BlockArray(codes[side], scales[:, side : side + 1], fmt) for side in (0, 1))
    terms = mxfp.block_dots(a, b)
    assert terms.specials is not None
    assert terms.live is not None
    for n, (scale_a, scale_b) in enumerate(pairs):
        term = model.term(number, number, codes[0, n], codes[1, n], scale_a, scale_b)
        assert term.exponent == terms.exponents[n, 0]
        assert term.align == terms.scale_exponents[n, 0]
        assert term.special == int(np.isnan(terms.specials[n, 0]))
        if not term.special:
            assert term.sum == terms.sums[n, 0]
            assert bool(term.live) == bool(terms.live[n, 0])


def test_scales_that_do_not_exist_are_nan(model):
    codes = np.full(16, 2, np.uint8)
    assert [model.term(4, 4, codes, codes, 56, code).special for code in (126, 127, 128, 200, 255)] == [
        0,
        1,
        1,
        1,
        1,
    ]


# --- whole dot products

EVERY = [
    *(mxfp.Sequential(dtype) for dtype in FLOATS),
    mxfp.Sequential("float32", 8),
    mxfp.Sequential("float16", 1),
    *(mxfp.Exact(dtype) for dtype in FLOATS),
    mxfp.FixedPoint(24, -12, "wrap"),
    mxfp.FixedPoint(40, -20, "saturate", "nearest_even"),
    mxfp.FixedPoint(64, -30, "wrap", "toward_zero", "float32"),
    mxfp.FixedPoint(14, -2, "saturate", "floor", "bfloat16"),
    mxfp.BLACKWELL_MXFP4,
    mxfp.Fused(25, 16, 64, -139),
    mxfp.Fused(8, 8, 16, -139),
    mxfp.Fused(0, 4, 32, -200),
    mxfp.Fused(12, 16, 32, -139, "scales", 10),
    mxfp.BLACKWELL_MXF8F6F4,
    mxfp.HOPPER_FP8,
    mxfp.Fused(3, 1, 8, -20, "products", 4),
    mxfp.Fused(4, 16, 64, 10),
]


def reference(accumulator, a: mxfp.BlockArray, b: mxfp.BlockArray) -> np.ndarray:
    return np.asarray(accumulator(mxfp.block_dots(a, b, group=accumulator.terms_of)))


@pytest.mark.parametrize("accumulator", EVERY, ids=name_of)
@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_every_distribution_under_every_choice_of_scales(model, fmt, accumulator):
    rng = np.random.default_rng(FORMATS.index(fmt))
    rows = size(200, 60) if accumulator.terms_of in (None, 16) else 40
    for name, scales, blocks in itertools.product(DISTRIBUTIONS, SCALES, (1, 3)):
        a, b = (draw(name, fmt, (rows, blocks * fmt.block), rng, scales=scales) for _ in "ab")
        found, status = model.dots(accumulator, a, b)
        same_bits(found, reference(accumulator, a, b))
        assert status.max() == OK or isinstance(accumulator, mxfp.FixedPoint)


@pytest.mark.parametrize(
    "accumulator",
    [
        mxfp.Sequential("float32"),
        mxfp.Exact("float32"),
        mxfp.BLACKWELL_MXF8F6F4,
        mxfp.FixedPoint(40, -20, "wrap"),
    ],
    ids=name_of,
)
def test_two_formats_that_differ(model, accumulator):
    rng = np.random.default_rng(5)
    for fa, fb in itertools.permutations(FORMATS[:4], 2):
        a, b = (draw("bits", f, (50, 96), rng, scales="near-unit") for f in (fa, fb))
        same_bits(model.dots(accumulator, a, b)[0], reference(accumulator, a, b))


@pytest.mark.parametrize("accumulator", [a for a in EVERY if isinstance(a, mxfp.Fused)], ids=name_of)
@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_tensor_cores_over_ranges_of_scales(model, fmt, accumulator):
    top = fmt.scale.nan_code
    middle = 127 if fmt.scale is mxfp.E8M0 else 60
    ranges = [(middle - 3, middle + 4), (middle - 20, middle + 20), (0, 12), (top - 12, top), (0, top)]
    for seed, scales in enumerate(ranges):
        shape = (30, 5 * fmt.block)
        a = random_blocks(fmt, shape, seed=seed, scales=scales, zero_share=0.5 if seed % 2 else 0.1)
        b = random_blocks(fmt, shape, seed=seed + 50, scales=scales)
        a, b = (mxfp.BlockArray(q.codes, q.scales, fmt) for q in (a, b))  # no tensor scales
        same_bits(model.dots(accumulator, a, b)[0], reference(accumulator, a, b))


@pytest.mark.parametrize("name", GOLDEN)
def test_every_golden_row(model, name):
    accumulator = GOLDEN[name]
    for case in golden("accumulate.jsonl"):
        a, b = (
            mxfp.BlockArray(
                np.concatenate([digits(block) for block in case[side]])[None],
                np.array(case[f"{side}_scales"], np.uint8)[None],
                mxfp.MXFP4,
            )
            for side in "ab"
        )
        found, status = model.dots(accumulator, a, b)
        assert float(found[0]) == float.fromhex(case["expected"][name]), case["id"]
        assert status[0] == OK


def test_a_million_dot_products_of_four_blocks(model):
    """MXFP4 into Sequential(float32): Gaussian data, and uniform and corner scales; the sums beside them."""
    side = size(580, 100)
    rng = np.random.default_rng(3)
    for name, scales in (("normal", None), ("bits", "uniform"), ("zero-mixed", "corner")):
        a, b = (draw(name, mxfp.MXFP4, (side, 128), rng, scales=scales) for _ in "ab")
        right = mxfp.matmul(a, b.T, engine="reference")
        for first in range(0, side, 20):
            rows = np.arange(first, min(first + 20, side))
            left = [np.repeat(x[rows], side, axis=0) for x in (a.codes, a.scales)]
            other = [np.tile(x, (len(rows), 1)) for x in (b.codes, b.scales)]
            count = len(left[0])
            results = np.zeros(count, np.uint32)
            sums, exponents = np.zeros((2, count, 4), np.int32)
            model.lib.mxfp_dot_batch_f32(
                ctypes.c_size_t(count),
                ctypes.c_size_t(4),
                *map(at, (left[0], other[0], left[1], other[1], results, sums, exponents)),
            )
            same_bits(results.view(np.float32).reshape(len(rows), side), right[rows])
            if first == 0:
                terms = mxfp.block_dots(*(mxfp.BlockArray(*x, mxfp.MXFP4) for x in (left, other)))
                assert np.array_equal(sums, terms.sums)
                assert np.array_equal(exponents, terms.exponents)


# --- accumulators step by step, on terms made to break them


def c_terms(terms: Terms) -> list[list[Term]]:
    specials = np.zeros(terms.sums.shape) if terms.specials is None else terms.specials
    kinds = np.select([np.isnan(specials), specials == np.inf, specials == -np.inf], [1, 2, 3], 0)
    return [
        [
            Term(int(s), int(e), int(e) - terms.unit, int(s != 0), int(k))
            for s, e, k in zip(sums, exponents, row, strict=True)
        ]
        for sums, exponents, row in zip(terms.sums, terms.exponents, kinds, strict=True)
    ]


def hard(width: int) -> Terms:
    return made_of(*hard_terms(width, seed=width), width)


def special_terms(top: int = 115) -> Terms:
    """Every sequence of four of: NaN, infinities, what overflows, something small, zero."""
    kinds = [(0, 0.0), (1, 0.0), (0, np.nan), (0, np.inf), (0, -np.inf), (8191, 0.0), (-8191, 0.0)]
    rows = list(itertools.product(kinds, repeat=4))
    sums = np.array([[s for s, _ in row] for row in rows], np.int64)
    specials = np.array([[x for _, x in row] for row in rows])
    exponents = np.where(np.abs(sums) > 1, top, 0)
    return Terms(sums, exponents, 14, -2, specials)


@pytest.mark.parametrize("width", [14, 20, 31, None])
@pytest.mark.parametrize("dtype", FLOATS)
def test_sequential_step_by_step(model, dtype, width):
    """Hard terms of each width; None are the special ones, and what overflows beside them."""
    terms = special_terms(1010 if dtype == "float64" else 115) if width is None else hard(width)
    states = [0] * len(terms.sums)
    rows = c_terms(terms)
    short = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}.get(dtype)
    for k, step in enumerate(mxfp.Sequential(dtype).steps(terms)):
        for n, row in enumerate(rows):
            before = states[n]
            states[n] = model.lib.mxfp_sequential(FLOAT[dtype], before, ctypes.byref(row[k]))
            if short:
                narrow = getattr(model.lib, f"mxfp_sequential_{short}")
                assert narrow(before, ctypes.byref(row[k])) == states[n]
        right = np.where(np.isnan(step.state), from_bits(nan_bits(dtype), dtype), step.state)
        same_bits(from_bits(states, dtype), right.astype(DTYPES[dtype]))


def nan_bits(dtype: str) -> int:
    return {"float16": 0x7E00, "bfloat16": 0x7FC0, "float32": 0x7FC00000, "float64": 0x7FF8 << 48}[dtype]


@pytest.mark.parametrize("dtype", FLOATS)
def test_sequential_from_any_state(model, dtype):
    """Any bits at all as the state: NaN of every kind, both infinities, both zeros, subnormals."""
    width = 8 * DTYPES[dtype].itemsize
    rng = np.random.default_rng(9)
    sign = 1 << (width - 1)
    inf = int(bits(np.array(np.inf, DTYPES[dtype]))[()])
    edges = [x | s for x in (0, 1, 2, inf - 1, inf, inf + 1, sign - 1) for s in (0, sign)]
    states = edges * 20 + [
        int(x) >> (64 - width) for x in rng.integers(0, 2**64, size(6000, 1500), np.uint64)
    ]
    found = from_bits(states, dtype)
    with np.errstate(invalid="ignore"):  # signalling NaN
        exact = found.astype(np.float64)
    finite = np.isfinite(exact)
    # A term near the state: exponents drawn about its own, so that bits meet, cancel and tie.
    own = np.where(finite & (exact != 0), np.frexp(np.where(finite, exact, 0))[1], 0).astype(np.int64)
    exponents = own - rng.integers(-10, 60, len(states))
    sums = rng.integers(-(2**13), 2**13, len(states)) >> rng.integers(0, 14, len(states))
    for state, value, ok, s, e in zip(states, exact, finite, sums.tolist(), exponents.tolist(), strict=True):
        got = model.lib.mxfp_sequential(FLOAT[dtype], state, ctypes.byref(Term(s, e, 0, 0, 0)))
        if not ok:
            assert got == (nan_bits(dtype) if np.isnan(value) else state)
        else:
            assert got == oracle.round_to(Fraction(float(value)) + s * oracle.power(e), dtype), (state, s, e)


def test_sequential_float64_knows_a_tie_from_what_lies_far_below_one(model):
    """A state below the term, so that its bits are: half an ulp of the sum, zeros, and a last one or not."""
    rng = np.random.default_rng(2)
    for apart, last, sign, _ in itertools.product(range(11, 53), (0, 1), (1, -1), range(4)):
        upper = int(rng.integers(0, 2**52)) >> apart << apart
        significand = 1 << 52 | upper | 1 << (apart - 1) | last
        state = from_bits([significand & ((1 << 52) - 1) | (1023 - apart) << 52], "float64")
        value = sign * Fraction(float(state[0]))
        term = int(rng.integers(2**30, 2**31 - 2))
        got = model.lib.mxfp_sequential(3, int(bits(sign * state)[0]), ctypes.byref(Term(term, -30, 0, 1, 0)))
        assert got == oracle.round_to(value + Fraction(term, 2**30), "float64"), (apart, last, sign)


@pytest.mark.parametrize("width", [14, 31])
@pytest.mark.parametrize("dtype", FLOATS)
def test_exact_step_by_step(model, dtype, width):
    terms = hard(width)
    reach = np.abs(terms.exponents).max(axis=-1) <= EXACT_REACH
    assert 200 < reach.sum() < len(reach)
    check_exact(model, dtype, Terms(terms.sums[reach], terms.exponents[reach], width, -2))


@pytest.mark.parametrize("dtype", FLOATS)
def test_exact_with_specials_and_at_both_ends_of_its_register(model, dtype):
    terms = special_terms()
    check_exact(model, dtype, terms)
    rng = np.random.default_rng(4)
    sums = rng.integers(-(2**31) + 1, 2**31, (300, 6)) >> rng.integers(0, 31, (300, 6))
    exponents = rng.choice([-288, -287, -257, -256, -255, 0, 255, 256, 287, 288], (300, 6))
    check_exact(model, dtype, Terms(sums, exponents, 32, -2))
    check_exact(
        model,
        dtype,
        Terms(np.stack([sums, -sums], axis=-1).reshape(300, 12), exponents.repeat(2, axis=1), 32, -2),
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_exact_knows_of_a_bit_far_below_half_of_the_smallest_subnormal(model, dtype):
    half = int(np.log2(float(from_bits(1, dtype)))) - 1
    signs = np.array(list(itertools.product((1, -1, 0), repeat=2)))
    for below in (1, 30, 31, 32, 33, 62, 63, 64, 65, 96, 130):
        check_exact(model, dtype, Terms(signs, np.array([[half, half - below]] * 9), 14, -2))


def check_exact(model, dtype: str, terms: Terms) -> None:
    """The register's rounded value after every term."""
    registers = np.zeros((len(terms.sums), EXACT_WORDS), np.uint32)
    rows = c_terms(terms)
    for k in range(terms.sums.shape[1]):
        states = []
        for row, register in zip(rows, registers, strict=True):
            assert model.lib.mxfp_exact_add(at(register), ctypes.byref(row[k])) == OK
            states.append(model.lib.mxfp_exact_result(FLOAT[dtype], at(register)))
        special = None if terms.specials is None else terms.specials[:, : k + 1]
        part = Terms(terms.sums[:, : k + 1], terms.exponents[:, : k + 1], terms.bits, -2, special)
        same_bits(from_bits(states, dtype), mxfp.Exact(dtype)(part))


def test_exact_refuses_a_term_that_its_register_does_not_reach(model):
    register = np.zeros(EXACT_WORDS, np.uint32)
    for exponent in (-EXACT_REACH - 1, EXACT_REACH + 1):
        assert model.lib.mxfp_exact_add(at(register), ctypes.byref(Term(1, exponent, 0, 1, 0))) == BAD
    assert not register.any()


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("overflow", OVERFLOWS)
@pytest.mark.parametrize("width", [1, 2, 8, 24, 31, 32, 33, 62, 63, 64])
def test_registers_of_every_width_step_by_step(model, width, overflow, rounding):
    """Their integers after each term; where the reference raises, the register rests and says so."""
    rng = np.random.default_rng(width)
    for lsb in (-2, 0, 3, width - 20):
        register = mxfp.FixedPoint(width, lsb, overflow, rounding)
        how = fixed_of(register)
        reach = max(min(width, 64) - 11, 1)
        sums = rng.integers(-(1 << 13), 1 << 13, (30, 6)) >> rng.integers(0, 14, (30, 6))
        exponents = rng.integers(lsb - 16, lsb + reach + 3, (30, 6))
        exponents[::9] += 60
        terms = Terms(sums, exponents, 14, -2)
        for n, row in enumerate(c_terms(terms)):
            value, nan, held = ctypes.c_int64(0), ctypes.c_int32(0), 0
            for k, term in enumerate(row):
                status = model.lib.mxfp_fixed_add(
                    ctypes.byref(how), ctypes.byref(value), ctypes.byref(nan), ctypes.byref(term)
                )
                added = made_of([[held, int(sums[n, k])]], [[lsb, int(exponents[n, k])]], 64)
                try:
                    held = int([*register.steps(added)][-1].state.integers[0])
                    fits = True
                except mxfp.WidthError:
                    fits = False
                assert value.value == held
                if overflow == "raise":
                    assert (status == OK) == fits
                elif status == OK:
                    loud = mxfp.FixedPoint(width, lsb, "raise", rounding)
                    assert int([*loud.steps(added)][-1].state.integers[0]) == held or k == 0
            for dtype in FLOATS:
                got = model.lib.mxfp_fixed_result(FLOAT[dtype], ctypes.byref(how), value, 0)
                whole = mxfp.FixedPoint(width, lsb, overflow, rounding, dtype)(made_of([[held]], [[lsb]], 64))
                assert got == int(bits(whole)[0])


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_register_far_from_one_is_rounded_once(model, dtype):
    """Up to the largest LSB that there is, where exponents of results no longer fit their field."""
    for lsb in (-4096, -1100, -1074, -200, -150, 0, 100, 200, 900, 1020, 1100, 2000, 3000, 3073, 3100, 4096):
        register = mxfp.FixedPoint(62, lsb, "saturate", dtype=dtype)
        values = [0, 1, -1, 3, 5461, 2**53 + 1, -(2**61) + 1, 2**61 - 1, 2**60 + 2**36, 2**60 + 2**7]
        right = register(made_of([[v] for v in values], [[lsb]] * len(values), 62))
        how = ctypes.byref(fixed_of(register))
        found = [model.lib.mxfp_fixed_result(FLOAT[dtype], how, v, 0) for v in values]
        same_bits(from_bits(found, dtype), right)


def test_a_register_rests_from_a_nan_on(model):
    how = Fixed(24, 0, 2, 0)
    value, nan = ctypes.c_int64(0), ctypes.c_int32(0)
    refs = [ctypes.byref(x) for x in (how, value, nan)]
    for term in (Term(5, 0, 0, 1, 0), Term(0, 0, 0, 0, 1), Term(5, 200, 0, 1, 0)):
        assert model.lib.mxfp_fixed_add(*refs, ctypes.byref(term)) == OK
    assert (value.value, nan.value) == (5, 1)
    assert model.lib.mxfp_fixed_result(2, ctypes.byref(how), value, nan) == 0x7FC00000


@pytest.mark.parametrize("accumulator", [a for a in EVERY if isinstance(a, mxfp.Fused)], ids=name_of)
def test_a_tensor_core_joins_infinities_and_nan_as_ieee_does(model, accumulator):
    if accumulator.exponents == "products":
        accumulator = mxfp.Fused(accumulator.fraction_bits, 1, 2, accumulator.zero_exponent)
    terms = special_terms()
    how = of(accumulator).fused
    per_step = accumulator.step // accumulator.group
    found = []
    for row in c_terms(terms):
        c = ctypes.c_uint32(0)
        for first in range(0, len(row), per_step):
            part = row[first : first + per_step]
            given = (Term * len(part))(*part)
            status = model.lib.mxfp_fused_step(
                ctypes.byref(how), ctypes.byref(c), ctypes.c_size_t(len(part)), given
            )
            assert status == OK
        found.append(c.value)
    same_bits(from_bits(found, "float32"), accumulator(terms))


def test_arguments_that_do_not_exist_are_refused(model):
    a = np.zeros(64, np.uint8)
    out = np.zeros(1, np.uint64)

    def dot(how: Accumulator, fa: int = 0, lanes: int = 32) -> int:
        sides = (at(a), at(a), at(a), at(a), at(out))
        return model.lib.mxfp_dot(
            ctypes.byref(how), fa, 0, ctypes.c_size_t(lanes), ctypes.c_size_t(2), *sides
        )

    good = of(mxfp.Sequential("float32"))
    assert dot(good) == OK
    assert dot(good, fa=5) == dot(good, fa=-1) == dot(good, lanes=0) == dot(good, lanes=1025) == BAD
    for name, value in (("kind", 4), ("float_format", 4), ("group", 5), ("group", -1)):
        bad = of(mxfp.Sequential("float32"))
        setattr(bad, name, value)
        assert dot(bad) == BAD, name
    for name, value in (
        ("width", 0),
        ("width", 65),
        ("overflow", 3),
        ("rounding", 3),
        ("lsb_exponent", 5000),
    ):
        bad = of(mxfp.FixedPoint(24, 0))
        setattr(bad.fixed, name, value)
        assert dot(bad) == BAD, name
    for name, value in (
        ("fraction_bits", 41),
        ("group", 0),
        ("step", 40),
        ("step", 4096),
        ("result_bits", 24),
    ):
        bad = of(mxfp.BLACKWELL_MXFP4)
        setattr(bad.fused, name, value)
        assert dot(bad) == BAD, name


@pytest.mark.parametrize("special", [-1, 4, 5, 33, 2**31 - 1, -(2**31)])
def test_a_special_that_does_not_exist_is_refused_or_nan(model, special):
    term = Term(5, 0, 0, 1, special)
    register, value, nan, c = (
        (ctypes.c_uint32 * EXACT_WORDS)(),
        ctypes.c_int64(7),
        ctypes.c_int32(0),
        ctypes.c_uint32(9),
    )
    state = ctypes.byref(term)
    assert model.lib.mxfp_exact_add(register, state) == BAD
    assert not any(register)
    how = Fixed(24, 0, 2, 0)
    assert model.lib.mxfp_fixed_add(ctypes.byref(how), ctypes.byref(value), ctypes.byref(nan), state) == BAD
    blackwell = of(mxfp.BLACKWELL_MXFP4).fused
    two = (Term * 2)(Term(1, 0, 0, 1, 0), term)
    assert model.lib.mxfp_fused_step(ctypes.byref(blackwell), ctypes.byref(c), ctypes.c_size_t(2), two) == BAD
    assert (value.value, nan.value, c.value) == (7, 0, 9)
    for dtype, number in FLOAT.items():
        assert np.isnan(from_bits([model.lib.mxfp_sequential(number, 0, state)], dtype)[0])


def test_null_is_refused_where_nothing_is_said_of_it(model):
    """Each argument that is a pointer in turn; those that may be NULL are products, levels and status."""
    lib, size, codes = model.lib, ctypes.c_size_t, (ctypes.c_uint8 * 64)()
    term, how = ctypes.byref(Term(5, 0, 0, 1, 0)), ctypes.byref(of(mxfp.Sequential("float32")))
    register, value, nan = (ctypes.c_uint32 * EXACT_WORDS)(), ctypes.c_int64(0), ctypes.c_int32(0)
    fixed, fused = ctypes.byref(Fixed(24, 0, 2, 0)), ctypes.byref(of(mxfp.BLACKWELL_MXFP4).fused)
    results = (ctypes.c_uint64 * 2)()
    held, flag, c = ctypes.byref(value), ctypes.byref(nan), ctypes.byref(ctypes.c_uint32(0))
    block, sides = (0, 0, size(32), codes, codes), (codes,) * 4
    for function, arguments in (
        (lib.mxfp_stages, (*block, None, None)),
        (lib.mxfp_block_term, (*block, 127, 127, term)),
        (lib.mxfp_exact_add, (register, term)),
        (lib.mxfp_fixed_add, (fixed, held, flag, term)),
        (lib.mxfp_fused_step, (fused, c, size(1), term)),
        (lib.mxfp_dot, (how, 0, 0, size(32), size(2), *sides, results)),
        (lib.mxfp_dot_batch, (how, 0, 0, size(32), size(1), size(2), *sides, results, None)),
    ):
        assert function(*arguments) == OK
        for n, argument in enumerate(arguments):
            if argument is not None and not isinstance(argument, (int, size)):
                found = function(*arguments[:n], None, *arguments[n + 1 :])
                assert found == BAD, (function.__name__, n)
    assert {lib.mxfp_sum(0, 0, size(32), *pair) for pair in ((None, codes), (codes, None))} == {-(2**31)}
    assert lib.mxfp_sequential(2, 0, None) == lib.mxfp_exact_result(2, None) == 0x7FC00000
    assert lib.mxfp_fixed_result(2, None, 1, 0) == 0x7FC00000


def test_a_batch_that_cannot_be_says_so_of_every_case(model):
    codes, results, status = (ctypes.c_uint8 * 64)(), (ctypes.c_uint64 * 3)(5, 5, 5), (ctypes.c_uint8 * 3)()
    how, size = ctypes.byref(of(mxfp.Exact("float32"))), ctypes.c_size_t
    for lanes in (0, 1025, 2**64 - 1):
        arguments = (how, 0, 0, size(lanes), size(1), size(3), codes, codes, codes, codes, results, status)
        assert model.lib.mxfp_dot_batch(*arguments) == BAD
        assert [*status] == [BAD] * 3
        assert [*results] == [5] * 3


# --- the vectors of level 1

UNITS = {
    "sum": Unit("sum"),
    "dot": Unit("dot"),
    "dot-exact": Unit("dot", blocks=2, accumulator=mxfp.Exact("float32")),
    "dot-nvfp4": Unit("dot", mxfp.NVFP4),
    "running": Unit("running"),
    "running-bfloat16": Unit("running", accumulator=mxfp.Sequential("bfloat16")),
    "running-fixed": Unit("running", accumulator=mxfp.FixedPoint(24, -12, "saturate")),
    "running-blackwell": Unit("running", blocks=2, accumulator=mxfp.BLACKWELL_MXFP4),
}


@pytest.mark.parametrize("name", UNITS)
def test_all_vectors_of_level_1_agree_at_every_stage(model, name):
    unit = UNITS[name]
    number = FORMATS.index(unit.a)
    suite, cases, running = Suite(unit), 0, Running(model, unit.accumulator)
    for batch in suite.batches():
        right = expected(batch, stages=True)
        blocks = len(batch) * unit.blocks
        sides = [np.ascontiguousarray(x).reshape(blocks, -1) for x in (batch.codes_a, batch.codes_b)]
        if name in ("sum", "dot", "dot-exact", "dot-nvfp4", "running"):  # the others have the same products
            products, levels, sums = stages(model, number, number, *sides)
            inner = [x.reshape(blocks, -1) for key, x in right.items() if key.startswith("level")]
            assert np.array_equal(products, right["product"].reshape(blocks, -1))
            assert np.array_equal(levels, np.concatenate(inner, axis=1))
            assert np.array_equal(sums, right["sum"].reshape(blocks, 1))
        cases += len(batch)
        if not unit.scaled:
            continue
        scales = [x.ravel().tolist() for x in (batch.scales_a, batch.scales_b)]
        terms = [model.term(number, number, *given) for given in zip(*sides, *scales, strict=True)]
        assert [t.exponent for t in terms] == right["exponent"].ravel().tolist()
        assert [t.special for t in terms] == right["special"].ravel().tolist()
        assert [t.sum for t in terms] == right.get("term", right["sum"]).ravel().tolist()
        if unit.kind == "dot":
            results = bits(model.dots(unit.accumulator, *batch.pair)[0]).tolist()
        else:
            results = [running.after(*case) for case in zip(batch.first, *cases_of(batch), strict=True)]
        assert results == right["result"].ravel().tolist()
    assert cases == suite.cases > 10_000


def cases_of(batch: Batch) -> list[np.ndarray]:
    arrays = (batch.codes_a, batch.codes_b, batch.scales_a, batch.scales_b)
    return [np.ascontiguousarray(x) for x in arrays]


class Running:
    """A running accumulator in C: its state goes in and out of every call."""

    def __init__(self, model: Model, accumulator) -> None:
        self.model, self.how = model, of(accumulator)
        self.state, self.value, self.nan = ctypes.c_uint32(0), ctypes.c_int64(0), ctypes.c_int32(0)

    def after(self, first: bool, a, b, scales_a, scales_b) -> int:
        if first:
            self.state.value = self.value.value = self.nan.value = 0
        lanes = 16 if self.how.kind == 3 else 32
        given = [
            self.model.term(
                0, 0, a[k : k + lanes], b[k : k + lanes], int(scales_a[k // 32]), int(scales_b[k // 32])
            )
            for k in range(0, len(a), lanes)
        ]
        lib, kind = self.model.lib, self.how.float_format
        if self.how.kind == 3:
            terms, count = (Term * len(given))(*given), ctypes.c_size_t(len(given))
            how = ctypes.byref(self.how.fused)
            assert lib.mxfp_fused_step(how, ctypes.byref(self.state), count, terms) == OK
            return self.state.value
        (term,) = given
        if self.how.kind == 0:
            self.state.value = lib.mxfp_sequential(kind, self.state.value, ctypes.byref(term))
            return self.state.value
        how = ctypes.byref(self.how.fixed)
        lib.mxfp_fixed_add(how, ctypes.byref(self.value), ctypes.byref(self.nan), ctypes.byref(term))
        return lib.mxfp_fixed_result(kind, how, self.value, self.nan)


# --- DPI-C


IMPORTS = [re.sub(r"\s*\*?\s+", " ", text).strip() for text in re.findall(r'import "DPI-C"[^;]*;', HEADER)]
"""The SystemVerilog that the header gives, one import a line."""


def test_every_dpi_function_has_its_import_and_every_import_its_function():
    declared = set(re.findall(r"^\w+ (mxfp_dpi_\w+)\(", HEADER, re.M))
    imported = [re.search(r"function [\w ]+ (mxfp_dpi_\w+)\(", text).group(1) for text in IMPORTS]
    assert sorted(declared) == sorted(imported)
    assert len(imported) == 12
    shown = [re.sub(r"\s+", " ", text) for text in re.findall(r'import "DPI-C"[^;]*;', PAGE)]
    assert shown[: len(IMPORTS)] == IMPORTS
    assert set(shown) == set(IMPORTS)


def dpi_cases() -> tuple[mxfp.BlockArray, mxfp.BlockArray]:
    """Rows of two blocks, of every distribution and choice of scales."""
    rng = np.random.default_rng(12)
    sides = []
    for _ in "ab":
        parts = [
            draw(n, mxfp.MXFP4, (4, 64), rng, scales=s) for n, s in itertools.product(DISTRIBUTIONS, SCALES)
        ]
        codes, scales = (np.concatenate([getattr(p, x) for p in parts]) for x in ("codes", "scales"))
        sides.append(mxfp.BlockArray(codes, scales, mxfp.MXFP4))
    return sides[0], sides[1]


def dpi_expected(a: mxfp.BlockArray, b: mxfp.BlockArray) -> np.ndarray:
    """What smoke.sv prints for each case, a row each."""
    rows = len(a.codes)
    first, group = np.ones(rows, bool), np.zeros(rows, np.int64)
    unit = Unit("dot", blocks=2)
    found = expected(Batch(unit, a.codes, b.codes, a.scales, b.scales, first, group, ("all",)), stages=True)
    terms = mxfp.block_dots(a, b)
    nan = np.logical_or.accumulate(found["special"] != 0, axis=1)
    # A register in time does not know of a NaN to come: the reference is given the terms before it.
    finite = Terms(np.where(nan, 0, terms.sums), terms.exponents, terms.bits, terms.unit)
    columns, held = [], np.zeros(rows, np.int64)
    for i, step in enumerate(mxfp.FixedPoint(24, -6, "saturate", "nearest_even").steps(finite)):
        columns += [found[name][:, i] for name in ("sum", "exponent", "special", "sum")]
        columns += list(found["product"][:, 32 * i : 32 * (i + 1)].T)
        for level in range(1, 6):
            width = 32 >> level
            columns += list(found[f"level{level}"][:, width * i : width * (i + 1)].T)
        until = slice(0, 32 * (i + 1))
        part = [mxfp.BlockArray(q.codes[:, until], q.scales[:, : i + 1], mxfp.MXFP4) for q in (a, b)]
        columns += [bits(reference(mxfp.Sequential(d), *part)) for d in ("float32", "float16", "bfloat16")]
        overflowed = held + step.added.integers != step.state.integers
        held = step.state.integers
        columns += [overflowed, held, nan[:, i], bits(reference(mxfp.Exact("float32"), *part))]
    columns.append(mxfp.E2M1.integers[a.codes[:, 0]])
    small = mxfp.Fused(12, 16, 32, -139, "scales", 10)
    columns += [bits(reference(accumulator, a, b)) for accumulator in (mxfp.BLACKWELL_MXFP4, small)]
    return np.stack([np.asarray(column, np.int64) for column in columns], axis=1)


@pytest.mark.skipif(VERILATOR is None, reason="verilator is not installed")
def test_systemverilog_calls_every_function_through_dpi_c(tmp_path):
    a, b = dpi_cases()
    lines = []
    for row in range(len(a.codes)):
        text = "".join(f"{code:02x}" for q in (b, a) for code in q.scales[row, ::-1].tolist())
        lines.append(text + "".join(f"{code:x}" for q in (b, a) for code in q.codes[row, ::-1].tolist()))
    assert {len(line) for line in lines} == {136}
    (tmp_path / "cases.hex").write_text("\n".join(lines) + "\n")
    (tmp_path / "imports.svh").write_text("\n".join(IMPORTS) + "\n")
    export_c(tmp_path / "model")
    smoke = str(Path(__file__).parent / "dpi" / "smoke.sv")
    build = [
        VERILATOR,
        "--binary",
        "--build-jobs",
        "2",
        "-O3",
        "-Wno-fatal",
        f"-DCASES={len(lines)}",
        f"-I{tmp_path}",
    ]
    build += ["-CFLAGS", "-O1", "--top-module", "smoke", smoke, str(tmp_path / "model" / "mxfp_dot.c")]
    done = subprocess.run(build, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    run = subprocess.run(
        [str(tmp_path / "obj_dir" / "Vsmoke")], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = [line for line in run.stdout.splitlines() if re.fullmatch(r"[-\d ]+", line)]
    printed = np.array([[int(word) for word in line.split()] for line in lines], np.int64)
    right = dpi_expected(a, b)
    assert printed.shape == right.shape == (120, 151)
    assert np.argwhere(printed != right).tolist() == []
    assert (right[:, [70, 144]] != 0).any()  # registers that overflow are among them


# --- docs/c-model.md


def shown(language: str, begins: str) -> tuple[str, str]:
    """A snippet of the page that begins so, and the text below it."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.M | re.S)
    n = next(n for n, (name, text) in enumerate(blocks) if name == language and text.startswith(begins))
    return blocks[n][1], blocks[n + 1][1] if n + 1 < len(blocks) else ""


def test_the_c_of_the_page_prints_what_the_page_says(tmp_path):
    code, text = shown("c", "#include")
    export_c(tmp_path)
    (tmp_path / "main.c").write_text(code)
    command = [COMPILER, "-std=c99", *WARNINGS, "-o", "main", "main.c", "mxfp_dot.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert subprocess.run([str(tmp_path / "main")], check=True, capture_output=True, text=True).stdout == text


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no cc, which the page calls")
def test_the_python_of_the_page_prints_what_the_page_says(capsys):
    code, text = shown("py", "import ctypes")
    exec(compile(code, "c-model.md", "exec"), {})
    assert capsys.readouterr().out == text


@pytest.mark.skipif(VERILATOR is None, reason="verilator is not installed")
def test_the_scoreboard_of_the_page_is_systemverilog(tmp_path):
    code, _ = shown("systemverilog", "module scoreboard")
    (tmp_path / "scoreboard.sv").write_text(code)
    command = [VERILATOR, "--lint-only", "--timing", "scoreboard.sv"]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# --- mxfp export-c


def test_export_writes_the_files_of_the_package(tmp_path):
    paths = export_c(tmp_path / "new" / "model")
    assert [path.name for path in paths] == list(C_FILES)
    assert {path.name: path.read_bytes() for path in paths} == c_files()
    assert sorted(p.name for p in (tmp_path / "new").rglob("*")) == ["model", *C_FILES]
    before = [path.stat().st_mtime_ns for path in paths]
    assert export_c(tmp_path / "new" / "model") == paths
    assert [path.stat().st_mtime_ns for path in paths] == before


def test_export_does_not_overwrite_what_is_not_its_own(tmp_path):
    (tmp_path / "mxfp_dot.h").write_text("mine\n")
    (tmp_path / "other.c").write_text("mine\n")
    with pytest.raises(FileExistsError, match=r"mxfp_dot\.h exists with other content.*--force"):
        export_c(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mxfp_dot.h", "other.c"]
    assert (tmp_path / "mxfp_dot.h").read_text() == "mine\n"
    export_c(tmp_path, force=True)
    assert (tmp_path / "mxfp_dot.h").read_bytes() == c_files()["mxfp_dot.h"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [*C_FILES, "other.c"]
    with pytest.raises(FileExistsError, match="is no folder"):
        export_c(tmp_path / "other.c")


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_of_that_name_is_in_the_way_and_nothing_is_written(tmp_path, force):
    (tmp_path / "mxfp_dot.h").mkdir()
    (tmp_path / "mxfp_dot.c").write_text("mine\n")
    with pytest.raises(FileExistsError, match=r"mxfp_dot\.h is a folder"):
        export_c(tmp_path, force=force)
    assert (tmp_path / "mxfp_dot.c").read_text() == "mine\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_the_command_prints_what_it_wrote_or_one_line(tmp_path):
    run = [sys.executable, "-m", "mxfp", "export-c", "model"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(Path("model") / name) for name in C_FILES]
    (tmp_path / "model" / "mxfp_dot.c").write_text("")
    done = subprocess.run(run, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "--force" in done.stderr
    subprocess.run([*run, "--force"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "model" / "mxfp_dot.c").read_bytes() == c_files()["mxfp_dot.c"]
