// Products of leaves, summed over the sources: the bulk of the tile.
//
// A leaf of a source times that of a coefficient is one AND. The sum of four of them, by four
// sources and four coefficients, is looked up by the bits of the sources in a table of 16 bits that
// was made of those of the coefficients. A look-up table of the card's holds two such tables of two
// banks: one is used while the other is loaded.
//
// For synthesis with `VENDOR_CELLS`, which says which memories are packed into one cell. Without,
// for simulation, all lanes share one memory.
module leaf_products
  import engine_pkg::*;
#(
  parameter int LANES = 4,
  parameter int KT = 16,
  parameter int NT = 16,
  localparam int GROUPS = KT / GROUP,
  localparam int GROUP_BITS = $clog2(GROUPS)
) (
  input  logic                            clk,
  input  logic                            bank,
  // By lane, then source.
  input  logic [LEAVES-1:0][LANES*KT-1:0] leaf,
  // A clock later, by lane, then destination: of each three leaves in a row the first, the sum of
  // all, the second, which are the coefficients of the product of two polynomials of degree 1.
  output logic [LEAVES-1:0][LANES*NT-1:0] product,
  input  logic                            load,
  input  logic [GROUP_BITS-1:0]           load_group,
  input  logic [4:0]                      load_address,
  input  logic [LEAVES-1:0][NT-1:0]       load_entries
);
  logic [LANES*NT-1:0] sums [LEAVES];

`ifdef VENDOR_CELLS
  localparam int PAIRS = NT / 2;
  logic [LANES-1:0][GROUPS-1:0][LEAVES-1:0][NT-1:0] parts;
  for (genvar i = 0; i < LANES; i++) begin : g_lane
    for (genvar g = 0; g < GROUPS; g++) begin : g_group
      logic [LEAVES*PAIRS-1:0][4:0] address;
      for (genvar u = 0; u < LEAVES * PAIRS; u++) begin : g_pair
        assign address[u] = {bank, leaf[u/PAIRS][i*KT + GROUP*g +: GROUP]};
      end
      table_memory #(.COUNT(LEAVES * PAIRS)) u_tables (
        .clk, .write(load && 32'(load_group) == g), .write_address(load_address),
        .in(load_entries), .address, .out(parts[i][g])
      );
    end
  end
  always_comb begin
    for (int r = 0; r < LEAVES; r++) begin
      sums[r] = 0;
      for (int i = 0; i < LANES; i++)
        for (int g = 0; g < GROUPS; g++) sums[r][NT*i +: NT] ^= parts[i][g][r];
    end
  end
`else
  logic [LEAVES*NT-1:0] entries [GROUPS * 32];
  always_ff @(posedge clk) if (load) entries[{load_group, load_address}] <= load_entries;
  for (genvar r = 0; r < LEAVES; r++) begin : g_leaf
    always_comb begin
      sums[r] = 0;
      for (int i = 0; i < LANES; i++)
        for (int g = 0; g < GROUPS; g++)
          sums[r][NT*i +: NT] ^=
            entries[{GROUP_BITS'(g), bank, leaf[r][i*KT + GROUP*g +: GROUP]}][NT*r +: NT];
    end
  end
`endif

  always_ff @(posedge clk)
    for (int r = 0; r < LEAVES; r += 3) begin
      product[r] <= sums[r];
      product[r + 1] <= sums[r] ^ sums[r + 1] ^ sums[r + 2];
      product[r + 2] <= sums[r + 1];
    end
endmodule
