# SPDX-License-Identifier: Apache-2.0
"""Coverage: what a batch hits, against exact fractions; what cannot be hit; vectors for what was missed."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner

import mxfp
from mxfp import cli
from mxfp.sums import countable
from mxfp.verify.coverage import Coverage, families, fill
from mxfp.verify.coverage.bin_classes import PLACES, SCALE_CLASSES, named_sums
from mxfp.verify.coverage.observe import observe
from mxfp.verify.coverage.reach import limits, precision_of
from mxfp.verify.coverage.reports import as_markdown
from mxfp.verify.coverage.roundings import marks_of_steps
from mxfp.verify.unit import Batch, Unit, expected
from mxfp.verify.vectors import Suite
from support import size

NAMED = {
    "sum": Unit("sum"),
    "sum of 5": Unit("sum", lanes=5),
    "dot": Unit("dot"),
    "dot of 2": Unit("dot", blocks=2),
    "running": Unit("running"),
    "wrapping": Unit("dot", accumulator=mxfp.FixedPoint(24, -12, "wrap")),
    "saturating": Unit("running", accumulator=mxfp.FixedPoint(24, -12, "saturate", "nearest_even")),
    "blackwell": Unit("dot", accumulator=mxfp.BLACKWELL_MXFP4),
    "blackwell running": Unit("running", blocks=2, accumulator=mxfp.BLACKWELL_MXFP4),
    "nvfp4": Unit("dot", mxfp.NVFP4, blocks=2),
    "e4m3": Unit("dot", mxfp.MXFP8_E4M3),
    "e4m3 × e5m2": Unit("dot", mxfp.MXFP8_E4M3, mxfp.MXFP8_E5M2, lanes=8),
    "int8": Unit("dot", mxfp.MXINT8, blocks=2, accumulator=mxfp.Sequential("float16")),
    "pairwise": Unit("dot", blocks=4, accumulator=mxfp.Pairwise("float32")),
    "exact": Unit("dot", blocks=3, accumulator=mxfp.Exact("float32")),
    "exact running": Unit("running", accumulator=mxfp.Exact("bfloat16")),
    "float64": Unit("dot", blocks=3, accumulator=mxfp.Sequential("float64")),
    "grouped": Unit("dot", blocks=2, accumulator=mxfp.Sequential("bfloat16", 8)),
    "sum of 1": Unit("sum", lanes=1),
    "dot of 1 lane": Unit("dot", lanes=1, blocks=2),
    "nvfp4 of 1 lane": Unit("running", mxfp.NVFP4, lanes=1, blocks=8, accumulator=mxfp.Exact("float32")),
    "pairwise running": Unit("running", lanes=3, accumulator=mxfp.Pairwise("float32")),
}
UNITS = [pytest.param(unit, id=name) for name, unit in NAMED.items()]
FULL = [param for param in UNITS if not param.id.endswith("1 lane")]
"""Of one lane some bins cannot be reached, and nothing proves it: they stay wanted."""


def drawn(unit, n, seed=0):
    """Any codes and scales, NaN among them; a third of a running unit's cases are first."""
    rng = np.random.default_rng(seed)
    a, b = unit.sides
    codes = [rng.integers(0, f.element.code_count, (n, unit.elements)).astype(np.uint8) for f in (a, b)]
    blocks = unit.blocks if unit.scaled else 0
    scales = [rng.integers(0, f.scale.code_count, (n, blocks)).astype(np.uint8) for f in (a, b)]
    first = rng.random(n) < (0.3 if unit.kind == "running" else 2)
    first[0] = True
    return Batch(unit, *codes, *scales, first, np.zeros(n, np.int64), ("drawn",))


def one(unit, a, b, scales=(127, 127), **more):
    """A batch of one case of one block."""
    codes = np.zeros((2, 1, unit.elements), np.uint8)
    codes[0, 0, : len(a)], codes[1, 0, : len(b)] = a, b
    pair = [np.array([[s] * unit.blocks * unit.scaled], np.uint8) for s in scales]
    batch = Batch(unit, codes[0], codes[1], *pair, np.array([True]), np.array([0]), ("one",))
    return replace(batch, **more)


