# SPDX-License-Identifier: Apache-2.0
"""The compiler's side of kernels: code kept on disk, a word while it compiles, threads and forks."""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mxfp
from support import HERE, JIT

compiled = pytest.mark.skipif(not JIT, reason="there is nothing to compile with NUMBA_DISABLE_JIT")
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

KERNELS = {
    "shelf.py": "NUMBER = 10\n",
    "kernels/callee.py": (
        "from ..shelf import NUMBER\n"
        "from ._jit import kernel\n"
        "@kernel\n"
        "def step(i):\n"
        "    return NUMBER * i + 1\n"
    ),
    "kernels/tiny.py": (
        "from ._jit import kernel\n"
        "from .callee import step\n"
        "@kernel\n"
        "def fill(out):\n"
        "    for i in range(out.size):\n"
        "        out[i] = step(i)\n"
        "@kernel\n"
        "def total(x):\n"
        "    found = step(0)\n"
        "    for i in range(x.size):\n"
        "        found += x[i]\n"
        "    return found\n"
        "@kernel\n"
        "def last(x):\n"
        "    return x[-1]\n"
    ),
}
"""A room and two files of small kernels, put into a copy of the package."""
COUNT = """
import os, sys, threading
import numba, numpy as np
from numba.core import event
class Count(event.Listener):
    names = {}
    def on_start(self, event):
        self.names[event.data["dispatcher"].py_func.__name__] = True
    def on_end(self, event):
        pass
event.register("numba:compile", Count())
"""
"""Opens a script that counts what is compiled."""
FILL = """
from mxfp.kernels.tiny import fill
out = np.zeros(3)
fill(out)
print(*out.astype(int), *Count.names)
"""
TOTAL = """
from mxfp.kernels.tiny import total
print(int(total(np.ones(4))), *Count.names)
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package, with nothing compiled in it."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(mxfp.__file__).parent, tmp_path / "mxfp", ignore=ignore)
    for name, text in KERNELS.items():
        (tmp_path / "mxfp" / name).write_text(text, encoding="utf-8")
    return tmp_path


def start(script, package=None, **environment):
    """A process that runs a script, on a copy of the package or on the package itself."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    if package is not None:
        variables["PYTHONPATH"] = str(package)
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env={**variables, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=package or HERE,
    )


def finish(process):
    """What a process printed, and what it said on stderr; it must end well."""
    try:
        printed, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, said
    return printed.split(), said


def run(script, package=None, **environment):
    """What a script printed."""
    return finish(start(script, package, **environment))[0]


def cached(package):
    """The files of compiled code in a copy of the package."""
    return sorted((package / "mxfp" / "kernels" / "__pycache__").glob("*.nbc"))


def edit(package, name, before, after):
    path = package / "mxfp" / name
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")


# --- code on disk


@compiled
def test_what_was_compiled_is_not_compiled_again(package):
    script = COUNT + (
        "import mxfp; x = np.ones((2, 70), np.float32); q = mxfp.quantize(x); q.dequantize()\n"
        "mxfp.matmul(q, q.T); mxfp.matmul(q, q.T, accumulator=mxfp.Exact('float32'))\n"
        "print(len(Count.names))\n"
    )
    assert int(*run(script, package)) > 0
    assert run(script, package) == ["0"]
    assert run(COUNT + FILL, package) == ["1", "11", "21", "fill", "step"]
    assert run(COUNT + FILL + "print(sum(fill.stats.cache_hits.values()))", package)[3:] == ["1"]


@compiled
@pytest.mark.parametrize(
    ("name", "before", "after", "expected"),
    [("kernels/callee.py", "+ 1", "+ 2", "2 12 22"), ("shelf.py", "10", "20", "1 21 41")],
    ids=["kernel", "room"],
)
def test_a_callee_or_a_constant_changed_in_another_file_counts(package, name, before, after, expected):
    assert run(COUNT + FILL, package)[:3] == ["1", "11", "21"]
    old = cached(package)
    assert len(old) == 2
    edit(package, name, before, after)
    assert run(COUNT + FILL, package) == [*expected.split(), "fill", "step"]
    assert len(cached(package)) == 2, "what can never be of use again is removed"
    assert not set(cached(package)) & set(old)
    assert run(COUNT + FILL, package) == expected.split()


