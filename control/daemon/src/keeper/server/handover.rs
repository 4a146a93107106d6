//! Handover to another supervisor, for a configuration that changes objects created only once:
//! links, workers, queues of tunnels. Also the check of the host before new tunnels.

use super::{Keeper, Pending};
use crate::check;
use crate::config::{Config, Link, Tunnel};
use crate::keeper::history::{Entry, History};
use crate::node;
use recoded_host::{Finding, Level};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Limit on past texts in a record, which then has room for two more texts of a megabyte.
const PAST_BYTES_MAX: usize = 2 << 20;

/// State that a supervisor leaves to its successor.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Handover {
    /// The previous configuration, which returns if the successor cannot start with the new one.
    pub before: String,
    /// Number of the new one in the history.
    pub number: u64,
    /// The history before the new one, oldest first, if no disk keeps it.
    #[serde(default, rename = "history")]
    pub past: Vec<Entry>,
    /// When the previous configuration returns unless the new one is confirmed, in milliseconds
    /// since boot.
    pub deadline_millis: Option<u64>,
}

impl Keeper {
    /// Continues the history of a supervisor that handed over with another configuration.
    #[must_use]
    pub fn following(self, handover: &Handover) -> Keeper {
        self.history().continue_at(handover.number, &handover.past);
        self.state().before = Some(handover.before.clone());
        self.state().pending = handover.deadline_millis.map(|at| Pending {
            deadline: Instant::now() + Duration::from_millis(at).saturating_sub(uptime()),
            before: handover.before.clone(),
            reverting: None,
        });
        self
    }

    /// The configuration for the successor, and its record; returned once per handover.
    pub fn handover(&self) -> Option<(String, Handover)> {
        if !std::mem::take(&mut self.state().is_handed_over) {
            return None;
        }
        let history = self.history();
        let (number, past) = (history.number(), newest(&history));
        drop(history);
        let state = self.state();
        let at = |it: &Pending| uptime() + it.deadline.saturating_duration_since(Instant::now());
        let at = state.pending.as_ref().map(|pending| at(pending).as_millis());
        let handover = Handover {
            before: state.before.clone().unwrap_or_default(),
            number,
            past,
            deadline_millis: at.and_then(|at| u64::try_from(at).ok()),
        };
        Some((state.in_force.clone(), handover))
    }
}

/// The entries before the last, as far as they fit the record.
fn newest(history: &History) -> Vec<Entry> {
    let mut room = PAST_BYTES_MAX;
    let fits = |entry: &&Entry| {
        let left = room.checked_sub(entry.text.len());
        left.inspect(|left| room = *left).is_some()
    };
    let mut past: Vec<Entry> = history.entries().rev().skip(1).take_while(fits).cloned().collect();
    past.reverse();
    past
}

/// The tunnels of `config` that `in_force` does not have.
fn new_tunnels<'a>(
    config: &'a Config,
    in_force: Option<&'a Config>,
) -> impl Iterator<Item = &'a Tunnel> {
    let is_new = move |tunnel: &&Tunnel| {
        let mut known = in_force.iter().flat_map(|config| &config.tunnels);
        !known.any(|known| known.name == tunnel.name)
    };
    config.tunnels.iter().filter(is_new)
}

/// Whether `config` has a tunnel that `in_force` does not have.
pub fn adds_tunnel(config: &Config, in_force: Option<&Config>) -> bool {
    new_tunnels(config, in_force).next().is_some()
}

/// Whether this host can run it; otherwise the reason. Interfaces that `in_force` has may be
/// missing.
pub fn fits(config: &Config, in_force: Option<&Config>) -> Result<(), String> {
    let known = |link: &&Link| {
        let mut links = in_force.iter().flat_map(|config| &config.links);
        links.any(|known| known.interface == link.interface)
    };
    let mut links = config.links.iter();
    if let Some(link) = links.find(|it| !known(it) && node::mtu(&it.interface).is_none()) {
        let Link { name, interface, .. } = link;
        return Err(format!(
            "link {name}: there is no interface {interface} in this network namespace: correct \
             interface\nnothing was changed"
        ));
    }
    let mut added = new_tunnels(config, in_force).filter(|_| in_force.is_some());
    if let Some(Tunnel { name, .. }) = added.find(|tunnel| node::mtu(&tunnel.name).is_some()) {
        return Err(format!(
            "tunnel {name}: an interface of this name exists already: choose another name, or \
             remove it (ip link delete {name})\nnothing was changed"
        ));
    }
    let findings = recoded_host::check(&check::plan(config)).map_err(|error| error.to_string())?;
    let errors = findings.iter().filter(|finding| finding.level == Level::Error);
    let said =
        |Finding { subject, cause, cure, .. }: &Finding| format!("{subject}: {cause}: {cure}");
    let errors: Vec<String> = errors.map(said).collect();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(format!("{}\nnothing was changed", errors.join("\n"))),
    }
}

/// Time since boot, a clock that all processes share.
pub fn uptime() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0))
}
