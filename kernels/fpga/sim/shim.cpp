// The simulated engine behind a C interface: one call is one clock. The memory and the host are in
// Rust (src/sim), where the two structures below are repeated.
#include "Vengine.h"
#include "Vengine___024root.h"
#include "verilated.h"

#include <cstdint>
#include <cstring>

struct Inputs {
  uint64_t read_data[8];
  uint32_t lite_write_address, lite_write_data, lite_read_address;
  uint8_t reset, lite_write, lite_read;
  uint8_t read_address_ready, read_valid, read_response;
  uint8_t write_address_ready, write_ready, acknowledge_valid, acknowledge_response;
};

struct Outputs {
  uint64_t write_data[8];
  uint64_t read_address, write_address, write_strobe;
  uint32_t lite_data;
  uint8_t lite_write_done, lite_read_done, interrupt;
  uint8_t read_address_valid, read_length, read_ready;
  uint8_t write_address_valid, write_length, write_valid, write_last, acknowledge_ready;
};

struct Simulation {
  VerilatedContext context;
  Vengine engine{&context};
};

double sc_time_stamp() { return 0; }

extern "C" {

Simulation *recoded_fpga_new() { return new Simulation; }

void recoded_fpga_free(Simulation *simulation) { delete simulation; }

void recoded_fpga_step(Simulation *simulation, const Inputs *in, Outputs *out) {
  Vengine &engine = simulation->engine;
  engine.rst = in->reset;
  engine.lite_awvalid = in->lite_write;
  engine.lite_awaddr = in->lite_write_address;
  engine.lite_wvalid = in->lite_write;
  engine.lite_wdata = in->lite_write_data;
  engine.lite_bready = 1;
  engine.lite_arvalid = in->lite_read;
  engine.lite_araddr = in->lite_read_address;
  engine.lite_rready = 1;
  engine.axi_arready = in->read_address_ready;
  engine.axi_rvalid = in->read_valid;
  engine.axi_rresp = in->read_response;
  if (in->read_valid) std::memcpy(&engine.axi_rdata[0], in->read_data, 64);
  engine.axi_awready = in->write_address_ready;
  engine.axi_wready = in->write_ready;
  engine.axi_bvalid = in->acknowledge_valid;
  engine.axi_bresp = in->acknowledge_response;
  // What leaves before the clock rises is what both sides see when it does.
  engine.clk = 0;
  engine.eval();
  out->read_address_valid = engine.axi_arvalid;
  out->read_address = engine.axi_araddr;
  out->read_length = engine.axi_arlen;
  out->read_ready = engine.axi_rready;
  out->write_address_valid = engine.axi_awvalid;
  out->write_address = engine.axi_awaddr;
  out->write_length = engine.axi_awlen;
  out->write_valid = engine.axi_wvalid;
  if (engine.axi_wvalid) std::memcpy(out->write_data, &engine.axi_wdata[0], 64);
  out->write_strobe = engine.axi_wstrb;
  out->write_last = engine.axi_wlast;
  out->acknowledge_ready = engine.axi_bready;
  out->lite_write_done = in->lite_write && engine.lite_awready;
  out->lite_read_done = engine.lite_rvalid;
  out->lite_data = engine.lite_rdata;
  out->interrupt = engine.irq;
  engine.clk = 1;
  engine.eval();
}

// Flips a bit of leaf 0 of destination 0, where sources 0 and 2 have theirs set, in both banks.
void recoded_fpga_flip_table_bit(Simulation *simulation) {
  auto &entries = simulation->engine.rootp->engine__DOT__u_tile__DOT__u_products__DOT__entries;
  for (int bank = 0; bank < 2; bank++) entries[16 * bank + 5][0] ^= 1;
}
}