def counted(batch, **more):
    cover = Coverage(batch.unit)
    cover.add(batch, **more)
    return cover


@pytest.mark.parametrize("unit", UNITS)
def test_every_bin_is_observed_and_none_besides(unit):
    marks = observe(drawn(unit, 40))
    for family in families(unit):
        if family.counts == "cases":
            assert set(family.names) <= set(marks[family.name]), family.name
            for name in family.names:
                mark = marks[family.name][name]
                assert mark.shape == (40,)
                assert mark.dtype == np.bool_
    assert len({f.name for f in families(unit)}) == len(families(unit))
    assert all(len(set(f.names)) == len(f.names) for f in families(unit))


@pytest.mark.parametrize("unit", UNITS)
def test_the_reference_hits_nothing_illegal_and_nothing_that_is_said_to_be_unreachable(unit):
    cover = counted(drawn(unit, size(3000, 200)))
    cover.add(fill(Coverage(unit), seed=3))
    assert cover.wrong() == []


@pytest.mark.parametrize("unit", FULL)
def test_constructed_vectors_hit_every_bin_that_can_be_reached(unit):
    cover = Coverage(unit)
    cover.add(fill(cover))
    assert cover.missed() == []
    assert cover.hit == cover.wanted


def test_filling_is_the_same_for_the_same_seed_and_adds_nothing_to_what_is_full():
    unit = NAMED["dot of 2"]
    batch, again, other = (fill(Coverage(unit), seed=seed) for seed in (5, 5, 6))
    for name in ("codes_a", "codes_b", "scales_a", "scales_b", "first"):
        assert np.array_equal(getattr(batch, name), getattr(again, name))
    assert not np.array_equal(batch.scales_a[:400], other.scales_a[: len(batch)][:400]) or len(batch) != len(
        other
    )
    assert len(fill(counted(batch))) == 0


def test_filling_makes_only_what_was_missed():
    unit = NAMED["running"]
    cover = Coverage(unit)
    for batch in Suite(unit, groups=("random-near-unit",)).batches():
        cover.add(batch)
    missed = cover.missed()
    batch = fill(cover)
    assert 0 < len(batch) < len(fill(Coverage(unit)))
    assert ("pair in lane", "0: 6 × 6") not in missed
    assert not any(family.startswith(("element", "product", "pair")) for family, _ in missed)
    cover.add(batch)
    assert cover.missed() == []


@pytest.mark.parametrize(
    "unit",
    [
        Unit("dot", mxfp.MXFP8_E4M3, lanes=33, accumulator=mxfp.ADA_FP8),
        Unit("dot", mxfp.NVFP4, blocks=2, accumulator=mxfp.Fused(3, 1, 8, -20, "products", 4)),
        Unit("running", blocks=2, accumulator=mxfp.Fused(0, 4, 32, -200)),
        Unit("dot", mxfp.MXINT8, lanes=16, accumulator=mxfp.Sequential("bfloat16", 4)),
    ],
    ids=str,
)
def test_blocks_that_cancel_in_groups_that_do_not_are_no_illegal_result(unit):
    cover = Coverage(unit)
    for batch in Suite(unit, groups=("cancellation",)).batches():
        assert (expected(batch, stages=False)["result"] << np.uint64(33)).any()
        cover.add(batch)
    assert cover.wrong() == []
    assert cover.count("cancellation", "exact") > 100


def test_zeros_in_every_group_give_zero():
    unit = Unit("dot", mxfp.MXFP8_E4M3, accumulator=mxfp.HOPPER_FP8)
    batch = one(unit, [0], [1])
    assert counted(batch).wrong() == []
    found = counted(batch, answers=answer(0x01000000)).wrong()
    assert [hit.bin.name for hit in found] == ["nonzero of zero terms"]


