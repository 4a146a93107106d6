//! The jobs: inputs, expected results, and contestants.

mod build;
mod decoding;
mod workload;

pub use build::{Setting, build};
pub use decoding::Decoding;
pub use workload::{Workload, combine_11b};

use serde::Serialize;

/// A part of the benchmark.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Section {
    /// `dst += c * src`, by length.
    Madd,
    /// The paper's benchmark: 16 packets into one.
    Paper,
    /// Forced levels, compared with the paper's library at the same level.
    Forced,
    /// As many coded symbols as source symbols.
    Encode,
    /// The same, with 16 symbols of any length.
    Lengths,
    /// The same, between frames of a UMEM.
    Umem,
    /// The same, with coefficients 0 and 1.
    Binary,
    /// The same, by every level.
    Levels,
    /// Inversion, and one product.
    Decode,
    /// Fresh packets from as many held, vectors included.
    Recode,
    /// Inversion alone.
    Invert,
}

impl Section {
    /// All, in the order of the report.
    pub const ALL: [Section; 11] = [
        Section::Madd,
        Section::Paper,
        Section::Forced,
        Section::Encode,
        Section::Lengths,
        Section::Umem,
        Section::Binary,
        Section::Levels,
        Section::Decode,
        Section::Recode,
        Section::Invert,
    ];

    /// Heading of its table.
    pub fn title(self) -> &'static str {
        match self {
            Section::Madd => "dst += c * src, by length (GB/s of the source)",
            Section::Paper => "The paper's benchmark: 16 packets into one",
            Section::Forced => "Forced levels: dst += c * src (GB/s of the source)",
            Section::Encode => "n symbols into n",
            Section::Lengths => "16 symbols into 16, any length",
            Section::Umem => "n symbols into n, between frames of a UMEM",
            Section::Binary => "n symbols into n, coefficients 0 and 1",
            Section::Levels => "16 symbols into 16, by level",
            Section::Decode => "Decode: inversion of the vectors and one product",
            Section::Recode => "Recode: n fresh packets from n, vectors included",
            Section::Invert => "Inversion alone (inversions/s)",
        }
    }
}
