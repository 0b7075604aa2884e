// SPDX-License-Identifier: Apache-2.0
// The exact sum of LANES products of E2M1 codes, in units of one quarter.
//
// Products have 9 bits, and every level of the tree one more: 10, 11, 12, 13 and, for 32 lanes, 14. No level is
// wider than SUM_BITS. Signed 13 bits hold 28 of the largest products; a 29th wraps.
module mx_sum #(
    parameter int LANES = 32,    // a power of two, 2 or more
    parameter int SUM_BITS = 14
) (
    input  logic        [4*LANES-1:0]  a,  // lane 0 in the lowest bits
    input  logic        [4*LANES-1:0]  b,
    output logic signed [SUM_BITS-1:0] sum
);
    localparam int LEVELS = $clog2(LANES);
    logic [9*LANES-1:0] products;

    for (genvar lane = 0; lane < LANES; lane++) begin : lanes
        logic signed [4:0] x, y;
        logic signed [8:0] product;
        mx_e2m1 decode_a (.code(a[4*lane +: 4]), .value(x));
        mx_e2m1 decode_b (.code(b[4*lane +: 4]), .value(y));
        assign product = 9'(x) * 9'(y);
        assign products[9*lane +: 9] = product;
    end

    for (genvar level = 1; level <= LEVELS; level++) begin : tree
        localparam int IN = 8 + level < SUM_BITS ? 8 + level : SUM_BITS;
        localparam int OUT = 9 + level < SUM_BITS ? 9 + level : SUM_BITS;
        localparam int NODES = LANES >> level;
        logic [2*NODES*IN-1:0] below;
        logic [NODES*OUT-1:0] sums;

        if (level == 1) assign below = products;
        else assign below = tree[level-1].sums;

        for (genvar node = 0; node < NODES; node++) begin : nodes
            logic signed [IN-1:0] left, right;
            logic signed [OUT-1:0] added;
            assign left = below[IN*2*node +: IN];
            assign right = below[IN*(2*node+1) +: IN];
            assign added = OUT'(left) + OUT'(right);
            assign sums[OUT*node +: OUT] = added;
        end
    end

    assign sum = tree[LEVELS].sums;
endmodule
