//! Watches the interfaces of the links and this node's addresses on them. Logs when one disappears,
//! returns, is set down or gets another MTU, address or number of queues. Reopens the sockets when
//! an interface is back, receives on other queues or was suspended with the box. Makes packets
//! leave from the current address.
//!
//! Runs as a thread of its own. Linux events report that something changed; it then queries all
//! interfaces. It also does so once a second, since events can be lost, and then reads ICMP errors.

use crate::choice;
use crate::error::StartError;
use crate::icmp;
use crate::netlink::{Interface, Netlink};
use crate::node::{Node, Reopening};
use crate::port::LinkMode;
use crate::report::LinkStatus;
use crate::resources::{LinkState, Sources, missing, status, waits};
use crate::snapshot;
use crate::suspension::Since;
use crate::topology::Backend;
use recoded_xsk::Queues;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Watches until `stop` hangs up.
pub(crate) fn run(node: &Node, sources: &mut Sources, stop: &mut oneshot::Receiver<()>) {
    let Sources { netlink, events, icmp } = sources;
    let mut said = vec![None; node.topology.links.len()];
    let mut watches: Vec<Watch> = node.topology.links.iter().map(|_| Watch::default()).collect();
    let mut since = Since::now();
    loop {
        if since.was_suspended() {
            since = Since::now();
            watches.iter_mut().for_each(|watch| watch.was_suspended = true);
        }
        for (link, watch) in watches.iter_mut().enumerate() {
            let config = &node.topology.links[link];
            match find(netlink, &config.interface) {
                Ok(found) => {
                    let is_xdp = found.is_some() && config.backend == Backend::Xdp;
                    let queues = if is_xdp { netlink.queues(&config.interface).ok() } else { None };
                    watch.look(node, netlink, link, QueriedInterface { interface: found, queues });
                    watch.count_oversize(node, link);
                    watch.tell_unused(node, link);
                }
                Err(error) => tracing::debug!(%error, "an interface cannot be looked at"),
            }
        }
        icmp.look(&node.topology, &mut node.icmp(), |link, neighbour, kind| {
            say_icmp(node, &mut said[link], link, neighbour, kind);
        });
        // The next query covers all other events that are queued.
        if !events.wait(LOOK_INTERVAL, stop) || !events.wait_quietly(LOOK_PAUSE, stop) {
            return;
        }
    }
}

/// The interface with that name, if there is one.
fn find(netlink: &Netlink, name: &str) -> Result<Option<Interface>, StartError> {
    match netlink.interface(name) {
        Ok(interface) => Ok(Some(interface)),
        Err(error) if error.is_absence() => Ok(None),
        Err(error) => Err(error),
    }
}

/// State of a link.
#[derive(Default)]
struct Watch {
    /// Whether the box was suspended since the last query.
    was_suspended: bool,
    /// When to retry opening sockets, and the delay after that.
    retry: Option<(Instant, Duration)>,
    /// Oversized packets counted, and when that was last logged.
    oversize: u64,
    said: Option<Instant>,
    /// Disabled offloads that were logged.
    unused: [&'static str; 2],
}

/// A change of an interface.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum LinkChange {
    Gone,
    Back,
    Up,
    Down,
    Mtu(usize),
    /// The number of queues changed.
    Queues(Queues),
}

/// The result of a query.
struct QueriedInterface {
    interface: Option<Interface>,
    /// Queues, if they matter and are known.
    queues: Option<Queues>,
}

/// The difference to the last query.
fn changes(state: &LinkState, found: &QueriedInterface) -> Vec<LinkChange> {
    let is_gone = state.status == LinkStatus::Gone;
    let queues = found.queues;
    let Some(found) = &found.interface else {
        return if is_gone { Vec::new() } else { vec![LinkChange::Gone] };
    };
    // A modem may switch to packets without an Ethernet header while its interface stays.
    let is_unfit = matches!(state.mode, LinkMode::Xdp(_)) && found.mac.is_none();
    let is_other = found.index != state.interface.index || is_unfit;
    let mut changes = Vec::new();
    if is_other && !is_gone {
        changes.push(LinkChange::Gone);
    }
    if is_other || is_gone {
        changes.push(LinkChange::Back);
        return changes;
    }
    match (state.status, status(found)) {
        (LinkStatus::Up, LinkStatus::Down) => changes.push(LinkChange::Down),
        (LinkStatus::Down, LinkStatus::Up) => changes.push(LinkChange::Up),
        _ => {}
    }
    if found.mtu != state.interface.mtu {
        changes.push(LinkChange::Mtu(state.interface.mtu));
    }
    changes.extend(queues.filter(|queues| *queues != state.queues).map(LinkChange::Queues));
    changes
}

