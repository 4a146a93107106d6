//! The outcome of `apply` on one box.

use super::ssh::{Answer, NoAnswer};
use super::status::{BoxFinding, finding, refused};
use recoded_api::exit;
use serde::Serialize;
use std::time::Duration;

/// Interval of checks.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// Outcome of a box.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Applied {
    pub(super) node: String,
    /// same, differs, changed, absent; -.
    pub(super) file: &'static str,
    /// Highest cost of its changes: live, flow, gap; -.
    pub(super) cost: String,
    /// applied; written: no daemon runs there; started: this command started one; unchanged; back:
    /// the previous configuration; lost: rolls back by itself when the time is over.
    pub(super) state: &'static str,
    pub(super) findings: Vec<BoxFinding>,
    /// Whether a configuration waits for confirmation.
    #[serde(skip)]
    pub(super) waits: bool,
    /// Whether the file was replaced.
    #[serde(skip)]
    pub(super) committed: bool,
}

/// The fault of a reply, if any.
pub(super) fn failed(answer: Result<Answer, NoAnswer>) -> Option<(u8, BoxFinding)> {
    match answer {
        Ok(answer) if answer.code == 0 => None,
        Ok(answer) => {
            let (cause, cure) = refused(&answer);
            Some((exit::REFUSED, finding(cause, cure)))
        }
        Err(NoAnswer { cause, cure }) => Some((exit::NOT_RUNNING, finding(cause, cure))),
    }
}
