//! From packet to flow to batch to recoded or decoded packets.
//!
//! ```text
//!  TUN ──ingress──► source ──┐
//!                            ├─► combine ─► emit ──► Egress::transmit ──► next hops
//!  rings ──receive─► relay ──┘
//!        └─────────► sink ─► decode ─► framing ─► Egress::deliver ──► TUN
//!                     └── feedback ─► upstream ─► source
//! ```
//!
//! No I/O, no clock, no unsafe: bytes and `now` in, bytes and verdicts out, so that AF_XDP, the
//! simulator and the fuzzer drive the same code. Tables are allocated when a flow is created; the
//! packet path allocates nothing. Received symbols stay in their frames while their generation
//! lives; combinations are written straight into the frames that are transmitted.
//!
//! Every received packet is counted in exactly one of forwarded, consumed, handed over and
//! dropped-by-reason; a packet that waits for its stage is counted after the wait.

#![forbid(unsafe_code)]

mod base;

mod config;

pub mod plan;

mod env;

mod packet;

pub mod edge;

mod hop;

mod unit;

mod rlnc;

#[cfg(feature = "bats")]
mod bats;

mod stream;

mod budget;

mod stage;

pub mod open;

mod shard;

mod shards;

pub use config::{params, report, segmentation};
pub use env::{egress, memory, recorder};

use base::time::earlier;
use config::params::{HOPS_MAX, Nanos, PeerId, ShardId, Share, Snapshot};
use config::report::{DropReason, Report};
use env::combine::Combiner;
use env::egress::{Egress, HandOver, Origin, Ticket};
use env::io::Io;
use open::{Closed, Opened};
use packet::arrival::{Arrival, Data, Fate};
use packet::collected::PacketView;
use plan::PlanReply;
use recoded_wire::coded::SIZE_MAX;
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::HeaderError;
use recoded_wire::parse::{Packet, parse};
use shard::Shard;
use shards::{Shards, WaitingPacket};

/// One worker's pipeline.
pub struct Pipeline {
    edition: u64,
    shards: Shards,
    combiner: Combiner,
    /// The unpacked coding vector of the current packet.
    vector: Box<[u8; SIZE_MAX]>,
}

impl Pipeline {
    /// The pipeline of a node's only worker: see [`Pipeline::of_worker`].
    pub fn new(snapshot: &Snapshot, seed: u64) -> Pipeline {
        Pipeline::of_worker(Share::ALL, snapshot, seed)
    }

    /// Builds the tables of this worker's shards of the sources in `snapshot`. Those of relays and
    /// sinks follow when packets arrive: see [`Egress::open`]. `seed` starts the coefficient
    /// generator; use a different one for each start of a program.
    pub fn of_worker(share: Share, snapshot: &Snapshot, seed: u64) -> Pipeline {
        let mut combiner = Combiner::new(seed);
        let shards = Shards::new(share, snapshot, &mut combiner);
        Pipeline { edition: snapshot.edition, shards, combiner, vector: Box::new([0; SIZE_MAX]) }
    }

    /// Adopts a new snapshot: flows appear, disappear or change parameters. Call between bursts. No
    /// packet is lost: open units end under the old parameters. Allocates memory for new flows.
    pub fn apply(
        &mut self,
        snapshot: &Snapshot,
        frames: &mut impl Frames,
        egress: &mut impl Egress,
        now: Nanos,
    ) {
        self.edition = snapshot.edition;
        let mut io = Io { frames, egress, combiner: &mut self.combiner, now };
        self.shards.apply(snapshot, &mut io);
    }

    /// Handles a packet. Takes over one reference to its frame.
    pub fn receive(
        &mut self,
        frames: &mut impl Frames,
        egress: &mut impl Egress,
        datagram: Datagram,
        now: Nanos,
    ) {
        let mut io = Io { frames, egress, combiner: &mut self.combiner, now };
        if io.frames.scarce() {
            self.shards.relieve(&mut io);
        }
        let fate = {
            let vector = &mut self.vector;
            dispatch(&mut self.shards, &mut io, vector, datagram, false)
        };
        self.shards.packets.received += 1;
        fate.count(&mut self.shards.packets);
        // A role that keeps the frame holds a reference of its own by now.
        frames.release(datagram.payload.frame);
    }

