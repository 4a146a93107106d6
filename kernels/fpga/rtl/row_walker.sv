// Names every row of every chunk of every job, in order: sources for `gather`, destinations for
// `writer`. Holds the lists of addresses. A row takes two clocks.
module row_walker
  import engine_pkg::*;
(
  input  logic          clk,
  input  logic          rst,
  // A beat of eight addresses of the list of a slot.
  input  logic          list_write,
  input  slot_t         list_slot,
  input  logic [4:0]    list_index,
  input  logic [511:0]  list_data,
  // Jobs up to here may be walked; jobs up to `walked` have been.
  input  slot_pointer_t ready,
  output slot_pointer_t walked,
  input  logic          skip,
  input  logic          listed,
  input  logic [63:0]   base,
  input  logic [31:0]   stride,
  input  logic [8:0]    rows,
  input  logic [15:0]   row_bytes,
  input  logic [4:0]    chunk_beats,
  output logic          out_valid,
  input  logic          out_ready,
  output row_t          out
);
  localparam int LIST_BEATS = ROWS_MAX / 8;

  logic [511:0] lists [SLOTS * LIST_BEATS];
  logic [511:0] listed_beat;
  slot_t slot;
  assign slot = walked[SLOT_BITS-1:0];

  typedef enum logic [1:0] {NEXT_JOB, READ, EMIT} state_t;
  state_t state;
  logic [7:0] row;
  logic [63:0] strided;
  logic [15:0] offset, left;

  logic [10:0] chunk_bytes;
  assign chunk_bytes = {chunk_beats, 6'd0};
  logic last_row, last_chunk;
  logic [10:0] bytes;
  assign last_chunk = left <= 16'(chunk_bytes);
  assign bytes = last_chunk ? 11'(left) : chunk_bytes;
  assign out.last_chunk = last_chunk;
  assign out.slot = slot;
  assign out.row = row;
  assign last_row = 9'(row) + 1 == rows;
  assign out.last_row = last_row;
  assign out.bytes = bytes;
  assign out.beats = 5'((12'(bytes) + 12'd63) >> 6);
  assign out.address = (listed ? listed_beat[64*row[2:0] +: 64] : strided) + 64'(offset);
  assign out_valid = state == EMIT;

  always_ff @(posedge clk) begin
    if (list_write) lists[{list_slot, list_index}] <= list_data;
    if (state == READ) listed_beat <= lists[{slot, row[7:3]}];
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      state <= NEXT_JOB;
      walked <= 0;
    end else begin
      case (state)
        NEXT_JOB: if (walked != ready) begin
          row <= 0;
          strided <= base;
          offset <= 0;
          left <= row_bytes;
          if (skip) walked <= walked + 1;
          else state <= READ;
        end
        READ: state <= EMIT;
        default: if (out_ready) begin
          state <= READ;
          row <= row + 1;
          strided <= strided + 64'(stride);
          if (last_row) begin
            row <= 0;
            strided <= base;
            offset <= offset + 16'(chunk_bytes);
            left <= left - 16'(chunk_bytes);
            if (last_chunk) begin
              state <= NEXT_JOB;
              walked <= walked + 1;
            end
          end
        end
      endcase
    end
  end
endmodule
