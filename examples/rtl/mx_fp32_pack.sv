// SPDX-License-Identifier: Apache-2.0
// Sign, magnitude * 2**unit -> float32, rounded once: to nearest even, or toward zero. Subnormals are kept, overflow
// is infinity. A magnitude of zero is +0; what is nonzero and rounds to zero keeps its sign.
module mx_fp32_pack #(
    parameter int BITS = 41,  // 26 or more
    parameter bit NEAREST_EVEN = 1
) (
    input  logic               sign,
    input  logic [BITS-1:0]    magnitude,
    input  logic signed [11:0] unit,
    output logic [31:0]        result
);
    // The leading bit goes to the top.
    logic [11:0] leading;
    logic [BITS-1:0] normal;
    logic signed [11:0] exponent;  // biased, of the leading bit

    always_comb begin
        leading = 12'd0;
        for (int i = 0; i < BITS; i++) if (magnitude[i]) leading = 12'(i);
    end
    assign normal = magnitude << (12'(BITS - 1) - leading);
    assign exponent = $signed(leading) + unit + 12'sd127;

    // Below the smallest normal it moves down again, so that the last bit kept is 2**-149.
    logic is_subnormal;
    logic [11:0] amount;
    logic [BITS-1:0] placed;

    assign is_subnormal = exponent < 12'sd1;
    assign amount = is_subnormal ? 12'sd1 - exponent : 12'd0;
    mx_shift_sticky #(.BITS(BITS)) place (.x(normal), .amount(amount), .y(placed));

    // The one rounding. A carry out of the significand goes on into the exponent, as it must.
    logic [23:0] significand;
    logic guard, sticky, up;
    logic [8:0] below;  // the exponent field, less the 1 that the leading bit of the significand adds
    logic [31:0] rounded;

    assign significand = placed[BITS-1 -: 24];
    assign guard = placed[BITS-25];
    assign sticky = |placed[BITS-26:0];
    assign up = NEAREST_EVEN && guard && (sticky || significand[0]);
    assign below = is_subnormal ? 9'd0 : 9'(exponent - 12'sd1);
    assign rounded = {below, 23'd0} + {8'd0, significand} + {31'd0, up};

    logic overflow;
    assign overflow = rounded >= {9'd255, 23'd0};
    assign result = magnitude == '0 ? 32'h0000_0000
                  : overflow ? {sign, 8'hFF, 23'd0}
                  : {sign, rounded[30:0]};
endmodule
