// `wgmma`: the product as a binary matrix product, as `bmma`, by the instructions that only Hopper
// (compute capability 9.0) has. They take one operand from shared memory, so that a warp has one
// instruction to issue where `bmma` has 32, and run at the full rate of the tensor cores.
//
//   A = 64 positions x 256 bits (32 sources, 8 bits each), in registers
//   B = 256 bits x 128 destination bits (16 rows), in shared memory, from prepare_tiles
//   C = counts, of which the lowest bit is the sum over GF(2)
//
// A block makes 64 destinations, 128 positions at a time: a tile, as two halves of 64. Coefficients
// of 64 rows by 128 sources, a panel, stay in shared memory for all tiles of the block; of more
// sources, panel after panel is added to the destinations.
//
//   from the arena     sources of a tile, while the tile before it is multiplied
//   to registers       all sources of a panel at once, transposed by the copy; then there is room
//                      for the next tile
//   products           16 rows by half a tile after the other, up to 4 products of 32 sources each
//   parities           of one half, while the other one is multiplied; by shared memory to rows
//
// Two such blocks share a multiprocessor, so that one multiplies while the other begins a tile.
#include "../job.h"
#include "common.cuh"
#include "wgmma.cuh"

#ifdef RECODED_WGMMA

enum : uint32_t { TILE_POSITIONS = 128, HALVES = 2, PANEL_CHUNKS = 4, PANEL_SOURCES = 32 * PANEL_CHUNKS };
// Of 16 rows by 32 sources.
enum : uint32_t { COLUMNS_BYTES = 4096, ROW_GROUPS = matmul_wgmma_unit_rows / 16 };
enum : uint32_t {
    PANEL_BYTES = ROW_GROUPS * PANEL_CHUNKS * COLUMNS_BYTES,
    SOURCES_BYTES = PANEL_SOURCES * TILE_POSITIONS,
    // For each warp, 32 bytes of 16 rows.
    RESULTS_BYTES = 16 * 32,
};
static_assert(PANEL_BYTES + SOURCES_BYTES + 4 * RESULTS_BYTES == matmul_wgmma_shared, "job.h");

// Where 16 bytes of a source lie: such that lanes which read different sources meet in no bank.
__device__ __forceinline__ uint32_t source_place(uint32_t source, uint32_t part) {
    return TILE_POSITIONS * source + 16 * (part ^ 2 * (source / 4 % 4));
}

// Warp w has positions 32 w and on, a lane of it 4 g and on: of half 0 the first two of these as
// rows g and 8 + g of the warp's 16, of half 1 the others.
template <uint32_t CHUNKS> struct Fragments {
    Fragment of[HALVES][CHUNKS];
};

// Four sources at four positions, from the first of the sources, to word `word` of the fragments.
__device__ __forceinline__ uint4 transposed(const uint8_t *from) {
    uint32_t w[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) w[i] = *reinterpret_cast<const uint32_t *>(from + TILE_POSITIONS * i);
    const uint32_t low[2] = {prmt(w[0], w[1], 0x5140), prmt(w[2], w[3], 0x5140)};
    const uint32_t high[2] = {prmt(w[0], w[1], 0x7362), prmt(w[2], w[3], 0x7362)};
    return make_uint4(prmt(low[0], low[1], 0x5410), prmt(low[0], low[1], 0x7632),
                      prmt(high[0], high[1], 0x5410), prmt(high[0], high[1], 0x7632));
}

template <uint32_t CHUNKS>
__device__ __forceinline__ Fragments<CHUNKS> fragments_at(const uint8_t *sources, uint32_t warp,
                                                          uint32_t g, uint32_t q) {
    Fragments<CHUNKS> found;
    const uint32_t part = 2 * warp + g / 4, byte = 4 * (g % 4);
#pragma unroll
    for (uint32_t chunk = 0; chunk < CHUNKS; chunk++) {
        const uint32_t source = 32 * chunk + 4 * q;
        const uint4 low = transposed(sources + source_place(source, part) + byte);
        const uint4 high = transposed(sources + source_place(source + 16, part) + byte);
        found.of[0][chunk] = {low.x, low.y, high.x, high.y};
        found.of[1][chunk] = {low.z, low.w, high.z, high.w};
    }
    return found;
}

