// The rings beside counters and queues: wrap, fullness, order, phase bits, beats of others.
#include "Vrings_bench.h"
#include "search.h"

struct Bench {
  enum : unsigned {
    RUN = 1, READY = 2, ANSWER = 4, OTHER = 8, TAKE = 16, COMPLETE = 32, DOORBELL = 64, SEEN = 128,
    RESET = 256, INPUTS = 512
  };
  static constexpr uint32_t ENTRIES = 2, DEPTH = 8;
  VerilatedContext context;
  Vrings_bench block{&context};
  uint32_t fetched, tail, completed, seen;
  std::deque<uint32_t> asked, there;

  void clock() {
    block.clk = 1;
    block.eval();
    block.clk = 0;
    block.eval();
  }
  void reset() {
    block.rst = 1;
    block.run = block.request_ready = block.beat_valid = block.descriptor_ready = 0;
    block.completion_taken = 0;
    block.submission_tail = block.completion_head = 0;
    clock();
    block.rst = 0;
    fetched = tail = completed = seen = 0;
    asked.clear();
    there.clear();
  }
  static bool fails(uint32_t number) { return number % 3 == 0; }
  bool is_legal(unsigned input) {
    // A reset begins when all reads have ended, and comes alone: other inputs in that clock do
    // not matter.
    if (input & RESET) return input == RESET && asked.empty();
    bool answer = input & ANSWER;
    if (answer && (asked.empty() || input & OTHER)) return false;
    if (input & COMPLETE && completed - seen == ENTRIES) return false;
    // The register page ignores doorbells for more than the ring has.
    if (input & DOORBELL && tail - fetched == ENTRIES) return false;
    return !(input & SEEN) || completed != seen;
  }
  void step(unsigned input) {
    if (input & RESET) {
      reset();
      return compare(false);
    }
    if (input & DOORBELL) tail++;
    if (input & SEEN) seen++;
    bool run = input & RUN, ready = input & READY, take = input & TAKE;
    block.submission_tail = tail;
    block.completion_head = seen;
    block.run = run;
    block.request_ready = ready;
    block.descriptor_ready = take;
    block.completion_taken = (input & COMPLETE) != 0;
    block.beat_valid = (input & (ANSWER | OTHER)) != 0;
    block.beat_kind = input & OTHER ? 3 : 0;
    block.beat_data = input & ANSWER ? asked.front() : 0xDEAD;
    block.beat_failed = input & ANSWER ? fails(asked.front()) : 1;
    block.eval();
    compare(run);
    bool accepts = block.request_valid && ready, pops = !there.empty() && take;
    clock();
    if (pops) there.pop_front();
    if (input & ANSWER) there.push_back(asked.front()), asked.pop_front();
    if (accepts) asked.push_back(fetched++);
    if (input & COMPLETE) completed++;
    block.run = block.beat_valid = block.descriptor_ready = block.completion_taken = 0;
    block.eval();
    compare(false);
  }
  void compare(bool run) {
    bool has_room = asked.size() + there.size() < DEPTH;
    expect(block.request_valid == (run && tail != fetched && has_room), "request_valid");
    expect(block.request_address == 0x100001000 + 64 * (fetched % ENTRIES), "request_address");
    expect(block.request_beats == 1, "request_beats");
    expect(block.submission_head == fetched, "submission_head");
    expect(block.descriptor_valid == !there.empty(), "descriptor_valid");
    if (!there.empty()) {
      expect(block.descriptor_data == there.front(), "the order of descriptors");
      expect(block.descriptor_failed == fails(there.front()), "descriptor_failed");
    }
    expect(block.completion_room == (completed - seen < ENTRIES), "completion_room");
    expect(block.completion_address == 0x200002000 + 16 * (completed % ENTRIES),
           "completion_address");
    expect(block.completion_phase == (completed / ENTRIES % 2 == 0), "completion_phase");
  }
  // Counters matter by their places and differences. Which descriptor fails follows its number.
  std::string key() {
    char text[64];
    std::snprintf(text, sizeof text, "%u %u %u %u %zu %zu", fetched % ENTRIES, tail - fetched,
                  completed % (2 * ENTRIES), completed - seen, asked.size(), there.size());
    return text;
  }
};

int main() { return explore<Bench>(); }
