//! Repeats lookups of host names. Names of silent neighbours are looked up once a minute; if an
//! address has changed, the next dataplane process sends there. Names without an address are
//! retried with backoff: after a second, then twice that and so on, and at once when an address of
//! this host changes.
//!
//! A neighbour that responds keeps its known address, or roams, so forged DNS answers cannot move
//! it. Lookups wait for other hosts, so they run in a separate thread.

use crate::asks::Asks;
use recoded::config::document::Named;
use recoded::config::names::Names;
use recoded::keeper::Keeper;
use recoded_api::client::Client;
use recoded_api::v1::State;
use recoded_runtime::HostChanges;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval of lookups.
const INTERVAL: Duration = Duration::from_secs(60);
/// Delay before the first retry of a name without an address; doubled up to [`INTERVAL`].
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Changes of a network come in bursts, over about this time.
const SETTLED: Duration = Duration::from_secs(1);
/// Neighbours send something every ten seconds, and may miss it twice.
const SILENT_SECONDS: f64 = 30.0;

/// Looks up host names.
pub struct Resolver {
    /// The control socket, where the dataplane process reports which neighbours respond.
    socket: PathBuf,
    interval: Duration,
    last: Instant,
    /// When names without an address are looked up next, and the pause after that.
    retry: (Instant, Duration),
    /// When the interfaces of a network are looked up again after a change of this host's network.
    moved: Option<Instant>,
    /// Observed changes of this host's network.
    changes: u64,
    host: HostChanges,
    /// Set while a thread waits for the resolver. Relaxed: it guards no other memory.
    is_asking: Arc<AtomicBool>,
}

impl Resolver {
    /// Serves the daemon with this control socket.
    pub fn new(socket: PathBuf) -> Resolver {
        let (last, is_asking) = (Instant::now(), Arc::default());
        let retry = (last + RETRY_FIRST, RETRY_FIRST);
        let (interval, host) = (interval(), HostChanges::watch());
        Resolver { socket, interval, last, retry, moved: None, changes: 0, host, is_asking }
    }

    /// Starts lookups that are due.
    pub fn look(&mut self, keeper: &Arc<Keeper>) {
        self.retry(keeper);
        self.follow(keeper);
        if self.last.elapsed() < self.interval {
            return;
        }
        self.last = Instant::now();
        if keeper.names().is_empty() {
            return;
        }
        let socket = self.socket.clone();
        self.spawn(keeper, move |keeper| {
            match Client::connect(&socket).and_then(|mut client| client.state()) {
                Ok(state) => ask(keeper, &state),
                Err(error) => {
                    tracing::debug!(%error, "it is not known which neighbours are silent")
                }
            }
        });
    }

    /// Looks up names without an address, if that is due.
    fn retry(&mut self, keeper: &Arc<Keeper>) {
        let (now, changes) = (Instant::now(), self.host.count());
        let is_changed = std::mem::replace(&mut self.changes, changes) != changes;
        if is_changed {
            self.retry = (now, RETRY_FIRST);
            self.moved = Some(now + SETTLED);
        }
        let (at, pause) = self.retry;
        if now < at || self.is_asking.load(Ordering::Relaxed) {
            return;
        }
        self.retry = (now + pause, (2 * pause).min(INTERVAL));
        let unknown: Vec<String> = keeper.names().unknown().map(str::to_owned).collect();
        if !unknown.is_empty() {
            self.spawn(keeper, move |keeper| {
                keeper.readdress(Names::ask(unknown.iter().map(String::as_str)));
            });
        }
    }

    /// Requests a reload if another interface now leads to a neighbour of the network.
    fn follow(&mut self, keeper: &Arc<Keeper>) {
        let is_due = self.moved.is_some_and(|at| at <= Instant::now());
        if !is_due || self.is_asking.load(Ordering::Relaxed) {
            return;
        }
        self.moved = None;
        let socket = self.socket.clone();
        self.spawn(keeper, move |keeper| {
            if keeper.is_moved() {
                tracing::info!(
                    "another interface leads to a neighbour now: the file is read again"
                );
                Asks::new(socket).reload();
            }
        });
    }

    /// Runs a lookup in a thread, unless one is running.
    fn spawn(&self, keeper: &Arc<Keeper>, ask: impl FnOnce(&Keeper) + Send + 'static) {
        if self.is_asking.swap(true, Ordering::Relaxed) {
            return;
        }
        let (keeper, is_asking) = (keeper.clone(), self.is_asking.clone());
        let asked = std::thread::Builder::new().name("recoded-names".into()).spawn(move || {
            ask(&keeper);
            is_asking.store(false, Ordering::Relaxed);
        });
        if let Err(error) = asked {
            self.is_asking.store(false, Ordering::Relaxed);
            tracing::error!(%error, "host names need a thread: raise the process's limits");
        }
    }
}

fn ask(keeper: &Keeper, state: &State) {
    let Some(config) = keeper.config() else { return };
    let silent = config.named.iter().filter(|named| is_silent(named, state));
    let silent: Vec<&str> = silent.map(|named| named.name.as_str()).collect();
    if !silent.is_empty() {
        keeper.readdress(Names::ask(silent));
    }
}

/// Whether a neighbour has been silent for long.
fn is_silent(named: &Named, state: &State) -> bool {
    let link = state.links.iter().find(|link| link.name == named.link);
    let address = named.address.to_string();
    let found = link.and_then(|link| link.neighbours.iter().find(|it| it.address == address));
    found.is_some_and(|it| it.said_ago_seconds.is_none_or(|ago| ago > SILENT_SECONDS))
}

/// Tests, in builds with debug assertions, use a shorter interval than a minute.
fn interval() -> Duration {
    let written =
        std::env::var("RECODED_TEST_NAMES_MILLIS").ok().filter(|_| cfg!(debug_assertions));
    let millis = written.and_then(|millis| millis.parse().ok());
    millis.map_or(INTERVAL, Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_api::v1::{Link, Neighbour};

    #[test]
    fn neighbour_is_silent_that_was_not_heard_for_half_a_minute_and_only_then() {
        let named = Named {
            link: "east".into(),
            address: "10.0.0.2".parse().expect("an address"),
            name: "relay.example".into(),
            trouble: String::new(),
        };
        let heard = |address: &str, said_ago_seconds| State {
            links: vec![Link {
                name: "east".into(),
                neighbours: vec![Neighbour {
                    address: address.into(),
                    said_ago_seconds,
                    ..Neighbour::default()
                }],
                ..Link::default()
            }],
            ..State::default()
        };
        assert!(is_silent(&named, &heard("10.0.0.2", None)));
        assert!(is_silent(&named, &heard("10.0.0.2", Some(31.0))));
        assert!(!is_silent(&named, &heard("10.0.0.2", Some(29.0))));
        // The process may be older than the configuration.
        assert!(!is_silent(&named, &heard("10.0.0.3", None)));
    }
}
