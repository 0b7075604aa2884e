/* SPDX-License-Identifier: Apache-2.0 */
/* mxfp_dot: block dot products and their accumulators, bit for bit as mxfp has them. See mxfp_dot.h. */

#include "mxfp_dot.h"

#define FAR 100000 /* exponents beyond it are as good as it */

/* ---- formats ------------------------------------------------------------------------------------------------ */

typedef struct {
    int32_t bits, mantissa_bits, bias, lsb_exponent, scale_mantissa_bits;
} block_format;

static const block_format FORMATS[5] = {
    { 4, 1, 1, -1, 0 }, { 6, 3, 1, -3, 0 }, { 6, 2, 3, -4, 0 }, { 8, 6, 1, -6, 0 }, { 4, 1, 1, -1, 3 },
};

static const int8_t DOUBLED[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 }; /* E2M1 */

static int is_format(int format)
{
    return format >= MXFP_MXFP4 && format <= MXFP_NVFP4;
}

static int is_e2m1(int format)
{
    return format == MXFP_MXFP4 || format == MXFP_NVFP4;
}

/* A code without its sign. */
static uint32_t magnitude_code(int format, uint32_t code, int *negative)
{
    uint32_t sign = (uint32_t)1 << (FORMATS[format].bits - 1);
    *negative = (code & sign) != 0;
    code &= 2 * sign - 1;
    if (format == MXFP_MXINT8)
        return *negative ? 2 * sign - code : code;
    return code & (sign - 1);
}

int32_t mxfp_decode(int format, uint32_t code)
{
    uint32_t magnitude, field, hidden;
    int negative;

    if (!is_format(format))
        return INT32_MIN;
    if (is_e2m1(format))
        return DOUBLED[code & 15];
    magnitude = magnitude_code(format, code, &negative);
    if (format != MXFP_MXINT8) {
        hidden = (uint32_t)1 << FORMATS[format].mantissa_bits;
        field = magnitude / hidden;
        if (field)
            magnitude = (hidden + magnitude % hidden) << (field - 1);
    }
    return negative ? -(int32_t)magnitude : (int32_t)magnitude;
}

int32_t mxfp_lsb_exponent(int format)
{
    return is_format(format) ? FORMATS[format].lsb_exponent : INT32_MIN;
}

/* floor(log2 |value|), and for subnormals that of the smallest normal. */
static int32_t element_exponent(int format, uint32_t code)
{
    int negative;
    int32_t field = (int32_t)(magnitude_code(format, code, &negative) >> FORMATS[format].mantissa_bits);
    return (field > 1 ? field : 1) - FORMATS[format].bias;
}

/* A scale code: significand * 2^exponent. Returns whether it is a number. */
static int decode_scale(int format, uint32_t code, int32_t *significand, int32_t *exponent)
{
    int32_t field;

    code &= 255;
    if (format != MXFP_NVFP4) {
        *significand = 1;
        *exponent = (int32_t)code - 127;
        return code != 255;
    }
    field = (int32_t)((code & 127) >> 3);
    *significand = (int32_t)(code & 7) + (field ? 8 : 0);
    *exponent = (field ? field : 1) - 10;
    if (code >= 127)
        *significand = 0;
    return code < 127;
}

/* ---- products and sums -------------------------------------------------------------------------------------- */

static int is_block(int format_a, int format_b, size_t lanes, const uint8_t *a, const uint8_t *b)
{
    return is_format(format_a) && is_format(format_b) && lanes >= 1 && lanes <= MXFP_MAX_LANES && a && b;
}

int32_t mxfp_sum(int format_a, int format_b, size_t lanes, const uint8_t *a, const uint8_t *b)
{
    int32_t sum = 0;
    size_t i;

    if (!is_block(format_a, format_b, lanes, a, b))
        return INT32_MIN;
    if (is_e2m1(format_a) && is_e2m1(format_b)) {
        for (i = 0; i < lanes; i++)
            sum += DOUBLED[a[i] & 15] * DOUBLED[b[i] & 15];
        return sum;
    }
    for (i = 0; i < lanes; i++)
        sum += mxfp_decode(format_a, a[i]) * mxfp_decode(format_b, b[i]);
    return sum;
}

