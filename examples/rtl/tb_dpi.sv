// SPDX-License-Identifier: Apache-2.0
// The unit beside the C model of `mxfp export-c`, called through DPI-C: no vectors, nothing to read. Icarus Verilog has
// no DPI-C; Verilator and the commercial simulators do.
//
//   +cases=N   how many blocks; 1,000,000
//
// Blocks are drawn with scales near one, of any code, and in the corners, and every few of them starts anew.
module tb_dpi;
    import "DPI-C" function void mxfp_dpi_term(
        input bit [127:0] a, input bit [127:0] b, input int unsigned scale_a, input int unsigned scale_b,
        output int sum, output int exponent, output int special
    );
    import "DPI-C" function int unsigned mxfp_dpi_sequential_f32(
        input int unsigned state, input bit [127:0] a, input bit [127:0] b, input int unsigned scale_a,
        input int unsigned scale_b
    );
    import "DPI-C" function int unsigned mxfp_dpi_blackwell(
        input int unsigned c, input bit [255:0] a, input bit [255:0] b, input bit [15:0] scale_a,
        input bit [15:0] scale_b
    );

    logic clk = 0, rst = 1, valid = 0, first = 0;
    logic [255:0] a = '0, b = '0;
    logic [15:0] scale_a = '0, scale_b = '0;
    logic mac_valid, blackwell_valid;
    logic [31:0] mac_result, blackwell_result;
    logic signed [13:0] mac_sum;
    logic signed [8:0] mac_exponent;
    logic [3:0] mac_special;
    logic [27:0] blackwell_sum;
    logic [17:0] blackwell_exponent;
    logic [7:0] blackwell_special;

    mx_mac mac (
        .clk(clk), .rst(rst), .valid(valid), .first(first), .a(a[127:0]), .b(b[127:0]),
        .scale_a(scale_a[7:0]), .scale_b(scale_b[7:0]), .valid_out(mac_valid), .result(mac_result),
        .sum(mac_sum), .exponent(mac_exponent), .special(mac_special)
    );
    mx_blackwell blackwell (
        .clk(clk), .rst(rst), .valid(valid), .first(first), .a(a), .b(b), .scale_a(scale_a), .scale_b(scale_b),
        .valid_out(blackwell_valid), .result(blackwell_result),
        .sum(blackwell_sum), .exponent(blackwell_exponent), .special(blackwell_special)
    );

    initial forever #5 clk = !clk;

    int cases = 1000000, failed = 0, style = 0, near = 0;
    int sum, exponent, special, second_sum, second_exponent, second_special;
    int unsigned sequential = 0, fused = 0;

    function automatic logic [7:0] scale(input int how);
        case (how)
            0: return 8'(120 + $urandom_range(14));
            1: return 8'($urandom);
            2: return 8'(near + $urandom_range(12));
            default:
                case ($urandom_range(5))
                    0: return 8'd0;
                    1: return 8'd1;
                    2: return 8'd126;
                    3: return 8'd128;
                    4: return 8'd253;
                    default: return $urandom_range(9) == 0 ? 8'd255 : 8'd254;
                endcase
        endcase
    endfunction

    logic [255:0] next_a, next_b;

    task automatic draw;
        first = $urandom_range(3) == 0;
        if (first) begin
            style = int'($urandom_range(3));
            near = int'($urandom_range(240));
        end
        for (int word = 0; word < 8; word++) begin
            next_a[32*word +: 32] = $urandom;
            next_b[32*word +: 32] = $urandom_range(3) == 0 ? 32'd0 : $urandom;
        end
        if ($urandom_range(7) == 0) begin  // lanes that cancel
            next_a[127:64] = next_a[63:0];
            next_b[127:64] = next_b[63:0] ^ 64'h8888_8888_8888_8888;
        end
        a = next_a;  // each pin at once: Verilator 5.006 does not see one that a loop assigns part by part
        b = next_b;
        scale_a = {scale(style), scale(style)};
        scale_b = {scale(style), scale(style)};
    endtask

    task automatic compare(input string stage, input int number, input logic [31:0] got, input logic [31:0] want);
        if (got !== want) begin
            failed = failed + 1;
            if (failed <= 10) $display("MISMATCH case %0d %0s: got %h, expected %h", number, stage, got, want);
        end
    endtask

    initial begin
        if (!$value$plusargs("cases=%d", cases)) cases = 1000000;
        repeat (3) @(negedge clk);
        rst = 0;
        // One block at a time: given, two cycles, compared.
        for (int n = 0; n < cases; n++) begin
            draw();
            valid = 1;
            if (first) begin
                sequential = 0;
                fused = 0;
            end
            mxfp_dpi_term(a[127:0], b[127:0], 32'(scale_a[7:0]), 32'(scale_b[7:0]), sum, exponent, special);
            mxfp_dpi_term(a[255:128], b[255:128], 32'(scale_a[15:8]), 32'(scale_b[15:8]),
                          second_sum, second_exponent, second_special);
            sequential = mxfp_dpi_sequential_f32(sequential, a[127:0], b[127:0], 32'(scale_a[7:0]), 32'(scale_b[7:0]));
            fused = mxfp_dpi_blackwell(fused, a, b, scale_a, scale_b);
            @(negedge clk);
            valid = 0;
            @(negedge clk);
            if (!mac_valid || !blackwell_valid) compare("valid", n, 32'd0, 32'd1);
            compare("sum", n, 32'(mac_sum), sum);
            compare("exponent", n, 32'(mac_exponent), exponent);
            compare("special", n, 32'(mac_special), special);
            compare("result", n, mac_result, sequential);
            compare("blackwell", n, blackwell_result, fused);
            compare("first sum", n, 32'($signed(blackwell_sum[13:0])), sum);
            compare("second sum", n, 32'($signed(blackwell_sum[27:14])), second_sum);
            compare("first exponent", n, 32'($signed(blackwell_exponent[8:0])), exponent);
            compare("second exponent", n, 32'($signed(blackwell_exponent[17:9])), second_exponent);
            compare("first special", n, 32'(blackwell_special[3:0]), special);
            compare("second special", n, 32'(blackwell_special[7:4]), second_special);
        end
        if (failed != 0) begin
            $display("FAIL: %0d comparisons of %0d cases differ", failed, cases);
            $fatal(1);
        end
        $display("PASS: %0d cases beside the C model", cases);
        $finish;
    end
endmodule
