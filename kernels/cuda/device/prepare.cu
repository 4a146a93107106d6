// Constant tables, other forms of matrices (the forms of job.h), and random coefficients.
#include "../job.h"
#include "common.cuh"

// --- Constant tables

// Powers of `generator` until one is `element`; 255 when none is.
__device__ uint32_t logarithm(uint32_t element, uint32_t generator, const Shape &shape) {
    uint32_t power = 1;
    for (uint32_t exponent = 0; exponent < 255; exponent++) {
        if (power == element) return exponent;
        power = loop_multiply(generator, power, shape);
    }
    return 255;
}

__device__ uint32_t power_of(uint32_t generator, uint32_t exponent, const Shape &shape) {
    uint32_t power = 1;
    for (uint32_t i = 0; i < exponent; i++) power = loop_multiply(generator, power, shape);
    return power;
}

// The smallest element of GF(256) whose powers are all the others: 1 comes after 255 of them.
__device__ uint32_t smallest_generator(const Shape &shape) {
    for (uint32_t candidate = 2;; candidate++) {
        uint32_t power = candidate, order = 1;
        for (; power != 1; order++) power = loop_multiply(candidate, power, shape);
        if (order == 255) return candidate;
    }
}

// The element of GF(256) of an index: bits of the index are the coefficients of 1, x, x^2 and x^3
// at x = the smallest root of the subfield's polynomial, as `recoded_gf::FieldOrder::embed` has it.
__device__ uint32_t at_root(uint32_t polynomial, uint32_t x, const Shape &shape) {
    uint32_t sum = 0, power = 1;
    for (; polynomial != 0; polynomial >>= 1) {
        if (polynomial & 1) sum ^= power;
        power = loop_multiply(x, power, shape);
    }
    return sum;
}

__device__ uint32_t embedded(uint32_t index, uint32_t subfield_polynomial, const Shape &shape) {
    uint32_t root = 2;
    while (at_root(subfield_polynomial, root, shape) != 0) root++;
    return at_root(index, root, shape);
}

__device__ uint8_t inverse_of(uint32_t c, const Shape &shape) {
    for (uint32_t x = 1; x <= shape.coefficient_mask; x++) {
        if (loop_multiply(c, x, shape) == 1) return (uint8_t)x;
    }
    return 0;
}

// Block f fills the tables of field f, thread c what belongs to coefficient c. Done once, so
// nothing here is fast.
KERNEL(field_tables) {
    const uint32_t polynomials[FIELDS] = {0x1d, 0x1b, 0x3, 0x3, 0x0};
    const uint32_t bits[FIELDS] = {8, 8, 4, 2, 1};
    const uint32_t field = blockIdx.x, c = threadIdx.x;
    if (field >= FIELDS) return;
    FieldTables &table = tables[field];
    const Shape shape = shape_of(bits[field], polynomials[field]);
    // Four products at once: each byte of the word is another byte to multiply.
    const uint32_t factors[5] = {0x03020100, 0x07060504, 0x18100800, 0x38302820, 0xc0804000};
    for (uint32_t i = 0; i < 8; i++) {
        table.products[c][i] = i < 5 ? loop_multiply(c, factors[i], shape) : 0;
    }
    const uint32_t columns[2] = {loop_multiply(c, 0x08040201, shape),
                                 loop_multiply(c, 0x80402010, shape)};
    for (uint32_t bit = 0; bit < 8; bit++) {
        uint32_t row = 0;
        for (uint32_t i = 0; i < 8; i++) row |= ((columns[i / 4] >> (8 * (i % 4) + bit)) & 1) << i;
        table.bit_rows[c][bit] = (uint8_t)row;
    }
    table.inverses[c] = inverse_of(c, shape);
    const bool bytes = bits[field] == 8;
    const uint32_t generator = bytes ? smallest_generator(shape) : 0;
    table.logarithms[c] = bytes && c != 0 ? (uint8_t)logarithm(c, generator, shape) : 0xff;
    for (uint32_t i = c; i < 512; i += 256) {
        table.powers[i] = bytes ? (uint8_t)power_of(generator, i % 255, shape) : 0;
    }
    if (c < 16) {
        table.embedded_4[c] = (uint8_t)(bytes && c < 4 ? embedded(c, 0x7, shape) : c & 3);
        table.embedded_16[c] = (uint8_t)(bytes ? embedded(c, 0x13, shape) : c);
    }
    if (c == 0) {
        table.element_bits = bits[field];
        table.polynomial = polynomials[field];
        table.reserved[0] = table.reserved[1] = 0;
    }
}