int mxfp_stages(int format_a, int format_b, size_t lanes, const uint8_t *a, const uint8_t *b, int32_t *products,
                int32_t *levels)
{
    const int32_t *below = NULL;
    size_t i, count = lanes;

    if (!is_block(format_a, format_b, lanes, a, b))
        return MXFP_BAD;
    for (i = 0; products && i < lanes; i++)
        products[i] = mxfp_decode(format_a, a[i]) * mxfp_decode(format_b, b[i]);
    while (levels && count > 1) {
        for (i = 0; i < count; i += 2) {
            int32_t one, other = 0;
            if (below) {
                one = below[i];
                if (i + 1 < count)
                    other = below[i + 1];
            } else {
                one = mxfp_decode(format_a, a[i]) * mxfp_decode(format_b, b[i]);
                if (i + 1 < count)
                    other = mxfp_decode(format_a, a[i + 1]) * mxfp_decode(format_b, b[i + 1]);
            }
            levels[i / 2] = one + other;
        }
        below = levels;
        count = (count + 1) / 2;
        levels += count;
    }
    return MXFP_OK;
}

int mxfp_block_term(int format_a, int format_b, size_t lanes, const uint8_t *a, const uint8_t *b, uint32_t scale_a,
                    uint32_t scale_b, mxfp_term *term)
{
    int32_t significand_a, significand_b, significands, exponent_a, exponent_b;
    int finite;
    size_t i;

    if (!is_block(format_a, format_b, lanes, a, b) || !term)
        return MXFP_BAD;
    finite = decode_scale(format_a, scale_a, &significand_a, &exponent_a);
    finite &= decode_scale(format_b, scale_b, &significand_b, &exponent_b);
    significands = significand_a * significand_b;
    term->sum = mxfp_sum(format_a, format_b, lanes, a, b) * significands;
    term->exponent = exponent_a + exponent_b + FORMATS[format_a].lsb_exponent + FORMATS[format_b].lsb_exponent;
    term->align =
        exponent_a + exponent_b + FORMATS[format_a].scale_mantissa_bits + FORMATS[format_b].scale_mantissa_bits;
    term->live = term->sum != 0;
    for (i = 0; significands && i < lanes && !term->live; i++)
        term->live = mxfp_decode(format_a, a[i]) && mxfp_decode(format_b, b[i]);
    term->special = finite ? MXFP_FINITE : MXFP_NAN;
    return MXFP_OK;
}

static int is_term(const mxfp_term *term)
{
    return term && term->special >= MXFP_FINITE && term->special <= MXFP_MINUS_INFINITY;
}

/* ---- floats as bits ----------------------------------------------------------------------------------------- */

typedef struct {
    int32_t precision, emin, emax, bits;
} float_kind;

static const float_kind FLOATS[4] = {
    { 11, -14, 15, 16 }, { 8, -126, 127, 16 }, { 24, -126, 127, 32 }, { 53, -1022, 1023, 64 },
};

static int is_float(int float_format)
{
    return float_format >= MXFP_FLOAT16 && float_format <= MXFP_FLOAT64;
}

static uint64_t infinity_of(const float_kind *f, int negative)
{
    uint64_t sign = negative ? (uint64_t)1 << (f->bits - 1) : 0;
    return sign | (uint64_t)(f->emax - f->emin + 2) << (f->precision - 1);
}

static uint64_t nan_of(const float_kind *f)
{
    return infinity_of(f, 0) | (uint64_t)1 << (f->precision - 2);
}

/* Zeros above the highest one of x, which is not 0. */
static int leading_zeros(uint64_t x)
{
    int zeros = 0, step, shift;
    for (step = 32; step; step /= 2) {
        shift = x >> (64 - step) ? 0 : step;
        x <<= shift;
        zeros += shift;
    }
    return zeros;
}

/*
 * (-1)^negative * (magnitude + something in (0, 1) if sticky) * 2^exponent -> bits, rounded once to nearest even.
 * With sticky, magnitude has its highest bit set.
 */
static uint64_t round_to(const float_kind *f, int negative, uint64_t magnitude, int32_t exponent, int sticky)
{
    uint64_t sign = negative ? (uint64_t)1 << (f->bits - 1) : 0, pattern, rest, half;
    int32_t top, drop;
    int zeros;

    if (!magnitude)
        return 0;
    zeros = leading_zeros(magnitude);
    magnitude <<= zeros;
    top = exponent - zeros + 63;
    if (top > f->emax)
        return infinity_of(f, negative);
    drop = 64 - f->precision;
    if (top < f->emin)
        drop += f->emin - top;
    if (drop > 64)
        return sign;
    if (drop == 64) { /* at least half of the smallest subnormal */
        pattern = magnitude << 1 || sticky;
    } else {
        pattern = magnitude >> drop;
        half = (uint64_t)1 << (drop - 1);
        rest = magnitude & (2 * half - 1);
        pattern += rest > half || (rest == half && (sticky || (pattern & 1)));
    }
    if (top >= f->emin) /* the hidden bit adds one to the exponent field, as does a carry, up to infinity */
        pattern += (uint64_t)(top - f->emin) << (f->precision - 1);
    return sign | pattern;
}

