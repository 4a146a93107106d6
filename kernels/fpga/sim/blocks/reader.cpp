// The reader beside queues: who goes first, bursts that end at boundaries, order, back-pressure.
#include "Vreader_bench.h"
#include "search.h"

struct Bench {
  enum : unsigned { CROSSES = 16, ACCEPT = 32, ANSWER = 64, HALT = 128, INPUTS = 256 };
  static constexpr size_t REQUESTS = 4, BURSTS = 8;
  struct Request {
    unsigned kind, number, beats;
  };
  struct Beat {
    unsigned kind, number, index, data;
    bool last, failed;
  };
  VerilatedContext context;
  Vreader_bench block{&context};
  std::deque<Request> requests;
  // Bursts that memory has not taken, and beats that it has to return.
  std::deque<uint64_t> bursts, memory;
  std::deque<Beat> leaving;
  uint64_t rest;
  unsigned index, number;

  void clock() {
    block.clk = 1;
    block.eval();
    block.clk = 0;
    block.eval();
  }
  void reset() {
    block.rst = 1;
    block.halt = block.request_valid = block.axi_arready = block.axi_rvalid = 0;
    clock();
    block.rst = 0;
    block.eval();
    requests.clear(), bursts.clear(), memory.clear(), leaving.clear();
    rest = index = number = 0;
  }
  bool is_legal(unsigned input) { return !(input & ANSWER) || !memory.empty(); }
  static uint32_t data(uint64_t address) { return uint32_t(address >> 6); }
  static bool fails(uint64_t address) { return address >> 12 & 1; }
  void step(unsigned input) {
    unsigned valid = input & 15;
    bool crosses = input & CROSSES, accept = input & ACCEPT, answer = input & ANSWER;
    bool halt = input & HALT;
    block.halt = halt;
    block.request_valid = valid;
    block.crosses = crosses;
    block.number = number & 0xFFFF;
    block.axi_arready = accept;
    block.axi_rvalid = answer;
    block.axi_rdata = answer ? data(memory.front()) : 0xDEAD;
    block.axi_rresp = answer && fails(memory.front()) ? 2 : 0;
    block.eval();

    bool takes = valid && !halt && !rest && bursts.size() < BURSTS && requests.size() < REQUESTS;
    unsigned kind = valid ? __builtin_ctz(valid) : 0;
    expect(block.request_ready == (takes ? 1u << kind : 0), "request_ready: the lowest kind first");
    compare();
    bool accepts = accept && !bursts.empty();
    bool continues = rest && bursts.size() < BURSTS;
    clock();

    leaving.clear();
    if (answer) {
      Request &first = requests.front();
      bool last = index + 1 == first.beats;
      leaving.push_back({first.kind, first.number, index, data(memory.front()), last,
                         fails(memory.front())});
      memory.pop_front();
      index = last ? 0 : index + 1;
      if (last) requests.pop_front();
    }
    if (accepts) memory.push_back(bursts.front()), bursts.pop_front();
    if (takes) {
      uint64_t page = uint64_t(5) << 32 | uint64_t(kind) << 30 | uint64_t(number & 0xFFFF) << 12;
      requests.push_back({kind, number & 0xFFFF, crosses ? 2u : 1u});
      bursts.push_back(page + (crosses ? 0xFC0 : 0x040));
      rest = crosses ? page + 0x1000 : 0;
      number++;
    } else if (continues) {
      bursts.push_back(rest);
      rest = 0;
    }
    block.request_valid = block.axi_arready = block.axi_rvalid = 0;
    block.eval();
    compare();
  }
  void compare() {
    expect(block.axi_arvalid == !bursts.empty(), "axi_arvalid");
    if (!bursts.empty()) {
      expect(block.axi_araddr == bursts.front(), "axi_araddr: order, whole beats, 4 KiB");
      expect(block.axi_arlen == 0, "axi_arlen");
    }
    expect(block.axi_rready == !requests.empty(), "axi_rready");
    expect(block.idle == (requests.empty() && leaving.empty()), "idle");
    expect(block.beat_valid == !leaving.empty(), "beat_valid");
    if (leaving.empty()) return;
    const Beat &beat = leaving.front();
    expect(block.beat_kind == beat.kind && block.beat_number == beat.number, "whose beat it is");
    expect(block.beat_index == beat.index && block.beat_last == beat.last, "which beat it is");
    expect(block.beat_data == beat.data && block.beat_failed == beat.failed, "what it brings");
  }
  // Which kinds and numbers are under way follows the inputs, and is compared; it is no state.
  std::string key() {
    std::string key;
    for (const Request &request : requests) key += char('0' + request.beats);
    key += rest ? 'r' : '-';
    for (size_t count : {size_t(index), bursts.size(), memory.size(), leaving.size()})
      key += ' ' + std::to_string(count);
    return key;
  }
};

int main() { return explore<Bench>(); }
