// The read half of the memory port: requests of four kinds in, beats with their tags out, in order.
//
// All reads have one ID, so beats come back in the order of the requests. Who asks has room for the
// answer, so beats are never held back. Bursts do not cross 4 KiB, as AXI demands.
module reader
  import engine_pkg::*;
#(
  // Requests in flight: at one beat each, the clocks of latency that are hidden.
  parameter int REQUESTS = 128
) (
  input  logic                clk,
  input  logic                rst,
  // Takes no more requests; those in flight end.
  input  logic                halt,
  output logic                idle,
  // By kind; a lower kind goes first.
  input  logic [3:0]          request_valid,
  output logic [3:0]          request_ready,
  input  read_request_t [3:0] request,
  output read_beat_t          beat,
  output logic                axi_arvalid,
  input  logic                axi_arready,
  output logic [63:0]         axi_araddr,
  output logic [7:0]          axi_arlen,
  input  logic                axi_rvalid,
  output logic                axi_rready,
  input  logic [511:0]        axi_rdata,
  input  logic [1:0]          axi_rresp
);
  localparam int BURSTS = 8;

  // The first request of the lowest kind.
  logic [1:0] kind;
  logic any;
  always_comb begin
    kind = 0;
    for (int i = 3; i >= 0; i--) if (request_valid[i]) kind = 2'(i);
  end
  assign any = |request_valid;
  read_request_t chosen;
  assign chosen = request[kind];

  // The second burst of a request that crosses 4 KiB.
  logic rest;
  logic [63:0] rest_address;
  logic [5:0] rest_beats;

  logic [$clog2(BURSTS):0] burst_count;
  logic [$clog2(REQUESTS):0] request_count;
  logic bursts_empty, requests_empty, take;
  assign take = any && !halt && !rest && 32'(burst_count) < BURSTS && 32'(request_count) < REQUESTS;
  assign request_ready = take ? 4'd1 << kind : 4'd0;

  logic [6:0] to_boundary;
  assign to_boundary = 7'd64 - 7'(chosen.address[11:6]);
  logic crosses;
  assign crosses = 7'(chosen.beats) > to_boundary;
  logic [5:0] first_beats;
  assign first_beats = crosses ? 6'(to_boundary) : chosen.beats;

  logic push_rest;
  assign push_rest = rest && 32'(burst_count) < BURSTS;
  logic [5:0] burst_beats;
  logic [63:0] burst_address;
  assign burst_beats = rest ? rest_beats : first_beats;
  assign burst_address = rest ? rest_address : {chosen.address[63:6], 6'd0};
  always_ff @(posedge clk) begin
    if (rst) rest <= 0;
    else if (take) rest <= crosses;
    else if (push_rest) rest <= 0;
    if (take) begin
      rest_address <= {chosen.address[63:12] + 52'd1, 12'd0};
      rest_beats <= chosen.beats - first_beats;
    end
  end

  logic [69:0] burst;
  fifo #(.WIDTH(70), .DEPTH(BURSTS)) u_bursts (
    .clk, .rst, .push(take || push_rest), .in({burst_address, burst_beats}),
    .pop(axi_arvalid && axi_arready), .out(burst), .empty(bursts_empty), .count(burst_count)
  );
  assign axi_arvalid = !bursts_empty;
  assign axi_araddr = burst[69:6];
  assign axi_arlen = 8'(burst[5:0]) - 8'd1;

  logic [1:0] head_kind;
  logic [5:0] head_beats, index;
  read_tag_t head_tag;
  logic is_last;
  assign axi_rready = !requests_empty;
  assign is_last = index == head_beats - 1;
  fifo #(.WIDTH(2 + 6 + TAG_BITS), .DEPTH(REQUESTS)) u_requests (
    .clk, .rst, .push(take), .in({kind, chosen.beats, chosen.tag}),
    .pop(axi_rvalid && axi_rready && is_last), .out({head_kind, head_beats, head_tag}),
    .empty(requests_empty), .count(request_count)
  );

  always_ff @(posedge clk) begin
    beat.valid <= axi_rvalid && axi_rready && !rst;
    beat.kind <= read_kind_t'(head_kind);
    beat.tag <= head_tag;
    beat.index <= index;
    beat.last <= is_last;
    beat.failed <= axi_rresp != 0;
    beat.data <= axi_rdata;
    if (rst) index <= 0;
    else if (axi_rvalid && axi_rready) index <= is_last ? 0 : index + 1;
  end

  assign idle = requests_empty && !beat.valid;
endmodule
