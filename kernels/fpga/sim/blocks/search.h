// Walks through every state that a block can be in, as its reference counts states, and tries every
// input in each of them. A state is reached again by its path from reset.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <string>
#include <vector>

// Ends the program when block and reference differ.
inline void expect(bool is_so, const char *what) {
  if (is_so) return;
  std::printf("differs from the reference: %s\n", what);
  std::exit(1);
}

// A bench has INPUTS, reset(), is_legal(input), step(input), which compares, and key(), its state.
template <class Bench> int explore() {
  Bench bench;
  std::map<std::string, std::vector<uint16_t>> paths;
  std::deque<std::string> waiting;
  uint64_t transitions = 0;
  bench.reset();
  paths[bench.key()] = {};
  waiting.push_back(bench.key());
  while (!waiting.empty()) {
    std::vector<uint16_t> path = paths[waiting.front()];
    waiting.pop_front();
    path.push_back(0);
    for (unsigned input = 0; input < Bench::INPUTS; input++) {
      bench.reset();
      for (size_t at = 0; at + 1 < path.size(); at++) bench.step(path[at]);
      if (!bench.is_legal(input)) continue;
      bench.step(input);
      transitions++;
      path.back() = input;
      if (paths.emplace(bench.key(), path).second) waiting.push_back(bench.key());
    }
  }
  std::printf("%zu states, %llu transitions\n", paths.size(), (unsigned long long)transitions);
  return 0;
}
