// The two rings in host memory: fetches descriptors, says where completions go.
//
// Heads and tails count without end, modulo 2^32; their low bits are places in a ring.
module rings
  import engine_pkg::*;
  import layout_pkg::*;
(
  input  logic          clk,
  input  logic          rst,
  input  logic          run,
  input  logic [63:0]   submission_base,
  input  logic [3:0]    submission_log2,
  input  logic [31:0]   submission_tail,
  output logic [31:0]   submission_head,
  input  logic [63:0]   completion_base,
  input  logic [3:0]    completion_log2,
  input  logic [31:0]   completion_head,
  output logic          request_valid,
  input  logic          request_ready,
  output read_request_t request,
  input  read_beat_t    beat,
  output logic          descriptor_valid,
  input  logic          descriptor_ready,
  output descriptor_t   descriptor,
  output logic          descriptor_failed,
  // Where the next completion goes, with its phase bit; whether the ring has room for it.
  output logic          completion_room,
  output logic [63:0]   completion_address,
  output logic          completion_phase,
  input  logic          completion_taken
);
  localparam int DEPTH = 8;

  logic [31:0] fetched, completed, submission_place, completion_place;
  logic [3:0] reserved;
  logic [3:0] count;
  logic empty, accept, pop;
  assign request_valid = run && fetched != submission_tail && 32'(reserved) < DEPTH;
  assign submission_place = fetched & ~(32'hFFFF_FFFF << submission_log2);
  assign request.address = submission_base + 64'(submission_place * 32'(DESCRIPTOR_BYTES));
  assign request.beats = 1;
  assign request.tag = 0;
  assign accept = request_valid && request_ready;
  assign pop = descriptor_valid && descriptor_ready;
  assign submission_head = fetched;

  fifo #(.WIDTH(513), .DEPTH(DEPTH)) u_descriptors (
    .clk, .rst, .push(beat.valid && beat.kind == READ_DESCRIPTOR), .in({beat.failed, beat.data}),
    .pop, .out({descriptor_failed, descriptor}), .empty, .count
  );
  assign descriptor_valid = !empty;

  assign completion_room = completed - completion_head < (32'd1 << completion_log2);
  assign completion_place = completed & ~(32'hFFFF_FFFF << completion_log2);
  assign completion_address = completion_base + 64'(completion_place * 32'(COMPLETION_BYTES));
  // Set in the first round, when the host's memory is zero.
  assign completion_phase = ((completed >> completion_log2) & 32'd1) == 0;

  always_ff @(posedge clk) begin
    if (rst) begin
      fetched <= 0;
      completed <= 0;
      reserved <= 0;
    end else begin
      fetched <= fetched + 32'(accept);
      completed <= completed + 32'(completion_taken);
      reserved <= reserved + 4'(accept) - 4'(pop);
    end
  end

  // What is reserved bounds it.
  logic unused;
  assign unused = &{1'b0, count};
endmodule
