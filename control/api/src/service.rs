//! The server side: Varlink in front of anything that is a [`Backend`].
//!
//! [`Service`] also answers `org.varlink.service`, so `varlinkctl introspect` works. It serves any
//! zlink listener; bounding connections and requests is the listener's job, hence the daemon's.

#![allow(missing_docs, reason = "zlink's macro makes public items it does not document")]

use crate::error::ControlError;
use crate::v1::{
    Adopted, Engine, EngineSet, Flow, FlowNeighbour, Frames, HopLoss, Link, Neighbour, Parameters,
    Remote, Session, State, Tunnel, Version, Worker,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use zlink::introspect::Type;

/// Answer of a [`Backend::set`] that waits without blocking other connections' deadlines.
pub type SetFuture<'a> = Pin<Box<dyn Future<Output = Result<Adopted, ControlError>> + 'a>>;

/// What stands behind the control socket.
pub trait Backend {
    /// Which daemon this is.
    fn version(&self) -> Version;

    /// Everything it knows.
    fn state(&self) -> State;

    /// The configuration in force, as TOML.
    fn config(&self) -> String;

    /// Changes parameters of a flow: all of them or none. Values are written as in the
    /// configuration file.
    fn set(&mut self, flow: i64, changes: BTreeMap<String, String>) -> SetFuture<'_>;

    /// Changes who does bulk work: auto, cpu, cuda or fpga.
    ///
    /// # Errors
    /// [`ControlError::Refused`] for any other word.
    fn set_engine(&mut self, mode: &str) -> Result<Engine, ControlError>;
}

/// The configuration, as a reply.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Type)]
pub struct Config {
    /// The configuration in force, as TOML with every key written out.
    pub toml: String,
}

/// Serves a [`Backend`].
pub struct Service {
    backend: Box<dyn Backend>,
}

impl Service {
    /// Puts the interface in front of `backend`.
    pub fn new(backend: Box<dyn Backend>) -> Service {
        Service { backend }
    }
}

/// Controls one Recoded daemon.
#[zlink::service(
    interface = "org.recoded.Control1",
    types = [
        Link, Neighbour, Worker, Frames, Flow, FlowNeighbour, Parameters, HopLoss, Remote, Tunnel, Engine, Session
    ],
    vendor = "Recoded",
    product = "recoded",
    version = env!("CARGO_PKG_VERSION")
)]
impl Service {
    /// Which daemon answers.
    async fn get_version(&self) -> Version {
        self.backend.version()
    }

    /// Everything the daemon knows: links, workers, flows, tunnels, counters, configuration.
    async fn get_state(&self) -> State {
        self.backend.state()
    }

    /// The configuration in force.
    async fn get_config(&self) -> Config {
        Config { toml: self.backend.config() }
    }

    /// Changes parameters of a flow while traffic runs: all of them or none. Values are written as
    /// in the configuration file. Returns when every worker has adopted the change.
    async fn set_flow(
        &mut self,
        flow: i64,
        changes: BTreeMap<String, String>,
    ) -> Result<Adopted, ControlError> {
        self.backend.set(flow, changes).await
    }

    /// Changes who does bulk work, at once: auto, cpu, cuda or fpga.
    async fn set_engine(&mut self, mode: String) -> Result<EngineSet, ControlError> {
        Ok(EngineSet { engine: self.backend.set_engine(&mode)? })
    }
}
