// The scheduler alone, with 8 compute units: batches cost what their degrees say (sim/seed.cpp).
module schedule
  import seed_pkg::*;
(
  input  logic            clk,
  input  logic            rst,
  input  logic [1:0]      units_log2,
  input  logic [1:0]      policy,
  input  logic [15:0]     batches,
  input  logic [7:0]      ready,
  output logic [7:0]      valid,
  output logic [7:0][2:0] rows,
  output logic [7:0][15:0] numbers
);
  order_t order;
  always_comb begin
    order = '0;
    order.units_log2 = units_log2;
    order.policy = policy_t'(policy);
    order.batches = batches;
  end
  batch_t [7:0] batch;
  scheduler #(.CUS(8)) u_scheduler (.clk, .rst, .order, .ready, .valid, .batches(batch));
  for (genvar i = 0; i < 8; i++) begin : g_unit
    assign rows[i] = batch[i].row;
    assign numbers[i] = batch[i].number;
  end
endmodule
