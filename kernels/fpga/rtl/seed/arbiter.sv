// Who may use a thing that many share: the next who wants it after the one that had it last (the
// order of the paper's Alg. 3), until it is given back.
module arbiter #(
  parameter int COUNT = 8
) (
  input  logic             clk,
  input  logic             rst,
  input  logic [COUNT-1:0] requests,
  input  logic             release_grant,
  // One of them at most.
  output logic [COUNT-1:0] grant
);
  // Those behind the one that had it last.
  logic [COUNT-1:0] behind, candidates, next;
  assign candidates = (requests & behind) != 0 ? requests & behind : requests;
  assign next = candidates & (~candidates + 1);

  always_ff @(posedge clk)
    if (rst) begin
      grant <= 0;
      behind <= '1;
    end else if (grant == 0) begin
      grant <= next;
      if (next != 0) behind <= ~(next | (next - 1));
    end else if (release_grant) grant <= 0;
endmodule
