# SPDX-License-Identifier: Apache-2.0
"""mxfp widths: how many bits an adder tree and a register need, or the case that breaks fewer."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console

from ..adders import AdderTree, tree_named
from ..formats import BLOCK_FORMATS, ELEMENT_FORMATS, MXFP4, BlockFormat, ElementFormat
from ..integers import MOST_BITS
from ..registers import SHIFT_ROUNDINGS
from ..sizing import FixedPointNeed, fixed_point_for
from ..widths import WidthCounterexample, WidthProof, check_width, level_widths
from .app import cli

FORMATS: dict[str, ElementFormat | BlockFormat] = {**BLOCK_FORMATS, **ELEMENT_FORMATS}


class ScaleRangeType(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Scale codes as LOW:HIGH, or one code."""

    name = "low:high"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Text -> two codes, or one clear line."""
        if isinstance(value, tuple):
            return value
        low, colon, high = str(value).partition(":")
        try:
            return int(low), int(high if colon else low)
        except ValueError:
            self.fail(f"{value!r} is no range of scale codes, such as 118:130", param, ctx)


@cli.command()
@click.argument(
    "a", metavar="[A]", type=click.Choice(list(FORMATS), case_sensitive=False), default=MXFP4.name
)
@click.argument("b", metavar="[B]", type=click.Choice(list(FORMATS), case_sensitive=False), required=False)
@click.option(
    "--lanes", type=click.IntRange(min=1), help="Products that are added. Default: the block of A, or 32."
)
@click.option(
    "--tree", default="binary", show_default=True, help="binary, linear, or nodes an adder adds: 3, 4 …"
)
@click.option(
    "--width", help="Bits to check: of every node, or one for each level with commas, products first."
)
@click.option("--k", type=click.IntRange(min=1), help="Also the fixed-point register that K elements need.")
@click.option("--scales-a", type=ScaleRangeType(), help="Scale codes of A that occur. Default: all.")
@click.option("--scales-b", type=ScaleRangeType(), help="Scale codes of B that occur. Default: all.")
@click.option(
    "--lsb",
    type=click.IntRange(-MOST_BITS, 1000),  # further up, errors have no float64
    help="Exponent of that register's LSB. Default: the coarsest that loses nothing.",
)
@click.option("--rounding", type=click.Choice(SHIFT_ROUNDINGS), default="floor", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def widths(
    a: str,
    b: str | None,
    lanes: int | None,
    tree: str,
    width: str | None,
    k: int | None,
    scales_a: tuple[int, int] | None,
    scales_b: tuple[int, int] | None,
    lsb: int | None,
    rounding: Any,
    as_json: bool,
) -> None:
    """Bits that every level of an adder tree needs for A × B, each proved necessary and sufficient.

    With --width: whether that is enough; if not, the case with the fewest nonzero lanes that breaks it, and
    exit status 1. With --k: the register that accumulates the blocks. Examples:

    \b
      mxfp widths
      mxfp widths --width 13
      mxfp widths --width 9,10,11,11,13,14
      mxfp widths E2M1 E4M3 --lanes 16 --tree linear
      mxfp widths --k 4096 --scales-a 118:127 --scales-b 120:130 --lsb -8
    """  # noqa: D301  (click reads the backspace)
    one = FORMATS[a.upper()]
    other = one if b is None else FORMATS[b.upper()]
    if k is None and any(given is not None for given in (scales_a, scales_b, lsb)):
        raise click.UsageError("--scales-a, --scales-b and --lsb are about the register of --k; give --k too")
    shape = tree_named(tree, lanes or (one.block if isinstance(one, BlockFormat) else 32))
    checked = None if width is None else check_width(_widths(width), one, other, tree=shape)
    proof = check_width(level_widths(one, other, tree=shape), one, other, tree=shape)
    need = None
    if k is not None:
        blocks = [_blocks_of(fmt) for fmt in (one, other)]
        need = fixed_point_for(
            *blocks, k=k, scales_a=scales_a, scales_b=scales_b, lsb_exponent=lsb, rounding=rounding
        )
    if as_json:
        click.echo(json.dumps(_record(proof, checked, need), indent=1))
    else:
        console = Console(soft_wrap=True)
        if checked is None:
            _print_table(console, proof)
        else:
            console.print(str(checked), highlight=False, markup=False)
        if need is not None:
            console.print(str(need), highlight=False, markup=False)
    if checked is not None and not checked:
        raise click.exceptions.Exit(1)


def _widths(text: str) -> int | list[int]:
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no width, such as 13, or one for each level, such as 9,10,11,12,13,14",
            param_hint="--width",
        ) from None
    return found[0] if len(found) == 1 else found


def _blocks_of(fmt: ElementFormat | BlockFormat) -> BlockFormat:
    """The MX block format of an element format."""
    if isinstance(fmt, BlockFormat):
        return fmt
    return next(f for f in BLOCK_FORMATS.values() if f.element == fmt)


def _print_table(console: Console, proof: WidthProof | WidthCounterexample) -> None:
    from ..terminal import put_table

    if not isinstance(proof, WidthProof):
        raise ArithmeticError(f"derived widths do not hold: {proof}")
    rows = []
    narrow = {1: "-"}  # what breaks a width is the same however many more lanes there are
    for n in proof.nodes:
        if n.needed not in narrow:
            narrow[n.needed] = _breaks(check_width(n.needed - 1, proof.a, proof.b, lanes=n.lanes))
        counted = "-" if n.sums is None else str(n.sums)
        cells = (n.level, n.nodes, n.lanes, n.low, n.high, n.needed, narrow[n.needed], counted, n.how)
        rows.append([str(cell) for cell in cells])
    title = f"{proof.a.name} × {proof.b.name}, {_plural(proof.tree)}: signed bits"
    columns = ("level", "nodes", "lanes", "lowest", "highest", "bits", "one less breaks", "sums", "known by")
    remark = (
        "sums in units of 2^"
        + str(proof.a.lsb_exponent + proof.b.lsb_exponent)
        + "; both ends are reached, so no width is spare"
    )
    put_table(console, title, columns, rows, remark)


def _plural(tree: AdderTree) -> str:
    return f"{tree.lanes} product{'s' if tree.lanes > 1 else ''}"


def _breaks(case: WidthProof | WidthCounterexample) -> str:
    """The counterexample to one bit fewer, in a word."""
    if not isinstance(case, WidthCounterexample):
        return "-"
    x, y = int(case.codes_a[case.first]), int(case.codes_b[case.first])
    return f"{case.nonzero} × {case.a.values[x]:g}·{case.b.values[y]:g}"


def _record(
    proof: WidthProof | WidthCounterexample,
    checked: WidthProof | WidthCounterexample | None,
    need: FixedPointNeed | None,
) -> dict[str, Any]:
    record: dict[str, Any] = {
        "a": proof.a.name,
        "b": proof.b.name,
        "lanes": proof.tree.lanes,
        "widths": proof.widths,
    }
    if isinstance(proof, WidthProof):
        record["nodes"] = [node._asdict() for node in proof.nodes]
    if checked is not None:
        record["checked"] = checked.widths
        record["holds"] = bool(checked)
    if isinstance(checked, WidthCounterexample):
        record["counterexample"] = {
            "codes_a": checked.codes_a.tolist(),
            "codes_b": checked.codes_b.tolist(),
            "nonzero": checked.nonzero,
            "level": checked.level,
            "failing_levels": checked.failing,
            "value": checked.value,
            "width": checked.width,
            "wrapped": checked.wrapped,
            "fits": checked.fits,
        }
    if need is not None:
        record["register"] = {
            "k": need.k,
            "blocks": need.blocks,
            "width": need.width,
            "lsb_exponent": need.lsb_exponent,
            "low": need.low,
            "high": need.high,
            "rounding": need.rounding,
            "exact_lsb": need.exact_lsb,
            "error_low": float(need.error_low),
            "error_high": float(need.error_high),
            "errors_are_worst": need.proven,
        }
    return record
