// The register page: an AXI4-Lite slave. Offsets and bits are those of `layout_pkg`.
//
// A reset by the host drains first: reads and writes that have begun end, as AXI demands, and only
// then the engine starts over. If memory never answers, the reset never ends, and STATUS says so.
module registers
  import layout_pkg::*;
#(
  parameter int LANES = 4,
  parameter int KT = 16,
  parameter int NT = 16,
  parameter int W = 8,
  parameter int ROWS_MAX = 256,
  parameter int ROW_BYTES_MAX = 9216,
  parameter int CLOCK_KHZ = 300_000,
  parameter int BUILD = 0
) (
  input  logic                      clk,
  input  logic                      rst,
  input  logic                      lite_awvalid,
  output logic                      lite_awready,
  input  logic [11:0]               lite_awaddr,
  input  logic                      lite_wvalid,
  output logic                      lite_wready,
  input  logic [31:0]               lite_wdata,
  output logic                      lite_bvalid,
  input  logic                      lite_bready,
  output logic [1:0]                lite_bresp,
  input  logic                      lite_arvalid,
  output logic                      lite_arready,
  input  logic [11:0]               lite_araddr,
  output logic                      lite_rvalid,
  input  logic                      lite_rready,
  output logic [31:0]               lite_rdata,
  output logic [1:0]                lite_rresp,
  output logic                      irq,
  // To the engine.
  output logic                      run,
  output logic                      halt,
  output logic                      core_rst,
  output logic [63:0]               submission_base,
  output logic [3:0]                submission_log2,
  output logic [31:0]               submission_tail,
  output logic [63:0]               completion_base,
  output logic [3:0]                completion_log2,
  output logic [31:0]               completion_head,
  // From it.
  input  logic [31:0]               submission_head,
  input  logic                      core_idle,
  input  logic                      port_idle,
  input  logic                      completion_written,
  input  logic [ERRORS-1:0]         errors_now,
  input  logic [COUNTERS-1:0][15:0] counts_now
);
  logic resetting;
  logic [31:0] completion_tail, coalesce;
  logic [ERRORS-1:0] errors;
  logic [COUNTERS-1:0][63:0] counters;
  logic [31:0] counter_high;

  assign halt = resetting;
  assign core_rst = rst || (resetting && port_idle);

  // Writes: address and data are taken together.
  logic write;
  assign lite_awready = !lite_bvalid && lite_wvalid;
  assign lite_wready = !lite_bvalid && lite_awvalid;
  assign write = lite_awvalid && lite_wvalid && !lite_bvalid;
  assign lite_bresp = 0;
  logic bad_doorbell;
  assign bad_doorbell = write && lite_awaddr == SUBMISSION_TAIL
    && lite_wdata - submission_head > 32'd1 << submission_log2;

  always_ff @(posedge clk) begin
    if (rst) lite_bvalid <= 0;
    else if (write) lite_bvalid <= 1;
    else if (lite_bready) lite_bvalid <= 0;

    errors <= (errors | errors_now | (ERRORS'(bad_doorbell) << ERROR_DOORBELL));
    if (write)
      case (lite_awaddr)
        CONTROL: begin
          run <= lite_wdata[CONTROL_RUN] && !lite_wdata[CONTROL_RESET];
          if (lite_wdata[CONTROL_RESET]) resetting <= 1;
        end
        ERROR: errors <= (errors & ~lite_wdata[ERRORS-1:0]) | errors_now;
        SUBMISSION_BASE_LOW: submission_base[31:0] <= {lite_wdata[31:6], 6'd0};
        SUBMISSION_BASE_HIGH: submission_base[63:32] <= lite_wdata;
        SUBMISSION_LOG2: submission_log2 <= lite_wdata[3:0];
        SUBMISSION_TAIL: if (!bad_doorbell) submission_tail <= lite_wdata;
        COMPLETION_BASE_LOW: completion_base[31:0] <= {lite_wdata[31:6], 6'd0};
        COMPLETION_BASE_HIGH: completion_base[63:32] <= lite_wdata;
        COMPLETION_LOG2: completion_log2 <= lite_wdata[3:0];
        COMPLETION_HEAD: completion_head <= lite_wdata;
        INTERRUPT_COALESCE: coalesce <= lite_wdata;
        default: ;
      endcase
    completion_tail <= completion_tail + 32'(completion_written);
    if (core_rst) begin
      resetting <= 0;
      run <= 0;
      submission_tail <= 0;
      completion_head <= 0;
      completion_tail <= 0;
    end
    if (rst) begin
      errors <= 0;
      submission_base <= 0;
      submission_log2 <= 0;
      completion_base <= 0;
      completion_log2 <= 0;
      coalesce <= 1;
    end
  end

  // Asserted while completions wait: as many as asked for, or all when nothing else is under way.
  logic [31:0] waiting;
  assign waiting = completion_tail - completion_head;
  assign irq = waiting != 0 && (waiting >= coalesce || core_idle);

  for (genvar i = 0; i < COUNTERS; i++) begin : g_counter
    always_ff @(posedge clk)
      counters[i] <= rst ? 64'd0 : counters[i] + 64'(counts_now[i]);
  end

  // Reads. The low half of a counter is read first and keeps its high half for the next read.
  logic [11:0] counter_offset;
  logic [7:0] counter;
  assign counter_offset = lite_araddr - COUNTER_FIRST;
  assign counter = 8'(counter_offset >> 3);
  assign lite_arready = !lite_rvalid;
  assign lite_rresp = 0;
  always_ff @(posedge clk) begin
    if (rst) lite_rvalid <= 0;
    else if (lite_arvalid && lite_arready) lite_rvalid <= 1;
    else if (lite_rready) lite_rvalid <= 0;
    if (lite_arvalid && lite_arready) begin
      case (lite_araddr)
        MAGIC: lite_rdata <= MAGIC_VALUE;
        VERSION: lite_rdata <= VERSION_VALUE;
        SHAPE: lite_rdata <= {8'(W), 8'(NT), 8'(KT), 8'(LANES)};
        LIMITS: lite_rdata <= {16'(ROW_BYTES_MAX), 16'(ROWS_MAX)};
        CLOCK: lite_rdata <= 32'(CLOCK_KHZ);
        BUILD_ID: lite_rdata <= 32'(BUILD);
        CONTROL: lite_rdata <= 32'(run) << CONTROL_RUN;
        STATUS: lite_rdata <= (32'(run) << STATE_RUNNING) | (32'(core_idle) << STATE_IDLE)
          | (32'(resetting) << STATE_RESETTING);
        ERROR: lite_rdata <= 32'(errors);
        SUBMISSION_BASE_LOW: lite_rdata <= submission_base[31:0];
        SUBMISSION_BASE_HIGH: lite_rdata <= submission_base[63:32];
        SUBMISSION_LOG2: lite_rdata <= 32'(submission_log2);
        SUBMISSION_TAIL: lite_rdata <= submission_tail;
        COMPLETION_BASE_LOW: lite_rdata <= completion_base[31:0];
        COMPLETION_BASE_HIGH: lite_rdata <= completion_base[63:32];
        COMPLETION_LOG2: lite_rdata <= 32'(completion_log2);
        COMPLETION_HEAD: lite_rdata <= completion_head;
        COMPLETION_TAIL: lite_rdata <= completion_tail;
        INTERRUPT_COALESCE: lite_rdata <= coalesce;
        default: begin
          lite_rdata <= 0;
          if (lite_araddr >= COUNTER_FIRST && 32'(counter) < COUNTERS) begin
            lite_rdata <= lite_araddr[2] ? counter_high : counters[counter[3:0]][31:0];
            if (!lite_araddr[2]) counter_high <= counters[counter[3:0]][63:32];
          end
        end
      endcase
    end
  end
endmodule
