// Turns 64 bytes to places that are lower by `places`, around: three levels of four inputs each,
// which with the two bits that select are the inputs of a look-up table. Two, where places are
// multiples of four.
module rotator #(
  parameter int FINEST = 1
) (
  input  logic [511:0] in,
  input  logic [5:0]   places,
  output logic [511:0] out
);
  logic [511:0] by_16, by_4;
  rotator_level #(.PLACES(16)) u_16 (.in, .times(places[5:4]), .out(by_16));
  rotator_level #(.PLACES(4)) u_4 (.in(by_16), .times(places[3:2]), .out(by_4));
  if (FINEST == 1) begin : g_1
    rotator_level #(.PLACES(1)) u_1 (.in(by_4), .times(places[1:0]), .out);
  end else begin : g_4
    assign out = by_4;
    logic unused;
    assign unused = &{1'b0, places[1:0]};
  end
endmodule
