//! Draws the figures with hardly any runs, as a user would, and checks that all output exists and
//! every number is either within its tolerance or explained.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Figures drawn by this test: all but the encoders' throughput, which means nothing without
/// optimisation and on a busy machine.
const NAMES: [&str; 11] = [
    "seed003-fig7",
    "seed003-fig8",
    "seed003-fig9",
    "seed003-xor",
    "recoding-hops",
    "field-batch-size",
    "burst-interleaving",
    "finite-length",
    "recoding-blocks",
    "rlnc-overhead",
    "stream-hops",
];

fn figures(folder: &Path, name: &str, cores: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["figures", name, "--share", "0.002", "--out", folder.to_str().unwrap()])
        .env("RAYON_NUM_THREADS", cores)
        .output()
        .unwrap()
}

fn read(folder: &Path, name: &str, ending: &str) -> String {
    std::fs::read_to_string(folder.join(format!("{name}.{ending}"))).unwrap()
}

#[test]
fn every_number_of_every_figure_is_within_tolerance_or_explained() {
    let folder = tempfile::tempdir().unwrap();
    for name in NAMES {
        let output = figures(folder.path(), name, "2");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name}: {text}");
        let result: Value = serde_json::from_str(&read(folder.path(), name, "json")).unwrap();
        assert_eq!(result["figure"], name);
        assert!(result["machine"]["processor"].is_string() && result["seed"].is_u64());
        let text = read(folder.path(), name, "csv");
        let mut rows = csv::Reader::from_reader(text.as_bytes());
        let rows = rows.deserialize::<BTreeMap<String, String>>().map(Result::unwrap);
        let rows: Vec<_> = rows.filter(|row| !row["within"].is_empty()).collect();
        assert!(rows.len() > 5, "{name}: {} rows", rows.len());
        assert_eq!(result["summary"]["rows"], rows.len(), "{name}");
        for row in rows {
            let numbers = ["x", "ours", "standard_error", "reference", "tolerance"];
            let is_finite = |key: &&str| row[*key].parse::<f64>().is_ok_and(f64::is_finite);
            assert!(numbers.iter().all(is_finite), "{name}: {row:?}");
            let is_within: bool = row["within"].parse().unwrap();
            assert!(is_within || !row["note"].is_empty(), "{name}: {row:?}");
        }
        let svg = read(folder.path(), name, "svg");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{name}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
    }
}

#[test]
fn numbers_do_not_depend_on_how_many_cores_there_are() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for (folder, cores) in folders.iter().zip(["1", "3"]) {
        assert!(figures(folder.path(), "seed003-fig7", cores).status.success());
    }
    let [one, three] = folders.map(|folder| read(folder.path(), "seed003-fig7", "csv"));
    assert_eq!(one, three);
}
