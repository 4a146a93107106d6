//! The active configuration, and changes to it while traffic runs.
//!
//! A change is atomic. It edits a copy of the document, checks the copy by the rules of the file,
//! publishes one snapshot and waits until every worker has adopted it. After any failure, the last
//! good configuration is active.

use crate::config::code::forget_other_codes;
use crate::config::daemon::ENGINE_RULE;
use crate::config::diff::{Change, Cost, diff};
use crate::config::document::{Document, Section};
use crate::config::edit::edit;
use crate::config::error::ConfigErrors;
use crate::config::symbol::Mtus;
use crate::config::{Config, EngineChoice, Flow};
use crate::dataplane::{Dataplane, Observation};
use crate::keeper::Text;
use crate::rates::Rates;
use crate::state;
use recoded_api::INTERFACE;
use recoded_api::error::ControlError;
use recoded_api::keys::{self, FLOW};
use recoded_api::spelling::{did_you_mean, nearest};
use recoded_api::v1::{Adopted, Engine, State, Version};
use recoded_pipeline::params::{FlowParams, Role};
use recoded_runtime::tunnel_mtu_min;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time limit for workers to adopt an edition. They do so between bursts, within microseconds under
/// load and one housekeeping interval when idle: a worker that needs longer is stuck.
pub const ADOPTION_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval for polling adoption.
const ADOPTION_POLL: Duration = Duration::from_millis(1);

/// Edition of the initial file.
pub const EDITION_FIRST: u64 = 1;

/// Longest value that `set` takes. No live key needs more than a number or a word.
const VALUE_BYTES_MAX: usize = 64;

/// The active configuration, and the dataplane that runs it.
pub struct Live<D> {
    document: Document,
    mtus: Mtus,
    config: Config,
    edition: u64,
    dataplane: Rc<D>,
    rates: Rc<Rates>,
    started: Instant,
}

/// Another configuration, compared with the active one.
pub struct Next {
    /// Its changes, in the order of the file.
    pub changes: Vec<Change>,
    document: Document,
    mtus: Mtus,
    config: Config,
}

impl Next {
    /// The highest cost of its changes; `None` if there are none.
    pub fn cost(&self) -> Option<Cost> {
        self.changes.iter().map(|change| change.cost).max()
    }

    /// The text for a new process.
    pub fn to_toml(&self) -> String {
        self.config.to_toml()
    }

    /// Whether the address for metrics changes or is removed.
    pub fn moves_metrics(&self) -> bool {
        self.changes.iter().any(Change::is_of_metrics)
    }

    /// Flows that restart.
    fn anew(&self) -> BTreeSet<u32> {
        let anew = self.changes.iter().filter(|change| change.cost == Cost::Flow);
        anew.filter_map(|change| change.flow).collect()
    }
}

/// The previously active state, for rollback.
pub struct Before {
    document: Document,
    mtus: Mtus,
    config: Config,
}

/// An active configuration, and since when.
pub struct View {
    config: Config,
    edition: u64,
    rates: Rc<Rates>,
    started: Instant,
}

impl View {
    /// State shown to clients, read from a dataplane that runs this configuration.
    pub fn state(&self, dataplane: &impl Dataplane) -> State {
        let uptime = self.started.elapsed();
        state::state(&self.config, self.edition, uptime, dataplane.observe(), &self.rates)
    }

    /// Whether TCP connections of a tunnel end at both edges.
    pub fn splits_tcp(&self) -> bool {
        self.config.tunnels.iter().any(|tunnel| tunnel.tcp_split.is_some())
    }

    /// State from an observation, without the text of the configuration.
    pub fn of(&self, seen: Observation) -> State {
        state::observed(&self.config, self.edition, self.started.elapsed(), seen, &self.rates)
    }
}

impl<D: Dataplane> Live<D> {
    /// Adopts the configuration published as [`EDITION_FIRST`].
    pub fn new(document: Document, mtus: Mtus, config: Config, dataplane: Rc<D>) -> Live<D> {
        let started = Instant::now();
        let rates = Rc::default();
        Live { document, mtus, config, edition: EDITION_FIRST, dataplane, rates, started }
    }

