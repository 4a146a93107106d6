// One lane of the tile: KT source bytes in, NT destination bytes out two clocks later, every clock.
//
// A product by a coefficient is linear in the bits of the source byte, so it is the sum of what its
// two nibbles give. For each source, two tables of 16 entries hold the products of a nibble with
// the coefficients of all NT destinations. They are 32 deep: one bank is used while the other is
// loaded. Nothing here knows the field; the tables do.
module lane #(
  parameter int KT = 16,
  parameter int NT = 16,
  parameter int W = 8
) (
  input  logic                     clk,
  input  logic                     bank,
  input  logic [KT-1:0][7:0]       x,
  output logic [NT-1:0][7:0]       y,
  // W columns are loaded at once: table `half` of column `round * W + i` gets `entries[i]`.
  input  logic                     load,
  input  logic                     load_half,
  input  logic [4:0]               load_address,
  input  logic [$clog2(KT/W+1)-1:0] load_round,
  input  logic [W-1:0][NT-1:0][7:0] load_entries
);
  localparam int TABLES = 2 * KT;
  // A 6-input look-up table sums six bits.
  localparam int GROUPS = (TABLES + 5) / 6;

  logic [NT*8-1:0] products [TABLES];
  for (genvar k = 0; k < KT; k++) begin : g_column
    for (genvar half = 0; half < 2; half++) begin : g_half
      (* ram_style = "distributed" *) logic [NT*8-1:0] entries [32];
      always_ff @(posedge clk)
        if (load && 32'(load_round) == k / W && load_half == 1'(half))
          entries[load_address] <= load_entries[k % W];
      assign products[2*k + half] = entries[{bank, x[k][4*half +: 4]}];
    end
  end

  logic [NT*8-1:0] sums [GROUPS];
  for (genvar group = 0; group < GROUPS; group++) begin : g_group
    logic [NT*8-1:0] sum;
    always_comb begin
      sum = 0;
      for (int i = 6 * group; i < 6 * group + 6 && i < TABLES; i++) sum ^= products[i];
    end
    always_ff @(posedge clk) sums[group] <= sum;
  end

  logic [NT*8-1:0] total;
  always_comb begin
    total = 0;
    for (int group = 0; group < GROUPS; group++) total ^= sums[group];
  end
  always_ff @(posedge clk) y <= total;
endmodule