static int32_t within_far(int32_t exponent)
{
    return exponent < -FAR ? -FAR : exponent > FAR ? FAR : exponent;
}

static uint32_t magnitude_of(int32_t x)
{
    return x < 0 ? 0 - (uint32_t)x : (uint32_t)x;
}

/* NaN and infinities by IEEE 754: what a state that is one of them, or not, and a special term make. */
static uint64_t joined(const float_kind *f, uint64_t state, int32_t special)
{
    uint64_t sign = (uint64_t)1 << (f->bits - 1), magnitude = state & (sign - 1), infinity = infinity_of(f, 0);
    uint64_t term = infinity_of(f, special == MXFP_MINUS_INFINITY);

    if (special == MXFP_NAN || magnitude > infinity || (magnitude == infinity && state != term))
        return nan_of(f);
    return term;
}

/* ---- Sequential --------------------------------------------------------------------------------------------- */

uint64_t mxfp_sequential(int float_format, uint64_t state, const mxfp_term *term)
{
    const float_kind *f;
    uint64_t high, low, lost;
    int32_t high_exponent, low_exponent, field, apart;
    int high_negative, low_negative, zeros;

    if (!is_float(float_format))
        return 0;
    f = &FLOATS[float_format];
    if (!is_term(term))
        return nan_of(f);
    if (f->bits < 64)
        state &= ((uint64_t)1 << f->bits) - 1;
    if (term->special)
        return joined(f, state, term->special);
    high_negative = (int)(state >> (f->bits - 1));
    high = state & (((uint64_t)1 << (f->bits - 1)) - 1);
    if (high >= infinity_of(f, 0))
        return high == infinity_of(f, 0) ? state : nan_of(f);
    low_negative = term->sum < 0;
    low = magnitude_of(term->sum);
    low_exponent = within_far(term->exponent);
    if (!low)
        return high ? state : 0;
    if (!high)
        return round_to(f, low_negative, low, low_exponent, 0);

    field = (int32_t)(high >> (f->precision - 1));
    high_exponent = (field ? field : 1) - 1 + f->emin - (f->precision - 1);
    high &= ((uint64_t)1 << (f->precision - 1)) - 1;
    if (field)
        high |= (uint64_t)1 << (f->precision - 1);

    /* Both begin at bit 62, so that ten bits are free below 53 and a bit shifted out never matters but as "some". */
    zeros = leading_zeros(high) - 1;
    high <<= zeros;
    high_exponent -= zeros;
    zeros = leading_zeros(low) - 1;
    low <<= zeros;
    low_exponent -= zeros;
    if (high_exponent < low_exponent || (high_exponent == low_exponent && high < low)) {
        uint64_t swapped = high;
        int32_t exponent = high_exponent;
        int negative = high_negative;
        high = low, low = swapped;
        high_exponent = low_exponent, low_exponent = exponent;
        high_negative = low_negative, low_negative = negative;
    }
    apart = high_exponent - low_exponent;
    if (apart > 62) {
        low = 1;
    } else {
        lost = low & (((uint64_t)1 << apart) - 1);
        low = low >> apart | (lost != 0);
    }
    high = high_negative == low_negative ? high + low : high - low;
    return round_to(f, high_negative, high, high_exponent, 0);
}

uint32_t mxfp_sequential_f32(uint32_t state, const mxfp_term *term)
{
    return (uint32_t)mxfp_sequential(MXFP_FLOAT32, state, term);
}

uint16_t mxfp_sequential_f16(uint16_t state, const mxfp_term *term)
{
    return (uint16_t)mxfp_sequential(MXFP_FLOAT16, state, term);
}

uint16_t mxfp_sequential_bf16(uint16_t state, const mxfp_term *term)
{
    return (uint16_t)mxfp_sequential(MXFP_BFLOAT16, state, term);
}

/* ---- Exact -------------------------------------------------------------------------------------------------- */

