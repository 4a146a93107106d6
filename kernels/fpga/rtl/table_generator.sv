// Makes the nibble tables of a tile from its coefficients, W columns at a time, one entry of each a
// clock.
//
// Entries follow each other in Gray-code order, so that each is the one before plus the product of
// one single bit. The product of bit i is the coefficient times x^i: one step of multiplication by
// x more than that of bit i-1. Where a byte packs several elements, each begins again with the
// coefficient, in its own place. A nibble takes 16 clocks, a round 32.
module table_generator #(
  parameter int KT = 16,
  parameter int NT = 16,
  parameter int W = 8
) (
  input  logic                       clk,
  input  logic                       rst,
  // Coefficients in tile order, a beat at a time, with the field they are from.
  input  logic                       in_valid,
  output logic                       in_ready,
  input  logic [511:0]               in_data,
  input  logic [1:0]                 in_field,
  input  logic [7:0]                 in_polynomial,
  // A bank is free, or the tables wait.
  input  logic                       bank_free,
  output logic                       loaded,
  output logic                       load,
  output logic                       load_half,
  output logic [3:0]                 load_nibble,
  output logic [$clog2(KT/W+1)-1:0]  load_round,
  output logic [W-1:0][NT-1:0][7:0]  load_entries
);
  // Beats that bring the coefficients of one round.
  localparam int BEATS = W * NT / 64;
  localparam int ROUNDS = KT / W;
  localparam int BEAT_BITS = $clog2(BEATS + 1);
  localparam int ROUND_BITS = $clog2(ROUNDS + 1);

  // The next round's coefficients are collected while the tables of this one are made.
  logic [W*NT*8-1:0] next_coefficients;
  logic [BEAT_BITS-1:0] collected;
  logic [1:0] next_field;
  logic [7:0] next_polynomial;
  logic is_collected, start;
  assign is_collected = collected == BEAT_BITS'(BEATS);
  assign in_ready = !is_collected || start;

  logic running;
  logic [4:0] step;
  logic [ROUND_BITS-1:0] round;
  logic [1:0] field;
  logic [7:0] polynomial;
  logic [W-1:0][NT-1:0][7:0] coefficients, power, sum;
  logic [2:0][W-1:0][NT-1:0][7:0] basis;

  logic ends;
  assign ends = running && step == 31;
  assign start = is_collected && (running ? ends && 32'(round) != ROUNDS - 1 : bank_free);

  always_ff @(posedge clk) begin
    if (rst) collected <= 0;
    else if (in_valid && in_ready) collected <= start ? 1 : collected + 1;
    else if (start) collected <= 0;
    if (in_valid && in_ready) begin
      if (BEATS == 1) next_coefficients <= (W*NT*8)'(in_data);
      else next_coefficients <= (W*NT*8)'({in_data, next_coefficients} >> 512);
      next_field <= in_field;
      next_polynomial <= in_polynomial;
    end
  end

  // Bits of an element, and of a byte that hold the coefficient.
  logic [3:0] element_bits;
  assign element_bits = 4'd8 >> field;
  logic [7:0] element_mask;
  assign element_mask = 8'((32'd1 << element_bits) - 1);

  // The bit whose product is added to make the entry of this step, and the one made for the next.
  logic [1:0] bit_in_nibble;
  always_comb begin
    bit_in_nibble = 3;
    if (step[0]) bit_in_nibble = 0;
    else if (step[1]) bit_in_nibble = 1;
    else if (step[2]) bit_in_nibble = 2;
  end
  // Bit i is first needed at step 2^i of its nibble, when its product is in `power`.
  logic is_first_use;
  assign is_first_use = (step[3:0] & (step[3:0] - 4'd1)) == 0 && step[3:0] != 0;
  logic [2:0] input_bit, next_bit, place;
  assign input_bit = {step[4], bit_in_nibble};
  assign next_bit = input_bit + 1;
  assign place = 3'(4'(input_bit) & ~(element_bits - 4'd1));

  logic restarts;
  assign restarts = (4'(next_bit) & (element_bits - 4'd1)) == 0;

  logic [W-1:0][NT-1:0][7:0] addend, next_sum, next_power;
  always_comb begin
    for (int i = 0; i < W; i++) begin
      for (int n = 0; n < NT; n++) begin
        logic [7:0] shifted;
        logic carry;
        addend[i][n] = is_first_use ? power[i][n] << place : basis[bit_in_nibble][i][n];
        next_sum[i][n] = step[3:0] == 0 ? 0 : sum[i][n] ^ addend[i][n];
        carry = |(power[i][n] & (element_mask ^ (element_mask >> 1)));
        shifted = {power[i][n][6:0], 1'b0} & element_mask;
        next_power[i][n] = restarts ? coefficients[i][n] & element_mask
                                    : shifted ^ (carry ? polynomial & element_mask : 8'd0);
      end
    end
  end

  always_ff @(posedge clk) begin
    if (start) begin
      coefficients <= next_coefficients;
      field <= next_field;
      polynomial <= next_polynomial;
      for (int i = 0; i < W; i++)
        for (int n = 0; n < NT; n++)
          power[i][n] <= next_coefficients[8*(i*NT+n) +: 8] & 8'((32'd1 << (4'd8 >> next_field)) - 1);
    end else if (running && is_first_use) power <= next_power;
    if (running) begin
      sum <= next_sum;
      if (is_first_use && bit_in_nibble != 3) basis[bit_in_nibble] <= addend;
    end
    if (rst) begin
      running <= 0;
      step <= 0;
      round <= 0;
    end else begin
      if (start) running <= 1;
      else if (ends) running <= 0;
      if (running) step <= step + 1;
      if (ends) round <= 32'(round) == ROUNDS - 1 ? 0 : round + 1;
    end
  end

  assign load = running;
  assign load_half = step[4];
  assign load_nibble = step[3:0] ^ (step[3:0] >> 1);
  assign load_round = round;
  assign load_entries = next_sum;
  assign loaded = ends && 32'(round) == ROUNDS - 1;
endmodule
