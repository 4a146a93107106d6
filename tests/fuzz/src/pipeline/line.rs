//! A source and a sink, possibly with a relay between them, over lossless links. An attacker forges
//! units that the sink does not hold. Every packet that enters must be delivered, whatever the
//! attacker sends.

use recoded_pipeline::params::{FlowCode, FlowParams, Nanos, Recoding, Redundancy, Role, TunnelId};
use recoded_wire::header::Header;

use super::node::{Node, Stamps, Threads};
use super::{DOWN, FLOW, SHARDS, UP, code, forge};
use crate::Input;

const MILLI: Nanos = 1_000_000;

/// Enough for all tables: no packet may be lost here for lack of frames.
const FRAMES: usize = 1024;

/// IPv4 header and the number of the packet.
const PACKET_BYTES_MIN: usize = 24;

/// Due timers that run before time jumps, which keeps long scripts short.
const WAKES_MAX: usize = 1000;

/// Longest that a packet waits in the tunnel.
const TUNNEL_MILLIS: usize = 500;

/// Times that packets may go to and fro at one moment.
const TURNS_MAX: usize = 3000;

/// Limit up to which a sink accepts packets of later units; forged ones are farther away.
const AHEAD_MAX: i32 = 4;

/// A relay follows generations ahead without proof: later packets there are taken for copies, or
/// contradict the forged ones. No script gets farther.
const UNPROVEN_AHEAD: i32 = 1 << 18;

/// After this time without packets no unit is open.
const QUIET: Nanos = 400 * MILLI;

/// Packets after an attack.
const LAST_PACKETS: u32 = 24;

/// Packets of a link that can be replayed.
const STALE: usize = 128;

struct Line {
    nodes: Vec<Node>,
    code: FlowCode,
    /// Whether it is a stream of fixed redundancy.
    is_open_loop: bool,
    /// Longest IP packet that one symbol holds.
    packet_bytes_max: usize,
    /// Link stamps, towards the sink and back.
    links: Vec<Stamps>,
    shards: u8,
    /// The first packet that must arrive: earlier ones may have found no stage.
    first: u32,
    now: Nanos,
    /// Lengths of the packets that entered, by number.
    entered: Vec<usize>,
    /// When the last packet of each shard entered.
    entered_at: Vec<Nanos>,
    /// By shard.
    delivered: Vec<Vec<u32>>,
    /// The data packet of the newest unit that left the source.
    newest: Vec<u8>,
    /// Data packets that a link has carried, by link: some are replayed.
    stale: Vec<Vec<Vec<u8>>>,
    /// Whether the attacker may have diverted the flow: then only the invariants of nodes are
    /// promised.
    is_unsure: bool,
}

/// Parameters, then events, then packets that must arrive.
pub(super) fn run(first: u8, input: &mut Input<'_>) {
    let mut line = Line::new(first, input);
    line.begin(first & 8 != 0);
    while !input.is_empty() {
        line.step(input);
    }
    line.pass(3000 * MILLI);
    for _ in 0..LAST_PACKETS {
        line.enter(8);
        line.pass(3 * MILLI);
    }
    line.pass(1000 * MILLI);
    line.check();
    for node in &mut line.nodes {
        node.finish(line.now);
    }
}

fn params(input: &mut Input<'_>) -> FlowParams {
    let code = code(input);
    let switches = input.byte();
    let role = Role::Source { tunnel: TunnelId(0) };
    let start = FlowParams::new(FLOW, role, vec![DOWN]);
    FlowParams {
        code,
        field: recoded_gf::FieldOrder::ALL[input.below(4)],
        generation_size: [1, 3, 4, 16][usize::from(switches >> 4 & 3)],
        symbol_bytes: PACKET_BYTES_MIN + 3 + input.below(40),
        redundancy: if switches & 1 == 0 { Redundancy::Auto } else { Redundancy::Fixed(1.5) },
        redundancy_max: 2.0 + f64::from(switches >> 6),
        recoding: Recoding::Systematic,
        adaptive: switches & 4 != 0,
        generations: 2 + input.below(6),
        ..start
    }
}

