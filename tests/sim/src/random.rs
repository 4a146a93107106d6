//! Random numbers, all from one seed. Each user draws from its own stream, so that an additional
//! draw of one link does not affect the others.

use std::ops::RangeInclusive;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Users of random numbers, each with its own stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stream {
    /// The generator of scenarios.
    Scenario,
    /// Seed of a node's pipelines, by number of its start (0 for the first).
    Node { node: usize, start: u32 },
    /// One direction of one link.
    Link { hop: usize, is_up: bool },
    /// One attacker.
    Attack { index: usize },
    /// Attacks, pauses and stops of a scenario.
    Trouble,
    /// Workers, shards and inner flows of a scenario.
    Workers,
    /// Whether a flow is sealed, and the behaviour of a malicious relay.
    Sealed,
    /// Whether its symbols have tags, and which nodes verify them.
    Tagged,
    /// Networks that are not lines.
    Graph,
    /// A liar on one of two paths.
    Liar,
    /// Whether hops have keys.
    HopKeys,
    /// Forgeries of an attacker without keys in one direction of a link.
    HopTags { hop: usize, is_up: bool },
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(ChaCha8Rng);

impl Random {
    pub(crate) fn new(seed: u64, stream: Stream) -> Random {
        let number = match stream {
            Stream::Scenario => 0,
            Stream::Node { node, start } => 1 << 62 | u64::from(start) << 20 | node as u64,
            Stream::Link { hop, is_up } => 2 << 62 | u64::from(is_up) << 20 | hop as u64,
            Stream::Attack { index } => 3 << 62 | index as u64,
            Stream::Trouble => 1,
            Stream::Workers => 2,
            Stream::Sealed => 3,
            Stream::Tagged => 4,
            Stream::Graph => 5,
            Stream::HopKeys => 6,
            Stream::Liar => 7,
            Stream::HopTags { hop, is_up } => {
                3 << 62 | 1 << 40 | u64::from(is_up) << 20 | hop as u64
            }
        };
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(number);
        Random(random)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// In 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// Uniform over `range`, which must not be empty.
    pub(crate) fn among(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = range.into_inner();
        let width = u128::from(high - low) + 1;
        low + ((u128::from(self.number()) * width) >> 64) as u64
    }

    /// Evenly from `range`, as a size.
    pub(crate) fn size(&mut self, range: RangeInclusive<usize>) -> usize {
        self.among(*range.start() as u64..=*range.end() as u64) as usize
    }

    /// Evenly between two numbers.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    /// One of `choices`, which must not be empty.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.size(0..=choices.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let draw = |stream| Random::new(1, stream).number();
        let node = Stream::Node { node: 0, start: 0 };
        let streams = [
            Stream::Scenario,
            node,
            Stream::Node { node: 1, start: 0 },
            Stream::Node { node: 0, start: 1 },
            Stream::Link { hop: 0, is_up: false },
            Stream::Link { hop: 0, is_up: true },
            Stream::Attack { index: 0 },
            Stream::Trouble,
            Stream::Workers,
            Stream::Graph,
            Stream::Liar,
        ];
        let drawn: std::collections::BTreeSet<u64> = streams.into_iter().map(draw).collect();
        assert_eq!(drawn.len(), streams.len());
        assert_eq!(draw(node), draw(node));
    }

    #[test]
    fn among_reaches_both_ends_and_nothing_else() {
        let mut random = Random::new(2, Stream::Scenario);
        let drawn: std::collections::BTreeSet<u64> =
            (0..200).map(|_| random.among(5..=8)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert!(random.among(0..=u64::MAX) != random.among(0..=u64::MAX));
    }
}
