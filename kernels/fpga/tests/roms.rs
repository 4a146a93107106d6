//! The base graph and the generators in `rtl/seed/rom_pkg.sv` are those of the codec.

use std::fmt::Write;
use std::{env, fs};

use recoded_code::bats::{Batch, Code, PAPER_ROW_DEGREES, Params};

fn code(generator_bits: u8) -> Code {
    let params = Params { generator_bits, ..Params::default() };
    Code::with_row_degrees(params, &PAPER_ROW_DEGREES).expect("the paper's parameters are valid")
}

fn system_verilog() -> String {
    let graph = code(8);
    let graph = graph.base_graph().expect("it is cyclic");
    let rows = graph.rows();
    let edges: usize = (0..rows).map(|row| graph.row(row).len()).sum();
    let starts = (0..rows).map(|row| (0..row).map(|row| graph.row(row).len()).sum());
    let degrees = (0..rows).map(|row| graph.row(row).len());
    let mut text = String::from(
        "// Written by `RECODED_BLESS=1 cargo test -p recoded-fpga --test roms` from the codec's own\n\
         // code: 256 packets, batches of 16, the paper's row degrees.\n\
         package rom_pkg;\n",
    );
    let _ = writeln!(text, "  localparam int ROWS = {rows};\n  localparam int EDGES = {edges};");
    text += "  // Degrees of the rows, ascending; where a row's edges begin; the packet at each edge.\n  // The last comes first.\n";
    text += &list("DEGREE", 5, degrees);
    text += &list("START", 7, starts);
    text += &list("PLACES", 8, (0..rows).flat_map(|row| graph.row(row)).map(|&at| at.into()));
    text += "  // At each edge, the coefficients of the 16 coded packets.\n";
    for bits in [2, 3, 4, 8] {
        text += &generators(bits, rows, edges);
    }
    text + "endpackage\n"
}

fn list(name: &str, bits: usize, values: impl Iterator<Item = usize>) -> String {
    let mut values: Vec<String> = values.map(|value| format!("{bits}'d{value}")).collect();
    values.reverse();
    let lines: Vec<String> = values.chunks(8).map(|line| line.join(", ")).collect();
    let last = values.len() - 1;
    let lines = lines.join(",\n    ");
    format!("  localparam logic [{last}:0][{}:0] {name} = {{\n    {lines}\n  }};\n", bits - 1)
}

fn generators(bits: u8, rows: usize, edges: usize) -> String {
    let (code, mut batch) = (code(bits), Batch::new());
    let mut columns = Vec::new();
    for row in 0..rows {
        code.batch(row as u16, &mut batch);
        let degree = batch.degree();
        for edge in 0..degree {
            let coefficients = batch.generator().iter().skip(edge).step_by(degree);
            let column = coefficients
                .rev()
                .fold(0, |column, &coefficient| column << bits | u128::from(coefficient));
            let (width, digits) = (16 * usize::from(bits), 4 * usize::from(bits));
            columns.push(format!("{width}'h{column:0digits$x}"));
        }
    }
    columns.reverse();
    let per_line = 16 / usize::from(bits);
    let lines: Vec<String> = columns.chunks(per_line).map(|line| line.join(", ")).collect();
    let (width, last) = (16 * usize::from(bits) - 1, edges - 1);
    let lines = lines.join(",\n    ");
    format!("  localparam logic [{last}:0][{width}:0] GENERATORS_{bits} = {{\n    {lines}\n  }};\n")
}

#[test]
fn roms_are_those_of_the_codec() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/rtl/seed/rom_pkg.sv");
    if env::var_os("RECODED_BLESS").is_some() {
        fs::write(path, system_verilog()).expect("the sources are writable");
    }
    let kept = fs::read_to_string(path).expect("the package is part of the sources");
    assert_eq!(kept, system_verilog(), "RECODED_BLESS=1 writes it");
}

/// So that the longest row is the last to wait.
#[test]
fn rows_are_in_the_order_of_their_degrees() {
    assert!(PAPER_ROW_DEGREES.is_sorted());
}
