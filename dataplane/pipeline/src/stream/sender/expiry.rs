//! How far one next hop may lag: symbols that wait longer are not sent.

use super::{AGAIN_NANOS, AGAIN_ROUND_TRIPS, Sender};
use crate::config::params::{Nanos, StreamProfile};
use crate::stream::store::Store;

impl Sender {
    /// Moves the neighbour to another index among the next hops.
    pub(crate) fn moved_to(mut self, hop: usize) -> Self {
        self.hop = hop;
        self
    }

    /// Resizes the window to this many symbols.
    pub(crate) fn resize(&mut self, symbols: usize) {
        self.link.in_flight.resize(2 * symbols);
        self.fresh.reserve(symbols.saturating_sub(self.fresh.len()));
        for places in [&mut self.again, &mut self.open] {
            places.reserve(symbols.saturating_sub(places.len()));
        }
    }

    /// Sets the protection profile. As one of several receivers, it may lag by up to `lag`.
    pub(crate) fn protect(&mut self, profile: StreamProfile, lag: Option<Nanos>) {
        (self.fec.profile, self.fec.has_copies) = (profile, lag.is_some());
        self.patience = lag.unwrap_or(AGAIN_NANOS);
    }

    /// Sends symbols of up to this many bytes even if they vanish.
    pub(crate) fn set_floor(&mut self, bytes: u16) {
        self.link.in_flight.sizes_mut().set_floor(bytes);
    }

    /// Symbols that were too large, and those that waited too long, since the last call.
    pub(crate) fn take_given_up(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.given_up), std::mem::take(&mut self.lagged))
    }

    /// How long a symbol is sent after it was first seen.
    pub(super) fn patience(&self) -> Nanos {
        self.patience + AGAIN_ROUND_TRIPS * self.link.round_trip.mean()
    }

    /// Drops symbols that waited too long: nothing waits for a neighbour that is gone.
    pub(super) fn expire(&mut self, store: &mut Store, now: Nanos) {
        let patience = self.patience();
        let is_over = |store: &Store, number: u32| {
            !store.covers(number) || store.heard_at(number) + patience <= now
        };
        while let Some((number, _)) = self.again.pop_front_if(|(number, _)| is_over(store, *number))
        {
            self.let_go(store, number);
        }
        while let Some(number) = self.fresh.pop_front_if(|number| is_over(store, *number)) {
            self.let_go(store, number);
        }
    }

    /// Counts a symbol that waited too long once, since the queues may hold it several times.
    /// Another path to the same receiver may still send it.
    pub(super) fn let_go(&mut self, store: &mut Store, number: u32) {
        if !store.is_done(number, self.receiver) {
            self.lagged += 1;
            if !self.is_path {
                store.set_done(number, self.receiver);
            }
        }
    }
}
