// First in, first out, with the first entry always visible. The depth is a power of two.
module fifo #(
  parameter int WIDTH = 8,
  parameter int DEPTH = 16,
  localparam int BITS = $clog2(DEPTH)
) (
  input  logic             clk,
  input  logic             rst,
  input  logic             push,
  input  logic [WIDTH-1:0] in,
  input  logic             pop,
  output logic [WIDTH-1:0] out,
  output logic             empty,
  output logic [BITS:0]    count
);
  logic [WIDTH-1:0] entries [DEPTH];
  logic [BITS:0] head, tail;

  assign count = tail - head;
  assign empty = count == 0;
  assign out = entries[head[BITS-1:0]];

  always_ff @(posedge clk) begin
    if (push) entries[tail[BITS-1:0]] <= in;
    if (rst) begin
      head <= 0;
      tail <= 0;
    end else begin
      tail <= tail + (BITS+1)'(push);
      head <= head + (BITS+1)'(pop);
    end
  end
endmodule
