// The whole engine: one AXI4-Lite slave for the register page, one 512-bit AXI4 master for memory.
//
//   rings -> jobs -+-> row_walker -> gather ---> reader --> input_store --+
//                  +-> coefficients -----------> reader --> table_generator
//                  +-> passes: what the tile does when  --> tile <--------+
//                  +-> row_walker -> writer <-- output_store <-+
//
// LANES byte positions, KT sources and NT destinations make the tile. KT and NT are 64 / LANES, so
// that a beat is one word for every row of the tile.
module engine
  import engine_pkg::*;
  import layout_pkg::*;
#(
  parameter int LANES = 4,
  parameter int KT = 64 / LANES,
  parameter int NT = 64 / LANES,
  parameter int ROW_BYTES_MAX = 9216,
  parameter int CLOCK_KHZ = 300_000,
  parameter int BUILD = 0
) (
  input  logic         clk,
  input  logic         rst,
  input  logic         lite_awvalid,
  output logic         lite_awready,
  input  logic [11:0]  lite_awaddr,
  input  logic         lite_wvalid,
  output logic         lite_wready,
  input  logic [31:0]  lite_wdata,
  output logic         lite_bvalid,
  input  logic         lite_bready,
  output logic [1:0]   lite_bresp,
  input  logic         lite_arvalid,
  output logic         lite_arready,
  input  logic [11:0]  lite_araddr,
  output logic         lite_rvalid,
  input  logic         lite_rready,
  output logic [31:0]  lite_rdata,
  output logic [1:0]   lite_rresp,
  output logic         irq,
  output logic         axi_arvalid,
  input  logic         axi_arready,
  output logic [63:0]  axi_araddr,
  output logic [7:0]   axi_arlen,
  output logic [2:0]   axi_arsize,
  output logic [1:0]   axi_arburst,
  input  logic         axi_rvalid,
  output logic         axi_rready,
  input  logic [511:0] axi_rdata,
  input  logic [1:0]   axi_rresp,
  output logic         axi_awvalid,
  input  logic         axi_awready,
  output logic [63:0]  axi_awaddr,
  output logic [7:0]   axi_awlen,
  output logic [2:0]   axi_awsize,
  output logic [1:0]   axi_awburst,
  output logic         axi_wvalid,
  input  logic         axi_wready,
  output logic [511:0] axi_wdata,
  output logic [63:0]  axi_wstrb,
  output logic         axi_wlast,
  input  logic         axi_bvalid,
  output logic         axi_bready,
  input  logic [1:0]   axi_bresp
);
  if (LANES * KT != 64 || LANES * NT != 64) $error("KT and NT must be 64 / LANES");
  // Beats of a row are counted in eight bits.
  if (ROW_BYTES_MAX > 16000) $error("rows are too long");
  if (LANES != 2 && LANES != 4 && LANES != 8) $error("tables take half a beat, one or two");

  localparam int KT_BITS = $clog2(KT);
  localparam int NT_BITS = $clog2(NT);

  assign axi_arsize = 3'd6;
  assign axi_awsize = 3'd6;
  assign axi_arburst = 2'd1;
  assign axi_awburst = 2'd1;

  logic run, halt, core_rst, core_idle, reader_idle, writer_idle;
  logic [63:0] submission_base, completion_base;
  logic [3:0] submission_log2, completion_log2;
  logic [31:0] submission_tail, submission_head, completion_head;
  logic completion_written, completion_failed, read_failed, job_failed;
  logic [ERRORS-1:0] errors_now;
  logic [COUNTERS-1:0][15:0] counts_now;
  registers #(
    .LANES(LANES), .KT(KT), .NT(NT), .W(GROUP), .ROWS_MAX(ROWS_MAX),
    .ROW_BYTES_MAX(ROW_BYTES_MAX), .CLOCK_KHZ(CLOCK_KHZ), .BUILD(BUILD)
  ) u_registers (.port_idle(reader_idle && writer_idle), .*);

  logic [3:0] request_valid, request_ready;
  read_request_t [3:0] request;
  read_beat_t beat;
  reader u_reader (.rst(core_rst), .idle(reader_idle), .*);

  logic descriptor_valid, descriptor_ready, descriptor_failed;
  descriptor_t descriptor;
  logic completion_room, completion_phase, completion_taken;
  logic [63:0] completion_address;
  rings u_rings (
    .rst(core_rst), .run(run && !halt),
    .request_valid(request_valid[READ_DESCRIPTOR]), .request_ready(request_ready[READ_DESCRIPTOR]),
    .request(request[READ_DESCRIPTOR]), .*
  );

  slot_pointer_t ready;
  slot_pointer_t [3:0] walked;
  job_t [3:0] job;
  logic [3:0] skip;
  logic job_written, completion_valid, completion_ready;
  slot_t job_slot;
  completion_t job_completion, completion;
  jobs #(.KT(KT), .NT(NT), .ROW_BYTES_MAX(ROW_BYTES_MAX)) u_jobs (
    .rst(core_rst),
    .request_valid(request_valid[READ_LIST]), .request_ready(request_ready[READ_LIST]),
    .request(request[READ_LIST]),
    .written(job_written), .write_failed(job_failed), .written_slot(job_slot),
    .completion(job_completion), .idle(core_idle), .*
  );

  // Lists go to the walker that they are for.
  list_tag_t list_tag;
  logic list_arrives;
  assign list_tag = list_tag_t'(beat.tag);
  assign list_arrives = beat.valid && beat.kind == READ_LIST;

  logic source_valid, source_ready;
  row_t source;
  row_walker u_sources (
    .rst(core_rst), .list_write(list_arrives && !list_tag.is_destination),
    .list_slot(list_tag.slot), .list_index(beat.index[4:0]), .list_data(beat.data),
    .walked(walked[SOURCES]), .skip(skip[SOURCES]), .listed(job[SOURCES].sources_listed),
    .base(job[SOURCES].sources), .stride(job[SOURCES].source_stride), .rows(job[SOURCES].k),
    .row_bytes(job[SOURCES].row_bytes), .chunk_beats(job[SOURCES].chunk_beats),
    .out_valid(source_valid), .out_ready(source_ready), .out(source), .*
  );
  logic release_valid;
  logic [7:0] release_units;
  gather #(.KT(KT)) u_gather (
    .rst(core_rst), .row_valid(source_valid), .row_ready(source_ready), .row(source),
    .k_tiles(job[SOURCES].k_tiles),
    .request_valid(request_valid[READ_ROW]), .request_ready(request_ready[READ_ROW]),
    .request(request[READ_ROW]), .*
  );

  logic chunk_stored, table_bank;
  logic [UNIT_BITS-1:0] unit;
  logic [KT_BITS-1:0] word;
  logic [LANES-1:0][KT-1:0][7:0] x;
  input_store #(.LANES(LANES), .KT(KT)) u_input_store (.rst(core_rst), .*);

  logic coefficients_valid, coefficients_ready;
  logic [511:0] coefficients_data;
  logic [1:0] coefficients_field;
  logic [7:0] coefficients_polynomial;
  coefficients #(.KT(KT), .NT(NT)) u_coefficients (
    .rst(core_rst), .walked(walked[COEFFICIENTS]), .skip(skip[COEFFICIENTS]),
    .job(job[COEFFICIENTS]),
    .request_valid(request_valid[READ_COEFFICIENTS]),
    .request_ready(request_ready[READ_COEFFICIENTS]), .request(request[READ_COEFFICIENTS]),
    .out_valid(coefficients_valid), .out_ready(coefficients_ready), .out_data(coefficients_data),
    .out_field(coefficients_field), .out_polynomial(coefficients_polynomial), .*
  );

  logic table_free, table_begun, table_loaded, table_load_bank, load, load_map;
  logic [3:0] load_nibble;
  logic [1:0] load_field;
  logic [$clog2(KT/GROUP)-1:0] load_group;
  logic [LEAVES-1:0][NT-1:0] load_entries;
  logic [31:0] load_map_entries;
  table_generator #(.KT(KT), .NT(NT)) u_table_generator (
    .rst(core_rst), .in_valid(coefficients_valid), .in_ready(coefficients_ready),
    .in_data(coefficients_data), .in_field(coefficients_field),
    .in_polynomial(coefficients_polynomial), .bank_free(table_free), .begun(table_begun),
    .loaded(table_loaded), .*
  );

  logic so_far_first;
  logic [511:0] so_far, y;
  tile #(.LANES(LANES), .KT(KT), .NT(NT)) u_tile (
    .bank(table_bank), .first(so_far_first), .load_address({table_load_bank, load_nibble}), .*
  );

  logic output_drained, output_filled, sum_valid, sum_last, sum_bank;
  logic [3:0] so_far_beat, sum_beat;
  logic [KT_BITS-1:0] so_far_word, sum_word;
  logic stall_tables, stall_input, stall_output;
  passes #(.KT(KT)) u_passes (
    .rst(core_rst), .walked(walked[PASSES]), .skip(skip[PASSES]), .job(job[PASSES]), .*
  );

  logic read_bank;
  logic [3:0] read_beat;
  logic [NT_BITS-1:0] read_row;
  logic [511:0] read_data;
  output_store #(.LANES(LANES), .NT(NT)) u_output_store (.*);

  logic destination_valid, destination_ready;
  row_t destination;
  row_walker u_destinations (
    .rst(core_rst), .list_write(list_arrives && list_tag.is_destination),
    .list_slot(list_tag.slot), .list_index(beat.index[4:0]), .list_data(beat.data),
    .walked(walked[DESTINATIONS]), .skip(skip[DESTINATIONS]),
    .listed(job[DESTINATIONS].destinations_listed), .base(job[DESTINATIONS].destinations),
    .stride(job[DESTINATIONS].destination_stride), .rows(job[DESTINATIONS].n),
    .row_bytes(job[DESTINATIONS].row_bytes), .chunk_beats(job[DESTINATIONS].chunk_beats),
    .out_valid(destination_valid), .out_ready(destination_ready), .out(destination), .*
  );

  always_comb begin
    completion = job_completion;
    completion.phase = 16'(completion_phase);
  end
  logic writer_takes;
  writer #(.LANES(LANES), .NT(NT)) u_writer (
    .rst(core_rst), .idle(writer_idle),
    .row_valid(destination_valid), .row_ready(destination_ready), .row(destination),
    .completion_valid(completion_valid && completion_room), .completion_ready(writer_takes),
    .completion_data(completion), .*
  );
  assign completion_ready = writer_takes && completion_room;
  assign completion_taken = writer_takes;

  always_comb begin
    errors_now = 0;
    errors_now[ERROR_DESCRIPTOR] = read_failed && beat.kind == READ_DESCRIPTOR;
    errors_now[ERROR_READ] = read_failed;
    errors_now[ERROR_WRITE] = job_failed;
    errors_now[ERROR_COMPLETION] = completion_failed;
    counts_now = 0;
    counts_now[COUNT_CYCLES] = 1;
    counts_now[COUNT_BUSY] = 16'(!core_idle);
    counts_now[COUNT_STALL_TABLES] = 16'(stall_tables);
    counts_now[COUNT_STALL_INPUT] = 16'(stall_input);
    counts_now[COUNT_STALL_OUTPUT] = 16'(stall_output);
    counts_now[COUNT_JOBS] = 16'(completion_taken);
    counts_now[COUNT_BYTES_IN] = source_valid && source_ready ? 16'(source.bytes) : 0;
    counts_now[COUNT_BYTES_OUT] =
      destination_valid && destination_ready ? 16'(destination.bytes) : 0;
    counts_now[COUNT_AXI_ERRORS] = 16'(read_failed) + 16'(job_failed) + 16'(completion_failed);
  end
endmodule
