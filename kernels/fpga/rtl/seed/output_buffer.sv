// Two banks of results (the paper's Alg. 2): while the array fills one, eight bytes of a coded
// packet a clock, the other is written to memory, packet after packet, as soon as the port is
// granted.
module output_buffer
  import seed_pkg::*;
(
  input  logic        clk,
  input  logic        rst,
  input  order_t      order,
  output logic        bank_free,
  input  logic        claim,
  input  chunk_t      claim_chunk,
  input  logic        word_valid,
  input  word_t       word,
  // The port: wanted while a bank is full, granted until memory has acknowledged all of it.
  output logic        request,
  input  logic        granted,
  output logic        write_valid,
  input  logic        write_ready,
  output logic [63:0] write_address,
  output beat_t       write_data,
  output logic        write_last,
  input  logic        acknowledged,
  // A batch is in memory.
  output logic        batch_done
);
  localparam int PACKET_BITS = $clog2(BATCH_SIZE);
  localparam int BEAT_BITS = $clog2(BURST_BEATS);
  localparam int TILE_BITS = $clog2(BURST_BEATS * TILES_PER_BEAT);
  localparam int PLACE_BITS = $clog2(TILES_PER_BEAT);

  // How often banks were claimed, filled and emptied, modulo four: the low bit names a bank.
  logic [1:0] claimed, filled, emptied;
  assign bank_free = 2'(claimed - emptied) != 2;
  assign request = filled != emptied;

  chunk_t chunks [2];
  chunk_t filling, leaving;
  assign filling = chunks[filled[0]];
  assign leaving = chunks[emptied[0]];

  // Words come tile by tile, and within a tile packet by packet.
  logic [PACKET_BITS-1:0] word_packet;
  logic [TILE_BITS-1:0] word_tile;
  logic ends_tile, fills;
  assign ends_tile = word_valid && word_packet == PACKET_BITS'(BATCH_SIZE - 1);
  assign fills = ends_tile && 7'(word_tile) + 1 == {filling.beats, 2'b00};

  // Beats leave packet by packet. The memory's own register holds the next.
  logic [PACKET_BITS-1:0] packet;
  logic [BEAT_BITS-1:0] beat;
  logic ends_packet, all_read, read;
  assign ends_packet = 5'(beat) + 1 == leaving.beats;
  assign read = granted && !all_read && (!write_valid || write_ready);

  for (genvar place = 0; place < TILES_PER_BEAT; place++) begin : g_place
    word_t words [2*BATCH_SIZE*BURST_BEATS];
    always_ff @(posedge clk) begin
      if (word_valid && word_tile[PLACE_BITS-1:0] == PLACE_BITS'(place))
        words[{filled[0], word_packet, word_tile[TILE_BITS-1:PLACE_BITS]}] <= word;
      if (read) write_data[place*8*T +: 8*T] <= words[{emptied[0], packet, beat}];
    end
  end

  logic [31:0] row, beats_before;
  assign row = 32'({leaving.batch.number, packet});
  assign beats_before = row * 32'(order.packet_beats) + 32'(leaving.offset) + 32'(beat);
  assign batch_done = acknowledged && granted && leaving.is_last;

  always_ff @(posedge clk) begin
    if (claim) chunks[claimed[0]] <= claim_chunk;
    if (read) begin
      write_address <= order.destinations + {27'd0, beats_before, 5'd0};
      write_last <= ends_packet && packet == PACKET_BITS'(BATCH_SIZE - 1);
    end
    if (rst) begin
      claimed <= 0;
      filled <= 0;
      emptied <= 0;
      word_packet <= 0;
      word_tile <= 0;
      packet <= 0;
      beat <= 0;
      all_read <= 0;
      write_valid <= 0;
    end else begin
      claimed <= claimed + 2'(claim);
      filled <= filled + 2'(fills);
      if (word_valid) word_packet <= word_packet + 1;
      if (ends_tile) word_tile <= fills ? 0 : word_tile + 1;
      if (read) begin
        beat <= ends_packet ? 0 : beat + 1;
        if (ends_packet) packet <= packet + 1;
        if (ends_packet && packet == PACKET_BITS'(BATCH_SIZE - 1)) all_read <= 1;
      end
      if (read) write_valid <= 1;
      else if (write_ready) write_valid <= 0;
      if (granted && acknowledged) begin
        emptied <= emptied + 1;
        all_read <= 0;
      end
    end
  end
endmodule
