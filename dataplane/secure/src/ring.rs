//! The epochs of keys that are valid at the same time, so that packets on the way when keys change
//! are not lost.
//!
//! ```text
//!  initiator:  sends with new keys at once          new -> current -> previous
//!  responder:  waits for a verified packet of them  new -> next -> current -> previous
//! ```

/// Keys of one epoch, of whatever kind, from a moment on.
#[derive(Clone, Debug)]
pub struct Epoch<T> {
    /// How packets name it: chosen by this node.
    pub key_id: u8,
    /// When it came to be, in nanoseconds of the caller's clock.
    pub since: u64,
    /// Its keys.
    pub keys: T,
}

/// At most three epochs: the one before, the one in use, and one that waits for its first packet.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    previous: Option<Epoch<T>>,
    current: Option<Epoch<T>>,
    next: Option<Epoch<T>>,
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self { previous: None, current: None, next: None }
    }
}

impl<T> Ring<T> {
    /// Adds an epoch that the peer is known to have: it is sent with from here on.
    pub fn install(&mut self, epoch: Epoch<T>) {
        // What waits is newer than what is in use, and the peer may be sending with it.
        let replaced = self.next.take().or_else(|| self.current.take());
        self.previous = replaced.or_else(|| self.previous.take());
        self.current = Some(epoch);
    }

    /// Adds an epoch that the peer may not have: it is sent with after [`Ring::confirm`].
    pub fn propose(&mut self, epoch: Epoch<T>) {
        self.next = Some(epoch);
    }

    /// A packet of this epoch has been verified; whether that changes what is sent with.
    pub fn confirm(&mut self, key_id: u8) -> bool {
        let confirmed = self.next.take_if(|next| next.key_id == key_id);
        if confirmed.is_none() {
            return false;
        }
        self.previous = self.current.take().or_else(|| self.previous.take());
        self.current = confirmed;
        true
    }

    /// Forgets epochs that are older than `lifetime` nanoseconds; whether there were any.
    pub fn expire(&mut self, now: u64, lifetime: u64) -> bool {
        let is_over = |epoch: &mut Epoch<T>| now.saturating_sub(epoch.since) >= lifetime;
        let places = [&mut self.previous, &mut self.current, &mut self.next];
        places.into_iter().filter_map(|place| place.take_if(is_over)).count() > 0
    }

    /// The epoch that is sent with.
    #[must_use]
    pub const fn sending(&self) -> Option<&Epoch<T>> {
        self.current.as_ref()
    }

    /// The epoch that waits for its first packet.
    #[must_use]
    pub const fn waiting(&self) -> Option<&Epoch<T>> {
        self.next.as_ref()
    }

    /// The epoch that a packet names.
    pub fn by_id(&mut self, key_id: u8) -> Option<&mut Epoch<T>> {
        let places = [&mut self.current, &mut self.next, &mut self.previous];
        places.into_iter().flatten().find(|epoch| epoch.key_id == key_id)
    }

    /// Whether an epoch has this id.
    #[must_use]
    pub fn holds(&self, key_id: u8) -> bool {
        let places = [&self.current, &self.next, &self.previous];
        places.into_iter().flatten().any(|epoch| epoch.key_id == key_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(key_id: u8) -> Epoch<()> {
        Epoch { key_id, since: u64::from(key_id), keys: () }
    }

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
        assert!(!ring.holds(1) && ring.holds(2) && ring.holds(3));
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
