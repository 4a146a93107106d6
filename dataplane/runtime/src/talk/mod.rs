//! Announcements between neighbours, so that a configuration error at one is reported at both:
//! versions, clocks, and the flows they send to each other and expect.
//!
//! ```text
//!  snapshot ─► announcement to each neighbour: at once, 1, 2, 3 s later, then every 10 s
//!  announcement of a neighbour ─► judge ─► refusals, sent with the next announcement
//! ```
//!
//! Announcements do not affect packets of flows: forged ones only change what operators read. On
//! hops with keys, announcements have tags. All of it is bounded, by neighbour and by time; the key
//! thread does it.

mod judge;
mod refusals;

use crate::topology::Topology;
use judge::{codes, comes_from, judge, packets_of, words};
use recoded_pipeline::params::{FlowParams, Nanos, PeerId, Role, Snapshot};
use recoded_wire::announcement::{
    ANNOUNCEMENT_BYTES_MAX, Announcement, ENTRIES_MAX, Entry, MARKS_BYTES, Refusal,
    parse_announcement, write_announcement,
};
use recoded_wire::header::PacketType;
use refusals::Refusals;
use std::collections::HashMap;

const SECOND: Nanos = 1_000_000_000;

/// Interval between rounds once everything is announced.
const ROUND: Nanos = 10 * SECOND;

/// The same after a start or a change, for [`EARLY_ROUNDS`].
const EARLY_ROUND: Nanos = SECOND;
const EARLY_ROUNDS: u8 = 3;

/// Interval between the announcements of a round that has too many entries for one.
const PART: Nanos = SECOND / 10;

/// A neighbour silent for this long gets all announcements again.
const SILENCE: Nanos = 35 * SECOND;

/// Announcements of a neighbour read per second.
const READ_PER_SECOND: u32 = 32;

/// The known announcements of a neighbour.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Talked {
    /// When it was last received, by the clock of the workers; `None` if never.
    pub at: Option<Nanos>,
    /// Version of its software.
    pub software: String,
    /// Seconds that its clock was ahead of this node's; negative if it was behind.
    pub clock_ahead_seconds: i64,
    /// UDP payload that this node's end of the link carries, and that the neighbour's end carries.
    pub packet_bytes: Option<(u16, u16)>,
    /// Disagreements between the two.
    pub disagreements: Vec<Disagreement>,
}

/// A refusal by one of two neighbours of an entry of the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disagreement {
    /// The flow.
    pub flow: u32,
    /// Name of the reason.
    pub reason: &'static str,
    /// Whether this node refuses; otherwise the neighbour does.
    pub is_ours: bool,
    /// The problem.
    pub cause: String,
    /// The remedy.
    pub cure: String,
}

/// Inputs of judging and announcing.
pub(crate) struct Surroundings<'a> {
    pub(crate) now: Nanos,
    /// Seconds since 1970.
    pub(crate) clock: u64,
    pub(crate) snapshot: &'a Snapshot,
    /// UDP payload that the link to a neighbour carries, without the tag of a hop.
    pub(crate) room: &'a dyn Fn(PeerId) -> u16,
    /// Total memory for announced packets, used or not.
    pub(crate) memory_bytes: usize,
}

/// The limit of a downstream node for a relayed flow, for one of its upstream neighbours.
struct Limit {
    upstream: PeerId,
    flow: u32,
    symbol_bytes: u16,
}

impl Limit {
    fn entry(&self) -> Entry {
        let refusal = Refusal::SymbolBytes(self.symbol_bytes);
        Entry::Refuses { flow: self.flow, refusal }
    }
}

/// A neighbour's announcement of the packets of a flow.
#[derive(Copy, Clone)]
struct Passing {
    code: PacketType,
    packet_bytes: u16,
    sizes: Option<Sizes>,
}

/// As `Entry::Sizes` has them.
#[derive(Copy, Clone)]
struct Sizes {
    generation_size: u16,
    symbols_log2: u8,
    header_bytes: u16,
}

impl Sizes {
    fn entry(self, flow: u32) -> Entry {
        let Sizes { generation_size, symbols_log2, header_bytes } = self;
        Entry::Sizes { flow, generation_size, symbols_log2, header_bytes }
    }
}

