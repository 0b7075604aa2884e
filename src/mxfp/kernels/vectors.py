# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001, ANN202 - what an overload returns repeats its signature
"""What probes and products of plain floats are made of: loops over LLVM's vectors, as numba intrinsics.

Where `assembly` is text for x86, this is for every machine that LLVM compiles for: vectors as wide as
the instruction set's, several of them at a time so that none waits for another. Called from Python, the
functions are the plain loops written here.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from .isa import Avx2, Avx512Vnni

_cgutils: Any = cgutils

BLOCK_WORDS: Final = 64
"""Words of 8 bytes that `read` takes at a time."""
STEP: Final = 64
"""Numbers that `dots` and `widen` take at a time."""
AHEAD: Final = 4096
"""Bytes of a row of weights that `dots` asks memory for in advance."""

_BITS: Final = {Avx512Vnni: 512, Avx2: 256}
_WORD, _INT, _BYTE, _SINGLE = ir.IntType(64), ir.IntType(32), ir.IntType(8), ir.FloatType()


def bits_of(isa: Any) -> int:
    """Bits of a vector, from a tag or its numba type."""
    return _BITS.get(getattr(isa, "instance_class", type(isa)), 128)


def columns_of(isa: Any) -> int:
    """Rows of weights that `dots` takes at a time beside 4 rows of numbers: what registers hold."""
    return 2 if bits_of(isa) == 256 else 4


def sums_of(isa: Any) -> int:
    """Float32 sums that `multiply_adds` has in flight: 12 vectors of AVX2's 16 registers, 16 otherwise."""
    bits = bits_of(isa)
    return (12 if bits == 256 else 16) * bits // 32


# --- the plain loops


def read(isa: Any, words: Any, first: int, blocks: int, ahead: int) -> Any:
    """All bits set in words[64 * first :] over `blocks` blocks; `ahead` bytes are asked for in advance."""
    found = np.uint64(0)
    for n in range(first * BLOCK_WORDS, (first + blocks) * BLOCK_WORDS):
        found |= words[n]
    return found


def multiply_adds(isa: Any, times: int, x: Any, y: Any) -> Any:
    """The product x * y added `times` times to each of `sums_of(isa)` sums; the total of the sums."""
    total = np.float32(0)
    for _ in range(times):
        total += np.float32(x) * np.float32(y)
    return np.float32(total * sums_of(isa))


def dots(
    isa: Any, height: Any, width: Any, x: Any, x_at: int, w: Any, w_at: int, count: int, out: Any,
    out_at: int, out_step: int,
) -> None:  # fmt: skip
    """Rows of float32, as many as height is long, times rows of weights, as many as width is long.

    Rows hold `count` numbers, a multiple of STEP, and lie one behind the other from x_at and w_at on; w is
    float32, or uint16 with the patterns of float16. Products go to out[out_at + r * out_step + c].
    """
    for r in range(len(height)):
        for c in range(len(width)):
            left = x[x_at + r * count : x_at + (r + 1) * count]
            right = w[w_at + c * count : w_at + (c + 1) * count]
            right = right.view(np.float16).astype(np.float32) if w.itemsize == 2 else right
            out[out_at + r * out_step + c] = np.dot(left, right)


def widen(isa: Any, source: Any, source_at: int, target: Any, target_at: int, count: int) -> None:
    """`count` patterns of float16, a multiple of STEP -> float32."""
    target[target_at : target_at + count] = source[source_at : source_at + count].view(np.float16)


# --- the same in LLVM's vectors


