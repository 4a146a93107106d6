// Multiplication by byte permutation: `prmt` looks four bytes up in a table of eight, so a byte is
// cut into 3 + 3 + 2 bits and its product is the sum of three look-ups. A product by a constant is
// linear on the bits of a byte in every field, so this serves all of them.
#pragma once

// The tables of all coefficients, of FieldTables::products, in shared memory.
enum : uint32_t { PERMUTE_TABLES_BYTES = 256 * 32 };

__device__ __forceinline__ void load_permute_tables(uint8_t *shared, const FieldTables &table) {
    const uint4 *from = reinterpret_cast<const uint4 *>(table.products);
    for (uint32_t i = threadIdx.x; i < PERMUTE_TABLES_BYTES / 16; i += blockDim.x) {
        reinterpret_cast<uint4 *>(shared)[i] = from[i];
    }
}

// The bits of four bytes as selectors of `prmt`, a nibble for each byte, in the order of bytes
// 1, 0, 3, 2: that takes one multiplication, which another pipe does, instead of a shift and a
// combination, and is put right once, at the end (`restore_order`).
struct Selectors {
    uint32_t low, middle, high;
};

__device__ __forceinline__ uint32_t nibbles(uint32_t bits) {
    // Byte 1 becomes {byte 0, byte 1}, byte 3 becomes {byte 2, byte 3}.
    return prmt(bits * 0x1001, 0, 0x4431);
}

__device__ __forceinline__ Selectors selectors_of(uint32_t word) {
    return {nibbles(word & 0x07070707), nibbles((word >> 3) & 0x07070707),
            nibbles((word >> 6) & 0x03030303)};
}

__device__ __forceinline__ uint32_t restore_order(uint32_t word) { return prmt(word, 0, 0x2301); }

// One coefficient, ready for `prmt`.
struct Multiplier {
    uint4 low_middle;
    uint32_t high;
};

__device__ __forceinline__ Multiplier multiplier_at(const uint8_t *shared, uint32_t offset) {
    return {*reinterpret_cast<const uint4 *>(shared + offset),
            *reinterpret_cast<const uint32_t *>(shared + offset + 16)};
}

__device__ __forceinline__ Multiplier multiplier(const uint8_t *shared, uint32_t coefficient) {
    return multiplier_at(shared, 32 * coefficient);
}

// The product, in the order of the selectors.
__device__ __forceinline__ uint32_t multiply(const Multiplier &c, const Selectors &x) {
    return prmt(c.low_middle.x, c.low_middle.y, x.low) ^ prmt(c.low_middle.z, c.low_middle.w, x.middle) ^
           prmt(c.high, c.high, x.high);
}
