# SPDX-License-Identifier: Apache-2.0
"""Bugs to plant in the RTL: each one is an exact text of one file and what stands there instead.

`run_mutants.py` plants them one by one in a copy and runs the vectors. Most are bugs that units have had.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One planted bug. wrong: what is wrong, in words. behaviour: what `mxfp check` calls it, or ""."""

    name: str
    file: str
    old: str
    new: str
    wrong: str
    behaviour: str = ""

    def plant(self, text):
        """The file's text -> the text with the bug in it."""
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: {self.file} has {text.count(self.old)} times the text {self.old!r}"
            )
        return text.replace(self.old, self.new)


PRODUCT = "assign product = 9'(x) * 9'(y);"
LANE_B = ".code(b[4*lane +: 4])"
ADDED = "assign added = OUT'(left) + OUT'(right);"
DROPPED = """logic signed [OUT-1:0] whole;
            logic signed [OUT-2:0] narrow;
            assign whole = OUT'(left) + OUT'(right);
            assign narrow = whole[OUT-2:0];
            assign added = level == {} ? OUT'(narrow) : whole;"""
IS_NAN = "assign is_nan = scale_a == 8'd255 || scale_b == 8'd255;"
EXPONENT = "$signed({1'b0, scale_a} + {1'b0, scale_b} - 9'd256)"
DOT = """mx_dot #(.LANES(32), .SUM_BITS(SUM_BITS)) dot (
        .a(a), .b(b), .scale_a(scale_a), .scale_b(scale_b),"""
LATE = """logic [7:0] late;
    always_ff @(posedge clk) late <= scale_a;
    mx_dot #(.LANES(32), .SUM_BITS(SUM_BITS)) dot (
        .a(a), .b(b), .scale_a(late), .scale_b(scale_b),"""
UP = "assign up = NEAREST_EVEN && guard && (sticky || significand[0]);"
ROUNDED = "assign rounded = {below, 23'd0} + {8'd0, significand} + {31'd0, up};"
TWICE = """logic [26:0] once;
    assign once = {1'b0, placed[BITS-1 -: 26]}
                + 27'(placed[BITS-27] && (|placed[BITS-28:0] || placed[BITS-26]));
    assign rounded = {below, 23'd0} + {7'd0, once[26:2]} + 32'(once[1] && (once[0] || once[2]));"""
OVERFLOW = ": overflow ? {sign, 8'hFF, 23'd0}"
RESULT = ": {sign, rounded[30:0]};"
FIRST = "assign held = first ? 32'h0000_0000 : acc;"
AMOUNT_ACC = ".amount(acc_moves ? -distance : 12'd0)"
AMOUNT_TERM = ".amount(acc_moves ? 12'd0 : distance)"

DECODER, SUM, DOT_SV, SHIFT = "mx_e2m1.sv", "mx_sum.sv", "mx_dot.sv", "mx_shift_sticky.sv"
PACK, ACC, MAC, BLACKWELL = "mx_fp32_pack.sv", "mx_fp32_acc.sv", "mx_mac.sv", "mx_blackwell.sv"

