// One level of a rotator, in a module of its own so that synthesis leaves it one level.
module rotator_level #(
  parameter int PLACES = 1
) (
  input  logic [511:0] in,
  input  logic [1:0]   times,
  output logic [511:0] out
);
  always_comb
    case (times)
      2'd0: out = in;
      2'd1: out = {in[8*PLACES-1:0], in[511:8*PLACES]};
      2'd2: out = {in[16*PLACES-1:0], in[511:16*PLACES]};
      default: out = {in[24*PLACES-1:0], in[511:24*PLACES]};
    endcase
endmodule
