// The arbiter beside one that looks at one after the other.
#include "Varbiter_bench.h"
#include "search.h"

struct Bench {
  static constexpr unsigned INPUTS = 64;
  VerilatedContext context;
  Varbiter_bench block{&context};
  // The one that had it last, and the one that has it, or -1.
  int last, holder;

  void clock() {
    block.clk = 1;
    block.eval();
    block.clk = 0;
    block.eval();
  }
  void reset() {
    block.rst = 1;
    block.requests = block.release_grant = 0;
    clock();
    last = holder = -1;
  }
  bool is_legal(unsigned) { return true; }
  void step(unsigned input) {
    block.requests = input & 15, block.release_grant = input >> 4 & 1, block.rst = input >> 5;
    block.eval();
    clock();
    if (block.rst) {
      last = holder = -1;
    } else if (holder >= 0) {
      if (block.release_grant) holder = -1;
    } else {
      for (int turn = 1; turn <= 4 && holder < 0; turn++)
        if (input >> ((last + turn) & 3) & 1) holder = (last + turn) & 3;
      if (holder >= 0) last = holder;
    }
    expect(block.grant == (holder < 0 ? 0 : 1 << holder), "who has it");
  }
  std::string key() { return {char('a' + last), char('a' + holder)}; }
};

int main() { return explore<Bench>(); }
