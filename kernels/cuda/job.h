// The ABI between host and device: what a kernel is given and how many blocks it is launched with.
//
// Every kernel has the same signature,
//
//     extern "C" __global__ void recoded_NAME(const Job *jobs, uint32_t jobs_count,
//                                             FieldTables *tables, uint8_t *arena);
//
// so that the host has one way to launch. All data of a launch lies in one device allocation, the
// arena, and a job names its parts by byte offsets. One launch does any number of jobs.
//
// Units and blocks. A kernel cuts the destination of a job into units of `unit_rows` rows by
// `unit_bytes` bytes:
//
//     units(job)  = ceil(job.rows / unit_rows) * ceil(job.symbol_bytes / unit_bytes)
//     blocks(job) = ceil(units(job) / units_per_block)
//     job.first_block = blocks of all jobs before it in the launch
//     grid = blocks of all jobs
//
// Alignment. `jobs` and `tables` are 16-byte aligned; all offsets, strides and, where it is the
// length of a symbol, `symbol_bytes` are multiples of 16. Bytes of a row beyond its columns may
// hold anything. Sources and destinations of a launch do not overlap, except where a kernel says
// so.
//
// The Rust side mirrors this file in src/job.rs; a test compares the two.
#pragma once

#if defined(__CUDACC_RTC__)
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

// Fields of `Job::field`, in the order of `recoded_gf::Field::ALL`.
enum : uint8_t {
    FIELD_GF256_11D = 0,
    FIELD_GF256_11B = 1,
    FIELD_GF16_13 = 2,
    FIELD_GF4_7 = 3,
    FIELD_GF2 = 4,
    FIELDS = 5,
};

// Bits of `Job::flags`.
enum : uint8_t {
    // Add to the destinations instead of overwriting them.
    FLAG_ACCUMULATE = 1,
};

// 64 bytes, little endian. What a field means to a kernel that does not multiply is said at the
// kernel; fields it does not name are ignored.
struct alignas(16) Job {
    // Row-major coefficients, `rows` rows of `depth`, in the form that the technique wants.
    uint64_t coefficients;
    // `depth` rows of `symbol_bytes` bytes, in the form that the technique wants.
    uint64_t sources;
    // `rows` rows of `symbol_bytes` bytes.
    uint64_t destinations;
    // Bytes from one row to the next one.
    uint32_t coefficient_stride;
    uint32_t source_stride;
    uint32_t destination_stride;
    // Bytes of a row of sources and destinations.
    uint32_t symbol_bytes;
    // Destinations.
    uint32_t rows;
    // Sources.
    uint32_t depth;
    // Blocks of the jobs before this one.
    uint32_t first_block;
    uint8_t field;
    uint8_t flags;
    // `recoded_gf::FieldOrder::code` of random coefficients.
    uint8_t order;
    uint8_t reserved;
    // Whatever else the kernel says.
    uint64_t parameter;
};
static_assert(sizeof(Job) == 64, "the layout of a job");

// What a card must know about a field, by coefficient. `recoded_field_tables` fills FIELDS of
// these.
struct FieldTables {
    // [0..1]: c * {0..7}; [2..3]: c * 8 * {0..7}; [4]: c * 64 * {0..3}, each product a byte, the
    // first one lowest; [5..7] are zero. What `prmt` selects from.
    uint32_t products[256][8];
    // Byte b: bit i is bit b of c * 2^i, so bit b of c * x is the parity of `bit_rows[c][b] & x`.
    uint8_t bit_rows[256][8];
    // 0 for 0.
    uint8_t inverses[256];
    // To the base of the smallest generator, 0xff for 0. GF(256) only, as is `powers`.
    uint8_t logarithms[256];
    uint8_t powers[512];
    // Elements of GF(256) of the indices of FieldOrder::Four and ::Sixteen; indices themselves in
    // the packed fields.
    uint8_t embedded_4[16];
    uint8_t embedded_16[16];
    // Bits of an element, and the polynomial without its leading term.
    uint32_t element_bits;
    uint32_t polynomial;
    uint32_t reserved[2];
};
static_assert(sizeof(FieldTables) == 11312, "the layout of the tables");
static_assert(sizeof(FieldTables) % 16 == 0, "tables follow each other aligned");

// What a kernel leaves at the offset `parameter`: 16 bytes, of which the first four count.
struct Returned {
    uint32_t value;
    uint32_t reserved[3];
};

