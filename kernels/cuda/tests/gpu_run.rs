//! `scripts/gpu-run` over a stand-in for a card: it runs its steps in order, continues after a
//! failed one, and reports all outcomes in one file.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

use serde_json::Value;

/// A program cannot be started while it is open for writing, and a process that another test is
/// about to start inherits open files of this one: only one of both at a time.
static WRITE_OR_START: Mutex<()> = Mutex::new(());

/// A folder as `--pack` creates it, with a benchmark that fails.
fn packed() -> tempfile::TempDir {
    let _one = WRITE_OR_START.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/gpu-run");
    std::fs::copy(script, folder.path().join("gpu-run")).expect("the script");
    symlink(example(), folder.path().join("card")).expect("a link");
    let bench = folder.path().join("bench");
    let report = "for file; do :; done\nprintf '{\"rows\":[\n1,\n2]}\n' >\"$file\"";
    std::fs::write(&bench, format!("#!/bin/sh\n{report}\necho 'a \"quote\"'\nexit 7\n"))
        .expect("a file");
    std::fs::set_permissions(&bench, std::fs::Permissions::from_mode(0o755)).expect("ours");
    folder
}

/// `examples/card.rs`, which cargo builds for tests.
fn example() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    let built = program.ancestors().nth(2).expect("target/PROFILE/deps").join("examples/card");
    assert!(built.is_file(), "no {}: cargo test builds it, unless told not to", built.display());
    built
}

fn run(folder: &Path, arguments: &[&str], libraries: &str) -> (Output, Option<Value>) {
    let one = WRITE_OR_START.lock();
    let started = Command::new(folder.join("gpu-run"))
        .args(arguments)
        .arg(folder.join("results"))
        .env("LD_LIBRARY_PATH", libraries)
        // The stand-in has its kernels built in: any file will do.
        .env(recoded_cuda::IMAGE_VARIABLE, concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .env("STANDIN_STRAY", "700")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bash");
    drop(one);
    let output = started.wait_with_output().expect("its output");
    println!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let text = std::fs::read(folder.join("results/gpu-run.json")).ok();
    (output, text.map(|text| serde_json::from_slice(&text).expect("JSON")))
}

fn stand_in() -> String {
    recoded_cuda_standin::folder().display().to_string()
}

#[test]
fn run_without_a_card_says_so() {
    let folder = packed();
    let (output, found) = run(folder.path(), &[], "");
    if output.status.code() != Some(3) {
        println!("skipped: this machine has a card");
        return;
    }
    let found = found.expect("a result");
    assert_eq!(
        (&found["card"]["card"], found["steps"].as_array().map(Vec::len)),
        (&Value::Null, Some(0))
    );
    assert!(found["card"]["why"].as_str().is_some_and(|why| !why.is_empty()));
}

#[test]
fn run_goes_on_after_a_step_that_fails_and_reports_all() {
    let folder = packed();
    let only = "tiny,racecheck,first,stray,endless";
    let (output, found) = run(folder.path(), &["--only", only], &stand_in());
    let found = found.expect("a result");
    assert_eq!(output.status.code(), Some(1), "the benchmark failed");
    assert_eq!(found["card"]["card"], "stand-in");
    let steps = found["steps"].as_array().expect("steps");
    let names: Vec<_> = steps.iter().filter_map(|step| step["step"].as_str()).collect();
    assert_eq!(names.join(","), only);
    assert_eq!(
        (&steps[0]["status"], &steps[0]["output"]),
        (&Value::from(7), &Value::from("a \"quote\""))
    );
    assert_eq!(steps[0]["report"]["rows"], serde_json::json!([1, 2]), "of several lines");
    let [first, stray, endless] = [2, 3, 4].map(|step| &steps[step]["report"]);
    assert!(first["context_seconds"].as_f64().is_some_and(|seconds| seconds >= 0.0), "{first}");
    assert_eq!(first["pinning"].as_array().map(Vec::len), Some(4));
    // The stand-in follows CUDA's documentation: only another process can use the card again.
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    assert!(text(&stray["fault"]["said"]).contains("700"), "{stray}");
    assert!(text(&stray["here"]).contains("700"), "{stray}");
    assert_eq!(stray["new_process"], "works");
    assert!(text(&endless["fault"]["said"]).contains("hangs"), "{endless}");
    assert_eq!(endless["new_process"], "works");
}

#[test]
fn wrong_arguments_are_refused() {
    let folder = packed();
    for arguments in [&["--only", "nonsense"][..], &["--nonsense"][..]] {
        let (output, found) = run(folder.path(), arguments, &stand_in());
        assert_eq!((output.status.code(), found), (Some(2), None));
    }
}