impl Watch {
    /// Compares the query's result with the known state, logs the difference and acts on it.
    fn look(&mut self, node: &Node, netlink: &Netlink, link: usize, found: QueriedInterface) {
        let state = node.links()[link].clone();
        let config = &node.topology.links[link];
        let (name, interface) = (&config.name, &config.interface);
        let changes = changes(&state, &found);
        let found = found.interface;
        let was_suspended = std::mem::take(&mut self.was_suspended);
        let is_present = found.is_some() && state.status != LinkStatus::Gone;
        if was_suspended && is_present && config.backend == Backend::Xdp {
            tracing::info!(
                "link {name}: this box was suspended: the XDP program of {interface} is attached again"
            );
            note_waits(node, link, "its XDP program is attached again".to_owned());
            return self.reopen(node, netlink, link, found.as_ref(), Reopening::Back);
        }
        for change in changes {
            match change {
                LinkChange::Gone => {
                    self.retry = None;
                    tracing::warn!(
                        "link {name}: interface {interface} is gone: packets for it are dropped \
                         until one of that name is back"
                    );
                    note_waits(node, link, missing(config));
                }
                LinkChange::Back => {
                    self.reopen(node, netlink, link, found.as_ref(), Reopening::Back);
                }
                LinkChange::Queues(now) => {
                    if self.retry.is_none() {
                        let (now, before) = (now.receive, state.queues.receive);
                        tracing::info!(
                            "link {name}: {interface} receives on {now} queues, before on {before}: \
                             sockets are opened on all"
                        );
                    }
                    self.reopen(node, netlink, link, found.as_ref(), Reopening::Queues);
                }
                LinkChange::Down => tracing::warn!(
                    "link {name}: interface {interface} is down: `ip link set {interface} up`"
                ),
                LinkChange::Up => tracing::info!("link {name}: interface {interface} is up again"),
                LinkChange::Mtu(before) => say_mtu(node, link, before, found.as_ref()),
            }
        }
        note(node, link, found.clone());
        if let Some(found) = found.filter(|_| node.links()[link].status != LinkStatus::Gone) {
            self.follow(node, netlink, link, &found);
        }
    }

    /// Compares this node's address on an interface with the known one.
    fn follow(&mut self, node: &Node, netlink: &Netlink, link: usize, found: &Interface) {
        let name = &node.topology.links[link].name;
        let before = node.links()[link].local;
        let local = match node.own(link, netlink, found) {
            Ok(local) => local,
            Err(error @ StartError::NoOwnAddress { .. }) => {
                if before.is_some() {
                    note_local(node, link, None);
                }
                return self.wait(node, link, &error);
            }
            Err(error) => return tracing::debug!(%error, "addresses cannot be looked at"),
        };
        if before == Some(local) {
            return;
        }
        match before {
            Some(before) => {
                tracing::info!("link {name}: local address changed from {before} to {local}");
            }
            None => tracing::info!("link {name}: local address changed to {local}"),
        }
        if node.topology.links[link].backend == Backend::Xdp {
            // Its program accepts packets for one address.
            note_waits(node, link, "its XDP program is replaced".to_owned());
            return self.reopen(node, netlink, link, Some(found), Reopening::Back);
        }
        note_local(node, link, Some(local));
        note_waits(node, link, String::new());
    }

    /// Opens the sockets of an interface that is back: now, or later after a recent failure.
    fn reopen(
        &mut self,
        node: &Node,
        netlink: &Netlink,
        link: usize,
        found: Option<&Interface>,
        reason: Reopening,
    ) {
        let Some(found) = found else { return };
        let now = Instant::now();
        if self.retry.is_some_and(|(at, _)| now < at) {
            return;
        }
        // Until its sockets are open no worker may send on it; those of another process open later.
        if !(node.is_sealed && reason == Reopening::Queues) {
            note(node, link, None);
        }
        let name = &node.topology.links[link].name;
        // A new address raises an event, so there is no retry.
        if let Err(error @ StartError::NoOwnAddress { .. }) = node.own(link, netlink, found) {
            return self.wait(node, link, &error);
        }
        // No other process could open its sockets either.
        let config = &node.topology.links[link];
        let is_xdp = config.backend == Backend::Xdp && !node.links()[link].is_auto;
        if is_xdp && let Err(error) = choice::refuse_kind(&config.interface, found) {
            return self.wait(node, link, &error);
        }
        match node.reopen(link, found.clone(), reason, netlink) {
            Ok(()) => {
                self.retry = None;
                let mode = node.links()[link].mode.clone();
                tracing::info!(
                    "link {name}: interface {} is {}: XDP {}, sockets {}",
                    node.topology.links[link].interface,
                    if reason == Reopening::Back { "back" } else { "served on all queues" },
                    mode.xdp(),
                    mode.socket()
                );
            }
            Err(StartError::Sealed) => {
                self.retry = Some((now + RETRY_MAX, RETRY_MAX));
                tracing::info!("link {name}: to open its sockets takes a process with privileges");
            }
            Err(error) => {
                let most = match node.topology.links[link].backend {
                    Backend::Udp => RETRY_MAX_UDP,
                    _ => RETRY_MAX,
                };
                let pause = self.retry.map_or(RETRY_FIRST, |(_, pause)| (2 * pause).min(most));
                self.retry = Some((now + pause, pause));
                self.wait(node, link, &error);
            }
        }
    }

