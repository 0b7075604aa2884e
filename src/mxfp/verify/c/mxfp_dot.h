/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mxfp_dot: block dot products and their accumulators, bit for bit as the Python package mxfp has them.
 *
 * C99, and C++ as it stands. Needs <stdint.h> and <stddef.h>; no library, no allocation, no state of its own, no
 * floating point: floats come and go as bits. What each name means is written in the numeric contract of mxfp
 * (docs/contract.md); this file is its C.
 *
 * Elements are codes, one a byte, or packed with element 0 in the lowest bits. Scales are scale codes.
 * An accumulator's state is given to each function and taken from it, and is all zeros at the start.
 *
 * What does not exist (a format, a choice, a NULL where nothing is said of it) is never taken for something else:
 * functions that return a status answer MXFP_BAD, accumulators NaN, mxfp_sum INT32_MIN. mxfp_dot_batch_f32 and the
 * mxfp_dpi_ functions take their pointers on trust.
 *
 * Under each function whose name begins with mxfp_dpi_ stands the SystemVerilog that imports it. A packed vector
 * `bit [n-1:0]` of n > 32 bits arrives as uint32_t[], lowest word first, which is what svBitVecVal is.
 */
#ifndef MXFP_DOT_H
#define MXFP_DOT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- choices ------------------------------------------------------------------------------------------------ */

enum { /* block formats; NVFP4 without its tensor scales. E8M0 scales, NVFP4: UE4M3. */
    MXFP_MXFP4 = 0,
    MXFP_MXFP6_E2M3 = 1,
    MXFP_MXFP6_E3M2 = 2,
    MXFP_MXINT8 = 3,
    MXFP_NVFP4 = 4
};
enum { MXFP_FLOAT16 = 0, MXFP_BFLOAT16 = 1, MXFP_FLOAT32 = 2, MXFP_FLOAT64 = 3 };
enum { MXFP_FINITE = 0, MXFP_NAN = 1, MXFP_PLUS_INFINITY = 2, MXFP_MINUS_INFINITY = 3 };
enum { MXFP_SEQUENTIAL = 0, MXFP_EXACT = 1, MXFP_FIXED = 2, MXFP_FUSED = 3 };
enum { MXFP_REPORT = 0, MXFP_WRAP = 1, MXFP_SATURATE = 2 }; /* REPORT leaves the register as it was */
enum { MXFP_FLOOR = 0, MXFP_TOWARD_ZERO = 1, MXFP_NEAREST_EVEN = 2 };
enum {            /* what functions of type int return */
    MXFP_OK = 0,
    MXFP_OVERFLOW = 1, /* a register did not hold its sum */
    MXFP_BAD = 2       /* an argument that does not exist; nothing was written */
};

#define MXFP_MAX_LANES 1024
#define MXFP_MAX_GROUPS 64   /* of one step of a tensor core */
#define MXFP_EXACT_WORDS 21  /* uint32_t: a register of 640 bits, and a word of specials */
#define MXFP_EXACT_LSB (-288)

/* ---- from codes to terms ------------------------------------------------------------------------------------ */

/* A code's value as an integer in units of 2^lsb: E2M1 gives twice its value. Upper bits of code are ignored. */
int32_t mxfp_decode(int format, uint32_t code);

/* That unit's exponent: E2M1 -1, E2M3 -3, E3M2 -4, INT8 -6. */
int32_t mxfp_lsb_exponent(int format);

/* The integer sum of `lanes` products, 1 ... MXFP_MAX_LANES; INT32_MIN for arguments that do not exist. */
int32_t mxfp_sum(int format_a, int format_b, size_t lanes, const uint8_t *a, const uint8_t *b);

/*
 * The same with what is on the way. products: `lanes` of them. levels: those of a binary tree that adds neighbours,
 * level after level, the last of which is the sum (32 lanes: 16, 8, 4, 2, 1, which is 31); an odd one out goes up
 * unchanged. Either may be NULL.
 */
int mxfp_stages(int format_a, int format_b, size_t lanes, const uint8_t *a, const uint8_t *b, int32_t *products,
                int32_t *levels);

typedef struct mxfp_term { /* an exact term, sum * 2^exponent */
    int32_t sum;           /* the sum of products, times the significands of both scales (E8M0: 1) */
    int32_t exponent;      /* MXFP4: scale_a + scale_b - 256 */
    int32_t align;         /* what a tensor core aligns by: the scales' exponent, unnormalised */
    int32_t live;          /* whether any product is not zero */
    int32_t special;       /* MXFP_FINITE, or what the term is instead: a NaN scale makes it MXFP_NAN */
} mxfp_term;

/* One block, or the part of one that shares two scales. */
int mxfp_block_term(int format_a, int format_b, size_t lanes, const uint8_t *a, const uint8_t *b, uint32_t scale_a,
                    uint32_t scale_b, mxfp_term *term);

