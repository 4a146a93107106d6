// What ../device needs of a CUDA compiler, for a CPU: compiled before it (`-include`). A thread of
// the card is a fiber (fiber.h), and whatever makes threads wait for each other is a switch of
// fibers.
//
// Exact: `prmt` with its sign mode, ballots, the fragments of the binary matrix product, the limits
// and the alignment of accesses to the arena, uninitialised shared memory.
#pragma once
#define RECODED_SHIM
#define RECODED_BMMA
#define RECODED_WGMMA

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "fiber.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define threadIdx (shim::thread_index())
#define blockIdx (shim::block_index())
#define blockDim (shim::block_threads())

struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
static inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

using std::min;

#define SHARED_MEMORY(name) uint8_t *name = shim::shared_memory()

#define __syncthreads() shim::wait_for_block(__LINE__)
#define __syncwarp() shim::wait_for_warp(__LINE__)
#define __ballot_sync(mask, predicate) shim::ballot(mask, predicate, __LINE__)

static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }

template <typename T> T __ldg(const T *address) { return *address; }

// Fibers switch nowhere but where threads wait, so this is atomic; it races with nothing.
[[gnu::noinline, gnu::no_sanitize_thread]] static uint32_t atomicMin(uint32_t *address, uint32_t value) {
    const uint32_t before = *address;
    *address = before < value ? before : value;
    return before;
}

// PTX ISA, prmt in its default mode.
static inline uint32_t prmt(uint32_t low, uint32_t high, uint32_t selector) {
    const uint64_t bytes = (uint64_t)high << 32 | low;
    uint32_t result = 0;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned nibble = selector >> (4 * i) & 15;
        uint32_t byte = (uint32_t)(bytes >> (8 * (nibble & 7))) & 0xff;
        if (nibble & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}

static inline uint32_t sum_of_three(uint32_t a, uint32_t b, uint32_t c) { return a ^ b ^ c; }

// Accesses to the arena. A card faults on a misaligned one, and may do anything beyond the end.
template <typename T> T checked_load(const uint8_t *address, shim::Access access) {
    shim::check_access(address, sizeof(T), alignof(T), access);
    T value;
    memcpy(&value, address, sizeof(T));
    return value;
}

template <typename T> T load(const uint8_t *address) {
    return checked_load<T>(address, shim::Access::ReadOnlyPath);
}

template <typename T> T load_mutable(const uint8_t *address) {
    return checked_load<T>(address, shim::Access::Read);
}

template <typename T> void store(uint8_t *address, T value) {
    shim::check_access(address, sizeof(T), alignof(T), shim::Access::Write);
    memcpy(address, &value, sizeof(T));
}

struct Fragment {
    uint32_t x, y, z, w;
};

// PTX ISA, mma.m16n8k256 with .b1 and .and.popc: which bits of A, B and C a thread holds.
static inline void bmma(int (&counts)[4], const Fragment &a, uint2 b) {
    const uint32_t own[6] = {a.x, a.y, a.z, a.w, b.x, b.y};
    shim::publish(own, __LINE__);
    const unsigned lane = shim::thread_index().x % 32, g = lane / 4, q = lane % 4;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = g + 8 * (i / 2), column = 2 * q + i % 2;
        for (unsigned k = 0; k < 4; k++) {
            const uint32_t *row_lane = shim::published(row % 8 * 4 + k);
            const uint32_t *column_lane = shim::published(column * 4 + k);
            counts[i] += __builtin_popcount(row_lane[row / 8] & column_lane[4]);
            counts[i] += __builtin_popcount(row_lane[2 + row / 8] & column_lane[5]);
        }
    }
    shim::wait_for_warp(__LINE__);
}

static inline void bmma_first(int (&counts)[4], const Fragment &a, uint2 b) {
    for (int &count : counts) count = 0;
    bmma(counts, a, b);
}

// PTX ISA, wgmma.m64n128k256 with .b1 and .and.popc, 64 rows from registers, columns from shared
// memory: of 8 columns by 16 bytes each, unit beside unit. Neither the proxy that a card reads
// them by nor their execution in parallel with the threads is modelled.
static inline void show_products() {}
static inline void begin_products() {}
static inline void commit_products() {}
template <int LEFT> static inline void wait_for_products(int (&)[64]) {}

// The number of bits set in each byte.
static inline uint64_t bits_of_bytes(uint64_t x) {
    x -= x >> 1 & 0x5555555555555555;
    x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333);
    return (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
}

static inline void product(int (&counts)[64], const Fragment &a, const uint8_t *columns) {
    const uint32_t own[6] = {a.x, a.y, a.z, a.w};
    shim::publish(own, __LINE__);
    const unsigned lane = shim::thread_index().x % 32, g = lane / 4, q = lane % 4;
    // Of either row of the thread, 256 bits, as they lie in a column.
    uint64_t rows[2][4];
    for (unsigned i = 0; i < 8; i++) {
        const uint32_t *low = shim::published(g * 4 + i % 2 * 2), *high = shim::published(g * 4 + i % 2 * 2 + 1);
        const unsigned half = i / 4, word = i / 2 % 2 * 2 + half;
        rows[half][i % 4] = (uint64_t)high[word] << 32 | low[word];
    }
    for (unsigned i = 0; i < 32; i++) {
        const uint8_t *at = columns + i / 2 * 256 + (2 * q + i % 2) * 16;
        uint64_t bits[4];
        for (unsigned k = 0; k < 2; k++) {
            const uint4 words = *reinterpret_cast<const uint4 *>(at + 128 * k);
            bits[2 * k] = (uint64_t)words.y << 32 | words.x;
            bits[2 * k + 1] = (uint64_t)words.w << 32 | words.z;
        }
        for (unsigned half = 0; half < 2; half++) {
            uint64_t sums = 0; // in bytes
            for (unsigned k = 0; k < 4; k++) sums += bits_of_bytes(rows[half][k] & bits[k]);
            // All of them may be 256, which is no byte.
            sums = (sums & 0x00ff00ff00ff00ff) + (sums >> 8 & 0x00ff00ff00ff00ff);
            counts[i / 2 * 4 + 2 * half + i % 2] += (int)(sums * 0x0001000100010001 >> 48);
        }
    }
    shim::wait_for_warp(__LINE__);
}

static inline void product_first(int (&counts)[64], const Fragment &a, const uint8_t *columns) {
    for (int &count : counts) count = 0;
    product(counts, a, columns);
}

// Copies that a thread starts and later waits for, each as late as it may be.
struct Copies {
    void start(uint8_t *to, const uint8_t *from, bool exists) {
        if (started - done == PENDING_MAX) shim::report("copies", started, "more than there is room for");
        pending[started++ % PENDING_MAX] = {to, exists ? from : nullptr};
    }

    void commit() { groups[committed++ % PENDING_MAX] = started; }

    template <int LEFT> void wait() {
        if (committed <= LEFT) return;
        for (const uint32_t end = groups[(committed - LEFT - 1) % PENDING_MAX]; done < end; done++) {
            const Pending &copy = pending[done % PENDING_MAX];
            uint4 words = {0, 0, 0, 0};
            if (copy.from != nullptr) words = load<uint4>(copy.from);
            *reinterpret_cast<uint4 *>(copy.to) = words;
        }
    }

  private:
    static constexpr uint32_t PENDING_MAX = 64;
    struct Pending {
        uint8_t *to;
        const uint8_t *from;
    };
    Pending pending[PENDING_MAX];
    uint32_t groups[PENDING_MAX];
    uint32_t started = 0, done = 0, committed = 0;
};
