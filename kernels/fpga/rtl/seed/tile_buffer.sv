// Two banks of a chunk each (ping-pong): while one is loaded, beat by beat, the other is read,
// eight bytes of a packet a clock.
module tile_buffer
  import seed_pkg::*;
(
  input  logic                                     clk,
  input  logic                                     rst,
  output logic                                     bank_free,
  input  logic                                     store,
  input  logic [$clog2(COLUMNS_MAX)-1:0]           store_column,
  input  logic [$clog2(BURST_BEATS)-1:0]           store_beat,
  input  beat_t                                    store_data,
  input  logic                                     loaded,
  input  chunk_t                                   loaded_chunk,
  // A bank that is full, and its chunk.
  output logic                                     chunk_valid,
  output chunk_t                                   chunk,
  input  logic                                     release_chunk,
  // A word is valid a clock after its request.
  input  logic [$clog2(COLUMNS_MAX)-1:0]           column,
  input  logic [$clog2(BURST_BEATS*TILES_PER_BEAT)-1:0] tile,
  output word_t                                    word
);
  // How often banks were filled and emptied, modulo four: the low bit names a bank.
  logic [1:0] filled, emptied;
  assign bank_free = 2'(filled - emptied) != 2;
  assign chunk_valid = filled != emptied;

  chunk_t chunks [2];
  assign chunk = chunks[emptied[0]];

  logic [TILES_PER_BEAT-1:0][T-1:0][7:0] beats [2*COLUMNS_MAX*BURST_BEATS];
  logic [TILES_PER_BEAT-1:0][T-1:0][7:0] beat;
  logic [$clog2(TILES_PER_BEAT)-1:0] place;
  assign word = beat[place];

  always_ff @(posedge clk) begin
    if (store) beats[{filled[0], store_column, store_beat}] <= store_data;
    beat <= beats[{emptied[0], column, tile[$high(tile):$clog2(TILES_PER_BEAT)]}];
    place <= tile[$clog2(TILES_PER_BEAT)-1:0];
    if (loaded) chunks[filled[0]] <= loaded_chunk;
    if (rst) begin
      filled <= 0;
      emptied <= 0;
    end else begin
      filled <= filled + 2'(loaded);
      emptied <= emptied + 2'(release_chunk);
    end
  end
endmodule