    /// Takes an IP packet from the tunnel of a source flow, to be sent by `shard`; ignored if that
    /// shard is not here.
    pub fn ingress(
        &mut self,
        frames: &mut impl Frames,
        egress: &mut impl Egress,
        shard: ShardId,
        packet: &[u8],
        now: Nanos,
    ) {
        let mut io = Io { frames, egress, combiner: &mut self.combiner, now };
        if io.frames.scarce() {
            self.shards.relieve(&mut io);
        }
        if let Some(shard) = self.shards.find(shard) {
            shard.ingress(&mut io, packet);
        }
    }

    /// Whether a packet for `shard` of a source can be sent soon. Otherwise it is better left in
    /// the tunnel, until the returned time if that is known.
    ///
    /// # Errors
    /// When to retry; `None` when another event must come first.
    pub fn opens_at(&mut self, shard: ShardId, now: Nanos) -> Result<(), Option<Nanos>> {
        self.shards.find(shard).map_or(Ok(()), |shard| shard.opens_at(now))
    }

    /// Sum of the round trips of all hops from the source of a shard, in nanoseconds, as far as its
    /// code measures them; otherwise 0.
    pub fn path_round_trip(&mut self, shard: ShardId) -> Nanos {
        self.shards.find(shard).map_or(0, |shard| shard.path_round_trip())
    }

    /// Whether everything that entered the source of a shard has arrived at a next hop, as far as
    /// its code knows.
    pub fn is_settled(&mut self, shard: ShardId, now: Nanos) -> bool {
        self.shards.find(shard).is_none_or(|shard| shard.is_settled(now))
    }

    /// Whether some of several paths from the source of a shard do not answer, and others carry
    /// their traffic.
    pub fn lacks_paths(&mut self, shard: ShardId) -> bool {
        self.shards.find(shard).is_some_and(|shard| shard.lacks_paths())
    }

