// Decoding row by row on the card, as the papers have it; for comparison, as a buffered generation
// is better inverted and multiplied (invert.cu). Rows are kept in reduced row echelon form, row c
// with its pivot in column c.
#include "../job.h"
#include "common.cuh"

// Adds to `word`, which is word `index` of a row, the rows that `factors` (a byte per row, zero
// where there is none to add) names; rows lie `stride` bytes apart.
__device__ __forceinline__ uint32_t reduce_word(uint32_t word, const uint8_t *factors, uint32_t rows,
                                                const uint8_t *first, uint32_t stride,
                                                const Shape &shape) {
    for (uint32_t c = 0; c < rows; c++) {
        if (factors[c] == 0) continue;
        word ^= loop_multiply(factors[c], load_mutable<uint32_t>(first + (uint64_t)c * stride), shape);
    }
    return word;
}

// Subtracts `word` from the same word of the rows that `factors` names.
__device__ __forceinline__ void eliminate_word(uint32_t word, const uint8_t *factors, uint32_t rows,
                                               uint8_t *first, uint32_t stride, const Shape &shape) {
    for (uint32_t c = 0; c < rows; c++) {
        if (factors[c] == 0) continue;
        uint8_t *other = first + (uint64_t)c * stride;
        store<uint32_t>(other, load_mutable<uint32_t>(other) ^ loop_multiply(factors[c], word, shape));
    }
}

// Shojania and Li, section 4.2.2: a block has 1024 bytes of the payloads and a copy of all
// coefficients, a thread one word of each, so that blocks need not wait for each other.
KERNEL(decode_progressive) {
    SHARED_MEMORY(shared);
    // The row that is being inserted, what it is reduced by, the factors of the rows above.
    uint8_t *vector = shared, *factors = shared + RECODED_SIZE_MAX;
    uint32_t *pivot = reinterpret_cast<uint32_t *>(shared + 2 * RECODED_SIZE_MAX);
    const Job job = job_of_block(jobs, jobs_count);
    const FieldTables &table = tables[job.field];
    const Shape shape = shape_of(table.element_bits, table.polynomial);
    const uint32_t block = blockIdx.x - job.first_block, n = job.rows, stride = ROUND_UP_16(n);
    uint8_t *state = arena + job.parameter + (uint64_t)block * PROGRESSIVE_STATE_BYTES(n);
    uint8_t *present = state + sizeof(Returned);
    uint8_t *coefficients = present + stride + 4 * threadIdx.x;
    const bool has_coefficients = 4 * threadIdx.x < n;
    const uint32_t byte = block * decode_progressive_unit_bytes + 4 * threadIdx.x;
    const bool has_payload = byte < job.symbol_bytes;
    uint8_t *payloads = destination_row(job, arena, 0) + byte;

    for (uint32_t received = 0; received < job.depth; received++) {
        const uint8_t *arrived = coefficient_row(job, arena, received);
        if (threadIdx.x == 0) *pivot = RECODED_SIZE_MAX;
        for (uint32_t c = threadIdx.x; c < stride; c += blockDim.x) {
            const uint32_t element = c < n ? load<uint8_t>(arrived + c) & shape.coefficient_mask : 0;
            vector[c] = (uint8_t)element;
            factors[c] = c < n && load_mutable<uint8_t>(present + c) != 0 ? (uint8_t)element : 0;
        }
        __syncthreads();
        uint32_t own = 0, payload = 0;
        if (has_coefficients) {
            own = *reinterpret_cast<const uint32_t *>(vector + 4 * threadIdx.x);
            own = reduce_word(own, factors, n, coefficients, stride, shape);
        }
        if (has_payload) {
            payload = load<uint32_t>(source_row(job, arena, received) + byte);
            payload = reduce_word(payload, factors, n, payloads, job.destination_stride, shape);
        }
        // Section 5.4.2: each thread reports its first coefficient that is not zero.
        if (own != 0) atomicMin(pivot, 4 * threadIdx.x + (__ffs((int)own) - 1) / 8);
        if (has_coefficients) *reinterpret_cast<uint32_t *>(vector + 4 * threadIdx.x) = own;
        __syncthreads();
        const uint32_t column = *pivot;
        if (column < RECODED_SIZE_MAX) {
            const uint32_t scale = table.inverses[vector[column]];
            own = loop_multiply(scale, own, shape);
            payload = loop_multiply(scale, payload, shape);
            for (uint32_t c = threadIdx.x; c < n; c += blockDim.x) {
                const bool there = load_mutable<uint8_t>(present + c) != 0;
                uint8_t *row = present + stride + (uint64_t)c * stride;
                factors[c] = there ? load_mutable<uint8_t>(row + column) : 0;
            }
            __syncthreads();
            if (has_coefficients) {
                eliminate_word(own, factors, n, coefficients, stride, shape);
                store<uint32_t>(coefficients + (uint64_t)column * stride, own);
            }
            if (has_payload) {
                eliminate_word(payload, factors, n, payloads, job.destination_stride, shape);
                store<uint32_t>(payloads + (uint64_t)column * job.destination_stride, payload);
            }
            if (threadIdx.x == 0) {
                store<uint8_t>(present + column, 1);
                store<uint32_t>(state, load_mutable<uint32_t>(state) + 1);
            }
        }
        __syncthreads();
    }
}

// Nuclei, section IV-F.1, second kernel: the CPU has found the pivot. All threads need the factors
// in the pivot's column while one of them has the word that holds it, so that byte stays as it is.
KERNEL(eliminate_row) {
    SHARED_MEMORY(shared);
    uint8_t *factors = shared;
    const Job job = job_of_block(jobs, jobs_count);
    const FieldTables &table = tables[job.field];
    const Shape shape = shape_of(table.element_bits, table.polynomial);
    const uint32_t column = (uint32_t)job.parameter;
    for (uint32_t c = threadIdx.x; c < job.rows; c += blockDim.x) {
        const bool held = load<uint8_t>(arena + job.coefficients + c) != 0;
        factors[c] = held ? load_mutable<uint8_t>(destination_row(job, arena, c) + column) : 0;
    }
    __syncthreads();
    const uint32_t byte = (blockIdx.x - job.first_block) * eliminate_row_unit_bytes + 4 * threadIdx.x;
    if (byte >= job.symbol_bytes) return;
    const uint8_t *reduced = source_row(job, arena, 0);
    const uint32_t scale = table.inverses[load<uint8_t>(reduced + column) & shape.coefficient_mask];
    const uint32_t own = loop_multiply(scale, load<uint32_t>(reduced + byte), shape);
    store<uint32_t>(destination_row(job, arena, column) + byte, own);
    const uint32_t others = byte == (column & ~3u) ? own & ~(0xffu << (8 * (column % 4))) : own;
    eliminate_word(others, factors, job.rows, destination_row(job, arena, 0) + byte,
                   job.destination_stride, shape);
}
