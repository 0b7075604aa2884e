# SPDX-License-Identifier: Apache-2.0
"""The roofline: its arithmetic on made-up times, the probes, and one small real run; no figure is timed."""

import contextlib
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import numba
import numpy as np
import pytest
from click.testing import CliRunner

import mxfp
from mxfp import cli
from mxfp.formats import BLOCK_FORMATS
from mxfp.kernels import isa, plain, probes, threads, vectors
from mxfp.kernels.threads import spread
from mxfp.report.roofline import caches, measure, memory, placing, points, roofs, sizes, software, weights
from mxfp.report.roofline import roofline as record
from mxfp.report.roofline import tables as printed
from mxfp.report.roofline.caches import Cache
from mxfp.report.roofline.figures import CAPTION, PICTURES, pictures
from mxfp.report.roofline.points import Probe, Times, Timing
from mxfp.report.roofline.reading import from_json
from mxfp.report.roofline.roofline import Roof, Traffic, quoted_roof
from support import JIT, name_of, same_bits, size

TINY = sizes.Budget(
    rounds=2, seconds=0.0, curve_seconds=0.0, read=1024, operations=1, tile=32, smallest=1 << 10, beyond=2
)
"""As little as can be measured."""
SMALL = [Cache(1, 1 << 10, 1), Cache(2, 1 << 12, 1)]
"""Caches that make copies few and reading short."""
HERE = list(isa.available())
DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def small_caches(monkeypatch):
    monkeypatch.setattr(roofs, "caches", lambda: SMALL)


# --- caches


def fake_cpus(root, levels, cpus):
    """What Linux says: for each CPU and cache its level, type, size and who shares it."""
    for cpu, (index, (level, kind, nbytes, shared)) in itertools.product(cpus, enumerate(levels)):
        folder = root / f"cpu{cpu}" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        for name, text in {"level": level, "type": kind, "size": nbytes}.items():
            (folder / name).write_text(f"{text}\n")
        (folder / "shared_cpu_list").write_text(f"{cpu if shared == 1 else f'{cpu // shared}-shared'}\n")


def test_caches_are_counted_by_who_shares_them_and_instructions_are_left_out(tmp_path):
    levels = [(1, "Data", "48K", 1), (1, "Instruction", "32K", 1), (2, "Unified", "1024K", 1)]
    fake_cpus(tmp_path, [*levels, (3, "Unified", "32M", 4)], range(8))
    found = caches.caches(root=tmp_path, cpus=range(8))
    assert found == [Cache(1, 48 << 10, 8), Cache(2, 1 << 20, 8), Cache(3, 32 << 20, 2)]
    assert caches.caches(root=tmp_path, cpus=[1, 2]) == [
        Cache(1, 48 << 10, 2),
        Cache(2, 1 << 20, 2),
        Cache(3, 32 << 20, 1),
    ]
    assert [caches.held(cache, 3) for cache in found] == [144 << 10, 3 << 20, 64 << 20]
    sizes_and_levels = {144: "L1", 145: "L2", 3072: "L2", 3073: "L3", 65536: "L3"}
    for nbytes, level in sizes_and_levels.items():
        assert caches.level_of(nbytes << 10, found, 3) == level
    assert caches.last_level(found, 3) == 64 << 20


def test_where_the_system_says_nothing_a_last_level_is_assumed(tmp_path):
    assert caches.caches(root=tmp_path, cpus=[0]) == []
    assert caches.last_level([], 4) == caches.ASSUMED
    assert caches.level_of(caches.ASSUMED, [], 4) == "cache"
    assert caches.level_of(caches.COLD * caches.ASSUMED, [], 4) == "memory"
    fake_cpus(tmp_path, [(1, "Data", "some", 1), (2, "Unified", "64K", 1)], [0])
    (tmp_path / "cpu0/cache/index1/type").unlink()
    assert caches.caches(root=tmp_path, cpus=[0]) == []


def test_bytes_of_which_a_cache_still_holds_a_part_are_not_called_memory():
    found = [Cache(1, 1 << 15, 8), Cache(3, 1 << 24, 2)]
    for nbytes in ((2 << 24) + 1, (caches.COLD * 2 << 24) - 1):
        assert caches.level_of(nbytes, found, 4) == "L3 and memory"
    assert caches.level_of(caches.COLD * 2 << 24, found, 4) == "memory"
    assert caches.level_of(caches.ASSUMED + 1, [], 4) == "cache and memory"


# --- bytes and intensities


@pytest.mark.parametrize("fmt", [f for f in BLOCK_FORMATS.values() if 32 % f.block == 0], ids=name_of)
def test_weights_have_the_bytes_that_a_prepared_matrix_has(fmt):
    for n, k in ((32, 64), (33, 40), (96, 32)):
        q = mxfp.quantize(np.ones((n, k)), fmt)
        assert weights.weight_bytes(fmt.name, n, k) == mxfp.prepare(q.T).nbytes
        a = mxfp.quantize(np.ones((5, k)), fmt)
        moved = a.codes.nbytes + a.scales.nbytes + mxfp.matmul(a, q.T).nbytes
        assert weights.traffic(fmt.name, n, k).moved(5) == moved + mxfp.prepare(q.T).nbytes


