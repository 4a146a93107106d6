//! Differences between two configurations, in words, and the cost of each change.
//!
//! Both configurations are compared as rendered, with every key written out. A new key thus needs
//! no code here; if it can change live, it needs a row in the tables of `control/api`.

use super::document::{Document, Section};
use super::{Config, Flow, Neighbour};
use recoded_api::keys::FLOW;
use recoded_pipeline::params::FlowParams;
use recoded_runtime::tunnel_mtu_min;
use std::collections::BTreeSet;
use std::fmt;

/// Keys of flows that name keys of other hosts.
const KEYED: [&str; 3] = ["edge_key", "sink_keys", "source_key"];

/// Longest value that is shown.
const SHOWN_CHARS_MAX: usize = 120;

/// Cost of a change, in ascending order.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cost {
    /// No packet is lost.
    Live,
    /// The flow restarts: its packets in flight may be lost. Other flows continue.
    Flow,
    /// Another dataplane process takes over: about 0.1 s for all flows. Tunnels that stay in the
    /// configuration keep their queues, with the packets in them, and their routes.
    Gap,
    /// The daemon restarts in place: some tenths of a second for all flows. Tunnels and routes that
    /// stay in the configuration stay.
    Restart,
    /// Impossible while the daemon runs.
    Stop,
}

impl Cost {
    /// The name on the control socket.
    pub const fn name(self) -> &'static str {
        match self {
            Cost::Live => "live",
            Cost::Flow => "flow",
            Cost::Gap => "gap",
            Cost::Restart => "restart",
            Cost::Stop => "stop",
        }
    }
}

/// One change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Section, key, and values before and after.
    pub what: String,
    /// Line in the new file; `None` for a removed entry.
    pub line: Option<usize>,
    /// Its cost.
    pub cost: Cost,
    /// The flow, if the change is part of one.
    pub flow: Option<u32>,
    /// The key, if one changes; otherwise a whole section is added or removed.
    pub key: Option<String>,
}

impl Change {
    /// Whether `set` could make it.
    pub fn is_settable(&self) -> bool {
        let is_live = |key: &String| match self.flow {
            Some(_) => FLOW.find(key).is_some_and(|key| key.is_live),
            None => key == "engine" && self.cost == Cost::Live,
        };
        self.key.as_ref().is_some_and(is_live)
    }

    /// Whether it changes the address that serves metrics.
    pub fn is_of_metrics(&self) -> bool {
        self.flow.is_none() && self.key.as_deref() == Some("metrics")
    }

    /// Whether it is the MTU of a tunnel, which stays as at the start.
    pub fn is_mtu(&self) -> bool {
        self.flow.is_none() && self.key.as_deref() == Some("mtu")
    }
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "line {line}: {}", self.what),
            None => formatter.write_str(&self.what),
        }
    }
}

/// Lists the changes from `now` to `next`, which was read from `file`.
pub fn diff(now: &Config, next: &Config, file: &Document) -> Vec<Change> {
    let (before, after) = (rendered(now), rendered(next));
    let mut differ = Differ { now, next, changes: Vec::new() };
    differ.keys("daemon".into(), &before.daemon, &after.daemon, Some(&file.daemon));
    differ.sections(&before.links, &after.links, &file.links);
    differ.sections(&before.tunnels, &after.tunnels, &file.tunnels);
    differ.sections(&before.neighbours, &after.neighbours, &file.neighbours);
    differ.sections(&before.flows, &after.flows, &file.flows);
    differ.order("links", &before.links, &after.links);
    differ.order("tunnels", &before.tunnels, &after.tunnels);
    differ.changes
}

/// A configuration with every key written out. Host names are replaced by the addresses that this
/// host resolved, since a name's address may change. The output of `render` always parses.
fn rendered(config: &Config) -> Document {
    let mut addresses = Config { named: Vec::new(), ..config.clone() };
    addresses.links.iter_mut().for_each(|link| link.is_local_written = true);
    let document = Document::parse("", &addresses.to_toml());
    document.expect("what is rendered is TOML")
}

