//! LUTs per product of a coefficient and a byte per clock, from the counts that `scripts/fpga`
//! keeps in sync with the RTL.

use serde::Serialize;

const ENGINE: &str = include_str!("../../../kernels/fpga/syn/counts.csv");
const SEED: &str = include_str!("../../../kernels/fpga/syn/seed.csv");

/// An array of multiply-adds.
#[derive(Serialize)]
pub struct MultiplierArray {
    pub name: &'static str,
    pub luts: u32,
    pub products: u32,
    pub luts_per_product: f64,
}

/// Synthesis results of an array.
struct Synthesis {
    /// Name in the table.
    name: &'static str,
    /// File of counts.
    counts: &'static str,
    /// Prefix of the names of its blocks in that file.
    prefix: &'static str,
    /// Products per clock.
    products: u32,
}

const fn of_seed(name: &'static str, prefix: &'static str) -> Synthesis {
    Synthesis { name, counts: SEED, prefix, products: 64 }
}

const ARRAYS: [Synthesis; 5] = [
    Synthesis {
        name: "Recoded, any coefficient",
        counts: ENGINE,
        prefix: "engine.u_tile",
        products: 1024,
    },
    of_seed("the paper's, 8 bits", "systolic_tile_8"),
    of_seed("the paper's, 4 bits", "systolic_tile_4"),
    of_seed("the paper's, 3 bits", "systolic_tile_3"),
    of_seed("the paper's, 2 bits", "systolic_tile_2"),
];

/// LUTs equivalent to one memory cell.
const LUTS_PER_MEMORY: u32 = 8;

/// All arrays.
pub fn rows() -> Vec<MultiplierArray> {
    let row = |Synthesis { name, counts, prefix, products }| {
        let luts = counts.lines().filter(|line| line.starts_with(prefix)).map(luts).sum();
        MultiplierArray {
            name,
            luts,
            products,
            luts_per_product: f64::from(luts) / f64::from(products),
        }
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
pub fn table(rows: &[MultiplierArray]) -> String {
    let line = |row: &MultiplierArray| {
        let MultiplierArray { name, luts, products, luts_per_product } = row;
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