def test_plain_weights_have_the_bytes_of_their_arrays():
    assert weights.weight_bytes("float32", 5, 7) == np.ones((5, 7), np.float32).nbytes
    assert weights.traffic("float16", 5, 7) == Traffic(70, 2 * 7 + 4 * 5)


def test_mxfp4_is_4_25_bits_a_weight():
    assert Fraction(8 * weights.weight_bytes("MXFP4", 8192, 8192), 8192**2) == Fraction(17, 4)


def test_the_roof_is_the_lower_of_peak_and_bandwidth_times_intensity():
    assert [record.attainable(where, 100.0, 8.0) for where in (1, 12.5, 50)] == [8.0, 100.0, 100.0]
    assert [record.limit_at(where, 12.5) for where in (12.4, 12.5, 12.6)] == [
        "bandwidth",
        "compute",
        "compute",
    ]


@pytest.mark.parametrize("ridge", [0.3, 1.0, 7.25, 30.0, 117.0])
@pytest.mark.parametrize("fmt", ["MXFP4", "NVFP4", "float16", "float32"])
def test_the_crossing_is_the_fewest_rows_at_or_beyond_the_ridge(fmt, ridge):
    n, k = 96, 128
    traffic = weights.traffic(fmt, n, k)
    exact = Fraction(ridge)

    def beyond(m):
        return Fraction(record.operations(m, n, k), traffic.moved(m)) >= exact

    crossing = record.crossing(ridge, n, k, traffic)
    if math.isinf(crossing):
        assert not beyond(10**9)
    else:
        assert beyond(math.ceil(crossing))
        assert not beyond(math.ceil(crossing) - 1)


def test_a_shape_whose_rows_move_too_much_never_leaves_the_bandwidth():
    traffic = Traffic(weights=1000, row=100)
    assert record.crossing(10.0, 10, 50, traffic) == math.inf  # 1000 operations for 100 bytes a row
    assert record.crossing(9.999, 10, 50, traffic) > 1e4


# --- what the times show


def test_the_crossing_seen_is_where_the_level_line_meets_the_rising_one():
    assert record.seen_crossing({m: max(6.0, 0.5 * m) for m in (1, 2, 4, 8, 16, 32)}) == 12.0
    assert record.seen_crossing({1: 3.0, 2: 6.0, 4: 12.0}) == 1.0
    assert math.isnan(record.seen_crossing({1: 3.0}))


def test_times_are_flat_until_one_is_longer_by_more_than_its_share():
    times = {1: 2.0, 2: 2.0 * record.FLAT, 4: 2.0 * record.FLAT + 0.001, 8: 2.0}
    assert record.flat_to(times) == 2
    assert record.flat_to({4: 1.0}) == 4
    assert record.flat_to({}) == 0


def made_up(seconds, *, n=64, k=128, peak=100.0, bandwidth=8.0):
    """Points of float32 from times by rows, under a roof of peak and bandwidth."""
    traffic = weights.traffic("float32", n, k)
    above = placing.Above(
        Roof("memory bandwidth", bandwidth, bandwidth, bandwidth, "measured", "reading"),
        quoted_roof("float32 peak", peak),
    )
    timings = [Timing("float32", m, "BLAS", traffic, m, list(some)) for m, some in seconds.items()]
    found = placing.points_of("float32", list(seconds), n, k, traffic, above, Times(timings))
    return found, placing.series_of("float32", n, k, traffic, above, found)


def test_points_have_exactly_the_figures_of_their_times():
    n, k = 64, 128
    (one, many), series = made_up({1: [4.0, 2.0, 6.0], 256: [128.0]}, peak=1e-4, bandwidth=2.0**-16)
    moved = 4 * n * k + 4 * k + 4 * n
    assert (one.moved, one.intensity) == (moved, 2 * n * k / moved)
    assert (one.seconds, one.low, one.high) == (4.0, 3.0, 5.0)
    assert one.gops == pytest.approx(1e-9 * 2 * n * k / 4, rel=1e-15)
    assert one.attainable == 2.0**-16 * one.intensity
    assert one.share == pytest.approx(one.gops / one.attainable, rel=1e-15)
    assert (many.attainable, many.limit, many.binds) == (1e-4, "compute", "software")
    assert many.share == pytest.approx(1e-9 * 2 * 256 * n * k / 128 / 1e-4)
    assert (series.ridge, series.weight_bits, series.weight_bytes) == (1e-4 * 2**16, 32.0, 4 * n * k)
    assert series.seen_crossing == 8.0
    assert series.flat_to == 1
    assert series.peak.origin == "quoted"


def test_a_share_is_of_the_bandwidth_of_its_own_rounds():
    n, k = 64, 128
    traffic = weights.traffic("float32", n, k)
    roof = Roof("memory bandwidth", 8.0, 8.0, 8.0, "measured", "reading")
    above = placing.Above(roof, quoted_roof("peak", 1e9), "reading")
    timings = [Timing("float32", 1, "BLAS", traffic, 1, [1.0, 2.0, 5.0])]
    times = Times(timings, {1: {"reading": [6.0, 4.0, 1.0]}})
    (point,) = placing.points_of("float32", [1], n, k, traffic, above, times)
    moved = 1e-9 * traffic.moved(1)
    assert point.attainable == 8.0 * point.intensity
    assert point.share == pytest.approx(moved / 6.0)  # the median of moved / 6, moved / 8 and moved / 5