/// Talks with all neighbours.
pub(crate) struct Talk {
    /// Distinguishes this run of the node from others.
    instance: u16,
    peers: Vec<Peer>,
    edition: Option<u64>,
    /// Neighbours' announcements of packets of flows that pass through here.
    passing: HashMap<u32, Passing>,
}

/// One neighbour.
struct Peer {
    address: String,
    heard: Option<LastAnnouncement>,
    due: Nanos,
    early: u8,
    /// When the last announcement left.
    sent: Option<Nanos>,
    /// Entries still to send in this round.
    rest: Vec<Entry>,
    ours: Refusals,
    theirs: Refusals,
    reads: Quota,
}

/// The last announcement of a neighbour.
struct LastAnnouncement {
    at: Nanos,
    said: Announcement,
    clock_ahead_seconds: i64,
    /// UDP payload that this node's end of the link carries.
    room: u16,
}

/// A rate limit per second.
#[derive(Default)]
struct Quota {
    second: u64,
    used: u32,
}

impl Quota {
    fn take(&mut self, now: Nanos, most: u32) -> bool {
        if self.second != now / SECOND {
            *self = Quota { second: now / SECOND, used: 0 };
        }
        self.used += 1;
        self.used <= most
    }
}

impl Talk {
    pub(crate) fn new(topology: &Topology, now: Nanos, instance: u16) -> Talk {
        let peers = topology.hops.iter().map(|hop| Peer {
            address: hop.address.to_string(),
            heard: None,
            due: now,
            early: EARLY_ROUNDS,
            sent: None,
            rest: Vec::new(),
            ours: Refusals::default(),
            theirs: Refusals::default(),
            reads: Quota::default(),
        });
        Talk { instance, peers: peers.collect(), edition: None, passing: HashMap::new() }
    }

    /// When the next announcement is due.
    pub(crate) fn wake(&self) -> Nanos {
        self.peers.iter().map(|peer| peer.due).min().unwrap_or(Nanos::MAX)
    }

    /// Sends due announcements to reachable neighbours.
    pub(crate) fn poll(
        &mut self,
        around: &Surroundings<'_>,
        is_reached: impl Fn(PeerId) -> bool,
        mut marks: impl FnMut(PeerId) -> [u8; MARKS_BYTES],
        mut send: impl FnMut(PeerId, &[u8]),
    ) {
        if self.edition != Some(around.snapshot.edition) {
            self.edition = Some(around.snapshot.edition);
            self.begin_again(around);
        }
        let is_due = self.peers.iter().any(|peer| peer.due <= around.now);
        let limits = if is_due { self.limits_behind(around.snapshot) } else { Vec::new() };
        for (peer, id) in self.peers.iter_mut().zip(0..) {
            let id = PeerId(id);
            if peer.due > around.now {
                continue;
            }
            if !is_reached(id) {
                peer.due = around.now + EARLY_ROUND;
                continue;
            }
            peer.expire(around.now);
            if peer.rest.is_empty() {
                peer.rest = entries(around.snapshot, id, &self.passing, &peer.ours);
                let of_peer = limits.iter().filter(|limit| limit.upstream == id);
                peer.rest.extend(of_peer.map(Limit::entry));
            }
            let part = peer.rest.split_off(peer.rest.len().saturating_sub(ENTRIES_MAX));
            let announcement = Announcement {
                software: software(),
                codes: codes(),
                packet_bytes: (around.room)(id),
                instance: self.instance,
                clock: around.clock,
                marks: marks(id),
            };
            let mut out = [0; ANNOUNCEMENT_BYTES_MAX];
            let len = write_announcement(&announcement, &part, &mut out);
            send(id, &out[..len]);
            peer.sent = Some(around.now);
            peer.due = around.now + peer.pause();
        }
    }

    /// The longest symbols that next hops of relayed flows take, for the upstreams of these flows.
    fn limits_behind(&self, snapshot: &Snapshot) -> Vec<Limit> {
        let mut limits = Vec::new();
        for flow in snapshot.flows.iter().filter(|flow| matches!(flow.role, Role::Relay { .. })) {
            let next_hops =
                flow.next_hops.iter().filter_map(|hop| self.peers.get(usize::from(hop.0)));
            let refusals = next_hops.flat_map(|peer| peer.theirs.iter());
            let limit = refusals.filter_map(|(refused, refusal)| match refusal {
                Refusal::SymbolBytes(bytes) if refused == flow.id => Some(bytes),
                _ => None,
            });
            let Some(symbol_bytes) = limit.min() else { continue };
            let limit = |upstream| Limit { upstream, flow: flow.id, symbol_bytes };
            limits.extend(flow.upstreams().map(limit));
        }
        limits
    }

