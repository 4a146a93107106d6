//! Figures that this program does not measure: the paper's, and those of the paper's own library,
//! taken once on the same class of machine (AMD EPYC, Zen 4, one core of a virtual machine).

use recoded_gf::Field;

use crate::kernels::contest::Anchor;

/// The packet sizes of the paper's benchmark that there are figures for, in bytes.
pub const PAPER_BYTES: [usize; 7] = [128, 256, 512, 1024, 2048, 4096, 8192];

/// The paper's fields, in its order: how its library packs them, modulo its polynomials.
pub const PAPER_FIELDS: [Field; 4] =
    [Field::PackedGf2, Field::PackedGf4x7, Field::PackedGf16x13, Field::Gf256x11B];

/// What a field is called in the paper.
pub fn paper_name(field: Field) -> String {
    format!("GF({})", field.order())
}

/// 16 packets into one, coded Gbit/s, by packet size and field: for each the fastest algorithm of
/// the paper's library, which it does not find by itself.
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

/// What the library's figures are called.
pub const LIBRARY: &str = "paper's library (measured earlier, same machine class)";

/// Figure 2 of the paper: processors, and coded Gbit/s over GF(2), GF(4), GF(16), GF(256), each with
/// the fastest algorithm, as the mean over packet sizes while the data fit the second-level cache.
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

/// A figure of the paper's library at one level of its own, to compare a forced level of ours with.
#[derive(Copy, Clone)]
pub struct Forced {
    /// The level.
    pub level: &'static str,
    /// The field.
    pub field: Field,
    /// Packets that are combined; 1 for a multiply-add alone.
    pub n: usize,
    /// Bytes of a packet.
    pub bytes: usize,
    /// The figure, in GB/s of the source for a multiply-add, else in coded Gbit/s.
    pub anchor: Anchor,
}

impl Forced {
    /// What the job is called.
    pub fn name(&self) -> &'static str {
        if self.n == 1 { "madd" } else { "16 packets into one" }
    }
}

/// All of them.
pub fn forced() -> impl Iterator<Item = Forced> {
    MADD_AVX2.iter().map(|(bytes, median)| Forced {
        level: "avx2-shuffle",
        field: Field::Gf256x11B,
        n: 1,
        bytes: *bytes,
        anchor: Anchor { name: LIBRARY, median: *median },
    })
}

/// `shuffle_avx2` of the library: bytes, GB/s of the source.
const MADD_AVX2: [(usize, f64); 3] = [(256, 36.7), (1536, 60.0), (4096, 61.1)];
