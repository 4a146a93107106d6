//! Random numbers of a timed link: SplitMix64, the same from the same seed on every machine.

/// A generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Number `stream` of the generators of a seed.
    pub fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random(seed);
        // Neighbouring seeds and streams must not yield shifted copies of one sequence.
        Random(random.next() ^ Random(!stream).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly distributed from 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }
}
