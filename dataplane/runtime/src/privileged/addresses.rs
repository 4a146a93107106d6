//! Addresses of tunnels, which change while a dataplane process runs.
//!
//! The thread that answers that process has the rest of the privileged half. Addresses are apart
//! from it, so that the thread that takes a configuration can change them, too. The dataplane
//! process cannot: it has no request for it.

use crate::error::StartError;
use crate::netlink::Netlink;
use crate::topology::Address;
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names and addresses of tunnels: those that a process left when it was killed, or has now.
pub type Left = BTreeMap<String, Vec<Address>>;

/// The addresses that tunnels have. Threads share it.
pub struct TunnelAddresses(Mutex<Held>);

struct Held {
    netlink: Netlink,
    tunnels: Left,
}

impl TunnelAddresses {
    /// Of tunnels that have these.
    pub(super) fn new(netlink: Netlink, tunnels: Left) -> TunnelAddresses {
        TunnelAddresses(Mutex::new(Held { netlink, tunnels }))
    }

    /// Those of now.
    pub fn now(&self) -> Left {
        self.held().tunnels.clone()
    }

    /// Gives tunnels the addresses that `next` names for them, and takes those away that it does
    /// not name. Tunnels that are unknown, or not in `next`, stay as they are, as do addresses
    /// that another program added. Nothing is done for a tunnel that has what it is to have.
    ///
    /// # Errors
    /// [`StartError::Netlink`]; tunnels then have what they had.
    pub fn change(&self, next: &Left) -> Result<(), StartError> {
        let mut held = self.held();
        let before = held.tunnels.clone();
        let changed = held.set(next, |now, next| now != next);
        if changed.is_err()
            && let Err(error) = held.set(&before, |_, _| true)
        {
            tracing::error!(%error, "addresses of tunnels changed");
        }
        changed
    }

    /// The same also where nothing changes: addresses that another program took away are back.
    pub(super) fn restore(&self, next: &Left) -> Result<(), StartError> {
        self.held().set(next, |_, _| true)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn set(
        &mut self,
        next: &Left,
        is_due: impl Fn(&[Address], &[Address]) -> bool,
    ) -> Result<(), StartError> {
        for (name, now) in &mut self.tunnels {
            let Some(next) = next.get(name).filter(|next| is_due(now, next)) else { continue };
            // A failure halfway leaves some of both, which a later change has to take away.
            let mut both: Vec<Address> = next.clone();
            both.extend(now.iter().filter(|address| !next.contains(address)));
            let before = std::mem::replace(now, both);
            readdress(&self.netlink, &Change { name, before: &before, next })?;
            now.clone_from(next);
        }
        Ok(())
    }
}

/// Addresses of a tunnel before and after.
pub(super) struct Change<'a> {
    pub(super) name: &'a str,
    pub(super) before: &'a [Address],
    pub(super) next: &'a [Address],
}

/// Takes the addresses of before from an interface, but for those that it is to have now, which it
/// gets. What somebody else gave it stays.
///
/// New addresses come first, since Linux takes all routes from an interface without an IPv4
/// address. They are set once more at the end: without `promote_secondaries`, an address that goes
/// takes the later ones of its prefix with it.
pub(super) fn readdress(netlink: &Netlink, change: &Change<'_>) -> Result<(), StartError> {
    let Change { name, before, next } = *change;
    let add = || next.iter().try_for_each(|address| netlink.add_address(name, *address));
    add()?;
    let mut gone = before.iter().filter(|address| !next.contains(address)).peekable();
    if gone.peek().is_none() {
        return Ok(());
    }
    gone.try_for_each(|address| netlink.remove_address(name, *address))?;
    add()
}

impl Debug for TunnelAddresses {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("TunnelAddresses").field(&self.now()).finish()
    }
}
