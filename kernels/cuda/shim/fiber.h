// Threads of a block as fibers, and the scheduler that looks for what a card would do wrong.
//
// A seed gives an order of warps and of the lanes in each. A warp runs ahead of all others to its
// next block barrier, a lane ahead of its warp to the next thing that the warp does together: as
// far apart as a card may let them get. So a missing barrier shows as wrong bytes, whichever way it
// is missed, within a few seeds. A block where no thread can continue, or whose threads wait in
// different places, is an error. Races are found as such, too (race.h), whatever comes of them.
#pragma once
#include <cstddef>
#include <cstdint>

struct Job;
struct FieldTables;

namespace shim {

struct Index {
    uint32_t x;
};

// Within a kernel.
Index thread_index();
Index block_index();
Index block_threads();
uint8_t *shared_memory();
void wait_for_block(int line);
// `__syncwarp`, which also orders what lanes have written before what others read.
void wait_for_warp(int line);
uint32_t ballot(uint32_t mask, bool predicate, int line);
// Six words to all lanes of the warp, once all have come here.
void publish(const uint32_t (&words)[6], int line);
const uint32_t *published(unsigned lane);
enum class Access { Read, ReadOnlyPath, Write };
void check_access(const uint8_t *address, size_t bytes, size_t alignment, Access access);
// Ends the launch: what a thread did at an offset of the memory of that name.
void report(const char *memory, uint64_t offset, const char *problem);

using Kernel = void (*)(const Job *jobs, uint32_t jobs_count, FieldTables *tables, uint8_t *arena);

struct Launch {
    Kernel kernel;
    uint32_t grid;
    uint32_t threads;
    uint32_t shared_bytes;
    const Job *jobs;
    uint32_t jobs_count;
    FieldTables *tables;
    uint8_t *arena;
    uint64_t arena_bytes;
    uint64_t seed;
    // Which bytes of the arena were written, a byte each; null where that is not looked at. Kernels
    // must not load what is not written, and mark what they store.
    uint8_t *written;
    // Whether races are looked for (race.h).
    bool finds_races;
};

// Runs all blocks. Null, or what went wrong: text of this thread, until its next launch.
const char *run(const Launch &launch);

} // namespace shim
