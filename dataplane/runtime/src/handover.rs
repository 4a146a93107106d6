//! Packets that arrive at a worker which does not have their shard, handed to the one that has.
//!
//! Receive-side scaling keeps a shard on one queue, but feedback has other addresses than the data
//! it is about, and cards change their tables. Copies travel in parcels that go around: the
//! receiver's free ones are taken by senders, filled, put into its inbox, emptied and freed again.
//!
//! # Memory ordering
//! Both queues are crossbeam's `ArrayQueue`: what was written to a parcel before a push is seen
//! after the pop. A worker says that it sleeps before it looks for parcels the last time, others
//! ask whether it does after they put one in: with a fence between the two on both sides, one of
//! them sees what the other did.
//!
//! # Limitations
//! A receiver that has no free parcel loses the packet, which is counted where it arrived
//! (`opening`).

use crossbeam::queue::ArrayQueue;
use recoded_pipeline::egress::Origin;
use recoded_pipeline::params::{PeerId, ShardId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Which worker has which shard of a relay or sink.
pub(crate) type Owners = HashMap<ShardId, usize>;

/// Parcels per worker: a burst of each of a few neighbours.
const PARCELS: usize = 256;

/// Room in a parcel: what a frame takes behind the headroom.
const PARCEL_BYTES: usize = 2048 - recoded_wire::frames::HEADROOM_BYTES;

/// A copy of a packet.
pub(crate) struct Parcel {
    pub(crate) origin: Origin,
    len: usize,
    bytes: Box<[u8; PARCEL_BYTES]>,
}

impl Parcel {
    /// The UDP payload.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// What other workers have for one.
pub(crate) struct Inbox {
    full: ArrayQueue<Parcel>,
    free: ArrayQueue<Parcel>,
    /// Whether its worker sleeps, or is about to: it looks for parcels once more after it said so.
    is_asleep: AtomicBool,
}

impl Inbox {
    /// An empty inbox of one of `workers`; a worker without others needs no parcels.
    pub(crate) fn new(workers: usize) -> Inbox {
        let inbox = Inbox {
            full: ArrayQueue::new(PARCELS),
            free: ArrayQueue::new(PARCELS),
            is_asleep: AtomicBool::new(false),
        };
        for _ in 0..if workers > 1 { PARCELS } else { 0 } {
            let bytes = Box::new([0; PARCEL_BYTES]);
            // There are as many places.
            let _ = inbox.free.push(Parcel {
                origin: Origin { peer: PeerId(0), traffic_class: 0 },
                len: 0,
                bytes,
            });
        }
        inbox
    }

    /// Puts a packet in. False when there is no room.
    pub(crate) fn put(&self, origin: Origin, payload: &[u8]) -> bool {
        if payload.len() > PARCEL_BYTES {
            return false;
        }
        let Some(mut parcel) = self.free.pop() else { return false };
        (parcel.origin, parcel.len) = (origin, payload.len());
        parcel.bytes[..payload.len()].copy_from_slice(payload);
        self.full.push(parcel).is_ok()
    }

    /// Takes the oldest packet out.
    pub(crate) fn take(&self) -> Option<Parcel> {
        self.full.pop()
    }

    /// Gives a parcel back that was emptied.
    pub(crate) fn recycle(&self, parcel: Parcel) {
        let _ = self.free.push(parcel);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.full.is_empty()
    }

    /// Its worker goes to sleep, or is awake again. Whether parcels are there.
    pub(crate) fn sleeps(&self, is_asleep: bool) -> bool {
        self.is_asleep.store(is_asleep, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        !self.is_empty()
    }

    /// Whether its worker must be woken for what was put in: once for each sleep.
    pub(crate) fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        // While it is awake nothing is written here: senders would take the line from each other.
        self.is_asleep.load(Ordering::Relaxed) && self.is_asleep.swap(false, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: Origin = Origin { peer: PeerId(3), traffic_class: 2 };

    #[test]
    fn parcels_go_around_and_a_full_inbox_refuses() {
        let inbox = Inbox::new(2);
        for round in 0..3u8 {
            for _ in 0..PARCELS {
                assert!(inbox.put(ORIGIN, &[round; 100]));
            }
            assert!(!inbox.put(ORIGIN, &[9]));
            while let Some(parcel) = inbox.take() {
                assert_eq!((parcel.origin, parcel.payload()), (ORIGIN, &[round; 100][..]));
                inbox.recycle(parcel);
            }
        }
        assert!(inbox.is_empty() && !inbox.put(ORIGIN, &[0; PARCEL_BYTES + 1]));
    }

    #[test]
    fn a_worker_that_sleeps_is_woken_once() {
        let inbox = Inbox::new(2);
        assert!(!inbox.must_wake() && !inbox.sleeps(true));
        assert!(inbox.put(ORIGIN, &[1]));
        assert!(inbox.must_wake() && !inbox.must_wake());
        assert!(inbox.sleeps(true), "it must not sleep");
        inbox.sleeps(false);
        assert!(!inbox.must_wake());
    }

    #[test]
    fn a_worker_without_others_takes_nothing() {
        assert!(!Inbox::new(1).put(ORIGIN, &[1]));
    }
}
