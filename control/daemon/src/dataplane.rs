//! The door to the dataplane: what this crate asks of it, and nothing else.
//!
//! [`Dataplane`] is what live changes and the control socket need; tests stand a fake behind it.
//! `node` puts the real one there.

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
    /// [`Refused`] when it does not fit; the one in use stays.
    fn publish(&self, snapshot: Snapshot) -> Result<(), Refused>;

    /// The edition that each worker has adopted.
    fn editions(&self) -> Vec<u64>;

    /// Changes who does bulk work.
    fn set_engine(&self, choice: EngineChoice);

    /// Changes the pace of a link, by its index in the configuration.
    fn set_rate(&self, link: usize, rate_mbit: Option<f64>);

    /// Changes who may read flows to several sinks, by the number of the flow.
    fn set_sinks(&self, sinks: Vec<(u32, Vec<PublicKey>)>);

    /// Counters and states of everything.
    fn observe(&self) -> Observation;
}

/// The dataplane does not take a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// What a dataplane says about itself.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Observation {
    /// Links, in configuration order.
    pub links: Vec<Link>,
    /// Faults that Linux counted on the sockets of each of them, by receive queue.
    pub queues: Vec<Vec<BTreeMap<String, u64>>>,
    /// Workers.
    pub workers: Vec<Worker>,
    /// Tunnels, in configuration order. Addresses and MTUs are filled in by the caller.
    pub tunnels: Vec<Tunnel>,
    /// Packets by verdict of the XDP program.
    pub verdicts: BTreeMap<String, u64>,
    /// Packets dropped by the pipeline by reason, over all workers.
    pub drops: BTreeMap<String, u64>,
    /// Who does bulk work; the mode is filled in by the caller.
    pub engine: Engine,
    /// Sessions, of neighbours as [`crate::config::Config::hops`] lists them.
    pub sessions: Sessions,
    /// When this was, by the clock of the workers, in nanoseconds.
    pub at: Nanos,
    /// Flows, one entry per worker.
    pub flows: Vec<Vec<FlowReport>>,
    /// What shards of flows counted that are gone.
    pub remainders: Vec<Remainder>,
}
