// Reads the packets of a batch, a chunk of each at a time (the paper's Alg. 1): of every packet a
// burst of up to BURST_BEATS beats, from which many tiles are cut, rather than eight bytes.
// It takes the next batch, and loads the next chunk, whenever a bank of the tile buffer is free.
module tile_loader
  import seed_pkg::*;
  import rom_pkg::*;
(
  input  logic                            clk,
  input  logic                            rst,
  input  order_t                          order,
  output logic                            batch_ready,
  input  logic                            batch_valid,
  input  batch_t                          batch,
  // One burst at a time.
  output logic                            request_valid,
  input  logic                            request_ready,
  output logic [63:0]                     request_address,
  output logic [4:0]                      request_beats,
  input  logic                            beat_valid,
  // The tile buffer: a free bank, where a beat goes, and a chunk that is complete.
  input  logic                            bank_free,
  output logic [$clog2(COLUMNS_MAX)-1:0]  column,
  output logic [$clog2(BURST_BEATS)-1:0]  beat,
  output logic                            loaded,
  output chunk_t                          chunk
);
  logic running, requested, has_more;
  assign batch_ready = !running && !has_more && bank_free;

  logic ends_burst;
  assign ends_burst = beat_valid && 5'(beat) + 1 == chunk.beats;
  assign loaded = ends_burst && 8'(column) + 1 == 8'(DEGREE[chunk.batch.row]);

  // The next chunk of a batch begins where this one ends.
  logic [15:0] next_offset, left;
  logic [4:0] next_beats;
  assign next_offset = has_more ? chunk.offset + 16'(BURST_BEATS) : 0;
  assign left = order.packet_beats - next_offset;
  assign next_beats = left > 16'(BURST_BEATS) ? 5'(BURST_BEATS) : left[4:0];

  logic starts;
  assign starts = !running && bank_free && (has_more || batch_valid);

  always_ff @(posedge clk) begin
    if (starts) begin
      chunk.batch <= has_more ? chunk.batch : batch;
      chunk.offset <= next_offset;
      chunk.beats <= next_beats;
      chunk.is_last <= left <= 16'(BURST_BEATS);
    end
    if (rst) begin
      running <= 0;
      requested <= 0;
      has_more <= 0;
      column <= 0;
      beat <= 0;
    end else begin
      if (starts) running <= 1;
      else if (loaded) running <= 0;
      if (loaded) has_more <= !chunk.is_last;
      if (request_valid && request_ready) requested <= 1;
      else if (ends_burst) requested <= 0;
      if (beat_valid) beat <= ends_burst ? 0 : beat + 1;
      if (ends_burst) column <= loaded ? 0 : column + 1;
    end
  end

  logic [7:0] symbol;
  assign symbol = PLACES[START[chunk.batch.row] + 7'(column)] + chunk.batch.shift;
  logic [31:0] beats_before;
  assign beats_before = symbol * 32'(order.packet_beats) + 32'(chunk.offset);
  assign request_valid = running && !requested;
  assign request_address = order.sources + {27'd0, beats_before, 5'd0};
  assign request_beats = chunk.beats;
endmodule