struct Differ<'a> {
    now: &'a Config,
    next: &'a Config,
    changes: Vec<Change>,
}

impl Differ<'_> {
    fn sections(&mut self, before: &[Section], after: &[Section], file: &[Section]) {
        for section in after {
            let name = name(section);
            let written = file.iter().find(|written| self::name(written) == name);
            match before.iter().find(|old| self::name(old) == name) {
                Some(old) => self.keys(name, old, section, written),
                None => {
                    let (flow, cost) = (number(section), self.cost_of_new(section));
                    let what = format!("{name} is new");
                    let line = written.map(|written| written.line);
                    self.changes.push(Change { what, line, cost, flow, key: None });
                }
            }
        }
        let is_gone = |old: &&Section| !after.iter().any(|new| name(new) == name(old));
        for section in before.iter().filter(is_gone) {
            let cost = match section.kind {
                "flow" => Cost::Live,
                "neighbour" | "tunnel" => Cost::Gap,
                _ => Cost::Restart,
            };
            let what = format!("{} is taken away", name(section));
            self.changes.push(Change { what, line: None, cost, flow: number(section), key: None });
        }
    }

    fn keys(&mut self, name: String, old: &Section, new: &Section, file: Option<&Section>) {
        let keys = new.entries.iter().chain(&old.entries).map(|entry| &entry.key);
        let mut seen = BTreeSet::new();
        for key in keys.filter(|key| seen.insert((*key).clone())) {
            let value = |section: &Section| section.get(key).map(|it| shown(&it.value));
            let (before, after) = (value(old), value(new));
            let what = match (before, after) {
                (before, after) if before == after => continue,
                (Some(before), Some(after)) => format!("{name}: {key} = {before} becomes {after}"),
                (None, Some(after)) => format!("{name}: {key} = {after} is added"),
                (Some(before), None) => format!("{name}: {key} = {before} is taken away"),
                (None, None) => continue,
            };
            let entry = file.and_then(|file| file.get(key)).and_then(|entry| entry.line);
            let line = entry.or(file.map(|file| file.line).filter(|_| new.get(key).is_some()));
            let cost = self.cost(new, key);
            self.changes.push(Change {
                what,
                line,
                cost,
                flow: number(new),
                key: Some(key.clone()),
            });
        }
    }

    /// Compares the order of sections that are numbered by their position in the file.
    fn order(&mut self, what: &str, before: &[Section], after: &[Section]) {
        let names = |sections: &[Section]| sections.iter().map(name).collect::<Vec<_>>();
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        let (before, after) = (names(before), names(after));
        if before != after && sorted(before) == sorted(after) {
            let what = format!("{what} are in another order");
            let cost = Cost::Gap;
            self.changes.push(Change { what, line: None, cost, flow: None, key: None });
        }
    }

    fn cost(&self, section: &Section, key: &str) -> Cost {
        match (section.kind, key) {
            ("daemon", "engine") | ("link", "rate_mbit") => Cost::Live,
            ("tunnel", "routes" | "exit" | "tcp_split" | "kill_switch") => Cost::Live,
            ("neighbour", "name") | ("flow", "edge_name") => Cost::Live,
            // The path lets a supervisor find the state that its predecessor left.
            ("daemon", "socket") => Cost::Stop,
            ("daemon", "workers" | "port" | "xdp_mode") => Cost::Restart,
            ("daemon", "metrics") if self.moves_metrics() => Cost::Live,
            ("tunnel", "address") if self.keeps_families(section) => Cost::Live,
            ("daemon" | "neighbour", _) | ("tunnel", "address") => Cost::Gap,
            ("flow", key) => self.flow_cost(section, key),
            _ => Cost::Restart,
        }
    }

    /// Whether the supervisor can listen for metrics while this process still does: a port with a
    /// listener on one address cannot always get another.
    fn moves_metrics(&self) -> bool {
        match (self.now.daemon.metrics, self.next.daemon.metrics) {
            (Some(now), Some(next)) => now.port() != next.port(),
            _ => true,
        }
    }

    /// Whether a tunnel has IPv6 addresses both before and after, or neither: its least MTU and
    /// Linux's IPv6 settings on it depend on that.
    fn keeps_families(&self, section: &Section) -> bool {
        let least = |config: &Config| {
            let mut tunnels = config.tunnels.iter();
            let tunnel = tunnels.find(|tunnel| name(section) == format!("tunnel {}", tunnel.name));
            tunnel.map(|tunnel| tunnel_mtu_min(&tunnel.addresses))
        };
        least(self.now) == least(self.next)
    }

    fn flow_cost(&self, section: &Section, key: &str) -> Cost {
        match key {
            "shards" if self.needs_queues() => Cost::Restart,
            "next_hops" | "upstream" if self.has_new_neighbour(section) => Cost::Gap,
            "role" | "tunnel" | "next_hops" | "upstream" | "spread" | "lag_timeout_us"
            | "onward_share" | "shards" => Cost::Flow,
            "symbol_bytes" => Cost::Live,
            "sink_keys" if self.are_told(section) => Cost::Live,
            key if FLOW.find(key).is_some_and(|key| key.is_live) => Cost::Live,
            _ => Cost::Gap,
        }
    }

    fn cost_of_new(&self, section: &Section) -> Cost {
        match section.kind {
            "flow" if self.needs_queues() => Cost::Restart,
            // A process reads keys from files only at its start.
            "flow" if KEYED.iter().any(|key| section.get(key).is_some()) => Cost::Gap,
            "flow" if self.has_new_neighbour(section) => Cost::Gap,
            "flow" => Cost::Live,
            "neighbour" | "tunnel" => Cost::Gap,
            _ => Cost::Restart,
        }
    }

    /// Whether a flow has several sinks both before and after; these receive its keys while it
    /// runs.
    fn are_told(&self, section: &Section) -> bool {
        let told = |config: &Config| {
            let mut flows = config.flows.iter().filter(|it| Some(it.params.id) == number(section));
            flows.any(|flow| !flow.sink_keys.is_empty())
        };
        told(self.now) && told(self.next)
    }

    /// Whether tunnels would need more queues than they were created with.
    fn needs_queues(&self) -> bool {
        tunnel_queues(self.next) > tunnel_queues(self.now)
    }

    fn has_new_neighbour(&self, section: &Section) -> bool {
        let Config { flows, hops, .. } = self.next;
        let is_it = |flow: &&Flow| Some(flow.params.id) == number(section);
        let known = |hop: &Neighbour| {
            let link = |config: &Config| config.links.get(hop.link).map(|link| link.name.clone());
            self.now.hops.contains(hop) && link(self.now) == link(self.next)
        };
        let flow = flows.iter().find(is_it);
        flow.is_some_and(|flow| {
            flow.neighbours().any(|(_, id)| !hops.get(usize::from(id.0)).is_some_and(known))
        })
    }
}

/// Queues that each tunnel is created with.
pub fn tunnel_queues(config: &Config) -> usize {
    let shards = |params: &FlowParams| usize::from(params.shards);
    let most = config.flows.iter().map(|flow| shards(&flow.params)).max();
    most.unwrap_or(1).max(config.daemon.workers)
}

/// The identifier of a section.
fn name(section: &Section) -> String {
    let text = |key| match section.get(key).map(|entry| &entry.value) {
        Some(toml::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    match section.kind {
        "flow" => format!("flow {}", text("id")),
        "neighbour" => format!("neighbour {}:{}", text("link"), text("address")),
        kind => format!("{kind} {}", text("name")),
    }
}

/// The number of a flow.
fn number(section: &Section) -> Option<u32> {
    let id = section.get("id").filter(|_| section.kind == "flow")?;
    id.value.as_integer().and_then(|id| u32::try_from(id).ok())
}

fn shown(value: &toml::Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}
