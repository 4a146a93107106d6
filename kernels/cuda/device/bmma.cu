// `bmma`: the product as a binary matrix product, by tensor cores: bit b of c * x is the parity of
// (row b of the bit matrix of c) & x, so a destination bit is a sum over 8 bits of each source.
//
//   mma.m16n8k256.and.popc:  A = 16 positions x 256 bits (32 sources, 8 bits each)
//                            B = 256 bits x 8 destination bits, from prepare_bits
//                            C = counts, of which the lowest bit is the sum over GF(2)
//
// A block makes 32 destinations of 256 bytes, in tiles of 64: 4 warps of 8 rows, all on the same 64
// positions. What it does to 32 sources at such a tile is a step, and steps overlap, as two warps
// of a scheduler are too few to hide each other's waiting:
//
//   from the arena      three steps ahead, beside everything else
//   transposed          a step ahead: a row per position, the bytes of the sources side by side
//   to registers        a step ahead, behind the barrier of the step; coefficients two steps
//   products            of the registers that the previous step loaded
//
// Row r of tile m is position 4 r + m: so the four tiles of counts that a thread holds for one
// destination bit belong to four neighbouring bytes, and it stores whole words.
//
// Native on compute capability 8.0 to 9.0; cards from 10.0 on only emulate the instruction.
#include "../job.h"
#include "common.cuh"

#ifdef RECODED_BMMA

// 32 sources at 64 positions, in shared memory: as they are, with room behind each for others to
// lie on other banks; and transposed, as four tiles of a fragment for each lane.
enum : uint32_t { TILE_BYTES = 64, RAW_STRIDE = 80, RAW_BYTES = 32 * RAW_STRIDE, RAW_STAGES = 4 };
enum : uint32_t { TILES = 4, FRAGMENT_BYTES = 16, FRAGMENTS_BYTES = 32 * FRAGMENT_BYTES };
enum : uint32_t { STAGE_BYTES = TILES * FRAGMENTS_BYTES, STAGES = 2 };
static_assert(RAW_STAGES * RAW_BYTES + STAGES * STAGE_BYTES == matmul_bmma_shared, "job.h");

// Where the fragment of a lane lies in a tile: such that neither the stores of a warp, which has
// all positions of few sources, nor its loads of whole fragments meet in a bank more than they
// must.
__device__ __forceinline__ uint32_t fragment_place(uint32_t lane) {
    return FRAGMENT_BYTES * (lane ^ lane / 8);
}

// Transposes 4 x 4 bytes: four positions of four sources. Word i then is byte i of each, for tile
// i.
__device__ __forceinline__ void transpose(uint8_t *to, const uint8_t *from) {
    uint32_t w[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) w[i] = *reinterpret_cast<const uint32_t *>(from + RAW_STRIDE * i);
    const uint32_t low[2] = {prmt(w[0], w[1], 0x5140), prmt(w[2], w[3], 0x5140)};
    const uint32_t high[2] = {prmt(w[0], w[1], 0x7362), prmt(w[2], w[3], 0x7362)};
    const uint32_t bytes[TILES] = {prmt(low[0], low[1], 0x5410), prmt(low[0], low[1], 0x7632),
                                   prmt(high[0], high[1], 0x5410), prmt(high[0], high[1], 0x7632)};
#pragma unroll
    for (uint32_t i = 0; i < TILES; i++) {
        *reinterpret_cast<uint32_t *>(to + FRAGMENTS_BYTES * i) = bytes[i];
    }
}

// What a lane has of 32 sources at 64 positions, and of their coefficients for eight rows.
struct Positions {
    Fragment a[TILES];
};
struct Rows {
    uint4 b[4];
};

__device__ __forceinline__ Positions positions_at(const uint8_t *fragments) {
    Positions found;
#pragma unroll
    for (uint32_t m = 0; m < TILES; m++) {
        const uint4 words = *reinterpret_cast<const uint4 *>(fragments + FRAGMENTS_BYTES * m);
        found.a[m] = {words.x, words.y, words.z, words.w};
    }
    return found;
}

__device__ __forceinline__ Rows rows_at(const uint8_t *bits) {
    Rows found;
#pragma unroll
    for (uint32_t pair = 0; pair < 4; pair++) found.b[pair] = load<uint4>(bits + 512 * pair);
    return found;
}

template <bool IS_FIRST>
__device__ __forceinline__ void multiply(int (&counts)[TILES][8][4], const Positions &positions,
                                         const Rows &rows) {
#pragma unroll
    for (uint32_t tile = 0; tile < 8; tile++) {
        const uint4 pair = rows.b[tile / 2];
        const uint2 b = tile % 2 == 0 ? make_uint2(pair.x, pair.y) : make_uint2(pair.z, pair.w);
#pragma unroll
        for (uint32_t m = 0; m < TILES; m++) {
            if (IS_FIRST) {
                bmma_first(counts[m][tile], positions.a[m], b);
            } else {
                bmma(counts[m][tile], positions.a[m], b);
            }
        }
    }
}

// The steps of a block, in their order: all sources at one tile, then the next tile.
struct Step {
    uint32_t byte, chunk;

    __device__ __forceinline__ void advance(uint32_t chunks) {
        const bool is_last = ++chunk == chunks;
        if (is_last) chunk = 0, byte += TILE_BYTES;
    }
};