@compiled
def test_what_kernels_cannot_reach_does_not_count(package):
    run(COUNT + FILL, package)
    with (package / "mxfp" / "report" / "tables.py").open("a") as file:
        file.write("# a remark\n")
    assert run(COUNT + FILL, package) == ["1", "11", "21"]


@compiled
@pytest.mark.parametrize(
    ("imported", "name", "before", "after"),
    [("mxfp.shelf", "shelf.py", "10", "20"), ("mxfp.kernels.tiny", "kernels/callee.py", "* i", "* 2 * i")],
    ids=["room", "kernel"],
)
def test_sources_edited_under_a_running_process_leave_nothing_wrong_behind(
    package, imported, name, before, after
):
    """The process imports, then somebody edits, then it compiles: what it has is not what lies on disk."""
    path = package / "mxfp" / name
    late = (
        f"import {imported}, pathlib; path = pathlib.Path({str(path)!r})\n"
        f"path.write_text(path.read_text().replace({before!r}, {after!r}))\n"
    )
    run(COUNT + late + FILL, package)
    if imported == "mxfp.kernels.tiny":
        assert not cached(package)
    assert run(COUNT + FILL, package)[:3] == ["1", "21", "41"]
    edit(package, name, after, before)
    assert run(COUNT + FILL, package)[:3] == ["1", "11", "21"]


@compiled
@pytest.mark.parametrize("kind", ["number", "array", "tuple", "cell", "kernel", "intrinsic"])
def test_a_kernel_is_known_by_what_it_takes_from_around_it(kind):
    from numba.extending import intrinsic

    from mxfp.kernels import _jit

    def made_of(value):
        around = {}
        exec("def function(x):\n    return THING\ndef callee(context):\n    return THING\n", around)

        def inner(x):
            return value

        function, callee = around["function"], around["callee"]
        around["THING"] = value
        if kind == "cell":
            return list(_jit._made_of(inner, set()))
        if kind in ("kernel", "intrinsic"):
            wrap = _jit.kernel if kind == "kernel" else intrinsic
            function = type(function)(function.__code__, {"THING": wrap(callee)})
        elif kind != "number":
            around["THING"] = np.array([value]) if kind == "array" else ((value,), "text")
        return list(_jit._made_of(function, set()))

    assert made_of(1.0) == made_of(1.0)
    assert made_of(0.0) != made_of(-0.0)


def nowhere(package):
    """Variables with which no cache directory can be made, by whatever user."""
    (package / "mxfp" / "kernels" / "__pycache__").write_text("a file where the directory would be")
    below = str(package / "mxfp" / "shelf.py" / "below")
    return {"NUMBA_CACHE_DIR": below, "XDG_CACHE_HOME": below, "HOME": below, "LOCALAPPDATA": below}


@compiled
def test_without_a_cache_to_write_to_every_run_compiles(package):
    elsewhere = nowhere(package)
    for _ in range(2):
        printed, said = finish(start(COUNT + "sys.warnoptions = ['error']\n" + FILL, package, **elsewhere))
        assert printed == ["1", "11", "21", "fill", "step"]
        assert "Warning" not in said
        assert "Traceback" not in said


@compiled
def test_a_cache_directory_of_ones_own_is_used(package):
    kept = package / "kept"
    assert run(COUNT + TOTAL, package, NUMBA_CACHE_DIR=str(kept)) == ["5", "total", "step"]
    assert run(COUNT + TOTAL, package, NUMBA_CACHE_DIR=str(kept)) == ["5"]
    assert len([*kept.rglob("total.*.nbc"), *kept.rglob("tiny.total.*.nbc")]) == 1
    assert not cached(package)


