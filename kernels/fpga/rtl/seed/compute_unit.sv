// Makes batches on its own: loads, multiplies and writes back at once, each in its own bank.
module compute_unit
  import seed_pkg::*;
  import rom_pkg::*;
#(
  parameter int BITS = 8
) (
  input  logic        clk,
  input  logic        rst,
  input  order_t      order,
  output logic        batch_ready,
  input  logic        batch_valid,
  input  batch_t      batch,
  output logic        request_valid,
  input  logic        request_ready,
  output logic [63:0] request_address,
  output logic [4:0]  request_beats,
  input  logic        beat_valid,
  input  beat_t       beat_data,
  output logic        port_request,
  input  logic        port_granted,
  output logic        write_valid,
  input  logic        write_ready,
  output logic [63:0] write_address,
  output beat_t       write_data,
  output logic        write_last,
  input  logic        acknowledged,
  output logic        batch_done,
  // The array has a chunk; it could have one, but for a bank of results.
  output logic        busy,
  output logic        waits_for_output
);
  logic load_free, loaded, chunk_valid, release_chunk, result_free, claim;
  logic valid, first, last, word_valid;
  logic [$clog2(COLUMNS_MAX)-1:0] load_column, column;
  logic [$clog2(BURST_BEATS)-1:0] load_beat;
  logic [$clog2(BURST_BEATS*TILES_PER_BEAT)-1:0] tile;
  logic [$clog2(EDGES)-1:0] edge_number;
  logic [$clog2(HALVES)-1:0] half;
  logic [T-1:0][BITS-1:0] coefficients;
  chunk_t loaded_chunk, chunk;
  word_t x, word;

  assign waits_for_output = chunk_valid && !busy && !result_free;

  tile_loader u_loader (
    .clk, .rst, .order, .batch_ready, .batch_valid, .batch,
    .request_valid, .request_ready, .request_address, .request_beats, .beat_valid,
    .bank_free(load_free), .column(load_column), .beat(load_beat), .loaded, .chunk(loaded_chunk)
  );
  tile_buffer u_tiles (
    .clk, .rst, .bank_free(load_free),
    .store(beat_valid), .store_column(load_column), .store_beat(load_beat), .store_data(beat_data),
    .loaded, .loaded_chunk, .chunk_valid, .chunk, .release_chunk, .column, .tile, .word(x)
  );
  feeder u_feeder (
    .clk, .rst, .chunk_valid, .chunk, .release_chunk, .bank_free(result_free), .claim,
    .column, .tile, .edge_number, .half, .running(busy), .valid, .first, .last
  );
  generator_rom #(.BITS(BITS)) u_generators (.clk, .edge_number, .half, .coefficients);
  systolic_tile #(.BITS(BITS)) u_array (
    .clk, .rst, .valid, .first, .last, .x, .coefficients, .word_valid, .word
  );
  output_buffer u_results (
    .clk, .rst, .order, .bank_free(result_free), .claim, .claim_chunk(chunk), .word_valid, .word,
    .request(port_request), .granted(port_granted), .write_valid, .write_ready, .write_address,
    .write_data, .write_last, .acknowledged, .batch_done
  );
endmodule
