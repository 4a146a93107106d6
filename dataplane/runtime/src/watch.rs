//! Recreates a deleted tunnel (`ip link delete`), with its name, address and MTU.
//!
//! A thread of its own checks every tunnel a few times a second; a worker that notices first only
//! stops reading and writing. New descriptors reach the workers through a [`Slot`] and are adopted
//! at their next burst. Routes that others added through the interface are not known here and are
//! not restored; this is logged.
//!
//! It needs the privilege to create interfaces, or uses the process that has it. The network
//! namespace is that of its netlink socket, or of the thread that starts it.

use crate::error::StartError;
use crate::netlink::Netlink;
use crate::slot::Slot;
use crate::tunnel::{Tunnel, TunnelPlan, Tunnels};
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The thread that watches the tunnels. Dropping it ends it.
pub(crate) struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// How often each tunnel was recreated. Relaxed: counters.
    recreated: Arc<[AtomicU64]>,
}

impl Watch {
    /// Starts watching the tunnels in `slot`, made from `plans`.
    pub(crate) fn start(
        plans: Vec<TunnelPlan>,
        slot: Arc<Slot<Tunnels>>,
        netlink: Netlink,
    ) -> Result<Watch, StartError> {
        let (stop, stopped) = bounded(1);
        let recreated: Arc<[AtomicU64]> = plans.iter().map(|_| AtomicU64::new(0)).collect();
        let counters = recreated.clone();
        let thread = std::thread::Builder::new()
            .name("recoded-tun".into())
            .spawn(move || run(&plans, &netlink, &slot, &counters, &stopped))
            .map_err(|source| StartError::Limit { what: "the tunnel thread", source })?;
        Ok(Watch { stop: Some(stop), thread: Some(thread), recreated })
    }

    /// How often a tunnel was recreated.
    pub(crate) fn recreated(&self, tunnel: usize) -> u64 {
        self.recreated[tunnel].load(Relaxed)
    }

    /// Whether the thread still runs.
    pub(crate) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends the thread; no tunnel is recreated after that.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the tunnel thread had failed");
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(
    plans: &[TunnelPlan],
    netlink: &Netlink,
    slot: &Slot<Tunnels>,
    recreated: &[AtomicU64],
    stopped: &Receiver<()>,
) {
    let mut retry_at: Vec<Option<Instant>> = vec![None; plans.len()];
    while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        let current = slot.get();
        for (index, plan) in plans.iter().enumerate() {
            let is_early = retry_at[index].is_some_and(|at| Instant::now() < at);
            if is_early || !current[index].look() {
                continue;
            }
            let name = &plan.config.name;
            if retry_at[index].is_none() {
                tracing::warn!(tunnel = name, "the tunnel was deleted: creating it again");
            }
            match Tunnel::open(plan, netlink) {
                Ok(tunnel) => {
                    let mut tunnels = Tunnels::clone(&slot.get());
                    tunnels[index] = Arc::new(tunnel);
                    slot.publish(tunnels);
                    recreated[index].fetch_add(1, Relaxed);
                    retry_at[index] = None;
                    tracing::warn!(
                        tunnel = name,
                        "the tunnel is back with its address and MTU: add other routes again"
                    );
                }
                Err(error) => {
                    if retry_at[index].is_none() {
                        tracing::error!(%error, tunnel = name, "it stays away; trying on");
                    }
                    retry_at[index] = Some(Instant::now() + RETRY);
                }
            }
        }
    }
}

/// The loss of an unused tunnel is noticed within this time; a check costs a microsecond.
const LOOK: Duration = Duration::from_millis(200);
/// Retry interval while another interface has the name.
const RETRY: Duration = Duration::from_secs(1);
