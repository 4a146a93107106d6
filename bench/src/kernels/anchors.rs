//! Figures that this program does not measure: the paper's, and those of the paper's own library,
//! taken once on the same class of machine (AMD EPYC, Zen 4, one core of a virtual machine).

use recoded_gf::Field;

/// A figure that was not measured in this run.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Anchor {
    /// Whose it is, and that it is not of this run.
    pub name: &'static str,
    /// The figure, in the unit of the row.
    pub median: f64,
}

/// Packet sizes of the paper's benchmark with available figures, in bytes.
pub const PAPER_BYTES: [usize; 7] = [128, 256, 512, 1024, 2048, 4096, 8192];

/// The paper's fields in its order, as its library packs them, modulo its polynomials.
pub const PAPER_FIELDS: [Field; 4] =
    [Field::PackedGf2, Field::PackedGf4x7, Field::PackedGf16x13, Field::Gf256x11B];

/// Name of a field in the paper.
pub fn paper_name(field: Field) -> String {
    format!("GF({})", field.order())
}

/// 16 packets into one, coded Gbit/s, by packet size and field: the fastest algorithm of the
/// paper's library for each, which must be selected manually.
const LIBRARY_GBIT: [[f64; 4]; 7] = [
    [10.5, 9.1, 13.0, 16.7],
    [17.7, 14.5, 19.5, 25.6],
    [30.2, 20.7, 24.3, 29.7],
    [46.9, 34.8, 29.8, 39.8],
    [65.5, 41.3, 33.9, 46.4],
    [79.7, 45.0, 35.1, 50.3],
    [91.0, 47.4, 35.0, 52.8],
];

/// The paper's library in the paper's benchmark.
pub fn library(field: Field, bytes: usize) -> Option<Anchor> {
    let row = PAPER_BYTES.iter().position(|size| *size == bytes)?;
    let column = PAPER_FIELDS.iter().position(|other| *other == field)?;
    Some(Anchor { name: LIBRARY, median: LIBRARY_GBIT[row][column] })
}

/// Name of the library's figures.
pub const LIBRARY: &str = "paper's library (measured earlier, same machine class)";

/// Figure 2 of the paper: processors, and coded Gbit/s over GF(2), GF(4), GF(16), GF(256), each
/// with the fastest algorithm, as the mean over packet sizes while the data fit the second-level
/// cache.
pub const PAPER_PROCESSORS: [(&str, [f64; 4]); 8] = [
    ("Xeon Gold 6130", [84.8, 42.5, 31.3, 29.6]),
    ("Xeon D-2166NT", [68.7, 34.1, 25.7, 23.6]),
    ("Xeon Silver 4110", [65.2, 31.7, 23.9, 22.7]),
    ("Xeon E5-2699 v3", [58.9, 22.8, 17.8, 16.0]),
    ("Xeon E5-2650", [23.8, 8.3, 5.6, 5.1]),
    ("Ryzen 1700", [34.8, 15.5, 11.1, 10.3]),
    ("Epyc 7601", [25.5, 12.7, 9.4, 8.8]),
    ("BCM2711", [7.5, 2.0, 1.3, 1.1]),
];

/// The paper's library at the level of this name, in the paper's benchmark. Over GF(2) it has no
/// such levels, because a product is either nothing or a sum.
pub fn same_level(level: &str, field: Field, bytes: usize) -> Option<Anchor> {
    let column = PAPER_BYTES.iter().position(|size| *size == bytes)?;
    let mut rows = LEVELS.iter().filter(|(name, of, _)| *name == level && *of == field);
    rows.next().map(|(_, _, row)| Anchor { name: LIBRARY, median: row[column] })
}

/// Coded Gbit/s of the library's levels by packet size. Library of 2021-12-08 (087f142), gcc 12.2
/// -O2; 64 KiB of random coefficients in turns, as here.
const LEVELS: [(&str, Field, [f64; 7]); 20] = [
    ("sse2-imul", Field::PackedGf4x7, [7.8, 11.8, 15.1, 18.8, 20.7, 22.0, 22.8]),
    ("sse2-imul", Field::PackedGf16x13, [5.8, 6.9, 7.6, 8.0, 8.1, 8.3, 8.4]),
    ("sse2-imul", Field::Gf256x11B, [2.8, 3.2, 3.4, 3.5, 3.5, 3.6, 3.6]),
    ("avx2-imul", Field::PackedGf4x7, [9.2, 15.6, 23.2, 32.3, 38.8, 42.1, 44.7]),
    ("avx2-imul", Field::PackedGf16x13, [8.9, 11.9, 13.9, 15.4, 16.0, 16.3, 16.6]),
    ("avx2-imul", Field::Gf256x11B, [4.4, 5.4, 6.1, 6.7, 7.1, 7.2, 7.3]),
    ("avx512-imul", Field::PackedGf4x7, [9.9, 16.0, 21.1, 30.5, 38.9, 43.7, 46.7]),
    ("avx512-imul", Field::PackedGf16x13, [10.4, 13.6, 15.5, 16.8, 17.4, 17.8, 17.9]),
    ("avx512-imul", Field::Gf256x11B, [5.1, 6.3, 7.2, 7.7, 8.0, 8.1, 8.2]),
    ("ssse3-shuffle", Field::PackedGf4x7, [7.5, 11.0, 14.2, 17.2, 19.0, 19.9, 20.5]),
    ("ssse3-shuffle", Field::PackedGf16x13, [8.6, 10.6, 12.1, 13.3, 13.8, 14.1, 14.2]),
    ("ssse3-shuffle", Field::Gf256x11B, [8.9, 10.6, 11.8, 12.4, 12.6, 12.8, 13.0]),
    ("avx2-shuffle", Field::PackedGf4x7, [9.2, 15.8, 22.9, 32.4, 38.7, 42.3, 44.7]),
    ("avx2-shuffle", Field::PackedGf16x13, [13.3, 20.2, 23.6, 29.8, 31.6, 32.6, 32.9]),
    ("avx2-shuffle", Field::Gf256x11B, [15.3, 22.0, 24.6, 29.5, 29.8, 30.3, 29.9]),
    ("avx512-shuffle", Field::PackedGf4x7, [9.9, 16.6, 22.2, 31.5, 39.5, 43.9, 46.8]),
    ("avx512-shuffle", Field::PackedGf16x13, [13.7, 22.1, 22.2, 29.5, 33.9, 35.2, 35.8]),
    ("avx512-shuffle", Field::Gf256x11B, [14.2, 24.6, 21.7, 29.0, 32.8, 33.2, 33.4]),
    ("avx2-gfni", Field::Gf256x11B, [20.5, 32.2, 31.2, 37.4, 50.4, 52.3, 54.2]),
    ("avx512-gfni", Field::Gf256x11B, [16.3, 31.0, 26.2, 33.5, 45.9, 46.4, 46.7]),
];

/// Multiply-add of the paper's library over GF(256) at one of its levels, GB/s of the source.
pub fn forced_madd() -> impl Iterator<Item = (&'static str, usize, Anchor)> {
    MADD.into_iter().map(|(level, bytes, median)| (level, bytes, Anchor { name: LIBRARY, median }))
}

const MADD: [(&str, usize, f64); 6] = [
    ("ssse3-shuffle", 256, 20.8),
    ("ssse3-shuffle", 1536, 25.1),
    ("ssse3-shuffle", 4096, 25.8),
    ("avx2-shuffle", 256, 40.8),
    ("avx2-shuffle", 1536, 60.6),
    ("avx2-shuffle", 4096, 62.3),
];
