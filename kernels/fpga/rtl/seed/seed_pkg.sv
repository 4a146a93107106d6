// What the blocks of the paper's unit share ("Towards High-Performance Network Coding: FPGA
// Acceleration With Bounded-value Generators"): sizes, and what passes between them.
package seed_pkg;
  // Rows and columns of the systolic array.
  localparam int T = 8;
  // Coded packets of a batch, and the halves of it that the array makes one after the other.
  localparam int BATCH_SIZE = 16;
  localparam int HALVES = BATCH_SIZE / T;
  // Bytes that memory moves in a clock: an HBM port's 256 bits.
  localparam int BEAT_BYTES = 32;
  // Beats of a packet that are read at once (Alg. 1): 512 bytes.
  localparam int BURST_BEATS = 16;
  // No row of the base graph has a higher degree.
  localparam int COLUMNS_MAX = 32;
  localparam int TILES_PER_BEAT = BEAT_BYTES / T;

  typedef logic [8*BEAT_BYTES-1:0] beat_t;
  typedef logic [T-1:0][7:0] word_t;

  // A batch: its number, its row of the base graph, how far that is shifted.
  typedef struct packed {
    logic [15:0] number;
    logic [2:0]  row;
    logic [7:0]  shift;
  } batch_t;

  // As many bytes of all packets of a batch as are read at once.
  typedef struct packed {
    batch_t      batch;
    logic [15:0] offset;
    logic [4:0]  beats;
    logic        is_last;
  } chunk_t;

  // Who makes which batch.
  typedef enum logic [1:0] {
    IN_ORDER,
    MIRRORED,
    LONGEST_FIRST
  } policy_t;

  // Parameters of a unit. Counts of compute units, adapters and ports are powers of two.
  typedef struct packed {
    logic [1:0]  units_log2;
    logic [1:0]  adapters_log2;
    logic        ports_log2;
    policy_t     policy;
    logic [15:0] batches;
    logic [15:0] packet_beats;
    logic [63:0] sources;
    logic [63:0] destinations;
  } order_t;

  // The low bits of a number that name one of 1, 2, 4 or 8.
  function automatic logic [2:0] mask_of(logic [1:0] log2);
    return {log2 == 3, log2 >= 2, log2 != 0};
  endfunction
endpackage
