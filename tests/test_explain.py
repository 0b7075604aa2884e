# SPDX-License-Identifier: Apache-2.0
"""A behaviour that is planted is found by its name; what nobody planted is not."""

import numpy as np
import pytest

import mxfp
import oracle
from mxfp.names import accumulator
from mxfp.verify.check import check
from mxfp.verify.explain import Datapath, Flow, behaviours
from mxfp.verify.explain.addition import FloatAdder
from mxfp.verify.explain.significand import rounded
from mxfp.verify.unit import Unit, expected
from mxfp.verify.vectors import Suite
from support import oracle_result

DOT = Suite(
    Unit("dot"),
    groups=(
        "walking-lanes",
        "sum-extremes",
        "nan-scales",
        "scale-corners",
        "scale-sums",
        "overflow",
        "subnormals",
        "half-the-smallest",
        "random-near-unit",
    ),
)
BLACKWELL = Unit("dot", blocks=4, accumulator=accumulator("blackwell"))
FIXED = Unit("dot", blocks=2, accumulator=accumulator("fixed:40:-20:wrap"))
SUM = Suite(Unit("sum"), groups=("pairs", "walking-lanes", "level-extremes", "random-near-unit"))
RUNNING = Suite(
    Unit("running"),
    groups=("subnormals", "ties", "sticky", "opposite-accumulator", "random-near-unit", "random-specials"),
)
UNITS = [
    Unit("sum"),
    Unit("dot"),
    Unit("running"),
    Unit("dot", blocks=3),
    Unit("dot", blocks=4, accumulator=accumulator("blackwell")),
    Unit("running", blocks=2, accumulator=accumulator("blackwell")),
    Unit("dot", blocks=2, accumulator=accumulator("sequential:bfloat16:8")),
    Unit("dot", mxfp.MXFP8_E4M3),
    Unit("dot", mxfp.MXFP8_E5M2, mxfp.MXFP4),
    Unit("dot", mxfp.NVFP4, blocks=2),
    Unit("dot", mxfp.MXFP8_E4M3, accumulator=accumulator("blackwell-mxf8f6f4")),
    Unit("dot", blocks=2, accumulator=accumulator("fixed:40:-20:wrap")),
    Unit("running", mxfp.MXFP8_E4M3, mxfp.MXFP4, accumulator=accumulator("sequential:float16:4")),
    Unit("dot", lanes=6),
    Unit("dot", lanes=1, blocks=2),
    Unit("running", lanes=16, blocks=2, accumulator=accumulator("hopper-fp8")),
    Unit("dot", mxfp.MXINT8, lanes=8, accumulator=accumulator("fused:3:1:8:-20:products:4")),
    Unit("running", mxfp.NVFP4, blocks=2, accumulator=accumulator("exact:bfloat16")),
]


def named(unit, *names):
    """A right unit with behaviours planted."""
    path = Datapath.of(unit)
    known = {behaviour.name: behaviour for behaviour in behaviours(unit)}
    for name in names:
        path = known[name].apply(path)
    return path


def outputs(suite, path):
    """What a unit gives, stage by stage, over a whole suite, from case to case."""
    batches = list(suite.batches(size=1 << 20))
    previous = None
    for batch in batches:
        flow = Flow.of(batch)
        flow.previous = shifted(batch, previous)
        previous = batch
        yield path.run(flow)


def shifted(batch, previous):
    """The case before each; zeros before all."""
    arrays = {}
    for name in ("codes_a", "codes_b", "scales_a", "scales_b"):
        values = getattr(batch, name)
        first = np.zeros_like(values[:1]) if previous is None else getattr(previous, name)[-1:]
        arrays[name] = np.concatenate([first, values[:-1]])
    return type(batch)(batch.unit, **arrays, first=batch.first, group=batch.group, groups=batch.groups)


def lines(suite, path):
    """The same as lines of results."""
    for found in outputs(suite, path):
        if suite.unit.scaled:
            digits = 2 * suite.unit.accumulator.result_dtype.itemsize
            yield from (f"{v:0{digits}x}" for v in found["result"][:, 0].tolist())
        else:
            yield from (f"{v & 0xFFFF:04x}" for v in found["sum"][:, 0].tolist())


