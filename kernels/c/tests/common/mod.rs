//! Seeds of random tests.

use std::time::SystemTime;

/// `RECODED_SEED`, or another one each time; printed.
pub fn seed() -> u64 {
    let chosen = std::env::var("RECODED_SEED").ok().and_then(|text| text.parse().ok());
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("a clock after 1970");
    let seed = chosen.unwrap_or(now.as_nanos() as u64);
    println!("RECODED_SEED={seed} repeats this run");
    seed
}
