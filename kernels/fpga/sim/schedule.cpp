// How long compute units take for batches that the scheduler hands out, if nothing but the array
// takes time.
#include "Vschedule.h"
#include "verilated.h"

#include <cstdint>
#include <cstring>

extern "C" {

// Writes the unit and the row of each batch, and returns clocks until the last is done: a batch
// takes `clocks[row]`. 0 if a batch is handed out twice or one that was not asked for, or if none
// is for a long time.
uint64_t recoded_fpga_makespan(unsigned units_log2, unsigned policy, uint16_t batches,
                               const uint32_t clocks[8], uint8_t *units, uint8_t *rows) {
  VerilatedContext context;
  Vschedule scheduler{&context};
  scheduler.units_log2 = units_log2;
  scheduler.policy = policy;
  scheduler.batches = batches;
  scheduler.ready = 0;
  struct Seen {
    uint8_t taken;
    uint32_t rows;
    uint16_t numbers[8];
  };
  auto clock = [&scheduler](bool reset) {
    scheduler.rst = reset;
    scheduler.clk = 0;
    scheduler.eval();
    Seen seen{uint8_t(scheduler.ready & scheduler.valid), scheduler.rows, {}};
    std::memcpy(seen.numbers, &scheduler.numbers[0], sizeof seen.numbers);
    scheduler.clk = 1;
    scheduler.eval();
    return seen;
  };
  for (int i = 0; i < 4; i++) clock(true);
  std::memset(units, 0xff, batches);
  uint64_t until[8] = {}, now = 0, end = 0, idle = 0;
  for (unsigned given = 0; given < batches; now++, idle++) {
    scheduler.ready = 0;
    bool works = false;
    for (int unit = 0; unit < 8; unit++) {
      if (until[unit] <= now) scheduler.ready |= 1 << unit;
      else works = true;
    }
    Seen seen = clock(false);
    for (int unit = 0; unit < 8; unit++) {
      if (!(seen.taken >> unit & 1)) continue;
      uint16_t number = seen.numbers[unit];
      if (number >= batches || units[number] != 0xff) return 0;
      units[number] = unit;
      rows[number] = seen.rows >> (3 * unit) & 7;
      until[unit] = now + clocks[rows[number]];
      end = until[unit] > end ? until[unit] : end;
      given++;
    }
    if (seen.taken || works) idle = 0;
    if (idle > 1000000) return 0;
  }
  return end;
}
}
