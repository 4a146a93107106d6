// Batched inversion, one block per matrix: the first step of multi-segment decoding (Shojania and
// Li, "Pushing the envelope", section 5.2; the second one is a product). Gauss-Jordan elimination
// in place, 32 columns (a panel) at a time:
//
//   1. the panel, n x 32, is reduced in shared memory, with row exchanges. What is left there turns
//      the 32 pivot rows into what is to be added to each row: T = [A11^-1 ; A21 A11^-1].
//   2. the other columns follow by one product with T, by byte permutation.
//
// The matrix itself stays in global memory (a megabyte for n = 1024), where each word of it is read
// and written once a panel, so one kernel serves all sizes on all cards.
//
// Where there are fewer large matrices than multiprocessors, several blocks work on each of them:
// see invert_parts.cu, which has the same steps as launches of their own.
#include "../job.h"
#include "common.cuh"
#include "permute.cuh"

enum : uint32_t { PANEL = 32, PANEL_WORDS = PANEL / 4, NONE = 0xffffffff };

// What lies in shared memory.
struct Workspace {
    uint8_t *tables;
    // Rows of 32 bytes.
    uint32_t *panel;
    uint8_t *inverses;
    // Row that was exchanged with row s.
    uint16_t *exchanged;
    uint32_t *pivot;
};

__device__ __forceinline__ Workspace workspace(uint8_t *shared) {
    uint8_t *panel = shared + PERMUTE_TABLES_BYTES, *inverses = panel + PANEL * RECODED_SIZE_MAX;
    return {shared, reinterpret_cast<uint32_t *>(panel), inverses,
            reinterpret_cast<uint16_t *>(inverses + 256),
            reinterpret_cast<uint32_t *>(inverses + 256 + 2 * RECODED_SIZE_MAX)};
}

// c times the four elements of a word.
__device__ __forceinline__ uint32_t times(const uint8_t *tables, uint32_t c, uint32_t word) {
    return restore_order(multiply(multiplier(tables, c), selectors_of(word)));
}

struct Matrix {
    uint8_t *bytes;
    uint32_t size, stride;

    __device__ __forceinline__ uint8_t *word(uint32_t row, uint32_t index) const {
        return bytes + (uint64_t)row * stride + 4 * index;
    }
    __device__ __forceinline__ uint32_t words() const { return ceil_div(size, 4); }
};

// The word with the bytes beyond `columns` cleared, if it is word `index` of a row of that many.
__device__ __forceinline__ uint32_t inside(uint32_t word, uint32_t index, uint32_t columns) {
    const uint32_t left = columns - 4 * index;
    return left >= 4 ? word : word & ((1u << (8 * left)) - 1);
}

__device__ __forceinline__ void load_inverses(const Workspace &space, const FieldTables &table) {
    for (uint32_t i = threadIdx.x; i < 256; i += blockDim.x) space.inverses[i] = table.inverses[i];
}

__device__ __forceinline__ void copy_rows(const Job &job, const uint8_t *arena, const Matrix &matrix,
                                          uint32_t first, uint32_t rows) {
    const uint32_t words = matrix.words();
    for (uint32_t i = threadIdx.x; i < rows * words; i += blockDim.x) {
        const uint32_t row = first + i / words, index = i % words;
        const uint32_t word = load<uint32_t>(coefficient_row(job, arena, row) + 4 * index);
        store<uint32_t>(matrix.word(row, index), inside(word, index, matrix.size));
    }
}

// Columns [begin, begin + width) to the panel or back.
__device__ __forceinline__ void load_panel(const Workspace &space, const Matrix &matrix, uint32_t begin) {
    for (uint32_t i = threadIdx.x; i < matrix.size * PANEL_WORDS; i += blockDim.x) {
        const uint32_t row = i / PANEL_WORDS, index = begin / 4 + i % PANEL_WORDS;
        space.panel[i] = index < matrix.words() ? load_mutable<uint32_t>(matrix.word(row, index)) : 0;
    }
}

__device__ __forceinline__ void store_panel(const Workspace &space, const Matrix &matrix, uint32_t begin) {
    for (uint32_t i = threadIdx.x; i < matrix.size * PANEL_WORDS; i += blockDim.x) {
        const uint32_t row = i / PANEL_WORDS, index = begin / 4 + i % PANEL_WORDS;
        if (index < matrix.words()) store<uint32_t>(matrix.word(row, index), space.panel[i]);
    }
}

