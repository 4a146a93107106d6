//! The queue of letters from the workers to the key thread.
//!
//! Each kind of letter has room of its own, so none displaces another: messages of hops, which
//! anyone can forge, messages between edges, announcements, and messages from unknown addresses.
//! Within a kind, a letter is admitted while its neighbour has fewer waiting than there is room
//! left. One neighbour that floods the queue gets half of the room, two get a third each, and the
//! rest stays free for the others. Messages between edges count for their flow as well: a flow that
//! floods a neighbour's share gets a third of the room, and leaves as much to the other flows of
//! that neighbour. All memory is allocated at the start.
//!
//! # Memory ordering
//! Counts only bound the queue, and the channel orders the letters themselves: all are relaxed. A
//! letter is counted before it is admitted, so workers that post at once never exceed the room.

use crate::keyring::Letter;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use recoded_pipeline::params::PeerId;
use recoded_wire::header::Header;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

/// Kinds of letters.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Handshake messages between neighbours: only the source address was checked.
    Hop,
    /// Messages between edges, under the tag of a hop if that has keys.
    Edge,
    /// Announcements and places: losing one costs the least.
    Talk,
    /// Handshake messages from unknown addresses.
    Elsewhere,
}

const KINDS: usize = 4;

impl Kind {
    /// Room for letters of this kind. At half of it, one neighbour that carries the handshakes of a
    /// hundred flows would lose some when it restarts; at twice, a flood delays the others by more
    /// than the interval of their retransmissions.
    pub(crate) const fn room(self) -> u16 {
        match self {
            Kind::Hop => 128,
            Kind::Edge => 256,
            Kind::Talk | Kind::Elsewhere => 64,
        }
    }
}

/// Letters that wait at most.
const ROOM: usize = Kind::Hop.room() as usize
    + Kind::Edge.room() as usize
    + Kind::Talk.room() as usize
    + Kind::Elsewhere.room() as usize;

/// Waiting letters, by kind.
type Waiting = [AtomicU16; KINDS];

/// Shares of the flows behind one neighbour. Two of ten flows share one by chance; at half of it,
/// two of seven.
pub(crate) const FLOW_SHARES: usize = 64;

/// The share of a flow, among [`FLOW_SHARES`] of each neighbour.
pub(crate) fn flow_share(peer: PeerId, flow: u32) -> usize {
    let share = flow.wrapping_mul(0x9E37_79B1) >> (u32::BITS - FLOW_SHARES.ilog2());
    usize::from(peer.0) * FLOW_SHARES + share as usize
}

#[derive(Debug)]
struct Counts {
    all: Waiting,
    /// By `PeerId`.
    by_neighbour: Box<[Waiting]>,
    /// Messages between edges, by [`flow_share`].
    by_flow: Box<[AtomicU16]>,
}

impl Counts {
    /// The count of a letter's neighbour; none for a letter from elsewhere, which no neighbour has
    /// sent for certain.
    fn own(&self, letter: &Letter, kind: Kind) -> Option<&AtomicU16> {
        let peer = letter.peer.filter(|_| kind != Kind::Elsewhere)?;
        Some(&self.by_neighbour.get(usize::from(peer.0))?[kind as usize])
    }

    /// The count of the letter's flow, if it is a message between edges.
    fn of_flow(&self, letter: &Letter, kind: Kind) -> Option<&AtomicU16> {
        let peer = letter.peer.filter(|_| kind == Kind::Edge)?;
        let flow = Header::parse(letter.packet()).ok()?.flow;
        self.by_flow.get(flow_share(peer, flow))
    }

    //= docs/protocol §7.1 B1
    fn admit(&self, letter: &Letter, kind: Kind) -> bool {
        let all = self.all[kind as usize].fetch_add(1, Relaxed);
        let count = |count: Option<&AtomicU16>| count.map_or(0, |it| it.fetch_add(1, Relaxed));
        let (own, of_flow) = (self.own(letter, kind), self.of_flow(letter, kind));
        let waiting = all.saturating_add(count(own)).saturating_add(count(of_flow));
        let is_admitted = waiting < kind.room();
        if !is_admitted {
            self.release(letter, kind);
        }
        is_admitted
    }

    fn release(&self, letter: &Letter, kind: Kind) {
        self.all[kind as usize].fetch_sub(1, Relaxed);
        let counts = [self.own(letter, kind), self.of_flow(letter, kind)];
        counts.into_iter().flatten().for_each(|count| {
            count.fetch_sub(1, Relaxed);
        });
    }
}

/// The workers' end.
#[derive(Clone, Debug)]
pub(crate) struct Mailbox {
    letters: Sender<(Kind, Letter)>,
    counts: Arc<Counts>,
}

/// The key thread's end.
#[derive(Debug)]
pub(crate) struct Inbox {
    letters: Receiver<(Kind, Letter)>,
    counts: Arc<Counts>,
}

/// Creates the queue of a node with this many neighbours.
pub(crate) fn mailbox(neighbours: usize) -> (Mailbox, Inbox) {
    let (sender, receiver) = bounded(ROOM);
    let by_neighbour = (0..neighbours).map(|_| Waiting::default()).collect();
    let by_flow = (0..neighbours * FLOW_SHARES).map(|_| AtomicU16::default()).collect();
    let counts = Arc::new(Counts { all: Waiting::default(), by_neighbour, by_flow });
    let inbox = Inbox { letters: receiver, counts: counts.clone() };
    (Mailbox { letters: sender, counts }, inbox)
}

