// SPDX-License-Identifier: Apache-2.0
// The adder tree alone, node by node: cases of `mxfp vectors sum --stages`, read with $readmemh.
//
//   +vectors=FILE   the cases; vectors.svh, found on the include path, is made with them
//   +results=FILE   the sums, one case a line, as `mxfp check` reads them
//   +stop           stop at the first mismatch
//
// The last line is PASS or FAIL; after FAIL the simulator's exit status is not zero.
module tb_sum;
    /* verilator lint_off UNUSEDPARAM */  // the include describes every field, and not every number of it is needed
    `include "vectors.svh"
    /* verilator lint_on UNUSEDPARAM */
    localparam int SHOWN = 10;  // mismatches printed

`ifndef SUM_BITS
    `define SUM_BITS MXFP_SUM_WIDTH
`endif

    logic [127:0] a, b;
    logic signed [`SUM_BITS-1:0] sum;

    mx_sum #(.LANES(32), .SUM_BITS(`SUM_BITS)) dut (.a(a), .b(b), .sum(sum));

    logic [MXFP_LINE_BITS-1:0] lines [0:MXFP_CASES-1];
    logic [MXFP_LINE_BITS-1:0] given;
    string path;
    int file = 0, failed = 0, shown = 0, done = 0;
    bit stop, failing;

// Every node of one stage, WIDTH bits each in the tree, against its field of the case.
`define STAGE(FIELD, WIDTH, NODES) \
    for (int node = 0; node < MXFP_``FIELD``_COUNT; node++) \
        compare(`"FIELD`", node, \
                64'($signed(NODES[WIDTH*node +: WIDTH])), \
                64'($signed(given[MXFP_``FIELD``_LSB + MXFP_``FIELD``_BITS*node +: MXFP_``FIELD``_BITS])));

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
        stop = $test$plusargs("stop") != 0;
        while (done < MXFP_CASES && !(stop && failed != 0)) begin
            given = lines[done];
            a = given[MXFP_A_LSB +: 128];
            b = given[MXFP_B_LSB +: 128];
            #1;
            failing = 0;
            `STAGE(PRODUCT, 9, dut.products)
            `STAGE(LEVEL1, 10, dut.tree[1].sums)
            `STAGE(LEVEL2, 11, dut.tree[2].sums)
            `STAGE(LEVEL3, 12, dut.tree[3].sums)
            `STAGE(LEVEL4, 13, dut.tree[4].sums)
            `STAGE(SUM, `SUM_BITS, sum)
            if (file != 0) $fdisplay(file, "%h", MXFP_SUM_BITS'(sum));
            if (failing) failed = failed + 1;
            done = done + 1;
        end
        if (file != 0) $fclose(file);
        if (failed != 0) begin
            $display("FAIL: %0d of %0d cases differ", failed, done);
            $fatal(1);
        end
        $display("PASS: %0d cases, every stage", done);
        $finish;
    end

    task automatic compare(input string stage, input int node, input logic [63:0] got, input logic [63:0] want);
        if (got !== want) begin
            failing = 1;
            if (shown < SHOWN)
                $display("MISMATCH case %0d %0s %0d: got %0h, expected %0h", done, stage, node, got, want);
            shown = shown + 1;
        end
    endtask
endmodule
