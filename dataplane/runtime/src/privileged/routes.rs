//! Routes into tunnels, to the subnets behind their other ends.
//!
//! ```text
//!  10.61.0.0/24 dev rec0 proto 83       goes with the tunnel
//! ```
//!
//! Linux removes the routes of an interface that is set down or removed. A thread compares them
//! twice a second with those wanted, adds missing ones and removes surplus ones; routes of other
//! programs stay. Nothing has to be recorded: the protocol number identifies these routes.

use crate::error::StartError;
use crate::netlink::Netlink;
use crate::topology::Address;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// By tunnel: destinations of routes into it.
pub type Destinations = BTreeMap<String, Vec<Address>>;

/// Keeps the routes into tunnels. Dropping it ends its thread; the routes stay until the tunnels
/// go.
pub struct TunnelRoutes {
    held: Arc<Mutex<RouteState>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct RouteState {
    netlink: Netlink,
    wanted: Destinations,
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
    pub fn start(wanted: Destinations) -> Result<TunnelRoutes, StartError> {
        let mut held = RouteState { netlink: Netlink::open()?, wanted, failure: String::new() };
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
    pub fn change(&self, next: &Destinations) -> Result<(), StartError> {
        let mut held = lock(&self.held);
        let before = std::mem::replace(&mut held.wanted, next.clone());
        let changed = held.apply(|_| true);
        if changed.is_err() {
            held.wanted = before;
            held.keep(|_| true);
        }
        changed
    }
}

impl RouteState {
    /// Makes the routes those wanted, for tunnels whose destinations are `due`.
    fn apply(&mut self, due: impl Fn(&[Address]) -> bool) -> Result<(), StartError> {
        for (tunnel, wanted) in self.wanted.iter().filter(|(_, wanted)| due(wanted)) {
            let changed = self.netlink.route_into(tunnel, wanted)?;
            for (address, bits) in changed.added {
                tracing::info!("route {address}/{bits} by {tunnel}");
            }
            for (address, bits) in changed.removed {
                tracing::info!("route {address}/{bits} by {tunnel} is removed");
            }
        }
        Ok(())
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
        formatter.debug_tuple("TunnelRoutes").field(&lock(&self.held).wanted).finish()
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