@pytest.mark.parametrize(
    ("a", "b"),
    [(mxfp.MXFP6_E2M3, mxfp.MXFP8_E4M3), (mxfp.MXFP4, mxfp.MXFP8_E5M2), (mxfp.MXINT8, mxfp.MXINT8)],
)
def test_a_sum_that_is_said_to_be_unreachable_is_that_of_no_pair_of_products(a, b):
    unit = Unit("sum", a, b, lanes=2)
    products = np.unique(np.multiply.outer(*(f.element.integers[f.element.finite] for f in (a, b))))
    bins = {family.name: family.bins for family in families(unit)}["sum"]
    values = dict(named_sums(limits(unit)))
    checked = 0
    for one_of in bins:
        if one_of.name in values:
            exists = np.isin(values[one_of.name] - products, products).any()
            assert exists or one_of.kind == "unreachable" or not countable(a.element, b.element, 2)
            assert not (exists and one_of.kind == "unreachable"), one_of
            checked += 1
    assert checked >= 8
    cover = Coverage(unit)
    cover.add(fill(cover))
    assert cover.wrong() == []


def test_a_register_that_wraps_loses_no_accumulator():
    for overflow, kind in (("wrap", "unreachable"), ("saturate", "wanted")):
        unit = Unit("dot", blocks=2, accumulator=mxfp.FixedPoint(24, -12, overflow))
        bins = {b.name: b.kind for f in families(unit) if f.name == "accumulation" for b in f.bins}
        assert bins["accumulator lost"] == kind


# --- counts against exact arithmetic


def place_of(exact, shape):
    """bins.PLACES of an exact nonzero fraction in a float format, with Python's integers."""
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    while Fraction(2) ** exponent > magnitude:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= magnitude:
        exponent += 1
    unit = Fraction(2) ** max(exponent - shape.bits + 1, shape.lowest)
    below, rest = divmod(magnitude, unit)
    part = Fraction(rest) / unit
    if part == 0:
        return "exact"
    if part == Fraction(1, 2):
        return "tie, odd below" if below % 2 else "tie, even below"
    return "below half" if part < Fraction(1, 2) else "above half"


@pytest.mark.parametrize("name", ["dot of 2", "float64", "grouped", "int8", "nvfp4", "e4m3 × e5m2"])
def test_roundings_of_sequential_steps_are_those_of_exact_fractions(name):
    unit = NAMED[name]
    batch = fill(Coverage(unit)) if unit.blocks > 1 else drawn(unit, 300)
    a, b = batch.pair
    terms = mxfp.block_dots(a, b, group=unit.accumulator.terms_of)
    shape = precision_of(unit.accumulator)
    values = terms.fractions()
    state, seen = np.zeros(len(batch), unit.accumulator.result_dtype), set()
    special = np.zeros(terms.sums.shape, bool) if terms.specials is None else terms.specials != 0
    steps = zip(unit.accumulator.steps(terms), marks_of_steps(unit.accumulator, terms), strict=True)
    for k, (step, (_, _, marks)) in enumerate(steps):
        found = marks["rounding"]
        for n in range(len(batch)):
            hits = [p for p in PLACES[:5] if found[p][n]]
            if special[n, k] or not np.isfinite(float(state[n])):
                assert not hits
                continue
            exact = Fraction(float(state[n])) + values[n, k]
            result = float(np.asarray(step.state)[n])
            if np.isinf(result):
                assert found["overflow"][n] or found["overflow by rounding"][n]
                continue
            assert hits == [place_of(exact, shape) if exact else "exact"]
            assert found["to zero"][n] == (exact != 0 and result == 0)
            seen.update(hits)
        state = np.asarray(step.state)
    assert len(seen) >= 3