// --- Forms

// Byte `column` of a row, zero beyond its end.
__device__ __forceinline__ uint32_t element(const Job &job, const uint8_t *row, uint32_t column) {
    return column < job.symbol_bytes ? load<uint8_t>(row + column) : 0;
}

// What zero becomes and what the other logarithms are moved by.
__device__ __forceinline__ void prepare_logarithms(const Job &job, const FieldTables &table,
                                                   uint8_t *arena, uint32_t zero, uint32_t offset) {
    const uint32_t index = (blockIdx.x - job.first_block) * prepare_log_ff_units + threadIdx.x;
    const Unit unit = unit_of(job, index, 1, 4);
    if (!unit.exists) return;
    const uint8_t *row = source_row(job, arena, unit.row);
    uint32_t word = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t x = element(job, row, unit.byte + i);
        word |= (x == 0 ? zero : table.logarithms[x] + offset) << (8 * i);
    }
    store<uint32_t>(destination_row(job, arena, unit.row) + unit.byte, word);
}

KERNEL(prepare_log_ff) {
    const Job job = job_of_block(jobs, jobs_count);
    prepare_logarithms(job, tables[job.field], arena, 0xff, 0);
}

KERNEL(prepare_log_00) {
    const Job job = job_of_block(jobs, jobs_count);
    prepare_logarithms(job, tables[job.field], arena, 0, 1);
}

KERNEL(prepare_planes) {
    const Job job = job_of_block(jobs, jobs_count);
    const uint32_t index = (blockIdx.x - job.first_block) * prepare_planes_units + threadIdx.x;
    const Unit unit = unit_of(job, index, 1, 8);
    if (!unit.exists) return;
    const uint8_t *row = source_row(job, arena, unit.row);
    const uint32_t mask = (1u << tables[job.field].element_bits) - 1;
    uint32_t planes[2] = {0, 0};
    for (uint32_t t = 0; t < 8; t++) {
        const uint32_t c = element(job, row, unit.byte + t) & mask;
        for (uint32_t bit = 0; bit < 8; bit++) {
            planes[bit / 4] |= ((c >> bit) & 1) << (8 * (bit % 4) + t);
        }
    }
    store<uint2>(destination_row(job, arena, unit.row) + unit.byte, make_uint2(planes[0], planes[1]));
}

// The fragments of bmma.cu: for each 32 rows, for each 32 columns, for each 8 rows (a warp of the
// product), for each of 4 pairs of tiles, for each lane two words of either. Tile 4 h + t holds
// bits 2 t and 2 t + 1 of rows 4 h to 4 h + 3; lane 4 g + q of it column g, that is bit 2 t + g % 2
// of row 4 h + g / 2, and there coefficients 4 q to 4 q + 3 in its first word, 16 + 4 q and on in
// its second one.
KERNEL(prepare_bits) {
    const Job job = job_of_block(jobs, jobs_count);
    const uint32_t chunks = ceil_div(job.symbol_bytes, 32);
    const uint32_t unit = blockIdx.x - job.first_block;
    const uint32_t group = unit / chunks, chunk = unit % chunks;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    uint8_t *fragments = destination_row(job, arena, group) + 8192 * chunk + 2048 * warp + 16 * lane;
    for (uint32_t tile = 0; tile < 8; tile++) {
        const uint32_t row = 32 * group + 8 * warp + 4 * (tile / 4) + g / 2;
        const uint32_t bit = 2 * (tile % 4) + g % 2;
        uint32_t words[2] = {0, 0};
        for (uint32_t s = 0; s < 8 && row < job.rows; s++) {
            const uint32_t column = 32 * chunk + 16 * (s / 4) + 4 * q + s % 4;
            const uint32_t c = element(job, source_row(job, arena, row), column);
            words[s / 4] |= (uint32_t)tables[job.field].bit_rows[c][bit] << (8 * (s % 4));
        }
        store<uint2>(fragments + 512 * (tile / 2) + 8 * (tile % 2), make_uint2(words[0], words[1]));
    }
}

