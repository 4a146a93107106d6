// Memories of 32 times two bits in the LUTs of UltraScale and UltraScale+: all are written at the
// same address, each is read at its own.
//
// A slice has eight LUTs, of which one brings the address for writing, so seven go into a cell.
// Yosys would give each width of a memory cells of its own, and fill half of them.
module table_memory #(
  parameter int COUNT = 7,
  localparam int CELLS = (COUNT + 6) / 7
) (
  input  logic                  clk,
  input  logic                  write,
  input  logic [4:0]            write_address,
  input  logic [COUNT-1:0][1:0] in,
  input  logic [COUNT-1:0][4:0] address,
  output logic [COUNT-1:0][1:0] out
);
  logic [7*CELLS-1:0][1:0] all_in, all_out;
  logic [7*CELLS-1:0][4:0] all_address;
  assign all_in = (14*CELLS)'(in);
  assign all_address = (35*CELLS)'(address);
  assign out = all_out[COUNT-1:0];
  for (genvar i = 0; i < CELLS; i++) begin : g_cell
    logic [1:0] unused;
    RAM32M16 u_cell (
      .WCLK(clk), .WE(write), .ADDRH(write_address), .DIH(2'd0), .DOH(unused),
      .ADDRA(all_address[7*i]), .DIA(all_in[7*i]), .DOA(all_out[7*i]),
      .ADDRB(all_address[7*i+1]), .DIB(all_in[7*i+1]), .DOB(all_out[7*i+1]),
      .ADDRC(all_address[7*i+2]), .DIC(all_in[7*i+2]), .DOC(all_out[7*i+2]),
      .ADDRD(all_address[7*i+3]), .DID(all_in[7*i+3]), .DOD(all_out[7*i+3]),
      .ADDRE(all_address[7*i+4]), .DIE(all_in[7*i+4]), .DOE(all_out[7*i+4]),
      .ADDRF(all_address[7*i+5]), .DIF(all_in[7*i+5]), .DOF(all_out[7*i+5]),
      .ADDRG(all_address[7*i+6]), .DIG(all_in[7*i+6]), .DOG(all_out[7*i+6])
    );
  end
endmodule