impl Mailbox {
    /// Passes a letter to the key thread. Returns whether there was room for it.
    pub(crate) fn post(&self, kind: Kind, letter: Letter) -> bool {
        if !self.counts.admit(&letter, kind) {
            return false;
        }
        match self.letters.try_send((kind, letter)) {
            Ok(()) => true,
            Err(error) => {
                let (kind, letter) = error.into_inner();
                self.counts.release(&letter, kind);
                false
            }
        }
    }
}

impl Inbox {
    /// The next letter, if one arrives in time.
    ///
    /// # Errors
    /// None arrived, or all workers are gone.
    pub(crate) fn recv_timeout(&self, timeout: Duration) -> Result<Letter, RecvTimeoutError> {
        self.letters.recv_timeout(timeout).map(|(kind, letter)| self.take(kind, letter))
    }

    /// The letters that wait.
    pub(crate) fn try_iter(&self) -> impl Iterator<Item = Letter> + '_ {
        self.letters.try_iter().map(|(kind, letter)| self.take(kind, letter))
    }

    fn take(&self, kind: Kind, letter: Letter) -> Letter {
        self.counts.release(&letter, kind);
        letter
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.letters.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_wire::handshake::write_edge_handshake;

    fn letter(peer: u16) -> Letter {
        Letter::new(PeerId(peer), &[peer as u8]).unwrap()
    }

    /// A message between the edges of a flow.
    fn edge_letter(peer: u16, flow: u32) -> Letter {
        let mut packet = [0; 64];
        let len = write_edge_handshake(flow, &[9; 30], &mut packet);
        Letter::new(PeerId(peer), &packet[..len]).unwrap()
    }

    /// Posts until a letter of this neighbour is refused.
    fn fill(mail: &Mailbox, kind: Kind, peer: u16) -> usize {
        (0..1000).take_while(|_| mail.post(kind, letter(peer))).count()
    }

    //= docs/protocol §7.1 B1
    #[test]
    fn neighbours_that_flood_the_queue_leave_room_for_the_others_and_for_other_kinds() {
        let (mail, inbox) = mailbox(100);
        assert_eq!(fill(&mail, Kind::Edge, 0), 128);
        assert_eq!(fill(&mail, Kind::Edge, 1), 64);
        for honest in 2..10 {
            assert!((0..4).all(|_| mail.post(Kind::Edge, letter(honest))), "{honest}");
        }
        for kind in [Kind::Hop, Kind::Talk] {
            assert_eq!(fill(&mail, kind, 0), usize::from(kind.room() / 2));
            assert!(mail.post(kind, letter(1)));
        }
        let total = inbox.len();
        assert_eq!(inbox.try_iter().count(), total);
        assert_eq!(fill(&mail, Kind::Edge, 0), 128, "letters that were read make room");
    }

    /// G4: a relay that forged messages of one flow left no room for another flow behind it.
    #[test]
    fn flow_that_floods_a_neighbours_share_leaves_as_much_to_its_other_flows() {
        let (mail, inbox) = mailbox(4);
        let fill = |peer, flow| {
            (0..1000).take_while(|_| mail.post(Kind::Edge, edge_letter(peer, flow))).count()
        };
        assert_eq!(fill(0, 1), 86);
        for honest in 2..6 {
            assert!((0..4).all(|_| mail.post(Kind::Edge, edge_letter(0, honest))), "{honest}");
        }
        assert!((0..4).all(|_| mail.post(Kind::Edge, edge_letter(1, 1))), "another neighbour");
        inbox.try_iter().for_each(drop);
        assert!(mail.counts.by_flow.iter().all(|count| count.load(Relaxed) == 0));
    }

    #[test]
    fn counts_are_exact_when_workers_post_at_once() {
        let (mail, inbox) = mailbox(4);
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let mail = mail.clone();
                scope.spawn(move || {
                    (0..2000).for_each(|_| _ = mail.post(Kind::Hop, letter(worker)))
                });
            }
            for _ in 0..1000 {
                inbox.try_iter().for_each(drop);
                assert!(inbox.len() <= usize::from(Kind::Hop.room()));
            }
        });
        inbox.try_iter().for_each(drop);
        assert!(mail.counts.all.iter().all(|count| count.load(Relaxed) == 0));
        assert_eq!(fill(&mail, Kind::Hop, 0), 64);
        drop(mail);
        inbox.try_iter().for_each(drop);
        let end = inbox.recv_timeout(Duration::from_secs(9)).unwrap_err();
        assert_eq!(end, RecvTimeoutError::Disconnected);
    }

    #[test]
    fn letters_from_elsewhere_take_no_room_of_neighbours() {
        let (mail, inbox) = mailbox(1);
        assert_eq!(fill(&mail, Kind::Elsewhere, 0), usize::from(Kind::Elsewhere.room()));
        assert!(mail.post(Kind::Hop, letter(0)));
        // A neighbour that the configuration does not know has no share, and takes none.
        assert!(mail.post(Kind::Talk, letter(7)));
        assert_eq!(inbox.len(), 66);
    }
}
