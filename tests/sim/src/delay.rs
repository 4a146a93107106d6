//! Delays, counted in logarithmic buckets: memory use does not depend on their number.

use recoded_pipeline::params::Nanos;

/// Buckets per doubling: values are known to a sixteenth.
const BUCKET_BITS: u32 = 3;
const BUCKETS: usize = 64 << BUCKET_BITS;

/// A histogram of times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delays {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    longest: Nanos,
}

impl Default for Delays {
    fn default() -> Delays {
        Delays { buckets: Box::new([0; BUCKETS]), count: 0, longest: 0 }
    }
}

impl Delays {
    /// Counts one.
    pub fn record(&mut self, nanos: Nanos) {
        self.buckets[bucket(nanos)] += 1;
        self.count += 1;
        self.longest = self.longest.max(nanos);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest.
    #[must_use]
    pub fn longest(&self) -> Nanos {
        self.longest
    }

    /// The value that a share `quantile` of all delays stays below, to an eighth; 0 if there are
    /// none.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Nanos {
        let wanted = (quantile * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return end(bucket).min(self.longest);
            }
        }
        self.longest
    }
}

/// The first `1 << BUCKET_BITS` values have one bucket each; above, each doubling has as many
/// buckets.
fn bucket(nanos: Nanos) -> usize {
    let magnitude = (nanos | 1).ilog2();
    if magnitude < BUCKET_BITS {
        return nanos as usize;
    }
    let fine = (nanos >> (magnitude - BUCKET_BITS)) as usize & ((1 << BUCKET_BITS) - 1);
    (((magnitude - BUCKET_BITS + 1) as usize) << BUCKET_BITS) + fine
}

/// Largest value of a bucket.
fn end(bucket: usize) -> Nanos {
    let (doubling, fine) = (bucket >> BUCKET_BITS, (bucket & ((1 << BUCKET_BITS) - 1)) as u64);
    if doubling == 0 {
        return fine;
    }
    let width_bits = doubling - 1;
    (((1 << BUCKET_BITS) + fine) << width_bits) + ((1u64 << width_bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_its_bucket() {
        for nanos in (0..2000).chain((0..64).map(|bits| 1 << bits)).chain([u64::MAX]) {
            let bucket = bucket(nanos);
            assert!(end(bucket) >= nanos, "{nanos} in bucket {bucket}");
            assert!(bucket == 0 || end(bucket - 1) < nanos, "{nanos} in bucket {bucket}");
            assert!(end(bucket) - nanos <= nanos / 8, "{nanos} in bucket {bucket}");
        }
    }

    #[test]
    fn quantiles_of_a_hundred_times() {
        let mut delays = Delays::default();
        assert_eq!(delays.quantile(0.5), 0);
        (1..=100).for_each(|nanos| delays.record(nanos * 1000));
        assert!((50_000..57_000).contains(&delays.quantile(0.5)), "{}", delays.quantile(0.5));
        assert_eq!(delays.quantile(1.0), 100_000);
        assert_eq!((delays.count(), delays.longest()), (100, 100_000));
    }
}
