// SPDX-License-Identifier: Apache-2.0
// An MXFP4 multiply-accumulate unit: one block of 32 lanes and two scales a cycle, added to a float32.
//
// Two cycles after valid, valid_out is high and result is the accumulator with this block in it. What it was made of
// stands beside it: sum, exponent and special, for a scoreboard.
module mx_mac #(
    parameter int SUM_BITS = 14
) (
    input  logic                       clk,
    input  logic                       rst,
    input  logic                       valid,
    input  logic                       first,  // this block starts a new dot product
    input  logic        [127:0]        a,      // 32 codes, lane 0 in the lowest bits
    input  logic        [127:0]        b,
    input  logic        [7:0]          scale_a,
    input  logic        [7:0]          scale_b,
    output logic                       valid_out,
    output logic        [31:0]         result,
    output logic signed [SUM_BITS-1:0] sum,
    output logic signed [8:0]          exponent,
    output logic        [3:0]          special  // 0 a finite term, 1 NaN
);
    logic signed [SUM_BITS-1:0] dot_sum;
    logic signed [8:0] dot_exponent;
    logic dot_nan;

    mx_dot #(.LANES(32), .SUM_BITS(SUM_BITS)) dot (
        .a(a), .b(b), .scale_a(scale_a), .scale_b(scale_b),
        .sum(dot_sum), .exponent(dot_exponent), .is_nan(dot_nan)
    );

    // Stage 1: the term.
    logic term_valid, term_first, term_nan;
    logic signed [SUM_BITS-1:0] term_sum;
    logic signed [8:0] term_exponent;

    always_ff @(posedge clk) begin
        term_valid <= valid && !rst;
        term_first <= first;
        term_sum <= dot_sum;
        term_exponent <= dot_exponent;
        term_nan <= dot_nan;
    end

    // Stage 2: the accumulator, and the term once more beside it.
    mx_fp32_acc #(.SUM_BITS(SUM_BITS)) accumulator (
        .clk(clk), .rst(rst), .valid(term_valid), .first(term_first),
        .sum(term_sum), .exponent(term_exponent), .is_nan(term_nan), .acc(result)
    );

    always_ff @(posedge clk) begin
        valid_out <= term_valid && !rst;
        sum <= term_sum;
        exponent <= term_exponent;
        special <= {3'b000, term_nan};
    end
endmodule