    /// The active configuration, for showing state without a client's request.
    pub fn view(&self) -> View {
        let (config, rates) = (self.config.clone(), self.rates.clone());
        View { config, edition: self.edition, rates, started: self.started }
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

    /// Builds the document and configuration with `changes` applied.
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
        let mtus = self.mtus_now();
        let config = Config::from_document(&document, &mtus, Some(&self.config));
        let config = config.map_err(|errors| ControlError::Refused {
            reason: format!("{errors}{}", self.at_source(index, changes)),
        })?;
        Ok((document, config))
    }

    /// Names the source of the same tunnel, if a change at a sink is of a key that only sources
    /// have.
    fn at_source(&self, index: usize, changes: &BTreeMap<String, String>) -> String {
        let is_of =
            |key: &String, role| FLOW.find(key).is_some_and(|it| it.why_not(role).is_none());
        let meant: Vec<String> = changes
            .iter()
            .filter(|(key, _)| !is_of(key, keys::Role::Sink) && is_of(key, keys::Role::Source))
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let Role::Sink { tunnel, .. } = self.config.flows[index].params.role else {
            return String::new();
        };
        let mut flows = self.config.flows.iter().map(|flow| &flow.params);
        let source = flows.find(|flow| flow.role == Role::Source { tunnel });
        match source.filter(|_| !meant.is_empty()) {
            Some(FlowParams { id, .. }) => format!(
                "; the source of this tunnel here is flow {id}: recodectl set {id} {}",
                meant.join(" ")
            ),
            None => String::new(),
        }
    }

    /// Publishes `config` and waits for the workers.
    async fn commit(&mut self, document: Document, config: Config) -> Result<(), ControlError> {
        self.install(&config).await?;
        self.document = document;
        self.config = config;
        Ok(())
    }

    /// Installs `config` in the workers. If they do not adopt it, the active one is published
    /// again.
    async fn install(&mut self, config: &Config) -> Result<(), ControlError> {
        let edition = self.edition + 1;
        let published = self.dataplane.publish(config.snapshot(edition));
        published.map_err(|refused| ControlError::Refused { reason: refused.to_string() })?;
        self.edition = edition;
        if self.adopted(edition).await {
            return Ok(());
        }
        let reason = self.stuck(edition);
        self.publish_again();
        Err(ControlError::NotAdopted { edition, reason })
    }

    /// Edition numbers only increase: a rollback is published under a new number.
    fn publish_again(&mut self) {
        self.edition += 1;
        if let Err(refused) = self.dataplane.publish(self.config.snapshot(self.edition)) {
            tracing::error!(%refused, "the last good configuration cannot be published again");
        }
    }

    /// Current MTUs of the interfaces, as reported by the links.
    fn mtus_now(&self) -> Mtus {
        let mut mtus = self.mtus.clone();
        for link in self.dataplane.observe().links {
            mtus.follow(&link.interface, usize::try_from(link.mtu).unwrap_or(0));
        }
        mtus
    }

    /// Compares another configuration with the active one.
    ///
    /// # Errors
    /// Every mistake in it, by line and rule.
    pub fn compare(&self, next: &Text) -> Result<Next, ControlError> {
        let refused = |errors: ConfigErrors| ControlError::Refused { reason: errors.to_string() };
        let known = self.mtus_now();
        let mtu = |name: &str| known.get(name).or_else(|| next.mtus.get(name).copied());
        let (document, mtus, config) =
            Config::parse_on(&next.file, &next.text, &mtu, Some(&next.names)).map_err(refused)?;
        let memory = self.config.daemon.memory;
        let mut config = config.keeping_memory(&document, &mtus, memory).map_err(refused)?;
        let kept = self.keeping_mtus(&config, &document);
        let mut changes = diff(&self.config, &kept, &document);
        match changes.iter().any(|change| change.cost == Cost::Restart) {
            // Tunnels are recreated, for links that may carry smaller packets.
            true => changes = diff(&self.config, &config, &document),
            false => config = kept,
        }
        if next.is_derived {
            changes.iter_mut().for_each(|change| change.line = None);
        }
        let is_live = changes.iter().all(|change| change.cost <= Cost::Flow);
        if is_live {
            config =
                Config::from_document(&document, &mtus, Some(&self.config)).map_err(|errors| {
                    let reason = format!(
                        "{errors}\nthat is so for tunnels as they are now: restart the daemon to \
                     recreate them; nothing was changed"
                    );
                    ControlError::Refused { reason }
                })?;
        }
        Ok(Next { changes, document, mtus, config })
    }

