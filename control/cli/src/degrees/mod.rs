//! `recodectl degrees`: computes the degree distribution of a BATS outer code for measured ranks,
//! without a daemon.
//!
//! ```text
//!  file or `recodectl --json show` --histogram--> ranks --recoded_degrees--> DegreeReport --> show
//! ```

mod histogram;
mod options;
mod show;

use recoded_api::exit;
use recoded_degrees::{OptimiseError, Problem, optimise};
use serde::Serialize;

pub use histogram::HistogramError;
pub use options::{DegreeOptions, EXAMPLES};
pub use show::text;

/// Why there is no distribution.
#[derive(Debug, thiserror::Error)]
pub enum DegreesError {
    /// The histogram cannot be used.
    #[error(transparent)]
    Histogram(#[from] HistogramError),
    /// The optimiser refuses, or fails.
    #[error(transparent)]
    Optimise(#[from] OptimiseError),
}

impl DegreesError {
    /// Options out of range are command line errors; bad file content is not.
    pub fn exit_code(&self) -> u8 {
        match self {
            DegreesError::Optimise(
                OptimiseError::Undecoded { .. } | OptimiseError::DegreeMax { .. },
            ) => exit::USAGE,
            _ => exit::FAILED,
        }
    }
}

/// The result, as serialised to JSON.
#[derive(Serialize)]
pub struct DegreeReport {
    batch_size: usize,
    /// Batches counted.
    batches: u64,
    field: u16,
    eta: f64,
    degree_max: usize,
    /// Mean rank of the batches.
    expected_rank: f64,
    /// Symbols recovered per batch.
    theta: f64,
    /// theta (1 - eta) / expected_rank.
    efficiency: f64,
    mean_degree: f64,
    distribution: Vec<Entry>,
}

/// One degree.
#[derive(Serialize)]
struct Entry {
    degree: usize,
    probability: f64,
    /// Cumulative probability up to and including this degree, times 2^32, less one: the form that
    /// `recoded_code::degrees` draws from.
    cumulative: u32,
}

/// Reads the histogram and optimises for it.
///
/// # Errors
/// The file cannot be read or holds no histogram; an option is out of range.
pub fn report(options: &DegreeOptions) -> Result<DegreeReport, DegreesError> {
    let counts = histogram::read(&options.rank_histogram, options.flow, options.batch_size)?;
    let ranks: Vec<f64> = counts.iter().map(|&count| count as f64).collect();
    let problem = Problem {
        ranks: &ranks,
        generator_field: options.field,
        undecoded: options.eta,
        degree_max: options.max_degree,
    };
    let found = optimise(&problem)?;
    let entries = found.distribution.iter().zip(found.cumulative());
    let entry =
        |(&(degree, probability), (_, cumulative))| Entry { degree, probability, cumulative };
    Ok(DegreeReport {
        batch_size: problem.batch_size(),
        batches: counts.iter().fold(0, |sum: u64, &count| sum.saturating_add(count)),
        field: options.field.order(),
        eta: options.eta,
        degree_max: problem.degree_max(),
        expected_rank: found.expected_rank,
        theta: found.theta,
        efficiency: found.efficiency,
        mean_degree: found.mean_degree,
        distribution: entries.map(entry).collect(),
    })
}
