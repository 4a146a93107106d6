//! One job on one block: its contestants and its results.

use serde::Serialize;

use crate::bats::block::{Block, BlockShape, Variant};
use crate::bats::{decode, encode};
use crate::error::BenchError;
use crate::kernels::contest::{Contestant, LeftOut, Role};
use crate::kernels::limits::Ceiling;

/// A job; this project's contestant comes first.
pub struct BatsContest {
    job: Task,
    shape: BlockShape,
    variant: Variant,
    mean_degree: f64,
    contestants: Vec<Contestant>,
    left_out: Vec<String>,
    targets: &'static [Target],
}

/// Kind of job.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    Encode,
    Decode,
}

/// Target for this project's contestant.
#[derive(Copy, Clone, Serialize)]
pub struct Target {
    /// Quantity, with its unit.
    pub what: &'static str,
    /// The rival to compare with; none if the target is a rate.
    #[serde(skip)]
    beside: Option<Role>,
    /// The least that is enough.
    pub at_least: f64,
}

/// A row in numbers.
#[derive(Serialize)]
pub struct Measured {
    pub job: Task,
    pub code: &'static str,
    #[serde(flatten)]
    pub shape: BlockShape,
    pub mean_degree: f64,
    pub unit: &'static str,
    pub contestants: Vec<Figures>,
    pub targets: Vec<Verdict>,
    pub left_out: Vec<String>,
}

/// One of those measured.
#[derive(Serialize)]
pub struct Figures {
    pub name: String,
    pub role: Role,
    pub median: f64,
    pub best: f64,
    /// Ratios to this contestant per round: median, 10th and 90th percentile.
    pub ours_to_it: f64,
    pub ours_to_it_low: f64,
    pub ours_to_it_high: f64,
    pub samples: Vec<f64>,
}

/// A target and the measured value.
#[derive(Serialize)]
pub struct Verdict {
    #[serde(flatten)]
    pub target: Target,
    pub measured: f64,
    pub met: bool,
}

/// All rows for blocks of one shape: the code that the targets refer to, and for the targets' shape
/// the other codes too.
///
/// # Errors
/// If this project's code computes a wrong result.
pub fn build(
    shape: BlockShape,
    seed: u64,
    products: Ceiling,
) -> Result<Vec<BatsContest>, BenchError> {
    let block = Block::draw(shape, seed);
    let variants: &[Variant] = match shape == BlockShape::TARGET {
        true => &Variant::ALL,
        false => &[Variant::DEFAULT],
    };
    let mut rows = Vec::new();
    for &variant in variants {
        rows.push(BatsContest::encode(variant, &block, products)?);
        rows.push(BatsContest::decode(variant, &block)?);
    }
    Ok(rows)
}

impl BatsContest {
    fn encode(
        variant: Variant,
        block: &Block,
        products: Ceiling,
    ) -> Result<BatsContest, BenchError> {
        let code = variant.code(block.shape)?;
        let mean_degree = code.mean_degree();
        let ceiling = products.contestant(block.shape.bytes, 8.0 / mean_degree);
        let contestants = vec![encode::contestant(code, block)?, ceiling];
        let row = BatsContest::new(Task::Encode, variant, block, mean_degree, contestants);
        Ok(row.challenge(encode::raptorq(block)))
    }

    fn decode(variant: Variant, block: &Block) -> Result<BatsContest, BenchError> {
        let code = variant.code(block.shape)?;
        let mean_degree = code.mean_degree();
        let contestants = vec![decode::contestant(code, block)?];
        let row = BatsContest::new(Task::Decode, variant, block, mean_degree, contestants);
        Ok(row.challenge(decode::raptorq(block)).challenge(decode::raptorq_repair(block)))
    }

    fn new(
        job: Task,
        variant: Variant,
        block: &Block,
        mean_degree: f64,
        contestants: Vec<Contestant>,
    ) -> BatsContest {
        let shape = block.shape;
        let targets: &[Target] =
            match (job, shape == BlockShape::TARGET && variant == Variant::DEFAULT) {
                (_, false) => &[],
                (Task::Encode, true) => &ENCODE_TARGETS,
                (Task::Decode, true) => &DECODE_TARGETS,
            };
        BatsContest { job, shape, variant, mean_degree, contestants, left_out: Vec::new(), targets }
    }

    fn challenge(mut self, rival: Result<Contestant, LeftOut>) -> BatsContest {
        match rival {
            Ok(rival) => self.contestants.push(rival),
            Err(LeftOut(reason)) => self.left_out.push(reason),
        }
        self
    }

    /// Takes one sample of each, another one first in each round.
    pub fn round(&mut self, round: usize, seconds: f64) {
        let count = self.contestants.len();
        for turn in 0..count {
            self.contestants[(turn + round) % count].sample(seconds);
        }
    }

    /// Summary of the samples.
    pub fn measured(self) -> Measured {
        let ours = &self.contestants[0];
        let verdict = |&target: &Target| {
            let others = self.contestants.iter().filter(|other| Some(other.role) == target.beside);
            // Of several, the fastest counts.
            let measured = match target.beside {
                None => ours.median(),
                Some(_) => others.map(|other| ours.ratio_to(other)).fold(f64::INFINITY, f64::min),
            };
            Verdict { target, measured, met: measured >= target.at_least }
        };
        // Without a rival there is no target to meet.
        let verdicts = self.targets.iter().map(verdict).filter(|v| v.measured.is_finite());
        Measured {
            job: self.job,
            code: self.variant.name,
            shape: self.shape,
            mean_degree: self.mean_degree,
            unit: "Gbit/s",
            targets: verdicts.collect(),
            contestants: self.contestants.iter().map(|other| Figures::of(ours, other)).collect(),
            left_out: self.left_out,
        }
    }
}

impl Figures {
    fn of(ours: &Contestant, other: &Contestant) -> Figures {
        let pairs = ours.rates.iter().zip(&other.rates);
        let mut ratios: Vec<f64> = pairs.map(|(ours, other)| ours / other).collect();
        ratios.sort_by(f64::total_cmp);
        let cut = ratios.len() / 10;
        Figures {
            name: other.name.clone(),
            role: other.role,
            median: other.median(),
            best: other.best(),
            ours_to_it: ours.ratio_to(other),
            ours_to_it_low: ratios[cut],
            ours_to_it_high: ratios[ratios.len() - 1 - cut],
            samples: other.rates.clone(),
        }
    }
}

/// The paper's FPGA encodes 27 Gbit/s.
const ENCODE_TARGETS: [Target; 2] = [
    Target { what: "of the ceiling", beside: Some(Role::Ceiling), at_least: 0.8 },
    Target { what: "Gbit/s", beside: None, at_least: 27.0 },
];
const DECODE_TARGETS: [Target; 2] = [
    Target { what: "Gbit/s", beside: None, at_least: 10.0 },
    Target { what: "times raptorq", beside: Some(Role::Structured), at_least: 2.0 },
];
