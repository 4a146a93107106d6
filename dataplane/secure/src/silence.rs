//! Silence between two nodes, judged by the counters of the keys of both directions: when to send a
//! hello, and when to suspect that the peer has lost its keys or this node's address.
//!
//! ```text
//!  heard 3 packets, sent none for 0.5 s -----------------> hello: the peer knows they arrive
//!  sent 8 packets in 1.5 s and two round trips, heard none -> handshake, and a new ARP query
//! ```
//!
//! Hellos do not trigger endless hellos: each requires three packets of the peer. A node that
//! receives nothing sends none of its own accord: it would be taken for an answer. A late call
//! counts as one in time, since a stalled process has received nothing meanwhile.

use crate::handshake::timing::SILENCE_NANOS;

const MILLI: u64 = 1_000_000;

/// Longest time counted between two calls, however late the second one is: five times the callers'
/// interval.
const STEP_NANOS: u64 = 250 * MILLI;

/// A hello is sent if packets arrived and nothing was sent for this long. A third of
/// [`UNANSWERED_NANOS`], so that two may be lost.
const UNSAID_NANOS: u64 = 500 * MILLI;

/// Packets that trigger a hello: more than hellos and announcements amount to in that time.
const UNSAID_PACKETS: u64 = 3;

const SECOND: u64 = 1000 * MILLI;

/// A peer that received [`UNANSWERED_PACKETS`] has answered within this time and a round trip.
const UNANSWERED_NANOS: u64 = 1500 * MILLI;

/// Unanswered packets, enough for the peer to answer twice.
const UNANSWERED_PACKETS: u64 = 8;

/// Quarters of a second that they must be spread over: a burst may be lost as a whole.
const UNANSWERED_QUARTERS: u32 = 4;

/// Counters of a peer's keys, at a time of the caller's clock.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Counters {
    pub(crate) now: u64,
    /// Packets sent under the newest keys.
    pub(crate) sent: u64,
    /// Grows with packets of the peer under any keys.
    pub(crate) heard: u64,
}

/// Conclusions from the counters.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Finding {
    /// The peer should have answered: agree on new keys, and search for its address.
    pub(crate) is_silent: bool,
    /// Send an empty packet.
    pub(crate) says_hello: bool,
}

/// How long each side has been silent.
#[derive(Default, Debug)]
pub(crate) struct Silence {
    looked: u64,
    sent: u64,
    heard: u64,
    unanswered: Unanswered,
    /// Packets of the peer since this side last sent one, and the time since then.
    unsaid: (u64, u64),
}

/// Packets to the peer since its last packet.
#[derive(Default, Debug)]
struct Unanswered {
    packets: u64,
    quarters: u32,
    /// Since the first of them, and since the present quarter began.
    waited: u64,
    quarter: u64,
}

impl Unanswered {
    fn look(&mut self, step: u64, sent: u64) {
        if self.packets > 0 {
            self.waited += step;
            self.quarter += step;
        }
        if sent > 0 && (self.packets == 0 || self.quarter >= SECOND / 4) {
            self.quarters += 1;
            self.quarter = 0;
        }
        self.packets += sent;
    }

    fn is_long(&self, round_trip: u64) -> bool {
        let soon = UNANSWERED_NANOS.saturating_add(2 * round_trip).min(SILENCE_NANOS);
        let is_many = self.packets >= UNANSWERED_PACKETS && self.quarters >= UNANSWERED_QUARTERS;
        self.packets > 0 && self.waited >= if is_many { soon } else { SILENCE_NANOS }
    }
}

impl Silence {
    /// Evaluates the counters, which callers do every 50 ms.
    pub(crate) fn look(&mut self, counters: Counters, round_trip: u64) -> Finding {
        let Counters { now, sent, heard } = counters;
        let step = now.saturating_sub(self.looked).min(STEP_NANOS);
        // Expired keys take their packets with them; new ones count from zero.
        let came = heard.saturating_sub(self.heard);
        let went = sent.checked_sub(self.sent).unwrap_or(sent);
        (self.looked, self.sent, self.heard) = (now, sent, heard);
        if came > 0 {
            self.unanswered = Unanswered::default();
        }
        self.unanswered.look(step, went);
        let is_silent = self.unanswered.is_long(round_trip);
        if is_silent {
            self.unanswered = Unanswered::default();
        }
        Finding { is_silent, says_hello: self.answers(step, came, went) }
    }

