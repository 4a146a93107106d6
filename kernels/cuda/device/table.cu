// `table-0` to `table-5`: the steps of Shojania and Li, "Pushing the envelope: extreme network
// coding on the GPU", section 5.1, by logarithms and powers; GF(256) only.
//
//   0  logarithms and powers in shared memory, three look-ups a byte
//   1  sources and coefficients are logarithms already: one look-up a byte
//   2  one test for a coefficient of zero instead of four
//   3  the logarithm of zero is 0, so that a test needs no compare
//   4  powers by the read-only path, the texture cache of today, instead of shared memory
//   5  powers as words, in enough copies that no two threads of a warp share a bank. The paper had
//      room for 8 copies and about 3 threads a bank; here are 32, so that it never waits.
//
// Steps 3 to 5 shift logarithms by 1, so that their sums are 2 too large.
#include "../job.h"
#include "common.cuh"

enum : uint32_t { POWERS = 512 };

// Byte `index` of a word.
__device__ __forceinline__ uint32_t byte_of(uint32_t word, uint32_t index) {
    return (word >> (8 * index)) & 0xff;
}

// The steps: a coefficient times four bytes. All look up first and test afterwards, as all sums of
// two logarithms, those of zero too, are within the tables: so nothing branches.
struct Direct {
    const uint8_t *logarithms;
    const uint8_t *powers;
    __device__ __forceinline__ uint32_t multiply(uint32_t c, uint32_t word) const {
        uint32_t product = 0;
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t x = byte_of(word, i), power = powers[logarithms[c] + logarithms[x]];
            product |= (c != 0 && x != 0 ? power : 0) << (8 * i);
        }
        return product;
    }
};

struct Preprocessed {
    const uint8_t *powers;
    __device__ __forceinline__ uint32_t multiply(uint32_t c, uint32_t word) const {
        uint32_t product = 0;
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t x = byte_of(word, i), power = powers[c + x];
            product |= (c != 0xff && x != 0xff ? power : 0) << (8 * i);
        }
        return product;
    }
};

struct OneTest {
    const uint8_t *powers;
    __device__ __forceinline__ uint32_t multiply(uint32_t c, uint32_t word) const {
        uint32_t product = 0;
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t x = byte_of(word, i), power = powers[c + x];
            product |= (x != 0xff ? power : 0) << (8 * i);
        }
        return c != 0xff ? product : 0;
    }
};

// `Power` gives the power at a sum of shifted logarithms.
template <typename Power> struct Remapped {
    Power power_of;
    __device__ __forceinline__ uint32_t multiply(uint32_t c, uint32_t word) const {
        uint32_t product = 0;
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t x = byte_of(word, i), power = power_of(c + x);
            product |= (x != 0 ? power : 0) << (8 * i);
        }
        return c != 0 ? product : 0;
    }
};

// Shared memory has the powers two places further on, where these sums find them.
enum : uint32_t { SHIFT = 2 };

struct SharedPower {
    const uint8_t *shifted;
    __device__ __forceinline__ uint32_t operator()(uint32_t sum) const { return shifted[sum]; }
};

struct ReadOnlyPower {
    const uint8_t *powers;
    __device__ __forceinline__ uint32_t operator()(uint32_t sum) const {
        return __ldg(powers + (sum < SHIFT ? 0 : sum - SHIFT));
    }
};

struct ReplicatedPower {
    // The copy of this lane: words 32 apart.
    const uint32_t *shifted;
    __device__ __forceinline__ uint32_t operator()(uint32_t sum) const { return shifted[32 * sum]; }
};

template <typename Step>
__device__ __forceinline__ void multiply_word(const Job &job, uint8_t *arena, const Unit &unit,
                                              const Step &step) {
    const uint8_t *coefficients = coefficient_row(job, arena, unit.row);
    const uint8_t *source = source_row(job, arena, 0) + unit.byte;
    uint32_t sum = 0;
    for (uint32_t first = 0; first < job.depth; first += 4) {
        uint32_t four = load<uint32_t>(coefficients + first);
        const uint32_t last = min(first + 4, job.depth);
        for (uint32_t i = first; i < last; i++, four >>= 8, source += job.source_stride) {
            sum ^= step.multiply(four & 0xff, load<uint32_t>(source));
        }
    }
    put(job, destination_row(job, arena, unit.row) + unit.byte, sum);
}

// Steps 0 to 4 have a unit for each thread.
template <typename Step>
__device__ __forceinline__ void multiply_unit(const Job &job, uint8_t *arena, const Step &step) {
    const uint32_t index = (blockIdx.x - job.first_block) * blockDim.x + threadIdx.x;
    const Unit unit = unit_of(job, index, 1, 4);
    if (unit.exists) multiply_word(job, arena, unit, step);
}

// Bytes [0, count) of a table to bytes [shift, ...) of shared memory, up to `end`; zeros before.
__device__ __forceinline__ void copy_to_shared(uint8_t *to, uint32_t end, const uint8_t *from,
                                               uint32_t shift) {
    for (uint32_t i = threadIdx.x; i < end; i += blockDim.x) to[i] = i < shift ? 0 : from[i - shift];
}

KERNEL(matmul_table_0) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    copy_to_shared(shared, POWERS, tables[job.field].powers, 0);
    copy_to_shared(shared + POWERS, 256, tables[job.field].logarithms, 0);
    __syncthreads();
    multiply_unit(job, arena, Direct{shared + POWERS, shared});
}

KERNEL(matmul_table_1) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    copy_to_shared(shared, POWERS, tables[job.field].powers, 0);
    __syncthreads();
    multiply_unit(job, arena, Preprocessed{shared});
}

KERNEL(matmul_table_2) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    copy_to_shared(shared, POWERS, tables[job.field].powers, 0);
    __syncthreads();
    multiply_unit(job, arena, OneTest{shared});
}

KERNEL(matmul_table_3) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    copy_to_shared(shared, POWERS, tables[job.field].powers, SHIFT);
    __syncthreads();
    multiply_unit(job, arena, Remapped<SharedPower>{{shared}});
}

KERNEL(matmul_table_4) {
    const Job job = job_of_block(jobs, jobs_count);
    multiply_unit(job, arena, Remapped<ReadOnlyPower>{{tables[job.field].powers}});
}

KERNEL(matmul_table_5) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    uint32_t *copies = reinterpret_cast<uint32_t *>(shared);
    const uint8_t *powers = tables[job.field].powers;
    for (uint32_t i = threadIdx.x; i < 32 * POWERS; i += blockDim.x) {
        copies[i] = i / 32 < SHIFT ? 0 : powers[i / 32 - SHIFT];
    }
    __syncthreads();
    const Remapped<ReplicatedPower> step{{copies + threadIdx.x % 32}};
    // Few blocks, much work each: filling the tables costs as much as 16 words.
    const uint32_t begin = (blockIdx.x - job.first_block) * matmul_table_5_units + threadIdx.x;
    for (uint32_t i = 0; i < matmul_table_5_units; i += blockDim.x) {
        const Unit unit = unit_of(job, begin + i, 1, 4);
        if (unit.exists) multiply_word(job, arena, unit, step);
    }
}
