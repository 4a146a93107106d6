#include "fiber.h"
#include "race.h"

#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

namespace shim {
namespace {

constexpr size_t STACK_BYTES = 64 << 10;
constexpr size_t THREADS_MAX = 1024;
// After shared memory, to see whether a kernel wrote beyond it.
constexpr size_t FENCE_BYTES = 64;
constexpr uint8_t POISON = 0xa5, FENCE = 0xc7;

enum class State { Ready, AtWarp, AtBlock, Done };

struct Fiber {
    // Where it continues; before it first runs, `start`.
    jmp_buf resume;
    ucontext_t start;
    bool started = false;
    State state = State::Done;
    // Where it waits, and whether that orders memory.
    int line = 0;
    bool orders = false;
    uint32_t published[6];
};

// One for each thread of the CPU that runs kernels; tests run side by side.
struct Machine {
    std::unique_ptr<Fiber[]> fibers{new Fiber[THREADS_MAX]};
    uint8_t *stacks = nullptr;
    std::vector<uint8_t> shared;
    jmp_buf scheduler;
    bool failed = false;
    const Launch *launch = nullptr;
    uint32_t block = 0;
    uint32_t current = 0;
    char message[256];

    ~Machine() {
        if (stacks != nullptr) munmap(stacks, STACK_BYTES * THREADS_MAX);
    }
};

thread_local Machine machine;

Fiber &current() { return machine.fibers[machine.current]; }

// Says what is wrong; the launch ends in an error once the scheduler sees it.
[[gnu::format(printf, 1, 2)]] void complain(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(machine.message, sizeof machine.message, format, arguments);
    va_end(arguments);
    machine.failed = true;
}

struct Failure {};

// By the scheduler: abandons the launch. Fibers are left where they are and restart in the next
// one.
void check() {
    if (machine.failed) throw Failure{};
}

void leave(State state, int line) {
    Fiber &fiber = current();
    fiber.state = state;
    fiber.line = line;
    if (_setjmp(fiber.resume) == 0) _longjmp(machine.scheduler, 1);
}

// The life of a fiber: thread after thread of blocks.
void live() {
    for (;;) {
        const Launch &launch = *machine.launch;
        launch.kernel(launch.jobs, launch.jobs_count, launch.tables, launch.arena);
        leave(State::Done, 0);
    }
}

[[gnu::noinline]] void enter(uint32_t index) {
    machine.current = index;
    Fiber &fiber = current();
    if (_setjmp(machine.scheduler) == 0) {
        if (fiber.started) _longjmp(fiber.resume, 1);
        fiber.started = true;
        setcontext(&fiber.start);
    }
    check();
}

void prepare(uint32_t index) {
    Fiber &fiber = machine.fibers[index];
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = machine.stacks + STACK_BYTES * index;
    fiber.start.uc_stack.ss_size = STACK_BYTES;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, live, 0);
    fiber.started = false;
}

std::vector<uint32_t> order(uint32_t first, uint32_t count, std::mt19937_64 &random) {
    std::vector<uint32_t> all(count);
    for (uint32_t i = 0; i < count; i++) all[i] = first + i;
    for (uint32_t i = count; i > 1; i--) std::swap(all[i - 1], all[random() % i]);
    return all;
}

// Lets a warp continue when all of its lanes wait in one place.
bool release_warp(uint32_t first) {
    const int line = machine.fibers[first].line;
    for (uint32_t i = first; i < first + 32; i++) {
        const Fiber &fiber = machine.fibers[i];
        if (fiber.state != State::AtWarp || fiber.line != line) return false;
    }
    for (uint32_t i = first; i < first + 32; i++) machine.fibers[i].state = State::Ready;
    if (machine.fibers[first].orders) race::warp_barrier(first / 32);
    return true;
}

// Runs a warp until it waits for the block, or is done, or stuck.
void run_warp(uint32_t first, std::mt19937_64 &random) {
    do {
        // Another order each time: lanes that share a result must not depend on who is last.
        const std::vector<uint32_t> lanes = order(0, 32, random);
        for (uint32_t lane : lanes) {
            if (machine.fibers[first + lane].state == State::Ready) enter(first + lane);
        }
    } while (release_warp(first));
}

// Whether all threads are done; lets them continue when all wait at one barrier.
bool release_block() {
    const uint32_t threads = machine.launch->threads;
    const Fiber &first = machine.fibers[0];
    for (uint32_t i = 0; i < threads; i++) {
        const Fiber &fiber = machine.fibers[i];
        if (fiber.state == first.state && fiber.line == first.line && fiber.state != State::AtWarp) continue;
        complain("block %u is stuck: thread 0 waits at line %d, thread %u at line %d (0: it is done)",
                 machine.block, first.line, i, fiber.line);
        check();
    }
    if (first.state == State::Done) return true;
    for (uint32_t i = 0; i < threads; i++) machine.fibers[i].state = State::Ready;
    race::block_barrier();
    return false;
}

void run_block(uint32_t block, std::mt19937_64 &random) {
    const Launch &launch = *machine.launch;
    machine.block = block;
    machine.shared.assign(launch.shared_bytes + FENCE_BYTES + 16, POISON);
    uint8_t *fence = shared_memory() + launch.shared_bytes;
    memset(fence, FENCE, FENCE_BYTES);
    for (uint32_t i = 0; i < launch.threads; i++) machine.fibers[i].state = State::Ready;
    race::begin_block(shared_memory(), launch.shared_bytes);
    do {
        for (uint32_t warp : order(0, launch.threads / 32, random)) run_warp(32 * warp, random);
    } while (!release_block());
    for (size_t i = 0; i < FENCE_BYTES; i++) {
        if (fence[i] == FENCE) continue;
        complain("block %u wrote beyond its %u bytes of shared memory", block, launch.shared_bytes);
        check();
    }
}

void run_grid(const Launch &launch) {
    std::mt19937_64 random(launch.seed);
    if (machine.stacks == nullptr) {
        void *stacks = mmap(nullptr, STACK_BYTES * THREADS_MAX, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) complain("no memory for the stacks of %zu fibers", THREADS_MAX);
        check();
        machine.stacks = static_cast<uint8_t *>(stacks);
    }
    if (launch.threads == 0 || launch.threads > THREADS_MAX || launch.threads % 32 != 0) {
        complain("%u threads a block, not 32 to %zu by 32", launch.threads, THREADS_MAX);
        check();
    }
    for (uint32_t i = 0; i < launch.threads; i++) prepare(i);
    for (uint32_t block : order(0, launch.grid, random)) run_block(block, random);
}

} // namespace

