//! The first process of a machine, which runs cases and reports each.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use recoded_netns::process;
use rustix::system::{RebootCommand, reboot};

use crate::LabError;
use crate::cases::Machine;
use crate::guest::{CaseResult, Guest, Line, RESULTS, SHARED, write};

/// Names of cases that already have a result: a machine that was reset continues.
fn done(results: &Path) -> Vec<String> {
    let text = fs::read_to_string(results).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    let named = lines.filter_map(|line| match line {
        Line::Passed(result) | Line::Failed(result) | Line::Skipped(result) => Some(result.name),
        Line::Begin(_) | Line::Request(_) | Line::End => None,
    });
    named.collect()
}

/// Runs cases of a machine as its first process; ends with the machine.
///
/// # Errors
/// When the machine cannot be ended.
pub fn run(machine: &'static Machine, names: &[String]) -> Result<(), LabError> {
    let results = Path::new(SHARED).join(RESULTS);
    let version = process::run(Command::new("uname").arg("-r"));
    let _ = process::run(Command::new("ip").args(["link", "set", "lo", "up"]));
    write(&results, &Line::Begin(version.unwrap_or_default().trim().into()));
    let done = done(&results);
    let left = machine.cases.iter().filter(|case| {
        names.iter().any(|name| name == case.name) && done.iter().all(|name| name != case.name)
    });
    for case in left {
        let began = Instant::now();
        println!("lab: {} begins", case.name);
        let guest = Guest::new(machine.nics, case.name);
        let ended = catch_unwind(AssertUnwindSafe(|| (case.run)(&guest)));
        let seconds = began.elapsed().as_secs_f64();
        let result = |text: String| CaseResult { name: case.name.into(), text, seconds };
        let line = match ended {
            Ok(Ok(text)) => Line::Passed(result(text)),
            Ok(Err(LabError::Unavailable(reason))) => Line::Skipped(result(reason)),
            Ok(Err(error)) => Line::Failed(result(error.to_string())),
            Err(_) => Line::Failed(result("it panicked: see the console".into())),
        };
        write(&results, &line);
    }
    write(&results, &Line::End);
    let _ = process::run(&mut Command::new("sync"));
    reboot(RebootCommand::Restart).map_err(|error| LabError::Wrong(error.to_string()))
}