__device__ __forceinline__ uint32_t panel_byte(const Workspace &space, uint32_t row, uint32_t column) {
    return reinterpret_cast<const uint8_t *>(space.panel)[PANEL * row + column];
}

// By the first warp: the first row from `from` on that is not zero in `column` of the panel.
__device__ __forceinline__ uint32_t find_pivot(const Workspace &space, uint32_t size, uint32_t from,
                                               uint32_t column) {
    for (uint32_t first = from; first < size; first += 32) {
        const uint32_t row = first + threadIdx.x;
        const bool candidate = row < size && panel_byte(space, row, column) != 0;
        const uint32_t rows = __ballot_sync(0xffffffff, candidate);
        if (rows != 0) return first + __ffs((int)rows) - 1;
    }
    return NONE;
}

// Eliminates column `begin + column` within the panel. A thread has one word of every 32nd row.
// False, for all threads, when there is no pivot.
__device__ __forceinline__ bool eliminate_column(const Workspace &space, uint32_t size, uint32_t begin,
                                                 uint32_t column) {
    const uint32_t own = begin + column, index = threadIdx.x % PANEL_WORDS;
    if (threadIdx.x < 32) {
        const uint32_t found = find_pivot(space, size, own, column);
        if (threadIdx.x == 0) *space.pivot = found;
    }
    __syncthreads();
    const uint32_t pivot = *space.pivot;
    if (pivot == NONE) return false;
    if (threadIdx.x == 0) space.exchanged[own] = (uint16_t)pivot;
    // In place, the column of the pivot becomes that of the inverse: 1 / pivot in its own row.
    const uint32_t in_word = column % 4 * 8;
    const uint32_t clear = index == column / 4 ? ~(0xffu << in_word) : 0xffffffff;
    const uint32_t one = index == column / 4 ? 1u << in_word : 0;
    const uint32_t scale = space.inverses[panel_byte(space, pivot, column)];
    const uint32_t raw = (space.panel[PANEL_WORDS * pivot + index] & clear) | one;
    const uint32_t scaled = times(space.tables, scale, raw);
    const Selectors selectors = selectors_of(scaled);
    const uint32_t displaced = space.panel[PANEL_WORDS * own + index];
    const uint32_t displaced_factor = panel_byte(space, own, column);
    __syncthreads();
    for (uint32_t first = 0; first < size; first += blockDim.x / PANEL_WORDS) {
        const uint32_t row = first + threadIdx.x / PANEL_WORDS;
        const bool moved = row == pivot && row != own;
        uint32_t word = 0, factor = 0;
        if (row < size) {
            word = moved ? displaced : space.panel[PANEL_WORDS * row + index];
            factor = moved ? displaced_factor : panel_byte(space, row, column);
        }
        // Threads of this warp clear the byte that others read as the factor.
        __syncwarp();
        if (row < size) {
            const uint32_t product = restore_order(multiply(multiplier(space.tables, factor), selectors));
            space.panel[PANEL_WORDS * row + index] = row == own ? scaled : (word & clear) ^ product;
        }
    }
    __syncthreads();
    return true;
}

// Exchanges rows outside the panel as they were exchanged in it; a thread has whole columns.
__device__ __forceinline__ void exchange_rows(const Workspace &space, const Matrix &matrix, uint32_t begin,
                                              uint32_t width) {
    for (uint32_t own = begin; own < begin + width; own++) {
        const uint32_t other = space.exchanged[own];
        if (other == own) continue;
        for (uint32_t index = threadIdx.x; index < matrix.words(); index += blockDim.x) {
            const uint32_t a = load_mutable<uint32_t>(matrix.word(own, index));
            store<uint32_t>(matrix.word(own, index), load_mutable<uint32_t>(matrix.word(other, index)));
            store<uint32_t>(matrix.word(other, index), a);
        }
    }
}

// sums[i] = sum over the pivot rows j of panel[rows + i][j] * word `index` of row begin + j.
template <uint32_t ROWS>
__device__ __forceinline__ void apply_panel(uint32_t (&sums)[ROWS], const Workspace &space,
                                            const Matrix &matrix, uint32_t begin, uint32_t width,
                                            uint32_t first_row, uint32_t index) {
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) sums[i] = 0;
    for (uint32_t j = 0; j < width; j++) {
        const Selectors x = selectors_of(load_mutable<uint32_t>(matrix.word(begin + j, index)));
#pragma unroll
        for (uint32_t i = 0; i < ROWS; i++) {
            const uint32_t row = min(first_row + i, matrix.size - 1);
            sums[i] ^= multiply(multiplier(space.tables, panel_byte(space, row, j)), x);
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) sums[i] = restore_order(sums[i]);
}

