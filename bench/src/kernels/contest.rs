//! Contestants, taking one sample, and summarising many samples.

use crate::median::median;
use std::hint::black_box;

use bench_native::forget_wide_registers;
use serde::Serialize;

use crate::kernels::anchors::{Anchor, same_level};
use crate::kernels::clock::thread_seconds;
use crate::kernels::rows::Section;

/// Why a contestant is in a row.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A level of this project's kernels.
    Ours,
    /// A library that does the same job.
    Rival,
    /// A library that does a related job with a code of fixed structure: coefficients cannot be
    /// chosen, so it cannot recode.
    Structured,
    /// The core's limit for the job.
    Ceiling,
}

/// One contestant of a row.
pub struct Contestant {
    /// Display name.
    pub name: String,
    /// Why it is here.
    pub role: Role,
    /// Rate of each round, in the unit of the row.
    pub rates: Vec<f64>,
    /// Runs the job the given number of times.
    work: Box<dyn FnMut(usize)>,
    /// Value of one run, in units times seconds.
    amount: f64,
    /// How often a sample does it; 0 before the first sample.
    times: usize,
}

impl Contestant {
    /// A contestant that does a job worth `amount` by calling `job`.
    pub fn new(
        role: Role,
        name: impl Into<String>,
        amount: f64,
        mut job: impl FnMut() + 'static,
    ) -> Contestant {
        let work = move |times| (0..times).for_each(|_| job());
        let (name, work) = (name.into(), Box::new(work));
        Contestant { name, role, rates: Vec::new(), work, amount, times: 0 }
    }

    /// Takes a sample of at least `seconds`, within the noise of the machine.
    pub fn sample(&mut self, seconds: f64) {
        if self.times == 0 {
            self.times = self.calibrate(seconds);
        }
        // Others have used the caches since the last time.
        (self.work)(self.times.div_ceil(WARM_UP_SHARE));
        let taken = self.time(self.times);
        self.rates.push(self.amount * self.times as f64 / taken);
    }

    /// How often the job fits into `seconds`.
    fn calibrate(&mut self, seconds: f64) -> usize {
        let mut times = 1;
        loop {
            let taken = self.time(times);
            if taken >= seconds / 4.0 {
                // A tenth more, so that a somewhat faster sample is still long enough.
                return ((seconds * 1.1 / taken * times as f64).ceil() as usize).max(1);
            }
            times *= 2;
        }
    }

    fn time(&mut self, times: usize) -> f64 {
        forget_wide_registers();
        let before = thread_seconds();
        (self.work)(black_box(times));
        // Keeps a clock that does not advance during a short job from causing a division by zero.
        (thread_seconds() - before).max(1e-9)
    }

    /// Median over the rounds.
    pub fn median(&self) -> f64 {
        median(self.rates.clone())
    }

    /// The best round.
    pub fn best(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    /// Median of the ratios to `other` in the same round: a disturbance of a shared machine affects
    /// adjacent samples alike.
    pub fn ratio_to(&self, other: &Contestant) -> f64 {
        let pairs = self.rates.iter().zip(&other.rates);
        median(pairs.map(|(own, other)| own / other))
    }
}

/// One job, and its contestants.
pub struct Contest {
    /// Which part of the benchmark it belongs to.
    pub section: Section,
    /// Name of the job.
    pub name: &'static str,
    /// Field of the arithmetic.
    pub field: String,
    /// Symbols that are combined, or rows of a matrix.
    pub n: usize,
    /// Bytes of a symbol; 0 where there are none.
    pub k: usize,
    /// Unit of the rates.
    pub unit: &'static str,
    /// An older figure to compare with instead of a rival.
    pub anchor: Option<Anchor>,
    /// Contestants that are measured.
    pub contestants: Vec<Contestant>,
    /// Contestants that are not, and why.
    pub left_out: Vec<String>,
}

/// Coded payload bits per second.
pub const GBIT: &str = "Gbit/s";
/// Bytes of the source per second.
pub const GBYTE: &str = "GB/s";
/// Matrices per second.
pub const INVERSIONS: &str = "inversions/s";

impl Contest {
    /// Takes one sample of each contestant. Each round starts with another one, so that none always
    /// follows the same one.
    pub fn round(&mut self, round: usize, seconds: f64) {
        let count = self.contestants.len();
        for turn in 0..count {
            self.contestants[(turn + round) % count].sample(seconds);
        }
    }

