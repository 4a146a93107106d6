// Four that ask.
module arbiter_bench (
  input  logic       clk, rst, release_grant,
  input  logic [3:0] requests,
  output logic [3:0] grant
);
  arbiter #(.COUNT(4)) u_arbiter (.clk, .rst, .requests, .release_grant, .grant);
endmodule
