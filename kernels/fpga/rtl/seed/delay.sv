// Delays its input by a number of clocks.
module delay #(
  parameter int WIDTH = 8,
  parameter int CLOCKS = 1
) (
  input  logic             clk,
  input  logic [WIDTH-1:0] in,
  output logic [WIDTH-1:0] out
);
  if (CLOCKS == 0) begin : g_none
    logic unused;
    assign unused = clk;
    assign out = in;
  end else begin : g_some
    logic [CLOCKS-1:0][WIDTH-1:0] stages;
    assign out = stages[CLOCKS-1];
    always_ff @(posedge clk) stages <= (CLOCKS*WIDTH)'({stages, in});
  end
endmodule
