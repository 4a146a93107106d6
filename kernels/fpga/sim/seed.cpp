// The paper's unit behind a C interface: one call is one clock. It is there with coefficients of 2
// bits and eight compute units, and with 3, 4 and 8 bits and one. The memory is in Rust
// (src/sim/seed), where the structures below are repeated.
#include "Vseed2.h"
#include "Vseed3.h"
#include "Vseed4.h"
#include "Vseed8.h"
#include "verilated.h"

#include <cstdint>
#include <cstring>

namespace {

constexpr int ADAPTERS = 8, PORTS = 2, BEAT_BYTES = 32;

struct Order {
  uint64_t sources, destinations;
  uint16_t batches, packet_beats;
  uint8_t units_log2, adapters_log2, ports_log2, policy;
};

struct Inputs {
  uint8_t beats[ADAPTERS][BEAT_BYTES];
  uint8_t reset, request_ready, beat_valid, write_ready, acknowledged;
};

struct Outputs {
  uint64_t request_address[ADAPTERS], write_address[PORTS];
  uint8_t write_data[PORTS][BEAT_BYTES];
  uint8_t request_beats[ADAPTERS];
  uint8_t request_valid, write_valid, write_last, finished, busy, waits_for_output;
};

struct Unit {
  virtual ~Unit() = default;
  virtual void order(const Order &) = 0;
  virtual void step(const Inputs &, Outputs &) = 0;
};

template <class Model> struct Simulated final : Unit {
  VerilatedContext context;
  Model unit{&context};

  void order(const Order &order) override {
    unit.units_log2 = order.units_log2;
    unit.adapters_log2 = order.adapters_log2;
    unit.ports_log2 = order.ports_log2;
    unit.policy = order.policy;
    unit.batches = order.batches;
    unit.packet_beats = order.packet_beats;
    unit.sources = order.sources;
    unit.destinations = order.destinations;
  }

  void step(const Inputs &in, Outputs &out) override {
    unit.rst = in.reset;
    unit.request_ready = in.request_ready;
    unit.beat_valid = in.beat_valid;
    if (in.beat_valid) std::memcpy(&unit.beat_data[0], in.beats, sizeof in.beats);
    unit.write_ready = in.write_ready;
    unit.acknowledged = in.acknowledged;
    // What leaves before the clock rises is what both sides see when it does.
    unit.clk = 0;
    unit.eval();
    out.request_valid = unit.request_valid;
    if (unit.request_valid) {
      std::memcpy(out.request_address, &unit.request_address[0], sizeof out.request_address);
      std::memcpy(out.request_beats, &unit.request_beats, sizeof out.request_beats);
    }
    out.write_valid = unit.write_valid;
    out.write_last = unit.write_last;
    if (unit.write_valid) {
      std::memcpy(out.write_address, &unit.write_address[0], sizeof out.write_address);
      std::memcpy(out.write_data, &unit.write_data[0], sizeof out.write_data);
    }
    out.finished = unit.finished;
    out.busy = unit.busy;
    out.waits_for_output = unit.waits_for_output;
    unit.clk = 1;
    unit.eval();
  }
};

} // namespace

extern "C" {

Unit *recoded_fpga_seed_new(unsigned bits) {
  switch (bits) {
  case 2: return new Simulated<Vseed2>;
  case 3: return new Simulated<Vseed3>;
  case 4: return new Simulated<Vseed4>;
  case 8: return new Simulated<Vseed8>;
  default: return nullptr;
  }
}

void recoded_fpga_seed_free(Unit *unit) { delete unit; }

void recoded_fpga_seed_order(Unit *unit, const Order *order) { unit->order(*order); }

void recoded_fpga_seed_step(Unit *unit, const Inputs *in, Outputs *out) { unit->step(*in, *out); }
}
