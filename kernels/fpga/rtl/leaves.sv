// What Karatsuba's formula, three times over, multiplies: of eight bits, 27 sums of some of them.
//
// A byte is a polynomial over GF(2) in the bits of its place: 4 a + 2 b + c. In each of a, b and c
// a leaf takes the bit with 0, that with 1, or the sum of both (2). Leaf 9 a + 3 b + c.
//
// WIDTH bytes at once: plane i holds bit i of each.
module leaves
  import engine_pkg::*;
#(
  parameter int WIDTH = 64
) (
  input  logic [7:0][WIDTH-1:0]        planes,
  output logic [LEAVES-1:0][WIDTH-1:0] leaf
);
  logic [WIDTH-1:0] fours [12];
  logic [WIDTH-1:0] twos [18];
  for (genvar i = 0; i < 4; i++) begin : g_four
    assign fours[i] = planes[i];
    assign fours[4 + i] = planes[4 + i];
    assign fours[8 + i] = planes[i] ^ planes[4 + i];
  end
  for (genvar a = 0; a < 3; a++) begin : g_two
    for (genvar i = 0; i < 2; i++) begin : g_bit
      assign twos[6*a + i] = fours[4*a + i];
      assign twos[6*a + 2 + i] = fours[4*a + 2 + i];
      assign twos[6*a + 4 + i] = fours[4*a + i] ^ fours[4*a + 2 + i];
    end
  end
  for (genvar ab = 0; ab < 9; ab++) begin : g_leaf
    assign leaf[3*ab] = twos[2*ab];
    assign leaf[3*ab + 1] = twos[2*ab + 1];
    assign leaf[3*ab + 2] = twos[2*ab] ^ twos[2*ab + 1];
  end
endmodule
