// `four-russians`: destinations by sums of subsets. Bit b of the coefficients of eight sources is a
// number of 0 to 255, and entry i of a table is the sum of the sources in subset i: one look-up
// adds what bit b has to say about eight sources, and the field is needed only at the end, where
// the sums of the bits are combined by Horner's rule. All threads of a warp read one entry: no bank
// conflicts.
//
// A block makes 64 destinations of 256 bytes: 16 warps of 4 rows, 8 bytes a thread. The table takes
// 64 KB and many registers hold sums, so a multiprocessor has one block: sixteen warps hide more of
// the way to shared memory and of the barriers than eight of twice the rows would.
#include "../job.h"
#include "common.cuh"

enum : uint32_t { ROWS_PER_WARP = 4, ENTRIES_PER_WARP = 16, ENTRY_WORDS = 32 };

// The source that distinguishes entry i of a Gray code from entry i - 1: the lowest bit of i.
__device__ __forceinline__ constexpr uint32_t changed(uint32_t i) {
    return i % 2 == 1 ? 0 : 1 + changed(i / 2);
}

__device__ __forceinline__ uint2 sum(uint2 a, uint2 b) { return make_uint2(a.x ^ b.x, a.y ^ b.y); }

// Eight bytes of each of eight sources, zero where there are none.
__device__ __forceinline__ void fetch(uint2 (&sources)[8], const Job &job, const uint8_t *arena,
                                      uint32_t byte, uint32_t first) {
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        sources[i] = byte < job.symbol_bytes && first + i < job.depth
                         ? load<uint2>(source_row(job, arena, first + i) + byte)
                         : make_uint2(0, 0);
    }
}

// The 16 entries of this warp, whose subsets have the bits of its number at the top, in the order
// of a Gray code.
__device__ __forceinline__ void build_entries(uint2 *table, const uint2 (&sources)[8], uint32_t warp,
                                              uint32_t lane) {
    uint2 entry = make_uint2(0, 0);
#pragma unroll
    for (uint32_t bit = 0; bit < 4; bit++) {
        if ((warp >> bit) & 1) entry = sum(entry, sources[4 + bit]);
    }
    uint2 *entries = table + ENTRIES_PER_WARP * warp * ENTRY_WORDS + lane;
    entries[0] = entry;
#pragma unroll
    for (uint32_t i = 1; i < ENTRIES_PER_WARP; i++) {
        entry = sum(entry, sources[changed(i)]);
        entries[(i ^ (i >> 1)) * ENTRY_WORDS] = entry;
    }
}

// Every element of a word times x, where elements are bytes: the sign mode of `prmt` makes a mask
// of the bits that overflow.
__device__ __forceinline__ uint32_t times_x_bytes(uint32_t word, uint32_t polynomials) {
    return ((word << 1) & 0xfefefefe) ^ (prmt(word, 0, 0xba98) & polynomials);
}

// The sum of bit sums times powers of x.
__device__ __forceinline__ uint2 combine(const uint2 (&sums)[8], const Shape &shape) {
    uint2 total = sums[7];
    const bool bytes = shape.shift == 7;
    const uint32_t polynomials = shape.polynomial * 0x01010101;
#pragma unroll
    for (int bit = 6; bit >= 0; bit--) {
        total = bytes ? make_uint2(times_x_bytes(total.x, polynomials), times_x_bytes(total.y, polynomials))
                      : make_uint2(times_x(total.x, shape), times_x(total.y, shape));
        total = sum(total, sums[bit]);
    }
    return total;
}

KERNEL(matmul_four_russians) {
    SHARED_MEMORY(shared);
    uint2 *table = reinterpret_cast<uint2 *>(shared);
    const Job job = job_of_block(jobs, jobs_count);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // Blocks that read the same sources follow each other.
    const uint32_t row_blocks = ceil_div(job.rows, matmul_four_russians_unit_rows);
    const uint32_t unit = blockIdx.x - job.first_block;
    const uint32_t row = unit % row_blocks * matmul_four_russians_unit_rows + warp * ROWS_PER_WARP;
    const uint32_t byte = unit / row_blocks * matmul_four_russians_unit_bytes + 8 * lane;
    const bool inside = byte < job.symbol_bytes;

    // Bits of a coefficient: small fields have fewer.
    const uint32_t planes_used = tables[job.field].element_bits;
    uint2 sums[ROWS_PER_WARP][8] = {};
    uint2 sources[8];
    fetch(sources, job, arena, byte, 0);
#pragma unroll 1
    for (uint32_t group = 0; group < ceil_div(job.depth, 8); group++) {
        __syncthreads();
        build_entries(table, sources, warp, lane);
        __syncthreads();
        fetch(sources, job, arena, byte, 8 * (group + 1));
#pragma unroll
        for (uint32_t i = 0; i < ROWS_PER_WARP; i++) {
            // Rows beyond the last one repeat it, and are not stored.
            const uint32_t which = min(row + i, job.rows - 1);
            const uint2 planes = load<uint2>(coefficient_row(job, arena, which) + 8 * group);
#pragma unroll
            for (uint32_t bit = 0; bit < 8; bit++) {
                if (bit >= planes_used) continue;
                // An entry is 256 bytes: the byte that is the subset, above that which is the
                // lane's.
                const uint32_t half = bit < 4 ? planes.x : planes.y;
                const uint32_t place = prmt(half, 8 * lane, 0x5504 | (bit % 4) << 4);
                sums[i][bit] = sum(sums[i][bit], *reinterpret_cast<const uint2 *>(shared + place));
            }
        }
    }
    if (!inside) return;
    const Shape shape = shape_of(tables[job.field].element_bits, tables[job.field].polynomial);
#pragma unroll
    for (uint32_t i = 0; i < ROWS_PER_WARP; i++) {
        if (row + i >= job.rows) return;
        const uint2 total = combine(sums[i], shape);
        uint8_t *destination = destination_row(job, arena, row + i) + byte;
        put(job, destination, total.x);
        put(job, destination + 4, total.y);
    }
}
