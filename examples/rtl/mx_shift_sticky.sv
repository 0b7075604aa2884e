// SPDX-License-Identifier: Apache-2.0
// A shift to the right that forgets nothing a later rounding asks for: the last bit of the result is also 1 if any
// bit that fell off was.
module mx_shift_sticky #(
    parameter int BITS = 40
) (
    input  logic [BITS-1:0] x,
    input  logic [11:0]     amount,
    output logic [BITS-1:0] y
);
    logic [BITS-1:0] shifted;
    logic lost;

    assign shifted = x >> amount;
    assign lost = (shifted << amount) != x;
    assign y = shifted | {{(BITS - 1) {1'b0}}, lost};
endmodule