def test_what_binds_is_the_roof_if_half_of_it_is_reached():
    n, k = 64, 128
    at = 1e-9 * 2 * n * k / (8.0 * record.intensity(1, n, k, weights.traffic("float32", n, k)))
    fast, slow = (made_up({1: [at * times]})[0][0] for times in (1.99, 2.01))
    assert (fast.binds, slow.binds) == ("bandwidth", "software")


def test_points_that_were_not_timed_are_only_placed():
    traffic = weights.traffic("MXFP4", 32, 64)
    above = placing.Above(quoted_roof("bandwidth", 256.0), quoted_roof("peak", 1000.0))
    point, far = placing.points_of("MXFP4", [1, 512], 32, 64, traffic, above, Times())
    assert (point.software, point.limit, far.limit) == ("", "bandwidth", "compute")
    assert math.isnan(point.seconds)
    assert point.attainable == 256 * point.intensity
    series = placing.series_of("MXFP4", 32, 64, traffic, above, [point, far])
    assert math.isnan(series.seen_crossing)
    assert series.flat_to == 0


# --- the software that is timed


def fake_software(name, most_rows=None):
    return software.Software("float16", name, Traffic(1, 1), lambda rows: lambda: rows, most_rows)


def test_the_quickest_software_is_timed_and_the_hopeless_are_not_asked_again(monkeypatch):
    asked = []
    # Seconds of a row, by software and M.
    each = {
        "early": {1: 1.0, 32: 3.0, 64: 4.0, 128: 4.0},
        "late": {1: 9.0, 32: 5.0, 64: 2.5, 128: 1.0},
        "capped": {1: 8.0},
    }

    def tried(way, m, before):
        asked.append((way.name, m))
        return way.make(m), min(m, way.most_rows or m), each[way.name][m]

    monkeypatch.setattr(points, "_tried", tried)
    monkeypatch.setattr(
        points, "by_turns", lambda runs, rests, rounds, seconds: [[0.25 * run()] * rounds for run in runs]
    )
    ways = {"float16": [fake_software("early"), fake_software("late"), fake_software("capped", 1)]}
    ticks = []
    found = points.measure_points(
        ways, [128, 1, 32, 64], [Probe("p", lambda: 1, 5e8)], rounds=9, seconds=0.0, tick=ticks.append
    )
    assert [(t.m, t.software) for t in found.timings] == [
        (1, "early"),
        (32, "early"),
        (64, "late"),
        (128, "late"),
    ]
    assert ("capped", 32) not in asked
    assert ("early", 128) in asked  # 1.6 times as long at 64
    assert found.rates[1] == {"p": [2.0] * points.FEW_ROUNDS}
    assert found.timings[-1].seconds == [32.0] * points.FEW_ROUNDS
    assert ticks == [1] * 4
    assert [t.seconds for t in found.trials if t.software == "late"] == [9.0, 160.0, 160.0, 128.0]


def test_a_slow_call_is_made_on_fewer_rows_and_its_time_is_scaled(monkeypatch):
    rows_of = []
    way = software.Software("float32", "slow", Traffic(1, 1), lambda rows: lambda: rows_of.append(rows))
    monkeypatch.setattr(points, "seconds_of", lambda run, enough: 0.5)
    _, rows, each = points._tried(way, 1024, points.LIMIT / 100)
    assert (rows, each) == (100, 0.005)
    assert set(rows_of) == {100}
    assert points._tried(fake_software("capped", 3), 8, 0.0)[1] == 3


def test_times_of_fewer_rows_are_scaled_to_all_of_them(monkeypatch):
    monkeypatch.setattr(points, "seconds_of", lambda run, enough: 1e-3)
    monkeypatch.setattr(points, "by_turns", lambda runs, rests, **options: [[0.5, 0.25] for run in runs])
    ways = {"float16": [fake_software("capped", 4)]}
    (timing,) = points.measure_points(ways, [32], [], seconds=0.0, tick=lambda amount: None).timings
    assert (timing.rows, timing.seconds) == (4, [4.0, 2.0])


def test_nothing_is_timed_whose_bits_are_wrong(monkeypatch):
    def wrong(result, rows):
        raise AssertionError(f"{rows} rows are wrong")

    def never(runs, rests, **options):
        raise NotImplementedError

    monkeypatch.setattr(points, "by_turns", never)
    way = software.Software("MXFP4", "mxfp", Traffic(1, 1), lambda rows: lambda: None, check=wrong)
    with pytest.raises(AssertionError, match="7 rows are wrong"):
        points.measure_points({"MXFP4": [way]}, [7], [], seconds=0.0, tick=lambda amount: None)


