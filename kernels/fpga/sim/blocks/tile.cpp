// Tables and tile beside multiplication bit by bit, in every field, with the memories of a card.
#include "Vtile_bench.h"
#include "search.h"

static constexpr int LANES = 8, SIDE = 64 / LANES, LATENCY = 4, WORDS = 200;

static VerilatedContext context;
static Vtile_bench tile{&context};
static uint64_t state = 1;

static uint8_t random_byte() {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state >> 32;
}

static void tick() {
  tile.clk = 1;
  tile.eval();
  tile.clk = 0;
  tile.eval();
}

// Elements of `bits` bits, each by the same coefficient.
static uint8_t product(uint8_t coefficient, uint8_t byte, int bits, uint8_t polynomial) {
  const int mask = (1 << bits) - 1;
  int result = 0;
  for (int place = 0; place < 8; place += bits) {
    int power = coefficient & mask;
    for (int bit = 0; bit < bits; bit++) {
      if (byte >> (place + bit) & 1) result ^= power << place;
      power = power << 1 ^ (power >> (bits - 1) & 1 ? polynomial : 0);
      power &= mask;
    }
  }
  return result;
}

template <class Wide> static void fill(Wide &wide, const uint8_t *bytes) {
  for (int at = 0; at < 16; at++) {
    wide[at] = 0;
    for (int byte = 0; byte < 4; byte++) wide[at] |= uint32_t(bytes[4 * at + byte]) << 8 * byte;
  }
}

int main() {
  const uint8_t polynomials[] = {0x1D, 0x1B, 0x3, 0x3, 0x1};
  const int fields[] = {0, 0, 1, 2, 3};
  unsigned compared = 0;
  tile.rst = 1;
  tick();
  tile.rst = 0;
  for (int round = 0; round < 10; round++) {
    const int field = fields[round % 5], bits = 8 >> field;
    const uint8_t polynomial = polynomials[round % 5];
    // Column by column: one beat is all of them.
    uint8_t coefficients[64], x[WORDS][64], before[WORDS][64];
    for (auto &byte : coefficients) byte = random_byte();
    fill(tile.in_data, coefficients);
    tile.in_field = field, tile.in_polynomial = polynomial;
    tile.in_valid = 1, tile.load_bank = round & 1;
    bool taken = false;
    for (int clocks = 0; clocks < 100; clocks++) {
      tile.eval();
      const bool takes = tile.in_valid && tile.in_ready, loaded = tile.loaded;
      tick();
      if (takes) tile.in_valid = 0, taken = true;
      if (loaded) break;
      expect(clocks < 99, "tables are loaded");
    }
    expect(taken, "the coefficients are taken");
    tile.bank = round & 1;
    for (int word = 0; word < WORDS + LATENCY; word++) {
      if (word >= LATENCY) {
        const uint8_t *sources = x[word - LATENCY];
        for (int lane = 0; lane < LANES; lane++)
          for (int row = 0; row < SIDE; row++, compared++) {
            uint8_t sum = (word - LATENCY) % 3 ? before[word - LATENCY][lane * SIDE + row] : 0;
            for (int column = 0; column < SIDE; column++)
              sum ^= product(coefficients[column * SIDE + row], sources[lane * SIDE + column], bits,
                             polynomial);
            const int at = lane * SIDE + row;
            expect((tile.y[at / 4] >> 8 * (at % 4) & 255) == sum, "a byte");
          }
      }
      if (word < WORDS) {
        for (auto &byte : x[word]) byte = random_byte();
        for (auto &byte : before[word]) byte = random_byte();
        fill(tile.x, x[word]);
      }
      // Sums so far come three clocks later.
      if (word >= LATENCY - 1 && word - (LATENCY - 1) < WORDS) {
        fill(tile.so_far, before[word - (LATENCY - 1)]);
        tile.first = (word - (LATENCY - 1)) % 3 == 0;
      }
      tick();
    }
  }
  std::printf("%u bytes\n", compared);
}
