// How fast a card issues the instructions of the techniques, since not all of it is published: what
// a technique should reach follows. A round is PROBE_OPERATIONS of one kind for each thread, or for
// each warp or four where these do it together, in 8 chains that do not wait for each other. What
// comes of it is stored, so that no compiler leaves it out.
#include "../job.h"
#include "common.cuh"
#include "wgmma.cuh"

enum : uint32_t { CHAINS = 8 };

// Values that differ by thread and chain.
__device__ __forceinline__ void start(uint32_t (&chains)[CHAINS]) {
    for (uint32_t i = 0; i < CHAINS; i++) chains[i] = (threadIdx.x + 1) * 0x9e3779b9 + i * 0x7f4a7c15;
}

__device__ __forceinline__ void finish(const Job &job, uint8_t *arena, const uint32_t (&chains)[CHAINS]) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < CHAINS; i++) sum = 31 * sum + chains[i];
    const uint32_t row = blockIdx.x - job.first_block;
    store<uint32_t>(destination_row(job, arena, row) + 4 * threadIdx.x, sum);
}

KERNEL(probe_permute) {
    const Job job = job_of_block(jobs, jobs_count);
    uint32_t chains[CHAINS];
    start(chains);
    for (uint32_t round = 0; round < job.depth; round++) {
#pragma unroll
        for (uint32_t i = 0; i < PROBE_OPERATIONS; i++) {
            chains[i % CHAINS] = prmt(chains[i % CHAINS], job.depth, chains[i % CHAINS]);
        }
    }
    finish(job, arena, chains);
}

KERNEL(probe_logic) {
    const Job job = job_of_block(jobs, jobs_count);
    uint32_t chains[CHAINS];
    start(chains);
    for (uint32_t round = 0; round < job.depth; round++) {
#pragma unroll
        for (uint32_t i = 0; i < PROBE_OPERATIONS; i++) {
            chains[i % CHAINS] = sum_of_three(chains[i % CHAINS], chains[(i + 1) % CHAINS], round);
        }
    }
    finish(job, arena, chains);
}

// Eight bytes a thread, 256 in a row a warp, at a place that depends on what was loaded before.
KERNEL(probe_shared) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    uint32_t *words = reinterpret_cast<uint32_t *>(shared);
    for (uint32_t i = threadIdx.x; i < probe_shared_shared / 4; i += blockDim.x) words[i] = i * 0x9e3779b9;
    __syncthreads();
    uint32_t chains[CHAINS];
    start(chains);
    for (uint32_t round = 0; round < job.depth; round++) {
#pragma unroll
        for (uint32_t i = 0; i < PROBE_OPERATIONS; i++) {
            // One of 16 rows of 256 bytes, by this thread's warp alone.
            const uint32_t place = (chains[i % CHAINS] & 0xf00) | threadIdx.x % 32 * 8;
            const uint2 pair = *reinterpret_cast<const uint2 *>(shared + place);
            chains[i % CHAINS] ^= pair.x ^ pair.y;
        }
    }
    finish(job, arena, chains);
}

#ifdef RECODED_BMMA

KERNEL(probe_bmma) {
    const Job job = job_of_block(jobs, jobs_count);
    uint32_t chains[CHAINS];
    start(chains);
    int counts[CHAINS][4] = {};
    const Fragment a = {chains[0], chains[1], chains[2], chains[3]};
    const uint2 b = make_uint2(chains[4], chains[5]);
    for (uint32_t round = 0; round < job.depth; round++) {
#pragma unroll
        for (uint32_t i = 0; i < PROBE_OPERATIONS; i++) bmma(counts[i % CHAINS], a, b);
    }
    for (uint32_t i = 0; i < CHAINS; i++) {
        chains[i] = (uint32_t)(counts[i][0] ^ counts[i][1] ^ counts[i][2] ^ counts[i][3]);
    }
    finish(job, arena, chains);
}

#else

KERNEL(probe_bmma) {}

#endif

#ifdef RECODED_WGMMA

KERNEL(probe_wgmma) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    uint32_t *words = reinterpret_cast<uint32_t *>(shared);
    for (uint32_t i = threadIdx.x; i < probe_wgmma_shared / 4; i += blockDim.x) words[i] = i * 0x9e3779b9;
    show_products();
    __syncthreads();
    uint32_t chains[CHAINS];
    start(chains);
    const Fragment a = {chains[0], chains[1], chains[2], chains[3]};
    int counts[64] = {};
    for (uint32_t round = 0; round < job.depth; round++) {
        begin_products();
#pragma unroll
        for (uint32_t i = 0; i < PROBE_OPERATIONS; i++) product(counts, a, shared);
        commit_products();
        wait_for_products<0>(counts);
    }
    for (uint32_t i = 0; i < 64; i++) chains[i % CHAINS] += (uint32_t)counts[i];
    finish(job, arena, chains);
}

#else

KERNEL(probe_wgmma) {}

#endif
