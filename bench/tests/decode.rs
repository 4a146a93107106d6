//! Runs the decode benchmark for a moment, as a user would. Speeds are not checked: they mean
//! nothing on a busy machine or without optimisation.

use std::process::Command;

use serde_json::Value;

#[test]
fn decode_for_a_moment_every_row_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decode.json");
    let arguments = [
        "decode",
        "--rounds",
        "2",
        "--millis",
        "0.01",
        "--sizes",
        "1,17,64",
        "--windows",
        "64",
        "--json",
    ];
    let output =
        Command::new(env!("CARGO_BIN_EXE_bench")).args(arguments).arg(&path).output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{table}{errors}");
    assert!(table.contains("| 64 | 1428 | dataplane |"), "{table}");

    let result: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        let names = row["contestants"].as_array().unwrap().iter().map(|who| &who["name"]);
        assert_eq!(names.collect::<Vec<_>>(), ["kernels", "library", "dataplane"]);
        for who in row["contestants"].as_array().unwrap() {
            for key in ["median", "best", "ratio_to_kernels"] {
                assert!(who[key].as_f64().is_some_and(|number| number > 0.0), "{key} of {who}");
            }
            assert_eq!(who["samples"].as_array().unwrap().len(), 2, "{who}");
        }
        assert_eq!(row["met"].is_boolean(), row["n"] == 64, "{row}");
    }
    let streams = result["streams"].as_array().unwrap();
    assert_eq!(streams.len(), 1);
    let names = streams[0]["contestants"].as_array().unwrap().iter().map(|who| &who["name"]);
    let [kernels, combining] = ["kernels", "kernels, combining"];
    let expected = [kernels, "stream's sink", combining, "stream's relay, combining"];
    assert_eq!(names.collect::<Vec<_>>(), expected);
}