def explained(suite, *names):
    verdict = check(suite, lines(suite, named(suite.unit, *names)), shown=1)
    assert verdict.total.wrong, f"{names} does not show"
    return verdict.explanation


# --- the right datapath is right


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_the_datapath_with_nothing_changed_gives_what_is_expected(unit):
    suite = Suite(unit, groups=("random-specials", "random-corner", "random-near-unit"))
    assert suite.cases
    for batch in suite.batches():
        right, found = expected(batch), Datapath.of(unit).run(Flow.of(batch))
        for name, values in found.items():
            assert np.array_equal(values.astype(np.int64), right[name].astype(np.int64)), name


def test_the_levels_of_the_datapath_are_those_of_the_tree():
    unit = Unit("sum")
    path = named(unit).changed("products", lambda flow: None)
    batch = next(SUM.batches(size=500))
    found, right = path.run(Flow.of(batch)), expected(batch)
    assert set(found) == set(right)
    for name, values in right.items():
        assert np.array_equal(found[name], values)


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_every_behaviour_has_a_name_of_its_own_and_runs(unit):
    known = behaviours(unit)
    assert len({behaviour.name for behaviour in known}) == len(known)
    for group in ("random-near-unit", "random-uniform") if unit.scaled else ("random-near-unit",):
        suite = Suite(unit, groups=(group, "random-specials"))
        batch = next(suite.batches(size=24)).cut(slice(0, 24))
        for behaviour in known:
            flow = Flow.of(batch)
            flow.previous = flow.following = batch
            found = behaviour.apply(Datapath.of(unit)).run(flow)  # without a warning, too
            assert len(found["sum"]) == 24
            assert behaviour.about


def test_an_exponent_that_is_wrong_moves_what_products_are_aligned_by():
    unit = Unit("dot", lanes=4, blocks=8, accumulator=accumulator("hopper-fp8"))
    batch = next(Suite(unit, groups=("random-near-unit",)).batches(size=256))
    right = Datapath.of(unit).run(Flow.of(batch))["result"]
    twice = named(unit, "exponent+1").run(Flow.of(batch))["result"]
    exact = right.astype(np.uint32).view(np.float32) * np.float32(2)
    assert np.array_equal(
        twice.astype(np.uint32).view(np.float32), exact
    )  # all of them, so nothing else moves


# --- the adder against exact fractions


def test_a_group_of_products_is_that_level_of_the_tree():
    unit = Unit("dot", blocks=2, accumulator=accumulator("sequential:float32:8"))
    suite = Suite(unit, groups=("random-near-unit",))
    narrow = np.concatenate([found["result"] for found in outputs(suite, named(unit, "level3-wraps-11"))])
    deeper = np.concatenate([found["result"] for found in outputs(suite, named(unit, "level4-wraps-11"))])
    right = np.concatenate([expected(batch)["result"] for batch in suite.batches()])
    assert np.array_equal(deeper, right)  # sums of 16 are made, and not used
    assert len(narrow) == len(right)


MODES = {
    "toward_zero": lambda x, lo, hi: lo if x > 0 else hi,
    "away": lambda x, lo, hi: hi if x > 0 else lo,
    "up": lambda x, lo, hi: hi,
    "down": lambda x, lo, hi: lo,
    "half_up": lambda x, lo, hi: hi if x - lo >= hi - x else lo,
    "half_away": lambda x, lo, hi: (
        (hi if x - lo >= hi - x else lo) if x > 0 else (lo if hi - x >= x - lo else hi)
    ),
    "half_zero": lambda x, lo, hi: (
        (lo if x - lo <= hi - x else hi) if x > 0 else (hi if hi - x <= x - lo else lo)
    ),
}


@pytest.mark.parametrize("mode", MODES)
def test_roundings_are_those_of_exact_neighbours(mode):
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.integers(-4096, 4096, 4000) / 64.0, rng.integers(-300, 300, 500) / 4.0])
    found = rounded(x, mode, 5)
    for value, one in zip(x.tolist(), found.tolist(), strict=True):
        if value == 0:
            assert one == 0
            continue
        unit = 2.0 ** (np.floor(np.log2(abs(value))) - 4)
        low, high = np.floor(value / unit) * unit, np.ceil(value / unit) * unit
        assert one == (low if low == high else MODES[mode](value, low, high)), value