// Forms of coefficients and of sources; each but FORM_PLAIN is made by the kernel of its name.
// Such a kernel reads `rows` rows of `symbol_bytes` bytes from `sources` (any number of bytes, not
// only multiples of 16) and writes the other form to `destinations`.
enum : uint8_t {
    // Elements as they are.
    FORM_PLAIN = 0,
    // Logarithms, 0xff for zero: same shape, destination_stride as the matrix has.
    FORM_LOG_FF = 1,
    // Logarithms plus 1, 0 for zero (a remapped zero): same shape.
    FORM_LOG_00 = 2,
    // Bit planes, 8 bytes for each 8 coefficients of a row: bit t of byte b is bit b of coefficient
    // 8 g + t. destination_stride = round_up(8 * ceil(columns / 8), 16).
    FORM_PLANES = 3,
    // Fragments of the binary matrix product: 8192 bytes for each 32 rows by 32 columns.
    // destination_stride, the bytes of 32 rows, = 8192 * ceil(columns / 32), and there are
    // ceil(rows / 32) of them.
    FORM_BITS = 4,
    // Columns of the binary matrix product of a warpgroup: 4096 bytes for each 16 rows by 32
    // columns. destination_stride, the bytes of 16 rows, = 4096 * ceil(columns / 32), and there are
    // ceil(rows / 16) of them.
    FORM_TILES = 5,
};

// Generations are not larger than this, nor matrices to invert.
#define RECODED_SIZE_MAX 1024

// X(kernel, threads, unit_rows, unit_bytes, units_per_block, shared_bytes): how to launch
// `recoded_<kernel>`. `shared_bytes` is dynamic shared memory; above 48 KiB the host has to request
// it (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES).
//
// destinations = coefficients * sources:
#define RECODED_MATMUL_KERNELS(X)                                                                  \
    X(matmul_loop, 256, 1, 4, 256, 0)                                                              \
    X(matmul_table_0, 256, 1, 4, 256, 1024)                                                        \
    X(matmul_table_1, 256, 1, 4, 256, 1024)                                                        \
    X(matmul_table_2, 256, 1, 4, 256, 1024)                                                        \
    X(matmul_table_3, 256, 1, 4, 256, 1024)                                                        \
    X(matmul_table_4, 256, 1, 4, 256, 0)                                                           \
    X(matmul_table_5, 1024, 1, 4, 8192, 65536)                                                     \
    X(matmul_permute, 128, 16, 16, 128, 24576)                                                      \
    X(matmul_permute_narrow, 128, 4, 16, 128, 24576)                                                \
    X(matmul_four_russians, 512, 64, 256, 1, 65536)                                                \
    X(matmul_bmma, 128, 32, 256, 1, 14336)                                                         \
    X(matmul_wgmma, 128, 64, 512, 1, 83968)
