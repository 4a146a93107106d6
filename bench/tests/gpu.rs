//! Runs the benchmark of cards over shapes of a few bytes, as a user would: without a card, and
//! against a stand-in for libcuda that runs the kernels on this CPU. The stand-in exercises all
//! code that needs a card; its results are compared, and its figures are drawn. Speeds are not
//! checked.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn gpu(folder: &Path, variables: &[(&str, &str)]) -> Output {
    let program = env!("CARGO_BIN_EXE_bench");
    Command::new(program)
        .args(["gpu", "--tiny", "--json"])
        .arg(folder.join("gpu.json"))
        .arg("--figures")
        .arg(folder)
        // The stand-in has its kernels built in, so any file will do.
        .env("RECODED_CUDA_IMAGE", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .env("LD_LIBRARY_PATH", "")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn found(folder: &Path, output: &Output) -> (String, Value) {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let found = serde_json::from_slice(&std::fs::read(folder.join("gpu.json")).unwrap()).unwrap();
    (text, found)
}

/// All contestants.
fn who(found: &Value, part: &str) -> Vec<String> {
    let rows = found["rows"].as_array().unwrap();
    let of_part = rows.iter().filter(|row| row["part"] == part);
    let mut names: Vec<String> = of_part
        .flat_map(|row| row["contenders"].as_array().unwrap())
        .map(|row| {
            assert!(row["rate"].as_f64().is_some_and(|rate| rate > 0.0), "{row}");
            row["who"].as_str().unwrap().to_owned()
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

fn stand_in() -> String {
    recoded_cuda_standin::folder().display().to_string()
}

#[test]
fn gpu_over_a_stand_in_measures_everything_and_draws_every_figure() {
    let folder = tempfile::tempdir().unwrap();
    let output = gpu(folder.path(), &[("LD_LIBRARY_PATH", &stand_in())]);
    let (text, found) = found(folder.path(), &output);
    assert_eq!(found["card"]["name"], "stand-in", "{text}");
    assert_eq!(found["left_out"], Value::Array(Vec::new()), "{text}");
    for part in ["encode", "streaming"] {
        let who = who(&found, part);
        let mut techniques: Vec<_> = recoded_cuda_techniques().collect();
        techniques.push("CPU".into());
        techniques.push("card, host to host".into());
        for expected in techniques {
            assert!(who.contains(&expected), "{part}: {expected} of {who:?}");
        }
    }
    assert_eq!(who(&found, "decode").len(), 3);
    // Together over bundles, checked and not, and over the caller's rows.
    assert_eq!(who(&found, "large").len(), 5);
    assert_eq!(who(&found, "generate").len(), 2);
    assert_eq!(who(&found, "recover").len(), 2);
    assert_eq!(who(&found, "single").len(), 3);
    for products in ["binary_products_per_second", "wide_binary_products_per_second"] {
        assert!(found["card"][products].as_f64().is_some_and(|rate| rate > 0.0), "{products}");
    }
    assert_eq!(found["card"]["copies"].as_array().unwrap().len(), 6);
    for figure in ["break-even", "card-copies"] {
        for ending in ["svg", "csv", "json"] {
            let path = folder.path().join(format!("{figure}.{ending}"));
            let text = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("no {figure}"));
            assert!(!text.contains("NaN") && !text.is_empty(), "{figure}.{ending}");
        }
    }
}

#[test]
fn gpu_without_a_card_says_why_and_measures_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("LD_LIBRARY_PATH", &*stand_in()), ("STANDIN_DEVICES", "0")];
    let output = gpu(folder.path(), &variables);
    let (text, found) = found(folder.path(), &output);
    assert!(text.contains("NO CARD: card 0 of 0"), "{text}");
    assert_eq!(found["card"], Value::Null);
    assert_eq!(who(&found, "encode"), ["CPU"]);
    assert_eq!(who(&found, "generate"), ["CPU"]);
    let index = std::fs::read_to_string(folder.path().join("README.md")).unwrap();
    assert!(index.contains("every column of a card waits for one"));
    assert!(folder.path().join("break-even.svg").exists());
    assert!(!folder.path().join("card-copies.svg").exists());
}

#[test]
fn gpu_ends_when_a_card_computes_wrong_bytes() {
    let folder = tempfile::tempdir().unwrap();
    // The probe, in a separate process, reaches its self-test.
    let variables = [("LD_LIBRARY_PATH", &*stand_in()), ("STANDIN_FAULTS", "kernel@60+=wrong")];
    let output = gpu(folder.path(), &variables);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("wrong bytes"), "{text}");
    assert!(!folder.path().join("gpu.json").exists());
}

#[test]
fn gpu_goes_on_without_a_card_that_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [
        ("LD_LIBRARY_PATH", &*stand_in()),
        ("STANDIN_FAULTS", "cuLaunchKernel@400=719,cuMemAlloc_v2@25=2"),
    ];
    let output = gpu(folder.path(), &variables);
    let (text, found) = found(folder.path(), &output);
    assert!(!found["left_out"].as_array().unwrap().is_empty(), "{text}");
    assert!(who(&found, "single").contains(&"CPU".into()));
}

fn recoded_cuda_techniques() -> impl Iterator<Item = String> {
    let names = ["loop", "table-0", "table-1", "table-2", "table-3", "table-4", "table-5"];
    let ours = ["permute", "permute-narrow", "four-russians", "bmma"];
    names.into_iter().chain(ours).map(|name| format!("card, resident, {name}"))
}
