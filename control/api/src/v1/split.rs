//! TCP connections of a tunnel that the program `recoded-split` ends at both edges.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use zlink::introspect::CustomType;

/// TCP connections that end at both edges of a tunnel.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct Split {
    /// Address of the other edge in the tunnel.
    pub peer: String,
    /// connected; waiting while the other edge does not answer; starting; or stopped: connections
    /// then pass through the tunnel as they are.
    pub state: String,
    /// Why it stopped; empty otherwise.
    pub reason: String,
    /// Connections that are open now, in both directions.
    pub open: u64,
    /// Bytes read from one side of a connection that the other side has not taken yet.
    pub waiting_bytes: u64,
    /// Every counter that is not a fault, by name.
    pub counters: BTreeMap<String, u64>,
    /// Everything that went wrong, by reason.
    pub faults: BTreeMap<String, u64>,
}
