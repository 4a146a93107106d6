// LANES byte positions of KT source rows in, of NT destination rows out, every clock.
//
//   x -> planes -> leaves | -> leaf_products | -> polynomials | -> output_map | -> y
//
// A byte of GF(256) is a polynomial over GF(2) of degree 7, and so is a coefficient. Karatsuba's
// formula multiplies two of them by 27 products of bits instead of 64. The sums before are
// formed once for each source byte, those afterwards once for each destination byte. Between the
// two each coefficient costs 27 bits of tables.
//
// Smaller fields are packed. A level of Karatsuba's that would join elements only passes on its two
// halves: the coefficient stands in both halves, so that the products of their sum are zero.
module tile
  import engine_pkg::*;
#(
  parameter int LANES = 4,
  parameter int KT = 16,
  parameter int NT = 16,
  localparam int GROUP_BITS = $clog2(KT / GROUP)
) (
  input  logic                          clk,
  input  logic                          bank,
  input  logic [LANES-1:0][KT-1:0][7:0] x,
  // Sums so far, three clocks after x, and whether there are none.
  input  logic                          first,
  input  logic [511:0]                  so_far,
  // Four clocks after x: byte [lane][destination].
  output logic [511:0]                  y,
  input  logic                          load,
  input  logic [GROUP_BITS-1:0]         load_group,
  input  logic [4:0]                    load_address,
  input  logic [1:0]                    load_field,
  input  logic [LEAVES-1:0][NT-1:0]     load_entries,
  input  logic                          load_map,
  input  logic [31:0]                   load_map_entries
);
  logic [511:0] bytes;
  assign bytes = x;
  logic [7:0][63:0] planes;
  always_comb
    for (int j = 0; j < 8; j++) begin
      logic [63:0] turned;
      turned = transpose(bytes[64*j +: 64]);
      for (int i = 0; i < 8; i++) planes[i][8*j +: 8] = turned[8*i +: 8];
    end
  logic [LEAVES-1:0][63:0] leaf_now, leaf, product;
  leaves #(.WIDTH(64)) u_leaves (.planes, .leaf(leaf_now));
  logic bank_leaf, bank_product, bank_term;
  always_ff @(posedge clk) begin
    leaf <= leaf_now;
    bank_leaf <= bank;
    bank_product <= bank_leaf;
    bank_term <= bank_product;
  end

  leaf_products #(.LANES(LANES), .KT(KT), .NT(NT)) u_products (
    .clk, .bank(bank_leaf), .leaf, .product, .load, .load_group, .load_address, .load_entries
  );

  // Which levels join: nibbles for GF(256), pairs of bits for GF(256) and GF(16).
  logic [1:0][1:0] fields;
  always_ff @(posedge clk) if (load) fields[load_address[4]] <= load_field;
  logic joins_nibbles, joins_pairs;
  assign joins_nibbles = fields[bank_product] == 0;
  assign joins_pairs = fields[bank_product] <= 1;

  // Polynomials of degree 2 to those of degree 6, and these to one of degree 14.
  logic [2:0][6:0][63:0] sixth;
  logic [TERMS-1:0][63:0] term_now, term;
  always_comb begin
    for (int a = 0; a < 3; a++) begin
      logic [2:0][63:0] middle;
      for (int i = 0; i < 3; i++)
        middle[i] = product[9*a + 6 + i]
          ^ ((product[9*a + i] ^ product[9*a + 3 + i]) & {64{joins_pairs}});
      sixth[a][0] = product[9*a];
      sixth[a][1] = product[9*a + 1];
      sixth[a][2] = product[9*a + 2] ^ middle[0];
      sixth[a][3] = middle[1];
      sixth[a][4] = product[9*a + 3] ^ middle[2];
      sixth[a][5] = product[9*a + 4];
      sixth[a][6] = product[9*a + 5];
    end
    term_now = 0;
    for (int i = 0; i < 7; i++) begin
      logic [63:0] middle;
      middle = sixth[2][i] ^ ((sixth[0][i] ^ sixth[1][i]) & {64{joins_nibbles}});
      term_now[i] ^= sixth[0][i];
      term_now[4 + i] ^= middle;
      term_now[8 + i] ^= sixth[1][i];
    end
  end
  always_ff @(posedge clk) term <= term_now;

  output_map u_map (
    .clk, .bank(bank_term), .term, .first, .so_far, .y,
    .load(load_map), .load_address, .load_entries(load_map_entries)
  );
endmodule
