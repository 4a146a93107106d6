//! `recodectl kernels` as a user runs it, without a daemon.

use serde_json::Value;
use std::process::{Command, Output};

fn recodectl(arguments: &[&str], forced: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    command.args(["--socket", "/nonexistent/recoded", "kernels"]).args(arguments);
    command.env_remove("RECODED_KERNEL");
    if let Some(name) = forced {
        command.env("RECODED_KERNEL", name);
    }
    command.output().expect("recodectl runs")
}

fn json(arguments: &[&str], forced: Option<&str>) -> Value {
    let output = recodectl(&[arguments, &["--json"]].concat(), forced);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("the output is JSON")
}

#[test]
fn levels_are_listed_measured_and_one_is_used() {
    let report = json(&["--seconds", "1"], None);
    assert_eq!(report["reason"], "fastest");
    assert_eq!(report["daemon"], Value::Null);
    let levels = report["levels"].as_array().expect("levels");
    assert!(levels.iter().any(|level| level["name"] == "naive" && level["available"] == true));
    let used = levels.iter().find(|level| level["name"] == report["used"]).expect("it is listed");
    assert_eq!(used["available"], true);
    for level in levels {
        let available = level["available"] == true;
        assert_eq!(level["fields"].as_array().is_some_and(|fields| !fields.is_empty()), available);
        for rate in ["madd_gigabytes", "combine_gigabits"] {
            let rate = level[rate].as_f64();
            assert_eq!(rate.is_some(), available, "{level}");
            assert!(rate.is_none_or(|rate| rate.is_finite() && rate > 0.0), "{level}");
        }
    }
}

#[test]
fn table_marks_the_level_used_and_fits_the_terminal() {
    let output = recodectl(&["--seconds", "0"], Some("naive"));
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.lines().any(|line| line.starts_with("*  naive")), "{text}");
    assert!(text.contains("naive (forced by RECODED_KERNEL)"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(!text.contains("measured"), "nothing was measured: {text}");
}

#[test]
fn forced_levels_are_used_and_the_option_wins() {
    assert_eq!(json(&["--seconds", "0"], Some("table"))["used"], "table");
    let report = json(&["--seconds", "0", "--kernel", "naive"], Some("table"));
    assert_eq!((&report["used"], &report["reason"]), (&"naive".into(), &"option".into()));
    assert!(report["levels"].as_array().is_some_and(|levels| {
        levels.iter().all(|level| level["madd_gigabytes"] == Value::Null)
    }));
}

#[test]
fn wrong_levels_and_times_are_usage_errors_that_name_what_there_is() {
    let output = recodectl(&["--kernel", "abacus"], None);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).expect("text");
    assert!(message.contains("unknown kernel `abacus`") && message.contains("naive"), "{message}");
    assert_eq!(recodectl(&[], Some("abacus")).status.code(), Some(2));
    assert_eq!(recodectl(&["--seconds", "61"], None).status.code(), Some(2));
}