impl Line {
    fn new(first: u8, input: &mut Input<'_>) -> Self {
        let is_spread = first & 4 != 0;
        let source = FlowParams { shards: if is_spread { SHARDS } else { 1 }, ..params(input) };
        let sink = Role::Sink { tunnel: TunnelId(0), upstream: UP };
        let mut roles = vec![source.role.clone(), sink];
        if first & 2 != 0 {
            roles.insert(1, Role::Relay { upstream: UP });
        }
        let threads = Threads {
            workers: if is_spread { 3 } else { 1 },
            plans: first & 1 != 0,
            stages: first & 8 != 0,
        };
        let node = |role| {
            let params = FlowParams { role, ..source.clone() };
            Node::new(&params, FRAMES, threads)
        };
        let nodes: Vec<Node> = roles.into_iter().map(node).collect();
        Self {
            code: source.code,
            is_open_loop: source.is_open_loop(),
            packet_bytes_max: source.symbol_bytes - 3,
            links: nodes.iter().skip(1).map(|_| Stamps::default()).collect(),
            newest: Vec::new(),
            stale: vec![Vec::new(); nodes.len() - 1],
            nodes,
            now: 0,
            entered: Vec::new(),
            entered_at: vec![0; usize::from(source.shards)],
            delivered: vec![Vec::new(); usize::from(source.shards)],
            shards: source.shards,
            first: 0,
            is_unsure: false,
        }
    }

    /// Sends one packet of every shard. If stages open late, earlier packets make nodes request
    /// them; these may be lost.
    fn begin(&mut self, opens_late: bool) {
        let rounds = if opens_late { self.nodes.len() * 2 } else { 0 };
        for _ in 0..rounds {
            self.enter_all();
            self.nodes.iter_mut().for_each(|node| (0..4).for_each(|_| node.answer(self.now)));
            // A refused request is repeated after a second.
            self.pass(1100 * MILLI);
        }
        self.first = self.entered.len() as u32;
        // A lost packet may be delivered if it is replayed.
        self.stale.iter_mut().for_each(Vec::clear);
        self.enter_all();
    }

