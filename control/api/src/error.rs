//! Reasons of the daemon to refuse a request.

use crate::exit;
use std::fmt;
use zlink::ReplyError;
use zlink::introspect;

/// Errors of the interface. Each carries the sentence to show.
#[derive(Clone, PartialEq, Debug, ReplyError, introspect::ReplyError)]
#[zlink(interface = "org.recoded.Control1")]
pub enum ControlError {
    /// No flow of this id is configured.
    UnknownFlow {
        /// The id asked for.
        flow: i64,
        /// What is configured.
        reason: String,
    },
    /// A rule forbids it. Nothing was changed.
    Refused {
        /// Key, value and rule.
        reason: String,
    },
    /// Published, but not every worker took it up in time. The last good edition stays active.
    NotAdopted {
        /// Edition that was given up.
        edition: u64,
        /// Which workers did not follow.
        reason: String,
    },
    /// Something on the host is in the way. Nothing was changed.
    Failed {
        /// What, and what to do about it.
        reason: String,
    },
}

impl ControlError {
    /// Exit code that a client should end with.
    pub fn exit_code(&self) -> u8 {
        match self {
            ControlError::UnknownFlow { .. } | ControlError::Refused { .. } => exit::REFUSED,
            ControlError::NotAdopted { .. } | ControlError::Failed { .. } => exit::FAILED,
        }
    }

    /// Stable name of the kind, as in JSON output.
    pub fn kind(&self) -> &'static str {
        match self {
            ControlError::UnknownFlow { .. } => "unknown_flow",
            ControlError::Refused { .. } => "refused",
            ControlError::NotAdopted { .. } => "not_adopted",
            ControlError::Failed { .. } => "failed",
        }
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::UnknownFlow { reason, .. }
            | ControlError::Refused { reason }
            | ControlError::NotAdopted { reason, .. }
            | ControlError::Failed { reason } => formatter.write_str(reason),
        }
    }
}

impl std::error::Error for ControlError {}
