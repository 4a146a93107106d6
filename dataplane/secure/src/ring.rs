//! The epochs of keys that are valid at the same time, so that packets in flight when keys change
//! are not lost.
//!
//! ```text
//!  initiator:  sends with new keys at once          new -> current -> previous
//!  responder:  waits for a verified packet of them  new -> next -> current -> previous
//! ```

/// Keys of one epoch, of any kind, from a moment on.
#[derive(Clone, Debug)]
pub struct Epoch<T> {
    /// Its id in packets: chosen by this node.
    pub key_id: u8,
    /// When it was created, in nanoseconds of the caller's clock.
    pub since: u64,
    /// Its keys.
    pub keys: T,
}

/// At most five epochs: three previous ones, the one in use, and one that waits for its first
/// packet. Both sides may begin a handshake at once, and each then sends with the epoch that it
/// began: two epochs are in use before a change, and two after it.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    previous: [Option<Epoch<T>>; 3],
    current: Option<Epoch<T>>,
    next: Option<Epoch<T>>,
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self { previous: [None, None, None], current: None, next: None }
    }
}

impl<T> Ring<T> {
    /// Adds an epoch that the peer is known to have: it is used for sending from now on.
    pub fn install(&mut self, epoch: Epoch<T>) {
        // The waiting epoch is newer than the one in use, and the peer may be sending with it.
        let replaced = self.current.replace(epoch);
        self.keep(replaced);
        let replaced = self.next.take();
        self.keep(replaced);
    }

    /// Adds an epoch that the peer may not have: it is used for sending after [`Ring::confirm`].
    //= docs/protocol §3.5(b)
    pub fn propose(&mut self, epoch: Epoch<T>) {
        self.next = Some(epoch);
    }

    /// Notes that a packet of this epoch has been verified; returns whether that changes the
    /// sending epoch.
    pub fn confirm(&mut self, key_id: u8) -> bool {
        let confirmed = self.next.take_if(|next| next.key_id == key_id);
        if confirmed.is_none() {
            return false;
        }
        let replaced = std::mem::replace(&mut self.current, confirmed);
        self.keep(replaced);
        true
    }

    /// Adds an epoch of the peer for receiving only.
    pub fn admit(&mut self, epoch: Epoch<T>) {
        self.keep(Some(epoch));
    }

    /// Sends with this epoch from now on. The previous one is dropped, unless units begun under it
    /// are still to be finished.
    pub fn replace(&mut self, epoch: Epoch<T>, keeps: bool) {
        let replaced = self.current.replace(epoch);
        self.keep(replaced.filter(|_| keeps));
    }

    /// Keeps an epoch that is no longer used for sending.
    fn keep(&mut self, epoch: Option<Epoch<T>>) {
        if epoch.is_some() {
            self.previous.rotate_right(1);
            self.previous[0] = epoch;
        }
    }

    /// Forgets epochs that are older than `lifetime` nanoseconds; returns whether there were any.
    pub fn expire(&mut self, now: u64, lifetime: u64) -> bool {
        let is_over = |epoch: &mut Epoch<T>| now.saturating_sub(epoch.since) >= lifetime;
        let places = self.previous.iter_mut().chain([&mut self.current, &mut self.next]);
        places.filter_map(|place| place.take_if(is_over)).count() > 0
    }

    /// The epoch used for sending.
    #[must_use]
    pub const fn sending(&self) -> Option<&Epoch<T>> {
        self.current.as_ref()
    }

    /// The epoch that waits for its first packet.
    #[must_use]
    pub const fn waiting(&self) -> Option<&Epoch<T>> {
        self.next.as_ref()
    }

    /// The epoch with this id.
    pub fn by_id(&mut self, key_id: u8) -> Option<&mut Epoch<T>> {
        let places = [&mut self.current, &mut self.next].into_iter().chain(&mut self.previous);
        places.flatten().find(|epoch| epoch.key_id == key_id)
    }

    /// All epochs, the likeliest for a packet first: in use, waiting, previous.
    pub fn epochs(&self) -> impl Iterator<Item = &Epoch<T>> {
        [&self.current, &self.next].into_iter().chain(&self.previous).flatten()
    }

    /// Whether an epoch has this id.
    #[must_use]
    pub fn holds(&self, key_id: u8) -> bool {
        let places = [&self.current, &self.next].into_iter().chain(&self.previous);
        places.flatten().any(|epoch| epoch.key_id == key_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(key_id: u8) -> Epoch<()> {
        Epoch { key_id, since: u64::from(key_id), keys: () }
    }

    //= docs/protocol §3.5(b)
    #[test]
    fn proposed_epoch_is_received_but_not_sent_with_until_confirmed() {
        let mut ring = Ring::default();
        ring.install(epoch(1));
        ring.propose(epoch(2));
        assert_eq!(ring.sending().map(|epoch| epoch.key_id), Some(1));
        assert!(ring.by_id(2).is_some());
        assert!(!ring.confirm(1), "it is in use already");
        assert!(ring.confirm(2));
        assert_eq!(ring.sending().map(|epoch| epoch.key_id), Some(2));
        assert!(ring.holds(1) && ring.holds(2));
    }

    #[test]
    fn installed_epoch_keeps_the_one_that_waited() {
        let mut ring = Ring::default();
        ring.install(epoch(1));
        ring.propose(epoch(2));
        ring.install(epoch(3));
        assert!(ring.holds(1) && ring.holds(2) && ring.holds(3));
        ring.install(epoch(4));
        ring.install(epoch(5));
        assert!(!ring.holds(1) && ring.holds(2) && ring.holds(5));
    }

    #[test]
    fn admitted_epochs_are_received_and_never_sent_with() {
        let mut ring = Ring::default();
        (1..=4).for_each(|id| ring.admit(epoch(id)));
        assert!(ring.sending().is_none());
        assert_eq!(ring.epochs().map(|epoch| epoch.key_id).collect::<Vec<_>>(), [4, 3, 2]);
        ring.replace(epoch(9), false);
        ring.replace(epoch(10), false);
        assert_eq!(ring.sending().map(|epoch| epoch.key_id), Some(10));
        assert!(!ring.holds(9) && ring.holds(2));
        ring.replace(epoch(11), true);
        assert!(ring.holds(10) && !ring.holds(2));
    }

    #[test]
    fn epochs_expire_by_age() {
        let mut ring = Ring::default();
        ring.install(epoch(1));
        ring.install(epoch(2));
        ring.expire(11, 10);
        assert!(!ring.holds(1) && ring.holds(2));
    }
}
