// From the 15 coefficients of a product of polynomials to the byte that it is in the field.
//
// Each coefficient adds a byte; which, is loaded: a table of 16 bytes for each four of them, in two
// banks. Sums of earlier passes are added in the same look-up table of the card's.
//
// For synthesis with `VENDOR_CELLS`; without, for simulation, all share one memory.
module output_map
  import engine_pkg::*;
(
  input  logic                   clk,
  input  logic                   bank,
  // Of 64 products: plane i holds coefficient i of each.
  input  logic [TERMS-1:0][63:0] term,
  input  logic                   first,
  input  logic [511:0]           so_far,
  // A clock later.
  output logic [511:0]           y,
  input  logic                   load,
  input  logic [4:0]             load_address,
  input  logic [31:0]            load_entries
);
  // Bytes of terms, eight products at a time: a byte's bits are those of one product.
  logic [7:0][63:0] low, high;
  always_comb
    for (int j = 0; j < 8; j++) begin
      low[j] = transpose({
        term[7][8*j +: 8], term[6][8*j +: 8], term[5][8*j +: 8], term[4][8*j +: 8],
        term[3][8*j +: 8], term[2][8*j +: 8], term[1][8*j +: 8], term[0][8*j +: 8]
      });
      high[j] = transpose({
        8'd0, term[14][8*j +: 8], term[13][8*j +: 8], term[12][8*j +: 8],
        term[11][8*j +: 8], term[10][8*j +: 8], term[9][8*j +: 8], term[8][8*j +: 8]
      });
    end

  logic [63:0][7:0] mapped;
`ifdef VENDOR_CELLS
  logic [63:0][15:0][4:0] address;
  logic [63:0][31:0] in, out;
  for (genvar p = 0; p < 64; p++) begin : g_product
    localparam int J = p / 8, Q = 8 * (p % 8);
    assign in[p] = load_entries;
    for (genvar i = 0; i < 4; i++) begin : g_pair
      assign address[p][i] = {bank, low[J][Q +: 4]};
      assign address[p][4 + i] = {bank, low[J][Q + 4 +: 4]};
      assign address[p][8 + i] = {bank, high[J][Q +: 4]};
      assign address[p][12 + i] = {bank, high[J][Q + 4 +: 4]};
    end
    assign mapped[p] = out[p][7:0] ^ out[p][15:8] ^ out[p][23:16] ^ out[p][31:24];
  end
  table_memory #(.COUNT(1024)) u_tables (
    .clk, .write(load), .write_address(load_address), .in, .address, .out
  );
`else
  logic [31:0] entries [32];
  always_ff @(posedge clk) if (load) entries[load_address] <= load_entries;
  for (genvar p = 0; p < 64; p++) begin : g_product
    localparam int J = p / 8, Q = 8 * (p % 8);
    assign mapped[p] = entries[{bank, low[J][Q +: 4]}][7:0]
      ^ entries[{bank, low[J][Q + 4 +: 4]}][15:8]
      ^ entries[{bank, high[J][Q +: 4]}][23:16]
      ^ entries[{bank, high[J][Q + 4 +: 4]}][31:24];
  end
`endif

  always_ff @(posedge clk) y <= mapped ^ (first ? 512'd0 : so_far);
endmodule
