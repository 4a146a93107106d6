//! Runs cases: two machines at a time, in parallel with waiting ones; a machine whose boot stalls
//! is retried once.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use super::machine::Running;
use super::packages::Cache;
use crate::LabError;
use crate::cases::{self, Case, Machine};
use crate::guest::{CaseResult, Line};

/// Concurrent machines, in addition to waiting ones. Each keeps one or two processors of the host
/// busy.
const MACHINES_AT_ONCE: usize = 2;

/// A machine that has not started within this time has stalled, which happens occasionally with
/// Linux on several emulated processors. A boot takes 20 s, and several times that if other
/// programs use the processors.
const BOOT_PATIENCE: Duration = Duration::from_secs(300);

/// Up to this many failed cases are retried, each alone.
const AGAIN_MAX: usize = 3;

/// How often results are looked for.
const LOOK: Duration = Duration::from_millis(200);

/// How a case ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As it should, with a few words.
    Passed(String),
    /// It did not, and why.
    Failed(String),
    /// It could not run here, and why.
    Skipped(String),
}

/// The verdict on one case.
#[derive(Clone, Debug)]
pub struct CaseReport {
    /// Name of the case.
    pub case: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// Duration of the case without the boot.
    pub seconds: f64,
    /// Reason of its first failure, if it was retried.
    pub before: Option<String>,
}

impl CaseReport {
    /// The line that is printed.
    pub fn line(&self) -> String {
        let (case, seconds) = (self.case, self.seconds);
        match &self.verdict {
            Verdict::Passed(text) => match &self.before {
                None => format!("{case:<24} ok ({seconds:.0} s): {text}"),
                Some(before) => format!(
                    "{case:<24} ok ({seconds:.0} s), alone, the second time: {text}; before: {before}"
                ),
            },
            Verdict::Failed(reason) => format!("{case:<24} FAILED: {reason}"),
            Verdict::Skipped(reason) => format!("{case:<24} skipped: {reason}"),
        }
    }
}

/// A machine and its selected cases.
type Selected = (&'static Machine, Vec<&'static Case>);

/// Runs the cases with these names, or all if there are none; calls `report` for each as it ends.
///
/// # Errors
/// If a name matches no case, or a folder cannot be created.
pub fn run(
    names: &[String],
    report: impl Fn(&CaseReport) + Sync,
) -> Result<Vec<CaseReport>, LabError> {
    let mut reports = run_all(select(names)?, &report);
    let is_failed = |one: &CaseReport| matches!(one.verdict, Verdict::Failed(_));
    if reports.iter().filter(|one| is_failed(one)).count() > AGAIN_MAX {
        return Ok(reports);
    }
    // A case may fail because machines and other programs compete for the processors: retry it
    // alone.
    for first in reports.iter_mut().filter(|one| is_failed(one)) {
        let Verdict::Failed(reason) = &first.verdict else { continue };
        for second in run_all(select(&[first.case.to_owned()])?, &|_| ()) {
            if second.case == first.case {
                let before = Some(reason.clone());
                let second = CaseReport { before, ..second };
                report(&second);
                *first = second;
                break;
            }
        }
    }
    Ok(reports)
}

/// Runs cases once.
fn run_all(selected: Vec<Selected>, report: &(impl Fn(&CaseReport) + Sync)) -> Vec<CaseReport> {
    let (idle, busy): (Vec<Selected>, Vec<Selected>) =
        selected.into_iter().partition(|(machine, _)| machine.waits);
    let waiting = Mutex::new(busy);
    let reports = Mutex::new(Vec::new());
    let tell = |one: CaseReport| {
        report(&one);
        reports.lock().unwrap_or_else(|lock| lock.into_inner()).push(one);
    };
    std::thread::scope(|scope| {
        let tell = &tell;
        for (machine, cases) in idle {
            scope.spawn(move || run_machine(machine, &cases, tell));
        }
        for _ in 0..MACHINES_AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap_or_else(|lock| lock.into_inner()).pop();
                    let Some((machine, cases)) = next else { break };
                    run_machine(machine, &cases, tell);
                }
            });
        }
    });
    reports.into_inner().unwrap_or_else(|lock| lock.into_inner())
}

