//! Changes of flows, next hops, sessions, links, drops, configurations and processes.
//!
//! ```text
//!  dataplane process                                     supervisor
//!   state, once a second -> Watcher -- Tell ---> damps, numbers, logs and keeps: Log
//!   GetEvents <------------ Client --- Since --> Log        ^
//!                                             Keeper, supervisor: what they see themselves
//! ```
//!
//! The supervisor keeps events, since it outlives the processes that see packets. It accepts only
//! text from them: their reports are truncated, stripped of control characters, and bounded in
//! number. Events about configurations and processes come from the supervisor alone.

mod channel;
mod damper;
mod log;
mod watch;

pub use channel::{Client, serve};
pub use log::{KEPT_MAX, Log, ROUTINE_MAX};
pub use watch::Watcher;

use serde::{Deserialize, Serialize};

/// Kind of an event. The name on the wire is that of the variant in snake case.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Kind {
    FlowUp,
    FlowWaiting,
    FlowQuiet,
    FlowActive,
    FlowDown,
    FlowChanged,
    FlowAdded,
    FlowRemoved,
    NextHopHeard,
    NextHopSilent,
    SessionUp,
    SessionRekeyed,
    SessionDown,
    SessionRefused,
    LinkUp,
    LinkDown,
    TunnelUp,
    TunnelDown,
    MtuSmaller,
    MtuNormal,
    MtuChanged,
    NeighbourDisagrees,
    NeighbourAgrees,
    NeighbourMoved,
    RateChanged,
    DropsRising,
    EngineUp,
    EngineDown,
    WorkerRenewed,
    ConfigApplied,
    ConfigUndone,
    ConfigConfirmed,
    ProcessStarted,
    ProcessEnded,
    DaemonStarted,
}

/// Severity.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// For information.
    Info,
    /// Packets may be lost, or arrive at higher cost.
    Warning,
    /// Something failed that should not.
    Error,
}

impl Level {
    /// The name as written.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

impl Kind {
    /// The name as written.
    pub const fn name(self) -> &'static str {
        self.facts().0
    }

    /// Its severity.
    pub const fn level(self) -> Level {
        self.facts().1
    }

    /// Kinds of the same topic undo each other and share a damper.
    const fn topic(self) -> u8 {
        self.facts().2
    }

    const fn facts(self) -> (&'static str, Level, u8) {
        use Level::{Error, Info, Warning};
        match self {
            Kind::FlowUp => ("flow_up", Info, 0),
            Kind::FlowWaiting => ("flow_waiting", Info, 0),
            Kind::FlowDown => ("flow_down", Warning, 0),
            // Sparse traffic starts and stops often, and must not hide that a path goes down.
            Kind::FlowQuiet => ("flow_quiet", Info, 20),
            Kind::FlowActive => ("flow_active", Info, 20),
            Kind::FlowChanged => ("flow_changed", Info, 1),
            Kind::FlowAdded => ("flow_added", Info, 2),
            Kind::FlowRemoved => ("flow_removed", Info, 2),
            Kind::NextHopHeard => ("next_hop_heard", Info, 3),
            Kind::NextHopSilent => ("next_hop_silent", Warning, 3),
            Kind::SessionUp => ("session_up", Info, 4),
            Kind::SessionDown => ("session_down", Warning, 4),
            Kind::SessionRekeyed => ("session_rekeyed", Info, 5),
            Kind::SessionRefused => ("session_refused", Warning, 6),
            Kind::LinkUp => ("link_up", Info, 7),
            Kind::LinkDown => ("link_down", Warning, 7),
            Kind::TunnelUp => ("tunnel_up", Info, 8),
            Kind::TunnelDown => ("tunnel_down", Warning, 8),
            Kind::MtuSmaller => ("mtu_smaller", Warning, 9),
            Kind::MtuNormal => ("mtu_normal", Info, 9),
            Kind::MtuChanged => ("mtu_changed", Info, 10),
            Kind::NeighbourDisagrees => ("neighbour_disagrees", Warning, 21),
            Kind::NeighbourAgrees => ("neighbour_agrees", Info, 21),
            Kind::NeighbourMoved => ("neighbour_moved", Info, 22),
            Kind::RateChanged => ("rate_changed", Info, 11),
            Kind::DropsRising => ("drops_rising", Warning, 12),
            Kind::EngineUp => ("engine_up", Info, 13),
            Kind::EngineDown => ("engine_down", Warning, 13),
            Kind::WorkerRenewed => ("worker_renewed", Error, 23),
            Kind::ConfigApplied => ("config_applied", Info, 14),
            Kind::ConfigUndone => ("config_undone", Warning, 15),
            Kind::ConfigConfirmed => ("config_confirmed", Info, 16),
            Kind::ProcessStarted => ("process_started", Info, 17),
            Kind::ProcessEnded => ("process_ended", Error, 18),
            Kind::DaemonStarted => ("daemon_started", Info, 19),
        }
    }

    /// Whether it also occurs often in normal operation. Routine events have a limit of their own,
    /// so that they do not push out the others.
    const fn is_routine(self) -> bool {
        matches!(
            self,
            Kind::SessionRekeyed | Kind::RateChanged | Kind::FlowQuiet | Kind::FlowActive
        )
    }

    /// Whether the process that sees packets reports it; the supervisor reports the others.
    const fn is_of_dataplane(self) -> bool {
        !matches!(
            self,
            Kind::ConfigApplied
                | Kind::ConfigUndone
                | Kind::ConfigConfirmed
                | Kind::ProcessStarted
                | Kind::ProcessEnded
                | Kind::DaemonStarted
        )
    }
}

/// An event before it has a number and a time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Happened {
    /// The kind.
    pub kind: Kind,
    /// The subject.
    pub subject: String,
    /// Part of the subject, or empty.
    pub about: String,
    /// Description.
    pub text: String,
}

impl Happened {
    /// An event about a subject as a whole.
    pub fn new(kind: Kind, subject: impl Into<String>, text: impl Into<String>) -> Happened {
        Happened { kind, subject: subject.into(), about: String::new(), text: text.into() }
    }

    /// About this part of the subject.
    #[must_use]
    pub fn about(self, about: impl Into<String>) -> Happened {
        Happened { about: about.into(), ..self }
    }

    /// Returns it within bounds, without control characters that move a cursor or start a new log
    /// line.
    fn cleaned(self) -> Happened {
        Happened {
            kind: self.kind,
            subject: clean(&self.subject, SUBJECT_BYTES_MAX),
            about: clean(&self.about, SUBJECT_BYTES_MAX),
            text: clean(&self.text, TEXT_BYTES_MAX),
        }
    }
}

/// Names of links have at most 32 bytes, addresses 45.
const SUBJECT_BYTES_MAX: usize = 96;

/// Bounds the text to about a sentence.
const TEXT_BYTES_MAX: usize = 256;

fn clean(text: &str, bytes_max: usize) -> String {
    let mut cleaned = String::new();
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if cleaned.len() + c.len_utf8() > bytes_max {
            break;
        }
        cleaned.push(c);
    }
    cleaned
}
