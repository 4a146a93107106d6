//! The kill switch: every route into a tunnel is backed by a permanent unreachable route of the
//! same prefix.
//!
//! ```text
//!  10.98.0.0/16 dev rec0                                    goes with the tunnel
//!  unreachable 10.98.0.0/16 metric 4294967295 proto 82      stays until it is removed
//! ```
//!
//! A tunnel outlives a daemon that is killed, and nothing leaves it in the clear. It is removed
//! when the daemon stops, or by hand; then its routes go, and packets would take others. A thread
//! polls the routes twice a second and adds missing ones. It removes nothing:
//! `ip route flush proto 82` and `ip -6 route flush proto 82` lift the switch.

use crate::error::StartError;
use crate::netlink::{Netlink, Prefix};
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::collections::BTreeSet;
use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The thread that adds unreachable routes. Dropping it ends it; they stay.
pub struct KillSwitch {
    tunnels: Arc<Mutex<Vec<String>>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl KillSwitch {
    /// Backs the routes into these tunnels from now on.
    ///
    /// # Errors
    /// [`StartError::Netlink`], [`StartError::Limit`].
    pub fn start(tunnels: Vec<String>) -> Result<KillSwitch, StartError> {
        let netlink = Netlink::open()?;
        let (stop, stopped) = bounded(1);
        let tunnels = Arc::new(Mutex::new(tunnels));
        let backed = tunnels.clone();
        let thread = std::thread::Builder::new()
            .name("recoded-kill".into())
            .spawn(move || run(&backed, &netlink, &stopped))
            .map_err(|source| StartError::Limit { what: "the kill switch's thread", source })?;
        Ok(KillSwitch { tunnels, stop: Some(stop), thread: Some(thread) })
    }

    /// Backs the routes into these tunnels instead. Unreachable routes that are there stay.
    pub fn change(&self, tunnels: Vec<String>) {
        *self.tunnels.lock().unwrap_or_else(PoisonError::into_inner) = tunnels;
    }

    /// The tunnels.
    pub fn tunnels(&self) -> Vec<String> {
        names(&self.tunnels)
    }
}

impl Debug for KillSwitch {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("KillSwitch").field(&self.tunnels()).finish()
    }
}

fn names(tunnels: &Mutex<Vec<String>>) -> Vec<String> {
    tunnels.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Drop for KillSwitch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the kill switch had failed");
        }
    }
}

fn run(tunnels: &Mutex<Vec<String>>, netlink: &Netlink, stopped: &Receiver<()>) {
    let mut refused = BTreeSet::new();
    loop {
        // A router may have a million routes: nothing is dumped where none is backed.
        let tunnels = names(tunnels);
        let unprotected = match tunnels.is_empty() {
            true => Ok(Vec::new()),
            false => netlink.unprotected(&tunnels),
        };
        match unprotected {
            Ok(prefixes) => prefixes.iter().for_each(|prefix| add(prefix, netlink, &mut refused)),
            Err(error) => tracing::warn!(%error, "the kill switch does not see the routes"),
        }
        if stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn add(prefix: &Prefix, netlink: &Netlink, refused: &mut BTreeSet<Prefix>) {
    match netlink.make_unreachable(prefix) {
        Ok(()) => {
            refused.remove(prefix);
            tracing::info!(
                "kill switch: {prefix} is unreachable whenever no route leads into its tunnel"
            );
        }
        Err(error) if refused.insert(*prefix) => {
            tracing::error!(%error, "kill switch: {prefix} may leave in the clear");
        }
        Err(_) => {}
    }
}

/// A new route is covered within this time; a poll costs two dumps of the routes.
const LOOK: Duration = Duration::from_millis(500);