#define LIMBS (MXFP_EXACT_WORDS - 1)
#define SPECIALS (MXFP_EXACT_WORDS - 1) /* bit 0: a NaN; bit 1: +infinity; bit 2: -infinity */

int mxfp_exact_add(uint32_t *state, const mxfp_term *term)
{
    uint32_t place, negative, part[2], carry = 0;
    uint64_t shifted;
    size_t i;

    if (!state || !is_term(term))
        return MXFP_BAD;
    if (term->special) {
        state[SPECIALS] |= (uint32_t)1 << (term->special - 1);
        return MXFP_OK;
    }
    if (!term->sum)
        return MXFP_OK;
    if (term->exponent < MXFP_EXACT_LSB || term->exponent > -MXFP_EXACT_LSB)
        return MXFP_BAD;
    place = (uint32_t)(term->exponent - MXFP_EXACT_LSB);
    shifted = (uint64_t)(int64_t)term->sum << (place % 32); /* two's complement: 32 bits and up to 31 */
    negative = term->sum < 0 ? 0xFFFFFFFF : 0;
    part[0] = (uint32_t)(shifted & 0xFFFFFFFF);
    part[1] = (uint32_t)(shifted >> 32);
    for (i = place / 32; i < LIMBS; i++) {
        size_t n = i - place / 32;
        uint64_t total = (uint64_t)state[i] + (n < 2 ? part[n] : negative) + carry;
        if (n >= 2 && carry == (negative & 1))
            break; /* from here on nothing changes */
        state[i] = (uint32_t)(total & 0xFFFFFFFF);
        carry = (uint32_t)(total >> 32);
    }
    return MXFP_OK;
}

uint64_t mxfp_exact_result(int float_format, const uint32_t *state)
{
    const float_kind *f;
    uint32_t limbs[LIMBS], specials;
    uint64_t magnitude, carry;
    int negative, sticky = 0, zeros;
    size_t i, top = LIMBS;

    if (!is_float(float_format))
        return 0;
    f = &FLOATS[float_format];
    if (!state)
        return nan_of(f);
    specials = state[SPECIALS];
    negative = (int)(state[LIMBS - 1] >> 31);
    if (specials)
        return specials == 2 ? infinity_of(f, 0) : specials == 4 ? infinity_of(f, 1) : nan_of(f);
    carry = negative ? 1 : 0;
    for (i = 0; i < LIMBS; i++) {
        carry += negative ? ~state[i] : state[i];
        limbs[i] = (uint32_t)(carry & 0xFFFFFFFF);
        carry >>= 32;
    }
    while (top > 3 && !limbs[top - 1])
        top--;
    magnitude = (uint64_t)limbs[top - 1] << 32 | limbs[top - 2];
    if (!magnitude) /* then top is 3, and all that there is lies in the lowest limb */
        return round_to(f, negative, limbs[0], MXFP_EXACT_LSB, 0);
    zeros = leading_zeros(magnitude);
    if (zeros) {
        magnitude <<= zeros;
        if (zeros < 32) {
            magnitude |= limbs[top - 3] >> (32 - zeros);
            sticky = (uint32_t)(limbs[top - 3] << zeros) != 0;
        } else { /* top is 3, and the highest limb is 0 */
            magnitude |= (uint64_t)limbs[0] << (zeros - 32);
        }
    } else {
        sticky = limbs[top - 3] != 0;
    }
    for (i = 0; i + 3 < top; i++)
        sticky |= limbs[i] != 0;
    return round_to(f, negative, magnitude, MXFP_EXACT_LSB + 32 * (int32_t)(top - 2) - zeros, sticky);
}

/* ---- FixedPoint --------------------------------------------------------------------------------------------- */

static int is_fixed(const mxfp_fixed *how)
{
    return how && how->width >= 1 && how->width <= 64 && how->lsb_exponent >= -4096 && how->lsb_exponent <= 4096 &&
           how->overflow >= MXFP_REPORT && how->overflow <= MXFP_SATURATE && how->rounding >= MXFP_FLOOR &&
           how->rounding <= MXFP_NEAREST_EVEN;
}

/* The lowest `width` bits, sign-extended. */
static int64_t wrapped(uint64_t x, int32_t width)
{
    uint64_t sign = (uint64_t)1 << (width - 1), mask = sign - 1;
    int64_t low = (int64_t)(x & mask);
    return x & sign ? low - (int64_t)mask - 1 : low;
}

