// The batches of one compute unit where each has its place beforehand. In order: unit u of n makes
// batches u, u + n, u + 2 n. Mirrored (the paper's Alg. 4, taken literally): the rows of the base
// graph are dealt out to the units, and after all rows the units are taken in the opposite order.
module static_schedule
  import seed_pkg::*;
  import rom_pkg::*;
#(
  parameter int UNIT = 0
) (
  input  logic   clk,
  input  logic   rst,
  input  order_t order,
  input  logic   ready,
  output logic   valid,
  output batch_t batch
);
  logic [2:0] mask, own;
  assign mask = mask_of(order.units_log2);
  always_comb begin
    own = batch.number[2:0] & mask;
    if (order.policy == MIRRORED) own = (batch.row ^ {3{batch.shift[0]}}) & mask;
  end

  logic is_within, is_own;
  assign is_within = batch.number < order.batches;
  assign is_own = own == 3'(UNIT);
  assign valid = is_within && is_own;

  always_ff @(posedge clk)
    if (rst) batch <= 0;
    else if (is_within && (!is_own || ready)) begin
      batch.number <= batch.number + 1;
      batch.row <= batch.row == 3'(ROWS - 1) ? 0 : batch.row + 1;
      if (batch.row == 3'(ROWS - 1)) batch.shift <= batch.shift + 1;
    end
endmodule
