// The write half of the memory port: destination rows from the output store, and completions.
//
// A beat of a row is turned by bytes to where it lies in memory; what does not fit goes into the
// next beat. Bytes outside of the row have no strobe, so neighbours stay as they are.
module writer
  import engine_pkg::*;
#(
  parameter int LANES = 4,
  parameter int NT = 16,
  localparam int NT_BITS = $clog2(NT)
) (
  input  logic               clk,
  input  logic               rst,
  // Takes no more rows and completions; what has begun ends.
  input  logic               halt,
  output logic               idle,
  input  logic               row_valid,
  output logic               row_ready,
  input  row_t               row,
  input  logic               output_filled,
  output logic               output_drained,
  output logic               read_bank,
  output logic [3:0]         read_beat,
  output logic [NT_BITS-1:0] read_row,
  input  logic [511:0]       read_data,
  input  logic               completion_valid,
  output logic               completion_ready,
  input  logic [63:0]        completion_address,
  input  logic [127:0]       completion_data,
  // An acknowledgement: of a job's last burst, of a failed burst, of a completion.
  output logic               job_written,
  output logic               job_failed,
  output slot_t              job_slot,
  output logic               completion_written,
  output logic               completion_failed,
  output logic               axi_awvalid,
  input  logic               axi_awready,
  output logic [63:0]        axi_awaddr,
  output logic [7:0]         axi_awlen,
  output logic               axi_wvalid,
  input  logic               axi_wready,
  output logic [511:0]       axi_wdata,
  output logic [63:0]        axi_wstrb,
  output logic               axi_wlast,
  input  logic               axi_bvalid,
  output logic               axi_bready,
  input  logic [1:0]         axi_bresp
);
  localparam int BURSTS = 8;
  localparam int BEATS = 16;
  // Bursts that are not acknowledged: with completions of one beat, the latency that is hidden.
  localparam int UNACKNOWLEDGED = 128;

  logic [$clog2(BURSTS):0] burst_count;
  logic [$clog2(BEATS):0] beat_count;
  logic [$clog2(UNACKNOWLEDGED):0] waiting_count;
  logic bursts_empty, beats_empty, waiting_empty;
  logic has_burst_room, has_beat_room;
  assign has_burst_room = 32'(burst_count) < BURSTS && 32'(waiting_count) < UNACKNOWLEDGED;
  // Three may be in flight.
  assign has_beat_room = 32'(beat_count) <= BEATS - 4;

  // The row at hand.
  logic busy;
  row_t current;
  logic [4:0] index;
  logic [5:0] left, burst_left;
  logic [57:0] beat_address;
  logic begins_burst, step, last_beat, takes_row, takes_completion;
  logic [5:0] burst_beats;
  logic [6:0] to_boundary;
  assign begins_burst = burst_left == 0;
  assign step = busy && has_beat_room && (!begins_burst || has_burst_room);
  assign last_beat = left == 1;
  assign to_boundary = 7'd64 - 7'(beat_address[5:0]);
  assign burst_beats = 7'(left) > to_boundary ? 6'(to_boundary) : left;

  logic [1:0] filled, filled_next;
  logic frees;
  assign frees = !busy || (step && last_beat);
  assign takes_completion =
    completion_valid && !busy && !halt && has_beat_room && has_burst_room;
  assign completion_ready = takes_completion;
  assign takes_row = row_valid && frees && !halt && filled_next != 0
    && !(completion_valid && has_burst_room);
  assign row_ready = takes_row;
  assign output_drained =
    step && last_beat && (current.last_row || &current.row[NT_BITS-1:0]);
  assign filled_next = filled - 2'(output_drained);

  always_ff @(posedge clk) begin
    if (rst) begin
      busy <= 0;
      filled <= 0;
      read_bank <= 0;
      burst_left <= 0;
    end else begin
      busy <= takes_row || (busy && !(step && last_beat));
      filled <= filled_next + 2'(output_filled);
      if (output_drained) read_bank <= !read_bank;
      if (takes_row) burst_left <= 0;
      else if (step) burst_left <= (begins_burst ? burst_beats : burst_left) - 1;
    end
    if (takes_row) begin
      current <= row;
      index <= 0;
      left <= 6'((12'(row.bytes) + 12'(row.address[5:0]) + 12'd63) >> 6);
      beat_address <= row.address[63:6];
    end else if (step) begin
      index <= index + 1;
      left <= left - 1;
      beat_address <= beat_address + 1;
    end
  end
  assign read_beat = index[3:0];
  assign read_row = current.row[NT_BITS-1:0];

  // Bursts, and what their acknowledgements are about.
  logic push_burst, ends_job;
  assign push_burst = takes_completion || (step && begins_burst);
  assign ends_job = current.last_row && current.last_chunk && burst_beats == left;
  logic [69:0] burst;
  fifo #(.WIDTH(70), .DEPTH(BURSTS)) u_bursts (
    .clk, .rst, .push(push_burst),
    .in(takes_completion ? {completion_address[63:6], 6'd0, 6'd1}
                         : {beat_address, 6'd0, burst_beats}),
    .pop(axi_awvalid && axi_awready), .out(burst), .empty(bursts_empty), .count(burst_count)
  );
  assign axi_awvalid = !bursts_empty;
  assign axi_awaddr = burst[69:6];
  assign axi_awlen = 8'(burst[5:0]) - 8'd1;

  logic of_completion, of_last;
  fifo #(.WIDTH(2 + SLOT_BITS), .DEPTH(UNACKNOWLEDGED)) u_waiting (
    .clk, .rst, .push(push_burst), .in({takes_completion, ends_job, current.slot}),
    .pop(axi_bvalid && axi_bready), .out({of_completion, of_last, job_slot}),
    .empty(waiting_empty), .count(waiting_count)
  );
  assign axi_bready = !waiting_empty;
  logic acknowledged;
  assign acknowledged = axi_bvalid && axi_bready;
  assign job_written = acknowledged && !of_completion && of_last;
  assign job_failed = acknowledged && !of_completion && axi_bresp != 0;
  assign completion_written = acknowledged && of_completion;
  assign completion_failed = completion_written && axi_bresp != 0;

  // Beats: read, turned, joined with what the beat before left over.
  typedef struct packed {
    logic        valid;
    logic        is_completion;
    logic        first;
    logic        last;
    logic [5:0]  shift;
    // Bytes of the row from the start of this beat, of which there are at most 1024 + 63.
    logic [10:0] end_byte;
  } beat_t;
  beat_t now, at_read, at_turn;
  logic [5:0] rotation;
  logic [511:0] turned, turned_now, turned_before;
  rotator u_rotator (.in(read_data), .places(rotation), .out(turned_now));
  logic [127:0] completion_read, completion_turn;
  assign now = '{
    valid: step || takes_completion, is_completion: takes_completion, first: index == 0,
    last: takes_completion || (begins_burst ? burst_beats == 1 : burst_left == 1),
    shift: takes_completion ? completion_address[5:0] : current.address[5:0],
    end_byte: 11'(12'(current.bytes) + 12'(current.address[5:0]) - {1'b0, index, 6'd0})
  };
  always_ff @(posedge clk) begin
    at_read <= rst ? '0 : now;
    rotation <= 6'(32'(read_row) * LANES) - current.address[5:0];
    completion_read <= completion_data;

    at_turn <= rst ? '0 : at_read;
    turned <= turned_now;
    completion_turn <= completion_read;

    if (at_turn.valid) turned_before <= turned;
  end

  logic [511:0] joined;
  logic [63:0] strobe;
  always_comb begin
    for (int i = 0; i < 64; i++) begin
      joined[8*i +: 8] = 6'(i) >= at_turn.shift ? turned[8*i +: 8] : turned_before[8*i +: 8];
      strobe[i] = (!at_turn.first || 6'(i) >= at_turn.shift) && 11'(i) < at_turn.end_byte;
    end
    if (at_turn.is_completion) begin
      joined = {4{completion_turn}};
      strobe = 64'hFFFF << at_turn.shift;
    end
  end
  fifo #(.WIDTH(577), .DEPTH(BEATS)) u_beats (
    .clk, .rst, .push(at_turn.valid), .in({at_turn.last, strobe, joined}),
    .pop(axi_wvalid && axi_wready), .out({axi_wlast, axi_wstrb, axi_wdata}),
    .empty(beats_empty), .count(beat_count)
  );
  assign axi_wvalid = !beats_empty;

  assign idle = !busy && waiting_empty && beats_empty && bursts_empty;
endmodule