@compiled
def test_damaged_files_are_compiled_and_written_again(package):
    script = """
from mxfp.kernels import _jit, threads, tiny
x = np.arange(5.0)
def hits():
    fresh = _jit.kernel(tiny.last.py_func)
    assert fresh(x) == 4
    return sum(fresh.stats.cache_hits.values())
tiny.total(x), tiny.last(x)
disk = tiny.last._cache
path, = [path for path in _jit.Path(disk.cache_path).glob("*.nbc") if path.name.startswith("tiny.last.")]
other, = [path for path in path.parent.glob("*.nbc") if path.name.startswith("tiny.total.")]
good = path.read_bytes()
middle = len(good) // 2
flipped = good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]
print(hits())
for damaged in (b"", b"garbage" * 99, good[:-9], flipped, other.read_bytes()):
    path.write_bytes(damaged)
    print(hits(), path.read_bytes() != damaged, hits())
path.unlink()
path.mkdir()
print(hits())
"""
    assert run(COUNT + script, package) == ["1", *["0", "True", "1"] * 5, "0"]


@compiled
def test_a_cache_that_fills_up_or_goes_away_is_no_trouble(package):
    full = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))\n"
        if sys.platform != "win32"
        else ""
    )
    if full:
        assert run(COUNT + full + TOTAL, package, PYTHONDONTWRITEBYTECODE="1")[0] == "5"
        assert not [*(package / "mxfp" / "kernels").glob("__pycache__/*.nbc*")]
    gone = (
        "\nimport pathlib, shutil; kept = pathlib.Path(total.stats.cache_path)\n"
        "shutil.rmtree(kept); kept.write_text('a file')\n"
        "print(int(total(np.ones(4, np.float32))), *Count.names)\n"
    )
    assert run(COUNT + TOTAL + gone, package) == ["5", "total", "step", "5", "total", "step"]


@compiled
def test_processes_that_compile_at_once_do_not_mix_up_their_code(package):
    dtypes = ("float64", "float32", "int64", "uint8")
    scripts = [
        COUNT + f"from mxfp.kernels.tiny import last\nprint(last(np.arange(1, 6, dtype='{d}')), *Count.names)"
        for d in dtypes
    ]
    expected = [["5.0"], ["5.0"], ["5"], ["5"]]
    for process, result in zip([start(script, package) for script in scripts], expected, strict=True):
        assert finish(process)[0] == [*result, "last"]
    for script, result in zip(scripts, expected, strict=True):
        assert run(script, package) == result


@compiled
@pytest.mark.parametrize(
    "change",
    [
        "del caching.CompileResultCacheImpl",
        "del caching.CompileResultCacheImpl.check_cachable",
        "caching._Cache.__abstractmethods__ |= {'something_new'}",
    ],
)
def test_a_numba_with_other_insides_is_used_without_the_disk(package, change):
    strange = f"from numba.core import caching; {change}\n"
    assert run(COUNT + strange + TOTAL, package) == ["5", "total", "step"]
    assert not cached(package)


# --- a word while it compiles

AT_ONCE = "from mxfp.kernels import _jit, tiny; _jit.PATIENCE = 0.0\n"
"""What compiles for longer than no time at all says so."""
WORD = "mxfp: compiling the tiny kernels for this machine"
LATER = "tiny.total(np.ones(4)); tiny.fill(np.ones(4)); tiny.last(np.ones(4))\n"


def said(script, package, **environment):
    """Lines on stderr."""
    return finish(start(COUNT + script, package, **environment))[1].splitlines()


@compiled
def test_a_long_compilation_says_so_once_and_where_it_is_kept(package):
    kept = package / "mxfp" / "kernels" / "__pycache__"
    assert said(AT_ONCE + LATER, package) == [f"{WORD}; later runs find them in {kept}"]
    assert said(AT_ONCE + LATER, package) == []


@compiled
def test_a_compilation_that_cannot_be_kept_says_that(package):
    (line,) = said(AT_ONCE + LATER, package, **nowhere(package))
    assert line.startswith(f"{WORD}, anew in every run")
    assert "NUMBA_CACHE_DIR" in line


@compiled
def test_a_short_compilation_a_silenced_logger_and_functions_of_others_say_nothing(package):
    assert said(AT_ONCE + "_jit.PATIENCE = 600.0\n" + LATER, package) == []
    shutil.rmtree(package / "mxfp" / "kernels" / "__pycache__")
    silence = "import logging; logging.getLogger('mxfp').setLevel('ERROR')\n"
    assert said(silence + AT_ONCE + LATER, package) == []
    other = "import numba\n@numba.njit\ndef other(x):\n    return x.sum()\nother(np.ones(4))\n"
    assert said(AT_ONCE + other, package) == []


