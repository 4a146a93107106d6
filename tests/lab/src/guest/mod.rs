//! The guest's side: the first process of the machine, which runs cases and reports each.

mod boxes;
mod host;
mod pair;
mod peer;
mod transfer;

pub use boxes::{Boxes, INSIDE, Node, OUTSIDE, Setup, Stack};
pub use host::Request;
pub use pair::Pair;
pub use peer::{Apart, INTERFACES, MANAGEMENT, PACKAGES, PORT, Peer, serve};
pub use transfer::{Pings, round_trip, tcp_at, under_pings};

use std::fs::{self, File};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use recoded_netns::process;
use rustix::system::{RebootCommand, reboot};
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::cases::{Machine, Nic, mac};

/// Where the guest has the folder that it shares with the host.
pub const SHARED: &str = "/run/lab";

/// Names the root of the host's cache of tools in the guest.
pub const TOOLS_ENV: &str = "RECODED_LAB_TOOLS";

/// The file of results in the shared folder, one line of JSON each.
pub const RESULTS: &str = "results";

/// A line of the file of results.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Line {
    /// The machine is up and runs this version of Linux.
    Begin(String),
    /// A case passed.
    Passed(CaseResult),
    /// A case failed.
    Failed(CaseResult),
    /// A case could not run.
    Skipped(CaseResult),
    /// A case has QEMU do something.
    Request(Request),
    /// All cases have run.
    End,
}

/// The result of one case.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CaseResult {
    /// Name of the case.
    pub name: String,
    /// A few words, or the reason.
    pub text: String,
    /// Its duration.
    pub seconds: f64,
}

/// The machine, as cases see it.
#[derive(Debug)]
pub struct Guest {
    machine: &'static Machine,
    case: &'static str,
}

impl Guest {
    /// The two interfaces of a kind.
    ///
    /// # Errors
    /// When the driver has not made them.
    pub fn pair(&self, nic: Nic) -> Result<Pair, LabError> {
        Pair::find(self.number(nic), self.case)
    }

    /// The interface of the card at one end of a pair, which may have to appear first.
    ///
    /// # Errors
    /// When it does not.
    pub fn interface(&self, nic: Nic, end: usize) -> Result<String, LabError> {
        pair::named(&mac(self.number(nic), end))
    }

    /// Number of the pair of a kind.
    pub fn number(&self, nic: Nic) -> usize {
        let index = self.machine.nics.iter().position(|other| *other == nic);
        index.unwrap_or(usize::MAX)
    }
}

/// Path of a program among the tools.
pub fn tool(path: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(TOOLS_ENV).unwrap_or_else(|| "/".into())).join(path)
}

/// Command line of a program among the tools. Its libraries are of the release that it is from, so
/// the loader of that release starts it.
pub fn tool_command(path: &str) -> Vec<String> {
    let libraries = tool("usr/lib/x86_64-linux-gnu");
    let loader = libraries.join("ld-linux-x86-64.so.2");
    let paths = [loader, "--library-path".into(), libraries, tool(path)];
    paths.map(|path| path.to_string_lossy().into_owned()).into()
}

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
pub fn main(machine: &'static Machine, names: &[String]) -> Result<(), LabError> {
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
        let guest = Guest { machine, case: case.name };
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

fn write(path: &Path, line: &Line) {
    let text = serde_json::to_string(line).unwrap_or_default();
    let file = File::options().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(format!("{text}\n").as_bytes()));
    if let Err(error) = written {
        println!("lab: cannot write a result: {error}");
    }
}
