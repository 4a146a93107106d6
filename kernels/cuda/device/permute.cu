// `permute`: the universal kernel. A thread makes 16 bytes of 16 destinations, whose sums stay in
// registers, so that the selectors of a source serve 16 products. `permute-narrow` makes 4
// destinations: for a relay that wants few.
#include "../job.h"
#include "common.cuh"
#include "permute.cuh"

// Coefficients of the destinations of a block, as offsets of their tables, for as many sources as
// fit at a time: entry (source, row group, row).
enum : uint32_t { STAGED_WORDS = 4096 };

template <uint32_t ROWS>
__device__ __forceinline__ void stage(const Job &job, const uint8_t *arena, uint32_t *staged,
                                      uint32_t first_group, uint32_t groups, uint32_t first_source,
                                      uint32_t sources) {
    const uint32_t rows = groups * ROWS;
    for (uint32_t i = threadIdx.x; i < rows * sources; i += blockDim.x) {
        const uint32_t row = first_group * ROWS + i / sources, source = first_source + i % sources;
        const bool exists = row < job.rows && source < job.depth;
        const uint32_t c = exists ? load<uint8_t>(coefficient_row(job, arena, row) + source) : 0;
        staged[i % sources * rows + i / sources] = 32 * c;
    }
}

// The next two of `left` sources. An odd one out is used twice, the second time by coefficients of
// zero.
__device__ __forceinline__ void fetch_pair(uint4 &a, uint4 &b, const Job &job, const uint8_t *source,
                                           uint32_t left) {
    a = load<uint4>(source);
    b = load<uint4>(left > 1 ? source + job.source_stride : source);
}

template <uint32_t ROWS>
__device__ __forceinline__ void accumulate(uint32_t (&sums)[ROWS][4], const uint8_t *tables,
                                           const uint32_t *offsets, uint32_t next, uint4 a, uint4 b) {
    const Selectors x[2][4] = {
        {selectors_of(a.x), selectors_of(a.y), selectors_of(a.z), selectors_of(a.w)},
        {selectors_of(b.x), selectors_of(b.y), selectors_of(b.z), selectors_of(b.w)}};
#pragma unroll
    for (uint32_t row = 0; row < ROWS; row += 4) {
        const uint4 four[2] = {*reinterpret_cast<const uint4 *>(offsets + row),
                               *reinterpret_cast<const uint4 *>(offsets + next + row)};
        const uint32_t places[2][4] = {{four[0].x, four[0].y, four[0].z, four[0].w},
                                       {four[1].x, four[1].y, four[1].z, four[1].w}};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const Multiplier c = multiplier_at(tables, places[0][i]);
            const Multiplier d = multiplier_at(tables, places[1][i]);
#pragma unroll
            for (uint32_t word = 0; word < 4; word++) {
                sums[row + i][word] ^= multiply(c, x[0][word]) ^ multiply(d, x[1][word]);
            }
        }
    }
}

// Two sources at a time: seven terms are summed by three instructions, four by two.
template <uint32_t ROWS>
__device__ __forceinline__ void permute(const Job *jobs, uint32_t jobs_count,
                                        const FieldTables *tables, uint8_t *arena,
                                        uint8_t *shared) {
    constexpr uint32_t THREADS = matmul_permute_threads;
    const Job job = job_of_block(jobs, jobs_count);
    load_permute_tables(shared, tables[job.field]);
    uint32_t *staged = reinterpret_cast<uint32_t *>(shared + PERMUTE_TABLES_BYTES);

    const uint32_t columns = ceil_div(job.symbol_bytes, 16);
    const uint32_t begin = (blockIdx.x - job.first_block) * THREADS;
    const uint32_t first_group = begin / columns;
    const uint32_t last_group = min((begin + THREADS - 1) / columns, (job.rows - 1) / ROWS);
    const uint32_t groups = last_group - first_group + 1;
    const uint32_t chunk = STAGED_WORDS / (groups * ROWS) & ~1u;
    const Unit unit = unit_of(job, begin + threadIdx.x, ROWS, 16);
    const uint32_t group = unit.exists ? unit.row / ROWS - first_group : 0;

    uint32_t sums[ROWS][4] = {};
    for (uint32_t first = 0; first < job.depth; first += chunk) {
        const uint32_t sources = min(chunk, job.depth - first);
        __syncthreads();
        stage<ROWS>(job, arena, staged, first_group, groups, first, (sources + 1) & ~1u);
        __syncthreads();
        if (!unit.exists) continue;
        const uint8_t *source = source_row(job, arena, first) + unit.byte;
        const uint32_t *offsets = staged + group * ROWS;
        const uint32_t next = groups * ROWS;
        uint4 a, b;
        fetch_pair(a, b, job, source, sources);
        for (uint32_t i = 0; i < sources; i += 2) {
            const uint4 a_now = a, b_now = b;
            // Ahead of the products, which hide the way to memory.
            source += 2 * (uint64_t)job.source_stride;
            if (i + 2 < sources) fetch_pair(a, b, job, source, sources - i - 2);
            accumulate<ROWS>(sums, shared, offsets, next, a_now, b_now);
            offsets += 2 * next;
        }
    }
    if (!unit.exists) return;
#pragma unroll
    for (uint32_t row = 0; row < ROWS; row++) {
        if (unit.row + row >= job.rows) return;
        put(job, destination_row(job, arena, unit.row + row) + unit.byte,
            make_uint4(restore_order(sums[row][0]), restore_order(sums[row][1]),
                       restore_order(sums[row][2]), restore_order(sums[row][3])));
    }
}

KERNEL_BLOCKS(matmul_permute, 3) {
    SHARED_MEMORY(shared);
    permute<16>(jobs, jobs_count, tables, arena, shared);
}

KERNEL_BLOCKS(matmul_permute_narrow, 5) {
    SHARED_MEMORY(shared);
    permute<4>(jobs, jobs_count, tables, arena, shared);
}
