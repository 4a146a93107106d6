//! Packets that arrive at a worker without their shard, passed to the worker that has it.
//!
//! Receive-side scaling keeps a shard on one queue, but feedback has other addresses than the data
//! it is about, and cards change their tables. Copies travel in parcels that circulate: a sender
//! takes a free one of the receiver, fills it and puts it into the inbox; the receiver empties and
//! frees it.
//!
//! # Memory ordering
//! Both queues are crossbeam's `ArrayQueue`: writes to a parcel before a push are visible after the
//! pop. A worker sets its sleep flag before it checks for parcels a last time; senders read the
//! flag after they put one in. With a fence between the two steps on both sides, one of them sees
//! the other's write.
//!
//! # Limitations
//! If a receiver has no free parcel, the packet is lost and counted at the worker where it arrived
//! (`opening`).

use crossbeam::queue::ArrayQueue;
use recoded_pipeline::egress::Origin;
use recoded_pipeline::params::{PeerId, ShardId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// The worker that has each shard of a relay or sink.
pub(crate) type Owners = HashMap<ShardId, usize>;

/// Parcels per worker: a burst of each of a few neighbours.
const PARCELS: usize = 256;

/// Room in a parcel: a frame without its headroom.
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

/// A worker's inbox for packets from other workers.
pub(crate) struct Inbox {
    full: ArrayQueue<Parcel>,
    free: ArrayQueue<Parcel>,
    /// Whether its worker sleeps or is about to: it checks for parcels once more after setting
    /// this.
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

    /// Returns an emptied parcel.
    pub(crate) fn recycle(&self, parcel: Parcel) {
        let _ = self.free.push(parcel);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.full.is_empty()
    }

    /// Marks its worker as asleep or awake. Returns whether parcels are waiting.
    pub(crate) fn sleeps(&self, is_asleep: bool) -> bool {
        self.is_asleep.store(is_asleep, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        !self.is_empty()
    }

    /// Whether its worker must be woken for a new parcel: once for each sleep.
    pub(crate) fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        // While it is awake nothing is written here: senders would contend for the cache line.
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
