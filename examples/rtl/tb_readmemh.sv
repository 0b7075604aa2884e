// SPDX-License-Identifier: Apache-2.0
// A test bench that knows nothing of MX arithmetic: it reads cases with $readmemh, drives the unit, and compares every
// stage with what the case says. For the kinds dot and running of `mxfp vectors`, one or more blocks a case.
//
//   +vectors=FILE   the cases; vectors.svh, found on the include path, is made with them
//   +results=FILE   what the unit gave, one case a line, as `mxfp check` reads it
//   +failures=FILE  the number and the first wrong stage of each case that differs
//   +stop           stop at the first mismatch
//
// The last line is PASS or FAIL; after FAIL the simulator's exit status is not zero.
module tb_readmemh;
    /* verilator lint_off UNUSEDPARAM */  // the include describes every field, and not every number of it is needed
    `include "vectors.svh"
    /* verilator lint_on UNUSEDPARAM */

`ifdef BLACKWELL
    localparam int WIDE = 2;  // blocks a cycle
`else
    localparam int WIDE = 1;
`endif
    localparam int BLOCKS = MXFP_SCALE_A_COUNT;
    localparam int STEPS = (BLOCKS + WIDE - 1) / WIDE;
    localparam int SHOWN = 10;  // mismatches printed

`ifndef SUM_BITS
    `define SUM_BITS MXFP_SUM_WIDTH
`endif

    logic clk = 0, rst = 1, valid = 0, first = 0;
    logic [128*WIDE-1:0] a = '0, b = '0;
    logic [8*WIDE-1:0] scale_a = '0, scale_b = '0;
    logic valid_out;
    logic [31:0] result;
    logic signed [`SUM_BITS*WIDE-1:0] sum;
    logic [9*WIDE-1:0] exponent;
    logic [4*WIDE-1:0] special;

`ifdef BLACKWELL
    mx_blackwell dut (
`else
    mx_mac #(.SUM_BITS(`SUM_BITS)) dut (
