// Rings of two descriptors and two completions, with the fields that are compared.
module rings_bench
  import engine_pkg::*;
  import layout_pkg::*;
(
  input  logic        clk, rst, run,
  input  logic [31:0] submission_tail, completion_head,
  output logic [31:0] submission_head,
  output logic        request_valid,
  input  logic        request_ready,
  output logic [63:0] request_address,
  output logic [5:0]  request_beats,
  input  logic        beat_valid, beat_failed,
  input  logic [1:0]  beat_kind,
  input  logic [31:0] beat_data,
  output logic        descriptor_valid,
  input  logic        descriptor_ready,
  output logic [31:0] descriptor_data,
  output logic        descriptor_failed, completion_room, completion_phase,
  output logic [63:0] completion_address,
  input  logic        completion_taken
);
  read_request_t request;
  read_beat_t beat;
  descriptor_t descriptor;
  assign request_address = request.address;
  assign request_beats = request.beats;
  assign beat = '{
    valid: beat_valid, kind: read_kind_t'(beat_kind), tag: '0, index: '0, last: 1'b1,
    failed: beat_failed, data: {480'd0, beat_data}
  };
  assign descriptor_data = 32'(descriptor);
  rings u_rings (
    .clk, .rst, .run, .submission_base(64'h1_0000_1000), .submission_log2(4'd1), .submission_tail,
    .submission_head, .completion_base(64'h2_0000_2000), .completion_log2(4'd1), .completion_head,
    .request_valid, .request_ready, .request, .beat, .descriptor_valid, .descriptor_ready,
    .descriptor, .descriptor_failed, .completion_room, .completion_address, .completion_phase,
    .completion_taken
  );
endmodule
