// A write port of memory that compute units share, a full buffer at a time (the paper's Alg. 3).
module output_port
  import seed_pkg::*;
#(
  parameter int CUS = 8
) (
  input  logic                 clk,
  input  logic                 rst,
  input  logic [CUS-1:0]       requests,
  output logic [CUS-1:0]       grant,
  input  logic [CUS-1:0]       valids,
  input  logic [CUS-1:0][63:0] addresses,
  input  beat_t [CUS-1:0]      data,
  input  logic [CUS-1:0]       lasts,
  output logic                 write_valid,
  output logic [63:0]          write_address,
  output beat_t                write_data,
  output logic                 write_last,
  // All that was written is in memory.
  input  logic                 acknowledged
);
  arbiter #(.COUNT(CUS)) u_arbiter (.clk, .rst, .requests, .release_grant(acknowledged), .grant);

  assign write_valid = |(grant & valids);
  assign write_last = |(grant & lasts);
  always_comb begin
    write_address = 0;
    write_data = 0;
    for (int i = 0; i < CUS; i++) begin
      write_address |= grant[i] ? addresses[i] : 0;
      write_data |= grant[i] ? data[i] : 0;
    end
  end
endmodule
