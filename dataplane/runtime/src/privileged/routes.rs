//! Routes into tunnels, to the subnets behind their other ends.
//!
//! ```text
//!  10.61.0.0/24 dev rec0 proto 83            goes with the tunnel
//!  default dev rec0 table 9426 proto 83      likewise, behind the rules of [`crate::netlink`]
//! ```
//!
//! A default route has a table of its own. Rules lead to it all packets except those of links, of
//! connections to the addresses of links, and those for which the host has a more specific route.
//! The rules stay when this process is killed, as the tunnel does; then this host's addresses
//! still answer, and the packets that would take the default route are dropped. They go when the
//! table is empty: not while a kill switch holds packets back there.
//!
//! Linux removes the routes of an interface that is set down or removed. A thread compares them
//! twice a second with those wanted, adds missing ones and removes surplus ones; routes of other
//! programs stay. Nothing has to be recorded: the protocol number identifies these routes.

use crate::error::StartError;
use crate::netlink::{Netlink, Rule, Selector};
use crate::topology::Address;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Formatter};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// By tunnel: destinations of routes into it.
pub type Destinations = BTreeMap<String, Vec<Address>>;

/// Routes into tunnels, and what must not take them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RoutePlan {
    /// By tunnel: destinations.
    pub destinations: Destinations,
    /// Interfaces of links.
    pub underlay: Vec<String>,
}

/// Keeps the routes into tunnels. Dropping it ends its thread; the routes stay until the tunnels
/// go.
pub struct TunnelRoutes {
    held: Arc<Mutex<RouteState>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct RouteState {
    netlink: Netlink,
    plan: RoutePlan,
    /// Whether there may be rules of this program: at first those of a killed process.
    has_rules: bool,
    /// The last failure, which is logged once.
    failure: String,
}

/// A missing route is added again within this time; a look costs two dumps of the routes.
const LOOK: Duration = Duration::from_millis(500);

impl TunnelRoutes {
    /// Keeps these routes from now on. Those that Linux refuses are logged and retried.
    ///
    /// # Errors
    /// [`StartError::Netlink`], [`StartError::Limit`].
    pub fn start(plan: RoutePlan) -> Result<TunnelRoutes, StartError> {
        let (netlink, failure) = (Netlink::open()?, String::new());
        let mut held = RouteState { netlink, plan, has_rules: true, failure };
        held.keep(|_| true);
        let held = Arc::new(Mutex::new(held));
        let (stop, stopped) = bounded(1);
        let kept = held.clone();
        let thread = std::thread::Builder::new()
            .name("recoded-routes".into())
            .spawn(move || run(&kept, &stopped))
            .map_err(|source| StartError::Limit { what: "the thread of routes", source })?;
        Ok(TunnelRoutes { held, stop: Some(stop), thread: Some(thread) })
    }

    /// Replaces the routes into the tunnels that `next` names.
    ///
    /// # Errors
    /// [`StartError::Netlink`]: Linux refused one; the previous routes are restored.
    pub fn change(&self, next: &RoutePlan) -> Result<(), StartError> {
        let mut held = lock(&self.held);
        let before = std::mem::replace(&mut held.plan, next.clone());
        let changed = held.apply(|_| true);
        if changed.is_err() {
            held.plan = before;
            held.keep(|_| true);
        }
        changed
    }

    /// Removes the rules at a stop, unless a kill switch needs them. The tunnels are gone then.
    pub fn end(&self) {
        let mut held = lock(&self.held);
        held.plan = RoutePlan::default();
        held.keep(|_| true);
    }
}

impl RouteState {
    /// Makes the routes those wanted, for tunnels whose destinations are `due`.
    fn apply(&mut self, due: impl Fn(&[Address]) -> bool) -> Result<(), StartError> {
        let destinations = &self.plan.destinations;
        for (tunnel, wanted) in destinations.iter().filter(|(_, wanted)| due(wanted)) {
            let changed = self.netlink.route_into(tunnel, wanted)?;
            for (address, bits) in changed.added {
                tracing::info!("route {address}/{bits} by {tunnel}");
            }
            for (address, bits) in changed.removed {
                tracing::info!("route {address}/{bits} by {tunnel} is removed");
            }
        }
        self.apply_rules()
    }

    /// Makes the rules those that the default routes need.
    fn apply_rules(&mut self) -> Result<(), StartError> {
        let rules = self.rules()?;
        let had_rules = std::mem::replace(&mut self.has_rules, !rules.is_empty());
        if rules.is_empty() && !(had_rules && self.netlink.has_no_exit()?) {
            return Ok(());
        }
        if self.netlink.keep_rules(&rules)? && !rules.is_empty() {
            tracing::info!("rules keep packets of links outside of a tunnel's default route");
        }
        Ok(())
    }

    fn rules(&self) -> Result<BTreeSet<Rule>, StartError> {
        let destinations = self.plan.destinations.values().flatten();
        let families = destinations.filter(|(_, bits)| *bits == 0).map(|(to, _)| to.is_ipv4());
        let families: BTreeSet<bool> = families.collect();
        let mut rules = BTreeSet::new();
        if families.is_empty() {
            return Ok(rules);
        }
        let mut own = Vec::new();
        for name in &self.plan.underlay {
            // One that is missing has no addresses yet.
            let Ok(interface) = self.netlink.interface(name) else { continue };
            own.extend(self.netlink.own_addresses(interface.index)?.into_iter().map(|(it, _)| it));
        }
        let is_routed = |it: &IpAddr| !matches!(it, IpAddr::V6(v6) if v6.is_unicast_link_local());
        for is_ipv4 in families {
            let bound = self.plan.underlay.iter().cloned().map(Selector::Bound);
            let from = own.iter().copied().filter(|it| it.is_ipv4() == is_ipv4 && is_routed(it));
            let selectors = bound.chain(from.map(Selector::From));
            let selectors = selectors.chain([Selector::Specific, Selector::All]);
            rules.extend(selectors.map(|selector| Rule { selector, is_ipv4 }));
        }
        Ok(rules)
    }

    fn keep(&mut self, due: impl Fn(&[Address]) -> bool) {
        let failure = self.apply(due).err().map(|error| error.to_string()).unwrap_or_default();
        if failure != self.failure && !failure.is_empty() {
            tracing::error!("{failure}: another route may have this destination (ip route)");
        }
        self.failure = failure;
    }
}

impl Drop for TunnelRoutes {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of routes had failed");
        }
    }
}

impl Debug for TunnelRoutes {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("TunnelRoutes").field(&lock(&self.held).plan).finish()
    }
}

fn lock(held: &Mutex<RouteState>) -> MutexGuard<'_, RouteState> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(held: &Mutex<RouteState>, stopped: &Receiver<()>) {
    while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        // A router may have a million routes: nothing is dumped where none is wanted.
        lock(held).keep(|wanted| !wanted.is_empty());
    }
}