@pytest.mark.parametrize("k", [64, 128])
def test_every_software_multiplies(k):
    n = 70
    made = weights.Weights(n, k, 9, 1 << 12)
    made.strip = np.rint(made.strip * 2).astype(np.float32)  # small integers: every sum is exact
    made.activations = np.rint(made.activations * 2).astype(np.float32)
    expected = made.activations.astype(np.float64) @ made.strip.astype(np.float64).T
    for fmt in ("float16", "float32"):
        ways = software.softwares(fmt, made)
        assert len(ways) == len({way.name for way in ways})
        for way, rows in itertools.product(ways, (1, 2, 3, 4, 9)):
            run = way.make(rows)
            for _ in range(made.count(fmt) + 1):
                result = np.asarray(run(), np.float64).reshape(rows, n)
                np.testing.assert_array_equal(result, expected[:rows], err_msg=f"{way.name}, {rows} rows")


def test_block_products_are_compared_with_the_reference_before_they_are_timed(monkeypatch):
    made = weights.Weights(64, 64, 5, 1 << 12)
    (way,) = software.softwares("MXFP4", made)
    result = way.make(5)()
    way.check(result, 5)
    wrong = result.copy()
    wrong[-1, -1] = np.nextafter(wrong[-1, -1], np.float32(np.inf))
    with pytest.raises(AssertionError, match="MXFP4 product of 5 rows does not have the reference's bits"):
        way.check(wrong, 5)


def test_copies_of_a_weight_are_taken_by_turns_and_are_the_same_weight():
    made = weights.Weights(256, 64, 1, 1 << 14)
    prepared, strip = made.prepared(mxfp.MXFP4)
    assert len(prepared) == made.count("MXFP4") == -(-weights.COLD * (1 << 14) // prepared[0].nbytes) > 1
    assert all(one == prepared[0] for one in prepared)
    assert len({one.codes.ctypes.data for one in prepared}) == len(prepared)
    whole = prepared[0].to_blocks().T
    assert strip.shape[0] * weights.STRIPS == whole.shape[0]
    assert np.array_equal(whole.codes[: strip.shape[0]], strip.codes)
    assert np.array_equal(whole.codes[-strip.shape[0] :], strip.codes)
    calls = weights.Turns(lambda x: x, "abc")
    assert [calls() for _ in range(4)] == ["b", "c", "a", "b"]


# --- probes


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("ahead", [0, 4096])
def test_reading_sees_every_word(name, ahead):
    tag = isa._TAGS[name]
    blocks = 7
    words = np.zeros(blocks * vectors.BLOCK_WORDS, np.uint64)
    places = range(words.size) if JIT else range(0, words.size, 61)
    for pieces in (1, 3):
        found = np.zeros(pieces, np.uint64)
        for place in places:
            words[place] = 1 << place % 64
            spread(probes.read, pieces, tag, words, pieces, 1, ahead, found)
            assert np.bitwise_or.reduce(found) == 1 << place % 64
            assert np.count_nonzero(found) == 1
            words[place] = 0


@pytest.mark.parametrize("name", HERE)
def test_every_multiply_add_is_done(name):
    tag = isa._TAGS[name]
    found = np.zeros(3, np.float32)
    spread(probes.multiply_adds, 3, tag, 1000, found)
    assert found.tolist() == [1000.0 * vectors.sums_of(tag)] * 3


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("fmt", [f for f in BLOCK_FORMATS.values() if 32 % f.block == 0], ids=name_of)
def test_the_tile_of_a_peak_is_the_product_bit_for_bit(fmt, name):
    rng = np.random.default_rng(5)
    with isa.using(name):
        given = {"tensor_scale": 1.0} if fmt.tensor_scale else {}
        a, b = (mxfp.quantize(rng.standard_normal((rows, 64)), fmt, **given) for rows in (6, 32))
        tile = probes.tile_of(a, b)
        if tile is None:
            assert fmt.name in ("MXFP8_E4M3", "MXFP8_E5M2")
            return
        found = np.zeros((2, 6 * 32), np.float32)
        spread(probes.add_tiles, 2, *tile, 2, found)
        expected = mxfp.matmul(a, b.T, engine="reference")
    assert tile.products == 6 * 32 * 64
    for one in found:
        same_bits(one.reshape(6, 32), expected)


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_plain_products_read_every_weight_once(dtype, name, monkeypatch):
    monkeypatch.setattr(isa, "widest", lambda: isa._TAGS[name])
    rng = np.random.default_rng(3)
    for rows, columns, k in itertools.product((1, 3, 4, 6), (1, 2, 5, 33), (64, size(192, 64))):
        x = rng.integers(-8, 9, (rows, k)).astype(np.float32)
        w = rng.integers(-8, 9, (columns, k)).astype(dtype)
        found = plain.multiply(x, w)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, x.astype(np.float64) @ w.astype(np.float64).T)


def test_plain_products_take_k_in_steps():
    with pytest.raises(ValueError, match="multiples of 64, got 65"):
        plain.multiply(np.ones((1, 65), np.float32), np.ones((2, 65), np.float16))


def test_sizes_are_read_as_a_whole_however_often():
    data = memory.words(1 << 12)
    assert (data.ctypes.data % 4096, data.nbytes) == (0, 1 << 12)
    for at_least, calls in ((1 << 14, 4), (1, 1)):
        run, moved = memory.reader(data, 1, 0, at_least=at_least)
        run()
        assert moved == calls << 12


# --- turns, which GEMV takes