    /// `config` with the active MTUs of tunnels whose MTU is not configured: this process keeps its
    /// tunnels.
    fn keeping_mtus(&self, config: &Config, document: &Document) -> Config {
        let mut kept = config.clone();
        for (tunnel, section) in kept.tunnels.iter_mut().zip(&document.tunnels) {
            let mut in_force = self.config.tunnels.iter();
            if let Some(same) = in_force.find(|it| it.name == tunnel.name)
                && section.get("mtu").is_none()
            {
                tunnel.mtu = same.mtu.max(tunnel_mtu_min(&tunnel.addresses));
            }
        }
        kept
    }

    /// Applies another configuration, as far as this process can; returns the previous state.
    ///
    /// # Errors
    /// Workers do not adopt it; it is rolled back to the previous edition.
    pub async fn adopt(&mut self, next: Next) -> Result<Before, ControlError> {
        let before = self.before();
        let anew = next.anew();
        let Next { document, mtus, config, .. } = next;
        self.change(config, &anew).await?;
        self.document = document;
        self.mtus = mtus;
        Ok(before)
    }

    /// The active state.
    pub fn before(&self) -> Before {
        let Live { document, mtus, config, .. } = self;
        Before { document: document.clone(), mtus: mtus.clone(), config: config.clone() }
    }

    /// Rolls a change back.
    ///
    /// # Errors
    /// Workers do not adopt it.
    pub async fn put_back(&mut self, before: Before) -> Result<(), ControlError> {
        let Before { document, mtus, config } = before;
        let is_same = |flow: &Flow| self.config.flows.iter().any(|now| now.moves_not(flow));
        let anew = config.flows.iter().filter(|flow| !is_same(flow));
        let anew = anew.map(|flow| flow.params.id).collect();
        self.change(config, &anew).await?;
        self.document = document;
        self.mtus = mtus;
        Ok(())
    }

    /// Switches to `config`; restarted flows end before they start again.
    async fn change(&mut self, config: Config, anew: &BTreeSet<u32>) -> Result<(), ControlError> {
        if config.flows != self.config.flows {
            let begins = |flow: &Flow| anew.contains(&flow.params.id);
            if config.flows.iter().any(begins) {
                let mut without = config.clone();
                without.flows.retain(|flow| !begins(flow));
                self.install(&without).await?;
            }
            // If the second step is refused, the first one must be rolled back.
            let installed = self.install(&config).await;
            if let Err(error @ ControlError::Refused { .. }) = installed {
                self.publish_again();
                return Err(error);
            }
            installed?;
        }
        for (index, (now, next)) in self.config.links.iter().zip(&config.links).enumerate() {
            if now.rate_mbit != next.rate_mbit {
                self.dataplane.set_rate(index, next.rate_mbit);
            }
        }
        let sinks = |config: &Config| -> Vec<_> {
            let groups = config.flows.iter().filter(|flow| !flow.sink_keys.is_empty());
            groups.map(|flow| (flow.params.id, flow.sink_keys.clone())).collect()
        };
        if sinks(&config) != sinks(&self.config) {
            self.dataplane.set_sinks(sinks(&config));
        }
        if config.daemon.engine != self.config.daemon.engine {
            self.dataplane.set_engine(config.daemon.engine);
        }
        self.config = config;
        Ok(())
    }

    /// The file with changes of a flow applied to its text.
    ///
    /// # Errors
    /// They cannot change live, or the file would become invalid.
    pub fn edited(
        &self,
        file: &Text,
        flow: i64,
        changes: &BTreeMap<String, String>,
    ) -> Result<String, ControlError> {
        let refuse = |reason: String| ControlError::Refused { reason };
        let id = self.config.flows[self.find(flow)?].params.id;
        let document = Document::parse(&file.file, &file.text);
        let mut document = document.map_err(|errors| refuse(errors.to_string()))?;
        let mut forgotten = BTreeSet::new();
        let is_it = |section: &&mut Section| {
            section.get("id").and_then(|entry| entry.value.as_integer()) == Some(flow)
        };
        if let Some(section) = document.flows.iter_mut().find(is_it) {
            for (key, value) in changes {
                apply(section, id, key, value)?;
            }
            let all = section.clone();
            if changes.contains_key("code") {
                forget_other_codes(section, |key| changes.contains_key(key));
            }
            let is_gone = |key: &&String| section.get(key).is_none();
            let keys = all.entries.iter().map(|entry| &entry.key);
            forgotten.extend(keys.filter(is_gone).cloned());
        }
        let text = edit(&file.text, id, changes, &forgotten);
        let text = text.map_err(|error| refuse(error.to_string()))?;
        let checked = Document::parse(&file.file, &text).and_then(|mut document| {
            document.resolve(Some(&file.names));
            Config::from_document(&document, &self.mtus, Some(&self.config))
        });
        checked.map_err(|errors| {
            refuse(format!("the file would not be valid: {errors}\nnothing was changed"))
        })?;
        Ok(text)
    }

