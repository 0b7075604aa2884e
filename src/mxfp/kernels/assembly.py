# SPDX-License-Identifier: Apache-2.0
"""Micro-kernels in x86 assembly: the innermost loops of GEMM and GEMV, as numba intrinsics.

Written as text because a compiler that sees a block unrolled reorders it and runs out of registers.
Each is a loop over the groups of one tile: HEIGHT rows of a by WIDTH columns of b. Operands (`layout`
makes them):

- a: integers [group][row][k], four bytes of k at a time broadcast to all lanes;
- b: integers [k/step][column][step], four bytes of k for each column, bytes with an offset that makes
  them unsigned, which the instructions want;
- seeds: int32 [group][row], minus the offset times the sum of a's integers: sums start from it.

Sums of a group are exact integers. What becomes of them is the ending: `sums` stores them, `float32`
and `float64` multiply by both scales, exactly, and add to the state with one rounding (a fused
multiply-add).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from inspect import Parameter, Signature
from typing import Any, Final

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from ..prepared import WIDTH

HEIGHT: Final = 6
"""Rows of a tile."""
LOOKUP, NIBBLES, ONES, LEAST, UNIT, SEED, CONSTANTS = 0, 32, 64, 96, 128, 160, 192
"""Where the constants lie, in bytes: the table twice, 15 in every byte, 1 in every int16; what makes scale
codes float32: shifted to the exponent field, not below the least, times the unit; minus the offset in
every int16."""

AHEAD: Final = 12288
"""Bytes that GEMV asks memory for in advance: no prefetcher of the machine's looks so far. Of 4, 6, 8, 12, 16
and 32 kB, 12 was the quickest for one to four rows whose weights no cache holds (Zen 5, one thread)."""
COUNTS: Final = ("count", "stride", "step")
"""Operands that are numbers."""

_POINTER: Final = ir.IntType(64)

Registers = dict[str, str]


@cache
def _parser_ready() -> None:
    binding.initialize_native_asmparser()


def _routine(names: str, text: Callable[[Registers], Iterator[str]], registers: str) -> Any:
    """Assembly over named 64-bit operands, all of which it may change -> an intrinsic.

    registers: those that it may use, "zmm32" or "ymm16" and names.
    The intrinsic takes an array and an index for each, but those of COUNTS as they are.
    """
    operands = names.split()
    count = len(operands)
    arguments = [part for name in operands for part in ([name] if name in COUNTS else [name, f"{name}_at"])]

    def call(context: Any, *arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            _parser_ready()
            words = []
            index = 0
            while index < len(values):
                kind = signature.args[index]
                if isinstance(kind, types.Array):
                    array = context.make_array(kind)(context, builder, values[index])
                    words.append(builder.ptrtoint(builder.gep(array.data, [values[index + 1]]), _POINTER))
                    index += 1
                else:
                    words.append(values[index])
                index += 1
            assert len(words) == count
            changed = [f"~{{{name}}}" for name in ("memory", "dirflag", "fpsr", "flags")]
            vectors, *others = registers.split()
            changed += [f"~{{{vectors[:3]}{i}}}" for i in range(int(vectors[3:]))]
            changed += [f"~{{{name}}}" for name in others]
            constraints = ["=&r"] * count + [str(i) for i in range(count)] + changed
            body = "\n\t".join([*text({name: f"${i}" for i, name in enumerate(operands)}), "vzeroupper"])
            result = ir.LiteralStructType([_POINTER] * count)
            function = ir.FunctionType(result, [_POINTER] * count)
            builder.call(ir.InlineAsm(function, body, ",".join(constraints), side_effect=True), words)
            return context.get_dummy_value()

        wide = [kind if isinstance(kind, types.Array) else types.intp for kind in arguments]
        return types.void(*wide), generate

    # numba binds arguments by the names of a signature.
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("context", *arguments)]
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return intrinsic(call)


def _advance(r: Registers, **steps: int) -> Iterator[str]:
    """Move the pointers to the next group, and go round while there is one."""
    for name, step in steps.items():
        yield f"addq $${step}, {r[name]}"
    yield f"decq {r['count']}"
    yield "jnz 1b"


# --- AVX-512: sums in zmm0-11 (row by row, two vectors of 16 columns), float32 state in zmm12-23


def _sums_512(r: Registers, steps: int, multiply: str) -> Iterator[str]:
    for row in range(HEIGHT):
        yield f"vpbroadcastd {4 * row}({r['seeds']}), %zmm{2 * row}"
    for row in range(HEIGHT):
        yield f"vmovdqa64 %zmm{2 * row}, %zmm{2 * row + 1}"
    for k in range(steps):
        yield f"vmovdqu64 {128 * k}({r['b']}), %zmm24"
        yield f"vmovdqu64 {128 * k + 64}({r['b']}), %zmm25"
        for row in range(HEIGHT):
            spread = 26 + row % 4
            yield f"vpbroadcastd {4 * (row * steps + k)}({r['a']}), %zmm{spread}"
            yield f"{multiply} %zmm{spread}, %zmm24, %zmm{2 * row}"
            yield f"{multiply} %zmm{spread}, %zmm25, %zmm{2 * row + 1}"


def _float32_512(steps: int, multiply: str, shifted: bool = False) -> Callable[[Registers], Iterator[str]]:
    """Scales as float32; or, shifted, as what to add to an exponent field and that field, in int32."""

    def text(r: Registers) -> Iterator[str]:
        for n in range(2 * HEIGHT):
            yield f"vmovups {64 * n}({r['state']}), %zmm{12 + n}"
        yield "1:"
        yield from _sums_512(r, steps, multiply)
        yield f"vmovups ({r['scales_b']}), %zmm24"
        yield f"vmovups 64({r['scales_b']}), %zmm25"
        for n in range(2 * HEIGHT):
            a, b = f"{4 * (n // 2)}({r['scales_a']}){{1to16}}", f"%zmm{24 + n % 2}"
            yield f"vcvtdq2ps %zmm{n}, %zmm{n}"
            if shifted:  # additions of integers have ports of their own
                yield f"vpaddd {a}, {b}, %zmm{26 + n % 6}"
                yield f"vfmadd231ps %zmm{26 + n % 6}, %zmm{n}, %zmm{12 + n}"
            else:  # the sum times a's scale is exact; both scales alone may leave float32's range
                yield f"vmulps {a}, %zmm{n}, %zmm{n}"
                yield f"vfmadd231ps {b}, %zmm{n}, %zmm{12 + n}"
        size = 4 * HEIGHT
        yield from _advance(r, a=size * steps, seeds=size, scales_a=size, b=128 * steps, scales_b=128)
        for n in range(2 * HEIGHT):
            yield f"vmovups %zmm{12 + n}, {64 * n}({r['state']})"

    return text


def _float64_512(steps: int, multiply: str) -> Callable[[Registers], Iterator[str]]:
    def text(r: Registers) -> Iterator[str]:
        yield "1:"
        yield from _sums_512(r, steps, multiply)
        for half in range(4):
            yield f"vmovupd {64 * half}({r['scales_b']}), %zmm{24 + half}"
        for n in range(2 * HEIGHT):
            if n % 2 == 0:
                yield f"vbroadcastsd {8 * (n // 2)}({r['scales_a']}), %zmm28"
            yield f"vextracti64x4 $$1, %zmm{n}, %ymm31"
            for half, source in enumerate((n, 31)):
                place = f"{128 * n + 64 * half}({r['state']})"
                yield f"vmulpd %zmm28, %zmm{24 + 2 * (n % 2) + half}, %zmm29"
                yield f"vcvtdq2pd %ymm{source}, %zmm30"
                yield f"vfmadd213pd {place}, %zmm29, %zmm30"
                yield f"vmovupd %zmm30, {place}"
        size = HEIGHT
        yield from _advance(
            r, a=4 * size * steps, seeds=4 * size, scales_a=8 * size, b=128 * steps, scales_b=256
        )

    return text


def _store_512(steps: int, multiply: str) -> Callable[[Registers], Iterator[str]]:
    def text(r: Registers) -> Iterator[str]:
        yield from _sums_512(r, steps, multiply)
        for n in range(2 * HEIGHT):
            yield f"vmovdqu64 %zmm{n}, {64 * n}({r['state']})"

    return text


# --- AVX2: half a panel at a time; sums in ymm0-11 (row by row, two vectors of 8 columns)


def _sums_256(r: Registers, steps: int, multiply: str, add: str) -> Iterator[str]:
    for row in range(HEIGHT):
        yield f"vpbroadcastd {4 * row}({r['seeds']}), %ymm{2 * row}"
        yield f"vmovdqa %ymm{2 * row}, %ymm{2 * row + 1}"
    for k in range(steps):
        yield f"vmovdqu {128 * k}({r['b']}), %ymm12"
        yield f"vmovdqu {128 * k + 32}({r['b']}), %ymm13"
        for row in range(HEIGHT):
            yield f"vpbroadcastd {4 * (row * steps + k)}({r['a']}), %ymm14"
            for v in range(2):
                yield f"{multiply} %ymm14, %ymm{12 + v}, %ymm15"
                yield f"{add} %ymm15, %ymm{2 * row + v}, %ymm{2 * row + v}"
    if add == "vpaddw":  # join the two int16 halves of each column
        yield "vpcmpeqw %ymm12, %ymm12, %ymm12"
        yield "vpsrlw $$15, %ymm12, %ymm12"
        for n in range(2 * HEIGHT):
            yield f"vpmaddwd %ymm12, %ymm{n}, %ymm{n}"


def _float32_256(steps: int, multiply: str, add: str) -> Callable[[Registers], Iterator[str]]:
    def text(r: Registers) -> Iterator[str]:
        yield "1:"
        yield from _sums_256(r, steps, multiply, add)
        yield f"vmovups ({r['scales_b']}), %ymm14"
        yield f"vmovups 32({r['scales_b']}), %ymm15"
        for n in range(2 * HEIGHT):
            place = f"{128 * (n // 2) + 32 * (n % 2)}({r['state']})"
            if n % 2 == 0:
                yield f"vbroadcastss {4 * (n // 2)}({r['scales_a']}), %ymm13"
            yield f"vcvtdq2ps %ymm{n}, %ymm{n}"
            yield f"vmulps %ymm13, %ymm{n}, %ymm{n}"
            yield f"vfmadd213ps {place}, %ymm{14 + n % 2}, %ymm{n}"
            yield f"vmovups %ymm{n}, {place}"
        size = 4 * HEIGHT
        yield from _advance(r, a=size * steps, seeds=size, scales_a=size, b=128 * steps, scales_b=128)

    return text


def _float64_256(steps: int, multiply: str, add: str) -> Callable[[Registers], Iterator[str]]:
    def text(r: Registers) -> Iterator[str]:
        yield "1:"
        yield from _sums_256(r, steps, multiply, add)
        for n in range(2 * HEIGHT):
            if n % 2 == 0:
                yield f"vbroadcastsd {8 * (n // 2)}({r['scales_a']}), %ymm13"
            yield f"vextracti128 $$1, %ymm{n}, %xmm12"
            for half, source in enumerate((n, 12)):
                place = f"{256 * (n // 2) + 64 * (n % 2) + 32 * half}({r['state']})"
                yield f"vmulpd {64 * (n % 2) + 32 * half}({r['scales_b']}), %ymm13, %ymm14"
                yield f"vcvtdq2pd %xmm{source}, %ymm15"
                yield f"vfmadd213pd {place}, %ymm14, %ymm15"
                yield f"vmovupd %ymm15, {place}"
        size = HEIGHT
        yield from _advance(
            r, a=4 * size * steps, seeds=4 * size, scales_a=8 * size, b=128 * steps, scales_b=256
        )

    return text


def _store_256(steps: int, multiply: str, add: str) -> Callable[[Registers], Iterator[str]]:
    def text(r: Registers) -> Iterator[str]:
        yield from _sums_256(r, steps, multiply, add)
        for n in range(2 * HEIGHT):
            yield f"vmovdqu %ymm{n}, {128 * (n // 2) + 32 * (n % 2)}({r['state']})"

    return text


_TILE: Final = "a seeds scales_a b scales_b state count"
_WIDE: Final = {"bytes": ("vpdpbusd",), "shorts": ("vpdpwssd",)}
_NARROW: Final = {"bytes": ("vpmaddubsw", "vpaddw"), "shorts": ("vpmaddwd", "vpaddd")}


@cache
def tile(isa: str, ending: str, kind: str, steps: int) -> Any:
    """The micro-kernel for one ending, kind of integers ("bytes", "shorts") and steps of 4 bytes a group."""
    wide = isa == "avx512vnni"
    makers: dict[str, Any] = (
        {
            "sums": _store_512,
            "float32": _float32_512,
            "shifted": partial(_float32_512, shifted=True),
            "float64": _float64_512,
        }
        if wide
        else {"sums": _store_256, "float32": _float32_256, "float64": _float64_256}
    )
    words = (_WIDE if wide else _NARROW)[kind]
    text = makers[ending](steps, *words)
    return _routine("a seeds b state" if ending == "sums" else _TILE, text, "zmm32" if wide else "ymm16")


# --- integers held by float64


def _wide(vector: str, size: int, columns: int) -> Callable[[Registers], Iterator[str]]:
    """One group of `columns` columns: exact sums of products by fused multiply-adds, k after k."""

    def text(r: Registers) -> Iterator[str]:
        across = columns * 8 // size
        b = HEIGHT * across
        for n in range(HEIGHT * across):
            yield f"vxorpd %{vector}{n}, %{vector}{n}, %{vector}{n}"
        yield f"leaq ({r['a']}, {r['step']}, 2), %rax"
        yield f"addq {r['step']}, %rax"
        yield "1:"
        for v in range(across):
            yield f"vmovupd {size * v}({r['b']}), %{vector}{b + v}"
        for row in range(HEIGHT):
            base = r["a"] if row < 3 else "%rax"
            place = (f"({base})", f"({base}, {r['step']})", f"({base}, {r['step']}, 2)")[row % 3]
            yield f"vbroadcastsd {place}, %{vector}{b + across}"
            for v in range(across):
                yield f"vfmadd231pd %{vector}{b + v}, %{vector}{b + across}, %{vector}{row * across + v}"
        yield "addq $$8, %rax"
        yield from _advance(r, a=8, b=8 * WIDTH)
        for row in range(HEIGHT):
            for v in range(across):
                yield f"vmovupd %{vector}{row * across + v}, {8 * WIDTH * row + size * v}({r['state']})"

    return text


wide_512: Final = _routine("a b state step count", _wide("zmm", 64, WIDTH), "zmm32 rax")
wide_256: Final = _routine("a b state step count", _wide("ymm", 32, 8), "ymm16 rax")


# --- from packed nibbles


def _gemv_512(rows: int, steps: int, shift: int) -> Callable[[Registers], Iterator[str]]:
    """Sums in zmm0-7, state in zmm8-15; weights become integers in registers.

    One or two rows leave registers free: the high nibbles have sums of their own, so that no chain of
    additions is longer than the reading takes.
    """
    apart = 2 * rows if rows <= 2 else 0

    def text(r: Registers) -> Iterator[str]:
        yield f"vbroadcasti32x4 {LOOKUP}({r['constants']}), %zmm16"
        yield f"vpbroadcastd {NIBBLES}({r['constants']}), %zmm17"
        yield f"vpbroadcastd {LEAST}({r['constants']}), %zmm18"
        yield f"vbroadcastss {UNIT}({r['constants']}), %zmm19"
        for n in range(2 * rows):
            yield f"vmovups {64 * n}({r['state']}), %zmm{8 + n}"
        yield "1:"
        yield f"prefetcht0 {AHEAD // (2 * steps)}({r['scales_b']})"
        for n in range(2 * rows):
            yield f"vpbroadcastd {4 * (n // 2)}({r['seeds']}), %zmm{n}"
        for n in range(apart, 2 * apart):
            yield f"vpxord %zmm{n}, %zmm{n}, %zmm{n}"
        for k in range(steps // 2):
            for v in range(2):
                low, high = 20 + 2 * v, 21 + 2 * v
                yield f"prefetcht0 {AHEAD + 128 * k + 64 * v}({r['b']})"
                yield f"vmovdqu64 {128 * k + 64 * v}({r['b']}), %zmm{low}"
                yield f"vpsrlw $$4, %zmm{low}, %zmm{high}"
                for half in (low, high):
                    yield f"vpandd %zmm17, %zmm{half}, %zmm{half}"
                    yield f"vpshufb %zmm{half}, %zmm16, %zmm{half}"
            for row in range(rows):
                for half in range(2):
                    yield f"vpbroadcastd {4 * (row * steps + 2 * k + half)}({r['a']}), %zmm{24 + half}"
                    for v in range(2):
                        total = 2 * row + v + half * apart
                        yield f"vpdpbusd %zmm{24 + half}, %zmm{20 + 2 * v + half}, %zmm{total}"
        for v in range(2):
            yield f"vpmovzxbd {16 * v}({r['scales_b']}), %zmm{20 + v}"
            yield f"vpslld $${shift}, %zmm{20 + v}, %zmm{20 + v}"
            yield f"vpmaxsd %zmm18, %zmm{20 + v}, %zmm{20 + v}"
            yield f"vmulps %zmm19, %zmm{20 + v}, %zmm{20 + v}"
        for n in range(apart):
            yield f"vpaddd %zmm{apart + n}, %zmm{n}, %zmm{n}"
        for n in range(2 * rows):
            yield f"vcvtdq2ps %zmm{n}, %zmm{n}"
            yield f"vmulps {4 * (n // 2)}({r['scales_a']}){{1to16}}, %zmm{n}, %zmm{n}"
            yield f"vfmadd231ps %zmm{20 + n % 2}, %zmm{n}, %zmm{8 + n}"
        size = 4 * rows
        yield from _advance(r, a=size * steps, seeds=size, scales_a=size, b=64 * steps, scales_b=32)
        for n in range(2 * rows):
            yield f"vmovups %zmm{8 + n}, {64 * n}({r['state']})"

    return text


def _gemv_256(steps: int, shift: int) -> Callable[[Registers], Iterator[str]]:
    """One row: sums in ymm0-3, state in ymm4-7."""

    def text(r: Registers) -> Iterator[str]:
        yield f"vmovdqu {LOOKUP}({r['constants']}), %ymm8"
        yield f"vmovdqu {NIBBLES}({r['constants']}), %ymm9"
        for v in range(4):
            yield f"vmovups {32 * v}({r['state']}), %ymm{4 + v}"
        yield "1:"
        for v in range(4):
            yield f"vpbroadcastd ({r['seeds']}), %ymm{v}"
        for k in range(steps // 2):
            for half in range(2):
                yield f"vpbroadcastd {4 * (2 * k + half)}({r['a']}), %ymm{13 + half}"
            for v in range(4):
                if v % 2 == 0:
                    yield f"prefetcht0 {AHEAD + 128 * k + 32 * v}({r['b']})"
                yield f"vmovdqu {128 * k + 32 * v}({r['b']}), %ymm11"
                yield "vpsrlw $$4, %ymm11, %ymm12"
                for half in range(2):
                    yield f"vpand %ymm9, %ymm{11 + half}, %ymm{11 + half}"
                    yield f"vpshufb %ymm{11 + half}, %ymm8, %ymm{11 + half}"
                    yield f"vpmaddubsw %ymm{13 + half}, %ymm{11 + half}, %ymm{11 + half}"
                    yield f"vpaddw %ymm{11 + half}, %ymm{v}, %ymm{v}"
        yield f"vbroadcastss ({r['scales_a']}), %ymm13"
        for v in range(4):
            yield f"vpmaddwd {ONES}({r['constants']}), %ymm{v}, %ymm{v}"
            yield f"vcvtdq2ps %ymm{v}, %ymm{v}"
            yield f"vmulps %ymm13, %ymm{v}, %ymm{v}"
            yield f"vpmovzxbd {8 * v}({r['scales_b']}), %ymm14"
            yield f"vpslld $${shift}, %ymm14, %ymm14"
            yield f"vpmaxsd {LEAST}({r['constants']}), %ymm14, %ymm14"
            yield f"vmulps {UNIT}({r['constants']}), %ymm14, %ymm14"
            yield f"vfmadd231ps %ymm14, %ymm{v}, %ymm{4 + v}"
        yield from _advance(r, a=4 * steps, seeds=4, scales_a=4, b=64 * steps, scales_b=32)
        for v in range(4):
            yield f"vmovups %ymm{4 + v}, {32 * v}({r['state']})"

    return text


@cache
def gemv(isa: str, rows: int, steps: int, shift: int) -> Any:
    """`rows` rows by a panel of nibbles, float32 state; scale codes shifted by `shift` are float32."""
    if isa == "avx512vnni":
        return _routine(f"{_TILE} constants", _gemv_512(rows, steps, shift), "zmm32")
    return _routine(f"{_TILE} constants", _gemv_256(steps, shift), "ymm16")


def _unpack(vector: str, size: int) -> Callable[[Registers], Iterator[str]]:
    """Nibbles [k/8][column][4] -> bytes of the table [k/4][column][4]."""

    def text(r: Registers) -> Iterator[str]:
        spread = "vbroadcasti32x4" if vector == "zmm" else "vbroadcasti128"
        both = "vpandd" if vector == "zmm" else "vpand"
        move = "vmovdqu64" if vector == "zmm" else "vmovdqu"
        yield f"{spread} {LOOKUP}({r['constants']}), %{vector}4"
        yield f"vpbroadcastd {NIBBLES}({r['constants']}), %{vector}5"
        yield "1:"
        for v in range(128 // size):
            yield f"{move} {size * v}({r['source']}), %{vector}0"
            yield f"vpsrlw $$4, %{vector}0, %{vector}1"
            for half in range(2):
                yield f"{both} %{vector}5, %{vector}{half}, %{vector}{half}"
                yield f"vpshufb %{vector}{half}, %{vector}4, %{vector}{half}"
                yield f"{move} %{vector}{half}, {128 * half + size * v}({r['target']})"
        yield from _advance(r, source=128, target=256)

    return text


def _pack(group: int, split: bool) -> Callable[[Registers], Iterator[str]]:
    """Codes below 16 of one row -> integers, seeds and masks of its groups, each `stride` or `step` apart.

    split: seeds as two int16, of the even and of the odd pairs of k, as `vpaddw` adds them.
    """

    def text(r: Registers) -> Iterator[str]:
        v = "ymm" if group == 32 else "xmm"
        constants = r["constants"]
        yield f"vmovdqu {LOOKUP}({constants}), %{v}4"
        yield f"vmovdqu {SEED}({constants}), %{v}5"
        yield f"vpxor %{v}6, %{v}6, %{v}6"
        yield f"vpcmpeqb %{v}7, %{v}7, %{v}7"
        yield f"vpabsb %{v}7, %{v}7"
        yield "1:"
        yield f"vmovdqu ({r['source']}), %{v}0"
        yield f"vpshufb %{v}0, %{v}4, %{v}0"
        yield f"vmovdqu %{v}0, ({r['target']})"
        yield f"vpcmpeqb %{v}0, %{v}6, %{v}1"
        yield f"vpmovmskb %{v}1, %eax"
        yield "notl %eax" if group == 32 else "xorl $$0xffff, %eax"
        yield f"movl %eax, ({r['masks']})"
        yield f"vpmaddubsw %{v}0, %{v}7, %{v}0"
        if group == 32:
            yield "vextracti128 $$1, %ymm0, %xmm1"
            yield "vpaddw %xmm1, %xmm0, %xmm0"
        for order in (0x4E, 0xB1):
            yield f"vpshufd $${order}, %xmm0, %xmm1"
            yield "vpaddw %xmm1, %xmm0, %xmm0"
        yield f"{'vpmullw' if split else 'vpmaddwd'} %xmm5, %xmm0, %xmm0"
        yield f"vmovd %xmm0, ({r['seeds']})"
        yield f"addq {r['stride']}, {r['target']}"
        yield f"addq {r['step']}, {r['seeds']}"
        yield f"addq {r['step']}, {r['masks']}"
        yield from _advance(r, source=group)

    return text


@cache
def pack(group: int, split: bool) -> Any:
    """A row of 4-bit codes -> its groups of 32 or 16 integers, for the instruction sets here."""
    return _routine("source target seeds masks constants stride step count", _pack(group, split), "ymm16 rax")


def _watch(r: Registers) -> Iterator[str]:
    """Look at a flag until it is not what it was, or `count` times; then pause `stride` times more."""
    yield "1:"
    yield f"cmpq {r['step']}, ({r['flag']})"
    yield "jne 2f"
    yield "pause"
    yield f"decq {r['count']}"
    yield "jnz 1b"
    yield "2:"
    yield "pause"
    yield f"decq {r['stride']}"
    yield "jnz 2b"


watch: Final = _routine("flag step count stride", _watch, "ymm16")
unpack_512: Final = _routine("source target constants count", _unpack("zmm", 64), "zmm32")
unpack_256: Final = _routine("source target constants count", _unpack("ymm", 32), "ymm16")
