// What every kernel needs: how it is declared, the job of a block, access to the arena, arithmetic
// on words of four bytes. Needs job.h before it, and nothing else: the run-time compiler (NVRTC)
// gets both as one text.
//
// Under the shim (RECODED_SHIM, ../shim/cuda.h) this file compiles for the CPU; the primitives that
// the compiler of a card does not offer on a CPU then come from there.
#pragma once

// Launch geometry by name, for example matmul_loop_threads.
#define RECODED_GEOMETRY(kernel, threads, rows, bytes, units, shared)                              \
    enum : uint32_t {                                                                              \
        kernel##_threads = threads,                                                                \
        kernel##_unit_rows = rows,                                                                 \
        kernel##_unit_bytes = bytes,                                                               \
        kernel##_units = units,                                                                    \
        kernel##_shared = shared,                                                                  \
    };
RECODED_MATMUL_KERNELS(RECODED_GEOMETRY)
RECODED_OTHER_KERNELS(RECODED_GEOMETRY)
RECODED_REED_SOLOMON_KERNEL(RECODED_GEOMETRY)

#define KERNEL_BLOCKS(name, blocks_per_sm)                                                         \
    extern "C" __global__ void __launch_bounds__(name##_threads, blocks_per_sm)                    \
        recoded_##name(const Job *jobs, uint32_t jobs_count, FieldTables *tables, uint8_t *arena)
#define KERNEL(name) KERNEL_BLOCKS(name, 1)

#ifndef RECODED_SHIM

// The shared memory that the launch asked for. No kernel has any other.
#define SHARED_MEMORY(name) extern __shared__ __align__(16) uint8_t name[]

// Byte i of the result is byte (selector nibble i) & 7 of {low, high}, or eight copies of its
// highest bit where the nibble has bit 3. `__byte_perm` drops that bit, hence the assembly.
__device__ __forceinline__ uint32_t prmt(uint32_t low, uint32_t high, uint32_t selector) {
    uint32_t result;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
    return result;
}

// One instruction, which the compiler does not split.
__device__ __forceinline__ uint32_t sum_of_three(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}

// For bytes that are not written while the kernel runs.
template <typename T> __device__ __forceinline__ T load(const uint8_t *address) {
    return __ldg(reinterpret_cast<const T *>(address));
}

// For bytes that this kernel writes as well.
template <typename T> __device__ __forceinline__ T load_mutable(const uint8_t *address) {
    return *reinterpret_cast<const T *>(address);
}

template <typename T> __device__ __forceinline__ void store(uint8_t *address, T value) {
    *reinterpret_cast<T *>(address) = value;
}

#if __CUDA_ARCH__ >= 800 && __CUDA_ARCH__ < 1000
#define RECODED_BMMA

// Copies of 16 bytes to shared memory in parallel with the work of a thread. It sees its own once
// it has waited for them, and those of others behind a barrier after that.
struct Copies {
    // Zeros where there is nothing to copy.
    __device__ __forceinline__ void start(uint8_t *to, const uint8_t *from, bool exists) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(exists ? 16 : 0)
                     : "memory");
    }

    // Ends a group.
    __device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }

    // Until at most the last LEFT groups are in flight.
    template <int LEFT> __device__ __forceinline__ void wait() {
        asm volatile("cp.async.wait_group %0;" : : "n"(LEFT) : "memory");
    }
};

// What a lane has of a matrix of 16 rows by 256 bits.
struct Fragment {
    uint32_t x, y, z, w;
};