// Two bytes of row 4 h + q, in the lower half of a word: bits 2 t and 2 t + 1 are the parities of
// columns 2 q and 2 q + 1 of 8 (4 h + t) and on. Both positions are done at once, in halves of a
// word: counts are below 2^16.
__device__ __forceinline__ uint32_t parities(const int (&counts)[64], uint32_t h) {
    uint32_t bytes = 0;
#pragma unroll
    for (uint32_t bit = 0; bit < 8; bit++) {
        const uint32_t column = 4 * (4 * h + bit / 2) + bit % 2;
        const uint32_t both = (uint32_t)counts[column] + ((uint32_t)counts[column + 2] << 16);
        bytes |= (both << bit) & (0x10001u << bit);
    }
    return bytes;
}

// What the threads of a block share.
struct Place {
    const Job &job;
    uint8_t *arena;
    uint8_t *panel, *sources, *results;
    uint32_t first_row, begin, end, groups;
    uint32_t warp, lane, g, q;
};

// Copies a tile of the sources of a panel, zeros where there are none.
__device__ __forceinline__ void fetch(Copies &copies, const Place &at, uint32_t first_source,
                                      uint32_t sources, uint32_t byte) {
    const uint32_t part = threadIdx.x % 8, position = byte + 16 * part;
    for (uint32_t own = threadIdx.x / 8; own < sources; own += matmul_wgmma_threads / 8) {
        const uint32_t source = first_source + own;
        const bool exists = source < at.job.depth && position < at.end;
        const uint8_t *from = source_row(at.job, at.arena, exists ? source : 0) + (exists ? position : 0);
        copies.start(at.sources + source_place(own, part), from, exists);
    }
}

// Starts the products of 16 rows by half a tile.
template <uint32_t CHUNKS>
__device__ __forceinline__ void start(int (&counts)[64], const Fragment (&fragments)[CHUNKS],
                                      const uint8_t *columns) {
    begin_products();
#pragma unroll
    for (uint32_t chunk = 0; chunk < CHUNKS; chunk++) {
        if (chunk == 0) {
            product_first(counts, fragments[chunk], columns);
        } else {
            product(counts, fragments[chunk], columns + COLUMNS_BYTES * chunk);
        }
    }
    commit_products();
}

// What comes of 16 rows by a tile, whose first half was started before, and starts that of the next
// 16 rows, if there are any.
template <uint32_t CHUNKS, bool IS_LAST>
__device__ __forceinline__ void finish_group(int (&counts)[HALVES][64], const Fragments<CHUNKS> &fragments,
                                             const Place &at, uint32_t group, uint32_t byte) {
    const uint8_t *columns = at.panel + PANEL_CHUNKS * COLUMNS_BYTES * group;
    const uint32_t row = at.first_row + 16 * group + at.lane / 2;
    const uint32_t position = byte + 32 * at.warp + 16 * (at.lane % 2);
    const bool exists = row < at.job.rows && position < at.end;
    uint8_t *to = destination_row(at.job, at.arena, row) + position;
    // What is added to comes from memory meanwhile.
    uint4 sums = make_uint4(0, 0, 0, 0);
    if (exists && at.job.flags & FLAG_ACCUMULATE) sums = load_mutable<uint4>(to);
    start<CHUNKS>(counts[1], fragments.of[1], columns);
    wait_for_products<1>(counts[0]);
    uint32_t first[4];
#pragma unroll
    for (uint32_t h = 0; h < 4; h++) first[h] = parities(counts[0], h);
    if (IS_LAST) {
        wait_for_products<0>(counts[1]);
    } else {
        start<CHUNKS>(counts[0], fragments.of[0], columns + PANEL_CHUNKS * COLUMNS_BYTES);
        wait_for_products<1>(counts[1]);
    }
#pragma unroll
    for (uint32_t h = 0; h < 4; h++) {
        uint8_t *place = at.results + 32 * (4 * h + at.q) + 4 * at.g;
        *reinterpret_cast<uint32_t *>(place) = prmt(first[h], parities(counts[1], h), 0x6420);
    }
    __syncwarp();
    if (exists) {
        const uint4 words = *reinterpret_cast<const uint4 *>(at.results + 16 * at.lane);
        store<uint4>(to, make_uint4(sums.x ^ words.x, sums.y ^ words.y, sums.z ^ words.z, sums.w ^ words.w));
    }
    __syncwarp();
}

