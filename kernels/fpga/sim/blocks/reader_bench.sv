// The reader with four requests in flight. A request is of one beat, or of two that lie on both
// sides of a 4 KiB boundary.
module reader_bench
  import engine_pkg::*;
(
  input  logic        clk, rst, halt,
  output logic        idle,
  input  logic [3:0]  request_valid,
  output logic [3:0]  request_ready,
  input  logic        crosses,
  input  logic [15:0] number,
  output logic        beat_valid, beat_last, beat_failed,
  output logic [1:0]  beat_kind,
  output logic [15:0] beat_number,
  output logic [5:0]  beat_index,
  output logic [31:0] beat_data,
  output logic        axi_arvalid,
  input  logic        axi_arready,
  output logic [63:0] axi_araddr,
  output logic [7:0]  axi_arlen,
  input  logic        axi_rvalid,
  output logic        axi_rready,
  input  logic [31:0] axi_rdata,
  input  logic [1:0]  axi_rresp
);
  read_request_t [3:0] request;
  read_beat_t beat;
  // Requests of all kinds differ in their pages; a page for each number keeps them apart.
  for (genvar i = 0; i < 4; i++) begin : g_kind
    assign request[i] = '{
      address: {32'd5, 2'(i), 2'd0, number, 12'hFC5 & (crosses ? 12'hFFF : 12'h07F)},
      beats: crosses ? 6'd2 : 6'd1, tag: {13'd0, number}
    };
  end
  assign beat_valid = beat.valid;
  assign beat_kind = beat.kind;
  assign beat_number = 16'(beat.tag);
  assign beat_index = beat.index;
  assign beat_last = beat.last;
  assign beat_failed = beat.failed;
  assign beat_data = beat.data[31:0];
  reader #(.REQUESTS(4)) u_reader (
    .clk, .rst, .halt, .idle, .request_valid, .request_ready, .request, .beat, .axi_arvalid,
    .axi_arready, .axi_araddr, .axi_arlen, .axi_rvalid, .axi_rready,
    .axi_rdata({480'd0, axi_rdata}), .axi_rresp
  );
endmodule
