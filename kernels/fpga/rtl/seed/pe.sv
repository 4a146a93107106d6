// A processing element: multiplies, adds up, and hands on what it is given, bytes to the right and
// coefficients down. When a sum is complete a token comes by, slower than the bytes by one clock an
// element, so that the sums of a row leave it one after the other.
module pe #(
  parameter int BITS = 8
) (
  input  logic            clk,
  input  logic [7:0]      x_in,
  // There is a byte; it is the first of its sum.
  input  logic            valid_in,
  input  logic            first_in,
  input  logic            take_in,
  input  logic [7:0]      result_in,
  input  logic [BITS-1:0] coefficient_in,
  output logic [7:0]      x_out,
  output logic            valid_out,
  output logic            first_out,
  output logic            take_out,
  output logic [7:0]      result_out,
  output logic [BITS-1:0] coefficient_out
);
  logic [7:0] product, sum;
  multiplier #(.BITS(BITS)) u_multiplier (.x(x_in), .coefficient(coefficient_in), .product);

  logic taken;
  always_ff @(posedge clk) begin
    if (valid_in) sum <= first_in ? product : sum ^ product;
    result_out <= take_in ? sum : result_in;
    taken <= take_in;
    take_out <= taken;
    x_out <= x_in;
    valid_out <= valid_in;
    first_out <= first_in;
    coefficient_out <= coefficient_in;
  end
endmodule
