//! LUTs per product of a coefficient and a byte per clock, from the counts that `scripts/fpga`
//! keeps in sync with the RTL.

use serde::Serialize;

const ENGINE: &str = include_str!("../../../kernels/fpga/syn/counts.csv");
const SEED: &str = include_str!("../../../kernels/fpga/syn/seed.csv");

/// An array of multiply-adds.
#[derive(Serialize)]
pub struct Row {
    pub name: &'static str,
    pub luts: u32,
    pub products: u32,
    pub luts_per_product: f64,
}

/// Name in the table, prefix of the blocks' names in the counts, products per clock.
const ARRAYS: [(&str, &str, &str, u32); 5] = [
    ("Recoded, any coefficient", ENGINE, "engine.u_tile", 1024),
    ("the paper's, 8 bits", SEED, "systolic_tile_8", 64),
    ("the paper's, 4 bits", SEED, "systolic_tile_4", 64),
    ("the paper's, 3 bits", SEED, "systolic_tile_3", 64),
    ("the paper's, 2 bits", SEED, "systolic_tile_2", 64),
];

/// LUTs equivalent to one memory cell.
const LUTS_PER_MEMORY: u32 = 8;

/// All arrays.
pub fn rows() -> Vec<Row> {
    let row = |(name, counts, prefix, products): (_, &str, &str, u32)| {
        let luts = counts.lines().filter(|line| line.starts_with(prefix)).map(luts).sum();
        Row { name, luts, products, luts_per_product: f64::from(luts) / f64::from(products) }
    };
    ARRAYS.map(row).into()
}

/// Of a line: name, LUTs, memories, and so on.
fn luts(line: &str) -> u32 {
    let mut numbers = line.split(',').skip(1).map(|number| number.parse().unwrap_or(0));
    let (luts, memories) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    luts + LUTS_PER_MEMORY * memories
}

/// A table of them.
pub fn table(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let Row { name, luts, products, luts_per_product } = row;
        format!("| {name} | {luts} | {products} | {luts_per_product:.1} |")
    };
    let head = "| array | LUTs | products a clock | LUTs each |\n|---|---|---|---|".to_owned();
    [head].into_iter().chain(rows.iter().map(line)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_array_is_in_the_counts() {
        for row in rows() {
            assert!(row.luts > 0, "{}: not in the counts", row.name);
        }
    }

    /// The aim: 14 LUTs with no restriction on coefficients.
    #[test]
    fn ours_is_within_its_aim() {
        assert!(rows()[0].luts_per_product <= 14.0);
    }
}
