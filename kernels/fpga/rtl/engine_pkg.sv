// Types that the blocks of the engine share.
package engine_pkg;
  // Jobs between their descriptor and their completion. Sixteen hide the latency of lists, sources
  // and destinations of jobs as short as 64 bytes.
  localparam int SLOTS = 16;
  localparam int SLOT_BITS = $clog2(SLOTS);
  // The most beats of each row that are gathered and computed at once: a chunk.
  localparam int CHUNK_BEATS = 16;
  // The input store is a ring of units; a unit is one beat of as many rows as the tile
  // takes. A chunk takes at most half, so that one is gathered while another is computed.
  localparam int UNITS = 128;
  localparam int UNIT_BITS = $clog2(UNITS);
  // The most rows of a matrix side, for which the lists have room.
  localparam int ROWS_MAX = 256;
  // Sources whose products are looked up together.
  localparam int GROUP = 4;
  // Products of bits of which Karatsuba's formula makes one of bytes, and its coefficients.
  localparam int LEAVES = 27;
  localparam int TERMS = 15;

  // A pointer into the ring of slots, with one more bit to tell full from empty.
  typedef logic [SLOT_BITS:0] slot_pointer_t;
  typedef logic [SLOT_BITS-1:0] slot_t;

  // The stages that walk the jobs.
  localparam int STAGES = 4, SOURCES = 0, COEFFICIENTS = 1, PASSES = 2, DESTINATIONS = 3;

  // What a slot keeps of a job. Tiles and beats are counted once, where the job is taken. What one
  // stage reads stands together, as a memory has 14 bits.
  typedef struct packed {
    logic [31:0] source_stride;
    logic [63:0] sources;
    logic [8:0]  k;
    logic        sources_listed;
    logic [31:0] destination_stride;
    logic [63:0] destinations;
    logic [8:0]  n;
    logic        destinations_listed;
    logic [1:0]  field;
    logic [7:0]  polynomial;
    logic [63:0] coefficients;
    logic [5:0]  k_tiles;
    logic [5:0]  n_tiles;
    logic [4:0]  chunk_beats;
    logic [15:0] row_bytes;
  } job_t;

  // One row of one chunk: where it lies in memory, and where in its job.
  typedef struct packed {
    slot_t       slot;
    logic [63:0] address;
    logic [10:0] bytes;
    logic [4:0]  beats;
    logic [7:0]  row;
    logic        last_row;
    logic        last_chunk;
  } row_t;

  // Who asked for a read.
  typedef enum logic [1:0] {
    READ_DESCRIPTOR,
    READ_LIST,
    READ_COEFFICIENTS,
    READ_ROW
  } read_kind_t;

  // What comes back with the beats of a read, by its kind.
  localparam int TAG_BITS = 29;
  typedef logic [TAG_BITS-1:0] read_tag_t;

  // A read of consecutive beats; the address may lie anywhere in the first.
  typedef struct packed {
    logic [63:0] address;
    logic [5:0]  beats;
    read_tag_t   tag;
  } read_request_t;

  // A beat that came back.
  typedef struct packed {
    logic         valid;
    read_kind_t   kind;
    read_tag_t    tag;
    logic [5:0]   index;
    logic         last;
    logic         failed;
    logic [511:0] data;
  } read_beat_t;

  // Tag of a list: which, of how many entries.
  typedef struct packed {
    logic [14:0] unused;
    slot_t       slot;
    logic        is_destination;
    logic        is_last;
    logic [7:0]  rows_less_one;
  } list_tag_t;

  // Tag of a row: where its first beat goes in the input store, how far it is from a whole beat.
  typedef struct packed {
    slot_t                slot;
    logic [UNIT_BITS-1:0] unit;
    logic [5:0]           lane;
    logic [5:0]           shift;
    logic [4:0]           beats;
    logic                 last_row;
  } row_tag_t;

  // Bit j of byte i to bit i of byte j. Wires only; written so that simulations take few steps.
  function automatic logic [63:0] transpose(input logic [63:0] matrix);
    logic [63:0] t;
    t = matrix;
    t = (t & 64'hAA55AA55AA55AA55) | ((t & 64'h00AA00AA00AA00AA) << 7)
      | ((t >> 7) & 64'h00AA00AA00AA00AA);
    t = (t & 64'hCCCC3333CCCC3333) | ((t & 64'h0000CCCC0000CCCC) << 14)
      | ((t >> 14) & 64'h0000CCCC0000CCCC);
    t = (t & 64'hF0F0F0F00F0F0F0F) | ((t & 64'h00000000F0F0F0F0) << 28)
      | ((t >> 28) & 64'h00000000F0F0F0F0);
    return t;
  endfunction
endpackage
