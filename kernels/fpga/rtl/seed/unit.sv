// The paper's accelerator: up to CUS compute units that read through up to ADAPTERS ports of memory
// and write through up to PORTS. How many of them work is said by the order, so that one simulation
// does all of the paper's experiments. An order is taken when reset ends.
module unit
  import seed_pkg::*;
#(
  parameter int BITS = 2,
  parameter int CUS = 8,
  parameter int ADAPTERS = 8,
  parameter int PORTS = 2
) (
  input  logic                      clk,
  input  logic                      rst,
  input  logic [1:0]                units_log2,
  input  logic [1:0]                adapters_log2,
  input  logic                      ports_log2,
  input  logic [1:0]                policy,
  input  logic [15:0]               batches,
  input  logic [15:0]               packet_beats,
  input  logic [63:0]               sources,
  input  logic [63:0]               destinations,
  output logic                      finished,
  output logic [ADAPTERS-1:0]       request_valid,
  input  logic [ADAPTERS-1:0]       request_ready,
  output logic [ADAPTERS-1:0][63:0] request_address,
  output logic [ADAPTERS-1:0][7:0]  request_beats,
  input  logic [ADAPTERS-1:0]       beat_valid,
  input  beat_t [ADAPTERS-1:0]      beat_data,
  output logic [PORTS-1:0]          write_valid,
  input  logic [PORTS-1:0]          write_ready,
  output logic [PORTS-1:0][63:0]    write_address,
  output beat_t [PORTS-1:0]         write_data,
  output logic [PORTS-1:0]          write_last,
  input  logic [PORTS-1:0]          acknowledged,
  // Of each compute unit: the array has a chunk, or could have one but for a bank of results.
  output logic [CUS-1:0]            busy,
  output logic [CUS-1:0]            waits_for_output
);
  order_t order;
  assign order = {units_log2, adapters_log2, ports_log2, policy_t'(policy),
                  batches, packet_beats, sources, destinations};

  logic [CUS-1:0] batch_ready, batch_valid, batch_done;
  batch_t [CUS-1:0] batch;
  scheduler #(.CUS(CUS)) u_scheduler (
    .clk, .rst, .order, .ready(batch_ready), .valid(batch_valid), .batches(batch)
  );

  logic [CUS-1:0] requests, port_requests, write_valids, write_lasts;
  logic [CUS-1:0][63:0] request_addresses, write_addresses;
  logic [CUS-1:0][4:0] request_lengths;
  beat_t [CUS-1:0] write_beats;
  logic [ADAPTERS-1:0][CUS-1:0] adapter_taken, adapter_valid;
  logic [PORTS-1:0][CUS-1:0] port_grants;

  logic [2:0] adapter_mask;
  assign adapter_mask = mask_of(order.adapters_log2);

  for (genvar i = 0; i < CUS; i++) begin : g_unit
    logic [2:0] adapter;
    assign adapter = 3'(i) & adapter_mask;
    logic port;
    assign port = 1'(i) & order.ports_log2;
    compute_unit #(.BITS(BITS)) u_unit (
      .clk, .rst, .order,
      .batch_ready(batch_ready[i]), .batch_valid(batch_valid[i]), .batch(batch[i]),
      .request_valid(requests[i]), .request_ready(adapter_taken[adapter][i]),
      .request_address(request_addresses[i]), .request_beats(request_lengths[i]),
      .beat_valid(adapter_valid[adapter][i]), .beat_data(beat_data[adapter]),
      .port_request(port_requests[i]), .port_granted(port_grants[port][i]),
      .write_valid(write_valids[i]), .write_ready(write_ready[port]),
      .write_address(write_addresses[i]), .write_data(write_beats[i]),
      .write_last(write_lasts[i]), .acknowledged(acknowledged[port]),
      .batch_done(batch_done[i]), .busy(busy[i]), .waits_for_output(waits_for_output[i])
    );
  end

  for (genvar a = 0; a < ADAPTERS; a++) begin : g_adapter
    logic [CUS-1:0] served;
    logic [4:0] length;
    for (genvar i = 0; i < CUS; i++) begin : g_of
      assign served[i] = (3'(i) & adapter_mask) == 3'(a);
    end
    read_adapter #(.CUS(CUS)) u_adapter (
      .clk, .rst, .requests(requests & served), .addresses(request_addresses),
      .beats(request_lengths), .taken(adapter_taken[a]), .beat_valid(adapter_valid[a]),
      .request_valid(request_valid[a]), .request_ready(request_ready[a]),
      .request_address(request_address[a]), .request_beats(length),
      .memory_valid(beat_valid[a])
    );
    assign request_beats[a] = 8'(length);
  end

  for (genvar p = 0; p < PORTS; p++) begin : g_port
    logic [CUS-1:0] served;
    for (genvar i = 0; i < CUS; i++) begin : g_of
      assign served[i] = (1'(i) & order.ports_log2) == 1'(p);
    end
    output_port #(.CUS(CUS)) u_port (
      .clk, .rst, .requests(port_requests & served), .grant(port_grants[p]),
      .valids(write_valids), .addresses(write_addresses), .data(write_beats),
      .lasts(write_lasts), .write_valid(write_valid[p]), .write_address(write_address[p]),
      .write_data(write_data[p]), .write_last(write_last[p]), .acknowledged(acknowledged[p])
    );
  end

  logic [15:0] done;
  always_ff @(posedge clk)
    if (rst) done <= 0;
    else done <= done + 16'($countones(batch_done));
  assign finished = done == batches;
endmodule
