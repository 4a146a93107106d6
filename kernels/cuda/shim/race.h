// Shadow memory: who has last written and read each byte of shared memory and of the arena, and
// whether a barrier lies between that and the access at hand.
//
// Time is counted in epochs: of the block, which a block barrier ends, and of each warp, which
// `__syncwarp` ends; a ballot or a matrix product makes lanes wait but orders no memory. Two
// accesses to a byte of which one is a write race unless
//
//   - one thread makes both,
//   - a block barrier lies between them, and one block makes both, or
//   - `__syncwarp` lies between them, and one warp makes both.
//
// Blocks of a launch are never ordered. A byte that is read through the read-only path (`load`,
// `ld.global.nc`) must not be written in the same launch at all, not even by the same thread.
// Atomic operations are not looked at.
#pragma once
#include <cstddef>
#include <cstdint>

#include "fiber.h"

namespace shim::race {

// Of the launch that this thread of the CPU runs; `on` says whether anything is checked.
void begin_launch(bool on);
void begin_block(const uint8_t *shared, size_t shared_bytes);
void block_barrier();
void warp_barrier(uint32_t warp);
void end_launch();

// Notes an access to the arena by a thread of the block. Null, or what it races with.
const char *arena(uint32_t thread, const uint8_t *address, size_t bytes, Access access);

} // namespace shim::race
