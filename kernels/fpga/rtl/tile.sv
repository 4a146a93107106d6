// LANES byte positions at once. All lanes hold the same tables.
module tile #(
  parameter int LANES = 4,
  parameter int KT = 16,
  parameter int NT = 16,
  parameter int W = 8
) (
  input  logic                                clk,
  input  logic                                bank,
  input  logic [LANES-1:0][KT-1:0][7:0]       x,
  output logic [LANES-1:0][NT-1:0][7:0]       y,
  input  logic                                load,
  input  logic                                load_half,
  input  logic [4:0]                          load_address,
  input  logic [$clog2(KT/W+1)-1:0]           load_round,
  input  logic [W-1:0][NT-1:0][7:0]           load_entries
);
  for (genvar i = 0; i < LANES; i++) begin : g_lane
    lane #(.KT(KT), .NT(NT), .W(W)) u_lane (
      .clk, .bank, .x(x[i]), .y(y[i]),
      .load, .load_half, .load_address, .load_round, .load_entries
    );
  end
endmodule