MUTANTS = (
    # The codes.
    Mutant(
        "subnormal_code_zero",
        DECODER,
        "3'd1: magnitude = 5'sd1;",
        "3'd1: magnitude = 5'sd0;",
        "0.5 is read as 0",
        "subnormal-elements-zero-ab",
    ),
    Mutant(
        "subnormal_code_one",
        DECODER,
        "3'd1: magnitude = 5'sd1;",
        "3'd1: magnitude = 5'sd2;",
        "0.5 is read as 1",
        "subnormal-elements-twice-ab",
    ),
    Mutant(
        "codes_as_integers",
        DECODER,
        "3'd5: magnitude = 5'sd6;",
        "3'd5: magnitude = 5'sd5;",
        "3 is read as 2.5",
        "code5-is-5-ab",
    ),
    Mutant(
        "negative_zero",
        DECODER,
        "code[3] ? -magnitude",
        "code == 4'd8 ? -5'sd1 : code[3] ? -magnitude",
        "-0 is read as -0.5",
        "negative-zero-least-ab",
    ),
    Mutant(
        "ones_complement",
        DECODER,
        "code[3] ? -magnitude",
        "code[3] ? ~magnitude",
        "negative codes are inverted, and the 1 is not added",
        "codes-ones-complement-ab",
    ),
    # The products and the lanes.
    Mutant(
        "half_products",
        SUM,
        PRODUCT,
        "assign product = (x == 1 || x == -1) && (y >= 4 || y <= -4) ? 9'sd0 : 9'(x) * 9'(y);",
        "±0.5 times ±2, 3, 4, 6 is 0",
        "product-of-0.5-0-a",
    ),
    Mutant(
        "lane_sign",
        SUM,
        PRODUCT,
        "assign product = lane == 13 ? -(9'(x) * 9'(y)) : 9'(x) * 9'(y);",
        "the product of lane 13 has the wrong sign",
        "lane13-sign-inverted",
    ),
    Mutant(
        "product_8_bits",
        SUM,
        PRODUCT,
        "assign product = 9'($signed(8'(9'(x) * 9'(y))));",
        "products are cut to 8 bits: ±6 times ±6, 144, wraps",
        "products-wrap-8",
    ),
    Mutant(
        "last_lane_missing",
        SUM,
        PRODUCT,
        "assign product = lane == LANES - 1 ? 9'sd0 : 9'(x) * 9'(y);",
        "the last lane is not connected",
        "lane31-dropped",
    ),
    Mutant(
        "two_lanes_swapped",
        SUM,
        LANE_B,
        ".code(b[4*(lane / 2 == 5 ? 21 - lane : lane) +: 4])",
        "lanes 10 and 11 of b are swapped",
        "lanes-10-11-swapped",
    ),
    Mutant(
        "lanes_reversed",
        SUM,
        LANE_B,
        ".code(b[4*(LANES - 1 - lane) +: 4])",
        "b has its first lane at the top",
        "lanes-reversed",
    ),
    Mutant(
        "nibbles_swapped",
        SUM,
        LANE_B,
        ".code(b[4*(lane ^ 1) +: 4])",
        "b has the first code of each byte in the upper half",
        "nibbles-swapped",
    ),
    # The adder tree.
    *(
        Mutant(
            f"level_{level}_carry",
            SUM,
            ADDED,
            DROPPED.format(level),
            f"level {level} of the tree has {8 + level} bits, not {9 + level}",
            f"level{level}-wraps-{8 + level}",
        )
        for level in (1, 2, 3, 4)
    ),
    Mutant(
        "sum_13_bits",
        SUM,
        ADDED,
        DROPPED.format(5),
        "the sum of 32 products has 13 bits, not 14, and wraps",
        "level5-wraps-13",
    ),
    Mutant(
        "sum_saturates",
        SUM,
        ADDED,
        """logic signed [OUT-1:0] whole;
            assign whole = OUT'(left) + OUT'(right);
            assign added = level == 5 && whole > 4095 ? OUT'(4095)
                         : level == 5 && whole < -4096 ? OUT'(-4096) : whole;""",
        "the sum of 32 products has 13 bits, and saturates",
        "level5-saturates-13",
    ),
    Mutant(
        "level_3_unsigned",
        SUM,
        ADDED,
        "assign added = level == 3 ? OUT'({1'b0, left}) + OUT'({1'b0, right}) : OUT'(left) + OUT'(right);",
        "level 3 extends its addends with zeros, not with their signs",
        "level3-addends-unsigned",
    ),
    # The scales.
    Mutant(
        "nan_a_ignored",
        DOT_SV,
        IS_NAN,
        "assign is_nan = scale_b == 8'd255;",
        "code 255 of the scale of a is 2**128",
        "nan-scale-ignored-a",
    ),
    Mutant(
        "nan_b_ignored",
        DOT_SV,
        IS_NAN,
        "assign is_nan = scale_a == 8'd255;",
        "code 255 of the scale of b is 2**128",
        "nan-scale-ignored-b",
    ),
    Mutant(
        "nan_takes_two",
        DOT_SV,
        IS_NAN,
        "assign is_nan = scale_a == 8'd255 && scale_b == 8'd255;",
        "a NaN scale counts only if both are",
        "nan-scale-needs-both",
    ),
    Mutant(
        "nan_times_zero",
        DOT_SV,
        IS_NAN,
        "assign is_nan = (scale_a == 8'd255 || scale_b == 8'd255) && sum != '0;",
        "a NaN scale does not count where the sum is zero",
        "nan-scale-of-zero-sum",
    ),
    Mutant(
        "exponent_8_bits",
        DOT_SV,
        EXPONENT,
        "9'($signed(8'(scale_a + scale_b)))",
        "the sum of the scales has 8 bits, and wraps",
        "exponent-wraps-8-sum",
    ),
    Mutant(
        "exponent_bias",
        DOT_SV,
        EXPONENT,
        EXPONENT.replace("256", "254"),
        "the two halves of the products' unit are forgotten: everything is 4 times too large",
        "exponent+2",
    ),
    Mutant(
        "scale_a_twice",
        DOT_SV,
        EXPONENT,
        EXPONENT.replace("scale_b", "scale_a"),
        "the scale of a is used for both sides",
        "exponent-a-for-both",
    ),
    Mutant(
        "scale_of_last_block",
        MAC,
        DOT,
        LATE,
        "the scale of a is that of the block before",
        "scales-a-of-case-before",
    ),
    # Rounding to float32.
    Mutant(
        "exponent_wraps",
        PACK,
        "$signed(leading) + unit + 12'sd127;",
        "12'($signed(9'($signed(leading) + unit + 12'sd127)));",
        "the exponent of the result wraps in 9 bits: what should overflow is 0",
        "overflow-wraps-9",
    ),
    Mutant(
        "overflow_max",
        PACK,
        OVERFLOW,
        ": overflow ? {sign, 31'h7F7F_FFFF}",
        "overflow gives the largest float32",
        "overflow-largest",
    ),
    Mutant(
        "overflow_zero", PACK, OVERFLOW, ": overflow ? 32'h0000_0000", "overflow gives 0", "overflow-zero"
    ),
    Mutant(
        "overflow_nan",
        PACK,
        OVERFLOW,
        ": overflow ? {sign, rounded[30:0]}",
        "the exponent runs past the field of infinity",
        "overflow-wraps-8",
    ),
    Mutant(
        "subnormals_flushed",
        PACK,
        RESULT,
        ": rounded < 32'h0080_0000 ? {sign, 31'd0} : {sign, rounded[30:0]};",
        "results below the smallest normal are 0",
        "subnormal-signed-zero",
    ),
    Mutant(
        "half_subnormal_flushed",
        PACK,
        RESULT,
        ": exponent < -12'sd22 ? {sign, 31'd0} : {sign, rounded[30:0]};",
        "what is between half the smallest subnormal and all of it is 0",
        "least-zero",
    ),
    Mutant(
        "half_subnormal_up",
        PACK,
        UP,
        "assign up = NEAREST_EVEN && guard && (sticky || significand[0] || significand == 24'd0);",
        "half the smallest subnormal, a tie, goes up",
        "least-up",
    ),
    Mutant(
        "subnormals_halved",
        PACK,
        "is_subnormal ? 12'sd1 - exponent",
        "is_subnormal ? 12'sd2 - exponent",
        "results below the smallest normal come out half as large",
        "subnormal-halved",
    ),
    Mutant(
        "sticky_lost",
        PACK,
        "assign sticky = |placed[BITS-26:0];",
        "assign sticky = 1'b0;",
        "no sticky bit: what is above a tie is rounded like one",
        "sticky-lost-1",
    ),
    Mutant(
        "sticky_lost_in_shift",
        SHIFT,
        "assign y = shifted | {{(BITS - 1) {1'b0}}, lost};",
        "assign y = shifted;",
        "bits that fall off in an alignment are forgotten",
        "adder-40",
    ),
    Mutant(
        "round_half_up",
        PACK,
        UP,
        "assign up = NEAREST_EVEN && guard;",
        "ties go away from zero",
        "round-half-away",
    ),
    Mutant(
        "round_half_down",
        PACK,
        UP,
        "assign up = NEAREST_EVEN && guard && sticky;",
        "ties go toward zero",
        "round-half-to-zero",
    ),
    Mutant(
        "ties_to_odd",
        PACK,
        UP,
        "assign up = NEAREST_EVEN && guard && (sticky || !significand[0]);",
        "ties go to the odd one",
        "round-half-to-odd",
    ),
    Mutant("truncation", PACK, UP, "assign up = 1'b0;", "results are cut, not rounded", "truncation"),
    Mutant(
        "rounded_twice",
        PACK,
        ROUNDED,
        TWICE,
        "rounded to 26 bits first, and then to 24",
        "double-rounding-26 + adder-40-sticky",
    ),
    Mutant(
        "rounding_carry",
        PACK,
        ROUNDED,
        "assign rounded = {below, 23'd0} + {8'd0, significand + {23'd0, up}};",
        "the carry of a significand that rounds up to 2 is dropped",
        "rounding-carry-lost",
    ),
    # The accumulator.
    Mutant(
        "first_ignored",
        ACC,
        FIRST,
        "assign held = acc;",
        "a new dot product starts from the old result",
        "accumulator-stale",
    ),
    Mutant(
        "never_accumulates",
        ACC,
        FIRST,
        "assign held = 32'h0000_0000;",
        "every block starts from zero",
        "accumulator-forgotten",
    ),
    Mutant(
        "valid_ignored",
        ACC,
        "else if (valid) acc",
        "else if (valid || !rst) acc",
        "cycles without a block are added too",
    ),
    Mutant(
        "negative_cancellation",
        PACK,
        "magnitude == '0 ? 32'h0000_0000",
        "magnitude == '0 ? {sign, 31'd0}",
        "an exact cancellation has the sign of the accumulator: -0",
        "cancellation-of-state",
    ),
    Mutant(
        "cancellation_not_zero",
        ACC,
        ": rounded;",
        ": total == '0 && mantissa != 24'd0 ? 32'h0100_0000 : rounded;",
        "an exact cancellation gives 2**-125",
        "cancellation-2^-125",
    ),
    Mutant(
        "hidden_bit",
        ACC,
        "assign mantissa = {acc_normal,",
        "assign mantissa = {held[30:0] != 31'd0,",
        "a subnormal accumulator is given a hidden bit",
        "input-subnormal-hidden-bit",
    ),
    Mutant(
        "subnormal_exponent",
        ACC,
        "acc_normal ? held[30:23] : 8'd1",
        "held[30:23]",
        "a subnormal accumulator counts half",
        "input-subnormal-halved",
    ),
    Mutant(
        "accumulator_flushed",
        ACC,
        "assign acc_magnitude = {mantissa,",
        "assign acc_magnitude = {acc_normal ? mantissa : 24'd0,",
        "a subnormal accumulator counts as zero",
        "input-subnormal-zero",
    ),
    Mutant(
        "shift_wraps",
        ACC,
        AMOUNT_TERM,
        ".amount(acc_moves ? 12'd0 : {6'd0, distance[5:0]})",
        "the distance of a term has 6 bits: 64 further down it comes back",
        "term-shift-wraps-6",
    ),
    Mutant(
        "shift_clamped",
        ACC,
        AMOUNT_TERM,
        ".amount(acc_moves ? 12'd0 : distance > 24 ? 12'd24 : distance)",
        "a term is shifted by 24 at most",
        "term-shift-at-most-24",
    ),
    Mutant(
        "acc_shift_clamped",
        ACC,
        AMOUNT_ACC,
        ".amount(acc_moves ? -distance > 31 ? 12'd31 : -distance : 12'd0)",
        "the accumulator is shifted by 31 at most",
        "state-shift-at-most-31",
    ),
    Mutant(
        "zero_term_moves",
        ACC,
        "distance < 0 && sum_magnitude != '0",
        "distance < 0",
        "a block of zeros with large scales shifts the accumulator out",
        "adder-40-zero",
    ),
    Mutant(
        "window_narrow",
        ACC,
        "localparam int ROOM = 26;",
        "localparam int ROOM = 12;",
        "below a sum there is room for 12 bits, not for 26",
        "adder-26-sticky",
    ),
    Mutant(
        "subtraction_sign",
        ACC,
        "assign sign = acc_larger ? acc_sign : term_sign;",
        "assign sign = acc_sign;",
        "the result has the sign of the accumulator, whichever is larger",
        "sign-of-state",
    ),
    Mutant(
        "nan_forgotten",
        ACC,
        ": acc_special ? held\n",
        ": acc_special && held[22:0] == 23'd0 ? held\n",
        "the block after a NaN makes it a number",
        "input-nan-number",
    ),
    Mutant(
        "infinity_forgotten",
        ACC,
        ": acc_special ? held\n",
        ": acc_special && held[22:0] != 23'd0 ? held\n",
        "the block after an infinity makes it a number",
        "input-infinity-number",
    ),
    # The Blackwell-style unit.
    Mutant(
        "fraction_25",
        BLACKWELL,
        "parameter int FRACTION_BITS = 35,",
        "parameter int FRACTION_BITS = 25,",
        "25 fraction bits, as of f8f6f4, not 35",
        "accumulator-fused:25:16:64:-139:scales:23",
    ),
    Mutant(
        "fraction_34",
        BLACKWELL,
        "parameter int FRACTION_BITS = 35,",
        "parameter int FRACTION_BITS = 34,",
        "34 fraction bits, not 35",
        "accumulator-fused:34:16:64:-139:scales:23",
    ),
    Mutant(
        "cancelled_group",
        BLACKWELL,
        "<= |products ?",
        "<= |products && group_sum != '0 ?",
        "a group that cancels is taken for one of zeros",
        "cancelled-group-zero",
    ),
    Mutant(
        "zero_group_aligns",
        BLACKWELL,
        "<= |products ?",
        "<= |products || 1'b1 ?",
        "a group of zeros has the exponent of its scales",
        "zero-group-aligns",
    ),
    Mutant(
        "zero_exponent",
        BLACKWELL,
        "ZERO_EXPONENT = -139",
        "ZERO_EXPONENT = -126",
        "zeros have the exponent of the smallest normal",
        "accumulator-fused:35:16:64:-126:scales:23",
    ),
    Mutant(
        "rounds_to_nearest",
        BLACKWELL,
        ".NEAREST_EVEN(0)",
        ".NEAREST_EVEN(1)",
        "the result is rounded to nearest even",
    ),
    Mutant(
        "floor_alignment",
        BLACKWELL,
        "assign addends[TOTAL_BITS*group +: TOTAL_BITS] = group_sum[GROUP_BITS-1] ? -cut : cut;",
        """logic signed [TOTAL_BITS-1:0] whole;
        assign whole = $signed({{2{group_sum[GROUP_BITS-1]}}, group_sum, {(FRACTION_BITS - 2) {1'b0}}})
                       >>> distance;
        assign addends[TOTAL_BITS*group +: TOTAL_BITS] = whole;""",
        "negative groups are cut toward minus infinity",
    ),
    Mutant(
        "blackwell_scale_order",
        BLACKWELL,
        ".scale_a(scale_a[8*BLOCK +: 8])",
        ".scale_a(scale_a[8*(group % 2) +: 8])",
        "groups take the scales of a in turns, not in pairs",
    ),
    Mutant(
        "blackwell_minus_zero",
        BLACKWELL,
        ": cut[30:0] == 31'd0 ? 32'h0000_0000\n",
        ": cut[30:0] == 31'd1 ? 32'h0000_0001\n",
        "a negative result that is cut to zero is -0",
    ),
    Mutant(
        "blackwell_nan", BLACKWELL, "32'h7FFF_FFFF", "32'h7FC0_0000", "NaN is 0x7FC00000", "nan-is-7fc00000"
    ),
    Mutant(
        "blackwell_first_ignored",
        BLACKWELL,
        "term_first ? 32'h0000_0000 : result",
        "result",
        "a new dot product starts from the old result",
    ),
)