/// The longest machines last, as they are taken from the end.
fn select(names: &[String]) -> Result<Vec<Selected>, LabError> {
    let matches = |case: &Case, name: &String| {
        case.name
            .strip_prefix(name.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    if let Some(name) = names.iter().find(|name| !cases::all().any(|(_, case)| matches(case, name)))
    {
        return LabError::wrong(format!("no case is called {name}: scripts/lab lists them"));
    }
    let mut selected: Vec<Selected> = Vec::new();
    for machine in cases::MACHINES {
        let wanted =
            |case: &&Case| names.is_empty() || names.iter().any(|name| matches(case, name));
        let cases: Vec<&Case> = machine.cases.iter().filter(wanted).collect();
        if !cases.is_empty() {
            selected.push((machine, cases));
        }
    }
    selected.sort_by_key(|(_, cases)| cases.len());
    Ok(selected)
}

fn run_machine(machine: &'static Machine, cases: &[&'static Case], tell: &impl Fn(CaseReport)) {
    let folder = target().join("run").join(format!("{}-{}", std::process::id(), machine.name));
    let mut stalled = false;
    loop {
        let ended = boot(machine, cases, &folder, tell);
        match ended {
            Ok(Boot::Stalled) if !stalled => {
                stalled = true;
                eprintln!("machine {}: the boot stalled and is tried once more", machine.name);
            }
            Ok(Boot::Stalled) => {
                let logs = keep(&folder, machine);
                let reason = format!("the machine did not boot, twice (logs: {})", logs.display());
                tell_all(cases, &Verdict::Failed(reason), tell);
                break;
            }
            Ok(Boot::Ran) => break,
            Err(LabError::Unavailable(reason)) => {
                tell_all(cases, &Verdict::Skipped(reason), tell);
                break;
            }
            Err(error) => {
                tell_all(cases, &Verdict::Failed(error.to_string()), tell);
                break;
            }
        }
    }
    // The leftovers are small, and the next run has another name.
    let _ = fs::remove_dir_all(&folder);
}

fn tell_all(cases: &[&'static Case], verdict: &Verdict, tell: &impl Fn(CaseReport)) {
    for case in cases {
        tell(CaseReport { case: case.name, verdict: verdict.clone(), seconds: 0.0, before: None });
    }
}

/// How a boot ended.
enum Boot {
    /// Every case has its verdict.
    Ran,
    /// No case began.
    Stalled,
}

fn boot(
    machine: &'static Machine,
    cases: &[&'static Case],
    folder: &Path,
    tell: &impl Fn(CaseReport),
) -> Result<Boot, LabError> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(LabError::file(folder))?;
    }
    fs::create_dir_all(folder).map_err(LabError::file(folder))?;
    let names: Vec<&str> = cases.iter().map(|case| case.name).collect();
    let mut running = Running::start(&Cache::open()?, machine, &names, folder)?;
    let mut told = 0;
    let mut left = cases.to_vec();
    loop {
        let is_running = running.is_running();
        let lines = running.lines();
        for line in &lines[told..] {
            if let Line::Request(request) = line {
                running.obey(request);
            }
            if let Some(report) = report_of(line, &mut left, folder, machine) {
                tell(report);
            }
        }
        told = lines.len();
        if lines.last() == Some(&Line::End) {
            return Ok(Boot::Ran);
        }
        if lines.is_empty() && (!is_running || running.age() > BOOT_PATIENCE) {
            return Ok(Boot::Stalled);
        }
        if !is_running {
            let logs = keep(folder, machine);
            let age = running.age().as_secs();
            let reason = format!("the machine ended after {age} s (logs: {})", logs.display());
            tell_all(&left, &Verdict::Failed(reason), tell);
            return Ok(Boot::Ran);
        }
        std::thread::sleep(LOOK);
    }
}

/// The report in a line about a case, which is then removed from the remaining ones.
fn report_of(
    line: &Line,
    left: &mut Vec<&'static Case>,
    folder: &Path,
    machine: &Machine,
) -> Option<CaseReport> {
    let (result, verdict): (&CaseResult, fn(String) -> Verdict) = match line {
        Line::Passed(result) => (result, Verdict::Passed),
        Line::Failed(result) => (result, Verdict::Failed),
        Line::Skipped(result) => (result, Verdict::Skipped),
        Line::Begin(_) | Line::Request(_) | Line::End => return None,
    };
    let index = left.iter().position(|case| case.name == result.name)?;
    let case = left.remove(index);
    let mut verdict = verdict(result.text.clone());
    if let Verdict::Failed(reason) = &mut verdict {
        reason.push_str(&format!(" (logs: {})", keep(folder, machine).display()));
    }
    Some(CaseReport { case: case.name, verdict, seconds: result.seconds, before: None })
}

/// Copies logs and configurations of a machine to where they stay.
fn keep(folder: &Path, machine: &Machine) -> PathBuf {
    let logs = target().join("logs").join(machine.name);
    let _ = fs::remove_dir_all(&logs);
    let _ = fs::create_dir_all(&logs);
    for from in [folder.to_owned(), folder.join("shared")] {
        for entry in fs::read_dir(&from).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_log = [".log", ".toml", "results"]
                .iter()
                .any(|end| name.to_string_lossy().ends_with(end));
            if is_log {
                let _ = fs::copy(entry.path(), logs.join(name));
            }
        }
    }
    logs
}

/// Folder of machines and logs: the build folder.
fn target() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let folder = folder.unwrap_or_else(own);
    fs::canonicalize(&folder).unwrap_or(folder).join("lab")
}