def test_the_plain_adder_is_the_sequential_accumulator_by_the_oracle():
    unit = Unit("dot", blocks=3)
    suite = Suite(unit, groups=("random-specials", "random-uniform"))
    batch = next(suite.batches(size=120)).cut(slice(0, 120))
    found = Datapath.of(unit).run(Flow.of(batch))["result"][:, 0]
    for n in range(len(batch)):
        a, b = batch.cut(slice(n, n + 1)).pair
        row = [mxfp.BlockArray(side.codes[0], side.scales[0], side.format) for side in (a, b)]
        assert found[n] == oracle_result(unit.accumulator, *row)
    assert FloatAdder().places == oracle.FLOATS["float32"][1] + 1


# --- what is planted is found


@pytest.mark.parametrize(
    "name",
    [
        "lane13-sign-inverted",
        "lane0-dropped",
        "lanes-reversed",
        "nibbles-swapped",
        "lanes-10-11-swapped",
        "subnormal-elements-zero-ab",
        "subnormal-elements-one-ab",
        "negative-zero-least-ab",
        "code5-is-5-ab",
        "products-wrap-8",
        "product-of-0.5-0-a",
        "level5-wraps-13",
        "level5-saturates-13",
        "level3-wraps-11",
        "nan-scale-ignored-a",
        "nan-scale-ignored-ab",
        "nan-scale-of-zero-sum",
        "exponent-wraps-8-sum",
        "exponent-a-for-both",
        "overflow-largest",
        "overflow-wraps-9",
        "overflow-wraps-8",
        "subnormal-signed-zero",
        "least-zero",
        "least-up",
        "nan-is-7fffffff",
        "scale-a-ignored",
        "scales-a-of-case-before",
        "result-negated",
        "accumulator-stale",
    ],
)
def test_a_planted_behaviour_is_named_for_a_dot_product(name):
    found = explained(DOT, name)
    assert name in found.names
    assert len(found.names) <= 4, found.names
    assert found.whole
    assert name in str(found)


@pytest.mark.parametrize(
    "name",
    [
        "truncation",
        "round-half-away",
        "round-half-up",
        "round-half-to-zero",
        "sticky-lost-1",
        "double-rounding-26",
        "alignment-loses-3",
        "cancellation-2^-125",
        "cancellation-negative",
        "accumulator-stale",
        "accumulator-forgotten",
        "first-dropped",
        "input-subnormal-zero",
        "input-nan-number",
        "accumulator-sequential:bfloat16",
        "accumulator-exact:float32",
        "accumulator-sequential:float32:16",
    ],
)
def test_a_planted_behaviour_is_named_for_a_running_accumulator(name):
    found = explained(RUNNING, name)
    assert name in found.names
    assert len(found.names) <= 6, found.names


@pytest.mark.parametrize("name", ["level4-wraps-12", "level2-carry-5", "lane31-twice", "code7-is-8-b"])
def test_a_planted_behaviour_is_named_for_a_sum(name):
    assert name in explained(SUM, name).names


@pytest.mark.parametrize(
    ("unit", "name"),
    [
        (BLACKWELL, "accumulator-fused:34:16:64:-139:scales:23"),
        (BLACKWELL, "scales-in-turns"),
        (Unit("dot", blocks=3), "scale-a-of-next-block"),
        (Unit("dot", blocks=3), "blocks-reversed"),
        (Unit("dot", mxfp.MXFP8_E4M3), "special-elements-zero"),
        (FIXED, "accumulator-fixed:39:-20:wrap:floor:float64"),
    ],
)
def test_a_planted_behaviour_is_named_for_other_units(unit, name):
    suite = Suite(unit, groups=("random-near-unit", "random-specials", "random-corner"))
    assert name in explained(suite, name).names


# --- what is not, is not


def spoilt(suite, change):
    rows = list(lines(suite, Datapath.of(suite.unit)))
    sums = np.concatenate([expected(batch)["sum"][:, 0] for batch in suite.batches()])
    return [change(row, int(total)) for row, total in zip(rows, sums, strict=True)]


