//! The unit file as systemd reads it.

#![forbid(unsafe_code)]

use std::process::Command;

const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/recoded-agent.service");

/// What the service may do at most, by systemd's measure from 0 to 10.
const EXPOSURE_MAX: f64 = 3.0;

/// The output of `systemd-analyze`, or `None`, with the reason printed, where there is none.
fn analyze(arguments: &[&str]) -> Option<String> {
    let Ok(output) = Command::new("systemd-analyze").args(arguments).arg(UNIT).output() else {
        let reason = "systemd-analyze is not installed";
        assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none_or(|all| all != "1"), "{reason}");
        println!("skipped: {reason}");
        return None;
    };
    let text = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn unit_of_the_agent_leaves_it_little() {
    let Some(text) = analyze(&["security", "--offline=true", "--no-pager"]) else { return };
    let line = text.lines().find(|line| line.contains("Overall exposure level"));
    let level =
        line.and_then(|line| line.split(": ").nth(1)?.split(' ').next()?.parse::<f64>().ok());
    let level = level.unwrap_or_else(|| panic!("no exposure level in {text}"));
    println!("exposure {level}");
    assert!(level <= EXPOSURE_MAX, "{text}");
}

#[test]
fn unit_of_the_agent_has_no_word_that_systemd_ignores() {
    let Some(text) = analyze(&["verify"]) else { return };
    // Neither the programs nor their manual pages are installed where this runs.
    let ours = text.lines().filter(|line| line.contains("recoded-agent.service"));
    let is_missing =
        |line: &str| line.contains("is not executable") || line.contains("Command 'man ");
    let wrong: Vec<&str> = ours.filter(|line| !is_missing(line)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