    /// Takes the result of a product that [`Egress::offload`] accepted: its rows, or fewer if it
    /// failed, and then the product is computed here. Ignored when its generation is gone.
    pub fn solved<'a>(
        &mut self,
        frames: &mut impl Frames,
        egress: &mut impl Egress,
        ticket: Ticket,
        rows: impl Iterator<Item = &'a [u8]>,
        now: Nanos,
    ) {
        let mut io = Io { frames, egress, combiner: &mut self.combiner, now };
        if let Some(shard) = self.shards.find(ticket.shard) {
            shard.solved(&mut io, ticket, rows);
        }
    }

    /// Adopts a plan that a shard requested; see [`Egress::plan`]. Ignored when the shard is gone.
    pub fn planned(&mut self, reply: PlanReply) {
        if let Some(shard) = self.shards.find(reply.shard) {
            shard.planned(reply.plan);
        }
    }

    /// Adopts a stage that a shard requested; see [`Egress::open`]. Then handles the packets that
    /// waited for it. Returns the stage that it replaces.
    pub fn opened(
        &mut self,
        frames: &mut impl Frames,
        egress: &mut impl Egress,
        opened: Opened,
        now: Nanos,
    ) -> Option<Closed> {
        let mut io = Io { frames, egress, combiner: &mut self.combiner, now };
        let shard = opened.shard;
        let closed = self.shards.opened(opened, &mut io).map(|stage| Closed { _stage: stage });
        resume(&mut self.shards, &mut io, &mut self.vector, shard);
        closed
    }

    /// Notes that another worker has a requested shard, and hands over the packets that waited for
    /// it.
    pub fn elsewhere(
        &mut self,
        frames: &mut impl Frames,
        egress: &mut impl Egress,
        shard: ShardId,
        now: Nanos,
    ) {
        let mut io = Io { frames, egress, combiner: &mut self.combiner, now };
        self.shards.elsewhere(shard);
        resume(&mut self.shards, &mut io, &mut self.vector, shard);
    }

    /// Closes a stage that a source has replaced and that got no more requests for two seconds.
    /// `None` when there is none. Call it occasionally.
    pub fn retire(&mut self, frames: &mut impl Frames, now: Nanos) -> Option<Closed> {
        self.shards.retire(frames, now).map(|stage| Closed { _stage: stage })
    }

    /// Closes a stage to free memory that others wait for: one from before a change, or the shard
    /// of a relay or sink that proved nothing, provided that it was not used for a while. `None`
    /// when there is none.
    pub fn give_back(&mut self, frames: &mut impl Frames, now: Nanos) -> Option<Closed> {
        self.shards.give_back(frames, now).map(|stage| Closed { _stage: stage })
    }

    /// Counts a packet that was handed over to this worker but found no frame.
    pub fn lost(&mut self, frames: &mut impl Frames, egress: &mut impl Egress, now: Nanos) {
        let mut io = Io { frames, egress, combiner: &mut self.combiner, now };
        self.shards.relieve(&mut io);
        self.shards.packets.received += 1;
        Fate::Dropped(DropReason::Opening).count(&mut self.shards.packets);
    }

    /// Notes that there is no memory for a stage that a shard requested.
    pub fn refused(&mut self, frames: &mut impl Frames, shard: ShardId) {
        self.shards.refused(shard, frames);
    }

    /// Runs due timers. Cheap when nothing is due: call it after every burst, and again at the time
    /// it returns.
    pub fn tick(
        &mut self,
        frames: &mut impl Frames,
        egress: &mut impl Egress,
        now: Nanos,
    ) -> Option<Nanos> {
        let mut io = Io { frames, egress, combiner: &mut self.combiner, now };
        let forgets_at = self.shards.forget_old(&mut io);
        let tick = |deadline, shard: &mut Shard| earlier(deadline, shard.tick(&mut io));
        self.shards.iter_mut().fold(forgets_at, tick)
    }

    /// Closes every open generation, as before a shutdown.
    pub fn drain(&mut self, frames: &mut impl Frames, egress: &mut impl Egress, now: Nanos) {
        let mut io = Io { frames, egress, combiner: &mut self.combiner, now };
        for shard in self.shards.iter_mut() {
            shard.drain(&mut io);
        }
    }

    /// Releases every frame: nothing is held afterwards.
    pub fn release(&mut self, frames: &mut impl Frames) {
        self.shards.release(frames);
    }

    /// Resets everything except counters, for a worker that panicked in the middle of a call. Open
    /// units are lost, and waiting packets count as dropped. The caller reclaims the frames, after
    /// [`Pipeline::release`] if that still works. Sources begin at other numbers, as after a start.
    pub fn renew(&mut self, snapshot: &Snapshot, seed: u64) {
        self.combiner = Combiner::new(seed);
        self.edition = snapshot.edition;
        self.shards.renew(snapshot, &mut self.combiner);
    }

    /// A copy of all counters. Allocates: for housekeeping, not for the packet path.
    pub fn report(&self) -> Report {
        Report {
            edition: self.edition,
            packets: self.shards.packets,
            waiting: self.shards.waiting(),
            flows: self.shards.iter().map(Shard::report).collect(),
            remainders: self.shards.remainders().collect(),
        }
    }
}

/// A received packet before it is parsed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Its sender; `None` if that is not a configured neighbour.
    pub peer: Option<PeerId>,
    /// The UDP payload.
    pub payload: Span,
    /// DSCP and ECN bits of its IP header.
    pub traffic_class: u8,
}

impl Datagram {
    /// A packet of the best-effort class.
    pub fn best_effort(peer: Option<PeerId>, payload: Span) -> Datagram {
        Datagram { peer, payload, traffic_class: 0 }
    }
}

