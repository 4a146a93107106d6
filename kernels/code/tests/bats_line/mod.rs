//! A line of relays on coding vectors only.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::Elimination;
use recoded_gf::Kernel;

/// The seed of a test: that of `RECODED_SEED`, or a fixed one. Printed, for failures.
pub fn seed(test: &str) -> u64 {
    let seed = std::env::var("RECODED_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(4);
    println!("{test}: RECODED_SEED={seed}");
    seed
}

/// A generator from a seed.
pub fn random(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Hops with independent losses, between relays that recode systematically over GF(256) and send as
/// many packets per batch as the source.
pub struct Line {
    pub random: ChaCha8Rng,
    hops: usize,
    loss: f64,
}

impl Line {
    pub fn new(seed: u64, hops: usize, loss: f64) -> Self {
        Self { random: random(seed), hops, loss }
    }

    /// Sends one batch; returns the coding vectors that arrive.
    pub fn cross(&mut self, batch_size: usize) -> Vec<Vec<u8>> {
        let unit = |index| (0..batch_size).map(|at| u8::from(at == index)).collect();
        let mut held: Vec<Vec<u8>> = (0..batch_size).map(unit).collect();
        for _ in 0..self.hops {
            while held.len() < batch_size && !held.is_empty() {
                let mut fresh = vec![0; batch_size];
                for row in &held {
                    Kernel::best().madd(&mut fresh, self.random.next_u32() as u8, row);
                }
                held.push(fresh);
            }
            let threshold = (self.loss * f64::from(u32::MAX)) as u32;
            held.retain(|_| self.random.next_u32() >= threshold);
            let mut elimination = Elimination::new(batch_size);
            held.retain(|vector| elimination.insert(vector).is_innovative());
        }
        held
    }
}