/* ---- accumulators ------------------------------------------------------------------------------------------- */

/*
 * Sequential(dtype): state + the exact term, rounded once, to nearest even. Bits in, bits out. Subnormals are kept,
 * overflow is infinity, a sum of exactly zero is +0, NaN is the quiet one without sign.
 */
uint64_t mxfp_sequential(int float_format, uint64_t state, const mxfp_term *term);
uint32_t mxfp_sequential_f32(uint32_t state, const mxfp_term *term);
uint16_t mxfp_sequential_f16(uint16_t state, const mxfp_term *term);
uint16_t mxfp_sequential_bf16(uint16_t state, const mxfp_term *term);

/*
 * Exact(dtype): a register wide enough for every term of every format here and 2^31 of them. state is
 * MXFP_EXACT_WORDS words. Terms of exponents beyond -288 ... 288 are MXFP_BAD.
 */
int mxfp_exact_add(uint32_t *state, const mxfp_term *term);
uint64_t mxfp_exact_result(int float_format, const uint32_t *state);

/*
 * FixedPoint(width, lsb_exponent, overflow, rounding), two's complement. MXFP_OVERFLOW says that a sum did not fit,
 * whatever was then done about it. nan: set by a term that is not finite; the register rests from then on.
 */
typedef struct mxfp_fixed {
    int32_t width; /* 1 ... 64 */
    int32_t lsb_exponent;
    int32_t overflow;
    int32_t rounding;
} mxfp_fixed;

int mxfp_fixed_add(const mxfp_fixed *how, int64_t *value, int32_t *nan, const mxfp_term *term);
uint64_t mxfp_fixed_result(int float_format, const mxfp_fixed *how, int64_t value, int32_t nan);

/*
 * Fused(...): one step of a tensor core. c is the running float32, terms are those of the step, of `group` products
 * each; fewer than step / group is a last step filled up with zeros. products: 0 aligns by exponents of scales, 1 by
 * those of single products (group 1). NaN is 0x7fffffff, and there is no -0.
 */
typedef struct mxfp_fused {
    int32_t fraction_bits; /* 0 ... 40 */
    int32_t group;
    int32_t step;
    int32_t zero_exponent;
    int32_t products;
    int32_t result_bits; /* 0 ... 23 */
} mxfp_fused;

#define MXFP_BLACKWELL_MXFP4 { 35, 16, 64, -139, 0, 23 }
#define MXFP_BLACKWELL_MXF8F6F4 { 25, 1, 32, -133, 1, 23 }

int mxfp_fused_step(const mxfp_fused *how, uint32_t *c, size_t count, const mxfp_term *terms);

/* ---- whole dot products ------------------------------------------------------------------------------------- */

typedef struct mxfp_accumulator {
    int32_t kind;         /* MXFP_SEQUENTIAL, MXFP_EXACT, MXFP_FIXED, MXFP_FUSED */
    int32_t float_format; /* of the result (and of the state, if sequential) */
    int32_t group;        /* sequential: products per term, a divisor of lanes; 0 is a block */
    mxfp_fixed fixed;
    mxfp_fused fused;
} mxfp_accumulator;

/* `blocks` blocks of `lanes` elements, one behind the other, scales by block -> bits of the result. */
int mxfp_dot(const mxfp_accumulator *how, int format_a, int format_b, size_t lanes, size_t blocks, const uint8_t *a,
             const uint8_t *b, const uint8_t *scale_a, const uint8_t *scale_b, uint64_t *result);

/* Many of them, one behind the other. status: of each, may be NULL. Returns the highest. */
int mxfp_dot_batch(const mxfp_accumulator *how, int format_a, int format_b, size_t lanes, size_t blocks,
                   size_t cases, const uint8_t *a, const uint8_t *b, const uint8_t *scale_a, const uint8_t *scale_b,
                   uint64_t *results, uint8_t *status);

/* MXFP4 blocks of 32 into Sequential(float32). sums, exponents: of each block, may be NULL. */
void mxfp_dot_batch_f32(size_t cases, size_t blocks, const uint8_t *a, const uint8_t *b, const uint8_t *scale_a,
                        const uint8_t *scale_b, uint32_t *results, int32_t *sums, int32_t *exponents);

/* ---- MXFP4 through DPI-C, blocks of 32 in 128 bits ----------------------------------------------------------- */

/* import "DPI-C" function int mxfp_dpi_decode(input int unsigned code); */
int32_t mxfp_dpi_decode(uint32_t code);

/* import "DPI-C" function int mxfp_dpi_sum(input bit [127:0] a, input bit [127:0] b); */
int32_t mxfp_dpi_sum(const uint32_t *a, const uint32_t *b);

