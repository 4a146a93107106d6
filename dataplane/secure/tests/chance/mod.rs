//! Random numbers from a seed.
#![allow(dead_code)] // each test binary uses its own part

use recoded_secure::Entropy;

/// Random bytes from a seed, no two alike.
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    pub fn share(&mut self) -> f64 {
        self.next() as f64 / u64::MAX as f64
    }

    pub fn entropy(&mut self) -> Entropy {
        let mut bytes = [0; 64];
        bytes.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&self.next().to_le_bytes()));
        Entropy::new(bytes)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