Index thread_index() { return {machine.current}; }
Index block_index() { return {machine.block}; }
Index block_threads() { return {machine.launch->threads}; }

uint8_t *shared_memory() {
    const uintptr_t address = reinterpret_cast<uintptr_t>(machine.shared.data());
    return reinterpret_cast<uint8_t *>((address + 15) & ~uintptr_t(15));
}

void wait_for_block(int line) { leave(State::AtBlock, line); }
void wait_for_warp(int line) {
    current().orders = true;
    leave(State::AtWarp, line);
}

static void wait_for_lanes(int line) {
    current().orders = false;
    leave(State::AtWarp, line);
}

uint32_t ballot(uint32_t mask, bool predicate, int line) {
    if (mask != 0xffffffff) {
        complain("thread %u of block %u: a ballot of lanes %08x only", machine.current, machine.block, mask);
        leave(State::Done, 0);
    }
    const uint32_t own[6] = {predicate};
    publish(own, line);
    uint32_t result = 0;
    for (unsigned lane = 0; lane < 32; lane++) result |= published(lane)[0] << lane;
    wait_for_lanes(line);
    return result;
}

void publish(const uint32_t (&words)[6], int line) {
    memcpy(current().published, words, sizeof words);
    wait_for_lanes(line);
}

const uint32_t *published(unsigned lane) {
    return machine.fibers[machine.current / 32 * 32 + lane].published;
}

void report(const char *memory, uint64_t offset, const char *problem) {
    complain("thread %u of block %u: %s at %#llx of %s", machine.current, machine.block, problem,
             (unsigned long long)offset, memory);
    leave(State::Done, 0);
}

void check_access(const uint8_t *address, size_t bytes, size_t alignment, Access access) {
    const Launch &launch = *machine.launch;
    const uint64_t offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(launch.arena);
    const bool inside = offset <= launch.arena_bytes && launch.arena_bytes - offset >= bytes;
    if (!inside || reinterpret_cast<uintptr_t>(address) % alignment != 0) {
        complain("thread %u of block %u: %s %s of %zu bytes at %#llx of an arena of %#llx", machine.current,
                 machine.block, inside ? "misaligned" : "stray", access == Access::Write ? "store" : "load",
                 bytes, (unsigned long long)offset, (unsigned long long)launch.arena_bytes);
        leave(State::Done, 0);
    }
    if (const char *problem = race::arena(machine.current, address, bytes, access))
        report("the arena", offset, problem);
    if (launch.written == nullptr) return;
    uint8_t *written = launch.written + offset;
    if (access == Access::Write) {
        memset(written, 1, bytes);
    } else if (memchr(written, 1, bytes) == nullptr) {
        // Of a load of several bytes some may lie beyond the end of a row.
        report("the arena", offset, "a load of bytes that were never written");
    }
}

const char *run(const Launch &launch) {
    machine.launch = &launch;
    machine.failed = false;
    race::begin_launch(launch.finds_races);
    try {
        run_grid(launch);
    } catch (const Failure &) {
    }
    race::end_launch();
    return machine.failed ? machine.message : nullptr;
}

} // namespace shim
