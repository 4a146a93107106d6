#include "race.h"

#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

namespace shim::race {
namespace {

// Who read a byte since it was last written.
enum Readers : uint32_t { OneThread, OneWarp, OneBlock, Anybody };

// One access, or for reads several: the last one's thread and epochs. Epochs count on from launch
// to launch, so that shadow memory need not be cleared: 0 is before all of them.
struct Stamp {
    uint32_t epoch = 0;
    uint32_t thread : 10, readers : 2, warp_epoch : 20;
    Stamp() : thread(0), readers(OneThread), warp_epoch(0) {}
};

struct Shadow {
    Stamp written, read;
};

constexpr size_t PAGE_BYTES = 1024;
using Page = std::array<Shadow, PAGE_BYTES>;

struct State {
    uint32_t epoch = 1, launch = 1, block = 1;
    std::array<uint32_t, 32> warp_epochs{};
    const uint8_t *shared = nullptr;
    std::vector<Shadow> shared_shadow;
    std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
    // The page used last: most accesses follow each other.
    uintptr_t last_number = 0;
    Page *last_page = nullptr;
};

thread_local State state;

// Apart from the rest, where every hook finds it at once: most launches are not checked.
[[gnu::tls_model("initial-exec")]] thread_local bool is_on;

Shadow &shadow_of(uintptr_t address) {
    const uintptr_t number = address / PAGE_BYTES;
    if (state.last_page == nullptr || number != state.last_number) {
        auto &page = state.pages[number];
        if (page == nullptr) page = std::make_unique<Page>();
        state.last_page = page.get();
        state.last_number = number;
    }
    return (*state.last_page)[address % PAGE_BYTES];
}

uint32_t warp_epoch(uint32_t thread) { return state.warp_epochs[thread / 32] & 0xfffff; }

// Whether nothing orders what `stamp` says before an access of `thread` now.
bool races(const Stamp &stamp, uint32_t thread) {
    if (stamp.epoch < state.launch) return false;
    if (stamp.epoch < state.block || stamp.readers == Anybody) return true;
    if (stamp.epoch != state.epoch) return false;
    if (stamp.readers == OneBlock) return true;
    if (stamp.readers == OneThread && stamp.thread == thread) return false;
    return stamp.thread / 32 != thread / 32 || stamp.warp_epoch == warp_epoch(thread);
}

// Who reads a byte, `thread` included.
Readers readers_with(const Stamp &stamp, uint32_t thread) {
    if (stamp.epoch < state.launch) return OneThread;
    if (stamp.epoch < state.block || stamp.readers == Anybody) return Anybody;
    if (stamp.epoch != state.epoch) return OneThread;
    if (stamp.readers == OneBlock || stamp.thread / 32 != thread / 32) return OneBlock;
    if (stamp.warp_epoch != warp_epoch(thread)) return OneThread;
    return stamp.thread == thread ? static_cast<Readers>(stamp.readers) : OneWarp;
}

Stamp stamp_of(uint32_t thread, Readers readers) {
    Stamp stamp;
    stamp.epoch = state.epoch;
    stamp.thread = thread;
    stamp.readers = readers;
    stamp.warp_epoch = warp_epoch(thread);
    return stamp;
}

const char *note(Shadow &shadow, uint32_t thread, Access access) {
    if (access == Access::Write) {
        if (shadow.read.epoch >= state.launch && shadow.read.readers == Anybody)
            return "a write of what was read by other blocks or by the read-only path";
        if (races(shadow.read, thread)) return "a write of what another thread reads";
        if (races(shadow.written, thread)) return "a write of what another thread writes";
        shadow.written = stamp_of(thread, OneThread);
        shadow.read = Stamp();
        return nullptr;
    }
    const bool is_fresh = shadow.written.epoch >= state.launch;
    if (access == Access::ReadOnlyPath && is_fresh)
        return "a load by the read-only path of what this launch writes";
    if (races(shadow.written, thread)) return "a read of what another thread writes";
    const bool is_fixed = access == Access::ReadOnlyPath;
    shadow.read = stamp_of(thread, is_fixed ? Anybody : readers_with(shadow.read, thread));
    return nullptr;
}

// By the compiler's hooks: an access to anything.
void note_any(const void *at, size_t bytes, Access access) {
    const size_t offset = reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(state.shared);
    if (offset >= state.shared_shadow.size()) return;
    // Only what is aligned is one access on a card.
    const char *problem = offset % bytes != 0 ? "a misaligned access" : nullptr;
    const uint32_t thread = thread_index().x;
    for (size_t i = 0; i < bytes && offset + i < state.shared_shadow.size() && !problem; i++)
        problem = note(state.shared_shadow[offset + i], thread, access);
    if (problem) report("shared memory", offset, problem);
}

} // namespace

void begin_launch(bool on) {
    is_on = on;
    state.launch = ++state.epoch;
}

void begin_block(const uint8_t *shared, size_t shared_bytes) {
    if (!is_on) return;
    state.block = ++state.epoch;
    state.shared = shared;
    state.shared_shadow.assign(shared_bytes, {});
}

void block_barrier() { state.epoch++; }
void warp_barrier(uint32_t warp) { state.warp_epochs[warp]++; }

void end_launch() {
    is_on = false;
    state.shared_shadow.clear();
}

const char *arena(uint32_t thread, const uint8_t *address, size_t bytes, Access access) {
    if (!is_on) return nullptr;
    for (size_t i = 0; i < bytes; i++)
        if (const char *problem = note(shadow_of(reinterpret_cast<uintptr_t>(address) + i), thread, access))
            return problem;
    return nullptr;
}

} // namespace shim::race

// What code compiled with -fsanitize=thread calls at each access to memory. The library of that
// sanitizer, which knows threads of the CPU only, is not linked.
#define HOOK(name, bytes, access)                                                                  \
    void name(void *at) {                                                                          \
        if (shim::race::is_on) shim::race::note_any(at, bytes, shim::Access::access);              \
    }
#define HOOKS(bytes)                                                                               \
    HOOK(__tsan_read##bytes, bytes, Read)                                                          \
    HOOK(__tsan_write##bytes, bytes, Write)                                                        \
    HOOK(__tsan_unaligned_read##bytes, bytes, Read)                                                \
    HOOK(__tsan_unaligned_write##bytes, bytes, Write)

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_read_range(void *, size_t) {}
void __tsan_write_range(void *, size_t) {}
}
