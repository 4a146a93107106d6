// T x T processing elements: element (i, j) adds up x[i] times coefficient[j] over the clocks of a
// tile. Row i works i clocks later than the first, column j j clocks; the delays are in here.
//
// After `last` come T clocks without bytes, while the rows hand out their sums. Word j is then
// sum j of every row: the tile, transposed.
module systolic_tile
  import seed_pkg::*;
#(
  parameter int BITS = 8
) (
  input  logic                    clk,
  input  logic                    rst,
  input  logic                    valid,
  input  logic                    first,
  input  logic                    last,
  input  word_t                   x,
  input  logic [T-1:0][BITS-1:0]  coefficients,
  output logic                    word_valid,
  output word_t                   word
);
  logic [BITS-1:0] down [T+1][T];
  for (genvar j = 0; j < T; j++) begin : g_column
    delay #(.WIDTH(BITS), .CLOCKS(j)) u_delay (.clk, .in(coefficients[j]), .out(down[0][j]));
  end

  for (genvar i = 0; i < T; i++) begin : g_row
    logic [7:0] bytes [T+1], results [T+1];
    logic valids [T+1], firsts [T+1], takes [T+1];
    logic last_of_row;
    delay #(.WIDTH(11), .CLOCKS(i)) u_delay (
      .clk, .in({x[i], valid, first, last}),
      .out({bytes[0], valids[0], firsts[0], last_of_row})
    );
    always_ff @(posedge clk) takes[0] <= last_of_row;
    assign results[0] = 0;
    for (genvar j = 0; j < T; j++) begin : g_pe
      pe #(.BITS(BITS)) u_pe (
        .clk,
        .x_in(bytes[j]), .x_out(bytes[j+1]),
        .valid_in(valids[j]), .valid_out(valids[j+1]),
        .first_in(firsts[j]), .first_out(firsts[j+1]),
        .take_in(takes[j]), .take_out(takes[j+1]),
        .result_in(results[j]), .result_out(results[j+1]),
        .coefficient_in(down[i][j]), .coefficient_out(down[i+1][j])
      );
    end
    delay #(.WIDTH(8), .CLOCKS(T - 1 - i)) u_align (.clk, .in(results[T]), .out(word[i]));
  end

  // The first word is there 2 T clocks after `last`: T elements, T - 1 rows, and the token's start.
  logic [3*T-2:0] since_last;
  assign word_valid = |since_last[3*T-2:2*T-1];
  always_ff @(posedge clk)
    if (rst) since_last <= 0;
    else since_last <= {since_last[3*T-3:0], last};
endmodule
