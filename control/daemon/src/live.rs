//! The configuration in force and how it changes while traffic runs.
//!
//! A change is atomic. It edits a copy of the document, has the copy checked by the rules of the
//! file, publishes one snapshot and waits until every worker has adopted it. Whatever fails on the
//! way, the last good configuration is in force at the end.

use crate::config::code::forget_other_codes;
use crate::config::daemon::ENGINE_RULE;
use crate::config::document::{Document, Section};
use crate::config::symbol::Mtus;
use crate::config::{Config, EngineChoice};
use crate::dataplane::Dataplane;
use crate::state;
use recoded_api::INTERFACE;
use recoded_api::error::ControlError;
use recoded_api::keys::FLOW;
use recoded_api::service::{Backend, SetFuture};
use recoded_api::v1::{Adopted, Engine, State, Version};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long workers may take to adopt an edition. They do so between bursts, within microseconds
/// under load and one housekeeping interval when idle: a worker that needs longer is stuck.
pub const ADOPTION_TIMEOUT: Duration = Duration::from_secs(2);

/// How often adoption is looked for.
const ADOPTION_POLL: Duration = Duration::from_millis(1);

/// Edition of what the file said.
pub const EDITION_FIRST: u64 = 1;

/// Longest value that `set` takes. No live key needs more than a number or a word.
const VALUE_BYTES_MAX: usize = 64;

/// The configuration in force, before a dataplane that works by it.
pub struct Live<D> {
    document: Document,
    mtus: Mtus,
    config: Config,
    edition: u64,
    dataplane: Rc<D>,
    started: Instant,
}

/// A configuration in force, and since when.
pub struct View {
    config: Config,
    edition: u64,
    started: Instant,
}

impl View {
    /// What clients see of a dataplane that works by it.
    pub fn state(&self, dataplane: &impl Dataplane) -> State {
        state::state(&self.config, self.edition, self.started.elapsed(), dataplane.observe())
    }
}

impl<D: Dataplane> Live<D> {
    /// Takes over what was published as [`EDITION_FIRST`].
    pub fn new(document: Document, mtus: Mtus, config: Config, dataplane: Rc<D>) -> Live<D> {
        let started = Instant::now();
        Live { document, mtus, config, edition: EDITION_FIRST, dataplane, started }
    }

    /// What is in force, for who shows the state without a client's request.
    pub fn view(&self) -> View {
        View { config: self.config.clone(), edition: self.edition, started: self.started }
    }

    /// Index of the flow.
    fn find(&self, id: i64) -> Result<usize, ControlError> {
        let mut flows = self.config.flows.iter();
        flows.position(|flow| i64::from(flow.params.id) == id).ok_or_else(|| {
            let ids = self.config.flows.iter().map(|flow| flow.params.id.to_string());
            let ids = ids.collect::<Vec<_>>().join(", ");
            let known =
                if ids.is_empty() { "there is none".into() } else { format!("there is {ids}") };
            ControlError::UnknownFlow { flow: id, reason: format!("no flow {id} here: {known}") }
        })
    }

    /// The document and configuration with `changes` made.
    fn candidate(
        &self,
        index: usize,
        changes: &BTreeMap<String, String>,
    ) -> Result<(Document, Config), ControlError> {
        let id = self.config.flows[index].params.id;
        if changes.is_empty() {
            let reason = format!("flow {id}: nothing to change: name a key and a value");
            return Err(ControlError::Refused { reason });
        }
        let mut document = self.document.clone();
        for (key, value) in changes {
            apply(&mut document.flows[index], id, key, value)?;
        }
        if changes.contains_key("code") {
            forget_other_codes(&mut document.flows[index], |key| changes.contains_key(key));
        }
        let mut mtus = self.mtus.clone();
        for link in self.dataplane.observe().links {
            mtus.follow(&link.interface, usize::try_from(link.mtu).unwrap_or(0));
        }
        let config = Config::from_document(&document, &mtus, Some(&self.config.tunnels));
        let config =
            config.map_err(|errors| ControlError::Refused { reason: errors.to_string() })?;
        Ok((document, config))
    }

    /// Publishes `config` and waits for the workers.
    async fn commit(&mut self, document: Document, config: Config) -> Result<(), ControlError> {
        let edition = self.edition + 1;
        let published = self.dataplane.publish(config.snapshot(edition));
        published.map_err(|refused| ControlError::Refused { reason: refused.to_string() })?;
        self.edition = edition;
        if self.adopted(edition).await {
            self.document = document;
            self.config = config;
            return Ok(());
        }
        let reason = self.stuck(edition);
        // Editions only go up: what is taken back is published anew.
        self.edition += 1;
        if let Err(refused) = self.dataplane.publish(self.config.snapshot(self.edition)) {
            tracing::error!(%refused, "the last good configuration cannot be published again");
        }
        Err(ControlError::NotAdopted { edition, reason })
    }