@numba.njit(nogil=True)
def mark(turns, count, step, found):
    """Add one to each of range(count) that is taken."""
    first = threads.take(turns, step)
    while first < count:
        for n in range(first, min(first + step, count)):
            found[n] += 1
        first = threads.take(turns, step)


@numba.njit(nogil=True)
def take_all(turns, count):
    """How many below count a thread gets."""
    mine = 0
    while threads.take(turns, 1) < count:
        mine += 1
    return mine


@pytest.mark.skipif(not JIT, reason="without the compiler there is one thread")
def test_no_turn_is_taken_by_two_threads():
    take_all(np.zeros(1, np.int64), 1)
    count = 2_000_000
    turns, together = np.zeros(1, np.int64), threading.Barrier(2)

    def run():
        together.wait(60)
        return take_all(turns, count)

    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(run) for _ in range(2)]
    assert sum(one.result() for one in done) == count
    assert turns[0] == count + 2


@pytest.mark.parametrize("count", [0, 1, 2, 7, 100, size(5000, 300)])
@pytest.mark.parametrize("number", [1, 2, 5])
def test_every_turn_is_taken_exactly_once(monkeypatch, number, count):
    monkeypatch.setattr(threads, "thread_count", lambda: number)
    for _ in range(size(20, 1)):
        found = np.zeros(count, np.int64)
        threads.share(mark, count, found)
        assert found.tolist() == [1] * count


def test_turns_are_taken_while_others_hold_the_helpers(monkeypatch):
    monkeypatch.setattr(threads, "thread_count", lambda: 3)
    seen = []

    def run(turns, count, step):
        inside = np.zeros(9, np.int64)
        if not seen:
            seen.append(True)
            threads.share(mark, 9, inside)
            assert inside.tolist() == [1] * 9

    threads.share(run, 30)
    assert seen


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
def test_interrupted_calls_leave_the_helpers_to_the_next(monkeypatch):
    monkeypatch.setattr(threads, "thread_count", lambda: 2)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for n in range(300):
            with contextlib.suppress(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 1e-5 * (1 + n % 50))
                while True:
                    spread(lambda first, last: None, 8)
    finally:
        signal.signal(signal.SIGALRM, before)
    seen = set()

    def work(first, last):
        seen.add(threading.get_ident())
        time.sleep(0.02)

    spread(work, 40)
    assert len(seen) == 2


def test_no_more_threads_help_than_the_call_asks_for(monkeypatch):
    for number in (5, 2):
        monkeypatch.setattr(threads, "thread_count", lambda number=number: number)
        seen = set()

        def work(first, last, seen=seen):
            seen.add(threading.get_ident())
            time.sleep(0.02)

        spread(work, 40)
        assert len(seen) == number


