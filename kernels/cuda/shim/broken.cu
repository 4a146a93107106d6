// Kernels with one fault each, which the shim must find: they keep it honest.
#include "../job.h"
#include "../device/common.cuh"

// Every thread writes a byte to shared memory and reads that of a thread in another warp. The
// barrier between the two is missing.
KERNEL(broken_barrier) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    shared[threadIdx.x] = (uint8_t)threadIdx.x;
    const uint32_t other = (threadIdx.x + blockDim.x / 2) % blockDim.x;
    store<uint8_t>(arena + job.destinations + threadIdx.x, shared[other]);
}

// The same among lanes: `__syncwarp` is missing.
KERNEL(broken_warp) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    shared[threadIdx.x] = (uint8_t)threadIdx.x;
    const uint32_t other = threadIdx.x ^ 1;
    store<uint8_t>(arena + job.destinations + threadIdx.x, shared[other]);
}

// Half of the threads wait at another barrier than the other half.
KERNEL(broken_divergence) {
    if (threadIdx.x < blockDim.x / 2) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}

// One thread leaves before the barrier.
KERNEL(broken_exit) {
    if (threadIdx.x == 5) return;
    __syncthreads();
}

// The last thread writes just beyond the arena, which the job's parameter gives the length of.
KERNEL(broken_store) {
    const Job job = job_of_block(jobs, jobs_count);
    store<uint8_t>(arena + job.parameter - blockDim.x + 1 + threadIdx.x, 0);
}

KERNEL(broken_alignment) { store<uint32_t>(arena + 4 * threadIdx.x + 2, 0); }

// All blocks write one byte.
KERNEL(broken_blocks) {
    const Job job = job_of_block(jobs, jobs_count);
    if (threadIdx.x == 0) store<uint8_t>(arena + job.destinations, 1);
}

// Each thread reads what it has written itself, by the path for what is never written.
KERNEL(broken_read_only) {
    const Job job = job_of_block(jobs, jobs_count);
    uint8_t *own = arena + job.destinations + threadIdx.x;
    store<uint8_t>(own, 1);
    store<uint8_t>(own, load<uint8_t>(own));
}

// Reads what neither the host nor a kernel has written.
KERNEL(broken_unwritten) {
    const Job job = job_of_block(jobs, jobs_count);
    uint8_t *own = arena + job.destinations + 4 * threadIdx.x;
    store<uint32_t>(own, load_mutable<uint32_t>(own));
}

KERNEL(broken_shared_alignment) {
    SHARED_MEMORY(shared);
    reinterpret_cast<uint32_t *>(shared + 2)[threadIdx.x / 4] = 0;
}

KERNEL(broken_shared) {
    SHARED_MEMORY(shared);
    shared[threadIdx.x + 1] = 0;
}