@compiled
def test_kernels_compiled_for_the_sake_of_another_are_part_of_it(package):
    script = """
from mxfp.kernels import _jit, threads, tiny
timers = []
class Timer(_jit.threading.Timer):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        timers.append(self)
_jit.threading.Timer = Timer
tiny.total(np.ones(4))
print(*Count.names, len(timers), timers[0].finished.is_set())
"""
    assert run(COUNT + script, package) == ["total", "step", "1", "True"]


@compiled
def test_short_compilations_one_after_the_other_add_up(package):
    script = """
from mxfp.kernels import _jit, threads, tiny
class Event:
    def __init__(self, dispatcher):
        self.data = {"dispatcher": dispatcher}
class Timer:
    delays = []
    def __init__(self, delay, *rest):
        self.delays.append(delay)
    def start(self):
        raise RuntimeError("there are no threads here")
    def cancel(self):
        pass
now = 0.0
_jit.time.perf_counter = lambda: now
_jit.threading.Timer = Timer
_jit._began = -0.25
notice, one, two = _jit._Notice(), Event(tiny.total), Event(tiny.last)
notice.on_start(one); now = 0.5; notice.on_end(one)
notice.on_start(two); now = 0.75; notice.on_end(two)
notice.on_start(one)
now = 5.0
notice.on_start(two)
print(*Timer.delays)
"""
    assert run(COUNT + script, package) == ["0.75", "0.25", "0.0", "1.0"]


# --- threads

LAYERS = []
"""The threading layers that numba has here."""
for layer, module in (("omp", "omppool"), ("workqueue", "workqueue"), ("tbb", "tbbpool")):
    try:
        if JIT:
            importlib.import_module(f"numba.np.ufunc.{module}")
            LAYERS.append(layer)
    except ImportError:
        pass

WORK = """
import mxfp, numpy as np, os, signal, threading, time
from numba.core.compiler_lock import global_compiler_lock
from mxfp.kernels import threads as helpers
helpers.WORTH = 0
x = np.random.default_rng(1).standard_normal((40, 100)).astype(np.float32)
expected = mxfp.quantize(x, engine="reference")
product = mxfp.matmul(expected, expected.T, engine="reference")
def right():
    same = mxfp.quantize(x) == expected
    return bool(same and mxfp.matmul(expected, expected.T).tobytes() == product.tobytes())
def child(work):
    process = os.fork()
    if process == 0:
        signal.alarm(60)
        os._exit(0 if work() else 3)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
"""


def threaded(script, layer, package=None):
    """What a script prints with one of the threading layers, and two threads."""
    return run(WORK + script, package, NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS="2")


def test_there_are_layers_to_test():
    assert "workqueue" in LAYERS or not JIT


OTHERS = """
import numba
@numba.njit(parallel=True)
def others(x):
    for i in numba.prange(x.size):
        x[i] = i
others(np.zeros(9))
"""
"""Code of the user's own that starts numba's threads."""


@pytest.mark.parametrize("layer", LAYERS)
def test_threads_may_enter_at_once(layer):
    script = """
wrong = []
def work():
    for _ in range(20):
        if not right():
            wrong.append(1)
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(numba.threading_layer(), len(wrong))
"""
    assert threaded(OTHERS + script, layer) == [layer, "0"]


@compiled
def test_kernels_start_none_of_numbas_threads():
    script = """
import numba
print(right())
try:
    numba.threading_layer()
except ValueError:
    print("none")
"""
    assert run(WORK + script, NUMBA_NUM_THREADS="2") == ["True", "none"]


