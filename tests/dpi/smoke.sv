// SPDX-License-Identifier: Apache-2.0
// Every function that mxfp_dot.h imports, on each case of cases.hex; one line of results a case.
// A case is two blocks: a in bits 0 ... 255, b in 256 ... 511, scale_a in 512 ... 527, scale_b in 528 ... 543.
module smoke;
`include "imports.svh"

  bit [543:0] cases[`CASES];
  bit [255:0] a, b;
  bit [15:0] scale_a, scale_b;
  bit [671:0] exact;
  int unsigned f32, f16, bf16;
  int products[32], levels[31];
  int sum, exponent, special, nan, status;
  longint value;

  initial begin
    $readmemh("cases.hex", cases);
    for (int n = 0; n < `CASES; n++) begin
      {scale_b, scale_a, b, a} = cases[n];
      {f32, f16, bf16} = '0;
      exact = '0;
      value = 0;
      nan = 0;
      for (int i = 0; i < 2; i++) begin
        mxfp_dpi_term(a[128*i+:128], b[128*i+:128], 32'(scale_a[8*i+:8]), 32'(scale_b[8*i+:8]),
                      sum, exponent, special);
        $write("%0d %0d %0d %0d ", sum, exponent, special, mxfp_dpi_sum(a[128*i+:128], b[128*i+:128]));
        mxfp_dpi_stages(a[128*i+:128], b[128*i+:128], products, levels);
        for (int k = 0; k < 32; k++) $write("%0d ", products[k]);
        for (int k = 0; k < 31; k++) $write("%0d ", levels[k]);
        f32 = mxfp_dpi_sequential_f32(f32, a[128*i+:128], b[128*i+:128],
                                      32'(scale_a[8*i+:8]), 32'(scale_b[8*i+:8]));
        f16 = mxfp_dpi_sequential_f16(f16, a[128*i+:128], b[128*i+:128],
                                      32'(scale_a[8*i+:8]), 32'(scale_b[8*i+:8]));
        bf16 = mxfp_dpi_sequential_bf16(bf16, a[128*i+:128], b[128*i+:128],
                                        32'(scale_a[8*i+:8]), 32'(scale_b[8*i+:8]));
        status = mxfp_dpi_fixed(24, -6, 2, 2, a[128*i+:128], b[128*i+:128],
                                32'(scale_a[8*i+:8]), 32'(scale_b[8*i+:8]), value, nan);
        mxfp_dpi_exact(exact, a[128*i+:128], b[128*i+:128],
                       32'(scale_a[8*i+:8]), 32'(scale_b[8*i+:8]));
        $write("%0d %0d %0d %0d %0d %0d %0d ", f32, f16, bf16, status, value, nan, mxfp_dpi_exact_f32(exact));
      end
      $write("%0d ", mxfp_dpi_decode(32'(a[3:0])));
      $write("%0d ", mxfp_dpi_blackwell(0, a, b, scale_a, scale_b));
      $display("%0d", mxfp_dpi_fused(12, 16, 32, -139, 10, 2, 0, a, b, scale_a, scale_b));
    end
    $finish;
  end
endmodule
