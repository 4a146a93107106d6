//! The interface between this crate and the dataplane.
//!
//! [`Dataplane`] serves live changes and the control socket; tests implement it with a fake. `node`
//! implements it with the real dataplane.

use crate::config::EngineChoice;
use recoded_api::v1::{Engine, Link, Tunnel, Worker};
use recoded_pipeline::params::{Nanos, Snapshot};
use recoded_pipeline::report::{FlowReport, Remainder};
use recoded_runtime::Sessions;
use recoded_runtime::secure::PublicKey;
use std::collections::BTreeMap;

/// A running dataplane.
pub trait Dataplane {
    /// Hands a snapshot to the workers; they adopt it at their next burst.
    ///
    /// # Errors
    ///
    /// [`Refused`] if it does not fit; the current one stays.
    fn publish(&self, snapshot: Snapshot) -> Result<(), Refused>;

    /// The edition that each worker has adopted.
    fn editions(&self) -> Vec<u64>;

    /// Changes the engine for bulk work.
    fn set_engine(&self, choice: EngineChoice);

    /// Changes the pacing rate of a link, by its index in the configuration.
    fn set_rate(&self, link: usize, rate_mbit: Option<f64>);

    /// Changes the sinks that may decrypt group flows, by the number of the flow.
    fn set_sinks(&self, sinks: Vec<(u32, Vec<PublicKey>)>);

    /// Reads all counters and states.
    fn observe(&self) -> Observation;
}

/// The dataplane does not take a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// State reported by a dataplane.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Observation {
    /// Links, in configuration order.
    pub links: Vec<Link>,
    /// Faults that Linux counted on the sockets of each link, by receive queue.
    pub queues: Vec<Vec<BTreeMap<String, u64>>>,
    /// Workers.
    pub workers: Vec<Worker>,
    /// Tunnels, in configuration order. Addresses and MTUs are filled in by the caller.
    pub tunnels: Vec<Tunnel>,
    /// Packets by verdict of the XDP program.
    pub verdicts: BTreeMap<String, u64>,
    /// Packets dropped by the pipeline by reason, over all workers.
    pub drops: BTreeMap<String, u64>,
    /// Engine for bulk work; the mode is filled in by the caller.
    pub engine: Engine,
    /// Sessions, of neighbours as [`crate::config::Config::hops`] lists them.
    pub sessions: Sessions,
    /// Time of the observation, by the workers' clock, in nanoseconds.
    pub at: Nanos,
    /// Flows, one entry per worker.
    pub flows: Vec<Vec<FlowReport>>,
    /// Counters of removed shards of flows.
    pub remainders: Vec<Remainder>,
}