// counts[row][column] += number of bits set in both: 16 rows of `a`, 8 columns of `b`.
__device__ __forceinline__ void bmma(int (&counts)[4], const Fragment &a, uint2 b) {
    asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(counts[0]), "+r"(counts[1]), "+r"(counts[2]), "+r"(counts[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}

// The same, instead of adding to what was there: that saves setting it to zero.
__device__ __forceinline__ void bmma_first(int (&counts)[4], const Fragment &a, uint2 b) {
    asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(counts[0]), "=r"(counts[1]), "=r"(counts[2]), "=r"(counts[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y), "r"(0));
}
#endif

#endif

__device__ __forceinline__ uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// The job of this block: the last one with first_block <= blockIdx.x. All threads of a warp must
// come here; they probe 32 jobs at once, so that even 1024 jobs take two loads one after the other.
__device__ __forceinline__ Job job_of_block(const Job *jobs, uint32_t jobs_count) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t first = 0, count = jobs_count;
    while (count > 1) {
        const uint32_t step = ceil_div(count, 32);
        const bool reached = lane * step < count && jobs[first + lane * step].first_block <= blockIdx.x;
        // Bit 0 is set, as is each one up to the last reached.
        const uint32_t last = 31 - __clz((int)__ballot_sync(0xffffffff, reached));
        first += last * step;
        count = min(step, count - last * step);
    }
    return jobs[first];
}

// The unit of a thread, for kernels whose threads do whole units.
struct Unit {
    uint32_t row;
    uint32_t byte;
    bool exists;
};

__device__ __forceinline__ Unit unit_of(const Job &job, uint32_t index, uint32_t unit_rows,
                                        uint32_t unit_bytes) {
    const uint32_t columns = ceil_div(job.symbol_bytes, unit_bytes);
    const uint32_t row = index / columns * unit_rows;
    return {row, index % columns * unit_bytes, row < job.rows};
}

__device__ __forceinline__ const uint8_t *coefficient_row(const Job &job, const uint8_t *arena,
                                                          uint32_t row) {
    return arena + job.coefficients + (uint64_t)row * job.coefficient_stride;
}

__device__ __forceinline__ const uint8_t *source_row(const Job &job, const uint8_t *arena,
                                                     uint32_t row) {
    return arena + job.sources + (uint64_t)row * job.source_stride;
}

__device__ __forceinline__ uint8_t *destination_row(const Job &job, uint8_t *arena, uint32_t row) {
    return arena + job.destinations + (uint64_t)row * job.destination_stride;
}

// Stores a word of a destination, or adds it.
__device__ __forceinline__ void put(const Job &job, uint8_t *address, uint32_t word) {
    if (job.flags & FLAG_ACCUMULATE) word ^= load_mutable<uint32_t>(address);
    store<uint32_t>(address, word);
}

__device__ __forceinline__ void put(const Job &job, uint8_t *address, uint4 words) {
    if (job.flags & FLAG_ACCUMULATE) {
        const uint4 before = load_mutable<uint4>(address);
        words = make_uint4(words.x ^ before.x, words.y ^ before.y, words.z ^ before.z,
                           words.w ^ before.w);
    }
    store<uint4>(address, words);
}

// How a field lies in a word: elements of 1, 2, 4 or 8 bits, each times x at once.
struct Shape {
    // The highest bit of each element.
    uint32_t top;
    // Bits of an element less one.
    uint32_t shift;
    uint32_t polynomial;
    // The bits of a coefficient that count.
    uint32_t coefficient_mask;
};

__device__ __forceinline__ Shape shape_of(uint32_t element_bits, uint32_t polynomial) {
    const uint32_t mask = (1u << element_bits) - 1;
    // 0x01010101 and the like: the lowest bit of each element. No carries: multiples of it do not
    // overlap.
    const uint32_t lowest = 0xffffffffu / mask;
    return {lowest << (element_bits - 1), element_bits - 1, polynomial, mask};
}

__device__ __forceinline__ uint32_t times_x(uint32_t word, const Shape &shape) {
    const uint32_t overflow = (word & shape.top) >> shape.shift;
    return ((word & ~shape.top) << 1) ^ (overflow * shape.polynomial);
}

// Nuclei, figure 4: a coefficient times the elements of a word, one bit of the coefficient a round.
__device__ __forceinline__ uint32_t loop_multiply(uint32_t factor, uint32_t word,
                                                  const Shape &shape) {
    uint32_t result = 0;
    for (factor &= shape.coefficient_mask; factor != 0; factor >>= 1) {
        if (factor & 1) result ^= word;
        word = times_x(word, shape);
    }
    return result;
}
