// The coefficients of half a column of a generator, a clock after they were asked for.
module generator_rom
  import seed_pkg::*;
  import rom_pkg::*;
#(
  parameter int BITS = 8
) (
  input  logic                            clk,
  input  logic [$clog2(EDGES)-1:0]        edge_number,
  input  logic [$clog2(HALVES)-1:0]       half,
  output logic [T-1:0][BITS-1:0]          coefficients
);
  logic [HALVES-1:0][T-1:0][BITS-1:0] column;
  if (BITS == 2) begin : g_2
    assign column = GENERATORS_2[edge_number];
  end else if (BITS == 3) begin : g_3
    assign column = GENERATORS_3[edge_number];
  end else if (BITS == 4) begin : g_4
    assign column = GENERATORS_4[edge_number];
  end else begin : g_8
    assign column = GENERATORS_8[edge_number];
  end
  always_ff @(posedge clk) coefficients <= column[half];
endmodule