/// Handles the packets that waited for the stage of a shard.
fn resume(
    shards: &mut Shards,
    io: &mut Io<'_, impl Frames, impl Egress>,
    vector: &mut [u8; SIZE_MAX],
    shard: ShardId,
) {
    // Packets that no stage accepts now may wait again, for another one.
    for _ in 0..shards.waiting_for(shard) {
        let Some(waiting) = shards.next_waiting(shard) else { return };
        let WaitingPacket { origin: Origin { peer, traffic_class }, payload, is_noted, .. } =
            waiting;
        let datagram = Datagram { peer: Some(peer), payload, traffic_class };
        let fate = dispatch(shards, io, vector, datagram, is_noted);
        fate.count(&mut shards.packets);
        io.frames.release(payload.frame);
    }
}

/// `is_noted` is whether the shard has already noted its link sequence number.
fn dispatch(
    shards: &mut Shards,
    io: &mut Io<'_, impl Frames, impl Egress>,
    vector: &mut [u8; SIZE_MAX],
    datagram: Datagram,
    is_noted: bool,
) -> Fate {
    let Datagram { peer, payload, traffic_class } = datagram;
    let packet = match parse(io.frames.bytes(payload)) {
        Ok(packet) => packet,
        Err(error) => return Fate::Dropped(reason(error)),
    };
    let is_data = !matches!(packet, Packet::Feedback(_) | Packet::Link(_));
    //= docs/protocol §2.1(c)
    if is_data && usize::from(packet.header().hop_index) >= HOPS_MAX {
        return Fate::Dropped(DropReason::HopLimit);
    }
    let id = ShardId { flow: packet.header().flow, shard: packet.header().shard };
    // Handshakes of nodes with keys do not come here. Between neighbours they belong to no flow.
    if matches!(packet, Packet::Handshake(_)) && peer.is_some() {
        return Fate::Dropped(DropReason::Handshake);
    }
    let place = shards.place(id);
    if !place.is_here() && !shards.knows(id.flow) {
        return Fate::Dropped(DropReason::UnknownFlow);
    }
    let Some(peer) = peer else { return Fate::Dropped(DropReason::UnknownPeer) };
    let origin = Origin { peer, traffic_class };
    if !place.is_here() {
        match io.egress.hand_over(id, origin, io.frames.bytes(payload)) {
            HandOver::Unowned => {}
            HandOver::Taken => return Fate::HandedOver,
            HandOver::Full => return Fate::Dropped(DropReason::Opening),
        }
    }
    let data = match packet {
        Packet::Feedback(header) => {
            return match shards.at(place) {
                Some(shard) => shard.receive_feedback(io, peer, payload, header),
                None => Fate::Dropped(DropReason::Opening),
            };
        }
        Packet::Link(report) => {
            return match shards.at(place) {
                Some(shard) => shard.receive_link(io, peer, payload, &report),
                None => Fate::Dropped(DropReason::Opening),
            };
        }
        // These belong to no flow, so a neighbour's do not come here.
        Packet::Handshake(_) | Packet::Announcement(_) => {
            return Fate::Dropped(DropReason::Malformed);
        }
        Packet::Stream(packet) => Data::Stream(packet),
        Packet::Coded(coded) => match PacketView::new(payload, &coded, vector) {
            Some(view) => Data::Coded { header: coded.header, view },
            None => return Fate::Dropped(DropReason::Malformed),
        },
    };
    let arrival = Arrival { payload, traffic_class, data, key: None };
    shards.receive(io, place, origin, &arrival, is_noted)
}

fn reason(error: HeaderError) -> DropReason {
    match error {
        HeaderError::Truncated => DropReason::Truncated,
        HeaderError::Version(_) | HeaderError::Type(_) => DropReason::Version,
        HeaderError::Flags(_) | HeaderError::Value => DropReason::Malformed,
    }
}
