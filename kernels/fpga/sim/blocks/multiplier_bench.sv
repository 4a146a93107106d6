// All widths of coefficients.
module multiplier_bench (
  input  logic [7:0] x, coefficient,
  output logic [7:0] product_8, product_4, product_3, product_2
);
  multiplier #(.BITS(8)) u_8 (.x, .coefficient, .product(product_8));
  multiplier #(.BITS(4)) u_4 (.x, .coefficient(coefficient[3:0]), .product(product_4));
  multiplier #(.BITS(3)) u_3 (.x, .coefficient(coefficient[2:0]), .product(product_3));
  multiplier #(.BITS(2)) u_2 (.x, .coefficient(coefficient[1:0]), .product(product_2));
endmodule