int mxfp_fixed_add(const mxfp_fixed *how, int64_t *value, int32_t *nan, const mxfp_term *term)
{
    uint64_t term_magnitude, magnitude, limit, modulo, rest, half;
    int32_t shift;
    int term_negative, negative, enormous = 0;

    if (!is_fixed(how) || !value || !nan || !is_term(term))
        return MXFP_BAD;
    term_negative = term->sum < 0;
    if (term->special)
        *nan = 1;
    if (*nan)
        return MXFP_OK;
    term_magnitude = magnitude_of(term->sum);
    shift = within_far(term->exponent) - how->lsb_exponent;
    if (term_magnitude && shift > 0) {
        enormous = shift > leading_zeros(term_magnitude);
        term_magnitude = shift < 64 ? term_magnitude << shift : 0;
    } else if (shift < 0) {
        int32_t right = shift < -40 ? 40 : -shift; /* more than all 32 bits */
        half = (uint64_t)1 << (right - 1);
        rest = term_magnitude & (2 * half - 1);
        term_magnitude >>= right;
        if (how->rounding == MXFP_FLOOR)
            term_magnitude += term_negative && rest;
        else if (how->rounding == MXFP_NEAREST_EVEN)
            term_magnitude += rest > half || (rest == half && (term_magnitude & 1));
    }
    modulo = (uint64_t)*value + (term_negative ? 0 - term_magnitude : term_magnitude);
    negative = *value < 0;
    magnitude = negative ? 0 - (uint64_t)*value : (uint64_t)*value;
    if (negative == term_negative) {
        magnitude += term_magnitude;
        enormous |= magnitude < term_magnitude;
    } else if (enormous || term_magnitude > magnitude) {
        magnitude = term_magnitude - magnitude;
        negative = term_negative;
    } else {
        magnitude -= term_magnitude;
    }
    limit = ((uint64_t)1 << (how->width - 1)) - (negative ? 0u : 1u);
    if (!enormous && magnitude <= limit) {
        *value = negative && magnitude ? -(int64_t)(magnitude - 1) - 1 : (int64_t)magnitude;
        return MXFP_OK;
    }
    if (how->overflow == MXFP_WRAP)
        *value = wrapped(modulo, how->width);
    else if (how->overflow == MXFP_SATURATE)
        *value = wrapped(limit, how->width);
    return MXFP_OVERFLOW;
}

uint64_t mxfp_fixed_result(int float_format, const mxfp_fixed *how, int64_t value, int32_t nan)
{
    if (!is_float(float_format))
        return 0;
    if (nan || !is_fixed(how))
        return nan_of(&FLOATS[float_format]);
    return round_to(&FLOATS[float_format], value < 0, value < 0 ? 0 - (uint64_t)value : (uint64_t)value,
                    within_far(how->lsb_exponent), 0);
}

/* ---- Fused -------------------------------------------------------------------------------------------------- */

#define TENSOR_CORE_NAN 0x7FFFFFFFu
#define INFINITY_F32 0x7F800000u

static int is_fused(const mxfp_fused *how)
{
    return how && how->fraction_bits >= 0 && how->fraction_bits <= 40 && how->group >= 1 && how->step >= 1 &&
           how->step % how->group == 0 && how->step / how->group <= MXFP_MAX_GROUPS &&
           how->zero_exponent >= -4096 && how->zero_exponent <= 4096 && how->result_bits >= 0 &&
           how->result_bits <= 23 && (how->products == 0 || (how->products == 1 && how->group == 1));
}

/* x * 2^shift toward zero; 0 in *fits where that takes more than 55 bits. */
static int64_t shifted_toward_zero(int32_t x, int32_t shift, int *fits)
{
    uint64_t magnitude = magnitude_of(x);

    if (!magnitude)
        return 0;
    if (shift > leading_zeros(magnitude) - 9) {
        *fits = 0;
        return 0;
    }
    magnitude = shift >= 0 ? magnitude << shift : shift > -64 ? magnitude >> -shift : 0;
    return x < 0 ? -(int64_t)magnitude : (int64_t)magnitude;
}

