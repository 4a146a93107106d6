//! Who answers for each next hop: keeps the Ethernet addresses of all hops up to date.
//!
//! A thread of its own reads Linux's neighbour table and publishes the headers of every hop that is
//! resolved. AF_XDP packets bypass Linux's sending path, so nothing else would make it resolve a
//! neighbour or notice that one moved: entries that are missing, failed or stale are asked for.
//!
//! Not done here: choosing another hop when one is gone. Packets to an unresolved hop are dropped
//! and counted by the worker.

use crate::encap::{Encap, Mac};
use crate::netlink::{Neighbour, Netlink};
use crate::slot::Slot;
use crossbeam::channel::{Receiver, RecvTimeoutError};
use rtnetlink::packet_route::neighbour::NeighbourState;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Headers of each hop, by `PeerId`; `None` while it is unresolved.
pub(crate) type NextHops = Vec<Option<Encap>>;

/// A hop as the neighbour thread needs it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct HopRoute {
    pub(crate) interface: u32,
    pub(crate) source_mac: Mac,
    /// Whether Linux finds it for each packet, as it does for UDP sockets.
    pub(crate) by_linux: bool,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) port: u16,
}

/// The state of an address in the neighbour table.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Lookup {
    mac: Option<Mac>,
    /// Whether Linux must be asked to resolve or verify it.
    ask: bool,
}

/// Keeps `slot` up to date until `stop` hangs up.
pub(crate) fn run(
    netlink: &Netlink,
    routes: &Slot<Vec<Option<HopRoute>>>,
    slot: &Slot<NextHops>,
    on_change: impl Fn(),
    stop: &Receiver<()>,
) {
    let mut warned = false;
    loop {
        let current = slot.get();
        let routes = routes.get();
        let next = match refresh(netlink, &routes) {
            Ok(next) => next,
            Err(error) => {
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!(%error, "cannot read the neighbour table, keeping what is known");
                }
                current.as_ref().clone()
            }
        };
        let is_complete = next.iter().all(Option::is_some);
        if next != *current {
            slot.publish(next);
            on_change();
        }
        let pause = if is_complete { REFRESH } else { RETRY };
        if stop.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// One look at the neighbour table. Also called before the workers start, so that hops which Linux
/// knows already work from the first packet on.
pub(crate) fn refresh(
    netlink: &Netlink,
    hops: &[Option<HopRoute>],
) -> Result<NextHops, rtnetlink::Error> {
    // Without a hop that needs it, the table is not asked for.
    let is_needed = hops.iter().flatten().any(|hop| !hop.by_linux);
    let table = if is_needed { netlink.neighbours()? } else { Vec::new() };
    let next = hops
        .iter()
        .map(|hop| {
            let hop = hop.as_ref()?;
            if hop.by_linux {
                let HopRoute { source_mac, source, destination, port, .. } = *hop;
                // These addresses are not used: the headers only count.
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
        // A permanent entry must not be asked for: see `Netlink::resolve`.
        NeighbourState::Permanent | NeighbourState::Noarp => Lookup { mac: entry.mac, ask: false },
        NeighbourState::Reachable | NeighbourState::Delay | NeighbourState::Probe => {
            Lookup { mac: entry.mac, ask: false }
        }
        // Usable, and it stays so while Linux verifies it.
        NeighbourState::Stale => Lookup { mac: entry.mac, ask: true },
        NeighbourState::Incomplete => Lookup { mac: None, ask: false },
        _ => Lookup { mac: None, ask: true },
    }
}

/// A neighbour that moves is noticed within this and the time Linux takes to verify it.
const REFRESH: Duration = Duration::from_secs(1);
/// While a hop is missing nothing flows, and a look costs some tens of microseconds.
const RETRY: Duration = Duration::from_millis(100);

/// What the thread needs; bundled, since everything in it is opened before the thread exists.
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
    fn look_up_incomplete_entry_waits() {
        assert_eq!(look_up_in(NeighbourState::Incomplete), Lookup { mac: None, ask: false });
    }
}
