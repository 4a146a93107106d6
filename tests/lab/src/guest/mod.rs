//! The guest's side: functions for cases in a machine, and the transfer of results to the host.

mod boxes;
mod host;
mod pair;
mod peer;
mod transfer;

pub use boxes::{Boxes, INSIDE, Node, OUTSIDE, Setup, Stack};
pub use host::Request;
pub use pair::Pair;
pub use peer::{Apart, INTERFACES, MANAGEMENT, PACKAGED, PACKAGES, PORT, Peer, serve};
pub use transfer::{Pings, round_trip, tcp, under_pings};

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::nic::{Nic, mac};

/// Mount point of the folder shared with the host.
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
    nics: &'static [Nic],
    case: &'static str,
}

impl Guest {
    /// A machine with a pair of each of these cards, for the named case.
    #[must_use]
    pub fn new(nics: &'static [Nic], case: &'static str) -> Self {
        Self { nics, case }
    }

    /// The two interfaces of a kind.
    ///
    /// # Errors
    /// If the driver has not created them.
    pub fn pair(&self, nic: Nic) -> Result<Pair, LabError> {
        Pair::find(self.number(nic), self.case)
    }

    /// The interface of the card at one end of a pair; waits until it appears.
    ///
    /// # Errors
    /// If it does not appear.
    pub fn interface(&self, nic: Nic, end: usize) -> Result<String, LabError> {
        pair::named(&mac(self.number(nic), end))
    }

    /// Number of the pair of a kind.
    pub fn number(&self, nic: Nic) -> usize {
        let index = self.nics.iter().position(|other| *other == nic);
        index.unwrap_or(usize::MAX)
    }
}

/// Path of a program among the tools.
pub fn tool(path: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(TOOLS_ENV).unwrap_or_else(|| "/".into())).join(path)
}

/// Command line of a program among the tools. Its libraries are from its own release, so the loader
/// of that release starts it.
pub fn tool_command(path: &str) -> Vec<String> {
    let libraries = tool("usr/lib/x86_64-linux-gnu");
    let loader = libraries.join("ld-linux-x86-64.so.2");
    let paths = [loader, "--library-path".into(), libraries, tool(path)];
    paths.map(|path| path.to_string_lossy().into_owned()).into()
}

/// Adds a line to the file of results.
pub(crate) fn write(path: &Path, line: &Line) {
    let text = serde_json::to_string(line).unwrap_or_default();
    let file = File::options().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(format!("{text}\n").as_bytes()));
    if let Err(error) = written {
        println!("lab: cannot write a result: {error}");
    }
}
