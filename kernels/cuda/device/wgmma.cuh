// What the technique `wgmma` needs of Hopper: binary matrix products of a warpgroup, 64 rows by 128
// columns by 256 bits. They run next to the threads that start them. The rows come from registers,
// the columns from shared memory, where the tensor cores read them on a path of their own.
//
//   show_products      behind the writes to shared memory, before the barrier that follows them
//   begin_products     before the first of a group, with all registers of it at rest
//   product_first      counts = number of bits set in both
//   product            counts += the same
//   commit_products    ends a group
//   wait_for_products  until at most LEFT groups remain: the counts of those that ended are the
//                      thread's own again, as are their fragments
//
// Under the shim (RECODED_SHIM) ../shim/cuda.h has them, and does each at once.
#pragma once

#if !defined(RECODED_SHIM) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RECODED_WGMMA

__device__ __forceinline__ void show_products() {
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

__device__ __forceinline__ void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

__device__ __forceinline__ void commit_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

template <int LEFT> __device__ __forceinline__ void wait_for_products(int (&counts)[64]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(LEFT) : "memory");
    // So that the compiler does not read them any sooner.
#pragma unroll
    for (int &count : counts) asm volatile("" : "+r"(count) : : "memory");
}

// Columns in shared memory, for the tensor cores: units of 8 columns by 16 bytes, the two units of
// the same columns next to each other. PTX ISA, matrix descriptor, no swizzle: address, then bytes
// from a unit to the next one along the bits and along the columns, all in 16 bytes.
__device__ __forceinline__ uint64_t columns_at(const uint8_t *shared) {
    const uint64_t address = (uint32_t)__cvta_generic_to_shared(shared);
    return address >> 4 | (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
}

#define EIGHT_COUNTS(sign, c, i)                                                                   \
    sign(c[i]), sign(c[i + 1]), sign(c[i + 2]), sign(c[i + 3]), sign(c[i + 4]), sign(c[i + 5]),    \
        sign(c[i + 6]), sign(c[i + 7])
#define ALL_COUNTS(sign, c)                                                                        \
    EIGHT_COUNTS(sign, c, 0), EIGHT_COUNTS(sign, c, 8), EIGHT_COUNTS(sign, c, 16),                 \
        EIGHT_COUNTS(sign, c, 24), EIGHT_COUNTS(sign, c, 32), EIGHT_COUNTS(sign, c, 40),           \
        EIGHT_COUNTS(sign, c, 48), EIGHT_COUNTS(sign, c, 56)
#define PRODUCT(sign, counts, a, columns, is_added)                                                \
    asm volatile(                                                                                  \
        "{.reg .pred added; setp.ne.b32 added, %69, 0;"                                            \
        "wgmma.mma_async.sync.aligned.m64n128k256.s32.b1.b1.and.popc "                             \
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "        \
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "         \
        "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "         \
        "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "                  \
        "{%64, %65, %66, %67}, %68, added;}"                                                       \
        : ALL_COUNTS(sign, counts)                                                                 \
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(columns), "n"(is_added))

// What a lane has of 16 rows is a fragment as for `bmma`; counts[4 j + 2 h + e] is row g + 8 h of
// the warp's and column 8 j + 2 q + e, for lane 4 g + q.
__device__ __forceinline__ void product_first(int (&counts)[64], const Fragment &a, const uint8_t *b) {
    PRODUCT("+r", counts, a, columns_at(b), 0);
}

__device__ __forceinline__ void product(int (&counts)[64], const Fragment &a, const uint8_t *b) {
    PRODUCT("+r", counts, a, columns_at(b), 1);
}

#undef PRODUCT
#undef ALL_COUNTS
#undef EIGHT_COUNTS

#endif
