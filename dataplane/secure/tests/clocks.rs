//! Two ends with wrong wall clocks that restart, or are set back to a snapshot, and recorded
//! initiations.

mod chance;

use std::collections::BTreeMap;

use chance::Chance;
use recoded_secure::{
    Association, HANDSHAKE_BYTES_MAX, HopKeys, Identity, PresharedKey, PrivateKey, Refused, Scope,
    Suite, TRAILER_BYTES, open_hop,
};

const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLI;
const DAY: u64 = 86_400 * SECOND;

/// The present.
const TODAY: u64 = 20_000 * DAY;

/// One way between the ends of most tests.
const DELAY: u64 = 20 * MILLI;

/// A message in flight: one of a handshake, or a packet with a tag.
enum Travelling {
    Message(Vec<u8>),
    Packet(Vec<u8>),
}

/// Two ends, and the link between them.
struct Pair {
    now: u64,
    chance: Chance,
    keys: [PrivateKey; 2],
    ends: [Association<HopKeys>; 2],
    /// Offset of each wall clock from the time of the test.
    clocks: [u64; 2],
    wire: BTreeMap<(u64, u64), (usize, Travelling)>,
    number: u64,
    /// Initiations of each, as they were sent.
    initiations: [Vec<Vec<u8>>; 2],
    refused: [Vec<Refused>; 2],
    /// When each last accepted a packet.
    taken: [u64; 2],
    /// How far the clocks of each are behind the time of the test: its machine was set back.
    behind: [u64; 2],
    /// One way between them.
    delay: u64,
}

fn start(
    keys: &[PrivateKey; 2],
    end: usize,
    now: u64,
    chance: &mut Chance,
) -> Association<HopKeys> {
    let (private, peer) = (keys[end].clone(), keys[1 - end].public());
    let identity = Identity { scope: Scope::Hop, private, peer, psk: PresharedKey::none() };
    Association::new(identity, Suite::Aes128Gcm, now, &chance.entropy())
}

impl Pair {
    fn new(seed: u64, clocks: [u64; 2]) -> Pair {
        let mut chance = Chance(seed);
        let keys = [0, 1].map(|_| PrivateKey::generate(&chance.entropy()));
        let ends = [0, 1].map(|end| start(&keys, end, 0, &mut chance));
        let (wire, number) = (BTreeMap::new(), 0);
        let (initiations, refused) = Default::default();
        Pair {
            now: 0,
            chance,
            keys,
            ends,
            clocks,
            wire,
            number,
            initiations,
            refused,
            taken: [0; 2],
            behind: [0; 2],
            delay: DELAY,
        }
    }

    fn restart(&mut self, end: usize, clock: u64) {
        self.ends[end] = start(&self.keys, end, self.now, &mut self.chance);
        self.clocks[end] = clock;
    }

    fn send(&mut self, from: usize, what: Travelling) {
        self.number += 1;
        self.wire.insert((self.now + self.delay, self.number), (1 - from, what));
    }

    fn send_packet(&mut self, from: usize) {
        let Some(epoch) = self.ends[from].ring().sending() else { return };
        let mut packet = vec![0; 40 + TRAILER_BYTES];
        epoch.keys.seal(&mut packet, 7).unwrap();
        self.send(from, Travelling::Packet(packet));
    }

    fn receive(&mut self, to: usize, what: Travelling) {
        let mut out = [0; HANDSHAKE_BYTES_MAX];
        match what {
            Travelling::Message(message) => {
                let entropy = self.chance.entropy();
                let now = self.now - self.behind[to];
                match self.ends[to].receive(now, &entropy, &message, &mut out) {
                    Ok(turn) => {
                        if turn.send > 0 {
                            self.send(to, Travelling::Message(out[..turn.send].to_vec()));
                        }
                        if turn.hello {
                            self.send_packet(to);
                        }
                    }
                    Err(reason) => self.refused[to].push(reason),
                }
            }
            Travelling::Packet(packet) => {
                let mut ring = self.ends[to].ring().clone();
                if open_hop(&mut ring, &packet, 7).is_ok() {
                    self.taken[to] = self.now;
                }
            }
        }
    }

    /// Runs for `millis` milliseconds; both ends send a packet every 10 ms.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now += MILLI;
            for end in 0..2 {
                let (now, mut out) = (self.now - self.behind[end], [0; HANDSHAKE_BYTES_MAX]);
                let (stamp, entropy) = (self.clocks[end] + now, self.chance.entropy());
                let turn = self.ends[end].poll(now, stamp, &entropy, &mut out).unwrap();
                if turn.send > 0 {
                    self.initiations[end].push(out[..turn.send].to_vec());
                    self.send(end, Travelling::Message(out[..turn.send].to_vec()));
                }
                if turn.hello || (self.now / MILLI).is_multiple_of(10) {
                    self.send_packet(end);
                }
            }
            while let Some(first) = self.wire.first_entry().filter(|it| it.key().0 <= self.now) {
                let (to, what) = first.remove();
                self.receive(to, what);
            }
        }
    }

    fn agreed(&self) -> u64 {
        self.ends[0].agreed().max(self.ends[1].agreed())
    }

    /// Which of them found out that they were set back.
    fn set_back(&self) -> [bool; 2] {
        self.refused.each_ref().map(|refused| refused.contains(&Refused::SetBack))
    }

    fn assert_talking(&self, what: &str) {
        for (end, taken) in self.taken.iter().enumerate() {
            let ago = (self.now - taken) / MILLI;
            assert!(
                ago < 100 + self.delay / MILLI,
                "{what}: the last packet of {end} is {ago} ms old"
            );
        }
        assert_eq!(self.set_back(), [false; 2], "{what}: {:?}", self.refused);
    }
}