    /// Records what a link waits for, and logs a change.
    fn wait(&self, node: &Node, link: usize, error: &StartError) {
        let config = &node.topology.links[link];
        let waits = waits(config, error);
        if node.links()[link].waits != waits {
            tracing::warn!("link {} waits: {waits}", config.name);
            note_waits(node, link, waits);
        }
    }

    /// Logs that packets are dropped because they exceed the MTU.
    fn count_oversize(&mut self, node: &Node, link: usize) {
        let parts = node.shared.parts();
        let count: u64 = parts.iter().map(|part| part.links[link].counters.tx_oversize).sum();
        let dropped = count.saturating_sub(self.oversize);
        if dropped == 0 || self.said.is_some_and(|said| said.elapsed() < SAY_INTERVAL) {
            return;
        }
        (self.oversize, self.said) = (count, Some(Instant::now()));
        let config = &node.topology.links[link];
        tracing::warn!(
            "link {}: {dropped} packets larger than the MTU of {}, {}, were dropped: raise it, or \
             lower symbol_bytes at the source of the flow",
            config.name,
            config.interface,
            node.links()[link].interface.mtu
        );
    }

    /// Logs once that an offload of UDP sockets is unused.
    fn tell_unused(&mut self, node: &Node, link: usize) {
        let unused = node.shared.unused_offloads[link].reasons();
        if unused == self.unused {
            return;
        }
        let config = &node.topology.links[link];
        let (name, interface) = (&config.name, &config.interface);
        let cures = [
            format!("ethtool -K {interface} tx-udp-segmentation off tells whether it is the NIC"),
            format!("ethtool -k {interface} lists what may merge them"),
        ];
        let both = unused.iter().zip(&self.unused).zip(cures);
        for ((reason, before), cure) in both.filter(|((reason, _), _)| !reason.is_empty()) {
            if before.is_empty() {
                tracing::warn!("link {name}: {reason} ({cure})");
            }
        }
        self.unused = unused;
    }
}

/// Records the query's result and publishes it to the workers. An interface other than the one with
/// this link's sockets counts as gone: only [`Node::reopen`] changes that.
fn note(node: &Node, link: usize, found: Option<Interface>) {
    let mut links = node.links();
    let state = &mut links[link];
    let is_ours = state.status != LinkStatus::Gone;
    match found.filter(|found| is_ours && found.index == state.interface.index) {
        Some(found) => {
            state.status = status(&found);
            state.interface = found;
        }
        None => state.status = LinkStatus::Gone,
    }
    node.publish_links(&links);
}

/// Records what a link waits for; empty for nothing.
fn note_waits(node: &Node, link: usize, waits: String) {
    node.links()[link].waits = waits;
}

/// Records this node's address on a link, and publishes it.
fn note_local(node: &Node, link: usize, local: Option<IpAddr>) {
    let mut links = node.links();
    links[link].local = local;
    node.publish_links(&links);
}

/// Logs the effect of a changed MTU on the flows.
fn say_mtu(node: &Node, link: usize, before: usize, found: Option<&Interface>) {
    let Some(found) = found else { return };
    let config = &node.topology.links[link];
    let mut mtus = crate::node::mtus(&node.links());
    mtus[link] = found.mtu;
    let snapshot = node.shared.snapshot.get();
    let consequence = match snapshot::check(&snapshot, &node.topology, &mtus) {
        Ok(()) => String::new(),
        Err(error) => format!("; {error}; packets above it are dropped (tx_oversize)"),
    };
    let text = format!(
        "link {}: the MTU of {} is now {}, it was {before}{consequence}",
        config.name, config.interface, found.mtu
    );
    if consequence.is_empty() { tracing::info!("{text}") } else { tracing::warn!("{text}") }
}

/// Logs ICMP errors about a neighbour, at an interval for each link.
fn say_icmp(
    node: &Node,
    said: &mut Option<Instant>,
    link: usize,
    neighbour: IpAddr,
    kind: icmp::Kind,
) {
    if said.is_some_and(|said| said.elapsed() < SAY_INTERVAL) {
        return;
    }
    *said = Some(Instant::now());
    let port = node.topology.port;
    let words = match kind {
        icmp::Kind::NoPort => format!("port {port} unreachable: start recoded there"),
        icmp::Kind::Unreachable => "unreachable: look for routes and firewalls".to_owned(),
        icmp::Kind::TooLarge => "packets are too large for a link on the path".to_owned(),
    };
    tracing::warn!("link {}: ICMP says of {neighbour}: {words}", node.topology.links[link].name);
}

/// Interval between queries without an event.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest interval between queries: creating and removing hundreds of interfaces costs little.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Each attempt to open sockets stops all workers briefly.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(64);
/// Attempts to open UDP sockets disturb no other link.
const RETRY_MAX_UDP: Duration = Duration::from_secs(4);
/// Continuing drops are logged at this interval.
const SAY_INTERVAL: Duration = Duration::from_secs(10);