@compiled
@pytest.mark.parametrize("asked", ["NUMBA_NUM_THREADS", "set_num_threads"])
def test_a_call_runs_on_as_many_threads_as_numba_is_set_to(asked):
    script = """
import numba
from mxfp.kernels.threads import spread
def names(asked):
    found, until = set(), time.monotonic() + 30     # a busy machine may be slow to start the second
    def note(first, last):
        found.add(threading.current_thread().name)
        time.sleep(0.02)
        while len(found) < asked and time.monotonic() < until:
            time.sleep(0.01)
    spread(note, 40)
    return len(found)
def alone():
    numba.set_num_threads(1)
    counts.append(names(1))
counts = [names(2 if ASKED else 1)]
if ASKED:
    thread = threading.Thread(target=alone)
    thread.start()
    thread.join()
    counts.append(names(2))
print(*counts)
"""
    few = asked == "NUMBA_NUM_THREADS"
    expected = ["1"] if few else ["2", "1", "2"]
    found = run(WORK + script.replace("ASKED", str(not few)), NUMBA_NUM_THREADS="1" if few else "2")
    assert found == expected


@pytest.mark.parametrize("layer", LAYERS)
def test_an_interrupted_or_failed_call_lets_others_in(layer, package):
    script = """
from mxfp.kernels.tiny import fill
from numba.core import event
class Interrupt(event.Listener):
    def on_start(self, event):
        signal.raise_signal(signal.SIGINT)
    def on_end(self, event):
        pass
interrupt = Interrupt()
event.register("numba:compile", interrupt)
try:
    fill(np.zeros(3))
except KeyboardInterrupt:
    print("interrupted")
event.unregister("numba:compile", interrupt)
try:
    fill("text")
except Exception as error:
    print(type(error).__name__)
out = np.zeros(3)
thread = threading.Thread(target=fill, args=(out,), daemon=True)
thread.start()
thread.join(60)
print(*out.astype(int))
"""
    assert threaded(script, layer, package) == ["interrupted", "TypingError", "1", "11", "21"]


# --- forks


@forks
@pytest.mark.parametrize("layer", LAYERS)
def test_a_forked_child_gets_the_same_bits(layer):
    """Before the parent's first kernel, after it, and the child's own child."""
    script = "print(child(right), right(), child(right), child(lambda: child(right) == 0), right())"
    assert threaded(script, layer) == ["0", "True", "0", "0", "True"]


@forks
@pytest.mark.parametrize("layer", LAYERS)
def test_workers_of_multiprocessing_get_the_same_bits(layer):
    script = """
import multiprocessing
def work(_):
    return right()
context = multiprocessing.get_context("fork")
for _ in range(2):
    with context.Pool(2) as pool:
        print(all(pool.map(work, range(4))))
    right()
"""
    assert threaded(script, layer) == ["True", "True"]


@forks
@pytest.mark.parametrize("layer", LAYERS)
def test_a_worker_survives_threads_that_its_parent_started_for_other_work(layer):
    script = """
import multiprocessing
def work():
    raise SystemExit(0 if right() else 3)
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join(60)
print(process.exitcode)
"""
    assert threaded(OTHERS + script, layer) == ["0"]


@forks
@pytest.mark.parametrize("layer", LAYERS)
def test_a_child_forked_while_another_thread_computes_or_compiles(layer, package):
    """The locks of that thread are not the child's."""
    script = """
from mxfp.kernels import _jit, threads, tiny
def filled(dtype):
    out = np.zeros(3, dtype)
    tiny.fill(out)
    return out.tolist() == [1, 11, 21]
def elsewhere(work, argument):
    found = []
    thread = threading.Thread(target=lambda: found.append(work(argument)))
    thread.start()
    thread.join()
    return found == [True]
print(filled(np.float64))
for lock in (threads._pool.lock, global_compiler_lock):
    held = threading.Event()
    def hold():
        with lock:
            held.set()
            time.sleep(0.5)
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    print(child(lambda: right() and filled(np.float32) and elsewhere(filled, np.int64)))
    thread.join()
print(filled(np.float32))
"""
    assert threaded(script, layer, package) == ["True", "0", "0", "True"]


# --- without the compiler


def test_without_the_compiler_kernels_are_plain_functions():
    script = (
        "from mxfp.kernels._jit import kernel\n"
        "def plain(x):\n"
        "    return x\n"
        "print(kernel(plain) is plain, right())\n"
        "print(child(right) if hasattr(os, 'fork') else 0)\n"
    )
    assert run(WORK + script, NUMBA_DISABLE_JIT="1") == ["True", "True", "0"]
