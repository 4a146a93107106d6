//! Helpers for tests against the stand-in for libcuda.

#![allow(dead_code)]

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use recoded_code::engine::{Completed, Cpu, Engine, Partition};
use recoded_cuda::CudaEngine;

const CHILD_VARIABLE: &str = "RECODED_STANDIN_CHILD";

/// Far more than any step takes, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `body` in a child process that looks for `libraries` and has `variables`.
pub fn in_child(test: &str, libraries: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    let part = format!("{variables:?}");
    if std::env::var_os(CHILD_VARIABLE).is_some() {
        // Each of several children of one test runs its own part.
        if std::env::var(CHILD_VARIABLE).is_ok_and(|given| given == part) {
            body();
        }
        return;
    }
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new(program)
        .args(["--exact", test, "--nocapture"])
        .env(CHILD_VARIABLE, &part)
        .env("LD_LIBRARY_PATH", libraries)
        // The stand-in has its kernels built in: any file will do.
        .env(recoded_cuda::IMAGE_VARIABLE, concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .envs(variables.iter().copied())
        .output()
        .expect("a child process");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    println!("{stdout}");
    assert!(output.status.success(), "{variables:?}: {}\n{stdout}\n{stderr}", output.status);
}

pub fn wait(engine: &mut CudaEngine) -> Completed {
    let begun = Instant::now();
    loop {
        if let Some(completed) = engine.poll() {
            return completed;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing came back");
        thread::sleep(Duration::from_millis(1));
    }
}

pub fn random() -> ChaCha8Rng {
    let given = std::env::var("RECODED_SEED").ok().and_then(|text| text.parse().ok());
    let clock =
        std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
    let seed = given.unwrap_or(clock);
    println!("RECODED_SEED={seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

pub fn cpu() -> Cpu {
    Cpu::new(1, Partition::FullBlock).expect("threads")
}