/// A node without a clock battery starts in 1970, or a clock that ran ahead by a day was corrected;
/// and the same at the other end, which is up or restarts, too.
#[test]
fn ends_that_start_again_with_any_clock_agree_within_a_second_and_then_rest() {
    for (seed, end, clock) in [(1, 0, 0), (2, 1, 0), (3, 0, TODAY - DAY), (4, 1, TODAY + DAY)] {
        let mut pair = Pair::new(seed, [TODAY; 2]);
        pair.run(3000);
        pair.assert_talking("before");
        pair.restart(end, clock);
        pair.run(1000);
        pair.assert_talking(&format!("{end} with {clock}"));
        let stale = pair.refused[1 - end].iter().filter(|it| **it == Refused::Stale).count();
        assert_eq!(stale > 0, clock < TODAY, "it says why: {:?}", pair.refused);
        let (sent, agreed) = (pair.initiations.each_ref().map(Vec::len), pair.agreed());
        pair.run(100_000);
        pair.assert_talking("after");
        let more = pair.initiations.each_ref().map(Vec::len);
        assert!(more[0] + more[1] <= sent[0] + sent[1] + 3, "{sent:?}, then {more:?}");
        assert!(pair.agreed() <= agreed + 2, "keys change again and again");
        // Keys change by age, whichever side must begin.
        pair.run(120_000);
        pair.assert_talking("with the next keys");
        // The other one restarts, also with an old clock.
        pair.restart(1 - end, 5 * SECOND);
        pair.run(1000);
        pair.assert_talking("both");
    }
}

/// Recorded messages occasionally make a node begin a handshake of its own, and nothing else.
#[test]
fn recorded_initiations_cause_a_handshake_a_second_at_most_and_change_no_keys() {
    let mut pair = Pair::new(9, [TODAY; 2]);
    pair.run(3000);
    let before = pair.initiations.each_ref().map(Vec::len);
    // Recorded messages are old once the next keys are agreed on.
    pair.run(130_000);
    let renews = |end: &usize| pair.initiations[*end].len() > before[*end];
    let sender = (0..2).find(renews).expect("keys are not changed");
    let victim = 1 - sender;
    let recorded: Vec<Vec<u8>> = pair.initiations[sender][..before[sender]].to_vec();
    let (agreed, sent) = (pair.agreed(), pair.initiations[victim].len());
    let seconds = 10;
    for number in 0..seconds * 100 {
        let message = recorded[number % recorded.len()].clone();
        pair.receive(victim, Travelling::Message(message));
        pair.run(10);
    }
    let more = pair.initiations[victim].len() - sent;
    assert!((1..=seconds + 1).contains(&more), "{more} initiations in {seconds} s");
    assert!(pair.agreed() - agreed <= seconds as u64 + 1);
    pair.assert_talking("during the attack");
    let is_harmless = |it: &Refused| matches!(it, Refused::Stale | Refused::TooSoon);
    assert!(pair.refused[victim].iter().all(is_harmless), "{:?}", pair.refused[victim]);
}

/// Copies that took another path, and those that a newer one overtook, do not indicate a wrong
/// clock.
#[test]
fn late_copies_of_initiations_cause_nothing() {
    let mut pair = Pair::new(10, [TODAY; 2]);
    pair.run(1000);
    let (copies, sent) = (pair.initiations[0].clone(), pair.initiations[1].len());
    for copy in copies {
        pair.receive(1, Travelling::Message(copy));
        pair.run(50);
    }
    assert_eq!(pair.initiations[1].len(), sent);
}

/// A virtual machine is restored from a snapshot of its memory, minutes or days old. Its clocks are
/// those of the snapshot, or its wall clock is right. The same seed makes the same two ends twice.
//= docs/protocol §3.3(f)
#[test]
fn end_that_is_set_back_to_a_snapshot_finds_out_and_no_other_does() {
    for seed in 20..28 {
        let (end, has_right_clock) = (seed as usize % 2, seed % 4 < 2);
        let hours = u64::from(seed == 20);
        // A response over the longer path comes after the next initiation.
        let delay = if seed < 24 { DELAY } else { 8 * DELAY };
        let [mut pair, snapshot] = [(); 2].map(|()| {
            let mut pair = Pair::new(seed, [TODAY; 2]);
            pair.delay = delay;
            pair.run(3000);
            pair
        });
        pair.run(130_000 + 3_600_000 * hours);
        pair.assert_talking("before");
        pair.behind[end] = pair.now - snapshot.now;
        if has_right_clock {
            pair.clocks[end] += pair.behind[end];
        }
        pair.ends[end] = snapshot.ends.into_iter().nth(end).unwrap();
        pair.run(10_000);
        let found = pair.set_back();
        assert_eq!(found, [end == 0, end == 1], "seed {seed}: {:?}", pair.refused);
    }
}
