//! Degree distributions of the BATS outer code, optimised for the ranks of arriving batches.
//!
//! Not on the path: `recodectl degrees`, the bench and the test that regenerates the family in
//! `recoded_code::degrees` call it; the dataplane does not link it, because it brings a linear
//! programming solver. No I/O, no clock.
//!
//! The linear program is that of Yang and Yeung ("Batched Sparse Codes", IEEE Trans. Inf. Theory
//! 60(9), 2014, section IV): belief propagation recovers the fraction `1 - eta` of K symbols from
//! K / theta batches when
//!
//! ```text
//!  Omega(x) + theta ln(1 - x) >= 0   for all x in [0, 1 - eta]
//!  Omega(x) = sum over d of psi_d omega_d(x)
//!  omega_d(x) = d * P(a batch of degree d decodes one of its symbols when each of the other d - 1
//!                     is known with probability x)
//! ```
//!
//! Divided by -ln(1 - x) it reads: choose the probabilities psi_d so that the smallest of the
//! ratios Omega(x) / -ln(1 - x) is largest. That value is theta.

#![forbid(unsafe_code)]

mod omega;

mod program;

use recoded_gf::FieldOrder;

use omega::Omega;

/// The requirements of a distribution.
#[derive(Copy, Clone, Debug)]
pub struct Problem<'a> {
    /// How often batches have rank 0, 1, .. M at the sink: `M + 1` counts or probabilities of any
    /// scale, `M` the batch size in 1..=128.
    pub ranks: &'a [f64],
    /// Field that the outer code's generators are drawn from, whatever the field of the inner code:
    /// it decides how often a batch of rank r cannot decode r unknown symbols.
    pub generator_field: FieldOrder,
    /// Fraction of the symbols that the batches may leave undecoded, 0.001..=0.5: for a precode,
    /// or for inactivation.
    pub undecoded: f64,
    /// Largest degree, 1..=65535; `None` is `ceil(M / undecoded) - 1`, beyond which a degree cannot
    /// help.
    pub degree_max: Option<usize>,
}

/// An optimal distribution.
#[derive(Clone, PartialEq, Debug)]
pub struct Optimum {
    /// Degrees that occur with their probabilities, ascending; the probabilities sum to 1.
    pub distribution: Vec<(usize, f64)>,
    /// Source symbols per batch that belief propagation reaches with exactly this distribution as
    /// their number grows.
    pub theta: f64,
    /// `theta (1 - undecoded) / expected_rank`: the share of the received rank that is not wasted.
    pub efficiency: f64,
    /// Mean rank of a batch.
    pub expected_rank: f64,
    /// Mean degree: multiply-adds per coded symbol of the outer encoder.
    pub mean_degree: f64,
}

/// The reason why there is no distribution.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum OptimiseError {
    /// Too few or too many ranks.
    #[error("{ranks} ranks: a histogram has one count for each rank 0 to M, M from 1 to 128")]
    BatchSize {
        /// Entries of the histogram.
        ranks: usize,
    },
    /// An invalid count.
    #[error("the count of rank {rank} is {count}: it must be finite and not negative")]
    Count {
        /// The rank.
        rank: usize,
        /// Its count.
        count: f64,
    },
    /// Nothing has arrived.
    #[error("no batch has a rank above 0: there is nothing to decode")]
    NoRank,
    /// The fraction is out of range.
    #[error("the undecoded fraction {undecoded} is not within 0.001 to 0.5")]
    Undecoded {
        /// The fraction.
        undecoded: f64,
    },
    /// The largest degree is out of range.
    #[error("the largest degree {degree_max} is not within 1 to 65535")]
    DegreeMax {
        /// The degree.
        degree_max: usize,
    },
    /// The solver failed.
    #[error("the linear program was not solved: {reason}")]
    Solver {
        /// The solver's message.
        reason: String,
    },
}

impl Optimum {
    /// The distribution in the format of `recoded_code::degrees::Distribution`: cumulative
    /// probabilities over 2^32, the last one `u32::MAX`. Degrees whose probability rounds to zero
    /// are left out.
    #[must_use]
    pub fn cumulative(&self) -> Vec<(u16, u32)> {
        let mut sum = 0.0;
        let mut entries: Vec<(u16, u32)> = Vec::with_capacity(self.distribution.len());
        for &(degree, probability) in &self.distribution {
            sum += probability;
            let scaled = (sum * 2_f64.powi(32) - 1.0).round() as u32;
            if entries.last().is_none_or(|last| scaled > last.1) {
                entries.push((u16::try_from(degree).unwrap_or(u16::MAX), scaled));
            }
        }
        if let Some(last) = entries.last_mut() {
            last.1 = u32::MAX;
        }
        entries
    }
}

