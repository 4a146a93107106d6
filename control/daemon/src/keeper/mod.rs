//! The keeper of configurations: the supervisor, which may read and write files.
//!
//! ```text
//!  dataplane process: Client                            supervisor: Keeper
//!   reload ---- Read ------------------------------------> reads and checks the file
//!   compare --- Compare: a text -------------------------> checks it as the file
//!   undo ------ Past ------------------------------------> history
//!   changed --- InForce: the text of the next process ---> active text, history, confirmation
//!               by this process -------------------------> addresses of tunnels, metrics' listener
//!               by another process, or supervisor -------> checks keys, and this host, too
//!   set --save  Open, Prepare, Finish -------------------> the file, atomically
//! ```
//!
//! The dataplane process sends one request at a time; texts travel as files in memory. The
//! supervisor never waits for a disk while it watches that process: a separate thread serves the
//! requests, and locks on shared state are held only briefly.

pub mod history;

mod client;
mod server;

pub use client::{Client, Taken, Text};
pub use server::Keeper;
pub use server::handover::Handover;
pub use server::host::TunnelNetwork;

use crate::config::names::Names;
use recoded_api::v1::Split;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Longest time for a change to be confirmed.
pub const CONFIRM_SECONDS_MAX: u64 = 24 * 3600;

/// Cause of applying a configuration.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Cause {
    /// The daemon started with it.
    Start,
    /// The file was reloaded.
    Reload,
    /// A key was changed.
    Set,
    /// A user rolled back to an earlier configuration.
    Undo,
    /// Its successor was not confirmed.
    Unconfirmed,
    /// No process ran with its successor.
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

    /// The name as written.
    pub fn name(self) -> &'static str {
        Cause::NAMES.iter().find(|(_, cause)| *cause == self).map_or("", |(name, _)| name)
    }

    /// The cause with this name.
    pub fn of_name(name: &str) -> Option<Cause> {
        Cause::NAMES.iter().find(|(known, _)| *known == name).map(|(_, cause)| *cause)
    }
}

/// A request. Each gets one [`Answer`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum Ask {
    /// The present file, checked. `changes` states whether it is to be applied.
    Read { changes: bool },
    /// An earlier configuration, checked; without a number, the one to roll back to.
    Past { number: Option<u64> },
    /// Applied from now on, or after the handover: the text for the next process, and the text for
    /// users.
    InForce(Coming),
    /// Confirms the pending change.
    Confirm,
    /// The configurations applied so far.
    History,
    /// The file, for editing.
    Open,
    /// A draft of the file, which is attached.
    Prepare,
    /// Replaces the file with the draft.
    Finish,
    /// Removes the draft.
    Discard,
    /// Checks an attached text as the file, to compare it with the active configuration.
    Compare,
    /// State of the programs that split TCP connections.
    Splits,
}

/// How a configuration is applied.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Coming {
    /// The cause.
    pub cause: Cause,
    /// Seconds until rollback, unless this configuration is confirmed.
    pub confirm_seconds: Option<u64>,
    /// Whether it equals the active one except for comments and order.
    pub is_same: bool,
    /// The process that runs with it.
    pub by: By,
}

/// Process that runs with a configuration.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum By {
    /// The dataplane process that already has it.
    This,
    /// Another dataplane process.
    Process,
    /// Another supervisor.
    Supervisor,
}

/// An answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum Answer {
    /// Done; the number of the active configuration. A listener for metrics is attached if they
    /// were switched on, or their address changed.
    Done { number: u64 },
    /// The text is attached, with the MTUs of the interfaces and the addresses of the hosts that it
    /// names, and whether it was derived from a file with other lines.
    Text {
        number: u64,
        file: String,
        mtus: BTreeMap<String, u32>,
        names: Names,
        #[serde(default)]
        is_derived: bool,
    },
    /// The configurations applied so far.
    History(Past),
    /// State of the programs that split TCP connections, by tunnel.
    Splits(BTreeMap<String, Split>),
    /// Refused; the reason is attached.
    Refused,
    /// Failed without the requester's fault; the reason is attached.
    Failed,
}

/// The configurations applied so far.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Past {
    /// Number, time in seconds since 1970, cause; oldest first.
    pub entries: Vec<(u64, u64, String)>,
    /// Directory on disk.
    pub directory: Option<String>,
    /// Why it is not on disk; empty if it is.
    pub trouble: String,
    /// Seconds until the active configuration is rolled back.
    pub confirm_seconds_left: Option<u64>,
}
