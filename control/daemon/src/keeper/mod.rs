//! Who keeps configurations: the supervisor, which may read and write files.
//!
//! ```text
//!  dataplane process: Client                            supervisor: Keeper
//!   reload ---- Read ------------------------------------> reads and checks the file
//!   undo ------ Past ------------------------------------> history
//!   changed --- InForce: the text of the next process ---> in force, history, confirmation
//!               by this process -------------------------> addresses of tunnels, metrics' listener
//!               by another process, or supervisor -------> checks keys, and this host, too
//!   set --save  Open, Prepare, Finish -------------------> the file, atomically
//! ```
//!
//! The dataplane process asks, one question at a time; texts travel as files in memory. The
//! supervisor never waits for a disk while it watches that process: the questions are answered by a
//! thread of their own, and what both need is locked for moments only.

pub mod history;

mod client;
mod server;

pub use client::{Client, Taken, Text};
pub use server::Keeper;
pub use server::handover::Handover;

use crate::config::names::Names;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Longest time for a change to be confirmed.
pub const CONFIRM_SECONDS_MAX: u64 = 24 * 3600;

/// What brought a configuration into force.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Cause {
    /// The daemon started with it.
    Start,
    /// The file was read again.
    Reload,
    /// A key was changed.
    Set,
    /// One of before was taken back by hand.
    Undo,
    /// The one after it was not confirmed.
    Unconfirmed,
    /// No process ran with the one after it.
    Failed,
}

impl Cause {
    const NAMES: [(&'static str, Cause); 6] = [
        ("start", Cause::Start),
        ("reload", Cause::Reload),
        ("set", Cause::Set),
        ("undo", Cause::Undo),
        ("unconfirmed", Cause::Unconfirmed),
        ("failed", Cause::Failed),
    ];

    /// How it is written.
    pub fn name(self) -> &'static str {
        Cause::NAMES.iter().find(|(_, cause)| *cause == self).map_or("", |(name, _)| name)
    }

    /// The cause that is written so.
    pub fn of_name(name: &str) -> Option<Cause> {
        Cause::NAMES.iter().find(|(known, _)| *known == name).map(|(_, cause)| *cause)
    }
}

/// A question. Each gets one [`Answer`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum Ask {
    /// The file as it is now, checked. `changes` says whether it is to come into force.
    Read { changes: bool },
    /// A configuration of before, checked; without a number the one to go back to.
    Past { number: Option<u64> },
    /// In force from now on, or once it was handed over: the text for the next process, and the
    /// text for people.
    InForce(Coming),
    /// What waits for it is confirmed.
    Confirm,
    /// What was in force.
    History,
    /// The file, to be changed.
    Open,
    /// A draft of the file, which comes along.
    Prepare,
    /// The draft takes the place of the file.
    Finish,
    /// Or not.
    Discard,
}

/// How a configuration comes into force.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Coming {
    /// What brings it.
    pub cause: Cause,
    /// In so many seconds the one of before is back, unless this one is confirmed.
    pub confirm_seconds: Option<u64>,
    /// Whether it is what was in force, but for comments and order.
    pub is_same: bool,
    /// Who is to run with it.
    pub by: By,
}

/// Who is to run with a configuration.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum By {
    /// The dataplane process that has it already.
    This,
    /// Another dataplane process.
    Process,
    /// Another supervisor.
    Supervisor,
}

/// An answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum Answer {
    /// It is done; the number of what is in force. A listener for metrics comes along where they
    /// were switched on, or are served somewhere else.
    Done { number: u64 },
    /// The text comes along, and the MTUs of the interfaces and the addresses of the hosts that it
    /// names.
    Text { number: u64, file: String, mtus: BTreeMap<String, u32>, names: Names },
    /// What was in force.
    History(Past),
    /// It was not done; why comes along.
    Refused,
    /// The same, and it was no mistake of who asked.
    Failed,
}

/// What was in force.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Past {
    /// Number, time in seconds since 1970, cause; oldest first.
    pub entries: Vec<(u64, u64, String)>,
    /// Where it is on disk.
    pub directory: Option<String>,
    /// Why it is not; empty when it is.
    pub trouble: String,
    /// Seconds until what is in force is taken back.
    pub confirm_seconds_left: Option<u64>,
}