    /// Changes who does bulk work.
    fn change_engine(&mut self, mode: &str) -> Result<Engine, ControlError> {
        let known = EngineChoice::NAMES.iter().find(|(name, _)| *name == mode);
        let Some((name, choice)) = known else {
            let shown: String = mode.escape_default().take(VALUE_BYTES_MAX).collect();
            let reason = format!("engine = \"{shown}\" is not a choice: {ENGINE_RULE}");
            return Err(ControlError::Refused { reason });
        };
        self.dataplane.set_engine(*choice);
        self.document.daemon.set("engine", toml::Value::from(*name));
        self.config.daemon.engine = *choice;
        tracing::info!(engine = name, "changed");
        Ok(Backend::state(self).engine)
    }

    async fn adopted(&self, edition: u64) -> bool {
        let deadline = Instant::now() + ADOPTION_TIMEOUT;
        loop {
            if self.dataplane.editions().iter().all(|adopted| *adopted >= edition) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(ADOPTION_POLL).await;
        }
    }

    fn stuck(&self, edition: u64) -> String {
        let behind = self.dataplane.editions().into_iter().enumerate();
        let behind = behind.filter(|(_, adopted)| *adopted < edition);
        let behind: Vec<String> = behind
            .map(|(worker, adopted)| format!("worker {worker} is at edition {adopted}"))
            .collect();
        format!(
            "edition {edition} was not adopted within {} s ({}); what was in force is in force \
             again",
            ADOPTION_TIMEOUT.as_secs(),
            behind.join(", ")
        )
    }

    async fn change(
        &mut self,
        flow: i64,
        changes: BTreeMap<String, String>,
    ) -> Result<Adopted, ControlError> {
        let index = self.find(flow)?;
        let (document, config) = self.candidate(index, &changes)?;
        if config == self.config {
            // Nothing for workers to do, but what is written now counts as written.
            self.document = document;
        } else {
            self.commit(document, config).await?;
        }
        let adopted = &self.config.flows[index];
        tracing::info!(flow, edition = self.edition, ?changes, "changed");
        Ok(Adopted {
            flow: u64::from(adopted.params.id),
            edition: self.edition,
            parameters: state::parameters(adopted),
        })
    }
}

/// Makes one change in the document, unless the key may not change.
fn apply(section: &mut Section, id: u32, key: &str, value: &str) -> Result<(), ControlError> {
    let refused = |reason| Err(ControlError::Refused { reason });
    let known = FLOW.find(key);
    if !known.is_some_and(|key| key.is_live) {
        let live = FLOW.live().map(|key| key.name).collect::<Vec<_>>().join(", ");
        let shown: String = key.escape_default().take(VALUE_BYTES_MAX).collect();
        return refused(if known.is_some() {
            format!(
                "flow {id}: {shown} cannot change while the daemon runs: edit the file and \
                 restart; these can: {live}"
            )
        } else {
            format!("flow {id}: unknown key {shown}: these can change: {live}")
        });
    }
    if value.len() > VALUE_BYTES_MAX {
        return refused(format!("flow {id}: the value of {key} is longer than any it can have"));
    }
    // As in the file, but a shell user need not quote words.
    let value = value.parse().unwrap_or_else(|_| toml::Value::String(value.to_owned()));
    section.set(key, value);
    Ok(())
}

impl<D: Dataplane> Backend for Live<D> {
    fn version(&self) -> Version {
        Version {
            version: env!("CARGO_PKG_VERSION").into(),
            interface: INTERFACE.into(),
            kernel: recoded_gf::Kernel::best().name().into(),
            edition: self.edition,
        }
    }

    fn state(&self) -> State {
        let observation = self.dataplane.observe();
        state::state(&self.config, self.edition, self.started.elapsed(), observation)
    }

    fn config(&self) -> String {
        self.config.to_toml()
    }

    fn set(&mut self, flow: i64, changes: BTreeMap<String, String>) -> SetFuture<'_> {
        Box::pin(self.change(flow, changes))
    }

    fn set_engine(&mut self, mode: &str) -> Result<Engine, ControlError> {
        self.change_engine(mode)
    }
}
