//! Addresses of tunnels, which may change while a dataplane process runs.
//!
//! The thread that serves that process owns the rest of the privileged half. Addresses are
//! separate, so that the thread that applies a configuration can change them, too. The dataplane
//! process cannot: it has no request for it.

use crate::error::StartError;
use crate::netlink::Netlink;
use crate::topology::Address;
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names and addresses of tunnels: those left by a killed process, or the present ones.
pub type Left = BTreeMap<String, Vec<Address>>;

/// The addresses of the tunnels, shared by threads.
pub struct TunnelAddresses(Mutex<AddressState>);

struct AddressState {
    netlink: Netlink,
    tunnels: Left,
}

impl TunnelAddresses {
    /// For tunnels that have these addresses.
    pub(super) fn new(netlink: Netlink, tunnels: Left) -> TunnelAddresses {
        TunnelAddresses(Mutex::new(AddressState { netlink, tunnels }))
    }

    /// The present addresses.
    pub fn now(&self) -> Left {
        self.held().tunnels.clone()
    }

    /// Gives tunnels the addresses that `next` names for them, and removes those that it does not
    /// name. Tunnels that are unknown or not in `next` stay as they are, as do addresses added by
    /// another program. A tunnel that already has its addresses is left alone.
    ///
    /// # Errors
    /// [`StartError::Netlink`]; tunnels then keep their previous addresses.
    pub fn change(&self, next: &Left) -> Result<(), StartError> {
        let mut held = self.held();
        let before = held.tunnels.clone();
        let changed = held.set(next, |now, next| now != next);
        if changed.is_err()
            && let Err(error) = held.set(&before, |_, _| true)
        {
            tracing::error!(%error, "cannot restore the addresses of tunnels");
        }
        changed
    }

    /// The same, even without a change: restores addresses that another program removed.
    pub(super) fn restore(&self, next: &Left) -> Result<(), StartError> {
        self.held().set(next, |_, _| true)
    }

    /// Records a tunnel that was created with these addresses.
    pub(super) fn note(&self, name: &str, addresses: &[Address]) {
        self.held().tunnels.insert(name.to_owned(), addresses.to_vec());
    }

    /// Forgets a tunnel that was removed.
    pub(super) fn forget(&self, name: &str) {
        self.held().tunnels.remove(name);
    }

    fn held(&self) -> MutexGuard<'_, AddressState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AddressState {
    fn set(
        &mut self,
        next: &Left,
        is_due: impl Fn(&[Address], &[Address]) -> bool,
    ) -> Result<(), StartError> {
        for (name, now) in &mut self.tunnels {
            let Some(next) = next.get(name).filter(|next| is_due(now, next)) else { continue };
            // A failure halfway leaves some of both, which a later change has to remove.
            let mut both: Vec<Address> = next.clone();
            both.extend(now.iter().filter(|address| !next.contains(address)));
            let before = std::mem::replace(now, both);
            readdress(&self.netlink, &AddressChange { name, before: &before, next })?;
            now.clone_from(next);
        }
        Ok(())
    }
}

/// Addresses of a tunnel before and after.
pub(super) struct AddressChange<'a> {
    pub(super) name: &'a str,
    pub(super) before: &'a [Address],
    pub(super) next: &'a [Address],
}

/// Replaces the previous addresses of an interface by the next ones. Addresses added by others
/// stay.
///
/// New addresses are added first, since Linux removes all routes of an interface without an IPv4
/// address. They are set once more at the end: without `promote_secondaries`, removing an address
/// also removes the later ones of its prefix.
pub(super) fn readdress(netlink: &Netlink, change: &AddressChange<'_>) -> Result<(), StartError> {
    let AddressChange { name, before, next } = *change;
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
