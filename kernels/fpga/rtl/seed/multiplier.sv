// A product in GF(256): the ancient Egyptian way, unrolled into a chain (the paper's Alg. 5). Of a
// bounded coefficient only the low BITS are there, and the chain is as long (Alg. 6).
module multiplier #(
  parameter int BITS = 8,
  // Without x^8.
  parameter logic [7:0] POLYNOMIAL = 8'h1D
) (
  input  logic [7:0]      x,
  input  logic [BITS-1:0] coefficient,
  output logic [7:0]      product
);
  always_comb begin
    logic [7:0] doubled;
    doubled = x;
    product = 0;
    for (int i = 0; i < BITS; i++) begin
      if (coefficient[i]) product ^= doubled;
      doubled = {doubled[6:0], 1'b0} ^ (doubled[7] ? POLYNOMIAL : 8'd0);
    end
  end
endmodule