    /// Changes the engine for bulk work.
    ///
    /// # Errors
    /// The choice is unknown.
    pub fn set_engine(&mut self, mode: &str) -> Result<Engine, ControlError> {
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
        Ok(self.state().engine)
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
            "edition {edition} was not adopted within {} s ({}); rolled back to the \
             previous edition",
            ADOPTION_TIMEOUT.as_secs(),
            behind.join(", ")
        )
    }

    /// Changes parameters of a flow: all of them or none.
    ///
    /// # Errors
    /// A rule forbids it, or workers do not adopt it.
    pub async fn set(
        &mut self,
        flow: i64,
        changes: BTreeMap<String, String>,
    ) -> Result<Adopted, ControlError> {
        let index = self.find(flow)?;
        let (document, config) = self.candidate(index, &changes)?;
        let notices = notices(&self.config.flows[index], &config.flows[index], &changes);
        if config == self.config {
            // Workers need no update, but the document now has the value as written.
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
            notices,
        })
    }

    /// Version and identity of this daemon.
    pub fn version(&self) -> Version {
        Version {
            version: env!("CARGO_PKG_VERSION").into(),
            interface: INTERFACE.into(),
            kernel: recoded_gf::Kernel::best().name().into(),
            edition: self.edition,
        }
    }

    /// The complete state.
    pub fn state(&self) -> State {
        let observation = self.dataplane.observe();
        let uptime = self.started.elapsed();
        state::state(&self.config, self.edition, uptime, observation, &self.rates)
    }

    /// Samples of the flows, for the sampler.
    pub fn rates(&self) -> Rc<Rates> {
        self.rates.clone()
    }

    /// The active configuration, with every key written out.
    pub fn config(&self) -> String {
        self.config.to_toml()
    }

    /// Edition published last.
    pub fn edition(&self) -> u64 {
        self.edition
    }
}

/// Applies one change to the document, unless the key cannot change.
/// Consequences of a change that its keys do not name.
fn notices(before: &Flow, after: &Flow, changes: &BTreeMap<String, String>) -> Vec<String> {
    let [was, is] = [before, after].map(|flow| flow.params.code.name());
    if was == is || changes.contains_key("code") {
        return Vec::new();
    }
    vec![format!(
        "code = \"auto\" is {is} now and was {was} before: it takes a stream only while redundancy \
         is \"auto\" and repair is true; set code=stream as well to keep a stream"
    )]
}

fn apply(section: &mut Section, id: u32, key: &str, value: &str) -> Result<(), ControlError> {
    let refused = |reason| Err(ControlError::Refused { reason });
    let known = FLOW.find(key);
    if !known.is_some_and(|key| key.is_live) {
        let live = FLOW.live().map(|key| key.name).collect::<Vec<_>>().join(", ");
        let shown: String = key.escape_default().take(VALUE_BYTES_MAX).collect();
        return refused(if known.is_some() {
            format!(
                "flow {id}: {shown} cannot be set while the daemon runs: edit the file and \
                 run recodectl reload; these can: {live}"
            )
        } else {
            let hint = nearest(key, FLOW.live().map(|key| key.name)).map(did_you_mean);
            let hint = hint.unwrap_or_else(|| format!("these can change: {live}"));
            format!("flow {id}: unknown key {shown}: {hint}")
        });
    }
    if value.len() > VALUE_BYTES_MAX {
        return refused(format!("flow {id}: the value of {key} is longer than any it can have"));
    }
    // As in the file, except that words need no quotes.
    let value = value.parse().unwrap_or_else(|_| toml::Value::String(value.to_owned()));
    section.set(key, value);
    Ok(())
}