@pytest.mark.parametrize("name", ["exact", "pairwise"])
def test_roundings_at_the_end_are_those_of_exact_fractions(name):
    unit = NAMED[name]
    batch = fill(Coverage(unit))
    terms = mxfp.block_dots(*batch.pair)
    marks = [m["rounding"] for _, _, m in marks_of_steps(unit.accumulator, terms)]
    shape, values = precision_of(unit.accumulator), terms.fractions()
    for n in range(len(batch)):
        if terms.specials is not None and (terms.specials[n] != 0).any():
            continue
        exact = sum(values[n]) if name == "exact" else values[n, 0]
        hits = [p for p in PLACES[:5] if marks[0][p][n]]
        over = marks[0]["overflow"][n] or marks[0]["overflow by rounding"][n]
        if name == "exact" and not over:
            assert hits == [place_of(exact, shape) if exact else "exact"]
        elif name == "pairwise" and not over:
            assert (place_of(exact, shape) if exact else "exact") in hits


def test_products_and_elements_are_counted_lane_by_lane():
    cover = counted(one(NAMED["dot"], [7, 8, 1], [7, 3, 9]))
    assert cover.count("element of a", "6") == 1
    assert cover.count("element of a", "-0") == 1
    assert cover.count("element of a", "0") == 29
    assert cover.count("product", "highest") == 1
    assert cover.count("product", "-1 LSB") == 1
    assert cover.count("product", "zero") == 30
    assert cover.count("pair in lane", "1: -0 × 1.5") == 1
    assert cover.count("pair in lane", "0: -0 × 1.5") == 0


@pytest.mark.parametrize(
    ("lanes", "name"),
    [(29, "positive, 14 bits"), (28, "positive, 13 bits"), (32, "4608 (highest)")],
)
def test_a_sum_of_largest_products_hits_its_width(lanes, name):
    cover = counted(one(NAMED["sum"], [7] * lanes, [7] * lanes))
    assert cover.count("sum", name) == 1
    assert sum(cover.counts["sum"]) == (2 if lanes == 32 else 1)


def test_cancellations_take_nonzero_products():
    unit = NAMED["sum"]
    assert counted(one(unit, [7, 7], [3, 11])).count("cancellation", "exact") == 1
    assert counted(one(unit, [], [])).count("cancellation", "exact") == 0
    assert counted(one(unit, [4, 1], [1, 13])).count("cancellation", "leaves 1") == 0
    assert counted(one(unit, [2, 3], [9, 1])).count("cancellation", "leaves 1") == 1
    assert counted(one(unit, [7] * 32, [7] * 16 + [15] * 16)).count("cancellation", "largest halves") == 1


def test_an_adder_at_its_end_is_that_adder_alone():
    codes = np.zeros(32, np.uint8)
    codes[4:8] = 7
    found = counted(one(NAMED["sum"], codes, codes))
    hit = [b.name for f, b, count in found.bins() if f.name == "adder" and count]
    assert hit == ["level 1, adder 2, highest", "level 1, adder 3, highest", "level 2, adder 1, highest"]


@pytest.mark.parametrize(
    ("scales", "name"),
    [
        ((0, 255), "0 × NaN"),
        ((126, 128), "near 1 × near 1"),
        ((125, 129), "below × above"),
        ((253, 254), "last but one × last"),
        ((1, 2), "1 × below"),
    ],
)
def test_scale_classes_are_crossed(scales, name):
    cover = counted(one(NAMED["dot"], [1], [1], scales))
    assert cover.count("scales a × b", name) == 1
    assert cover.counts["scales a × b"].sum() == 1
    assert len(cover.counts["scales a × b"]) == len(SCALE_CLASSES) ** 2


def test_results_are_classed_by_their_bits():
    unit = NAMED["dot"]
    for scales, codes, name in (
        ((127, 127), (0, 0), "+0"),
        ((0, 0), (1, 9), "-0"),
        ((254, 254), (7, 7), "+infinity"),
        ((255, 3), (0, 0), "NaN"),
        ((60, 60), (2, 9), "-subnormal"),
    ):
        cover = counted(one(unit, [codes[0]], [codes[1]], scales))
        assert {b.name for f, b, count in cover.bins() if f.name == "result" and count} == {name}


# --- what nothing may hit


def answer(bits):
    return {"result": np.array([[bits]], np.uint64)}