    /// The snapshot changed: judges earlier refusals again.
    fn begin_again(&mut self, around: &Surroundings<'_>) {
        let is_passing = |id: &u32| around.snapshot.flows.iter().any(|flow| flow.id == *id);
        self.passing.retain(|id, _| is_passing(id));
        for peer in &mut self.peers {
            (peer.ours, peer.theirs) = Default::default();
            peer.rest.clear();
            peer.early = EARLY_ROUNDS;
            peer.due = around.now;
        }
    }

    /// Reads an announcement of a neighbour. Returns its marks, unless it is dropped.
    //= docs/protocol §2.10(b)
    pub(crate) fn receive(
        &mut self,
        around: &Surroundings<'_>,
        id: PeerId,
        packet: &[u8],
    ) -> Option<[u8; MARKS_BYTES]> {
        let peer = self.peers.get_mut(usize::from(id.0))?;
        let (_, announcement, entries) = parse_announcement(packet).ok()?;
        if !peer.reads.take(around.now, READ_PER_SECOND) {
            return None;
        }
        self.judge(around, id, &announcement, entries);
        Some(announcement.marks)
    }

    /// Judges the entries of an announcement.
    fn judge(
        &mut self,
        around: &Surroundings<'_>,
        id: PeerId,
        announcement: &Announcement,
        entries: impl Iterator<Item = Entry>,
    ) {
        let Some(peer) = self.peers.get_mut(usize::from(id.0)) else { return };
        let now = around.now;
        peer.expire(now);
        let is_new = peer.heard.as_ref().is_none_or(|before| {
            now.saturating_sub(before.at) > SILENCE || before.said.instance != announcement.instance
        });
        let ahead = i128::from(announcement.clock) - i128::from(around.clock);
        peer.heard = Some(LastAnnouncement {
            at: now,
            said: *announcement,
            clock_ahead_seconds: i64::try_from(ahead).unwrap_or(i64::MAX),
            room: (around.room)(id),
        });
        if is_new {
            (peer.ours, peer.theirs) = Default::default();
        }
        let (mut is_changed, mut is_refused) = (false, false);
        for entry in entries {
            if let Entry::Refuses { flow, refusal } = entry {
                // The neighbour has yet to learn that this node ceased to announce the flow.
                let is_had = around.snapshot.flows.iter().any(|had| had.id == flow);
                if is_had {
                    is_refused |= peer.theirs.note(flow, refusal, now);
                }
                continue;
            }
            let (flow, about) = match entry {
                Entry::Sends { flow, .. } => (flow, About::Sent),
                Entry::Sizes { flow, .. } => (flow, About::Sizes),
                Entry::Expects { flow } | Entry::Refuses { flow, .. } => (flow, About::Expected),
            };
            let refusal = judge(around, id, entry, self.passing.get(&flow).copied());
            // A new entry of the flow withdraws its earlier refusals.
            peer.theirs.settle(flow, |kept| match kept {
                Refusal::NotSent | Refusal::NotThere => about != About::Sent,
                Refusal::UnknownFlow | Refusal::NotExpected => about != About::Expected,
                _ => true,
            });
            // Sent flows, their sizes and expected flows are judged separately.
            peer.ours.settle(flow, |kept| About::of(kept) != about || Some(kept) == refusal);
            if let Some(refusal) = refusal {
                is_changed |= peer.ours.note(flow, refusal, now);
                continue;
            }
            match entry {
                Entry::Sends { code: Some(code), packet_bytes, .. } => {
                    let sizes = self.passing.get(&flow).and_then(|before| before.sizes);
                    self.passing.insert(flow, Passing { code, packet_bytes, sizes });
                }
                Entry::Sizes { generation_size, symbols_log2, header_bytes, .. } => {
                    let is_from_there = |it: &&FlowParams| it.id == flow && comes_from(it, id);
                    let mut flows = around.snapshot.flows.iter();
                    if let (Some(_), Some(passing)) =
                        (flows.find(is_from_there), self.passing.get_mut(&flow))
                    {
                        passing.sizes = Some(Sizes { generation_size, symbols_log2, header_bytes });
                    }
                }
                _ => {}
            }
        }
        if is_new || is_changed {
            // At once, except to a neighbour that just got an announcement.
            let soon = peer.sent.map_or(now, |sent| sent + EARLY_ROUND);
            peer.due = peer.due.min(soon.max(now));
            peer.rest.clear();
        }
        if is_refused {
            // Upstreams of a relayed flow are informed within a second.
            self.peers.iter_mut().for_each(|peer| peer.due = peer.due.min(now + EARLY_ROUND));
        }
    }

