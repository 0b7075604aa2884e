// SPDX-License-Identifier: Apache-2.0
// A float32 accumulator: acc <- acc + sum * 2**exponent, exactly, then rounded once to nearest even. This is
// mxfp.Sequential("float32"). Subnormals are kept, overflow is infinity and stays, an exact cancellation is +0.
module mx_fp32_acc #(
    parameter int SUM_BITS = 14
) (
    input  logic                       clk,
    input  logic                       rst,
    input  logic                       valid,
    input  logic                       first,  // add to zero, not to acc
    input  logic signed [SUM_BITS-1:0] sum,
    input  logic signed [8:0]          exponent,
    input  logic                       is_nan,
    output logic [31:0]                acc
);
    // Both addends have WINDOW bits, and their leading bits at most at its top. Below the last bit of a sum there is
    // room for 26: as many as acc can have that are not mere sticky, however few bits the sum has itself.
    localparam int ROOM = 26;
    localparam int WINDOW = SUM_BITS + ROOM;

    // acc = mantissa * 2**acc_unit. Subnormals have the exponent of the smallest normal, and no hidden bit.
    logic [31:0] held;
    logic acc_normal;
    logic [23:0] mantissa;
    logic signed [11:0] acc_unit;
    logic [WINDOW-1:0] acc_magnitude;

    assign held = first ? 32'h0000_0000 : acc;
    assign acc_normal = held[30:23] != 8'd0;
    assign mantissa = {acc_normal, held[22:0]};
    assign acc_unit = $signed({4'd0, acc_normal ? held[30:23] : 8'd1}) - 12'sd150 - 12'(WINDOW - 24);
    assign acc_magnitude = {mantissa, {(WINDOW - 24) {1'b0}}};

    // The term, the same way.
    logic [SUM_BITS-1:0] sum_magnitude;
    logic signed [11:0] term_unit;
    logic [WINDOW-1:0] term_magnitude;

    assign sum_magnitude = sum[SUM_BITS-1] ? -sum : sum;
    assign term_unit = 12'(exponent) - 12'(ROOM);
    assign term_magnitude = {sum_magnitude, {ROOM{1'b0}}};

    // The one with the smaller unit moves down. A term of zero moves nothing.
    logic acc_moves;
    logic signed [11:0] distance, unit;
    logic [WINDOW-1:0] x, y;

    assign distance = acc_unit - term_unit;
    assign acc_moves = distance < 0 && sum_magnitude != '0;
    assign unit = acc_moves ? term_unit : acc_unit;
    mx_shift_sticky #(.BITS(WINDOW)) align_acc (
        .x(acc_magnitude), .amount(acc_moves ? -distance : 12'd0), .y(x)
    );
    mx_shift_sticky #(.BITS(WINDOW)) align_term (
        .x(term_magnitude), .amount(acc_moves ? 12'd0 : distance), .y(y)
    );

    // Signs and magnitudes.
    logic acc_sign, term_sign, acc_larger, sign;
    logic [WINDOW:0] total;

    assign acc_sign = held[31];
    assign term_sign = sum[SUM_BITS-1];
    assign acc_larger = x >= y;
    assign sign = acc_larger ? acc_sign : term_sign;
    assign total = acc_sign == term_sign ? {1'b0, x} + {1'b0, y}
                 : acc_larger ? {1'b0, x - y}
                 : {1'b0, y - x};

    logic [31:0] rounded;
    mx_fp32_pack #(.BITS(WINDOW + 1)) round (
        .sign(sign), .magnitude(total), .unit(unit), .result(rounded)
    );

    // NaN and infinities stay. A term of MXFP4 is never infinite, so infinity never meets its opposite.
    logic acc_special;
    logic [31:0] after;

    assign acc_special = held[30:23] == 8'hFF;
    assign after = is_nan ? 32'h7FC0_0000
                 : acc_special ? held
                 : rounded;

    always_ff @(posedge clk)
        if (rst) acc <= 32'h0000_0000;
        else if (valid) acc <= after;
endmodule
