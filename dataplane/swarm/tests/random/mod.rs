//! Random bytes that a printed seed determines; `RECODED_SEED` repeats a run.

use blake3::OutputReader;

/// A seed for this run, printed.
pub fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let given = std::env::var("RECODED_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| now.map_or(1, |now| now.as_nanos() as u64));
    eprintln!("RECODED_SEED={seed}");
    seed
}

/// Bytes that a seed determines.
pub fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    reader(seed).fill(&mut bytes);
    bytes
}

/// A stream of bytes that a seed determines.
pub fn reader(seed: u64) -> OutputReader {
    blake3::Hasher::new().update(&seed.to_be_bytes()).finalize_xof()
}