int mxfp_fused_step(const mxfp_fused *how, uint32_t *c, size_t count, const mxfp_term *terms)
{
    uint32_t before, bits, significand = 0, specials = 0;
    int32_t own, largest, unit, drop, lowest, field;
    int64_t total = 0;
    uint64_t magnitude;
    int fits = 1, negative;
    size_t i;

    if (!is_fused(how) || !c || (count && !terms) || count > (size_t)(how->step / how->group))
        return MXFP_BAD;
    for (i = 0; i < count; i++)
        if (!is_term(&terms[i]))
            return MXFP_BAD;
    before = *c;
    bits = before & 0x7FFFFFFF;
    own = how->zero_exponent;
    if (bits && bits < INFINITY_F32) {
        field = (int32_t)(bits >> 23);
        own = (field ? field : 1) - 127;
        significand = (bits & 0x7FFFFF) | (field ? 0x800000u : 0);
    }
    largest = own;
    if (count < (size_t)(how->step / how->group) && largest < how->zero_exponent)
        largest = how->zero_exponent;
    for (i = 0; i < count; i++) {
        int32_t align = terms[i].live ? within_far(terms[i].align) : how->zero_exponent;
        if (largest < align)
            largest = align;
        if (terms[i].special)
            specials |= (uint32_t)1 << (terms[i].special - 1);
    }
    unit = largest - how->fraction_bits;
    for (i = 0; i < count; i++)
        if (!terms[i].special)
            total += shifted_toward_zero(terms[i].sum, within_far(terms[i].exponent) - unit, &fits);
    if (!fits)
        return MXFP_BAD;
    total += shifted_toward_zero(before >> 31 ? -(int32_t)significand : (int32_t)significand, own - 23 - unit, &fits);

    if (bits > INFINITY_F32 || specials & 1 || (specials & 6) == 6 ||
        (bits == INFINITY_F32 && specials & (before >> 31 ? 2u : 4u))) {
        *c = TENSOR_CORE_NAN;
    } else if (specials) {
        *c = specials == 4 ? INFINITY_F32 | 0x80000000u : INFINITY_F32;
    } else if (bits != INFINITY_F32) {
        negative = total < 0;
        magnitude = negative ? 0 - (uint64_t)total : (uint64_t)total;
        if (magnitude) {
            drop = 63 - leading_zeros(magnitude) - how->result_bits;
            lowest = -126 - how->result_bits - unit;
            drop = drop > lowest ? drop : lowest;
            if (drop < 0)
                drop = 0;
            magnitude = drop < 64 ? magnitude >> drop : 0;
            unit += drop;
        }
        *c = (uint32_t)round_to(&FLOATS[MXFP_FLOAT32], negative, magnitude, unit, 0); /* exact, or too large */
    }
    return MXFP_OK;
}

/* All steps of some blocks, beginning with *c. */
static int fused_blocks(const mxfp_fused *how, int format_a, int format_b, size_t lanes, size_t blocks,
                        const uint8_t *a, const uint8_t *b, const uint8_t *scale_a, const uint8_t *scale_b,
                        uint32_t *c)
{
    mxfp_term terms[MXFP_MAX_GROUPS];
    size_t group, first, count = 0, block;
    int status;

    if (!is_fused(how) || lanes % (size_t)how->group)
        return MXFP_BAD;
    group = (size_t)how->group;
    for (block = 0; block < blocks; block++)
        for (first = 0; first < lanes; first += group) {
            const uint8_t *x = a + block * lanes + first, *y = b + block * lanes + first;
            status =
                mxfp_block_term(format_a, format_b, group, x, y, scale_a[block], scale_b[block], &terms[count]);
            if (status)
                return status;
            if (how->products)
                terms[count].align += element_exponent(format_a, *x) + element_exponent(format_b, *y);
            if (++count == (size_t)(how->step / how->group) || (block + 1 == blocks && first + group == lanes)) {
                status = mxfp_fused_step(how, c, count, terms);
                if (status)
                    return status;
                count = 0;
            }
        }
    return MXFP_OK;
}

/* ---- whole dot products ------------------------------------------------------------------------------------- */