//
// The rest:
//
// field_tables         fills `tables`; no jobs, launched with FIELDS blocks.
// prepare_*            see the forms.
// random_coefficients  row r of `destinations`, `symbol_bytes` elements (not only multiples of 16),
//                      becomes the vector of `rlnc::Seeded::new(parameter + r, UNIFORM)` (the sum
//                      modulo 2^32) over the subfield `order` of `field`; in the packed fields
//                      elements are indices.
// invert               inverts `coefficients`, rows = depth = symbol_bytes = n <= 1024 (any n),
// into
//                      `destinations`; `coefficients` is kept. Returned at `parameter`: n, or the
//                      first column that depends on those before it, and `destinations` then holds
//                      anything. Elements must be bytes, or coefficients below the field's order.
// invert_*             the same by several blocks for a matrix, in launches of their own:
//                      invert_begin, then invert_panel and invert_update for each 32 columns of the
//                      largest matrix, then invert_end. They share INVERSE_STATE_BYTES at
//                      `sources`.
// decode_progressive   the card alone: inserts `depth` received rows, vectors at `coefficients` and
//                      payloads at `sources`, into a generation of `rows` symbols whose payloads
//                      are kept at `destinations`: row c there becomes symbol c. One row a launch
//                      is progressive, more are buffered. At `parameter` lies the state, zeroed
//                      when the generation begins, of PROGRESSIVE_STATE_BYTES(rows) for each block,
//                      as each block has its own copy of the coefficients: an Returned (the rank),
//                      then a byte per column (pivot there or not), then the rows of coefficients.
// eliminate_row        with the CPU finding pivots: `sources` holds one row, vector and payload in
//                      one (symbol_bytes of them), already reduced (a matmul with FLAG_ACCUMULATE,
//                      rows 1, whose factors are the vector as received, zero where no row is);
//                      `parameter` is the column of its pivot. Divides the row by its pivot, stores
//                      it as row `parameter` of the `rows` rows at `destinations` and subtracts it
//                      from those that `coefficients` (a byte for each row: held or not) names.
//                      Bytes of pivot columns are stale from then on: no one may read them.
// probe_*              `depth` rounds of PROBE_OPERATIONS instructions of one kind, a thread
// (permute,
//                      logic, loads of 8 bytes from shared memory), a warp (bmma) or four of them
//                      (wgmma), by `rows` blocks of 256 threads; symbol_bytes is 1024. Something is
//                      left at `destinations`.
#define RECODED_OTHER_KERNELS(X)                                                                   \
    X(field_tables, 256, 1, 1, 1, 0)                                                               \
    X(prepare_log_ff, 256, 1, 4, 256, 0)                                                           \
    X(prepare_log_00, 256, 1, 4, 256, 0)                                                           \
    X(prepare_planes, 256, 1, 8, 256, 0)                                                           \
    X(prepare_bits, 128, 32, 32, 1, 0)                                                             \
    X(prepare_tiles, 128, 16, 32, 1, 0)                                                            \
    X(random_coefficients, 64, 1, 1024, 64, 0)                                                     \
    X(invert, 256, 1024, 1024, 1, 43280)                                                           \
    X(invert_begin, 256, 32, 1024, 1, 0)                                                           \
    X(invert_panel, 1024, 1024, 1024, 1, 45328)                                                    \
    X(invert_update, 256, 1024, 32, 1, 43280)                                                      \
    X(invert_end, 256, 32, 1024, 1, 36864)                                                         \
    X(decode_progressive, 256, 1024, 1024, 1, 2064)                                               \
    X(eliminate_row, 256, 1024, 1024, 1, 1024)                                                     \
    X(probe_permute, 256, 1, 1024, 1, 0)                                                           \
    X(probe_logic, 256, 1, 1024, 1, 0)                                                             \
    X(probe_shared, 256, 1, 1024, 1, 4096)                                                         \
    X(probe_bmma, 256, 1, 1024, 1, 0)                                                              \
    X(probe_wgmma, 256, 1, 1024, 1, 4096)

#define PROBE_OPERATIONS 64

// `recoded_reed_solomon`, which src/reed_solomon_source.rs writes for one matrix and NVRTC
// compiles: X as above. It ignores `coefficients`; `rows` and `depth` are the code's m and k.
#define RECODED_REED_SOLOMON_KERNEL(X) X(reed_solomon, 256, 1024, 4, 256, 0)

// Of a matrix that several blocks invert: numbers, a row for each column, rows that move.
#define INVERSE_STATE_BYTES (16u + 2 * RECODED_SIZE_MAX + 2 * 128)

#define PROGRESSIVE_STATE_BYTES(n) (16u + ROUND_UP_16(n) + (n) * ROUND_UP_16(n))
#define ROUND_UP_16(n) (((n) + 15u) & ~15u)

// X(technique, kernel, form of coefficients, form of sources, packed fields too, compute
// capabilities from and to, times ten): techniques by name, for all shapes.
#define RECODED_TECHNIQUES(X)                                                                      \
    X("loop", matmul_loop, FORM_PLAIN, FORM_PLAIN, true, 0, 9999)                                  \
    X("table-0", matmul_table_0, FORM_PLAIN, FORM_PLAIN, false, 0, 9999)                           \
    X("table-1", matmul_table_1, FORM_LOG_FF, FORM_LOG_FF, false, 0, 9999)                         \
    X("table-2", matmul_table_2, FORM_LOG_FF, FORM_LOG_FF, false, 0, 9999)                         \
    X("table-3", matmul_table_3, FORM_LOG_00, FORM_LOG_00, false, 0, 9999)                         \
    X("table-4", matmul_table_4, FORM_LOG_00, FORM_LOG_00, false, 0, 9999)                         \
    X("table-5", matmul_table_5, FORM_LOG_00, FORM_LOG_00, false, 0, 9999)                         \
    X("permute", matmul_permute, FORM_PLAIN, FORM_PLAIN, true, 0, 9999)                            \
    X("permute-narrow", matmul_permute_narrow, FORM_PLAIN, FORM_PLAIN, true, 0, 9999)              \
    X("four-russians", matmul_four_russians, FORM_PLANES, FORM_PLAIN, true, 0, 9999)               \
    X("bmma", matmul_bmma, FORM_BITS, FORM_PLAIN, true, 80, 99)                                    \
    X("wgmma", matmul_wgmma, FORM_TILES, FORM_PLAIN, true, 90, 90)
