// The tile with what loads its tables, in the cells of a card's.
module tile_bench
  import engine_pkg::*;
#(
  parameter int LANES = 8,
  localparam int SIDE = 64 / LANES
) (
  input  logic         clk, rst,
  input  logic         in_valid,
  output logic         in_ready,
  input  logic [511:0] in_data,
  input  logic [1:0]   in_field,
  input  logic [7:0]   in_polynomial,
  output logic         loaded,
  input  logic         load_bank, bank, first,
  input  logic [511:0] x, so_far,
  output logic [511:0] y
);
  logic begun, load, load_map;
  logic [$clog2(SIDE/GROUP)-1:0] load_group;
  logic [3:0] load_nibble;
  logic [1:0] load_field;
  logic [LEAVES-1:0][SIDE-1:0] load_entries;
  logic [31:0] load_map_entries;
  table_generator #(.KT(SIDE), .NT(SIDE)) u_tables (.bank_free(1'd1), .*);
  tile #(.LANES(LANES), .KT(SIDE), .NT(SIDE)) u_tile (
    .load_address({load_bank, load_nibble}), .*
  );
endmodule
