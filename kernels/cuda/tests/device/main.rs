//! The device code, run on the CPU by the shim, against the CPU's kernels: bit for bit. With
//! `RECODED_CUDA_CARD=1` it runs on the card that the driver finds, except for the tests that need
//! the shim: `--skip shim:: --skip reed_solomon`.

mod card;
mod memory;

mod coefficients;
mod decode;
mod layout;
mod matmul;
mod probe;
mod reed_solomon;
mod shim;

/// The steps of `scripts/gpu-run` on a card, over a stand-in for one: only a part, to save time.
#[test]
fn shapes_run_over_the_driver() {
    let parts = ["coefficients::", "decode::many", "permute_narrow::", "bmma::", "probe::"];
    let text = over_the_driver(&parts, "");
    assert!(text.contains("bmma::many_jobs_match_cpu ... ok"), "{text}");
    // The driver runs them: one that refuses launches fails them.
    let text = over_the_driver(&["probe::"], "cuLaunchKernel@1+=1");
    assert!(text.contains("cuLaunchKernel failed") && text.contains("FAILED"), "{text}");
}

/// Output of this program when it runs these tests over the stand-in with these faults.
fn over_the_driver(tests: &[&str], faults: &str) -> String {
    let program = std::env::current_exe().expect("this program has a path");
    let output = std::process::Command::new(program)
        .args(tests)
        .env(memory::CARD_VARIABLE, "1")
        .env("LD_LIBRARY_PATH", recoded_cuda_standin::folder())
        // The stand-in has its kernels built in: any file will do.
        .env(recoded_cuda::IMAGE_VARIABLE, concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .env("STANDIN_FAULTS", faults)
        .output()
        .expect("a child process");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
