// `bmma`: the product as a binary matrix product, by tensor cores: bit b of c * x is the parity of
// (row b of the bit matrix of c) & x, so a destination bit is a sum over 8 bits of each source.
//
//   mma.m16n8k256.and.popc:  A = 16 positions x 256 bits (32 sources, 8 bits each)
//                            B = 256 bits x 8 destination bits, from prepare_bits
//                            C = counts, of which the lowest bit is the sum over GF(2)
//
// A block makes 32 destinations of 256 bytes, in tiles of 64: 4 warps of 8 rows, all on the same 64
// positions. Sources come to shared memory transposed: a row per position, the bytes of 32 sources
// side by side. Row 16 m + r of it is position 4 r + m: so the four tiles of counts that a thread
// holds for one destination bit belong to four neighbouring bytes, and it stores whole words.
//
// Native on compute capability 8.0 to 9.0; cards from 10.0 on only emulate the instruction.
#include "../job.h"
#include "common.cuh"

#ifdef RECODED_BMMA

// Words from one position to the next one: 8 are used, 12 keep lanes on different banks.
enum : uint32_t { TILE_BYTES = 64, POSITION_WORDS = 12, STAGE_WORDS = TILE_BYTES * POSITION_WORDS };

// Four words of four sources: what a thread brings for a chunk of 32 sources.
struct Staged {
    uint32_t words[4];
};

__device__ __forceinline__ Staged fetch(const Job &job, const uint8_t *arena, uint32_t byte,
                                        uint32_t first_source) {
    Staged staged;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t source = first_source + i;
        staged.words[i] = byte < job.symbol_bytes && source < job.depth
                              ? load<uint32_t>(source_row(job, arena, source) + byte)
                              : 0;
    }
    return staged;
}

// Transposes 4 x 4 bytes: word i then holds byte i of the four sources.
__device__ __forceinline__ void stage(uint32_t *shared, const Staged &staged, uint32_t column,
                                      uint32_t sources) {
    const uint32_t *w = staged.words;
    const uint32_t low[2] = {prmt(w[0], w[1], 0x5140), prmt(w[2], w[3], 0x5140)};
    const uint32_t high[2] = {prmt(w[0], w[1], 0x7362), prmt(w[2], w[3], 0x7362)};
    const uint32_t bytes[4] = {prmt(low[0], low[1], 0x5410), prmt(low[0], low[1], 0x7632),
                               prmt(high[0], high[1], 0x5410), prmt(high[0], high[1], 0x7632)};
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) shared[(16 * i + column) * POSITION_WORDS + sources] = bytes[i];
}

__device__ __forceinline__ Fragment fragment(const uint32_t *shared, uint32_t tile, uint32_t g,
                                             uint32_t q) {
    const uint32_t *row = shared + (16 * tile + g) * POSITION_WORDS + q;
    return {row[0], row[8 * POSITION_WORDS], row[4], row[8 * POSITION_WORDS + 4]};
}

// The byte whose bits 2 t and 2 t + 1 are the parities of counts[4 h + t][2 half] and the next one.
__device__ __forceinline__ uint32_t parities(const int (&counts)[8][4], uint32_t h, uint32_t half) {
    uint32_t byte = 0;
#pragma unroll
    for (uint32_t t = 0; t < 4; t++) {
        byte |= ((uint32_t)counts[4 * h + t][2 * half] & 1) << (2 * t);
        byte |= ((uint32_t)counts[4 * h + t][2 * half + 1] & 1) << (2 * t + 1);
    }
    return byte;
}

// Stores what the counts say: bytes 4 g to 4 g + 3 of 64, and those 32 further on, of rows q and 4
// + q.
__device__ __forceinline__ void put_counts(const int (&counts)[4][8][4], const Job &job, uint8_t *arena,
                                           uint32_t first_row, uint32_t first_byte, uint32_t g) {
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t row = first_row + 4 * h;
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t byte = first_byte + 32 * half + 4 * g;
            uint32_t word = 0;
#pragma unroll
            for (uint32_t m = 0; m < 4; m++) word |= parities(counts[m], h, half) << (8 * m);
            if (row < job.rows && byte < job.symbol_bytes) {
                put(job, destination_row(job, arena, row) + byte, word);
            }
        }
    }
}

// Two blocks a multiprocessor, not three: with fewer registers the compiler moves the loads of the
// next chunk down to where it needs them, behind the products that were to hide them.
KERNEL_BLOCKS(matmul_bmma, 2) {
    SHARED_MEMORY(shared);
    uint32_t *stages = reinterpret_cast<uint32_t *>(shared);
    const Job job = job_of_block(jobs, jobs_count);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    // Blocks that read the same sources follow each other.
    const uint32_t row_blocks = ceil_div(job.rows, matmul_bmma_unit_rows);
    const uint32_t unit = blockIdx.x - job.first_block;
    const uint32_t group = unit % row_blocks, begin = unit / row_blocks * matmul_bmma_unit_bytes;
    const uint32_t end = min(begin + matmul_bmma_unit_bytes, job.symbol_bytes);
    const uint32_t chunks = ceil_div(job.depth, 32);
    // What this thread stages of a chunk: 4 bytes of 4 sources.
    const uint32_t column = threadIdx.x % 16, sources = threadIdx.x / 16;

    // The fragments of the coefficients, 8 bytes for one, are read again for each tile: from the L1
    // cache, where they would be too much for the path to L2.
    uint32_t turn = 0;
    for (uint32_t first_byte = begin; first_byte < end; first_byte += TILE_BYTES) {
        int counts[4][8][4] = {};
        const uint8_t *bits = coefficient_row(job, arena, group) + 2048 * warp + 8 * lane;
        Staged staged = fetch(job, arena, first_byte + 4 * column, 4 * sources);
        for (uint32_t chunk = 0; chunk < chunks; chunk++, bits += 8192, turn++) {
            // Two stages: a warp fills one while others still read the one before it.
            uint32_t *stage_words = stages + turn % 2 * STAGE_WORDS;
            stage(stage_words, staged, column, sources);
            __syncthreads();
            staged = fetch(job, arena, first_byte + 4 * column, 32 * (chunk + 1) + 4 * sources);
            Fragment a[4];
#pragma unroll
            for (uint32_t m = 0; m < 4; m++) a[m] = fragment(stage_words, m, g, q);
#pragma unroll
            for (uint32_t tile = 0; tile < 8; tile++) {
                const uint2 b = load<uint2>(bits + 256 * tile);
#pragma unroll
                for (uint32_t m = 0; m < 4; m++) bmma(counts[m][tile], a[m], b);
            }
        }
        put_counts(counts, job, arena, 32 * group + 8 * warp + q, first_byte, g);
    }
}

#else

KERNEL(matmul_bmma) {}

#endif
