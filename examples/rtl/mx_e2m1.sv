// SPDX-License-Identifier: Apache-2.0
// One E2M1 code -> twice its value, which is an integer. Code 8 is -0, and decodes to 0.
module mx_e2m1 (
    input  logic        [3:0] code,
    output logic signed [4:0] value  // in units of one half: -12 ... 12
);
    logic [2:0] index;
    logic signed [4:0] magnitude;

    assign index = code[2:0];
    always_comb
        case (index)
            3'd0: magnitude = 5'sd0;
            3'd1: magnitude = 5'sd1;  // the subnormal, 0.5
            3'd2: magnitude = 5'sd2;
            3'd3: magnitude = 5'sd3;
            3'd4: magnitude = 5'sd4;
            3'd5: magnitude = 5'sd6;
            3'd6: magnitude = 5'sd8;
            3'd7: magnitude = 5'sd12;
        endcase

    assign value = code[3] ? -magnitude : magnitude;
endmodule
