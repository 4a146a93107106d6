// Keeps sums between passes, and makes the corner turn after the tile: columns in, destination rows
// out.
//
// Sums of a chunk stay in the order of its words until the last pass over its sources. Then word w
// of destination n goes to block (w + n) mod NT, at address {bank, beat, n}, so that a beat of one
// destination is in all blocks. Two banks: one is filled while the other is drained.
module output_store
  import engine_pkg::*;
#(
  parameter int LANES = 4,
  parameter int NT = 16,
  localparam int NT_BITS = $clog2(NT)
) (
  input  logic                clk,
  // Sums so far, a clock later: byte [lane][destination].
  input  logic [3:0]          so_far_beat,
  input  logic [NT_BITS-1:0]  so_far_word,
  output logic [511:0]        so_far,
  // Sums with this pass.
  input  logic [511:0]        y,
  input  logic                sum_valid,
  input  logic                sum_last,
  input  logic [3:0]          sum_beat,
  input  logic [NT_BITS-1:0]  sum_word,
  input  logic                sum_bank,
  // A beat of a destination, one clock later: its word w in block (w + row) mod NT.
  input  logic                read_bank,
  input  logic [3:0]          read_beat,
  input  logic [NT_BITS-1:0]  read_row,
  output logic [511:0]        read_data
);
  localparam int SUM_BITS = 4 + NT_BITS;

  logic [511:0] sums [2**SUM_BITS];
  always_ff @(posedge clk) begin
    so_far <= sums[{so_far_beat, so_far_word}];
    if (sum_valid && !sum_last) sums[{sum_beat, sum_word}] <= y;
  end

  logic [511:0] column, turned;
  always_comb
    for (int n = 0; n < NT; n++)
      for (int i = 0; i < LANES; i++) column[8*(n*LANES + i) +: 8] = y[8*(i*NT + n) +: 8];
  // Destination n to block word + n.
  assign turned = 512'(({column, column} << (10'(sum_word) * 10'(8 * LANES))) >> 512);

  for (genvar block = 0; block < NT; block++) begin : g_block
    logic [8*LANES-1:0] words [2 * CHUNK_BEATS * NT];
    logic [NT_BITS-1:0] row;
    assign row = NT_BITS'(block) - sum_word;
    always_ff @(posedge clk) begin
      if (sum_valid && sum_last)
        words[{sum_bank, sum_beat, row}] <= turned[8*LANES*block +: 8*LANES];
      read_data[8*LANES*block +: 8*LANES] <= words[{read_bank, read_beat, read_row}];
    end
  end
endmodule
