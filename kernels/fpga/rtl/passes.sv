// Decides what the tile does: passes over chunks, one for each tile of coefficients.
//
//   for each job, for each chunk, for each NT destinations, for each KT sources: a pass of as many
//   clocks as the chunk has words. A pass begins when its chunk is stored, its tables are loaded
//   and, if it is the last of its destinations, an output bank is free.
module passes
  import engine_pkg::*;
#(
  parameter int KT = 16,
  localparam int KT_BITS = $clog2(KT)
) (
  input  logic                 clk,
  input  logic                 rst,
  input  slot_pointer_t        ready,
  output slot_pointer_t        walked,
  input  logic                 skip,
  input  job_t                 job,
  input  logic                 chunk_stored,
  output logic                 release_valid,
  output logic [7:0]           release_units,
  // Banks of tables.
  input  logic                 table_begun,
  input  logic                 table_loaded,
  output logic                 table_free,
  output logic                 table_load_bank,
  // Banks of outputs.
  input  logic                 output_drained,
  output logic                 output_filled,
  // A word of a pass: where it is read, then where the sums so far are, four clocks later, and
  // whether there are none, another clock later; then what is done with them, six clocks later.
  output logic [UNIT_BITS-1:0] unit,
  output logic [KT_BITS-1:0]   word,
  output logic                 table_bank,
  output logic [3:0]           so_far_beat,
  output logic [KT_BITS-1:0]   so_far_word,
  output logic                 so_far_first,
  output logic                 sum_valid,
  output logic                 sum_last,
  output logic [3:0]           sum_beat,
  output logic [KT_BITS-1:0]   sum_word,
  output logic                 sum_bank,
  // A pass waits for: tables, sources, an output bank.
  output logic                 stall_tables,
  output logic                 stall_input,
  output logic                 stall_output
);
  typedef enum logic [1:0] {NEXT_JOB, WAIT, RUN} state_t;
  state_t state;

  logic [5:0] k_tile, n_tile;
  logic [15:0] left;
  logic [4:0] beat;
  logic [KT_BITS-1:0] word_now;
  logic [UNIT_BITS-1:0] chunk_unit, pass_unit;
  logic bank, output_bank;

  logic [15:0] chunk_bytes;
  assign chunk_bytes = 16'(job.chunk_beats) << 6;
  logic last_chunk, last_k, last_n, one_tile;
  assign last_chunk = left <= chunk_bytes;
  assign last_k = k_tile == job.k_tiles - 1;
  assign last_n = n_tile == job.n_tiles - 1;
  assign one_tile = job.k_tiles == 1 && job.n_tiles == 1;
  logic [4:0] beats;
  assign beats = last_chunk ? 5'((left + 16'd63) >> 6) : job.chunk_beats;

  // What is there: chunks that are stored, tables that are loaded, output banks that are full.
  logic [7:0] chunks;
  logic [1:0] tables, outputs;
  logic has_chunk, has_table, has_output, begins, ends, ends_table, ends_chunk;
  assign has_chunk = chunks != 0;
  assign has_table = tables != 0;
  assign has_output = !last_k || outputs != 2;
  assign begins = state == WAIT && has_chunk && has_table && has_output;
  assign ends = state == RUN && &word_now && beat == beats - 1;
  assign ends_table = ends && (!one_tile || last_chunk);
  assign ends_chunk = ends && last_k && last_n;
  assign stall_tables = state == WAIT && has_chunk && !has_table;
  assign stall_input = state == WAIT && !has_chunk;
  assign stall_output = state == WAIT && has_chunk && has_table && !has_output;

  assign unit = pass_unit + UNIT_BITS'(beat);
  assign word = word_now;
  assign release_valid = ends_chunk;
  assign release_units = 8'(job.k_tiles * 6'(beats));

  always_ff @(posedge clk) begin
    case (state)
      NEXT_JOB: begin
        k_tile <= 0;
        n_tile <= 0;
        left <= job.row_bytes;
        pass_unit <= chunk_unit;
      end
      RUN: begin
        word_now <= word_now + 1;
        if (&word_now) beat <= beat + 1;
        if (ends) begin
          k_tile <= last_k ? 0 : k_tile + 1;
          pass_unit <= last_k ? chunk_unit : pass_unit + UNIT_BITS'(beats);
          if (last_k) n_tile <= last_n ? 0 : n_tile + 1;
          if (ends_chunk) begin
            left <= left - chunk_bytes;
            pass_unit <= chunk_unit + UNIT_BITS'(release_units);
          end
        end
      end
      default: begin
        word_now <= 0;
        beat <= 0;
      end
    endcase
    if (rst) begin
      state <= NEXT_JOB;
      walked <= 0;
      chunk_unit <= 0;
      bank <= 0;
      output_bank <= 0;
    end else begin
      case (state)
        NEXT_JOB: if (walked != ready) begin
          if (skip) walked <= walked + 1;
          else state <= WAIT;
        end
        WAIT: if (begins) state <= RUN;
        default: if (ends) begin
          state <= WAIT;
          if (ends_chunk && last_chunk) begin
            state <= NEXT_JOB;
            walked <= walked + 1;
          end
        end
      endcase
      if (ends_chunk) chunk_unit <= chunk_unit + UNIT_BITS'(release_units);
      if (ends_table) bank <= !bank;
      if (ends && last_k) output_bank <= !output_bank;
    end
  end

  // Words in flight: read, turned, through the tile in four clocks.
  localparam int CLOCKS = 6;
  typedef struct packed {
    logic               valid;
    logic               first;
    logic               last;
    logic               ends_table;
    logic               ends_outputs;
    logic [3:0]         beat;
    logic [KT_BITS-1:0] word;
    logic               bank;
    logic               output_bank;
  } step_t;
  step_t now;
  step_t [CLOCKS-1:0] steps;
  assign now = '{
    valid: state == RUN, first: k_tile == 0, last: last_k, ends_table: ends_table,
    ends_outputs: ends && last_k, beat: beat[3:0], word: word_now, bank: bank,
    output_bank: output_bank
  };
  always_ff @(posedge clk) steps <= rst ? '0 : {steps[CLOCKS-2:0], now};
  assign table_bank = steps[1].bank;
  assign sum_valid = steps[CLOCKS-1].valid;
  assign so_far_beat = steps[CLOCKS-3].beat;
  assign so_far_word = steps[CLOCKS-3].word;
  assign so_far_first = steps[CLOCKS-2].first;
  assign sum_last = steps[CLOCKS-1].last;
  assign sum_beat = steps[CLOCKS-1].beat;
  assign sum_word = steps[CLOCKS-1].word;
  assign sum_bank = steps[CLOCKS-1].output_bank;
  logic table_ends;
  // The tile has just looked up. Its output map looks up two clocks later, which is long before
  // the map's next entries are made.
  assign table_ends = steps[3].valid && steps[3].ends_table;
  assign output_filled = steps[CLOCKS-1].valid && steps[CLOCKS-1].ends_outputs;

  // Banks are held while tables are made, and in use until their last word has read them, but no
  // pass begins with them any more.
  logic [1:0] tables_held;
  assign table_free = tables_held != 2;
  always_ff @(posedge clk) begin
    if (rst) begin
      chunks <= 0;
      tables <= 0;
      tables_held <= 0;
      outputs <= 0;
      table_load_bank <= 0;
    end else begin
      chunks <= chunks + 8'(chunk_stored) - 8'(ends_chunk);
      tables <= tables + 2'(table_loaded) - 2'(ends_table);
      tables_held <= tables_held + 2'(table_begun) - 2'(table_ends);
      outputs <= outputs + 2'(ends && last_k) - 2'(output_drained);
      if (table_loaded) table_load_bank <= !table_load_bank;
    end
  end
endmodule