// Brings WORDS words of all rows up to date, from word `strip` on, but for those of the panel: a
// thread has one word of each of its groups of rows, at equal distances. Pivot rows are replaced
// last, as all others need them.
template <uint32_t WORDS>
__device__ __forceinline__ void update_strip(const Workspace &space, const Matrix &matrix, uint32_t begin,
                                             uint32_t width, uint32_t strip) {
    enum : uint32_t { GROUPS = invert_threads / WORDS, PIVOTS = PANEL / GROUPS, ROWS = 8 };
    const uint32_t group = threadIdx.x / WORDS, index = strip + threadIdx.x % WORDS;
    const bool in_panel = index >= begin / 4 && index < (begin + PANEL) / 4;
    const bool busy = index < matrix.words() && !in_panel;
    uint32_t pivots[PIVOTS];
    if (busy) {
        apply_panel<PIVOTS>(pivots, space, matrix, begin, width, begin + PIVOTS * group, index);
        for (uint32_t first = ROWS * group; first < matrix.size; first += ROWS * GROUPS) {
            uint32_t sums[ROWS];
            apply_panel<ROWS>(sums, space, matrix, begin, width, first, index);
#pragma unroll
            for (uint32_t i = 0; i < ROWS; i++) {
                const uint32_t row = first + i;
                if (row >= matrix.size || (row >= begin && row < begin + width)) continue;
                uint8_t *word = matrix.word(row, index);
                store<uint32_t>(word, load_mutable<uint32_t>(word) ^ sums[i]);
            }
        }
    }
    __syncthreads();
    if (busy) {
#pragma unroll
        for (uint32_t i = 0; i < PIVOTS; i++) {
            const uint32_t row = PIVOTS * group + i;
            if (row < width) store<uint32_t>(matrix.word(begin + row, index), pivots[i]);
        }
    }
}

// Brings the columns outside the panel up to date, a word for each lane of a warp at a time.
__device__ __forceinline__ void update_others(const Workspace &space, const Matrix &matrix, uint32_t begin,
                                              uint32_t width) {
    for (uint32_t strip = 0; strip < matrix.words(); strip += 32) {
        update_strip<32>(space, matrix, begin, width, strip);
    }
}

// Undoes the exchanges of rows, which are exchanges of columns in the inverse; a thread has whole
// rows.
__device__ __forceinline__ void exchange_columns(const Workspace &space, const Matrix &matrix) {
    for (uint32_t own = matrix.size; own-- > 0;) {
        const uint32_t other = space.exchanged[own];
        if (other == own) continue;
        for (uint32_t row = threadIdx.x; row < matrix.size; row += blockDim.x) {
            uint8_t *a = matrix.word(row, 0) + own, *b = matrix.word(row, 0) + other;
            const uint8_t before = load_mutable<uint8_t>(a);
            store<uint8_t>(a, load_mutable<uint8_t>(b));
            store<uint8_t>(b, before);
        }
    }
}

KERNEL(invert) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    const Workspace space = workspace(shared);
    const Matrix matrix = {arena + job.destinations, job.rows, job.destination_stride};
    load_permute_tables(space.tables, tables[job.field]);
    load_inverses(space, tables[job.field]);
    copy_rows(job, arena, matrix, 0, matrix.size);
    __syncthreads();
    uint32_t done = 0;
    while (done < matrix.size) {
        const uint32_t width = min((uint32_t)PANEL, matrix.size - done);
        load_panel(space, matrix, done);
        __syncthreads();
        uint32_t column = 0;
        while (column < width && eliminate_column(space, matrix.size, done, column)) column++;
        if (column < width) {
            done += column;
            break;
        }
        exchange_rows(space, matrix, done, width);
        __syncthreads();
        update_others(space, matrix, done, width);
        store_panel(space, matrix, done);
        __syncthreads();
        done += width;
    }
    if (done == matrix.size) exchange_columns(space, matrix);
    if (threadIdx.x == 0) store<uint32_t>(arena + job.parameter, done);
}
