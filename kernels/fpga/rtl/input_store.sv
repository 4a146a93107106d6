// Source rows in, columns out: the corner turn before the tile.
//
//   64 memories of one byte each, in KT blocks of LANES bytes. Word w of row k (LANES bytes) lies
//   in block (w + k) mod KT, at address {unit, k}. So a beat of one row fills all blocks, and
//   word w of all rows is in all blocks, too: both are one access to each memory.
//
// One rotation by bytes puts a beat in its place, whatever its alignment in memory: bytes before
// the row's first byte belong to the unit before, so each memory has its own address.
module input_store
  import engine_pkg::*;
#(
  parameter int LANES = 4,
  parameter int KT = 16,
  localparam int KT_BITS = $clog2(KT)
) (
  input  logic                          clk,
  input  logic                          rst,
  input  read_beat_t                    beat,
  output logic                          chunk_stored,
  // Word `word` of unit `unit`, of all KT rows, two clocks later.
  input  logic [UNIT_BITS-1:0]          unit,
  input  logic [KT_BITS-1:0]            word,
  output logic [LANES-1:0][KT-1:0][7:0] x
);
  row_tag_t tag;
  assign tag = row_tag_t'(beat.tag);
  logic is_row;
  assign is_row = beat.valid && beat.kind == READ_ROW;

  // Stage 1: rotate. Byte b of the beat goes to memory (b - shift + lane) mod 64. Those of the unit
  // before are the last `shift` of the row's beat.
  logic [KT_BITS-1:0] row, write_row;
  assign row = KT_BITS'(tag.lane / 6'(LANES));
  logic [63:0] tail, is_tail, is_before, write;
  logic [6:0] turn;
  assign tail = ~(~64'd0 >> tag.shift);
  assign turn = 7'd64 - 7'(LANES) * 7'(row);
  assign is_tail = 64'({tail, tail} >> turn);
  logic write_done;
  logic [UNIT_BITS-1:0] write_unit, write_unit_before;
  logic [63:0][7:0] rotated, rotated_now;
  rotator u_rotator (
    .in(beat.data), .places(tag.shift - 6'(LANES) * 6'(row)), .out(rotated_now)
  );
  always_ff @(posedge clk) begin
    write_done <= is_row && beat.last && tag.last_row && !rst;
    write <= (is_tail & {64{beat.index != 0}} | ~is_tail & {64{beat.index < 6'(tag.beats)}})
      & {64{is_row && !rst}};
    is_before <= is_tail;
    write_unit <= tag.unit + UNIT_BITS'(beat.index);
    write_unit_before <= tag.unit + UNIT_BITS'(beat.index) - 1;
    write_row <= row;
    rotated <= rotated_now;
  end
  always_ff @(posedge clk) chunk_stored <= write_done && !rst;

  // Stage 2: write.
  logic [63:0][7:0] stored;
  for (genvar m = 0; m < 64; m++) begin : g_memory
    logic [7:0] bytes [UNITS * KT];
    logic [UNIT_BITS-1:0] byte_unit;
    assign byte_unit = is_before[m] ? write_unit_before : write_unit;
    logic [KT_BITS-1:0] read_row;
    assign read_row = KT_BITS'(m / LANES) - word;
    always_ff @(posedge clk) begin
      if (write[m]) bytes[{byte_unit, write_row}] <= rotated[m];
      stored[m] <= bytes[{unit, read_row}];
    end
  end

  // Row k's word was stored in block word + k.
  logic [KT_BITS-1:0] word_stored;
  logic [511:0] turned;
  rotator #(.FINEST(LANES >= 4 ? 4 : 1)) u_turn (
    .in(stored), .places(6'(LANES) * 6'(word_stored)), .out(turned)
  );
  always_ff @(posedge clk) begin
    word_stored <= word;
    for (int i = 0; i < LANES; i++)
      for (int k = 0; k < KT; k++) x[i][k] <= turned[8*(k*LANES + i) +: 8];
  end
endmodule