impl Problem<'_> {
    /// The batch size M.
    #[must_use]
    pub fn batch_size(&self) -> usize {
        self.ranks.len().saturating_sub(1)
    }

    /// The largest degree considered.
    #[must_use]
    pub fn degree_max(&self) -> usize {
        let useful = || (self.batch_size() as f64 / self.undecoded).ceil() as usize - 1;
        self.degree_max.unwrap_or_else(|| useful().clamp(1, DEGREE_MAX))
    }

    fn check(&self) -> Result<(), OptimiseError> {
        if !(2..=BATCH_SIZE_MAX + 1).contains(&self.ranks.len()) {
            return Err(OptimiseError::BatchSize { ranks: self.ranks.len() });
        }
        let wrong = |count: &f64| !count.is_finite() || *count < 0.0;
        if let Some(rank) = self.ranks.iter().position(wrong) {
            return Err(OptimiseError::Count { rank, count: self.ranks[rank] });
        }
        if self.ranks[1..].iter().all(|&count| count == 0.0) {
            return Err(OptimiseError::NoRank);
        }
        if !(UNDECODED_MIN..=UNDECODED_MAX).contains(&self.undecoded) {
            return Err(OptimiseError::Undecoded { undecoded: self.undecoded });
        }
        match self.degree_max {
            Some(degree_max) if !(1..=DEGREE_MAX).contains(&degree_max) => {
                Err(OptimiseError::DegreeMax { degree_max })
            }
            _ => Ok(()),
        }
    }
}

/// Finds the distribution with the largest theta. Takes a fifth of a second for M = 16 and 1 %,
/// four for M = 128, half a minute for M = 128 and 0.1 %.
///
/// # Errors
/// The problem is malformed, or cannot be solved.
pub fn optimise(problem: &Problem<'_>) -> Result<Optimum, OptimiseError> {
    problem.check()?;
    let order = f64::from(problem.generator_field.order());
    // Batches of rank 0 only scale theta; without them the program's numbers keep their magnitude.
    let mut arrived = problem.ranks.to_vec();
    arrived[0] = 0.0;
    let distribution = program::solve(problem, &Omega::new(&arrived, order))?;
    Ok(optimum(problem, &Omega::new(problem.ranks, order), &distribution))
}

/// The theta of any distribution: pairs of a degree and its probability or weight.
///
/// # Errors
/// The problem is malformed. Its `degree_max` is ignored.
pub fn theta(problem: &Problem<'_>, distribution: &[(usize, f64)]) -> Result<f64, OptimiseError> {
    problem.check()?;
    let omega = Omega::new(problem.ranks, f64::from(problem.generator_field.order()));
    Ok(program::theta(&omega, problem.undecoded, &normalised(distribution)))
}

fn optimum(problem: &Problem<'_>, omega: &Omega, found: &[(usize, f64)]) -> Optimum {
    let distribution = normalised(found);
    let theta = program::theta(omega, problem.undecoded, &distribution);
    let expected_rank = mean(problem.ranks.iter().copied().enumerate());
    Optimum {
        theta,
        efficiency: theta * (1.0 - problem.undecoded) / expected_rank,
        expected_rank,
        mean_degree: mean(distribution.iter().copied()),
        distribution,
    }
}

fn normalised(distribution: &[(usize, f64)]) -> Vec<(usize, f64)> {
    let total: f64 = distribution.iter().map(|(_, weight)| weight).sum();
    let scaled = distribution.iter().map(|&(degree, weight)| (degree, weight / total));
    let mut sorted: Vec<_> = scaled.collect();
    sorted.sort_by_key(|entry| entry.0);
    sorted
}

fn mean(weighted: impl Iterator<Item = (usize, f64)>) -> f64 {
    let sums = weighted.fold((0.0, 0.0), |(sum, total), (value, weight)| {
        (sum + value as f64 * weight, total + weight)
    });
    sums.0 / sums.1
}

/// The wire format has seven bits for the batch size.
const BATCH_SIZE_MAX: usize = 128;

/// Users of degrees have 16 bits for them, as there are at most 65536 symbols in a block.
const DEGREE_MAX: usize = 65_535;

/// With less, degrees exceed their 16 bits and the program takes more than a minute.
const UNDECODED_MIN: f64 = 0.001;

/// With more, the precode would be the code.
const UNDECODED_MAX: f64 = 0.5;
