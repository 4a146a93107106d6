//! The server side: Varlink in front of anything that is a [`Backend`].
//!
//! [`Service`] also answers `org.varlink.service`, so `varlinkctl introspect` works. It serves any
//! zlink listener; bounding connections and requests is the listener's job, hence the daemon's.

#![allow(missing_docs, reason = "zlink's macro makes public items it does not document")]

use crate::error::ControlError;
use crate::parts::parts;
use crate::v1::{
    Adopted, Change, Confirmed, Disagreement, Engine, EngineSet, Event, Events, Flow,
    FlowNeighbour, FlowUpstream, Frames, History, HistoryEntry, HopLoss, Link, Neighbour,
    Parameters, Reloaded, Remote, Session, Split, State, Tunnel, Version, Worker,
};
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use zlink::Reply;
use zlink::introspect::Type;

/// An answer that is waited for without blocking other connections' deadlines.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, ControlError>> + 'a>>;

/// Answer of a [`Backend::set`].
pub type SetFuture<'a> = Answer<'a, Adopted>;

/// The implementation of the control socket's methods.
pub trait Backend {
    /// Which daemon this is.
    fn version(&self) -> Version;

    /// Everything it knows.
    fn state(&self) -> State;

    /// The active configuration, as TOML.
    fn config(&self) -> String;

    /// Changes parameters of a flow: all of them or none. Values are written as in the
    /// configuration file.
    fn set(&mut self, flow: i64, changes: BTreeMap<String, String>) -> SetFuture<'_>;

    /// The same; after `confirm_seconds` it rolls back, unless the change is confirmed.
    fn set_for(
        &mut self,
        _flow: i64,
        _changes: BTreeMap<String, String>,
        _confirm_seconds: u64,
    ) -> SetFuture<'_> {
        let reason = "this daemon rolls back no single change".to_owned();
        Box::pin(async { Err(ControlError::Refused { reason }) })
    }

    /// Changes who does bulk work: auto, cpu, cuda or fpga.
    fn set_engine(&mut self, mode: &str) -> Answer<'_, Engine>;

    /// Changes parameters of a flow, and the configuration file as well: both or neither.
    fn save(&mut self, flow: i64, changes: BTreeMap<String, String>) -> SetFuture<'_>;

    /// Reads the configuration file again, reports the changes and applies them unless `diff`.
    /// After `confirm_seconds` it rolls back to the previous one, unless the change is confirmed.
    fn reload(&mut self, diff: bool, confirm_seconds: Option<u64>) -> Answer<'_, Reloaded>;

    /// Reports what a reload would change if the configuration file had this text.
    fn compare(&mut self, _text: String) -> Answer<'_, Reloaded> {
        let reason = "this daemon compares only its own file".to_owned();
        Box::pin(async { Err(ControlError::Refused { reason }) })
    }

    /// Confirms the last change.
    fn confirm(&mut self) -> Answer<'_, Confirmed>;

    /// Goes back to the configuration of this number in the history, or to the previous one.
    fn undo(&mut self, number: Option<u64>) -> Answer<'_, Reloaded>;

    /// The present and past configurations.
    fn history(&self) -> Answer<'_, History>;

    /// What happened after the event of this number.
    fn events(&self, after: u64) -> Answer<'_, Events>;
}

/// The configuration, as a reply.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Type)]
pub struct Config {
    /// The active configuration, as TOML with every key written out.
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
        Link, Neighbour, Disagreement, Worker, Frames, Flow, FlowNeighbour, FlowUpstream, Parameters, HopLoss, Remote,
        Tunnel, Split, Engine, Session, Change, HistoryEntry, Event
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

    /// The whole state: links, workers, flows, tunnels, counters, configuration. With `more` it
    /// comes in several replies. The first one has everything except flows, sessions and the
    /// configuration; the client concatenates these from the replies.
    #[zlink(more)]
    async fn get_state(&self, more: bool) -> impl Stream<Item = Reply<State>> + Unpin {
        let state = self.backend.state();
        let parts = if more { parts(state) } else { vec![state] };
        let last = parts.len();
        let replies = (1..).zip(parts).map(move |(number, part)| {
            // A single reply says nothing of others.
            Reply::new(Some(part)).set_continues(more.then_some(number < last))
        });
        futures_util::stream::iter(replies.collect::<Vec<_>>())
    }

    /// The active configuration.
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

    /// Changes parameters of a flow like SetFlow. The daemon rolls back to the previous
    /// configuration after confirm_seconds, unless Confirm is called.
    async fn set_flow_for(
        &mut self,
        flow: i64,
        changes: BTreeMap<String, String>,
        confirm_seconds: i64,
    ) -> Result<Adopted, ControlError> {
        // What is no time is refused with its rule.
        let seconds = u64::try_from(confirm_seconds).unwrap_or(0);
        self.backend.set_for(flow, changes, seconds).await
    }

    /// Changes who does bulk work, at once: auto, cpu, cuda or fpga.
    async fn set_engine(&mut self, mode: String) -> Result<EngineSet, ControlError> {
        Ok(EngineSet { engine: self.backend.set_engine(&mode).await? })
    }

    /// Changes parameters of a flow as SetFlow does, and writes them to the configuration file,
    /// whose comments stay: both or neither. Refused when the file was changed since it was read.
    async fn save_flow(
        &mut self,
        flow: i64,
        changes: BTreeMap<String, String>,
    ) -> Result<Adopted, ControlError> {
        self.backend.save(flow, changes).await
    }

    /// Reads the configuration file again, checks all of it, and reports the changes. Unless diff
    /// is true, they are then applied, all or none; with confirm_seconds the daemon rolls back to
    /// the previous configuration after this time, unless Confirm is called.
    async fn reload(
        &mut self,
        diff: bool,
        confirm_seconds: Option<i64>,
    ) -> Result<Reloaded, ControlError> {
        // What is no time is refused with its rule.
        let seconds = confirm_seconds.map(|seconds| u64::try_from(seconds).unwrap_or(0));
        self.backend.reload(diff, seconds).await
    }

    /// Checks a text as the configuration file, and reports the changes that Reload would make if
    /// the file had it. Changes nothing.
    async fn compare(&mut self, text: String) -> Result<Reloaded, ControlError> {
        self.backend.compare(text).await
    }

    /// Confirms the last change, which then stays.
    async fn confirm(&mut self) -> Result<Confirmed, ControlError> {
        self.backend.confirm().await
    }

    /// Goes back to the configuration of this number in the history, or to the previous one. The
    /// file stays as it is.
    async fn undo(&mut self, number: Option<i64>) -> Result<Reloaded, ControlError> {
        let number = number.map(|number| u64::try_from(number).unwrap_or(0));
        self.backend.undo(number).await
    }

    /// Past configurations, oldest first, and the active one at the end.
    async fn get_history(&self) -> Result<History, ControlError> {
        self.backend.history().await
    }

    /// What happened after the event of this number, 0 for all that is kept. Answers at once: who
    /// follows events asks again.
    async fn get_events(&self, after: i64) -> Result<Events, ControlError> {
        self.backend.events(u64::try_from(after).unwrap_or(0)).await
    }
}
