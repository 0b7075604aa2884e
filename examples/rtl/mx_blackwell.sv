// SPDX-License-Identifier: Apache-2.0
// The adder of a Blackwell tensor core for MXFP4, as published with MMA-Sim (arXiv:2511.10909): 64 products, two
// blocks of 32, a cycle. This is mxfp.BLACKWELL_MXFP4.
//
// Four exact sums of 16 products and the running result are aligned to the largest of their exponents, cut toward zero
// FRACTION_BITS below it, added exactly, and cut toward zero to a float32. Latency as of mx_mac: two cycles.
module mx_blackwell #(
    parameter int FRACTION_BITS = 35,
    parameter int ZERO_EXPONENT = -139  // of a sum whose products are all zero, and of a result that is zero
) (
    input  logic               clk,
    input  logic               rst,
    input  logic               valid,
    input  logic               first,  // these blocks start a new dot product
    input  logic [255:0]       a,      // 64 codes, element 0 in the lowest bits
    input  logic [255:0]       b,
    input  logic [15:0]        scale_a,  // of the first block in the lowest bits
    input  logic [15:0]        scale_b,
    output logic               valid_out,
    output logic [31:0]        result,
    output logic [27:0]        sum,       // of each block, for a scoreboard: as mx_mac's
    output logic [17:0]        exponent,
    output logic [7:0]         special
);
    localparam int GROUP_BITS = 13;  // -2304 ... 2304
    // An aligned sum has its point FRACTION_BITS up, less two for the quarters of its unit; five addends take two more
    // bits, and one holds the sign.
    localparam int TOTAL_BITS = GROUP_BITS + FRACTION_BITS - 2 + 2;

    logic signed [11:0] zero_exponent;
    assign zero_exponent = 12'(ZERO_EXPONENT);

    // Stage 1: four sums of 16, each with the exponent of its scales. A sum that cancels is not a sum of zeros.
    logic [4*GROUP_BITS-1:0] term_sums;
    logic [4*12-1:0] term_exponents;
    logic [1:0] term_nans;
    logic [17:0] term_lsbs;
    logic term_valid, term_first;

    for (genvar group = 0; group < 4; group++) begin : groups
        localparam int BLOCK = group / 2;
        logic signed [GROUP_BITS-1:0] group_sum;
        logic signed [8:0] group_lsb;
        logic group_nan;
        logic [15:0] products;  // which are not zero

        mx_dot #(.LANES(16), .SUM_BITS(GROUP_BITS)) dot (
            .a(a[64*group +: 64]), .b(b[64*group +: 64]),
            .scale_a(scale_a[8*BLOCK +: 8]), .scale_b(scale_b[8*BLOCK +: 8]),
            .sum(group_sum), .exponent(group_lsb), .is_nan(group_nan)
        );
        for (genvar lane = 0; lane < 16; lane++) begin : lanes
            assign products[lane] = |a[64*group + 4*lane +: 3] && |b[64*group + 4*lane +: 3];
        end

        always_ff @(posedge clk) begin
            term_sums[GROUP_BITS*group +: GROUP_BITS] <= group_sum;
            term_exponents[12*group +: 12] <= |products ? 12'(group_lsb) + 12'sd2 : zero_exponent;
            if (group % 2 == 0) begin
                term_nans[BLOCK] <= group_nan;
                term_lsbs[9*BLOCK +: 9] <= group_lsb;
            end
        end
    end

    always_ff @(posedge clk) begin
        term_valid <= valid && !rst;
        term_first <= first;
    end

    // Stage 2: the running result, split into exponent and significand.
    logic [31:0] held;
    logic held_normal;
    logic [23:0] mantissa;
    logic signed [11:0] held_exponent;

    assign held = term_first ? 32'h0000_0000 : result;
    assign held_normal = held[30:23] != 8'd0;
    assign mantissa = {held_normal, held[22:0]};
    assign held_exponent = mantissa == 24'd0 ? zero_exponent
                         : $signed({4'd0, held_normal ? held[30:23] : 8'd1}) - 12'sd127;

    // The largest exponent of the five.
    logic signed [11:0] largest;

    always_comb begin
        largest = held_exponent;
        for (int group = 0; group < 4; group++)
            if ($signed(term_exponents[12*group +: 12]) > largest) largest = term_exponents[12*group +: 12];
    end

    // Each addend shifted to it and cut, sign and magnitude, which is toward zero.
    logic [4*TOTAL_BITS-1:0] addends;
    logic signed [TOTAL_BITS-1:0] held_addend, total;

    for (genvar group = 0; group < 4; group++) begin : alignment
        logic signed [GROUP_BITS-1:0] group_sum;
        logic [GROUP_BITS-1:0] magnitude;
        logic [11:0] distance;
        logic [TOTAL_BITS-1:0] cut;
        assign group_sum = term_sums[GROUP_BITS*group +: GROUP_BITS];
        assign magnitude = group_sum[GROUP_BITS-1] ? -group_sum : group_sum;
        assign distance = largest - term_exponents[12*group +: 12];
        assign cut = {2'b00, magnitude, {(FRACTION_BITS - 2) {1'b0}}} >> distance;
        assign addends[TOTAL_BITS*group +: TOTAL_BITS] = group_sum[GROUP_BITS-1] ? -cut : cut;
    end

    logic [TOTAL_BITS-1:0] held_cut;
    assign held_cut = {{(TOTAL_BITS - FRACTION_BITS - 1) {1'b0}}, mantissa, {(FRACTION_BITS - 23) {1'b0}}}
                      >> (largest - held_exponent);
    assign held_addend = held[31] ? -held_cut : held_cut;
    assign total = held_addend + $signed(addends[0 +: TOTAL_BITS]) + $signed(addends[TOTAL_BITS +: TOTAL_BITS])
                 + $signed(addends[2*TOTAL_BITS +: TOTAL_BITS]) + $signed(addends[3*TOTAL_BITS +: TOTAL_BITS]);

    // Cut toward zero to a float32, which is never -0.
    logic [TOTAL_BITS-1:0] magnitude;
    logic [31:0] cut;
    assign magnitude = total[TOTAL_BITS-1] ? -total : total;
    mx_fp32_pack #(.BITS(TOTAL_BITS), .NEAREST_EVEN(0)) pack (
        .sign(total[TOTAL_BITS-1]), .magnitude(magnitude), .unit(largest - 12'(FRACTION_BITS)), .result(cut)
    );

    // NaN and infinities stay.
    logic held_special;
    logic [31:0] after;
    assign held_special = held[30:23] == 8'hFF;
    assign after = |term_nans ? 32'h7FFF_FFFF
                 : held_special ? held
                 : cut[30:0] == 31'd0 ? 32'h0000_0000
                 : cut;

    always_ff @(posedge clk)
        if (rst) result <= 32'h0000_0000;
        else if (term_valid) result <= after;

    // What a scoreboard sees beside the result: the terms of the two blocks.
    always_ff @(posedge clk) begin
        valid_out <= term_valid && !rst;
        exponent <= term_lsbs;
        special <= {3'b000, term_nans[1], 3'b000, term_nans[0]};
    end
    for (genvar block = 0; block < 2; block++) begin : blocks
        logic signed [GROUP_BITS-1:0] low, high;
        assign low = term_sums[2*GROUP_BITS*block +: GROUP_BITS];
        assign high = term_sums[GROUP_BITS*(2*block+1) +: GROUP_BITS];
        always_ff @(posedge clk) sum[14*block +: 14] <= 14'(low) + 14'(high);
    end
endmodule
