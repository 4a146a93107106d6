//! Two nodes and the path between them, in virtual time.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_secure::{
    Admission, Arrived, Entropy, Epoch, Gate, HANDSHAKE_TYPE, HopDigest, HopReceiver, HopSender,
    Identity, PresharedKey, PrivateKey, Refused, Ring, Scope, Session, Step, Suite, TRAILER_BYTES,
    timing::{EPOCH_NANOS_MAX, HANDSHAKES_PER_SECOND},
};

/// Nanoseconds of a second.
pub const NANOS: u64 = 1_000_000_000;

/// The key that both nodes share.
pub const PSK: [u8; 32] = [7; 32];

/// Each node sends a packet this often.
const TICK: u64 = NANOS / 10;

struct Lane {
    sender: HopSender,
    receiver: HopReceiver,
}

/// One side: its session, its keys, and its record of packets.
pub struct Node {
    gate: Gate,
    session: Session,
    ring: Ring<Lane>,
    random: ChaCha8Rng,
    pub sent: u64,
    pub accepted: u64,
    pub refused: u64,
    pub epochs: u64,
}

fn private(side: usize) -> PrivateKey {
    PrivateKey::generate(&Entropy::new([side as u8 + 1; 64]))
}

fn psk(bytes: [u8; 32]) -> PresharedKey {
    let mut entropy = [0; 64];
    entropy[..32].copy_from_slice(&bytes);
    PresharedKey::generate(&Entropy::new(entropy))
}

fn entropy(random: &mut ChaCha8Rng) -> Entropy {
    let mut bytes = [0; 64];
    random.fill_bytes(&mut bytes);
    Entropy::new(bytes)
}

impl Node {
    pub fn new(side: usize, now: u64, shared: [u8; 32], seed: u64) -> Self {
        Self::between([side, 1 - side], now, shared, seed)
    }

    /// A node with the first of these keys, and the second one as its peer's.
    pub fn of_keys(keys: [usize; 2], shared: [u8; 32], seed: u64) -> Self {
        Self::between(keys, 0, shared, seed)
    }

    fn between([own, peer]: [usize; 2], now: u64, shared: [u8; 32], seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let identity = Identity {
            scope: Scope::Hop,
            private: private(own),
            peer: private(peer).public(),
            psk: psk(shared),
        };
        let gate = Gate::new(now, &entropy(&mut random));
        let session = Session::new(identity, Suite::preferred(), now, &entropy(&mut random));
        let (sent, accepted, refused, epochs) = (0, 0, 0, 0);
        Self { gate, session, ring: Ring::default(), random, sent, accepted, refused, epochs }
    }

    pub fn admit(
        &mut self,
        now: u64,
        address: &[u8],
        message: &[u8],
        out: &mut [u8],
    ) -> Result<Admission, Refused> {
        let arrived = Arrived { address, message };
        self.session.admit(&mut self.gate, now, &entropy(&mut self.random), arrived, out)
    }

    /// A cookie for a handshake message, as if this node were too busy to read it.
    pub fn demand_cookie(&mut self, now: u64, message: &[u8]) -> Option<Vec<u8>> {
        // Without the MAC of an earlier cookie, which would be enough.
        let (before, _) = message.split_last_chunk::<16>()?;
        let message = [before, &[0; 16]].concat();
        let mut out = [0; 200];
        for _ in 0..=HANDSHAKES_PER_SECOND {
            if let Admission::Reply(length) = self.admit(now, b"peer", &message, &mut out).ok()? {
                return Some(out[..length].to_vec());
            }
        }
        None
    }

    /// Reads a handshake message; returns the bytes to send back.
    pub fn read(&mut self, now: u64, message: &[u8], out: &mut [u8]) -> Result<usize, Refused> {
        let step = self.session.receive(now, &entropy(&mut self.random), message, out)?;
        let length = step.send;
        self.adopt(now, step);
        Ok(length)
    }

    /// An initiation, if it is time.
    pub fn poll(&mut self, now: u64) -> Option<Vec<u8>> {
        let mut out = [0; 200];
        let packets = self.ring.sending().map_or(0, |epoch| epoch.keys.sender.packets());
        let random = entropy(&mut self.random);
        let step = self.session.poll(now, now, packets, &random, &mut out).expect("room");
        (step.send > 0).then(|| out[..step.send].to_vec())
    }

    fn adopt(&mut self, now: u64, step: Step) {
        let Some(new) = step.established else { return };
        self.epochs += 1;
        let digests = [&new.send, &new.receive].map(|it| Arc::new(HopDigest::new(it, 100)));
        let keys = Lane {
            sender: HopSender::new(&new.send, new.peer_key_id, 0, &digests[0]),
            receiver: HopReceiver::new(&new.receive, new.key_id, 0, &digests[1], 512),
        };
        let epoch = Epoch { key_id: new.key_id, since: now, keys };
        if new.is_confirmed { self.ring.install(epoch) } else { self.ring.propose(epoch) }
    }

    /// A packet under the sending keys, if there are any.
    pub fn packet(&mut self, now: u64) -> Option<Vec<u8>> {
        self.ring.expire(now, EPOCH_NANOS_MAX);
        let epoch = self.ring.sending()?;
        let mut packet = vec![0x25; 40 + TRAILER_BYTES];
        self.random.fill_bytes(&mut packet[1..40]);
        epoch.keys.sender.seal(&mut packet, 1).expect("keys");
        self.sent += 1;
        Some(packet)
    }