def _vector(element: Any, bits: int, size: int) -> Any:
    return ir.VectorType(element, bits // size)


def _splat(builder: Any, value: Any, vector: Any) -> Any:
    blank = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(blank, value, _INT(0))
    return builder.shuffle_vector(first, blank, ir.Constant(ir.VectorType(_INT, vector.count), None))


def _data(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


def _load(builder: Any, pointer: Any, at: Any, vector: Any, align: int) -> Any:
    """A vector from the element `at` of a pointer on."""
    place = builder.bitcast(builder.gep(pointer, [at]), vector.as_pointer())
    return builder.load(place, align=align)


def _variables(builder: Any, vector: Any, count: int) -> list[Any]:
    """Variables that LLVM keeps in registers, zero at first."""
    found = [_cgutils.alloca_once(builder, vector) for _ in range(count)]
    for variable in found:
        builder.store(ir.Constant(vector, None), variable)
    return found


def _prefetch(builder: Any, pointer: Any) -> None:
    byte = _BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
    function = _cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [builder.bitcast(pointer, byte), _INT(0), _INT(3), _INT(1)])


def _multiply_add(builder: Any, vector: Any) -> Any:
    """A multiply-add: fused where the machine has it, or else two operations."""
    name = f"llvm.fmuladd.v{vector.count}f32"
    return _cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)


def _total(builder: Any, variables: list[Any], add: Any, zero: Any) -> Any:
    """All elements of all variables, added."""
    whole = builder.load(variables[0])
    for variable in variables[1:]:
        whole = add(whole, builder.load(variable))
    found = zero
    for lane in range(whole.type.count):
        found = add(found, builder.extract_element(whole, _INT(lane)))
    return found


