// Every product of every width beside products of polynomials, divided by that of the field.
#include "Vmultiplier_bench.h"
#include "search.h"

static unsigned product(unsigned a, unsigned b) {
  unsigned product = 0;
  for (int bit = 0; bit < 8; bit++)
    if (b >> bit & 1) product ^= a << bit;
  for (int bit = 14; bit >= 8; bit--)
    if (product >> bit & 1) product ^= 0x11d << (bit - 8);
  return product;
}

int main() {
  VerilatedContext context;
  Vmultiplier_bench block{&context};
  unsigned pairs = 0;
  for (unsigned x = 0; x < 256; x++)
    for (unsigned coefficient = 0; coefficient < 256; coefficient++, pairs++) {
      block.x = x, block.coefficient = coefficient;
      block.eval();
      expect(block.product_8 == product(x, coefficient), "8 bits");
      expect(block.product_4 == product(x, coefficient & 15), "4 bits");
      expect(block.product_3 == product(x, coefficient & 7), "3 bits");
      expect(block.product_2 == product(x, coefficient & 3), "2 bits");
    }
  std::printf("%u pairs\n", pairs);
}
