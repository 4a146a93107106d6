// Offers, of the next WINDOW batches, one with the highest degree. Rows of the base graph are in
// the order of their degrees, so that counting the waiting batches of each row is enough.
module longest_first
  import seed_pkg::*;
  import rom_pkg::*;
#(
  parameter int WINDOW = 32
) (
  input  logic   clk,
  input  logic   rst,
  input  order_t order,
  input  logic   ready,
  output logic   valid,
  output batch_t batch
);
  localparam int BITS = $clog2(WINDOW + 1);
  logic [BITS-1:0] waiting [ROWS];
  batch_t next [ROWS];
  logic [BITS-1:0] total;
  logic [15:0] entered;
  logic [2:0] entering;

  logic enters, leaves, is_started;
  assign enters = entered < order.batches && total < BITS'(WINDOW);
  assign leaves = valid && ready;

  logic [2:0] longest;
  always_comb begin
    longest = 0;
    for (int row = 0; row < ROWS; row++) if (waiting[row] != 0) longest = 3'(row);
  end
  // Not before the window is full, once.
  assign valid = is_started && total != 0;
  assign batch = next[longest];

  always_ff @(posedge clk)
    if (rst) begin
      total <= 0;
      entered <= 0;
      entering <= 0;
      is_started <= 0;
      for (int row = 0; row < ROWS; row++) begin
        waiting[row] <= 0;
        next[row] <= {16'(row), 3'(row), 8'd0};
      end
    end else begin
      is_started <= is_started || !enters;
      total <= total + BITS'(enters) - BITS'(leaves);
      if (enters) begin
        entered <= entered + 1;
        entering <= entering == 3'(ROWS - 1) ? 0 : entering + 1;
      end
      for (int row = 0; row < ROWS; row++)
        waiting[row] <= waiting[row] + BITS'(enters && entering == 3'(row))
                      - BITS'(leaves && longest == 3'(row));
      if (leaves) begin
        next[longest].number <= batch.number + 16'(ROWS);
        next[longest].shift <= batch.shift + 1;
      end
    end
endmodule
