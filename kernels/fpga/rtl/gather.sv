// Requests the source rows of each chunk when the input store has room for all of them.
module gather
  import engine_pkg::*;
#(
  parameter int KT = 16
) (
  input  logic          clk,
  input  logic          rst,
  input  logic          row_valid,
  output logic          row_ready,
  input  row_t          row,
  input  logic [5:0]    k_tiles,
  // A chunk of this many units has been computed.
  input  logic          release_valid,
  input  logic [7:0]    release_units,
  output logic          request_valid,
  input  logic          request_ready,
  output read_request_t request
);
  localparam int KT_BITS = $clog2(KT);
  localparam int BLOCK_BYTES = 64 / KT;

  // Units of the ring that are taken, the first unit of this chunk, and that of this row's tile.
  logic [7:0] taken, chunk_units;
  logic [UNIT_BITS-1:0] chunk_unit, tile_unit, next_tile_unit;
  logic first_row, last_of_tile;
  assign first_row = row.row == 0;
  assign last_of_tile = &row.row[KT_BITS-1:0];
  assign chunk_units = 8'(k_tiles * 6'(row.beats));
  assign tile_unit = first_row ? chunk_unit : next_tile_unit;

  logic fits, accept;
  assign fits = !first_row || 32'(taken) + 32'(chunk_units) <= UNITS;
  assign accept = request_valid && request_ready;
  assign request_valid = row_valid && fits;
  assign row_ready = request_ready && fits;

  row_tag_t tag;
  assign tag.slot = row.slot;
  assign tag.unit = tile_unit;
  // Each row begins in a block of its own, so that a word of all rows is in different blocks.
  assign tag.lane = 6'(32'(row.row[KT_BITS-1:0]) * BLOCK_BYTES);
  assign tag.shift = row.address[5:0];
  assign tag.beats = row.beats;
  assign tag.last_row = row.last_row;
  assign request.address = row.address;
  assign request.beats = 6'((12'(row.bytes) + 12'(row.address[5:0]) + 12'd63) >> 6);
  assign request.tag = read_tag_t'(tag);

  always_ff @(posedge clk) begin
    if (rst) begin
      taken <= 0;
      chunk_unit <= 0;
    end else begin
      taken <= taken + (accept && first_row ? chunk_units : 0) - (release_valid ? release_units : 0);
      if (accept && row.last_row) chunk_unit <= chunk_unit + UNIT_BITS'(chunk_units);
    end
    if (accept)
      next_tile_unit <= last_of_tile ? tile_unit + UNIT_BITS'(row.beats) : tile_unit;
  end
endmodule