int mxfp_dot(const mxfp_accumulator *how, int format_a, int format_b, size_t lanes, size_t blocks, const uint8_t *a,
             const uint8_t *b, const uint8_t *scale_a, const uint8_t *scale_b, uint64_t *result)
{
    uint32_t exact[MXFP_EXACT_WORDS], c = 0;
    uint64_t state = 0;
    int64_t value = 0;
    int32_t nan = 0;
    int status = MXFP_OK, one;
    size_t group = lanes, block, first;
    mxfp_term term;

    if (!how || !result || how->kind < MXFP_SEQUENTIAL || how->kind > MXFP_FUSED || lanes < 1 ||
        lanes > MXFP_MAX_LANES || !is_format(format_a) || !is_format(format_b) || !a || !b || !scale_a || !scale_b)
        return MXFP_BAD;
    if (how->kind == MXFP_FUSED) {
        status = fused_blocks(&how->fused, format_a, format_b, lanes, blocks, a, b, scale_a, scale_b, &c);
        if (!status)
            *result = c;
        return status;
    }
    if (how->kind == MXFP_SEQUENTIAL && how->group)
        group = how->group > 0 ? (size_t)how->group : lanes + 1;
    if (!is_float(how->float_format) || lanes % group || (how->kind == MXFP_FIXED && !is_fixed(&how->fixed)))
        return MXFP_BAD;
    for (first = 0; first < MXFP_EXACT_WORDS; first++)
        exact[first] = 0;
    for (block = 0; block < blocks; block++)
        for (first = 0; first < lanes; first += group) {
            size_t at = block * lanes + first;
            mxfp_block_term(format_a, format_b, group, a + at, b + at, scale_a[block], scale_b[block], &term);
            if (how->kind == MXFP_SEQUENTIAL) {
                state = mxfp_sequential(how->float_format, state, &term);
            } else {
                one = how->kind == MXFP_EXACT ? mxfp_exact_add(exact, &term)
                                              : mxfp_fixed_add(&how->fixed, &value, &nan, &term);
                status = one > status ? one : status;
            }
        }
    if (how->kind == MXFP_EXACT)
        state = mxfp_exact_result(how->float_format, exact);
    else if (how->kind == MXFP_FIXED)
        state = mxfp_fixed_result(how->float_format, &how->fixed, value, nan);
    *result = state;
    return status;
}

int mxfp_dot_batch(const mxfp_accumulator *how, int format_a, int format_b, size_t lanes, size_t blocks,
                   size_t cases, const uint8_t *a, const uint8_t *b, const uint8_t *scale_a, const uint8_t *scale_b,
                   uint64_t *results, uint8_t *status)
{
    int worst = MXFP_OK, given = lanes <= MXFP_MAX_LANES && a && b && scale_a && scale_b && results;
    size_t n;

    for (n = 0; n < cases; n++) {
        size_t codes = n * lanes * blocks, scales = n * blocks;
        int one = MXFP_BAD;
        if (given)
            one = mxfp_dot(how, format_a, format_b, lanes, blocks, a + codes, b + codes, scale_a + scales,
                           scale_b + scales, results + n);
        if (status)
            status[n] = (uint8_t)one;
        worst = one > worst ? one : worst;
    }
    return worst;
}

void mxfp_dot_batch_f32(size_t cases, size_t blocks, const uint8_t *a, const uint8_t *b, const uint8_t *scale_a,
                        const uint8_t *scale_b, uint32_t *results, int32_t *sums, int32_t *exponents)
{
    mxfp_term term;
    size_t n, at;

    for (n = 0; n < cases; n++) {
        uint32_t state = 0;
        for (at = n * blocks; at < (n + 1) * blocks; at++) {
            mxfp_block_term(MXFP_MXFP4, MXFP_MXFP4, 32, a + 32 * at, b + 32 * at, scale_a[at], scale_b[at], &term);
            state = mxfp_sequential_f32(state, &term);
            if (sums)
                sums[at] = term.sum;
            if (exponents)
                exponents[at] = term.exponent;
        }
        results[n] = state;
    }
}

/* ---- DPI-C -------------------------------------------------------------------------------------------------- */

/* Packed codes of 4 bits -> bytes. */
static void unpacked(size_t count, const uint32_t *packed, uint8_t *codes)
{
    size_t i;
    for (i = 0; i < count; i++)
        codes[i] = (uint8_t)(packed[i / 8] >> (4 * (i % 8)) & 15);
}

static mxfp_term packed_term(const uint32_t *a, const uint32_t *b, uint32_t scale_a, uint32_t scale_b)
{
    uint8_t x[32], y[32];
    mxfp_term term;

    unpacked(32, a, x);
    unpacked(32, b, y);
    mxfp_block_term(MXFP_MXFP4, MXFP_MXFP4, 32, x, y, scale_a, scale_b, &term);
    return term;
}

int32_t mxfp_dpi_decode(uint32_t code)
{
    return mxfp_decode(MXFP_MXFP4, code);
}

int32_t mxfp_dpi_sum(const uint32_t *a, const uint32_t *b)
{
    return packed_term(a, b, 0, 0).sum;
}

