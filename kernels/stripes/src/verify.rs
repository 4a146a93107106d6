//! Verification: reads every unit of every shard, and reports damage by shard and stripe.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;

use crate::encode::Progress;
use crate::error::Error;
use crate::header::Header;
use crate::set::{Set, Slot, Wanted};
use crate::storage::StoredFile;
use crate::stripe::Stripe;
use crate::workers::{Turns, lock, threads};

/// Stripes that a report lists; further ones are only counted.
pub const STRIPES_LISTED: usize = 32;

/// Summary of a set.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every unit is intact.
    Healthy,
    /// Something is missing or damaged, and can be rebuilt.
    Recoverable,
    /// Some stripe cannot be rebuilt.
    Lost,
}

/// Stripes with something in common.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stripes {
    count: u64,
    lowest: BTreeSet<u64>,
}

/// The state of a file as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Header and length are right.
    Complete,
    /// No file is this shard.
    Missing,
    /// The header is damaged, so that nothing in the file counts.
    Headless,
    /// It missed an update.
    Stale,
    /// The file is shorter or longer than its shard.
    Length {
        /// Bytes of the shard.
        expected: u64,
        /// Bytes of the file.
        found: u64,
    },
}

/// The state of a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardReport {
    /// Name of its file, if there is one.
    pub name: Option<String>,
    /// The file as a whole.
    pub condition: Condition,
    /// Stripes whose unit is damaged. Empty unless the header is valid.
    pub damaged: Stripes,
}

/// The state of a set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Header of shard 0.
    pub header: Header,
    /// All shards, by number.
    pub shards: Vec<ShardReport>,
    /// Stripes with fewer than k intact units.
    pub lost: Stripes,
    /// Stripes whose units are intact and contradict each other.
    pub inconsistent: Stripes,
}

impl Stripes {
    /// How many.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The lowest ones, up to [`STRIPES_LISTED`].
    pub fn lowest(&self) -> impl Iterator<Item = u64> {
        self.lowest.iter().copied()
    }

    fn add(&mut self, stripes: Range<u64>) {
        self.count += stripes.end.saturating_sub(stripes.start);
        self.lowest.extend(stripes.take(STRIPES_LISTED));
        while self.lowest.len() > STRIPES_LISTED {
            self.lowest.pop_last();
        }
    }
}

impl std::fmt::Display for Stripes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, stripe) in self.lowest.iter().enumerate() {
            write!(formatter, "{}{stripe}", if index == 0 { "" } else { ", " })?;
        }
        let more = self.count - self.lowest.len() as u64;
        if more > 0 { write!(formatter, " and {more} more") } else { Ok(()) }
    }
}

impl ShardReport {
    /// Whether nothing has to be rebuilt.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.condition == Condition::Complete && self.damaged.count == 0
    }
}

impl Report {
    /// The summary.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.lost.count > 0 || self.inconsistent.count > 0 {
            return Verdict::Lost;
        }
        let current = |shard: &&ShardReport| {
            matches!(shard.condition, Condition::Complete | Condition::Length { .. })
        };
        if self.shards.iter().filter(current).count() < self.header.layout.data() {
            // Empty content has no stripe; only headers can be counted.
            return Verdict::Lost;
        }
        let is_healthy = self.shards.iter().all(ShardReport::is_intact);
        if is_healthy { Verdict::Healthy } else { Verdict::Recoverable }
    }

    fn new<F>(set: &Set<F>) -> Self {
        let expected = set.header.layout.shard_bytes();
        let shard = |slot: &Slot<F>| ShardReport {
            name: slot.name().map(Into::into),
            condition: match slot {
                Slot::Current { bytes, .. } if *bytes == expected => Condition::Complete,
                Slot::Current { bytes, .. } => Condition::Length { expected, found: *bytes },
                Slot::Missing => Condition::Missing,
                Slot::Headless { .. } => Condition::Headless,
                Slot::Stale { .. } => Condition::Stale,
            },
            damaged: Stripes::default(),
        };
        Self {
            header: set.header,
            shards: set.slots.iter().map(shard).collect(),
            lost: Stripes::default(),
            inconsistent: Stripes::default(),
        }
    }

    /// Notes stripes where only these units are intact.
    fn add(&mut self, stripes: Range<u64>, is_intact: impl Fn(usize) -> bool) {
        let mut intact = 0;
        for (index, shard) in self.shards.iter_mut().enumerate() {
            let is_read = matches!(shard.condition, Condition::Complete | Condition::Length { .. });
            if is_intact(index) {
                intact += 1;
            } else if is_read {
                shard.damaged.add(stripes.clone());
            }
        }
        if intact < self.header.layout.data() {
            self.lost.add(stripes);
        }
    }
}

/// Reads a whole set. `wanted` threads; 0 means one per core.
///
/// # Errors
/// A file cannot be read, except for bad sectors, which are damage.
pub fn verify<F: StoredFile>(
    set: &Set<F>,
    wanted: usize,
    progress: Progress<'_>,
) -> Result<Report, Error> {
    let (layout, found) = (set.layout(), set.stripes_found());
    let report = Mutex::new(Report::new(set));
    let turns = Turns::new(found);
    turns.run(threads(wanted, layout, 2), || {
        let (mut stripe, mut scratch) = (Stripe::new(layout)?, Stripe::new(layout)?);
        while let Some(number) = turns.claim() {
            set.load(number, Wanted::All, &mut stripe)?;
            let one = number..number + 1;
            if stripe.intact() < layout.shards() {
                lock(&report).add(one.clone(), |shard| stripe.is_intact(shard));
            }
            // More intact units than the data needs can contradict each other.
            if stripe.intact() > layout.data() && !stripe.is_consistent(&mut scratch)? {
                lock(&report).inconsistent.add(one);
            }
            progress(layout.content_bytes(number) as u64);
        }
        Ok(())
    })?;
    let mut report = lock(&report).clone();
    report.add(found..layout.stripes(), |_| false);
    Ok(report)
}