`endif
        .clk(clk), .rst(rst), .valid(valid), .first(first),
        .a(a), .b(b), .scale_a(scale_a), .scale_b(scale_b),
        .valid_out(valid_out), .result(result), .sum(sum), .exponent(exponent), .special(special)
    );

    initial forever #5 clk = !clk;

    logic [MXFP_LINE_BITS-1:0] lines [0:MXFP_CASES-1];
    logic [MXFP_LINE_BITS-1:0] given;
    logic [128*WIDE-1:0] next_a, next_b;
    logic [8*WIDE-1:0] next_scale_a, next_scale_b;
    string path;
    int file = 0, failures = 0;
    bit stop;

    // The driver: inputs change at the falling edge.
    initial begin
        if (!$value$plusargs("vectors=%s", path)) $fatal(1, "say which cases: +vectors=FILE");
        $readmemh(path, lines);
        for (int n = 0; n < MXFP_CASES; n++) begin
            given = lines[n];
            if (given[MXFP_FLAGS_LSB] !== 1'b1) begin
                $display("FAIL: case %0d of %0d is not in %0s: its valid bit is not set", n, MXFP_CASES, path);
                $fatal(1);
            end
        end
        if ($value$plusargs("results=%s", path)) begin
            file = $fopen(path, "w");
            if (file == 0) $fatal(1, "cannot write %0s", path);
        end
        if ($value$plusargs("failures=%s", path)) begin
            failures = $fopen(path, "w");
            if (failures == 0) $fatal(1, "cannot write %0s", path);
        end
        stop = $test$plusargs("stop") != 0;
        repeat (3) @(negedge clk);
        rst = 0;
        for (int n = 0; n < MXFP_CASES; n++)
            for (int step = 0; step < STEPS; step++) begin
                @(negedge clk);
                if (n % 8 == 5) begin  // now and then a cycle that must not count, whatever stands on the pins
                    valid = 0;
                    first = n % 16 == 5;
                    a = ~a;
                    scale_b = ~scale_b;
                    @(negedge clk);
                end
                given = lines[n];
                for (int k = 0; k < WIDE; k++)
                    if (WIDE * step + k < BLOCKS) begin
                        next_a[128*k +: 128] = given[MXFP_A_LSB + 128*(WIDE*step + k) +: 128];
                        next_b[128*k +: 128] = given[MXFP_B_LSB + 128*(WIDE*step + k) +: 128];
                        next_scale_a[8*k +: 8] = given[MXFP_SCALE_A_LSB + 8*(WIDE*step + k) +: 8];
                        next_scale_b[8*k +: 8] = given[MXFP_SCALE_B_LSB + 8*(WIDE*step + k) +: 8];
                    end else begin  // past the last block there are zeros
                        next_a[128*k +: 128] = '0;
                        next_b[128*k +: 128] = '0;
                        next_scale_a[8*k +: 8] = '0;
                        next_scale_b[8*k +: 8] = '0;
                    end
                // Each pin at once: Verilator 5.006 does not see one that a loop assigns part by part.
                a = next_a;
                b = next_b;
                scale_a = next_scale_a;
                scale_b = next_scale_b;
                valid = 1;
                first = given[MXFP_FLAGS_LSB+1] && step == 0;
            end
        @(negedge clk);
        valid = 0;
        first = 0;
        repeat (5) @(negedge clk);
        report();
    end

    // The monitor: outputs are read at the falling edge, and come back in the order of the inputs.
    logic [MXFP_LINE_BITS-1:0] expected;
    int done = 0, at = 0, failed = 0, shown = 0;
    bit failing = 0;
    string wrong;

    initial forever begin
        @(negedge clk);
        if (valid_out === 1'b1 && done < MXFP_CASES) begin
            expected = lines[done];
            for (int k = 0; k < WIDE; k++)
                if (WIDE * at + k < BLOCKS) begin
                    compare("sum", WIDE * at + k,
                            64'($signed(sum[`SUM_BITS*k +: `SUM_BITS])),
                            64'($signed(expected[MXFP_SUM_LSB + MXFP_SUM_BITS*(WIDE*at + k) +: MXFP_SUM_BITS])));
                    compare("exponent", WIDE * at + k,
                            64'($signed(exponent[9*k +: 9])),
                            64'($signed(expected[MXFP_EXPONENT_LSB + MXFP_EXPONENT_BITS*(WIDE*at + k)
                                                 +: MXFP_EXPONENT_BITS])));
                    compare("special", WIDE * at + k,
                            64'(special[4*k +: 4]),
                            64'(expected[MXFP_SPECIAL_LSB + MXFP_SPECIAL_BITS*(WIDE*at + k)
                                         +: MXFP_SPECIAL_BITS]));
                end
            at = at + 1;
            if (at == STEPS) begin
                compare("result", 0, 64'(result), 64'(expected[MXFP_RESULT_LSB +: 32]));
                if (file != 0) $fdisplay(file, "%h", result);
                if (failing) failed = failed + 1;
                if (failing && failures != 0) $fdisplay(failures, "%0d %0s", done, wrong);
                if (failing && stop) report();
                failing = 0;
                at = 0;
                done = done + 1;
            end
        end
    end

    task automatic compare(input string stage, input int block, input logic [63:0] got, input logic [63:0] want);
        if (got !== want) begin
            if (!failing) wrong = stage;
            failing = 1;
            if (shown < SHOWN)
                $display("MISMATCH case %0d block %0d %0s: got %0h, expected %0h", done, block, stage, got, want);
            shown = shown + 1;
        end
    endtask

    task automatic report;
        if (file != 0) $fclose(file);
        if (failures != 0) $fclose(failures);
        if (done < MXFP_CASES && !stop) begin
            $display("FAIL: %0d of %0d cases came back", done, MXFP_CASES);
            $fatal(1);
        end
        if (failed != 0) begin
            $display("FAIL: %0d of %0d cases differ", failed, MXFP_CASES);
            $fatal(1);
        end
        $display("PASS: %0d cases, every stage", MXFP_CASES);
        $finish;
    endtask
endmodule