FORKED = """
import os, sys, threading
from mxfp.kernels import threads
threads.thread_count = lambda: 2
parent, busy, forked = os.getpid(), threading.Event(), threading.Event()
def work(first, last):
    if threading.current_thread() is not threading.main_thread():
        busy.set()
        assert forked.wait(60)
    elif first == 0:
        assert busy.wait(60)
        if os.fork():
            forked.set()
try:
    threads.spread(work, 2)
except RuntimeError as error:
    sys.stdout.write(f"{error}\\n")
if os.getpid() == parent:
    sys.stdout.write(f"{os.waitstatus_to_exitcode(os.wait()[1])}\\n")
"""
"""A piece of work that forks while a helper is at another; work that starts with the helper's is let go."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_forked_in_the_middle_of_a_call_is_told_so():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout == "this process was forked from one in the middle of a call\n0\n", done.stderr


# --- sizes


def test_the_default_weight_is_one_that_no_cache_holds():
    for last in (1 << 20, 8 << 20, 32 << 20, 256 << 20):
        n, k = sizes.default_shape(last, ["MXFP4"], 1, free=1 << 40)
        assert n == k
        nbytes = weights.weight_bytes("MXFP4", n, k)
        assert nbytes >= weights.COLD * last or n == sizes.LARGEST
        assert nbytes * weights.copies(nbytes, last) >= min(weights.COLD * last, weights.MOST_BYTES - nbytes)
        assert n == sizes.SMALLEST or weights.weight_bytes("MXFP4", n // 2, k // 2) < weights.COLD * last


def test_the_default_weight_leaves_room_in_memory():
    formats = ["MXFP4", "float32"]
    whole = sizes.default_shape(32 << 20, formats, 1024, free=1 << 40)
    less = sizes.default_shape(32 << 20, formats, 1024, free=1 << 30)
    assert less < whole
    assert sizes.needed(*less, 1024, formats, 32 << 20) <= sizes.SHARE * (1 << 30)


def test_a_weight_that_memory_has_no_room_for_is_refused(monkeypatch):
    monkeypatch.setattr(sizes, "available", lambda: 1 << 30)
    with pytest.raises(ValueError, match=r"16,384 x 16,384 in float32 .* about 1\.7 GB of memory, of which"):
        sizes.check_room(16384, 16384, 1024, ["float32"], 1 << 20)
    sizes.check_room(1024, 1024, 1024, ["float32"], 1 << 20)


def test_room_is_kept_for_what_a_weight_is_made_of():
    n, k = 4096 + 1, 4096
    drawn = 4 * n * k  # a weight that is no multiple of panels is drawn as a whole, in float32
    assert weights.strips(n) == 1
    assert weights.strips(4096) == weights.STRIPS
    for fmt in ("MXFP4", "float16", "float32"):
        assert sizes.needed(n, k, 1, [fmt], 1 << 20) > drawn + weights.weight_bytes(fmt, n, k)


# --- the whole


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roofs, "caches", lambda: SMALL)
        seen = []
        made = measure.measure(
            shape=(64, 64),
            ms=[20, 1, 3],
            formats=["MXFP4", "float16", "float32"],
            threads=1,
            budget=TINY,
            progress=lambda *what: seen.append(what),
        )
    assert seen[-1] == ("products", 3, 3)
    return made


def test_a_small_run_measures_every_roof_and_every_point(found):
    assert [(p.format, p.m) for p in found.points] == [
        (fmt, m) for fmt in ("MXFP4", "float16", "float32") for m in (1, 3, 20)
    ]
    for point in found.points:
        assert point.software
        assert 0 < point.low <= point.seconds <= point.high
        assert point.gops == pytest.approx(2e-9 * point.m * 64 * 64 / point.seconds)
        assert point.rows <= point.m
    assert {roof.origin for roof in (*found.bandwidths, *found.peaks)} == {"measured"}
    assert [roof.name for roof in found.peaks] == ["MXFP4 peak", "float32 FMA peak"]
    for roof in (*found.bandwidths, *found.peaks):
        assert 0 < roof.low <= roof.median <= roof.value
    assert [s.nbytes for s in found.samples] == [1 << 10, 1 << 11, 1 << 12, 1 << 13]
    assert [s.level for s in found.samples] == ["L1", "L2", "L2", "L2 and memory"]
    for line in found.series:
        assert line.ridge == line.peak.value / line.bandwidth.value
        assert line.weight_bits == {"MXFP4": 4.25, "float16": 16, "float32": 32}[line.format]
        assert found.copies[line.format] == weights.copies(line.weight_bytes, 1 << 12)
    assert (found.n, found.k, found.threads) == (64, 64, 1)


def test_json_tables_and_markdown_have_the_same_figures(found):
    read = json.loads(printed.json_text(found))
    assert read["schema"] == "mxfp-roofline/1"
    assert [p["gops"] for p in read["points"]] == [p.gops for p in found.points]
    assert [p["binds"] for p in read["points"]] == [p.binds for p in found.points]
    text = printed.markdown(found, {"roofline.png": "caption"})
    for table in printed.tables(found):
        assert f"## {table.title}" in text
        assert all(len(row) == len(table.columns) for row in table.rows)
        for row in table.rows:
            assert f"| {' | '.join(row)} |" in text
    assert "(quoted)" not in text
    assert "each with the bandwidth that was read in the same one" in text
    assert "\nMeasured with numpy" in text
    assert "![caption](roofline.png)" in text


def test_the_picture_says_which_side_is_which_and_is_the_same_for_the_same_data(found):
    drawn = pictures(found)
    assert list(drawn) == list(PICTURES)
    assert drawn["roofline.png"].startswith(b"\x89PNG\r\n\x1a\n")
    svg = drawn["roofline.svg"].decode()
    sides = ("bandwidth-bound", "(decode, GEMV)", "compute-bound", "(prefill, GEMM)")
    for text in (*sides, "MXFP4", "Time per call"):
        assert text in svg
    assert "quoted" not in svg
    assert pictures(found) == drawn


def test_json_reads_back_as_the_roofline_that_wrote_it(found):
    text = printed.json_text(found)
    again = from_json(text)
    assert printed.json_text(again) == text
    assert printed.tables(again) == printed.tables(found)
    assert pictures(again) == pictures(found)


def changed(found, path, value):
    """The JSON of a Roofline with one value replaced; path: names and places, from the outside in."""
    text = json.loads(printed.json_text(found))
    inside = text
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value
    return json.dumps(text)


ODD = [None, math.nan, math.inf, -1, 0, 1e308, 10**400, "x", "$\\frac", "[/red]", "\ud800", [], {}, True]


def every_value(found, path=()):
    """The path to every value in the JSON of a Roofline, of lists to the first one's only."""
    inside = found.items() if isinstance(found, dict) else list(enumerate(found))[:1]
    for step, value in inside:
        yield (*path, step)
        if isinstance(value, (dict, list)):
            yield from every_value(value, (*path, step))


