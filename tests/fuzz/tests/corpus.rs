//! Replays the corpus and seeded mutations of it. `RECODED_SEED` repeats the mutations; it is
//! printed, and so is any input that fails.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_fuzz::{TARGETS, Target};

/// Mutated inputs per target, so that a debug build finishes within seconds.
const MUTATIONS: usize = 10_000;

/// Longest mutated input.
const INPUT_BYTES_MAX: usize = 2000;

fn corpus(target: Target) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let bytes = fs::read(&path)?;
        files.push((path, bytes));
    }
    files.sort();
    Ok(files)
}

/// Runs a target, and reports a failing input.
fn run(target: Target, bytes: &[u8], origin: &dyn std::fmt::Debug) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(bytes))) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        println!("target {} failed with {origin:?}, an input of these bytes:\n{hex}", target.name);
        resume_unwind(panic);
    }
}

#[test]
fn corpus_of_every_target_passes() {
    for target in TARGETS {
        let files = corpus(target).expect("a corpus folder of the target's name");
        assert!(!files.is_empty(), "no corpus for {}", target.name);
        for (path, bytes) in &files {
            run(target, bytes, path);
        }
        println!("{}: {} files", target.name, files.len());
    }
}

#[test]
fn mutated_corpus_of_every_target_passes() {
    let from_clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos());
    let given = std::env::var("RECODED_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| from_clock() as u64);
    println!("RECODED_SEED={seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for target in TARGETS {
        let files = corpus(target).expect("a corpus folder of the target's name");
        for number in 0..MUTATIONS {
            let bytes = mutated(&mut rng, &files);
            run(target, &bytes, &format!("mutation {number} of RECODED_SEED={seed}"));
        }
    }
}

#[test]
fn trivial_inputs_of_every_target_pass() {
    for target in TARGETS {
        for byte in [0, 1, 0x7F, 0xFF] {
            for length in [0, 1, 2, 8, 20, 64, 300] {
                run(target, &vec![byte; length], &"one byte repeated");
            }
        }
    }
}

/// One of the files, changed in up to eight places.
fn mutated(rng: &mut ChaCha8Rng, files: &[(PathBuf, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = files[below(rng, files.len())].1.clone();
    for _ in 0..=below(rng, 8) {
        let at = below(rng, bytes.len() + 1);
        match below(rng, 6) {
            0 => bytes.truncate(at),
            1 => {
                // Continues as another file does.
                let other = &files[below(rng, files.len())].1;
                bytes.truncate(at);
                bytes.extend_from_slice(&other[below(rng, other.len() + 1)..]);
            }
            2 => bytes.insert(at, rng.next_u32() as u8),
            3 if at < bytes.len() => bytes[at] ^= 1 << below(rng, 8),
            4 if at < bytes.len() => drop(bytes.remove(at)),
            _ if at < bytes.len() => bytes[at] = [0, 1, 0xFF, rng.next_u32() as u8][below(rng, 4)],
            _ => {}
        }
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

fn below(rng: &mut ChaCha8Rng, limit: usize) -> usize {
    rng.next_u32() as usize % limit
}
