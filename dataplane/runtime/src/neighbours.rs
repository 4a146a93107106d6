//! Resolves next hops: keeps their Ethernet addresses up to date.
//!
//! A separate thread reads Linux's neighbour table and publishes the headers of every resolved hop.
//! AF_XDP packets bypass Linux's transmit path, so nothing else makes Linux resolve a neighbour or
//! notice that one moved: missing, failed and stale entries are requested. Entries of a hop that
//! does not respond are deleted and requested again, even if Linux considers them reachable: one
//! forged ARP reply makes it do so for half a minute. Until the reply arrives, for a second at
//! most, packets use the previous address.
//!
//! Does not choose another hop when one is gone. The worker drops and counts packets to an
//! unresolved hop.

use crate::encap::{Encap, Mac, NextHops};
use crate::netlink::{Neighbour, Netlink};
use crate::shared::Shared;
use crate::slot::Slot;
use crossbeam::channel::{Receiver, RecvTimeoutError};
use recoded_pipeline::params::PeerId;
use rtnetlink::packet_route::neighbour::NeighbourState;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A hop as the neighbour thread needs it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct HopRoute {
    pub(crate) interface: u32,
    /// Zeros for UDP sockets, which write no Ethernet header.
    pub(crate) source_mac: Mac,
    /// Whether Linux resolves it for each packet, as it does for UDP sockets.
    pub(crate) by_linux: bool,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) port: u16,
}

/// The state of an address in the neighbour table.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Lookup {
    mac: Option<Mac>,
    /// Whether Linux must resolve or verify it.
    ask: bool,
}

/// Keeps the headers of all hops up to date until `stop` hangs up.
pub(crate) fn run(task: &NeighbourTask, shared: &Shared, stop: &Receiver<()>) {
    let NeighbourTask { netlink, routes, slot } = task;
    let (mut is_warned, mut asked, mut due) = (false, Asked::default(), Instant::now());
    while stop.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        let (now, routes) = (Instant::now(), routes.get());
        for PeerId(hop) in std::iter::from_fn(|| shared.suspects.pop()) {
            let Some(Some(route)) = routes.get(usize::from(hop)) else { continue };
            let key = entry_key(netlink, route);
            if asked.may_ask(key, now) {
                forget(netlink, key);
                due = now;
            }
        }
        if now < due {
            continue;
        }
        let current = slot.get();
        let next = match refresh(netlink, &routes) {
            Ok(found) => asked.keep(found, &current, now),
            Err(error) => {
                if !std::mem::replace(&mut is_warned, true) {
                    tracing::warn!(%error, "cannot read the neighbour table, keeping what is known");
                }
                current.as_ref().clone()
            }
        };
        let is_complete = next.iter().all(Option::is_some) && asked.is_over(now);
        if next != *current {
            slot.publish(next);
            shared.wake_all();
        }
        due = now + if is_complete { REFRESH } else { LOOK };
    }
}

/// Key of an entry of Linux's neighbour table.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct EntryKey {
    /// Index of the interface.
    interface: u32,
    /// Address of the neighbour.
    address: IpAddr,
}

/// Entries deleted because a hop did not respond, and when. Several hops may share one.
#[derive(Default)]
struct Asked(BTreeMap<EntryKey, Instant>);

impl Asked {
    /// Whether an entry may be requested again; if so, the caller requests it.
    fn may_ask(&mut self, key: EntryKey, now: Instant) -> bool {
        self.0.retain(|_, at| now.duration_since(*at) < ASK_AGAIN);
        let is_due = !self.0.contains_key(&key);
        self.0.entry(key).or_insert(now);
        is_due
    }

    /// Whether all replies arrived or timed out.
    fn is_over(&self, now: Instant) -> bool {
        self.0.values().all(|at| now.duration_since(*at) >= ASK_AGAIN)
    }

    /// The entries found, or the known ones while replies are outstanding.
    fn keep(&self, mut found: NextHops, known: &NextHops, now: Instant) -> NextHops {
        if !self.is_over(now) {
            for (found, known) in found.iter_mut().zip(known) {
                *found = found.take().or_else(|| known.clone());
            }
        }
        found
    }
}

/// The key of a hop's entry in the neighbour table.
fn entry_key(netlink: &Netlink, hop: &HopRoute) -> EntryKey {
    let gateway = netlink.gateway(hop.interface, hop.destination);
    EntryKey { interface: hop.interface, address: gateway.unwrap_or(hop.destination) }
}

/// Deletes an entry, unless an operator wrote it, and requests it.
fn forget(netlink: &Netlink, key: EntryKey) {
    let EntryKey { interface, address } = key;
    let Ok(table) = netlink.neighbours() else { return };
    let is_it = |it: &&Neighbour| it.interface == interface && it.address == address;
    if table.iter().find(is_it).is_none_or(|entry| !is_learned(entry.state)) {
        return;
    }
    if let Err(error) = netlink.resolve_again(interface, address) {
        tracing::debug!(%error, "Linux does not resolve a neighbour again");
    }
}

/// Whether Linux learned the address, perhaps from a forged reply.
fn is_learned(state: NeighbourState) -> bool {
    matches!(
        state,
        NeighbourState::Reachable
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Stale
    )
}