def test_what_nobody_named_is_explained_by_nothing_and_said_so():
    rows = spoilt(DOT, lambda row, total: f"{int(row, 16) ^ 0x155:08x}" if total % 7 == 3 else row)
    found = check(DOT, rows).explanation
    assert not found
    assert found.names == ()
    assert str(found).startswith(f"None of the {found.searched} behaviours explains")
    assert 0 < found.visible < found.searched


def test_one_wrong_case_more_than_a_behaviour_explains_is_one_too_many():
    rows = list(lines(DOT, named(DOT.unit, "overflow-largest")))
    rows[3] = f"{int(rows[3], 16) ^ 0x100:08x}"
    found = check(DOT, rows).explanation
    assert not found
    assert found.partial.behaviour.name == "overflow-largest"
    assert found.partial.explained < found.partial.wrong
    assert "nearest: overflow-largest would explain" in str(found)


def test_a_behaviour_that_would_spoil_right_cases_does_not_explain():
    rows = list(lines(DOT, named(DOT.unit, "overflow-largest")))
    right = list(lines(DOT, Datapath.of(DOT.unit)))
    wrong = [n for n in range(len(rows)) if rows[n] != right[n]]
    rows[wrong[-1]] = right[wrong[-1]]
    assert "overflow-largest" not in check(DOT, rows).explanation.names


def test_what_fits_all_but_a_case_that_was_not_screened_is_the_nearest():
    rows = list(lines(DOT, named(DOT.unit, "lane13-sign-inverted")))
    right = list(lines(DOT, Datapath.of(DOT.unit)))
    wrong = [n for n in range(len(rows)) if rows[n] != right[n]]
    assert len(wrong) > 2000
    rows[wrong[-1]] = f"{int(rows[wrong[-1]], 16) ^ 0x40:08x}"  # the last of a large group
    found = check(DOT, rows).explanation
    assert not found
    assert found.partial.behaviour.name == "lane13-sign-inverted"
    assert (found.partial.explained, found.partial.spoilt) == (len(wrong) - 1, 0)


def test_two_behaviours_at_once_are_found_as_a_pair():
    found = explained(DOT, "overflow-largest", "lane13-sign-inverted")
    assert not any("+" not in name for name in found.names)
    assert any({"overflow-largest", "lane13-sign-inverted"} == set(name.split(" + ")) for name in found.names)


def test_what_wrong_cases_have_in_common_is_said():
    rows = spoilt(SUM, lambda row, total: row if total <= 1023 else f"{int(row, 16) ^ 0x2A:04x}")
    found = check(SUM, rows).explanation
    assert not found
    assert "a sum is 1024 or more" in found.common


def test_a_pattern_for_nan_is_read_off_the_answers():
    rows = ["7f812345" if row == "7fc00000" else row for row in lines(DOT, Datapath.of(DOT.unit))]
    assert check(DOT, rows).explanation.names == ("nan-gives-7f812345",)


def test_signalling_nans_are_read_like_any_pattern():
    rows = ["7f800001" if row == "7fc00000" else row for row in lines(DOT, Datapath.of(DOT.unit))]
    verdict = check(DOT, rows, policy="ulps:1")
    assert "nan-is-7f800001" in verdict.explanation.names
    assert "got      7f800001  nan" in str(verdict)


def test_stages_that_are_given_tell_behaviours_apart():
    unit, rows = Unit("sum"), []
    suite = Suite(unit, groups=("walking-lanes",))
    for batch in suite.batches():
        right = expected(batch)
        for products, total in zip(right["product"].tolist(), right["sum"][:, 0].tolist(), strict=True):
            digits = "".join(f"{value & 0xFFF:03x}" for value in products[::-1])
            rows.append(f"product={digits} sum={-total & 0xFFFF:04x}")
    with_products = check(suite, rows).explanation.names
    alone = check(suite, [row.split("sum=")[1] for row in rows]).explanation.names
    assert {"sum-negated", "signs-inverted"} <= set(alone)
    assert "sum-negated" in with_products
    assert "signs-inverted" not in with_products


def test_right_answers_need_no_explanation():
    assert check(SUM, lines(SUM, Datapath.of(SUM.unit))).explanation is None
