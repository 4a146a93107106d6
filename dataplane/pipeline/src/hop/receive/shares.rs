//! Distribution of the newest packets over several neighbours.

use crate::config::params::UPSTREAMS_MAX;

/// Packets after which older ones count half: some tenths of a second of a fully used path.
const NEWEST: u32 = 2048;

/// Packets per neighbour.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Shares {
    counts: [u32; UPSTREAMS_MAX],
    all: u32,
}

impl Shares {
    /// Records a packet of the neighbour at `place`.
    #[inline]
    pub(crate) fn note(&mut self, place: usize) {
        self.counts[place % UPSTREAMS_MAX] += 1;
        self.all += 1;
        if self.all >= 2 * NEWEST {
            self.counts = self.counts.map(|count| count / 2);
            self.all = self.counts.iter().sum();
        }
    }

    /// The share of the neighbour at `place`, once there was a packet.
    pub(crate) fn of(&self, place: usize) -> Option<f64> {
        let count = f64::from(self.counts[place % UPSTREAMS_MAX]);
        (self.all > 0).then(|| count / f64::from(self.all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_newest_packets() {
        let mut shares = Shares::default();
        assert_eq!(shares.of(0), None);
        (0..100_000).for_each(|number| shares.note(usize::from(number % 4 == 0)));
        let share = shares.of(1).expect("packets came");
        assert!((share - 0.25).abs() < 0.01, "{share}");
        (0..30_000).for_each(|_| shares.note(2));
        assert!(shares.of(2) > Some(0.99) && shares.of(0) < Some(0.01), "{shares:?}");
    }
}