def test_json_with_another_value_is_shown_or_refused_in_one_line(found):
    accepted, lines = 0, set()
    for path in every_value(json.loads(printed.json_text(found))):
        for value in ODD:
            try:
                read = from_json(changed(found, path, value))
            except ValueError as error:
                lines.add(str(error))
            else:
                accepted += 1
                printed.json_text(read)
                printed.markdown(read).encode()
    assert accepted
    assert all(line.isprintable() and len(line) < 300 for line in lines), lines


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("points", 0, "gops"), math.nan, "Point.gops cannot be nan"),
        (("points", 0, "seconds"), None, "the figures of MXFP4 at M = 1 do not go together"),
        (("points", 0, "attainable"), 7.0, "the figures of MXFP4 at M = 1 do not go together"),
        (("points", 1, "m"), 1, "it has a point twice"),
        (("points", 0, "limit"), "patience", "Point.limit cannot be 'patience'"),
        (("points",), [], "its points are not of its formats: MXFP4, float16, float32"),
        (("series",), [], "its points are not of its formats: none"),
        (("series", 0, "format"), "float32", "its points are not of its formats: float32, float16, float32"),
        (("series", 0, "ridge"), 7.0, "the ridge of MXFP4 is not its peak by its bandwidth"),
        (("peaks",), [], "the roofs of MXFP4 are not among the roofs"),
        (("copies",), {}, "its copies or trials are not of its formats"),
        (("copies", "MXFP4"), 0, "a shape, threads, copies and rows are 1 or more"),
        (("machine",), {"cpu": "abacus"}, "there is no Machine.numba_threads"),
        (("samples", 0, "gbs"), -1.0, "Sample.gbs cannot be -1.0"),
        (("machine", "cpu"), "\x1b[31m", r"Machine.cpu cannot be '\\x1b"),
    ],
)
def test_json_whose_parts_do_not_go_together_is_refused(found, path, value, message):
    with pytest.raises(ValueError, match=f"this is not a roofline.json of the schema .*: {message}"):
        from_json(changed(found, path, value))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"schema": "mxfp-roofline/1"}', "[" * 100_000])
def test_other_json_is_refused(text):
    with pytest.raises(ValueError, match="not a roofline"):
        from_json(text)


def test_a_roofline_is_shown_again_without_measuring(found, tmp_path):
    (tmp_path / "roofline.json").write_text(printed.json_text(found))
    done = run_cli("--data", str(tmp_path / "roofline.json"), "--json", "--out", str(tmp_path / "again"))
    assert done.exit_code == 0, done.output
    assert (tmp_path / "again" / "roofline.json").read_text() == printed.json_text(found)
    refused = run_cli("--data", str(tmp_path / "roofline.json"), "--m", "3")
    assert refused.exit_code == 2
    assert "only --out and --json go with it" in refused.output
    (tmp_path / "other.json").write_bytes(b"\xff\xfe")
    refused = run_cli("--data", str(tmp_path / "other.json"))
    assert refused.exit_code == 1
    assert "not UTF-8" in refused.output or "can't decode" in refused.output


# --- the pages


def test_the_recorded_tables_and_pictures_are_those_of_the_recorded_data():
    recorded = from_json((DOCS / "roofline" / "roofline.json").read_text(encoding="utf-8"))
    text = printed.markdown(recorded, {PICTURES[0]: CAPTION})
    assert (DOCS / "roofline" / "roofline.md").read_text(encoding="utf-8") == text
    svg = (DOCS / "roofline" / "roofline.svg").read_text(encoding="utf-8")
    for text in (*(str(roof) for roof in recorded.peaks), "bandwidth-bound", "compute-bound", "M = 1,024"):
        assert text in svg


def test_every_measured_figure_of_the_guide_is_in_the_recorded_tables():
    guide = (DOCS / "roofline.md").read_text(encoding="utf-8")
    recorded = (DOCS / "roofline" / "roofline.md").read_text(encoding="utf-8").splitlines()
    section = guide.partition("## On this machine")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|") and "---" not in line]
    assert len(rows) > 12
    for row in rows:
        assert row in recorded


def test_what_was_recorded_shows_both_sides():
    recorded = from_json((DOCS / "roofline" / "roofline.json").read_text(encoding="utf-8"))
    for line in recorded.series:
        points = [point for point in recorded.points if point.format == line.format]
        assert all(0 < point.gops < 1.05 * point.attainable for point in points)
        assert points[0].binds == "bandwidth"
        assert points[-1].binds == "compute"
        assert 1 < line.seen_crossing < 64
    fewest = next(point for point in recorded.points if (point.format, point.m) == ("MXFP4", 1))
    assert round(100 * fewest.share) >= 80


def run_cli(*arguments):
    return CliRunner().invoke(cli.cli, ["roofline", *arguments], catch_exceptions=True)