    /// The known announcements of each neighbour, by `PeerId`.
    pub(crate) fn report(&mut self, now: Nanos) -> Vec<Talked> {
        let report = |peer: &mut Peer| {
            peer.expire(now);
            let disagreement = |is_ours| {
                let address = &peer.address;
                move |(flow, refusal)| {
                    let (cause, cure) = words(flow, refusal, address, is_ours);
                    Disagreement { flow, reason: name(refusal), is_ours, cause, cure }
                }
            };
            let ours = peer.ours.iter().map(disagreement(true));
            let disagreements = ours.chain(peer.theirs.iter().map(disagreement(false))).collect();
            let Some(LastAnnouncement { at, said, clock_ahead_seconds, room }) = &peer.heard else {
                return Talked { disagreements, ..Talked::default() };
            };
            let [major, minor, patch] = said.software;
            Talked {
                at: Some(*at),
                software: format!("{major}.{minor}.{patch}"),
                clock_ahead_seconds: *clock_ahead_seconds,
                packet_bytes: Some((*room, said.packet_bytes)),
                disagreements,
            }
        };
        self.peers.iter_mut().map(report).collect()
    }
}

impl Peer {
    fn expire(&mut self, now: Nanos) {
        self.ours.expire(now);
        self.theirs.expire(now);
    }

    /// Time to the next announcement.
    fn pause(&mut self) -> Nanos {
        if !self.rest.is_empty() {
            return PART;
        }
        if self.early == 0 {
            return ROUND;
        }
        self.early -= 1;
        EARLY_ROUND
    }
}

/// The entries for a neighbour, in reverse order of importance: the last is sent first.
fn entries(
    snapshot: &Snapshot,
    peer: PeerId,
    passing: &HashMap<u32, Passing>,
    ours: &Refusals,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    for flow in &snapshot.flows {
        if flow.next_hops.contains(&peer) {
            let packets = match flow.role {
                Role::Source { .. } => Some(packets_of(flow)),
                _ => passing.get(&flow.id).copied(),
            };
            let code = packets.map(|packets| packets.code);
            let packet_bytes = packets.map_or(0, |packets| packets.packet_bytes);
            entries.push(Entry::Sends { flow: flow.id, code, packet_bytes });
            let sizes = packets.and_then(|packets| packets.sizes);
            entries.extend(sizes.map(|sizes| sizes.entry(flow.id)));
        }
        if comes_from(flow, peer) {
            entries.push(Entry::Expects { flow: flow.id });
        }
    }
    entries.extend(ours.iter().map(|(flow, refusal)| Entry::Refuses { flow, refusal }));
    entries
}

/// The subject of an entry or a refusal.
#[derive(Copy, Clone, PartialEq, Eq)]
enum About {
    /// A sent flow.
    Sent,
    /// The sizes of such a flow.
    Sizes,
    /// An expected flow.
    Expected,
}

impl About {
    fn of(refusal: Refusal) -> About {
        match refusal {
            Refusal::NotSent | Refusal::NotThere => About::Expected,
            Refusal::SymbolBytes(_) | Refusal::Memory(_) => About::Sizes,
            _ => About::Sent,
        }
    }
}

/// Name of a reason in reports.
fn name(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::UnknownFlow => "unknown_flow",
        Refusal::NotExpected => "not_expected",
        Refusal::NotSent => "not_sent",
        Refusal::NotThere => "not_there",
        Refusal::Code(_) => "code",
        Refusal::TooLarge(_) => "too_large",
        Refusal::SymbolBytes(_) => "symbol_bytes",
        Refusal::Memory(_) => "memory",
    }
}

/// Version of this program.
fn software() -> [u8; 3] {
    let mut numbers = env!("CARGO_PKG_VERSION").split(['.', '-', '+']).map(str::parse);
    [(); 3].map(|()| numbers.next().and_then(Result::ok).unwrap_or(0))
}

#[cfg(test)]
mod tests;
