// What AMD's cell of this name does: eight LUTs as memories of 32 times two bits, written at ADDRH,
// each read at its own address. For simulation; for synthesis a box, as Yosys and Vivado have their
// own.
(* blackbox *)
module RAM32M16 (
  input  logic       WCLK,
  input  logic       WE,
  input  logic [4:0] ADDRA, ADDRB, ADDRC, ADDRD, ADDRE, ADDRF, ADDRG, ADDRH,
  input  logic [1:0] DIA, DIB, DIC, DID, DIE, DIF, DIG, DIH,
  output logic [1:0] DOA, DOB, DOC, DOD, DOE, DOF, DOG, DOH
);
`ifndef SYNTHESIS
  logic [15:0] entries [32];
  always_ff @(posedge WCLK)
    if (WE) entries[ADDRH] <= {DIH, DIG, DIF, DIE, DID, DIC, DIB, DIA};
  assign DOA = entries[ADDRA][1:0];
  assign DOB = entries[ADDRB][3:2];
  assign DOC = entries[ADDRC][5:4];
  assign DOD = entries[ADDRD][7:6];
  assign DOE = entries[ADDRE][9:8];
  assign DOF = entries[ADDRF][11:10];
  assign DOG = entries[ADDRG][13:12];
  assign DOH = entries[ADDRH][15:14];
`endif
endmodule
