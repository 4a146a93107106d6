//! Random numbers of a test, which `RECODED_SEED` repeats.

use std::time::{SystemTime, UNIX_EPOCH};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

pub fn seeded() -> ChaCha8Rng {
    let from_clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos());
    let given = std::env::var("RECODED_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| from_clock() as u64);
    println!("RECODED_SEED={seed}");
    ChaCha8Rng::seed_from_u64(seed)
}