void mxfp_dpi_stages(const uint32_t *a, const uint32_t *b, int32_t *products, int32_t *levels)
{
    uint8_t x[32], y[32];

    unpacked(32, a, x);
    unpacked(32, b, y);
    mxfp_stages(MXFP_MXFP4, MXFP_MXFP4, 32, x, y, products, levels);
}

void mxfp_dpi_term(const uint32_t *a, const uint32_t *b, uint32_t scale_a, uint32_t scale_b, int32_t *sum,
                   int32_t *exponent, int32_t *special)
{
    mxfp_term term = packed_term(a, b, scale_a, scale_b);
    *sum = term.sum;
    *exponent = term.exponent;
    *special = term.special;
}

uint32_t mxfp_dpi_sequential_f32(uint32_t state, const uint32_t *a, const uint32_t *b, uint32_t scale_a,
                                 uint32_t scale_b)
{
    mxfp_term term = packed_term(a, b, scale_a, scale_b);
    return (uint32_t)mxfp_sequential(MXFP_FLOAT32, state, &term);
}

uint32_t mxfp_dpi_sequential_f16(uint32_t state, const uint32_t *a, const uint32_t *b, uint32_t scale_a,
                                 uint32_t scale_b)
{
    mxfp_term term = packed_term(a, b, scale_a, scale_b);
    return (uint32_t)mxfp_sequential(MXFP_FLOAT16, state, &term);
}

uint32_t mxfp_dpi_sequential_bf16(uint32_t state, const uint32_t *a, const uint32_t *b, uint32_t scale_a,
                                  uint32_t scale_b)
{
    mxfp_term term = packed_term(a, b, scale_a, scale_b);
    return (uint32_t)mxfp_sequential(MXFP_BFLOAT16, state, &term);
}

int32_t mxfp_dpi_fixed(int32_t width, int32_t lsb_exponent, int32_t overflow, int32_t rounding, const uint32_t *a,
                       const uint32_t *b, uint32_t scale_a, uint32_t scale_b, int64_t *value, int32_t *nan)
{
    mxfp_term term = packed_term(a, b, scale_a, scale_b);
    mxfp_fixed how;

    how.width = width;
    how.lsb_exponent = lsb_exponent;
    how.overflow = overflow;
    how.rounding = rounding;
    return mxfp_fixed_add(&how, value, nan, &term);
}

void mxfp_dpi_exact(uint32_t *state, const uint32_t *a, const uint32_t *b, uint32_t scale_a, uint32_t scale_b)
{
    mxfp_term term = packed_term(a, b, scale_a, scale_b);
    mxfp_exact_add(state, &term);
}

uint32_t mxfp_dpi_exact_f32(const uint32_t *state)
{
    return (uint32_t)mxfp_exact_result(MXFP_FLOAT32, state);
}

uint32_t mxfp_dpi_fused(int32_t fraction_bits, int32_t group, int32_t step, int32_t zero_exponent,
                        int32_t result_bits, int32_t blocks, uint32_t c, const uint32_t *a, const uint32_t *b,
                        const uint32_t *scale_a, const uint32_t *scale_b)
{
    uint8_t x[64], y[64], scales_a[2], scales_b[2];
    mxfp_fused how;

    if (blocks < 1 || blocks > 2)
        return TENSOR_CORE_NAN;
    how.fraction_bits = fraction_bits;
    how.group = group;
    how.step = step;
    how.zero_exponent = zero_exponent;
    how.products = 0;
    how.result_bits = result_bits;
    unpacked(64, a, x);
    unpacked(64, b, y);
    scales_a[0] = (uint8_t)(*scale_a & 255);
    scales_a[1] = (uint8_t)(*scale_a >> 8 & 255);
    scales_b[0] = (uint8_t)(*scale_b & 255);
    scales_b[1] = (uint8_t)(*scale_b >> 8 & 255);
    if (fused_blocks(&how, MXFP_MXFP4, MXFP_MXFP4, 32, (size_t)blocks, x, y, scales_a, scales_b, &c))
        return TENSOR_CORE_NAN;
    return c;
}

uint32_t mxfp_dpi_blackwell(uint32_t c, const uint32_t *a, const uint32_t *b, const uint32_t *scale_a,
                            const uint32_t *scale_b)
{
    return mxfp_dpi_fused(35, 16, 64, -139, 23, 2, c, a, b, scale_a, scale_b);
}