@cache
def _read(bits: int, ahead: bool) -> Any:
    @intrinsic
    def routine(context: Any, words: Any, first: Any, blocks: Any, far: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            vector = _vector(_WORD, bits, 64)
            array, first, blocks, far = values
            begin = builder.mul(first, _WORD(BLOCK_WORDS))
            base = _data(context, builder, signature.args[0], array, begin)
            found = _variables(builder, vector, 8)
            with _cgutils.for_range(builder, blocks) as loop:
                at = builder.mul(loop.index, _WORD(BLOCK_WORDS))
                for n in range(0, BLOCK_WORDS, vector.count):
                    place = builder.add(at, _WORD(n))
                    if ahead and n % 8 == 0:
                        beyond = builder.add(place, builder.sdiv(far, _WORD(8)))
                        _prefetch(builder, builder.gep(base, [beyond]))
                    variable = found[n // vector.count % 8]
                    loaded = _load(builder, base, place, vector, 8)
                    builder.store(builder.or_(loaded, builder.load(variable)), variable)
            return _total(builder, found, builder.or_, _WORD(0))

        return types.uint64(words, types.intp, types.intp, types.intp), generate

    return routine


@overload(read, strict=False)
def _read_fast(isa: Any, words: Any, first: int, blocks: int, ahead: int) -> Any:
    near, far = (_read(bits_of(isa), ahead) for ahead in (False, True))

    def fast(isa, words, first, blocks, ahead):
        return far(words, first, blocks, ahead) if ahead > 0 else near(words, first, blocks, 0)

    return fast


@cache
def _multiply_adds(bits: int, sums: int) -> Any:
    @intrinsic
    def routine(context: Any, times: Any, x: Any, y: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            vector = _vector(_SINGLE, bits, 32)
            fused = _multiply_add(builder, vector)
            left, right = (_splat(builder, value, vector) for value in values[1:])
            found = _variables(builder, vector, sums // vector.count)
            with _cgutils.for_range(builder, values[0]):
                for variable in found:
                    builder.store(builder.call(fused, [left, right, builder.load(variable)]), variable)
            return _total(builder, found, builder.fadd, _SINGLE(0.0))

        return types.float32(types.intp, types.float32, types.float32), generate

    return routine


@overload(multiply_adds, strict=False)
def _multiply_adds_fast(isa: Any, times: int, x: float, y: float) -> Any:
    routine = _multiply_adds(bits_of(isa), sums_of(isa))

    def fast(isa, times, x, y):
        return routine(times, x, y)

    return fast


@cache
def _dots(bits: int, rows: int, columns: int) -> Any:
    @intrinsic
    def routine(
        context: Any, x: Any, x_at: Any, w: Any, w_at: Any, count: Any, out: Any, out_at: Any, out_step: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            x, x_at, w, w_at, count, out, out_at, out_step = values
            size = 2 if signature.args[2].dtype == types.uint16 else 4
            vector = _vector(_SINGLE, bits, 32)
            stored = _vector(ir.HalfType(), bits, 32) if size == 2 else vector
            fused = _multiply_add(builder, vector)

            def starts(kind: Any, array: Any, at: Any, much: int) -> list[Any]:
                places = [builder.add(at, builder.mul(count, _WORD(n))) for n in range(much)]
                return [_data(context, builder, kind, array, place) for place in places]

            def weights(at: Any) -> list[Any]:
                found = [_load(builder, right, at, stored, size) for right in rights]
                return [builder.fpext(weight, vector) for weight in found] if size == 2 else found

            lefts = starts(signature.args[0], x, x_at, rows)
            rights = starts(signature.args[2], w, w_at, columns)
            deep = max((8 if bits == 256 else 16) // (rows * columns), 1)
            found = [[_variables(builder, vector, deep) for _ in rights] for _ in lefts]
            with _cgutils.for_range(builder, builder.sdiv(count, _WORD(STEP))) as loop:
                at = builder.mul(loop.index, _WORD(STEP))
                for n in range(0, STEP, vector.count):
                    place = builder.add(at, _WORD(n))
                    for right in rights if n * size % 64 == 0 else []:
                        _prefetch(builder, builder.gep(right, [builder.add(place, _WORD(AHEAD // size))]))
                    some = weights(place)
                    for row, left in zip(found, lefts, strict=True):
                        number = _load(builder, left, place, vector, 4)
                        for sums, weight in zip(row, some, strict=True):
                            variable = sums[n // vector.count % deep]
                            total = builder.call(fused, [weight, number, builder.load(variable)])
                            builder.store(total, variable)
            for r, row in enumerate(found):
                for c, sums in enumerate(row):
                    place = builder.add(builder.add(out_at, _WORD(c)), builder.mul(out_step, _WORD(r)))
                    target = _data(context, builder, signature.args[5], out, place)
                    builder.store(_total(builder, sums, builder.fadd, _SINGLE(0.0)), target)
            return context.get_dummy_value()

        number = types.intp
        return types.void(x, number, w, number, number, out, number, number), generate

    return routine


@overload(dots, strict=False)
def _dots_fast(
    isa: Any, height: Any, width: Any, x: Any, x_at: int, w: Any, w_at: int, count: int, out: Any,
    out_at: int, out_step: int,
) -> Any:  # fmt: skip
    routine = _dots(bits_of(isa), len(height), len(width))

    def fast(isa, height, width, x, x_at, w, w_at, count, out, out_at, out_step):
        routine(x, x_at, w, w_at, count, out, out_at, out_step)

    return fast


@cache
def _widen(bits: int) -> Any:
    @intrinsic
    def routine(context: Any, source: Any, source_at: Any, target: Any, target_at: Any, count: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            source, source_at, target, target_at, count = values
            vector, half = _vector(_SINGLE, bits, 32), _vector(ir.HalfType(), bits, 32)
            left = _data(context, builder, signature.args[0], source, source_at)
            right = _data(context, builder, signature.args[2], target, target_at)
            with _cgutils.for_range(builder, builder.sdiv(count, _WORD(STEP))) as loop:
                at = builder.mul(loop.index, _WORD(STEP))
                for n in range(0, STEP, vector.count):
                    place = builder.add(at, _WORD(n))
                    found = builder.fpext(_load(builder, left, place, half, 2), vector)
                    to = builder.bitcast(builder.gep(right, [place]), vector.as_pointer())
                    builder.store(found, to, align=4)
            return context.get_dummy_value()

        return types.void(source, types.intp, target, types.intp, types.intp), generate

    return routine


@overload(widen, strict=False)
def _widen_fast(isa: Any, source: Any, source_at: int, target: Any, target_at: int, count: int) -> Any:
    routine = _widen(bits_of(isa))

    def fast(isa, source, source_at, target, target_at, count):
        routine(source, source_at, target, target_at, count)

    return fast
