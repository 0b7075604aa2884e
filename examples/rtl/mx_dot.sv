// SPDX-License-Identifier: Apache-2.0
// The scaled dot product of one block, exactly: sum * 2**exponent, or NaN.
module mx_dot #(
    parameter int LANES = 32,
    parameter int SUM_BITS = 14
) (
    input  logic        [4*LANES-1:0]  a,
    input  logic        [4*LANES-1:0]  b,
    input  logic        [7:0]          scale_a,  // E8M0: 2**(code - 127), and 255 is NaN
    input  logic        [7:0]          scale_b,
    output logic signed [SUM_BITS-1:0] sum,
    output logic signed [8:0]          exponent, // -256 ... 254
    output logic                       is_nan    // even if every code is zero
);
    mx_sum #(.LANES(LANES), .SUM_BITS(SUM_BITS)) sum_of_products (.a(a), .b(b), .sum(sum));

    // The scales are 2**-127 each at code 0, and the products are in quarters: 2 * 127 + 2.
    // Nine bits hold -256 ... 255, so what the 256 takes away is the carry.
    assign exponent = $signed({1'b0, scale_a} + {1'b0, scale_b} - 9'd256);
    assign is_nan = scale_a == 8'd255 || scale_b == 8'd255;
endmodule
