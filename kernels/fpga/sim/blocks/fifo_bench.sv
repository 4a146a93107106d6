// Four entries of one bit.
module fifo_bench (
  input  logic       clk, rst, push, in, pop,
  output logic       out, empty,
  output logic [2:0] count
);
  fifo #(.WIDTH(1), .DEPTH(4)) u_fifo (.clk, .rst, .push, .in, .pop, .out, .empty, .count);
endmodule