@pytest.mark.parametrize(
    ("name", "codes", "scales", "bits", "bin_name"),
    [
        ("blackwell", (1, 9), (127, 127), 0x80000000, "-0"),
        ("dot", (1, 1), (127, 127), 0x7FC00000, "NaN of numbers"),
        ("dot", (1, 1), (255, 127), 0x3F800000, "number of a NaN term"),
        ("dot", (0, 1), (127, 127), 0x01000000, "nonzero of zero terms"),
        ("dot", (0, 1), (127, 127), 0x80000000, "nonzero of zero terms"),
        ("dot", (1, 1), (255, 127), 0x7FFFFFFF, "NaN of other bits"),
    ],
)
def test_a_result_that_no_right_unit_gives_is_wrong_with_its_case(name, codes, scales, bits, bin_name):
    batch = one(NAMED[name], [codes[0]], [codes[1]], scales, start=1234)
    cover = counted(batch, answers=answer(bits))
    assert [(hit.bin.name, hit.case) for hit in cover.wrong()] == [(bin_name, 1234)]


def test_a_block_that_cancels_and_a_result_that_does_not_is_wrong():
    batch = one(NAMED["dot"], [7, 7], [3, 11])
    cover = counted(batch, answers=answer(0x01000000))  # 2**-125, as of a unit that has been seen
    assert [hit.bin.name for hit in cover.wrong()] == ["nonzero of zero terms"]


def test_sums_that_no_products_make_are_wrong():
    batch = one(NAMED["sum"], [7] * 32, [7] * 32)
    for value, name in ((4607, "sum of no products"), (4609, "out of range"), (-5000, "out of range")):
        cover = counted(batch, answers={"sum": np.array([[value]])})
        assert [hit.bin.name for hit in cover.wrong()] == [name]
    assert counted(batch, answers={"sum": np.array([[4608]])}).wrong() == []


def test_reasons_say_why_a_bin_cannot_be_reached():
    def reason(name, family, bin_name):
        bins = {f.name: {b.name: b for b in f.bins} for f in families(NAMED[name])}
        assert bins[family][bin_name].kind == "unreachable"
        return bins[family][bin_name].why

    assert "2^-12 up to 2^11" in reason("wrapping", "result", "+infinity")
    assert "significant bits" in reason("dot", "result", "+largest")
    assert "2^27" in reason("nvfp4", "rounding", "overflow")
    assert "toward zero" in reason("blackwell", "rounding", "overflow by rounding")
    assert "multiple of 2^-20" in reason("nvfp4", "result", "-smallest subnormal")


# --- counting


@pytest.mark.parametrize("unit", [pytest.param(NAMED[n], id=n) for n in ("sum", "dot", "running", "nvfp4")])
def test_counts_of_parts_add_up_to_the_counts_of_the_whole(unit):
    batch = drawn(unit, 60)
    whole = counted(batch)
    cuts = [0, *(np.flatnonzero(batch.first)[[7, 12]]).tolist(), 60]
    parts = [counted(batch.cut(slice(one, two))) for one, two in pairwise(cuts)]
    total = parts[0] + parts[1] + parts[2]
    assert total.cases == 60
    for family in families(unit):
        if family.name != "sequence":  # what was cleared before a case is seen within a batch
            assert np.array_equal(total.counts[family.name], whole.counts[family.name]), family.name


def test_only_what_was_answered_counts():
    batch = drawn(NAMED["running"], 50)
    answered = np.zeros(50, bool)
    answered[:20] = True
    cover, half = counted(batch, answered=answered), counted(batch.cut(slice(0, 20)))
    assert cover.cases == half.cases == 20
    assert cover.groups == {"drawn": 20}
    for family in families(batch.unit):
        if family.name != "sequence":
            assert np.array_equal(cover.counts[family.name], half.counts[family.name]), family.name
    assert counted(batch, answered=np.zeros(50, bool)).cases == 0