    /// Adds a rival, or the reason why it is not there.
    pub fn challenge(&mut self, rival: Result<Contestant, LeftOut>) {
        match rival {
            Ok(rival) => self.contestants.push(rival),
            Err(LeftOut(reason)) => self.left_out.push(reason),
        }
    }

    /// All of one role.
    pub fn role(&self, role: Role) -> impl Iterator<Item = &Contestant> {
        self.contestants.iter().filter(move |contestant| contestant.role == role)
    }

    /// The fastest of one role.
    pub fn fastest(&self, role: Role) -> Option<&Contestant> {
        self.role(role).max_by(|a, b| a.median().total_cmp(&b.median()))
    }

    /// This project's level of this name.
    pub fn level(&self, name: &str) -> Option<&Contestant> {
        self.role(Role::Ours).find(|ours| ours.name == name)
    }

    /// A level's share of the core's limit; `NaN` if a row has none.
    pub fn fraction(&self, ours: &Contestant) -> f64 {
        self.fastest(Role::Ceiling).map_or(f64::NAN, |ceiling| ours.ratio_to(ceiling))
    }

    /// Comparison of a level: with an older figure if the row has one, otherwise with the fastest
    /// library that does the same job.
    pub fn rival(&self, ours: &Contestant) -> Option<Comparison<'_>> {
        let rival = self.fastest(Role::Rival).map(|rival| Comparison::with(ours, rival));
        self.anchor.map(|anchor| Comparison::with_anchor(ours, anchor)).or(rival)
    }

    /// The paper's library at the level of the same name, if there is a figure of it.
    pub fn same_level(&self, ours: &Contestant) -> Option<Comparison<'_>> {
        let field = self.field.parse().ok().filter(|_| self.section == Section::Paper)?;
        let anchor = same_level(&ours.name, field, self.k)?;
        Some(Comparison::with_anchor(ours, anchor))
    }

    /// The fastest library that does something related.
    pub fn structured(&self, ours: &Contestant) -> Option<Comparison<'_>> {
        self.fastest(Role::Structured).map(|rival| Comparison::with(ours, rival))
    }
}

/// Comparison of a level with another contestant.
pub struct Comparison<'a> {
    /// The other.
    pub name: &'a str,
    /// The other's rate.
    pub median: f64,
    /// Speedup of this project's level.
    pub ratio: f64,
    /// Whether the other was measured in this run.
    pub measured: bool,
}

impl<'a> Comparison<'a> {
    fn with(ours: &Contestant, other: &'a Contestant) -> Comparison<'a> {
        let ratio = ours.ratio_to(other);
        Comparison { name: &other.name, median: other.median(), ratio, measured: true }
    }

    fn with_anchor(ours: &Contestant, Anchor { name, median }: Anchor) -> Comparison<'a> {
        Comparison { name, median, ratio: ours.median() / median, measured: false }
    }
}

/// Why a rival is not in a row.
#[derive(Debug)]
pub struct LeftOut(pub String);

impl LeftOut {
    /// Its result was checked and is wrong.
    pub fn wrong(name: &str, n: usize, k: usize) -> LeftOut {
        LeftOut(format!("{name} at n = {n}, k = {k}: its result is wrong"))
    }

    /// A contestant that reports it cannot run.
    pub fn refused(name: &str, reason: impl std::fmt::Display) -> LeftOut {
        LeftOut(format!("{name}: {reason}"))
    }
}

/// Three digits or so.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Warm-up before a sample, not counted: a sixteenth of it.
const WARM_UP_SHARE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn contestant(role: Role, rates: &[f64]) -> Contestant {
        let mut contestant = Contestant::new(role, format!("{role:?}"), 1.0, || ());
        contestant.rates = rates.to_vec();
        contestant
    }

    #[test]
    fn ratio_is_the_median_of_the_rounds_own() {
        let ours = contestant(Role::Ours, &[10.0, 1.0, 12.0]);
        let rival = contestant(Role::Rival, &[5.0, 0.5, 1.0]);
        assert_eq!(ours.ratio_to(&rival), 2.0);
        assert_eq!((ours.median(), ours.best()), (10.0, 12.0));
        assert_eq!(median(vec![3.0, 1.0]), 2.0);
    }

    #[test]
    fn sample_lasts_as_long_as_asked_for() {
        let mut contestant = Contestant::new(Role::Ours, "spin", 1.0, || {
            black_box((0..100_u64).map(black_box).sum::<u64>());
        });
        let before = thread_seconds();
        contestant.sample(0.002);
        assert!(thread_seconds() - before >= 0.001);
        assert!(contestant.rates[0].is_finite() && contestant.rates[0] > 0.0);
    }
}
