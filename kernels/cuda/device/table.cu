// `table-0` to `table-5`: the steps of Shojania and Li, "Pushing the envelope: extreme network coding
// on the GPU", section 5.1, by logarithms and powers; GF(256) only.
//
//   0  logarithms and powers in shared memory, three look-ups a byte
//   1  sources and coefficients are logarithms already: one look-up a byte
//   2  one test for a coefficient of zero instead of four
//   3  the logarithm of zero is 0, so that a test needs no compare
//   4  powers by the read-only path, the texture cache of today, instead of shared memory
//   5  powers as words, in so many copies that no two threads of a warp share a bank. The paper had
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

// What a step does with one coefficient and four bytes; `power(i)` is what its table has at i.
struct Direct {
    const uint8_t *logarithms;
    const uint8_t *powers;
    __device__ __forceinline__ uint32_t multiply(uint32_t c, uint32_t word) const {
        uint32_t product = 0;
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t x = byte_of(word, i);
            if (c != 0 && x != 0) product |= (uint32_t)powers[logarithms[c] + logarithms[x]] << (8 * i);
        }
        return product;
    }
};

struct Preprocessed {
    const uint8_t *powers;
    __device__ __forceinline__ uint32_t multiply(uint32_t c, uint32_t word) const {
        uint32_t product = 0;
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t x = byte_of(word, i);
            if (c != 0xff && x != 0xff) product |= (uint32_t)powers[c + x] << (8 * i);
        }
        return product;
    }
};

struct OneTest {
    const uint8_t *powers;
    __device__ __forceinline__ uint32_t multiply(uint32_t c, uint32_t word) const {
        uint32_t product = 0;
        if (c == 0xff) return product;
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t x = byte_of(word, i);
            if (x != 0xff) product |= (uint32_t)powers[c + x] << (8 * i);
        }
        return product;
    }
};

// `Power` gives the power at a sum of shifted logarithms.
template <typename Power> struct Remapped {
    Power power;
    __device__ __forceinline__ uint32_t multiply(uint32_t c, uint32_t word) const {
        uint32_t product = 0;
        if (c == 0) return product;
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t x = byte_of(word, i);
            if (x != 0) product |= power(c + x) << (8 * i);
        }
        return product;
    }
};

struct SharedPower {
    const uint8_t *powers;
    __device__ __forceinline__ uint32_t operator()(uint32_t sum) const { return powers[sum - 2]; }
};

struct ReadOnlyPower {
    const uint8_t *powers;
    __device__ __forceinline__ uint32_t operator()(uint32_t sum) const { return __ldg(powers + sum - 2); }
};

struct ReplicatedPower {
    // The copy of this lane: words 32 apart.
    const uint32_t *powers;
    __device__ __forceinline__ uint32_t operator()(uint32_t sum) const { return powers[32 * (sum - 2)]; }
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

__device__ __forceinline__ void copy_to_shared(uint8_t *to, const uint8_t *from, uint32_t bytes) {
    for (uint32_t i = 4 * threadIdx.x; i < bytes; i += 4 * blockDim.x) {
        *reinterpret_cast<uint32_t *>(to + i) = *reinterpret_cast<const uint32_t *>(from + i);
    }
}

KERNEL(matmul_table_0) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    copy_to_shared(shared, tables[job.field].powers, POWERS);
    copy_to_shared(shared + POWERS, tables[job.field].logarithms, 256);
    __syncthreads();
    multiply_unit(job, arena, Direct{shared + POWERS, shared});
}

KERNEL(matmul_table_1) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    copy_to_shared(shared, tables[job.field].powers, POWERS);
    __syncthreads();
    multiply_unit(job, arena, Preprocessed{shared});
}

KERNEL(matmul_table_2) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    copy_to_shared(shared, tables[job.field].powers, POWERS);
    __syncthreads();
    multiply_unit(job, arena, OneTest{shared});
}

KERNEL(matmul_table_3) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    copy_to_shared(shared, tables[job.field].powers, POWERS);
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
    for (uint32_t i = threadIdx.x; i < 32 * POWERS; i += blockDim.x) copies[i] = powers[i / 32];
    __syncthreads();
    const Remapped<ReplicatedPower> step{{copies + threadIdx.x % 32}};
    // Few blocks, much work each: filling the tables costs as much as 16 words.
    const uint32_t begin = (blockIdx.x - job.first_block) * matmul_table_5_units + threadIdx.x;
    for (uint32_t i = 0; i < matmul_table_5_units; i += blockDim.x) {
        const Unit unit = unit_of(job, begin + i, 1, 4);
        if (unit.exists) multiply_word(job, arena, unit, step);
    }
}