def test_counts_go_through_json_and_back():
    cover = counted(one(NAMED["dot"], [1], [1], start=5), answers=answer(0x7FC00000))
    record = json.loads(json.dumps(cover.as_dict()))
    again = Coverage.from_dict(NAMED["dot"], record)
    assert again.as_dict() == cover.as_dict()
    assert [hit.case for hit in (again + cover).wrong()] == [5]
    with pytest.raises(ValueError, match="the unit is"):
        Coverage.from_dict(NAMED["nvfp4"], record)
    with pytest.raises(ValueError, match="schema"):
        Coverage.from_dict(NAMED["dot"], {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r["families"].pop("sum"), "have 'sum', and these have not"),
        (lambda r: r["families"]["sum"].popitem(), "and these have not"),
        (lambda r: r.pop("groups"), "have 'groups'"),
        (lambda r: r["families"]["special"].update({"NaN scale of a, zero codes": float("nan")}), "got nan"),
        (lambda r: r["families"]["special"].update({"NaN scale of a, zero codes": 1.5}), "got 1.5"),
        (lambda r: r["families"]["special"].update({"NaN scale of a, zero codes": -1}), "got -1"),
        (lambda r: r["families"]["special"].update({"NaN scale of a, zero codes": 10**30}), "got 1000000"),
        (lambda r: r["families"]["special"].update({"NaN scale of a, zero codes": True}), "got True"),
        (lambda r: r["families"]["special"].update({"NaN scale of a, zero codes": "7"}), "got '7'"),
        (lambda r: r.update(cases=None), "got None"),
        (lambda r: r.update(groups={"x": {}}), "got {}"),
        (lambda r: r.update(groups=[1]), "these are no counts"),
        (lambda r: r.update(families=7), "these are no counts"),
        (lambda r: r.update(wrong=[[1, 2]]), "not enough values"),
    ],
)
def test_counts_that_somebody_has_edited_are_refused(change, message):
    record = json.loads(json.dumps(counted(one(NAMED["dot"], [1], [1])).as_dict()))
    change(record)
    with pytest.raises(ValueError, match=message):
        Coverage.from_dict(NAMED["dot"], record)


@pytest.mark.parametrize("record", [None, [], "x", 7, [["schema", "mxfp-coverage/1"]]])
def test_what_is_no_record_of_counts_is_refused(record):
    with pytest.raises(ValueError, match="counts are JSON of schema mxfp-coverage/1, got None"):
        Coverage.from_dict(NAMED["dot"], record)


def test_units_do_not_mix():
    with pytest.raises(ValueError, match="coverage is of"):
        Coverage(NAMED["dot"]).add(drawn(NAMED["sum"], 3))
    with pytest.raises(ValueError, match="do not add up"):
        Coverage(NAMED["dot"]) + Coverage(NAMED["sum"])
    with pytest.raises(ValueError, match="each of 3 cases"):
        Coverage(NAMED["dot"]).add(drawn(NAMED["dot"], 3), answered=np.ones(2, bool))


# --- the command


def run(*arguments):
    return CliRunner().invoke(cli.cli, [str(a) for a in arguments])


@pytest.fixture
def sidecar(tmp_path):
    made = run("vectors", "dot", "--group", "nan-scales", "--group", "sum-extremes", "--out", tmp_path)
    assert made.exit_code == 0, made.output
    return tmp_path / "dot.json"


def test_the_command_prints_what_was_hit_and_missed(sidecar):
    result = run("coverage", sidecar)
    assert result.exit_code == 0
    rows = {
        " ".join(line.split()[:-3]): line.split()[-3:]
        for line in result.stdout.splitlines()
        if line[:2] != "  "
    }
    assert rows["special"] == ["6", "6", "-"]
    assert rows["cancellation"][1] == "4"
    assert "missed, pair in lane:" in result.output
    assert "unreachable, result: +largest" in result.output
    assert run("coverage", sidecar, "--strict").exit_code == 1