/// Reads the neighbour table once. Also called before the workers start, so that hops already known
/// to Linux work from the first packet on.
pub(crate) fn refresh(
    netlink: &Netlink,
    hops: &[Option<HopRoute>],
) -> Result<NextHops, rtnetlink::Error> {
    // The table is read only if a hop needs it.
    let is_needed = hops.iter().flatten().any(|hop| !hop.by_linux);
    let table = if is_needed { netlink.neighbours()? } else { Vec::new() };
    let next = hops
        .iter()
        .map(|hop| {
            let hop = hop.as_ref()?;
            if hop.by_linux {
                let HopRoute { source_mac, source, destination, port, .. } = *hop;
                // These addresses are not used: only the length of the headers matters.
                return Encap::new(source_mac, source_mac, source, destination, port);
            }
            let neighbour =
                netlink.gateway(hop.interface, hop.destination).unwrap_or(hop.destination);
            let lookup = look_up(&table, hop.interface, neighbour);
            if lookup.ask
                && let Err(error) = netlink.resolve(hop.interface, neighbour)
            {
                tracing::debug!(%error, "Linux does not want to resolve a neighbour");
            }
            let mac = lookup.mac?;
            Encap::new(hop.source_mac, mac, hop.source, hop.destination, hop.port)
        })
        .collect();
    Ok(next)
}

fn look_up(table: &[Neighbour], interface: u32, address: IpAddr) -> Lookup {
    let entry = table.iter().find(|entry| entry.interface == interface && entry.address == address);
    let Some(entry) = entry else {
        return Lookup { mac: None, ask: true };
    };
    match entry.state {
        // A permanent entry must not be requested: see `Netlink::resolve`.
        NeighbourState::Permanent | NeighbourState::Noarp => Lookup { mac: entry.mac, ask: false },
        NeighbourState::Reachable | NeighbourState::Delay | NeighbourState::Probe => {
            Lookup { mac: entry.mac, ask: false }
        }
        // Usable, and it stays usable while Linux verifies it.
        NeighbourState::Stale => Lookup { mac: entry.mac, ask: true },
        NeighbourState::Incomplete => Lookup { mac: None, ask: false },
        _ => Lookup { mac: None, ask: true },
    }
}

/// A neighbour's move is noticed within this plus Linux's verification time.
const REFRESH: Duration = Duration::from_secs(1);
/// While a hop is missing nothing flows, and a read costs some tens of microseconds. Hops that do
/// not respond are requested as quickly.
const LOOK: Duration = Duration::from_millis(100);
/// Interval between two requests for a hop that does not respond: Linux itself waits a second for
/// each reply, and accepts no second one within one (`locktime`).
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The thread's inputs, bundled since all are opened before the thread exists.
pub(crate) struct NeighbourTask {
    pub(crate) netlink: Netlink,
    /// By `PeerId`; `None` while the interface is gone.
    pub(crate) routes: Arc<Slot<Vec<Option<HopRoute>>>>,
    pub(crate) slot: Arc<Slot<NextHops>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 9];

    fn table(state: NeighbourState) -> Vec<Neighbour> {
        let address = "10.0.0.2".parse().unwrap();
        let mac = (!matches!(state, NeighbourState::Incomplete)).then_some(MAC);
        vec![Neighbour { interface: 3, address, mac, state }]
    }

    fn look_up_in(state: NeighbourState) -> Lookup {
        look_up(&table(state), 3, "10.0.0.2".parse().unwrap())
    }

    #[test]
    fn look_up_permanent_entry_is_used_and_never_asked_for() {
        assert_eq!(look_up_in(NeighbourState::Permanent), Lookup { mac: Some(MAC), ask: false });
    }

    #[test]
    fn look_up_stale_entry_is_used_and_verified() {
        assert_eq!(look_up_in(NeighbourState::Stale), Lookup { mac: Some(MAC), ask: true });
    }

    #[test]
    fn look_up_failed_or_missing_entry_is_asked_for_and_not_used() {
        assert_eq!(look_up_in(NeighbourState::Failed), Lookup { mac: None, ask: true });
        let elsewhere = look_up(&table(NeighbourState::Reachable), 4, "10.0.0.2".parse().unwrap());
        assert_eq!(elsewhere, Lookup { mac: None, ask: true });
    }

    #[test]
    fn what_an_operator_wrote_is_not_forgotten() {
        for state in [NeighbourState::Permanent, NeighbourState::Noarp] {
            assert!(!is_learned(state));
        }
        assert!(is_learned(NeighbourState::Reachable) && is_learned(NeighbourState::Stale));
    }

    #[test]
    fn hop_that_does_not_answer_is_asked_for_once_a_second_and_kept_meanwhile() {
        let there = ["10.0.0.1", "10.0.0.2"].map(|it| it.parse().unwrap());
        let known = Encap::new(MAC, MAC, there[0], there[1], 7);
        assert!(known.is_some());
        let (mut asked, begun) = (Asked::default(), Instant::now());
        let key = EntryKey { interface: 3, address: there[1] };
        assert!(asked.may_ask(key, begun) && !asked.may_ask(key, begun + ASK_AGAIN / 2));
        let other = EntryKey { interface: 4, ..key };
        assert!(asked.may_ask(other, begun), "on another interface");
        let both = vec![known.clone(), None];
        let found = |after| asked.keep(vec![None, None], &both, begun + after);
        assert_eq!(found(ASK_AGAIN / 2), both);
        assert_eq!(found(ASK_AGAIN), [None, None]);
        let moved = vec![Encap::new(MAC, [9; 6], there[0], there[1], 7), None];
        assert_eq!(asked.keep(moved.clone(), &both, begun), moved);
        assert!(asked.may_ask(key, begun + ASK_AGAIN));
    }

    #[test]
    fn look_up_incomplete_entry_waits() {
        assert_eq!(look_up_in(NeighbourState::Incomplete), Lookup { mac: None, ask: false });
    }
}