// The columns of wgmma.cu: for each 16 rows, for each 32 columns, for each 8 destination bits, for
// each 16 sources, 8 bits by 16 bytes. Of the 8 bits of number 4 h + t, column 2 q + e is bit 2 t +
// e of row 4 h + q: so one thread of the product gets whole bytes. A thread here has four
// coefficients of one row.
KERNEL(prepare_tiles) {
    const Job job = job_of_block(jobs, jobs_count);
    const uint32_t chunks = ceil_div(job.symbol_bytes, 32);
    const uint32_t unit = blockIdx.x - job.first_block;
    const uint32_t group = unit / chunks, chunk = unit % chunks;
    const uint32_t row = threadIdx.x / 8, quad = threadIdx.x % 8;
    const uint32_t column = 32 * chunk + 4 * quad;
    uint2 rows[4];
    for (uint32_t i = 0; i < 4; i++) {
        const bool exists = 16 * group + row < job.rows;
        const uint32_t c = exists ? element(job, source_row(job, arena, 16 * group + row), column + i) : 0;
        rows[i] = *reinterpret_cast<const uint2 *>(tables[job.field].bit_rows[c]);
    }
    uint8_t *to = destination_row(job, arena, group) + 4096 * chunk + 1024 * (row / 4) +
                  128 * (quad / 4) + 32 * (row % 4) + 4 * (quad % 4);
    // 4 x 4 bytes are transposed: of each bit, those of four coefficients.
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t w[4];
        for (uint32_t i = 0; i < 4; i++) w[i] = half == 0 ? rows[i].x : rows[i].y;
        const uint32_t low[2] = {prmt(w[0], w[1], 0x5140), prmt(w[2], w[3], 0x5140)};
        const uint32_t high[2] = {prmt(w[0], w[1], 0x7362), prmt(w[2], w[3], 0x7362)};
        uint8_t *bits = to + 512 * half;
        store<uint32_t>(bits, prmt(low[0], low[1], 0x5410));
        store<uint32_t>(bits + 16, prmt(low[0], low[1], 0x7632));
        store<uint32_t>(bits + 256, prmt(high[0], high[1], 0x5410));
        store<uint32_t>(bits + 272, prmt(high[0], high[1], 0x7632));
    }
}

// --- Random coefficients

// TinyMT32 with the parameters of RFC 8682, as kernels/code/src/tinymt32.rs.
struct TinyMt32 {
    uint32_t s0, s1, s2, s3;

    __device__ explicit TinyMt32(uint32_t seed) {
        uint32_t status[4] = {seed, 0x8f7011ee, 0xfc78ff1f, 0x3793fdff};
#pragma unroll
        for (uint32_t round = 1; round < 8; round++) {
            const uint32_t previous = status[(round - 1) % 4];
            status[round % 4] ^= round + 1812433253u * (previous ^ (previous >> 30));
        }
        s0 = status[0], s1 = status[1], s2 = status[2], s3 = status[3];
        for (uint32_t i = 0; i < 8; i++) step();
    }

    __device__ void step() {
        uint32_t x = (s0 & 0x7fffffff) ^ s1 ^ s2, y = s3;
        x ^= x << 1;
        y ^= (y >> 1) ^ x;
        const uint32_t odd = 0u - (y & 1);
        s0 = s1;
        s1 = s2 ^ (odd & 0x8f7011ee);
        s2 = x ^ (y << 10) ^ (odd & 0xfc78ff1f);
        s3 = y;
    }

    __device__ uint32_t next() {
        step();
        const uint32_t sum = s0 + (s2 >> 8);
        return s3 ^ sum ^ ((0u - (sum & 1)) & 0x3793fdff);
    }
};

// Nuclei, section IV-E.3: a generator for each row. The top bits of a word are the index.
KERNEL(random_coefficients) {
    const Job job = job_of_block(jobs, jobs_count);
    const uint32_t row = (blockIdx.x - job.first_block) * random_coefficients_units + threadIdx.x;
    if (row >= job.rows) return;
    const FieldTables &table = tables[job.field];
    const uint32_t index_shift = 32 - (1u << job.order);
    TinyMt32 words((uint32_t)job.parameter + row);
    uint8_t *destination = destination_row(job, arena, row);
    // A vector of zeros is no coded symbol: then the next words are tried.
    for (uint32_t any = 0; any == 0 && job.symbol_bytes != 0;) {
        for (uint32_t column = 0; column < job.symbol_bytes; column += 4) {
            uint32_t word = 0;
            for (uint32_t i = 0; i < 4 && column + i < job.symbol_bytes; i++) {
                uint32_t c = words.next() >> index_shift;
                if (job.order == 1) c = table.embedded_4[c];
                if (job.order == 2) c = table.embedded_16[c];
                word |= c << (8 * i);
            }
            store<uint32_t>(destination + column, word);
            any |= word;
        }
    }
}
