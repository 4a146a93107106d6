// The slots of jobs: takes descriptors in, fetches their lists, and completes them in order.
//
//        completed ----- walked (by each stage) ----- ready ----- allocated
//
// A job is ready when its lists have arrived, and completed when its last byte has been written and
// acknowledged. A job that cannot be done is skipped by every stage, and completed with the reason.
module jobs
  import engine_pkg::*;
  import layout_pkg::*;
#(
  parameter int KT = 16,
  parameter int NT = 16,
  parameter int ROW_BYTES_MAX = 9216
) (
  input  logic                       clk,
  input  logic                       rst,
  input  logic                       descriptor_valid,
  output logic                       descriptor_ready,
  input  descriptor_t                descriptor,
  input  logic                       descriptor_failed,
  output logic                       request_valid,
  input  logic                       request_ready,
  output read_request_t              request,
  input  read_beat_t                 beat,
  output slot_pointer_t              ready,
  input  slot_pointer_t [STAGES-1:0] walked,
  output job_t [STAGES-1:0]          job,
  output logic [STAGES-1:0]          skip,
  // A job's last byte is written, or a write of it failed.
  input  logic                       written,
  input  logic                       write_failed,
  input  slot_t                      written_slot,
  // All of a completion but its phase.
  output logic                       completion_valid,
  input  logic                       completion_ready,
  output completion_t                completion,
  output logic                       idle,
  output logic                       read_failed
);
  slot_pointer_t allocated, listing, completed;
  slot_t new_slot, list_slot, done_slot;
  assign new_slot = allocated[SLOT_BITS-1:0];
  assign list_slot = listing[SLOT_BITS-1:0];
  assign done_slot = completed[SLOT_BITS-1:0];
  assign idle = allocated == completed;

  // Takes a descriptor. A barrier waits until all jobs before it are completed.
  logic accept, is_work;
  assign descriptor_ready = allocated - completed != slot_pointer_t'(SLOTS)
    && (idle || descriptor.op != OP_BARRIER || descriptor_failed);
  assign accept = descriptor_valid && descriptor_ready;
  assign is_work = descriptor.op == OP_MULTIPLY;

  logic listed_sources, listed_destinations, bad_address;
  assign listed_sources = !descriptor.flags[FLAG_SOURCE_STRIDE];
  assign listed_destinations = !descriptor.flags[FLAG_DESTINATION_STRIDE];
  assign bad_address = descriptor.coefficients == 0 || descriptor.coefficients[5:0] != 0
    || descriptor.sources == 0 || (listed_sources && descriptor.sources[5:0] != 0)
    || descriptor.destinations == 0 || (listed_destinations && descriptor.destinations[5:0] != 0);

  logic [15:0] verdict;
  always_comb begin
    verdict = STATUS_OK;
    if (descriptor_failed) verdict = STATUS_DESCRIPTOR;
    else if (descriptor.op > OP_NOP) verdict = STATUS_OPERATION;
    else if (is_work) begin
      if (descriptor.field > FIELD_GF2) verdict = STATUS_FIELD;
      else if (descriptor.k == 0 || descriptor.k > 16'(ROWS_MAX) || descriptor.n == 0
               || descriptor.n > 16'(ROWS_MAX)) verdict = STATUS_SIZE;
      else if (descriptor.row_bytes == 0 || descriptor.row_bytes > ROW_BYTES_MAX)
        verdict = STATUS_LENGTH;
      else if (bad_address) verdict = STATUS_ADDRESS;
    end
  end

  // As many beats as leave half of the input store to the next chunk, a power of two; then reduced
  // until all chunks of the job are about as long: a short one would wait for a long one's writes.
  job_t new_job;
  logic [5:0] k_tiles;
  logic [2:0] beats_log2;
  logic [7:0] beats, chunks;
  assign k_tiles = 6'((32'(descriptor.k) + KT - 1) / KT);
  assign beats = 8'((32'(descriptor.row_bytes[15:0]) + 63) / 64);
  always_comb begin
    beats_log2 = 3'($clog2(CHUNK_BEATS));
    for (int i = 0; i < $clog2(CHUNK_BEATS); i++)
      if (32'(k_tiles) << beats_log2 > UNITS / 2) beats_log2 -= 1;
    chunks = 8'((32'(beats) + (32'd1 << beats_log2) - 1) >> beats_log2);
    new_job.chunk_beats = 5'(CHUNK_BEATS);
    for (int i = CHUNK_BEATS; i > 0; i--)
      if (32'(i) * 32'(chunks) >= 32'(beats)) new_job.chunk_beats = 5'(i);
    new_job.field = descriptor.field[1:0];
    new_job.polynomial = descriptor.polynomial;
    new_job.k = descriptor.k[8:0];
    new_job.n = descriptor.n[8:0];
    new_job.k_tiles = k_tiles;
    new_job.n_tiles = 6'((32'(descriptor.n) + NT - 1) / NT);
    new_job.row_bytes = descriptor.row_bytes[15:0];
    new_job.coefficients = descriptor.coefficients;
    new_job.sources = descriptor.sources;
    new_job.destinations = descriptor.destinations;
    new_job.source_stride = descriptor.source_stride;
    new_job.destination_stride = descriptor.destination_stride;
    new_job.sources_listed = listed_sources;
    new_job.destinations_listed = listed_destinations;
  end

  // Written once, read by the stages.
  job_t slots [SLOTS];
  logic [31:0] tags [SLOTS];
  logic [31:0] begun [SLOTS];
  logic [31:0] clock;
  always_ff @(posedge clk) begin
    clock <= clock + 1;
    if (accept) begin
      slots[new_slot] <= new_job;
      tags[new_slot] <= descriptor_failed ? 32'hFFFF_FFFF : descriptor.tag;
      begun[new_slot] <= clock;
    end
  end
  logic [SLOTS-1:0] skipped, done;
  job_t [STAGES-1:0] whole;
  for (genvar i = 0; i < STAGES; i++) begin : g_stage
    assign whole[i] = slots[walked[i][SLOT_BITS-1:0]];
    assign skip[i] = skipped[walked[i][SLOT_BITS-1:0]];
  end
  // Each stage has a memory of its own, of no more than it reads.
  always_comb begin
    job = 0;
    for (int i = 0; i < STAGES; i++) begin
      job[i].row_bytes = whole[i].row_bytes;
      job[i].chunk_beats = whole[i].chunk_beats;
    end
    job[SOURCES].source_stride = whole[SOURCES].source_stride;
    job[SOURCES].sources = whole[SOURCES].sources;
    job[SOURCES].k = whole[SOURCES].k;
    job[SOURCES].sources_listed = whole[SOURCES].sources_listed;
    job[SOURCES].k_tiles = whole[SOURCES].k_tiles;
    job[DESTINATIONS].destination_stride = whole[DESTINATIONS].destination_stride;
    job[DESTINATIONS].destinations = whole[DESTINATIONS].destinations;
    job[DESTINATIONS].n = whole[DESTINATIONS].n;
    job[DESTINATIONS].destinations_listed = whole[DESTINATIONS].destinations_listed;
    job[COEFFICIENTS].field = whole[COEFFICIENTS].field;
    job[COEFFICIENTS].polynomial = whole[COEFFICIENTS].polynomial;
    job[COEFFICIENTS].coefficients = whole[COEFFICIENTS].coefficients;
    job[COEFFICIENTS].k_tiles = whole[COEFFICIENTS].k_tiles;
    job[COEFFICIENTS].n_tiles = whole[COEFFICIENTS].n_tiles;
    job[PASSES].k_tiles = whole[PASSES].k_tiles;
    job[PASSES].n_tiles = whole[PASSES].n_tiles;
  end

  // Requests lists, of one job after another. A job that has none does not overtake.
  job_t list_job;
  assign list_job = slots[list_slot];
  logic at_destinations, has_lists, is_last_list, passes;
  slot_pointer_t pending;
  assign pending = listing - ready;
  assign has_lists =
    !skipped[list_slot] && (list_job.sources_listed || list_job.destinations_listed);
  assign is_last_list = at_destinations || !list_job.sources_listed
    || !list_job.destinations_listed;
  logic of_destinations;
  assign of_destinations = at_destinations || !list_job.sources_listed;
  assign passes = listing != allocated && !has_lists && pending == 0;
  assign request_valid = listing != allocated && has_lists;
  logic [8:0] list_rows;
  assign list_rows = of_destinations ? list_job.n : list_job.k;
  list_tag_t request_tag, list_tag;
  assign request_tag = '{
    unused: 0, slot: list_slot, is_destination: of_destinations, is_last: is_last_list,
    rows_less_one: 8'(list_rows - 9'd1)
  };
  assign request.address = of_destinations ? list_job.destinations : list_job.sources;
  assign request.beats = 6'((32'(list_rows) + 7) / 8);
  assign request.tag = read_tag_t'(request_tag);

  logic list_arrives, has_null;
  assign list_tag = list_tag_t'(beat.tag);
  assign list_arrives = beat.valid && beat.kind == READ_LIST;
  always_comb begin
    has_null = 0;
    for (int i = 0; i < 8; i++)
      if ({beat.index[4:0], 3'(i)} <= list_tag.rows_less_one && beat.data[64*i +: 64] == 0)
        has_null = 1;
  end
  assign read_failed = beat.valid && beat.failed;

  always_ff @(posedge clk) begin
    if (rst) begin
      allocated <= 0;
      listing <= 0;
      ready <= 0;
      completed <= 0;
      at_destinations <= 0;
    end else begin
      allocated <= allocated + slot_pointer_t'(accept);
      completed <= completed + slot_pointer_t'(completion_valid && completion_ready);
      if (request_valid && request_ready) at_destinations <= !is_last_list;
      listing <= listing + slot_pointer_t'(passes || (request_valid && request_ready && is_last_list));
      ready <= ready + slot_pointer_t'(passes || (list_arrives && beat.last && list_tag.is_last));
    end
  end

  // What became of each job: its first failure.
  logic [15:0] status [SLOTS];
  slot_t read_slot;
  always_comb begin
    case (beat.kind)
      READ_ROW: read_slot = beat.tag[TAG_BITS-1 -: SLOT_BITS];
      READ_LIST: read_slot = list_tag.slot;
      default: read_slot = beat.tag[10 +: SLOT_BITS];
    endcase
  end
  logic read_fails;
  assign read_fails = read_failed && beat.kind != READ_DESCRIPTOR;
  always_ff @(posedge clk) begin
    if (list_arrives && (beat.failed || has_null)) skipped[list_tag.slot] <= 1;
    if (read_fails && status[read_slot] == STATUS_OK) status[read_slot] <= STATUS_READ;
    else if (list_arrives && has_null && status[read_slot] == STATUS_OK)
      status[read_slot] <= STATUS_ADDRESS;
    if (write_failed && status[written_slot] == STATUS_OK) status[written_slot] <= STATUS_WRITE;
    if (written) done[written_slot] <= 1;
    if (accept) begin
      status[new_slot] <= verdict;
      skipped[new_slot] <= !is_work || verdict != STATUS_OK;
      done[new_slot] <= 0;
    end
  end

  logic all_walked;
  always_comb begin
    all_walked = completed != ready;
    for (int i = 0; i < STAGES; i++) if (walked[i] == completed) all_walked = 0;
  end
  assign completion_valid = all_walked && (skipped[done_slot] || done[done_slot]);
  assign completion.tag = tags[done_slot];
  assign completion.status = status[done_slot];
  assign completion.phase = 0;
  assign completion.cycles = clock - begun[done_slot];
  assign completion.reserved = 0;
endmodule