// Four bytes of row 4 h + q: bits 2 t and 2 t + 1 of byte m are the parities of counts[m][4 h +
// t][2 half] and of the next one. (To shift them in from above, by `__funnelshift_r`, is half of
// the instructions and was slower by a twentieth: all of them would be for one pipe.)
__device__ __forceinline__ uint32_t parities(const int (&counts)[TILES][8][4], uint32_t h, uint32_t half) {
    uint32_t word = 0;
#pragma unroll
    for (uint32_t m = 0; m < TILES; m++) {
        uint32_t byte = 0;
#pragma unroll
        for (uint32_t t = 0; t < 4; t++) {
            byte |= ((uint32_t)counts[m][4 * h + t][2 * half] & 1) << (2 * t);
            byte |= ((uint32_t)counts[m][4 * h + t][2 * half + 1] & 1) << (2 * t + 1);
        }
        word |= byte << (8 * m);
    }
    return word;
}

// Stores what the counts say: bytes 4 g to 4 g + 3 of 64, and those 32 further on, of rows q and 4
// + q.
__device__ __forceinline__ void put_counts(const int (&counts)[TILES][8][4], const Job &job,
                                           uint8_t *arena, uint32_t first_row, uint32_t first_byte,
                                           uint32_t g) {
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t row = first_row + 4 * h;
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t byte = first_byte + 32 * half + 4 * g;
            const uint32_t word = parities(counts, h, half);
            if (row < job.rows && byte < job.symbol_bytes) {
                put(job, destination_row(job, arena, row) + byte, word);
            }
        }
    }
}

// Two blocks a multiprocessor, not three: with fewer registers the compiler moves loads down to
// where their values are needed, behind the products that were to hide them.
KERNEL_BLOCKS(matmul_bmma, 2) {
    SHARED_MEMORY(shared);
    uint8_t *raw = shared, *stages = shared + RAW_STAGES * RAW_BYTES;
    const Job job = job_of_block(jobs, jobs_count);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    // Blocks that read the same sources follow each other.
    const uint32_t row_blocks = ceil_div(job.rows, matmul_bmma_unit_rows);
    const uint32_t unit = blockIdx.x - job.first_block;
    const uint32_t group = unit % row_blocks, begin = unit / row_blocks * matmul_bmma_unit_bytes;
    const uint32_t end = min(begin + matmul_bmma_unit_bytes, job.symbol_bytes);
    const uint32_t chunks = ceil_div(job.depth, 32);

    // What this thread brings of a step: 16 bytes of a source.
    const uint32_t own = threadIdx.x / 4, part = threadIdx.x % 4 * 16;
    Copies copies;
    Step fetched = {begin, 0};
    uint32_t fetches = 0;
    const auto fetch = [&] {
        const uint32_t source = 32 * fetched.chunk + own, byte = fetched.byte + part;
        const bool exists = source < job.depth && byte < end;
        uint8_t *to = raw + fetches++ % RAW_STAGES * RAW_BYTES + own * RAW_STRIDE + part;
        copies.start(to, source_row(job, arena, source) + byte, exists);
        copies.commit();
        fetched.advance(chunks);
    };
    // What it transposes: 4 positions of 4 sources, for the lane that multiplies row `column` (or 8
    // less) by them.
    const uint32_t column = threadIdx.x % 16, sources = threadIdx.x / 16;
    const uint32_t from = 4 * sources * RAW_STRIDE + 4 * column;
    const uint32_t to = fragment_place(4 * (column % 8) + sources % 4) + column / 8 * 4 + sources / 4 * 8;
    uint32_t turn = 0;
    const auto stage = [&] {
        transpose(stages + turn % STAGES * STAGE_BYTES + to, raw + turn % RAW_STAGES * RAW_BYTES + from);
    };

    for (uint32_t i = 0; i < RAW_STAGES; i++) fetch();
    copies.wait<2>();
    __syncthreads();
    stage();
    __syncthreads();
    fetch();
    const uint32_t place = fragment_place(lane);
    // 8 bytes for a coefficient, which are read again for each tile: from the L1 cache, where they
    // would be too much for the path to L2.
    const uint8_t *bits = coefficient_row(job, arena, group) + 2048 * warp + 16 * lane;
    Step loaded = {begin, 0};
    Positions positions = positions_at(stages + place), next_positions;
    Rows rows = rows_at(bits), next_rows, rows_after;
    loaded.advance(chunks);
    next_rows = rows_at(bits + 8192 * loaded.chunk);
    // Brings the operands of the next step. At the barrier all have what they read from the step
    // before it, so its place is free; and what they copied for the step after it is there for all.
    const auto load_ahead = [&] {
        turn++;
        loaded.advance(chunks);
        copies.wait<2>();
        stage();
        __syncthreads();
        fetch();
        next_positions = positions_at(stages + turn % STAGES * STAGE_BYTES + place);
        rows_after = rows_at(bits + 8192 * loaded.chunk);
    };
    const auto go_on = [&] {
        positions = next_positions;
        rows = next_rows;
        next_rows = rows_after;
    };
    for (uint32_t byte = begin; byte < end; byte += TILE_BYTES) {
        int counts[TILES][8][4];
        load_ahead();
        multiply<true>(counts, positions, rows);
        go_on();
#pragma unroll 3
        for (uint32_t chunk = 1; chunk < chunks; chunk++) {
            load_ahead();
            multiply<false>(counts, positions, rows);
            go_on();
        }
        put_counts(counts, job, arena, 32 * group + 8 * warp + q, byte, g);
    }
}

#else

KERNEL(matmul_bmma) {}

#endif
