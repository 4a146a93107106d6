// Inversion with several blocks for a matrix, in as many launches as its panels take, and two more:
//
//   invert_begin   copies the matrix
//   invert_panel   step 1 of invert.cu, for the next panel: one block
//   invert_update  step 2, for strips of 32 columns: a block each
//   invert_end     undoes the exchanges, for 32 rows in each block, and says how it went
//
// A launch is the only barrier that blocks have here. What one tells the next lies at `sources`:
// an InverseState. A panel is the whole work of a multiprocessor for a time that grows with n, the
// strips share what grows with n * n.
#include "../job.h"
#include "common.cuh"
#include "permute.cuh"

enum : uint32_t { MOVES = 2 * PANEL, STRIP_WORDS = 8, ROWS_AT_END = 32, NO_ROW = 0xffff };
static_assert(4 * STRIP_WORDS == PANEL, "the panel is a strip");
static_assert(4 * STRIP_WORDS == invert_update_unit_bytes, "as it is launched");

// Offsets in InverseState.
enum : uint32_t {
    // The first column of the panel, and its columns: 0 when there is nothing to do.
    STATE_BEGIN = 0,
    STATE_WIDTH = 4,
    // Not 0 when column `begin` depends on those before it.
    STATE_FAILED = 8,
    // For each column the row that was exchanged with that of its number.
    STATE_EXCHANGED = 16,
    // What the exchanges of a panel come to: each row that becomes another one, and which.
    STATE_TO = STATE_EXCHANGED + 2 * RECODED_SIZE_MAX,
    STATE_FROM = STATE_TO + 2 * MOVES,
    STATE_END = STATE_FROM + 2 * MOVES,
};
static_assert(STATE_END == INVERSE_STATE_BYTES, "the room that the host makes");

__device__ __forceinline__ uint8_t *number(uint8_t *state, uint32_t list, uint32_t index) {
    return state + list + 2 * index;
}

KERNEL(invert_begin) {
    const Job job = job_of_block(jobs, jobs_count);
    const Matrix matrix = {arena + job.destinations, job.rows, job.destination_stride};
    uint8_t *state = arena + job.sources;
    const uint32_t first = (blockIdx.x - job.first_block) * invert_begin_unit_rows;
    copy_rows(job, arena, matrix, first, min((uint32_t)invert_begin_unit_rows, matrix.size - first));
    if (first == 0 && threadIdx.x == 0) {
        store<uint32_t>(state + STATE_BEGIN, 0);
        store<uint32_t>(state + STATE_WIDTH, 0);
        store<uint32_t>(state + STATE_FAILED, 0);
    }
}

// Writes what the exchanges of a panel come to. `content` has room for a number for each row.
__device__ __forceinline__ void store_moves(const Workspace &space, uint16_t *content, uint8_t *state,
                                            uint32_t begin, uint32_t width) {
    uint32_t own = NO_ROW, other = NO_ROW;
    if (threadIdx.x < width) {
        own = begin + threadIdx.x;
        other = space.exchanged[own];
        // A row outside the panel is named once, however often it was exchanged.
        bool is_named = other < begin + width;
        for (uint32_t before = begin; before < own; before++) {
            is_named = is_named || space.exchanged[before] == other;
        }
        store<uint16_t>(number(state, STATE_EXCHANGED, own), (uint16_t)other);
        if (is_named) other = NO_ROW;
        // Only rows that take part need their numbers.
        content[own] = (uint16_t)own;
        if (other != NO_ROW) content[other] = (uint16_t)other;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (uint32_t first = begin; first < begin + width; first++) {
            const uint32_t second = space.exchanged[first];
            const uint16_t before = content[first];
            content[first] = content[second];
            content[second] = before;
        }
    }
    __syncthreads();
    if (threadIdx.x >= PANEL) return;
    store<uint16_t>(number(state, STATE_TO, threadIdx.x), (uint16_t)own);
    store<uint16_t>(number(state, STATE_FROM, threadIdx.x), own == NO_ROW ? (uint16_t)0 : content[own]);
    store<uint16_t>(number(state, STATE_TO, PANEL + threadIdx.x), (uint16_t)other);
    store<uint16_t>(number(state, STATE_FROM, PANEL + threadIdx.x),
                    other == NO_ROW ? (uint16_t)0 : content[other]);
}