// 16 GROUPS rows of a tile; the first half was started before. Unrolled: in a loop, the compiler
// would not see which products are unfinished, and wait for each.
template <uint32_t CHUNKS, uint32_t GROUPS>
__device__ __forceinline__ void multiply_tile(int (&counts)[HALVES][64], const Place &at,
                                              const Fragments<CHUNKS> &fragments, uint32_t byte) {
#pragma unroll
    for (uint32_t group = 0; group + 1 < GROUPS; group++) {
        finish_group<CHUNKS, false>(counts, fragments, at, group, byte);
    }
    finish_group<CHUNKS, true>(counts, fragments, at, GROUPS - 1, byte);
}

// All tiles by the sources of one panel.
template <uint32_t CHUNKS, uint32_t GROUPS>
__device__ __forceinline__ void multiply_panel(const Place &at, uint32_t first_source) {
    Copies copies;
    const uint8_t *bits = coefficient_row(at.job, at.arena, at.first_row / 16);
    bits += COLUMNS_BYTES * (first_source / 32) + 16 * threadIdx.x;
    for (uint32_t group = 0; group < at.groups; group++, bits += at.job.coefficient_stride) {
        uint8_t *to = at.panel + PANEL_CHUNKS * COLUMNS_BYTES * group + 16 * threadIdx.x;
        for (uint32_t i = 0; i < CHUNKS * COLUMNS_BYTES; i += 16 * matmul_wgmma_threads) {
            copies.start(to + i, bits + i, true);
        }
        copies.commit();
    }
    fetch(copies, at, first_source, 32 * CHUNKS, at.begin);
    copies.commit();
    int counts[HALVES][64] = {};
    for (uint32_t byte = at.begin; byte < at.end; byte += TILE_POSITIONS) {
        copies.wait<0>();
        // Coefficients only: sources go through registers. It waits for all stores of the thread.
        if (byte == at.begin) show_products();
        __syncthreads();
        const Fragments<CHUNKS> fragments = fragments_at<CHUNKS>(at.sources, at.warp, at.g, at.q);
        start<CHUNKS>(counts[0], fragments.of[0], at.panel);
        __syncthreads();
        if (byte + TILE_POSITIONS < at.end) {
            fetch(copies, at, first_source, 32 * CHUNKS, byte + TILE_POSITIONS);
        }
        copies.commit();
        multiply_tile<CHUNKS, GROUPS>(counts, at, fragments, byte);
    }
}

// All tiles of a block of up to 16 GROUPS rows.
template <uint32_t GROUPS>
__device__ __forceinline__ void multiply_rows(const Place &at, Job &job) {
    for (uint32_t source = 0; source < job.depth; source += PANEL_SOURCES) {
        switch (min(ceil_div(job.depth - source, 32), (uint32_t)PANEL_CHUNKS)) {
        case 1: multiply_panel<1, GROUPS>(at, source); break;
        case 2: multiply_panel<2, GROUPS>(at, source); break;
        case 3: multiply_panel<3, GROUPS>(at, source); break;
        default: multiply_panel<4, GROUPS>(at, source);
        }
        // The panel and what was fetched have been used by all.
        __syncthreads();
        job.flags |= FLAG_ACCUMULATE;
    }
}

KERNEL_BLOCKS(matmul_wgmma, 2) {
    SHARED_MEMORY(shared);
    Job job = job_of_block(jobs, jobs_count);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // Blocks that read the same sources follow each other.
    const uint32_t row_blocks = ceil_div(job.rows, matmul_wgmma_unit_rows);
    const uint32_t unit = blockIdx.x - job.first_block;
    const uint32_t first_row = unit % row_blocks * matmul_wgmma_unit_rows;
    const uint32_t begin = unit / row_blocks * matmul_wgmma_unit_bytes;
    const uint32_t end = min(begin + matmul_wgmma_unit_bytes, job.symbol_bytes);
    const uint32_t groups = min(ceil_div(job.rows - first_row, 16), (uint32_t)ROW_GROUPS);
    uint8_t *sources = shared + PANEL_BYTES, *results = sources + SOURCES_BYTES + RESULTS_BYTES * warp;
    const Place at = {job,   arena, shared, sources, results,  first_row, begin,
                      end,   groups, warp,  lane,    lane / 4, lane % 4};
    switch (groups) {
    case 1: multiply_rows<1>(at, job); break;
    case 2: multiply_rows<2>(at, job); break;
    default: multiply_rows<ROW_GROUPS>(at, job);
    }
}

#else

KERNEL(matmul_wgmma) {}

#endif