def test_the_command_fills_what_was_missed(sidecar, tmp_path):
    result = run("coverage", sidecar, "--fill", "--out", tmp_path / "more")
    assert result.exit_code == 0
    lines = (tmp_path / "more" / "dot-fill.hex").read_text().split()
    suite = Suite.from_sidecar(sidecar)
    assert {len(line) for line in lines} == {suite.line_bits // 4}
    assert f"MXFP_CASES = {len(lines)};" in (tmp_path / "more" / "dot-fill.svh").read_text()
    assert "8472 of 8472" in result.output
    made = ["dot-fill.hex", "dot-fill.json", "dot-fill.svh"]
    assert sorted(path.name for path in (tmp_path / "more").iterdir()) == made


def test_the_command_counts_only_answers_and_adds_other_runs(sidecar, tmp_path):
    suite = Suite.from_sidecar(sidecar)
    bits = [f"{v:08x}" for batch in suite.batches() for v in expected(batch)["result"][:, 0].tolist()]
    some = tmp_path / "some.txt"
    some.write_text("\n".join(bits[:50]) + "\n")
    result = run("coverage", sidecar, "--results", some, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["cases"] == 50
    assert f"50 of {suite.cases} cases" in result.stderr
    counts = tmp_path / "counts.json"
    counts.write_text(result.stdout)
    more = json.loads(run("coverage", sidecar, "--add", counts, "--json").stdout)
    assert more["cases"] == 50 + suite.cases


def test_the_command_fails_on_an_illegal_result(sidecar, tmp_path):
    suite = Suite.from_sidecar(sidecar)
    bits = [f"{v:08x}" for batch in suite.batches() for v in expected(batch)["result"][:, 0].tolist()]
    first_nan = next(n for n, text in enumerate(bits) if text == "7fc00000")
    bits[first_nan] = "3f800000"
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("\n".join(bits) + "\n")
    result = run("coverage", sidecar, "--results", wrong)
    assert result.exit_code == 1
    assert f"case {first_nan}: result: number of a NaN term" in result.output


def test_markdown_has_the_same_figures(sidecar):
    text = run("coverage", sidecar, "--markdown").stdout
    assert "| special | 6 | 6 | 0 |" in text
    assert "| nan-scales | 192 |" in text


def test_the_names_of_groups_stay_in_their_cells():
    cover = counted(one(NAMED["dot"], [1], [1]))
    cover.groups["a|b\nc"] = 3
    assert "| a\\|b c | 3 |" in as_markdown(cover)


def test_lines_that_are_no_answers_are_errors_whatever_was_hit(sidecar, tmp_path):
    suite = Suite.from_sidecar(sidecar)
    bits = [f"{v:08x}" for batch in suite.batches() for v in expected(batch)["result"][:, 0].tolist()]
    answers = tmp_path / "answers.txt"
    for lines, said in (
        ([*bits, bits[-1]], "1 answer is to no case"),
        ([*bits[:5], "3f8", *bits[6:]], "1 line is no answer"),
        (["VCD info: opened", *bits], "1 line is something else"),
        (
            [f"{n} {line}" for n, line in enumerate(bits)] + ["5 00000000"],
            "1 answer is to a case that had one",
        ),
    ):
        answers.write_text("\n".join(lines) + "\n")
        result = run("coverage", sidecar, "--results", answers)
        assert result.exit_code == 1
        assert f"answers.txt: {said}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--fill",), "go together"),
        (("--add", "SIDECAR"), "schema"),
        (("--add", "DEEP"), "recursion"),
        (("--add", "BINARY"), "decode"),
        (("--results", "EMPTY"), "answers none"),
        (("--results", "BINARY"), "is no text"),
        (("--fill", "--out", "BELOW"), "BELOW"),
    ],
)
def test_wrong_calls_end_in_one_line(sidecar, tmp_path, arguments, said):
    contents = {"EMPTY": b"", "DEEP": b"[" * 100_000, "BINARY": b"\xff\x00" * 99, "FILE": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    given = [{"SIDECAR": sidecar, "BELOW": tmp_path / "FILE" / "BELOW"}.get(a, a) for a in arguments]
    given = [tmp_path / a if a in contents else a for a in given]
    result = run("coverage", sidecar, *given)
    assert result.exit_code != 0
    assert said in result.output or said in str(result.exception)
    assert isinstance(result.exception, (SystemExit, OSError))
