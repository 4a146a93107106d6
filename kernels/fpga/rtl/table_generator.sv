// Makes the tables of a tile from its coefficients: one entry of all tables of four sources a
// clock, so that a tile takes 4 KT clocks.
//
// The entry at address a of four coefficients is the sum of those whose bit is set in a. That is
// made of the coefficients' bytes, and turned into leaves afterwards, as both are sums.
//
//   coefficients -> sums of four | -> planes, packed elements | -> leaves | -> tables
//
// In the first group's clocks the bytes are found that the output map adds for each coefficient of
// a product, in the last group's its entries are made of them.
module table_generator
  import engine_pkg::*;
#(
  parameter int KT = 16,
  parameter int NT = 16,
  localparam int GROUPS = KT / GROUP,
  localparam int GROUP_BITS = $clog2(GROUPS)
) (
  input  logic                      clk,
  input  logic                      rst,
  // Coefficients in tile order, a beat at a time, with the field they are from.
  input  logic                      in_valid,
  output logic                      in_ready,
  input  logic [511:0]              in_data,
  input  logic [1:0]                in_field,
  input  logic [7:0]                in_polynomial,
  // A bank is free, or the tables wait. It is taken, it is loaded.
  input  logic                      bank_free,
  output logic                      begun,
  output logic                      loaded,
  output logic                      load,
  output logic [GROUP_BITS-1:0]     load_group,
  output logic [3:0]                load_nibble,
  output logic [1:0]                load_field,
  output logic [LEAVES-1:0][NT-1:0] load_entries,
  output logic                      load_map,
  output logic [31:0]               load_map_entries
);
  // Bits of the coefficients of four sources: half a beat, one or two.
  localparam int BITS = GROUP * NT * 8;

  logic [GROUP_BITS-1:0] group;
  logic [3:0] step;
  logic group_valid, is_last_group, active, ends_group;
  logic [BITS-1:0] coefficients;
  assign is_last_group = 32'(group) == GROUPS - 1;
  assign active = group_valid && (group != 0 || step != 0 || bank_free);
  assign begun = active && group == 0 && step == 0;
  assign ends_group = active && step == 15;
  if (BITS > 512) begin : g_wide
    logic has_held;
    logic [511:0] held;
    assign in_ready = !has_held || ends_group;
    assign group_valid = has_held && in_valid;
    assign coefficients = {in_data, held};
    always_ff @(posedge clk) begin
      if (!has_held) held <= in_data;
      if (rst) has_held <= 0;
      else if (!has_held) has_held <= in_valid;
      else if (ends_group) has_held <= 0;
    end
  end else begin : g_narrow
    localparam int PARTS = 512 / BITS;
    assign in_ready = ends_group && 32'(group) % PARTS == PARTS - 1;
    assign group_valid = in_valid;
    assign coefficients = BITS'(in_data >> (BITS * (32'(group) % PARTS)));
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      step <= 0;
      group <= 0;
    end else if (active) begin
      step <= step + 1;
      if (ends_group) group <= is_last_group ? 0 : group + 1;
    end
  end

  // In flight: sums, packed elements, leaves.
  typedef struct packed {
    logic                  valid;
    logic [GROUP_BITS-1:0] group;
    logic [3:0]            step;
    logic [1:0]            field;
  } stage_t;
  stage_t now;
  stage_t [2:0] stages;
  assign now = '{valid: active, group: group, step: step, field: in_field};
  always_ff @(posedge clk) stages <= rst ? '0 : {stages[1:0], now};

  logic [NT*8-1:0] sum;
  always_ff @(posedge clk)
    if (active)
      sum <= (coefficients[0 +: NT*8] & {NT*8{step[0]}})
        ^ (coefficients[NT*8 +: NT*8] & {NT*8{step[1]}})
        ^ (coefficients[2*NT*8 +: NT*8] & {NT*8{step[2]}})
        ^ (coefficients[3*NT*8 +: NT*8] & {NT*8{step[3]}});

  // A coefficient replaces each element of a byte.
  logic [7:0][NT-1:0] planes, packed_planes, packed_now;
  always_comb begin
    for (int j = 0; j < NT / 8; j++) begin
      logic [63:0] turned;
      turned = transpose(sum[64*j +: 64]);
      for (int i = 0; i < 8; i++) planes[i][8*j +: 8] = turned[8*i +: 8];
    end
    for (int i = 0; i < 8; i++)
      case (stages[0].field)
        0: packed_now[i] = planes[i];
        1: packed_now[i] = planes[i % 4];
        2: packed_now[i] = planes[i % 2];
        default: packed_now[i] = planes[0];
      endcase
  end
  always_ff @(posedge clk) if (stages[0].valid) packed_planes <= packed_now;
  logic [LEAVES-1:0][NT-1:0] leaf;
  leaves #(.WIDTH(NT)) u_leaves (.planes(packed_planes), .leaf);
  always_ff @(posedge clk) if (stages[1].valid) load_entries <= leaf;

  // What coefficient `step` of a product adds: powers of x in each element, in the element's place.
  // In GF(2) the first and the last of each three are elements, and the middle one is of no use.
  logic [7:0] element, element_before, mask, shifted;
  logic [2:0] place;
  logic restarts;
  logic [15:0][7:0] columns;
  always_comb begin
    case (in_field)
      0: {mask, place, restarts} = {8'hFF, 3'd0, step == 0};
      1: {mask, place, restarts} = {8'h0F, step[3], 2'd0, step[2:0] == 0};
      default: {mask, place, restarts} = {8'h03, step[3:2], 1'd0, step[1:0] == 0};
    endcase
    shifted = {element_before[6:0], 1'b0} & mask;
    if ((element_before & (mask ^ (mask >> 1))) != 0) shifted ^= in_polynomial & mask;
    element = restarts ? 8'd1 : shifted;
    if (in_field == 3) element = {6'd0, step[1:0] == 2, step[1:0] == 0};
  end
  always_ff @(posedge clk)
    if (active && group == 0) begin
      element_before <= element;
      columns[step] <= step == 15 ? 8'd0 : element << place;
    end

  logic [2:0][31:0] map_entries;
  logic [31:0] map_now;
  always_comb begin
    map_now = 0;
    for (int i = 0; i < 4; i++)
      for (int t = 0; t < 4; t++) map_now[8*t +: 8] ^= columns[4*t + i] & {8{step[i]}};
  end
  always_ff @(posedge clk) map_entries <= {map_entries[1:0], map_now};

  assign load = stages[2].valid;
  assign load_group = stages[2].group;
  assign load_nibble = stages[2].step;
  assign load_field = stages[2].field;
  assign load_map = load && 32'(load_group) == GROUPS - 1;
  assign load_map_entries = map_entries[2];
  assign loaded = load_map && load_nibble == 15;
endmodule
