//! Common code of tests of benchmarks with network namespaces.

use std::process::Command;

/// Whether this machine has a program.
#[allow(dead_code, reason = "not every test needs one")]
pub fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Whether a test can run; prints the missing requirement. With `RECODED_REQUIRE_ALL=1` that is a
/// failure.
pub fn can_run(obstacle: Option<&str>) -> bool {
    let Some(reason) = obstacle else { return true };
    let required = std::env::var_os("RECODED_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(!required, "skipped: {reason}");
    println!("skipped: {reason}");
    false
}
