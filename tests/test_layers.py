# SPDX-License-Identifier: Apache-2.0
"""The order of the rooms is the order of the imports, and importing the package brings nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mxfp

ROOT = Path(mxfp.__file__).parent
ROOMS = (
    "whole",
    "formats",
    "floats",
    "scale",
    "encode",
    "search",
    "blocks",
    "packing",
    "prepared",
    "integers",
    "adders",
    "sums",
    "dot",
    "accumulate",
    "registers",
    "names",
    "widths",
    "profiles",
    "bounds",
    "sizing",
    "adversary",
    "matmul",
    "trace",
    "distributions",
    "pairs",
    "drafts",
    "strategies",
)
"""Side rooms stand behind the room they open off."""
WINGS = ("kernels", "report", "campaigns", "verify", "draw")
VERIFY = (
    "unit",
    "layout",
    "digits",
    "classes",
    "vectors",
    "explain",
    "check",
    "shrink",
    "coverage",
    "mismatch",
    "scoreboard",
    "cocotb_monitors",
    "export",
)
"""The test bench is big enough to have an order of its own: its folders and what lies between them."""
SHELVES = ("data", "files")
"""Files and what reads and writes them; they know rooms only, and `report` takes from them."""
MEASURED = "kernels"
"""The wing that `report` looks into, to measure what it could do at best."""
DOORS = ("__init__", "__main__", "terminal")
FRONT = ("cli", "explore")
"""Doors and the front of house may see everything; nothing imports them but each other."""
LAZY = {"blocks", "packing", "prepared", "matmul"}
"""The only rooms with a way into kernels, inside a function."""
LIGHT = {"numpy", "ml_dtypes"}
EXTRAS = {"strategies": {"hypothesis"}}
"""Rooms that an extra opens, and what they may import of it; the front door does not lead there."""
HEAVY = ("numba", "llvmlite", "matplotlib", "hypothesis", "rich", "click", "scipy", "torch")


def module_of(path: Path) -> tuple[str, ...]:
    return path.relative_to(ROOT).with_suffix("").parts


FILES = {module_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports(path: Path) -> list[tuple[str, bool]]:
    """Every import as (absolute dotted name, whether it runs when the module is imported)."""
    own = ("mxfp", *module_of(path))
    found = []

    def visit(node: ast.AST, top: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.extend((alias.name, top) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = ".".join(own[: len(own) - child.level]) if child.level else ""
                name = ".".join(part for part in (base, child.module or "") if part)
                # "from . import scale" names modules; "from .scale import x" names a module's content.
                if name == "mxfp" or not child.module:
                    found.extend((f"{name}.{alias.name}", top) for alias in child.names)
                else:
                    found.append((name, top))
            visit(child, top and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))

    visit(ast.parse(path.read_text(encoding="utf-8")), True)
    return found


def inside(path: Path) -> list[tuple[str, bool]]:
    """Imports of the package itself, by the first name below it; public names count as the front door."""
    parts = [(name.split("."), top) for name, top in imports(path)]
    return [(names[1], top) for names, top in parts if names[0] == "mxfp" and len(names) > 1]


def test_every_module_is_known():
    known = {*ROOMS, *DOORS}
    assert {module[0] for module in FILES if len(module) == 1} <= known
    assert {module[0] for module in FILES if len(module) > 1} <= {*WINGS, *SHELVES, *FRONT}
    assert {(room,) for room in ROOMS} <= set(FILES)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_before_it(room):
    before = ROOMS[: ROOMS.index(room)]
    for name, top in inside(FILES[(room,)]):
        if name == "kernels":
            assert room in LAZY, f"{room} imports kernels"
            assert not top, f"{room} imports kernels before it is asked to"
        else:
            assert name in before, f"{room} imports {name}"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_needs_numpy_and_ml_dtypes_alone(room):
    for name, _ in imports(FILES[(room,)]):
        package = name.split(".")[0]
        assert package in LIGHT | EXTRAS.get(room, set()) | {"mxfp"} | sys.stdlib_module_names, (
            f"{room} imports {name}"
        )


@pytest.mark.parametrize("wing", [*WINGS, *SHELVES])
def test_a_wing_imports_rooms_and_no_other_wing(wing):
    modules = [module for module in FILES if module[0] == wing]
    assert modules
    allowed = {*ROOMS, wing, "__version__"} | ({*SHELVES, MEASURED} if wing == "report" else set())
    for module in modules:
        for name, _ in inside(FILES[module]):
            assert name in allowed, f"{'.'.join(module)} imports {name}"


@pytest.mark.parametrize("part", VERIFY)
def test_a_part_of_the_test_bench_imports_only_parts_before_it(part):
    modules = [module for module in FILES if module[:2] == ("verify", part)]
    assert modules
    allowed = {*VERIFY[: VERIFY.index(part)], part}
    for module in modules:
        for name, _ in imports(FILES[module]):
            if name.startswith("mxfp.verify."):
                assert name.split(".")[2] in allowed, f"{'.'.join(module)} imports {name}"


def test_every_part_of_the_test_bench_is_known():
    assert {module[1] for module in FILES if module[0] == "verify"} == {*VERIFY, "__init__"}


def test_kernels_never_use_fastmath():
    for module, path in FILES.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                assert all(keyword.arg != "fastmath" for keyword in node.keywords), module


def test_the_front_door_is_the_public_names_and_nothing_else():
    public = {name for name in vars(mxfp) if not name.startswith("_")}
    modules = {module[0] for module in FILES}
    assert set(mxfp.__all__) <= public
    assert public - set(mxfp.__all__) <= modules
    assert len(mxfp.__all__) == len(set(mxfp.__all__))
    for name in mxfp.__all__:
        assert getattr(mxfp, name).__doc__


def test_every_file_says_its_licence_and_what_it_is_for():
    for path in FILES.values():
        text = path.read_text(encoding="utf-8")
        assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n"), path.name
        assert ast.get_docstring(ast.parse(text)), path.name


def test_importing_the_package_brings_nothing_heavy():
    code = "import sys, mxfp; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "numpy" in loaded
    assert not loaded & set(HEAVY)


def test_the_reference_engine_never_loads_numba():
    code = (
        "import sys, mxfp\n"
        "q = mxfp.quantize([1.0] * 40, engine='reference')\n"
        "mxfp.matmul(q, q, engine='reference'); mxfp.dequantize(q, engine='reference'); mxfp.trace(q, q)\n"
        "mxfp.pack(q.codes, q.format); mxfp.encode([1.0], mxfp.E2M1); mxfp.decode([1], mxfp.E2M1)\n"
        "print('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
