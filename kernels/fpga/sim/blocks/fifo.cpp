// The FIFO compared with a queue, with all contents at all places.
#include "Vfifo_bench.h"
#include "search.h"

struct Bench {
  static constexpr unsigned INPUTS = 16;
  VerilatedContext context;
  Vfifo_bench block{&context};
  std::deque<bool> queue;
  unsigned first;

  void clock() {
    block.clk = 1;
    block.eval();
    block.clk = 0;
    block.eval();
  }
  void reset() {
    block.rst = 1;
    block.push = block.pop = 0;
    clock();
    queue.clear();
    first = 0;
  }
  // Who uses it pushes only with room, and pops only what is there.
  bool is_legal(unsigned input) {
    bool push = input & 1, pop = input & 4;
    return (!pop || !queue.empty()) && (!push || queue.size() < 4 || pop);
  }
  void step(unsigned input) {
    bool push = input & 1, in = input & 2, pop = input & 4, rst = input & 8;
    block.rst = rst, block.push = push, block.in = in, block.pop = pop;
    block.eval();
    compare();
    clock();
    if (rst) {
      queue.clear();
      first = 0;
    } else {
      if (pop) queue.pop_front(), first = (first + 1) % 8;
      if (push) queue.push_back(in);
    }
    compare();
  }
  void compare() {
    expect(block.count == queue.size(), "count");
    expect(block.empty == queue.empty(), "empty");
    expect(queue.empty() || block.out == queue.front(), "the first entry");
  }
  std::string key() {
    std::string key(1, char('0' + first));
    for (bool entry : queue) key += entry ? '1' : '0';
    return key;
  }
};

int main() { return explore<Bench>(); }