/*
 * import "DPI-C" function void mxfp_dpi_stages(input bit [127:0] a, input bit [127:0] b,
 *   output int products[32], output int levels[31]);
 */
void mxfp_dpi_stages(const uint32_t *a, const uint32_t *b, int32_t *products, int32_t *levels);

/*
 * import "DPI-C" function void mxfp_dpi_term(input bit [127:0] a, input bit [127:0] b,
 *   input int unsigned scale_a, input int unsigned scale_b, output int sum, output int exponent, output int special);
 */
void mxfp_dpi_term(const uint32_t *a, const uint32_t *b, uint32_t scale_a, uint32_t scale_b, int32_t *sum,
                   int32_t *exponent, int32_t *special);

/*
 * The running accumulator after one more block; state 0 begins. The floats' bits are the lowest.
 *
 * import "DPI-C" function int unsigned mxfp_dpi_sequential_f32(input int unsigned state,
 *   input bit [127:0] a, input bit [127:0] b, input int unsigned scale_a, input int unsigned scale_b);
 */
uint32_t mxfp_dpi_sequential_f32(uint32_t state, const uint32_t *a, const uint32_t *b, uint32_t scale_a,
                                 uint32_t scale_b);

/*
 * import "DPI-C" function int unsigned mxfp_dpi_sequential_f16(input int unsigned state,
 *   input bit [127:0] a, input bit [127:0] b, input int unsigned scale_a, input int unsigned scale_b);
 */
uint32_t mxfp_dpi_sequential_f16(uint32_t state, const uint32_t *a, const uint32_t *b, uint32_t scale_a,
                                 uint32_t scale_b);

/*
 * import "DPI-C" function int unsigned mxfp_dpi_sequential_bf16(input int unsigned state,
 *   input bit [127:0] a, input bit [127:0] b, input int unsigned scale_a, input int unsigned scale_b);
 */
uint32_t mxfp_dpi_sequential_bf16(uint32_t state, const uint32_t *a, const uint32_t *b, uint32_t scale_a,
                                  uint32_t scale_b);

/*
 * A fixed-point register of `width` bits, sign-extended to 64. overflow: 0 leaves it as it was, 1 wraps, 2 saturates.
 * rounding: 0 floor, 1 toward zero, 2 nearest even. Returns 1 where the sum did not fit, 2 for bad parameters.
 *
 * import "DPI-C" function int mxfp_dpi_fixed(input int width, input int lsb_exponent, input int overflow,
 *   input int rounding, input bit [127:0] a, input bit [127:0] b, input int unsigned scale_a,
 *   input int unsigned scale_b, inout longint value, inout int nan);
 */
int32_t mxfp_dpi_fixed(int32_t width, int32_t lsb_exponent, int32_t overflow, int32_t rounding, const uint32_t *a,
                       const uint32_t *b, uint32_t scale_a, uint32_t scale_b, int64_t *value, int32_t *nan);

/*
 * The exact register, 672 bits of it, and what it holds rounded to float32.
 *
 * import "DPI-C" function void mxfp_dpi_exact(inout bit [671:0] state, input bit [127:0] a,
 *   input bit [127:0] b, input int unsigned scale_a, input int unsigned scale_b);
 */
void mxfp_dpi_exact(uint32_t *state, const uint32_t *a, const uint32_t *b, uint32_t scale_a, uint32_t scale_b);

/* import "DPI-C" function int unsigned mxfp_dpi_exact_f32(input bit [671:0] state); */
uint32_t mxfp_dpi_exact_f32(const uint32_t *state);

/*
 * Blackwell's step of two blocks: block 0 and scale 0 are lowest. c 0 begins.
 *
 * import "DPI-C" function int unsigned mxfp_dpi_blackwell(input int unsigned c, input bit [255:0] a,
 *   input bit [255:0] b, input bit [15:0] scale_a, input bit [15:0] scale_b);
 */
uint32_t mxfp_dpi_blackwell(uint32_t c, const uint32_t *a, const uint32_t *b, const uint32_t *scale_a,
                            const uint32_t *scale_b);

/*
 * The same adder with other numbers: of `blocks` blocks, 1 or 2.
 *
 * import "DPI-C" function int unsigned mxfp_dpi_fused(input int fraction_bits, input int group, input int step,
 *   input int zero_exponent, input int result_bits, input int blocks, input int unsigned c,
 *   input bit [255:0] a, input bit [255:0] b, input bit [15:0] scale_a, input bit [15:0] scale_b);
 */
uint32_t mxfp_dpi_fused(int32_t fraction_bits, int32_t group, int32_t step, int32_t zero_exponent,
                        int32_t result_bits, int32_t blocks, uint32_t c, const uint32_t *a, const uint32_t *b,
                        const uint32_t *scale_a, const uint32_t *scale_b);

#ifdef __cplusplus
}
#endif

#endif
