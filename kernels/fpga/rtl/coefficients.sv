// Requests the coefficients of every pass, in the order of the passes, and keeps a few tiles.
//
// Memory holds them in tile order, so that a tile is 256 consecutive bytes (with tiles of 16 x 16):
// for each NT destinations, for each KT sources, column by column. The host fills tiles with zeros,
// which also makes sources beyond the last one harmless. A job of one tile requests it once,
// other jobs once for each chunk.
module coefficients
  import engine_pkg::*;
#(
  parameter int KT = 16,
  parameter int NT = 16
) (
  input  logic          clk,
  input  logic          rst,
  input  slot_pointer_t ready,
  output slot_pointer_t walked,
  input  logic          skip,
  input  job_t          job,
  output logic          request_valid,
  input  logic          request_ready,
  output read_request_t request,
  input  read_beat_t    beat,
  output logic          out_valid,
  input  logic          out_ready,
  output logic [511:0]  out_data,
  output logic [1:0]    out_field,
  output logic [7:0]    out_polynomial
);
  localparam int BEATS = KT * NT / 64;
  // Beats in flight or kept: a tile takes 64 clocks or so to become tables, so that two tiles
  // wait while others are in flight.
  localparam int DEPTH = 32;

  logic [5:0] reserved;
  logic busy;
  logic [11:0] tiles, tile;
  logic [15:0] left;
  logic [63:0] address;
  logic [15:0] chunk_bytes;
  assign chunk_bytes = 16'(job.chunk_beats) << 6;
  assign tiles = job.k_tiles * job.n_tiles;
  logic last_tile, last_chunk, accept, pop;
  assign last_tile = tile == tiles - 1;
  assign last_chunk = left <= chunk_bytes || tiles == 1;
  assign request_valid = busy && 32'(reserved) + BEATS <= DEPTH;
  assign accept = request_valid && request_ready;
  assign pop = out_valid && out_ready;
  assign request.address = address;
  assign request.beats = 6'(BEATS);
  assign request.tag = read_tag_t'({walked[SLOT_BITS-1:0], job.field, job.polynomial});

  always_ff @(posedge clk) begin
    if (rst) begin
      walked <= 0;
      busy <= 0;
      reserved <= 0;
    end else begin
      reserved <= reserved + (accept ? 6'(BEATS) : 0) - 6'(pop);
      if (!busy) begin
        if (walked != ready) begin
          if (skip) walked <= walked + 1;
          else busy <= 1;
        end
      end else if (accept && last_tile && last_chunk) begin
        busy <= 0;
        walked <= walked + 1;
      end
    end
    if (!busy) begin
      tile <= 0;
      left <= job.row_bytes;
      address <= job.coefficients;
    end else if (accept) begin
      tile <= last_tile ? 0 : tile + 1;
      address <= last_tile ? job.coefficients : address + 64'(KT * NT);
      if (last_tile) left <= left - chunk_bytes;
    end
  end

  logic empty;
  logic [5:0] count;
  assign out_valid = !empty;
  fifo #(.WIDTH(522), .DEPTH(DEPTH)) u_beats (
    .clk, .rst, .push(beat.valid && beat.kind == READ_COEFFICIENTS),
    .in({beat.tag[9:0], beat.data}), .pop, .out({out_field, out_polynomial, out_data}),
    .empty, .count
  );
  // What is reserved bounds it.
  logic unused;
  assign unused = &{1'b0, count};
endmodule