    /// Whether the received packets require an answer.
    fn answers(&mut self, step: u64, came: u64, went: u64) -> bool {
        let (packets, quiet) = self.unsaid;
        self.unsaid = if went > 0 { (came, 0) } else { (packets + came, quiet + step) };
        let (packets, quiet) = self.unsaid;
        packets >= UNSAID_PACKETS && quiet >= UNSAID_NANOS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: u64 = 50 * MILLI;

    /// Two nodes that evaluate their counters every 50 ms over a link without delay.
    #[derive(Default)]
    struct Pair {
        now: u64,
        nodes: [(Silence, u64, u64); 2],
        is_cut: [bool; 2],
    }

    /// For each node, when it was silent, or when it sent a hello.
    #[derive(Default, Debug)]
    struct Seen {
        silent: [Vec<u64>; 2],
        hellos: [Vec<u64>; 2],
    }

    impl Pair {
        fn send(&mut self, node: usize, packets: u64) {
            self.nodes[node].1 += packets;
            if !self.is_cut[node] {
                self.nodes[1 - node].2 += packets;
            }
        }

        /// Runs for some milliseconds; the first node sends `packets` packets between two calls.
        fn run(&mut self, millis: u64, packets: u64) -> Seen {
            let mut seen = Seen::default();
            for _ in 0..millis / 50 {
                self.now += LOOK;
                self.send(0, packets);
                for node in 0..2 {
                    let (silence, sent, heard) = &mut self.nodes[node];
                    let counters = Counters { now: self.now, sent: *sent, heard: *heard };
                    let finding = silence.look(counters, 10 * MILLI);
                    if finding.is_silent {
                        seen.silent[node].push(self.now / MILLI);
                    }
                    if finding.says_hello {
                        seen.hellos[node].push(self.now / MILLI);
                        self.send(node, 1);
                    }
                }
            }
            seen
        }
    }

    #[test]
    fn a_node_that_only_hears_says_so_and_the_sender_suspects_nothing() {
        let mut pair = Pair::default();
        let seen = pair.run(60_000, 5);
        assert_eq!(seen.silent, [[], []], "{seen:?}");
        assert!((100..=121).contains(&seen.hellos[1].len()), "{seen:?}");
        assert_eq!(seen.hellos[0], [0; 0], "the sender has nothing to say");
    }

    #[test]
    fn a_peer_that_stops_answering_is_suspected_within_two_seconds_again_and_again() {
        let mut pair = Pair::default();
        pair.run(5000, 5);
        pair.is_cut[1] = true;
        let seen = pair.run(6000, 5);
        assert!(seen.silent[0][0] <= 5000 + 2100, "{seen:?}");
        assert!(seen.silent[0].len() >= 3 && seen.silent[0].len() <= 4, "{seen:?}");
        pair.is_cut[1] = false;
        // The next hello comes after half a second.
        pair.run(1000, 5);
        assert_eq!(pair.run(5000, 5).silent[0], [0; 0]);
    }

    #[test]
    fn hellos_end_when_traffic_ends_on_both_sides() {
        let mut pair = Pair::default();
        pair.run(5000, 5);
        let seen = pair.run(20_000, 0);
        assert!(seen.hellos[1].len() <= 1 && seen.hellos[0].is_empty(), "{seen:?}");
        assert_eq!(seen.silent, [[], []], "{seen:?}");
    }

    #[test]
    fn a_few_packets_without_answer_are_suspicious_after_long_only() {
        let mut pair = Pair { is_cut: [true, true], ..Pair::default() };
        pair.send(0, 1);
        let seen = pair.run(24_000, 0);
        assert_eq!(seen.silent[0], [0; 0]);
        assert_eq!(pair.run(2000, 0).silent[0].len(), 1);
        // A burst may be lost as a whole.
        pair.send(0, 100);
        assert_eq!(pair.run(20_000, 0).silent[0], [0; 0]);
    }

    /// A process that was stalled for a minute does not judge its peer by that minute.
    #[test]
    fn time_without_a_look_is_no_silence() {
        let mut pair = Pair::default();
        pair.run(5000, 5);
        pair.send(0, 50);
        pair.now += 60 * SECOND;
        assert_eq!(pair.run(1000, 5).silent, [[], []]);
    }

    #[test]
    fn counters_of_other_keys_are_no_answer_and_no_burst() {
        let mut pair = Pair::default();
        pair.run(5000, 5);
        let (_, sent, heard) = &mut pair.nodes[0];
        (*sent, *heard) = (0, heard.saturating_sub(7));
        pair.is_cut = [true, true];
        let seen = pair.run(3000, 5);
        assert_eq!(seen.silent[0].len(), 1, "{seen:?}");
    }
}