    fn enter_all(&mut self) {
        for _ in 0..self.shards {
            self.enter(0);
            self.pass(MILLI);
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(9) {
            0 | 1 => {
                let (count, bytes, pause) = (1 + input.below(16), input.byte(), input.byte());
                for _ in 0..count {
                    self.enter(bytes);
                    self.pass(u64::from(pause) * 50_000);
                }
            }
            2 | 3 => self.strike(input),
            4 => self.feedback(input),
            5 => self.repeat(input),
            6 => self.pass(u64::from(input.u16()) * 10_000),
            8 => {
                let node = input.below(self.nodes.len());
                self.nodes[node].rehash(input.byte());
            }
            _ => {
                let (idle, stopped) = (input.byte(), input.byte());
                self.pass(u64::from(idle) * 100 * MILLI);
                // As if every node had been stopped.
                self.now += u64::from(stopped % 64) * 100 * MILLI;
                self.settle();
            }
        }
        self.nodes.iter_mut().for_each(|node| node.answer(self.now));
    }

    /// An IP packet enters, of a length that fits one symbol.
    fn enter(&mut self, bytes: u8) {
        let span = self.packet_bytes_max - PACKET_BYTES_MIN + 1;
        let number = self.entered.len() as u32;
        self.entered.push(PACKET_BYTES_MIN + usize::from(bytes) % span);
        let packet = self.packet(number);
        let shard = self.shard(number);
        // A block with open requests is evicted when too many follow at once.
        let is_block = matches!(self.code, FlowCode::Bats(_));
        for _ in 0..TUNNEL_MILLIS {
            let is_full = is_block && self.nodes[0].is_full(shard);
            if !is_full && self.nodes[0].is_open(shard, self.now) {
                break;
            }
            self.pass(MILLI);
        }
        self.entered_at[usize::from(shard)] = self.now;
        self.nodes[0].ingress(shard, &packet, self.now);
        self.settle();
    }

    fn shard(&self, number: u32) -> u8 {
        (number % u32::from(self.shards)) as u8
    }

    fn packet(&self, number: u32) -> Vec<u8> {
        let length = self.entered[number as usize];
        let mut packet = vec![number as u8; length];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        packet[20..24].copy_from_slice(&number.to_be_bytes());
        packet
    }

    /// Data packets from nowhere, at the node behind one of the links.
    fn strike(&mut self, input: &mut Input<'_>) {
        let link = input.below(self.links.len());
        let pause = u64::from(input.byte() % 8) * MILLI;
        let mut strike = forge::Strike::read(input);
        for distance in strike.distances() {
            if !self.is_harmless(distance) {
                continue;
            }
            let Some(mut packet) = strike.forge(&self.newest, distance, false) else { return };
            if !strike.is_unstamped() {
                self.links[link].stamp(&mut packet);
            }
            self.is_unsure |= self.may_follow();
            self.nodes[link + 1].receive(Some(UP), &packet, self.now);
            self.pass(pause);
        }
    }

    /// Whether forged packets may divert the flow: a relay follows batches, and a stream accepts
    /// any symbol with an unknown number.
    fn may_follow(&self) -> bool {
        match self.code {
            FlowCode::Rlnc => false,
            FlowCode::Bats(_) => self.links.len() > 1,
            FlowCode::Stream(_) => true,
        }
    }

    /// Time since a packet entered the shard of the forged packets.
    fn silence(&self) -> Nanos {
        self.now - self.entered_at[usize::from(self.forged_shard())]
    }

    /// The shard that forged packets are of.
    fn forged_shard(&self) -> u8 {
        Header::parse(&self.newest).map_or(0, |header| header.shard)
    }

    /// Whether the sink holds a block this far before the newest one, because its batches did not
    /// suffice: forged packets would corrupt it.
    fn is_held(&self, behind: u32) -> bool {
        let held = self.nodes.last().map_or(0, |sink| sink.held(self.forged_shard()));
        matches!(self.code, FlowCode::Bats(_)) && (behind as usize) < held
    }

    /// Whether a sink can reject a forged unit at this distance from the newest one by its number
    /// alone: the unit is neither held nor among the next ones.
    fn is_harmless(&self, distance: u32) -> bool {
        let has_relay = self.links.len() > 1;
        let (distance, ahead) = match self.code {
            FlowCode::Rlnc if !has_relay => (distance.cast_signed(), AHEAD_MAX),
            FlowCode::Bats(_) => (i32::from((distance as u16).cast_signed()), AHEAD_MAX),
            FlowCode::Rlnc | FlowCode::Stream(_) => (distance.cast_signed(), UNPROVEN_AHEAD),
        };
        distance < 0 && !self.is_held(distance.unsigned_abs())
            || distance > ahead
            || distance == 0 && self.silence() >= QUIET
    }

    /// Reports and requests from nowhere, at the source or the relay.
    fn feedback(&mut self, input: &mut Input<'_>) {
        let to = input.below(self.nodes.len() - 1);
        let packets = match input.below(4) {
            0 => vec![forge::feedback(input)],
            1 => forge::hops(input),
            2 => vec![forge::nacks(&self.newest, input)],
            _ => {
                // A symbol that it reports as received is not retransmitted.
                self.is_unsure |= matches!(self.code, FlowCode::Stream(_));
                vec![forge::link(&self.newest, input)]
            }
        };
        for mut packet in packets {
            self.links[to].stamp(&mut packet);
            self.nodes[to].receive(Some(DOWN), &packet, self.now);
            self.settle();
        }
    }

    /// Replays a packet that a link has carried, or sends invalid bytes.
    fn repeat(&mut self, input: &mut Input<'_>) {
        let (to, which, copies) =
            (1 + input.below(self.links.len()), input.byte(), 1 + input.below(16));
        let packet = match usize::from(which) {
            which @ 0..STALE => match self.stale[to - 1].get(which) {
                Some(packet) => packet.clone(),
                None => return,
            },
            length => input.filled(length),
        };
        // Script bytes that form a packet of this flow could contain anything.
        if usize::from(which) >= STALE
            && Header::parse(&packet).is_ok_and(|header| header.flow == FLOW)
        {
            return;
        }
        for _ in 0..copies {
            self.nodes[to].receive(Some(UP), &packet, self.now);
            self.settle();
        }
    }

    /// Lets time pass, stopping at every due timer.
    fn pass(&mut self, nanos: Nanos) {
        let until = self.now + nanos;
        for _ in 0..WAKES_MAX {
            match self.settle() {
                Some(due) if due < until => self.now = due,
                _ => break,
            }
        }
        self.now = until;
        self.settle();
    }

    /// Carries packets and runs timers until nothing is left to do now; returns when the next timer
    /// is due.
    fn settle(&mut self) -> Option<Nanos> {
        for _ in 0..TURNS_MAX {
            let carried = self.carry();
            let dues: Vec<Option<Nanos>> =
                self.nodes.iter_mut().map(|node| node.tick(self.now)).collect();
            let next = dues.into_iter().flatten().min();
            if !carried && next.is_none_or(|due| due > self.now) {
                self.carry();
                return next;
            }
        }
        panic!("the nodes find no rest");
    }

    /// Carries the nodes' packets one hop. Returns whether there were any.
    fn carry(&mut self) -> bool {
        let mut carried = false;
        for from in 0..self.nodes.len() {
            for (hop, mut packet) in self.nodes[from].take_sent() {
                carried = true;
                if hop == UP {
                    self.links[from - 1].pass(&mut packet);
                    self.nodes[from - 1].receive(Some(DOWN), &packet, self.now);
                    continue;
                }
                self.links[from].pass(&mut packet);
                self.nodes[from + 1].receive(Some(UP), &packet, self.now);
                if self.stale[from].len() < STALE {
                    self.stale[from].push(packet.clone());
                }
                // Packets from a relay may be forged.
                if from == 0 && !self.is_older(&packet) {
                    self.newest = packet;
                }
            }
        }
        let delivered = self.nodes.last_mut().map(Node::take_delivered).unwrap_or_default();
        for packet in delivered.into_iter().filter(|_| !self.is_unsure) {
            let number = packet.get(20..24).map_or(u32::MAX, |bytes| {
                u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
            });
            assert!((number as usize) < self.entered.len(), "never entered: {packet:?}");
            assert_eq!(packet, self.packet(number), "packet {number} was altered");
            let shard = usize::from(self.shard(number));
            let delivered = &mut self.delivered[shard];
            // An open loop delivers packets that it no longer waits for as soon as they arrive.
            let last = delivered.last();
            assert!(self.is_open_loop || last < Some(&number), "packet {number} after {last:?}");
            let place = delivered.binary_search(&number);
            delivered.insert(place.expect_err("delivered twice"), number);
        }
        carried
    }

    /// Whether a data packet belongs to a unit before the newest one, as repairs do.
    fn is_older(&self, packet: &[u8]) -> bool {
        let units = forge::unit(packet).zip(forge::unit(&self.newest));
        units.is_some_and(|(unit, newest)| match self.code {
            FlowCode::Bats(_) => (unit as u16).wrapping_sub(newest as u16).cast_signed() < 0,
            _ => unit.wrapping_sub(newest).cast_signed() < 0,
        })
    }

    /// Checks that all packets due by now were delivered.
    fn check(&self) {
        let count = self.entered.len() as u32;
        let is_missing = |number: &u32| {
            self.delivered[usize::from(self.shard(*number))].binary_search(number).is_err()
        };
        let missing: Vec<u32> = (self.first..count).filter(is_missing).collect();
        assert!(
            self.is_unsure || missing.is_empty(),
            "of {count} packets these are missing: {missing:?}"
        );
    }
}
