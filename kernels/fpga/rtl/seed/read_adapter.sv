// A read port of memory that compute units share: one burst at a time.
module read_adapter
  import seed_pkg::*;
#(
  parameter int CUS = 8
) (
  input  logic                 clk,
  input  logic                 rst,
  input  logic [CUS-1:0]       requests,
  input  logic [CUS-1:0][63:0] addresses,
  input  logic [CUS-1:0][4:0]  beats,
  // The request is taken; its beats, in their order.
  output logic [CUS-1:0]       taken,
  output logic [CUS-1:0]       beat_valid,
  output logic                 request_valid,
  input  logic                 request_ready,
  output logic [63:0]          request_address,
  output logic [4:0]           request_beats,
  input  logic                 memory_valid
);
  logic [CUS-1:0] grant;
  logic ends;
  arbiter #(.COUNT(CUS)) u_arbiter (.clk, .rst, .requests, .release_grant(ends), .grant);

  logic requested;
  logic [4:0] left;
  assign ends = memory_valid && left == 1;
  assign request_valid = grant != 0 && !requested;
  assign taken = request_valid && request_ready ? grant : 0;
  assign beat_valid = memory_valid ? grant : 0;

  always_comb begin
    request_address = 0;
    request_beats = 0;
    for (int i = 0; i < CUS; i++) begin
      request_address |= grant[i] ? addresses[i] : 0;
      request_beats |= grant[i] ? beats[i] : 0;
    end
  end

  always_ff @(posedge clk) begin
    if (request_valid && request_ready) left <= request_beats;
    else if (memory_valid) left <= left - 1;
    if (rst || ends) requested <= 0;
    else if (request_valid && request_ready) requested <= 1;
  end
endmodule
