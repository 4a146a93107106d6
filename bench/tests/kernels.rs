//! Runs the kernels benchmark for a moment, as a user would, and checks that the output is
//! complete. Speeds are not checked: they mean nothing on a busy machine or without optimisation.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench")).arg("kernels").args(arguments).output().unwrap()
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn kernels_for_a_moment_every_row_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernels.json");
    let path_text = path.to_str().unwrap();
    let figures = folder.path().join("figures");
    let output = bench(&[
        "--rounds",
        "2",
        "--millis",
        "0.01",
        "--json",
        path_text,
        "--figures",
        figures.to_str().unwrap(),
    ]);
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}{}", text(&output.stderr));
    assert!(table.contains("### Targets") && table.contains("| decode | 128 | 4096 |"), "{table}");

    let result = json(&path);
    let rows = result["rows"].as_array().unwrap();
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
        for key in ["median", "best", "ceiling", "fraction"] {
            assert!(number(key).is_finite() && number(key) > 0.0, "{key} of {row}");
        }
        assert!(number("best") >= number("median"), "{row}");
        for key in ["name", "section", "field", "level", "unit"] {
            assert!(row[key].as_str().is_some_and(|text| !text.is_empty()), "{key} of {row}");
        }
        assert!(row["n"].is_u64() && row["k"].is_u64(), "{row}");
        let ours_alone = row["rival"].is_null();
        assert_eq!(row["ratio"].is_null(), ours_alone, "{row}");
        assert_eq!(row["rival_median"].is_null(), ours_alone, "{row}");
        assert_eq!(row["left_out"], Value::Array(Vec::new()), "a rival failed its check: {row}");
    }
    let has = |section: &str, n: u64, k: u64| {
        rows.iter().any(|row| row["section"] == section && row["n"] == n && row["k"] == k)
    };
    let expected = [
        ("madd", 1, 1500),
        ("paper", 16, 8192),
        ("encode", 128, 4096),
        ("lengths", 16, 8999),
        ("umem", 32, 1500),
        ("binary", 64, 1500),
        ("levels", 16, 1500),
        ("decode", 128, 4096),
        ("recode", 16, 1500),
        ("invert", 256, 0),
    ];
    for (section, n, k) in expected {
        assert!(has(section, n, k), "{section} {n} {k}");
    }
    assert!(result["limits"].as_array().unwrap().len() >= 7);
    assert!(result["machine"]["processor"].is_string());
    let targets = result["targets"].as_array().unwrap();
    assert!(targets.iter().any(|target| target["met"].is_boolean()), "{targets:?}");
    for name in ["kernels-packet-sizes.svg", "kernels-processors.svg"] {
        let figure = std::fs::read_to_string(figures.join(name)).unwrap();
        assert!(figure.starts_with("<svg") && !figure.contains("NaN"), "{name}");
    }
}

#[test]
fn kernels_with_some_rows_has_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recode.json");
    let path_text = path.to_str().unwrap();
    let output =
        bench(&["--rows", "recode", "--rounds", "1", "--millis", "0.01", "--json", path_text]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result = json(&path);
    let rows = result["rows"].as_array().unwrap();
    assert!(!rows.is_empty() && rows.iter().all(|row| row["section"] == "recode"), "{rows:?}");
    assert_eq!(rows[0]["rival_measured_in_this_run"], true);
}

#[test]
fn kernels_without_isal_says_what_to_install() {
    let output = bench(&[
        "--isal",
        "/nowhere/libisal.so",
        "--rows",
        "invert",
        "--rounds",
        "1",
        "--millis",
        "0.01",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("not measured: ISA-L"), "{table}");
    assert!(table.contains("apt install libisal2"), "{table}");
}

#[test]
fn kernels_on_a_core_that_is_not_there_refuses() {
    let output = bench(&["--core", "100000"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("core 100000 cannot be used"), "{output:?}");
}
