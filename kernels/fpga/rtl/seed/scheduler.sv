// Hands out batches to compute units by one of three policies, one a clock at most where they are
// not dealt out beforehand.
module scheduler
  import seed_pkg::*;
#(
  parameter int CUS = 8
) (
  input  logic             clk,
  input  logic             rst,
  input  order_t           order,
  input  logic [CUS-1:0]   ready,
  output logic [CUS-1:0]   valid,
  output batch_t [CUS-1:0] batches
);
  logic is_dynamic, any_valid;
  assign is_dynamic = order.policy == LONGEST_FIRST;

  logic [CUS-1:0] free, chosen, static_valid;
  assign chosen = free & (~free + 1);

  batch_t any_batch;
  longest_first u_longest_first (
    .clk, .rst, .order, .ready(is_dynamic && free != 0), .valid(any_valid), .batch(any_batch)
  );

  for (genvar i = 0; i < CUS; i++) begin : g_unit
    assign free[i] = ready[i] && (3'(i) & ~mask_of(order.units_log2)) == 0;
    batch_t static_batch;
    static_schedule #(.UNIT(i)) u_static (
      .clk, .rst, .order, .ready(!is_dynamic && ready[i]), .valid(static_valid[i]),
      .batch(static_batch)
    );
    assign valid[i] = is_dynamic ? any_valid && chosen[i] : static_valid[i];
    assign batches[i] = is_dynamic ? any_batch : static_batch;
  end
endmodule
