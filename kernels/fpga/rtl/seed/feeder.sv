// Takes the array through a chunk: every tile of it, for each half of the batch, all packets in
// turn and T clocks for the sums to leave. A tile of packets is used for both halves.
module feeder
  import seed_pkg::*;
  import rom_pkg::*;
(
  input  logic                                     clk,
  input  logic                                     rst,
  input  logic                                     chunk_valid,
  input  chunk_t                                   chunk,
  output logic                                     release_chunk,
  // A bank for the results, taken when a chunk begins.
  input  logic                                     bank_free,
  output logic                                     claim,
  // To the memories, which answer a clock later.
  output logic [$clog2(COLUMNS_MAX)-1:0]           column,
  output logic [$clog2(BURST_BEATS*TILES_PER_BEAT)-1:0] tile,
  output logic [$clog2(EDGES)-1:0]                 edge_number,
  output logic [$clog2(HALVES)-1:0]                half,
  output logic                                     running,
  // To the array, with what the memories answer.
  output logic                                     valid,
  output logic                                     first,
  output logic                                     last
);
  logic [5:0] step, degree;
  assign degree = 6'(DEGREE[chunk.batch.row]);

  logic in_sum, ends_tile, ends_halves, ends_chunk;
  assign in_sum = running && step < degree;
  assign ends_tile = running && step + 1 == degree + 6'(T);
  assign ends_halves = ends_tile && half == $bits(half)'(HALVES - 1);
  assign ends_chunk = ends_halves && 7'(tile) + 1 == {chunk.beats, 2'b00};

  assign claim = !running && chunk_valid && bank_free;
  assign release_chunk = ends_chunk;
  assign column = step[$bits(column)-1:0];
  assign edge_number = START[chunk.batch.row] + 7'(column);

  always_ff @(posedge clk) begin
    first <= step == 0;
    if (rst) begin
      running <= 0;
      step <= 0;
      half <= 0;
      tile <= 0;
      valid <= 0;
      last <= 0;
    end else begin
      valid <= in_sum;
      last <= in_sum && step + 1 == degree;
      if (claim) running <= 1;
      else if (ends_chunk) running <= 0;
      if (running) step <= ends_tile ? 0 : step + 1;
      if (ends_tile) half <= half + 1;
      if (ends_halves) tile <= ends_chunk ? 0 : tile + 1;
    end
  end
endmodule