KERNEL(invert_panel) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    const Workspace space = workspace(shared);
    uint16_t *content = reinterpret_cast<uint16_t *>(shared + invert_shared);
    const Matrix matrix = {arena + job.destinations, job.rows, job.destination_stride};
    uint8_t *state = arena + job.sources;
    const uint32_t begin =
        load_mutable<uint32_t>(state + STATE_BEGIN) + load_mutable<uint32_t>(state + STATE_WIDTH);
    const bool failed = load_mutable<uint32_t>(state + STATE_FAILED) != 0;
    const uint32_t width = failed ? 0 : min((uint32_t)PANEL, matrix.size - begin);
    // All have read it.
    __syncthreads();
    if (width == 0) {
        if (threadIdx.x == 0) {
            store<uint32_t>(state + STATE_BEGIN, begin);
            store<uint32_t>(state + STATE_WIDTH, 0);
        }
        return;
    }
    load_permute_tables(space.tables, tables[job.field]);
    load_inverses(space, tables[job.field]);
    load_panel(space, matrix, begin);
    __syncthreads();
    uint32_t column = 0;
    while (column < width && eliminate_column(space, matrix.size, begin, column)) column++;
    const bool whole = column == width;
    if (threadIdx.x == 0) {
        store<uint32_t>(state + STATE_BEGIN, whole ? begin : begin + column);
        store<uint32_t>(state + STATE_WIDTH, whole ? width : 0);
        store<uint32_t>(state + STATE_FAILED, whole ? 0 : 1);
    }
    if (!whole) return;
    store_panel(space, matrix, begin);
    store_moves(space, content, state, begin, width);
}

// Moves rows of a strip to where the exchanges of the panel have them.
__device__ __forceinline__ void move_rows(const Matrix &matrix, uint8_t *state, uint32_t strip) {
    enum : uint32_t { EACH = MOVES * STRIP_WORDS / invert_update_threads };
    const uint32_t index = strip + threadIdx.x % STRIP_WORDS;
    uint32_t words[EACH], rows[EACH];
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        const uint32_t move = threadIdx.x / STRIP_WORDS + i * (MOVES / EACH);
        rows[i] = load<uint16_t>(number(state, STATE_TO, move));
        const uint32_t from = load<uint16_t>(number(state, STATE_FROM, move));
        if (index >= matrix.words() || rows[i] == from) rows[i] = NO_ROW;
        words[i] = rows[i] == NO_ROW ? 0 : load_mutable<uint32_t>(matrix.word(from, index));
    }
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        if (rows[i] != NO_ROW) store<uint32_t>(matrix.word(rows[i], index), words[i]);
    }
    __syncthreads();
}

KERNEL(invert_update) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    const Workspace space = workspace(shared);
    const Matrix matrix = {arena + job.destinations, job.rows, job.destination_stride};
    uint8_t *state = arena + job.sources;
    const uint32_t begin = load<uint32_t>(state + STATE_BEGIN), width = load<uint32_t>(state + STATE_WIDTH);
    const uint32_t strip = (blockIdx.x - job.first_block) * STRIP_WORDS;
    // Nothing to do, or the panel itself.
    if (width == 0 || 4 * strip == begin) return;
    load_permute_tables(space.tables, tables[job.field]);
    load_panel(space, matrix, begin);
    move_rows(matrix, state, strip);
    update_strip<STRIP_WORDS>(space, matrix, begin, width, strip);
}

// The column of the inverse that column `column` is, by all exchanges from the first one on.
__device__ __forceinline__ uint32_t exchanged_column(const uint16_t *exchanged, uint32_t size,
                                                     uint32_t column) {
    for (uint32_t own = 0; own < size; own++) {
        const uint32_t other = exchanged[own];
        column = column == own ? other : column == other ? own : column;
    }
    return column;
}

KERNEL(invert_end) {
    SHARED_MEMORY(shared);
    const Job job = job_of_block(jobs, jobs_count);
    const Matrix matrix = {arena + job.destinations, job.rows, job.destination_stride};
    uint8_t *state = arena + job.sources;
    const uint32_t first = (blockIdx.x - job.first_block) * ROWS_AT_END, words = matrix.words();
    const uint32_t done = load<uint32_t>(state + STATE_BEGIN) + load<uint32_t>(state + STATE_WIDTH);
    if (first == 0 && threadIdx.x == 0) store<uint32_t>(arena + job.parameter, done);
    if (done < matrix.size) return;
    uint32_t *rows = reinterpret_cast<uint32_t *>(shared);
    uint16_t *exchanged = reinterpret_cast<uint16_t *>(shared + ROWS_AT_END * RECODED_SIZE_MAX);
    uint16_t *columns = exchanged + RECODED_SIZE_MAX;
    for (uint32_t i = threadIdx.x; i < matrix.size; i += blockDim.x) {
        exchanged[i] = load<uint16_t>(number(state, STATE_EXCHANGED, i));
    }
    const uint32_t count = min((uint32_t)ROWS_AT_END, matrix.size - first);
    for (uint32_t i = threadIdx.x; i < count * words; i += blockDim.x) {
        rows[i] = load_mutable<uint32_t>(matrix.word(first + i / words, i % words));
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < matrix.size; i += blockDim.x) {
        columns[i] = (uint16_t)exchanged_column(exchanged, matrix.size, i);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count * words; i += blockDim.x) {
        const uint8_t *row = reinterpret_cast<const uint8_t *>(rows + i / words * words);
        uint32_t word = 0;
        for (uint32_t byte = 0; byte < 4; byte++) {
            const uint32_t column = 4 * (i % words) + byte;
            if (column < matrix.size) word |= (uint32_t)row[columns[column]] << (8 * byte);
        }
        store<uint32_t>(matrix.word(first + i / words, i % words), word);
    }
}