    /// Receives a packet; returns the answer.
    pub fn receive(&mut self, now: u64, packet: &[u8]) -> Option<Vec<u8>> {
        if packet[0] & 0x0F == HANDSHAKE_TYPE {
            let mut out = [0; 200];
            let length = match self.admit(now, b"peer", packet, &mut out) {
                Ok(Admission::Pass) => self.read(now, packet, &mut out).unwrap_or(0),
                Ok(Admission::Reply(length)) => length,
                Err(_) => 0,
            };
            return (length > 0).then(|| out[..length].to_vec());
        }
        self.ring.expire(now, EPOCH_NANOS_MAX);
        let verified = HopReceiver::key_id_of(packet).and_then(|id| {
            let receiver = &mut self.ring.by_id(id)?.keys.receiver;
            let checked = receiver.check(packet, 1).ok()?;
            receiver.accept(&checked).ok().map(|_| id)
        });
        match verified {
            Some(id) => {
                self.accepted += 1;
                self.ring.confirm(id);
                self.session.confirm(now, id);
            }
            None => self.refused += 1,
        }
        None
    }
}

/// A packet in flight: when it arrives, and at which side.
type Flight = (u64, usize, Vec<u8>);

/// Both nodes, and the packets in flight between them.
pub struct Net {
    pub nodes: [Node; 2],
    /// Percent.
    pub loss: u64,
    /// Whether handshake messages arrive.
    pub handshakes: bool,
    flights: VecDeque<Flight>,
    /// Everything that was ever sent, and to which side.
    recorded: Vec<(usize, Vec<u8>)>,
    /// How much of it was sent before the last start of each side.
    started: [usize; 2],
    accepted: HashSet<Vec<u8>>,
    now: u64,
    random: ChaCha8Rng,
    starts: u64,
}

impl Net {
    pub fn new(seed: u64, loss: u64) -> Self {
        let nodes = [0, 1].map(|side| Node::new(side, 0, PSK, seed ^ side as u64));
        let random = ChaCha8Rng::seed_from_u64(seed);
        Self {
            nodes,
            loss,
            handshakes: true,
            flights: VecDeque::new(),
            recorded: Vec::new(),
            started: [0; 2],
            accepted: HashSet::new(),
            now: 0,
            random,
            starts: 2,
        }
    }

    /// Restarts a node, which keeps only its keys.
    pub fn restart(&mut self, side: usize) {
        self.starts += 1;
        self.started[side] = self.recorded.len();
        self.nodes[side] = Node::new(side, self.now, PSK, self.random.next_u64() ^ self.starts);
    }

    /// Packets that were sent and not accepted.
    pub fn lost(&self) -> u64 {
        let sum = |count: fn(&Node) -> u64| self.nodes.iter().map(count).sum::<u64>();
        sum(|node| node.sent) - sum(|node| node.accepted)
    }

    pub fn run(&mut self, from: u64, nanos: u64) {
        let mut now = from;
        while now < from + nanos {
            for side in 0..2 {
                let messages = [self.nodes[side].poll(now), self.nodes[side].packet(now)];
                messages.into_iter().flatten().for_each(|message| self.send(now, side, message));
            }
            now += TICK;
            while let Some(at) = self.flights.iter().position(|flight| flight.0 <= now) {
                let (_, side, packet) = self.flights.remove(at).expect("a position");
                if let Some(answer) = self.arrive(now, side, &packet) {
                    self.send(now, side, answer);
                }
            }
        }
        self.now = now;
    }

    /// Delivers a packet. No packet is accepted twice, not even by a restarted node.
    fn arrive(&mut self, now: u64, side: usize, packet: &[u8]) -> Option<Vec<u8>> {
        let before = self.nodes[side].accepted;
        let answer = self.nodes[side].receive(now, packet);
        if self.nodes[side].accepted > before {
            assert!(self.accepted.insert(packet.to_vec()), "a packet was accepted twice");
        }
        answer
    }

    /// Replays everything that was ever sent to this side. Packets sent before its last start are
    /// not accepted, not even for the first time.
    pub fn replay_all(&mut self, side: usize, now: u64) {
        let recorded = std::mem::take(&mut self.recorded);
        for (number, (_, packet)) in recorded.iter().enumerate().filter(|(_, (to, _))| *to == side)
        {
            let before = self.nodes[side].accepted;
            self.arrive(now, side, packet);
            let accepted = self.nodes[side].accepted > before;
            assert!(!accepted || number >= self.started[side], "traffic from before the start");
        }
        self.recorded = recorded;
    }

    fn send(&mut self, now: u64, from: usize, packet: Vec<u8>) {
        let is_handshake = packet[0] & 0x0F == HANDSHAKE_TYPE;
        self.recorded.push((1 - from, packet.clone()));
        if is_handshake && !self.handshakes || self.random.next_u64() % 100 < self.loss {
            return;
        }
        // Without loss the path is good: nothing is duplicated or overtaken.
        let copies = if self.loss > 0 { 1 + self.random.next_u64() % 2 } else { 1 };
        for _ in 0..copies {
            let delay = if self.loss > 0 { self.random.next_u64() % NANOS } else { 0 };
            self.flights.push_back((now + delay, 1 - from, packet.clone()));
        }
    }
}