def test_quoted_roofs_are_called_quoted_wherever_they_stand(tmp_path):
    quoted = ("--bandwidth", "256", "--peak", "1000", "--peak", "mxfp4=4000", "--no-points")
    out = tmp_path / "out"
    done = run_cli(*quoted, "--shape", "1024", "2048", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert "MXFP4 peak (quoted), bandwidth (quoted) x op/B" in done.stdout.replace("\n", " ")
    assert {path.name for path in out.iterdir()} == {"roofline.md", "roofline.json", *PICTURES}
    read = json.loads((out / "roofline.json").read_text())
    assert {roof["origin"] for roof in (*read["bandwidths"], *read["peaks"])} == {"quoted"}
    assert [(line["format"], line["ridge"]) for line in read["series"]] == [
        ("MXFP4", 4000 / 256),
        ("float16", 1000 / 256),
        ("float32", 1000 / 256),
    ]
    assert read["samples"] == read["trials"] == []
    assert {point["seconds"] for point in read["points"]} == {None}
    svg = (out / "roofline.svg").read_text()
    assert "bandwidth (quoted), 256 GB/s" in svg
    assert "MXFP4 peak (quoted), 4,000 Gop/s" in svg
    markdown = (out / "roofline.md").read_text()
    assert "| bandwidth | 256 GB/s | - | quoted | - |" in markdown
    assert "\nNothing was measured; by `mxfp roofline`.\n" in markdown
    assert "Measured with" not in markdown


@pytest.mark.usefixtures("small_caches")
def test_one_quoted_roof_leaves_the_other_measured():
    made = measure.measure(
        shape=(64, 64), ms=[1], formats=["float32"], bandwidth=99.0, points=False, threads=1, budget=TINY
    )
    (bandwidth,) = made.bandwidths
    assert (bandwidth.name, bandwidth.value, bandwidth.origin) == ("bandwidth", 99.0, "quoted")
    assert [(roof.name, roof.origin) for roof in made.peaks] == [("float32 FMA peak", "measured")]
    assert made.samples == []
    assert not made.points[0].software


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--format", "MXFP5"),
            "a format of the roofline is one of MXFP4, .*, float16, float32, got 'MXFP5'",
        ),
        (("--peak", "fast"), "'fast' is not a number of Gop/s, such as 460 or MXFP4=1200"),
        (
            ("--format", "MXFP4", "--peak", "float32=3"),
            "a peak was given for 'float32', which is none of MXFP4",
        ),
        (("--peak", "-3", "--no-points"), "a quoted roof is a number from 1e-09 to 1e.15 of .*, got -3.0"),
        (("--peak", "nan", "--no-points"), "a quoted roof is a number from .*, got nan"),
        (("--bandwidth", "inf", "--no-points"), "a quoted roof is a number from .*, got inf"),
        (("--bandwidth", "1e-30", "--no-points"), "a quoted roof is a number from .*, got 1e-30"),
        (("--peak", "=5"), "'=5' is not a number of Gop/s"),
        (("--peak", "5", "--peak", "6"), "--peak was given more than once for all formats"),
        (("--peak", "mxfp4=5", "--peak", "MXFP4=6"), "--peak was given more than once for MXFP4"),
        (("--shape", "1", "1" + 400 * "0"), "a shape from 1 to 1,073,741,824, got"),
        (("--m", "2000000000"), "numbers of rows and a shape from 1 to"),
        (("--threads", "100000"), "there are 1 to .* threads here"),
        (("--m", "0"), "Invalid value for '--m'"),
        (("--bandwidth", "0"), "Invalid value for '--bandwidth'"),
    ],
)
def test_wrong_calls_end_in_one_line(arguments, message):
    done = run_cli(*arguments)
    assert done.exit_code != 0
    text = done.output + str(done.exception or "")
    assert re.search(message, text), text


def test_a_format_without_a_micro_kernel_is_refused_before_anything_takes_time(monkeypatch):
    def never(*arguments):
        raise NotImplementedError

    monkeypatch.setattr(measure, "_samples", never)
    with pytest.raises(ValueError, match=r"MXFP8_E4M3 has no micro-kernel .*quote one or leave it out"):
        measure.measure(shape=(32, 32), formats=["MXFP8_E4M3"], budget=TINY)


def test_without_the_compiler_only_what_is_quoted_is_shown(monkeypatch):
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    refused = run_cli("--shape", "64", "64", "--bandwidth", "1", "--peak", "1")
    assert refused.exit_code != 0
    assert "without numba's compiler (NUMBA_DISABLE_JIT)" in str(refused.exception)
    shown = run_cli("--shape", "64", "64", "--bandwidth", "1", "--peak", "1", "--no-points")
    assert shown.exit_code == 0, shown.output


def test_the_farthest_quoted_roofs_are_drawn(tmp_path):
    for bandwidth, peak in itertools.permutations(map(str, measure.QUOTED)):
        most = str(measure.MOST)
        done = run_cli(
            *("--bandwidth", bandwidth, "--peak", peak, "--no-points", "--m", "1", "--m", most),
            *("--shape", most, most, "--out", str(tmp_path / bandwidth)),
        )
        assert done.exit_code == 0, done.output + str(done.exception)
        text = (tmp_path / bandwidth / "roofline.json").read_text()
        assert printed.json_text(from_json(text)) == text


INTERRUPTED = """
import signal
import sys
from pathlib import Path
from mxfp import cli
from mxfp.report.roofline import points
whole = points.by_turns
def begun(*arguments, **options):
    Path("begun").touch()
    while True:
        whole(*arguments, **options)
points.by_turns = begun
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background
sys.argv[0] = "mxfp"
cli.main()
"""
"""The command, in a process that says when the first products are timed and never gets beyond them."""


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
def test_ctrl_c_ends_in_one_line_and_leaves_nothing(tmp_path):
    options = ("--bandwidth", "50", "--peak", "500", "--shape", "64", "64", "--m", "1")
    command = [sys.executable, "-c", INTERRUPTED, "roofline", *options, "--format", "float32", "--out", "out"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "NUMBA_DISABLE_JIT": "0"},
    ) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.strip().splitlines()[-1] == "mxfp: interrupted"
    assert "Traceback" not in errors
    assert [path.name for path in tmp_path.iterdir()] == ["begun"]
