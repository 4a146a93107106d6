//! The shards that a worker has, and those that it requests.
//!
//! A worker has its share of the sources' shards from the start. A relay or a sink cannot know
//! which shards will arrive in its queue: it requests one when its first packet arrives.

use crate::config::params::{FlowParams, Nanos, PeerId, Role, ShardId, Share, Snapshot};
use crate::config::report::{DropReason, FlowCounters, PacketCounters, Remainder};
use crate::env::combine::Combiner;
use crate::env::egress::{Answer, Egress, Origin};
use crate::env::io::Io;
use crate::env::stage_memory::OpenRequest;
use crate::open::Opened;
use crate::packet::arrival::{Arrival, Data, Fate};
use crate::shard::Shard;
use crate::shard::numbers::SourceNumbers;
use crate::stage::Stage;
use crate::unit::tags;
use recoded_wire::frames::{Frames, Span};
use std::collections::BTreeMap;

/// Shards that wait for a stage at once: more than a few flows that begin at the same moment.
const OPENING_MAX: usize = 64;

/// Retry interval of a request: it was refused, or the answer was lost.
const AGAIN_NANOS: Nanos = 1_000_000_000;

/// Packets that wait for the stages of their shards: 10 ms of 300 Mbit/s.
const WAITING_MAX: usize = 256;

/// Shards examined per relief, however many there are.
const RELIEF_LOOKS: usize = 8;

/// A shard, and its index among those of this worker.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ShardSlot {
    id: ShardId,
    index: Option<usize>,
}

impl ShardSlot {
    /// Whether it is here.
    pub(crate) fn is_here(self) -> bool {
        self.index.is_some()
    }
}

/// A packet that waits for a stage; it holds a reference to its frame.
#[derive(Copy, Clone, Debug)]
pub(crate) struct WaitingPacket {
    shard: ShardId,
    pub origin: Origin,
    pub payload: Span,
    /// Whether its shard existed and has noted it.
    pub is_noted: bool,
}

/// A shard that has requested a stage.
#[derive(Debug)]
struct Opening {
    shard: ShardId,
    /// Epoch of the packet that caused the request.
    epoch: u8,
    asked_at: Nanos,
    is_refused: bool,
}

/// Indices of the shards to examine next, and of the one relieved last.
#[derive(Default)]
struct Relief {
    next: usize,
    last: usize,
}

/// The shards of a worker, and the flows they belong to.
pub(crate) struct Shards {
    /// Outcomes of packets.
    pub(crate) packets: PacketCounters,
    share: Share,
    /// Flows as configured, sorted by id.
    settings: Vec<FlowParams>,
    /// Sorted by id.
    shards: Vec<Shard>,
    /// Counters of removed shards, by flow: totals of a flow never fall.
    remainders: BTreeMap<u32, FlowCounters>,
    /// Numbers of removed sources, of flows that are still configured.
    numbers: BTreeMap<ShardId, SourceNumbers>,
    opening: Vec<Opening>,
    waiting: Vec<WaitingPacket>,
    relief: Relief,
}

impl Shards {
    pub(crate) fn new(share: Share, snapshot: &Snapshot, combiner: &mut Combiner) -> Self {
        let mut shards = Self {
            packets: PacketCounters::default(),
            share,
            settings: sorted(snapshot),
            shards: Vec::new(),
            remainders: BTreeMap::new(),
            numbers: BTreeMap::new(),
            opening: Vec::with_capacity(OPENING_MAX),
            waiting: Vec::with_capacity(WAITING_MAX),
            relief: Relief::default(),
        };
        shards.add_sources(combiner);
        shards
    }

    /// Restarts with the previous counters.
    pub(crate) fn renew(&mut self, snapshot: &Snapshot, combiner: &mut Combiner) {
        let new = Shards::new(self.share, snapshot, combiner);
        let Shards { mut packets, shards, mut remainders, waiting, .. } =
            std::mem::replace(self, new);
        waiting.iter().for_each(|_| Fate::Dropped(DropReason::Opening).count(&mut packets));
        for shard in shards {
            let flow = shard.id().flow;
            *remainders.entry(flow).or_default() += &shard.into_parts().0;
        }
        (self.packets, self.remainders) = (packets, remainders);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        self.shards.iter_mut()
    }

    /// The shard of this id, if it is here.
    pub(crate) fn find(&mut self, id: ShardId) -> Option<&mut Shard> {
        let index = self.search(id).ok()?;
        Some(&mut self.shards[index])
    }

    /// Whether the flow is configured.
    pub(crate) fn knows(&self, flow: u32) -> bool {
        self.settings(flow).is_some()
    }

    fn settings(&self, flow: u32) -> Option<&FlowParams> {
        let index = self.settings.binary_search_by_key(&flow, |params| params.id).ok()?;
        Some(&self.settings[index])
    }

    /// Place of the shard with this id.
    #[inline]
    pub(crate) fn place(&self, id: ShardId) -> ShardSlot {
        ShardSlot { id, index: self.search(id).ok() }
    }

    /// The shard at a place, if there is one.
    pub(crate) fn at(&mut self, place: ShardSlot) -> Option<&mut Shard> {
        place.index.map(|index| &mut self.shards[index])
    }

    #[inline]
    fn search(&self, id: ShardId) -> Result<usize, usize> {
        self.shards.binary_search_by_key(&id, Shard::id)
    }

    /// Adopts a new snapshot.
    pub(crate) fn apply(&mut self, snapshot: &Snapshot, io: &mut Io<'_, impl Frames, impl Egress>) {
        self.settings = sorted(snapshot);
        for mut shard in std::mem::take(&mut self.shards) {
            let params = self.settings(shard.id().flow);
            match params.filter(|params| shard.has_role_of(params) && self.is_ours(&shard, params))
            {
                Some(params) => {
                    shard.apply(params, io);
                    self.shards.push(shard);
                }
                None => {
                    shard.drain(io);
                    if shard.is_source() {
                        self.numbers.insert(shard.id(), shard.numbers());
                    }
                    self.close(shard, io.frames);
                }
            }
        }
        let Self { settings, remainders, numbers, .. } = self;
        let is_there = |id| settings.binary_search_by_key(&id, |params| params.id).is_ok();
        remainders.retain(|flow, _| is_there(*flow));
        numbers.retain(|shard, _| is_there(shard.flow));
        self.add_sources(io.combiner);
    }

    /// Closes a shard and adds its counters to those of its flow. Returns its stage.
    fn close(&mut self, mut shard: Shard, frames: &mut impl Frames) -> Stage {
        shard.release(frames);
        let flow = shard.id().flow;
        let (counters, stage) = shard.into_parts();
        *self.remainders.entry(flow).or_default() += &counters;
        stage
    }

    /// Counters of removed shards, by flow.
    pub(crate) fn remainders(&self) -> impl Iterator<Item = Remainder> {
        let remainders = self.remainders.iter();
        remainders.map(|(flow, counters)| Remainder { flow: *flow, counters: counters.clone() })
    }

    /// Whether this worker is to keep a shard of a flow, if it is here.
    fn is_ours(&self, shard: &Shard, params: &FlowParams) -> bool {
        let is_source = matches!(params.role, Role::Source { .. });
        !is_source || self.share.sends(params.shards).any(|own| own == shard.id().shard)
    }

    /// Adds the missing shards of sources that belong to this worker.
    fn add_sources(&mut self, combiner: &mut Combiner) {
        for params in self.settings.clone() {
            if !matches!(params.role, Role::Source { .. }) {
                continue;
            }
            for shard in self.share.sends(params.shards) {
                let id = ShardId { flow: params.id, shard };
                if let Err(at) = self.search(id) {
                    let stage = Stage::new(id, params.clone(), combiner);
                    let mut shard = Shard::new(id, stage, combiner);
                    if let Some(numbers) = self.numbers.remove(&id) {
                        shard.continue_from(numbers);
                    }
                    self.shards.insert(at, shard);
                }
            }
        }
    }

    /// Handles a data packet of a shard; see [`Shards::place`]. `is_noted` is whether the shard has
    /// already noted its link sequence number.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        place: ShardSlot,
        origin: Origin,
        arrival: &Arrival<'_>,
        is_noted: bool,
    ) -> Fate {
        let ShardSlot { id, index } = place;
        let Some(index) = index else {
            if arrival.data.is_keepalive() {
                // It gives no information about later packets.
                return Fate::Dropped(DropReason::Opening);
            }
            let Some(settings) = self.settings(id.flow) else {
                return Fate::Dropped(DropReason::UnknownFlow);
            };
            return match tags::verify(io, settings, arrival) {
                Ok(verified) => {
                    let arrival = verified.as_ref().unwrap_or(arrival);
                    self.open_for(io, place, origin, arrival, DropReason::Oversize)
                }
                Err(reason) => Fate::Dropped(reason),
            };
        };
        let shard = &mut self.shards[index];
        if !is_noted && let Err(reason) = shard.admit(origin.peer, arrival.data.header(), io.now) {
            return Fate::Dropped(reason);
        }
        let verified = match shard.verify(io, arrival) {
            Ok(verified) => verified,
            Err(reason) => return Fate::Dropped(reason),
        };
        let arrival = verified.as_ref().unwrap_or(arrival);
        match shard.take(io, arrival) {
            Fate::Dropped(reason @ (DropReason::Oversize | DropReason::WrongCode)) => {
                self.open_for(io, place, origin, arrival, reason)
            }
            fate => fate,
        }
    }

    /// Handles a packet that no stage accepts, for the reason `refusal`.
    #[cold]
    fn open_for(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        place: ShardSlot,
        origin: Origin,
        arrival: &Arrival<'_>,
        refusal: DropReason,
    ) -> Fate {
        let ShardSlot { id, index } = place;
        match self.ask(io, id, origin.peer, &arrival.data) {
            Ok(true) => {}
            Ok(false) => return Fate::Dropped(refusal),
            Err(DropReason::Opening) => {
                let (shard, payload, is_noted) = (id, arrival.payload, index.is_some());
                return self.wait(io, WaitingPacket { shard, origin, payload, is_noted });
            }
            Err(reason) => return Fate::Dropped(reason),
        }
        // The stage was made here: the packet is the first that it accepts.
        let Some(shard) = self.find(id) else { return Fate::Dropped(refusal) };
        let header = arrival.data.header();
        if index.is_none()
            && let Err(reason) = shard.admit(origin.peer, header, io.now)
        {
            return Fate::Dropped(reason);
        }
        shard.take(io, arrival)
    }

    /// Requests a stage that accepts a packet, unless one was requested a moment ago. Returns
    /// whether there is one now.
    ///
    /// # Errors
    /// Drop reason if there is none yet, or there will be none.
    fn ask(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        shard: ShardId,
        peer: PeerId,
        data: &Data<'_>,
    ) -> Result<bool, DropReason> {
        let Some(settings) = self.settings(shard.flow) else { return Err(DropReason::UnknownFlow) };
        if matches!(settings.role, Role::Source { .. }) {
            return Err(DropReason::WrongRole);
        }
        if !settings.upstreams().any(|upstream| upstream == peer) {
            return Err(DropReason::UnknownPeer);
        }
        let sizes = match self.search(shard) {
            Ok(index) => self.shards[index].that_take(settings, data, io),
            Err(_) => settings.that_take(data, None, io.frames),
        };
        //= docs/protocol §2.6(c)
        let Some(sizes) = sizes else { return Ok(false) };
        self.forget_old(io);
        if let Some(opening) = self.opening.iter().find(|opening| opening.shard == shard) {
            let refused = DropReason::NoMemory;
            return Err(if opening.is_refused { refused } else { DropReason::Opening });
        }
        if self.opening.len() == OPENING_MAX {
            return Err(DropReason::Opening);
        }
        let request = OpenRequest { shard, sizes };
        let epoch = data.header().epoch;
        let opening = Opening { shard, epoch, asked_at: io.now, is_refused: false };
        match io.egress.open(&request) {
            Answer::Here => {
                let settings = self.settings(shard.flow).ok_or(DropReason::UnknownFlow)?;
                let stage = Stage::new(shard, settings.with(sizes), io.combiner);
                self.opening.push(opening);
                self.opened(Opened { shard, stage }, io);
                Ok(true)
            }
            Answer::Elsewhere => {
                self.opening.push(opening);
                Err(DropReason::Opening)
            }
            Answer::Busy => Err(DropReason::Opening),
        }
    }

    /// Keeps a packet until its stage is open.
    fn wait(&mut self, io: &mut Io<'_, impl Frames, impl Egress>, packet: WaitingPacket) -> Fate {
        let is_asked = self.opening.iter().any(|opening| opening.shard == packet.shard);
        if !is_asked || self.waiting.len() == WAITING_MAX || io.frames.scarce() {
            return Fate::Dropped(DropReason::Opening);
        }
        io.frames.retain(packet.payload.frame);
        self.waiting.push(packet);
        Fate::Waiting
    }

    /// Number of waiting packets.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Number of packets that wait for the stage of a shard.
    pub(crate) fn waiting_for(&self, shard: ShardId) -> usize {
        self.waiting.iter().filter(|waiting| waiting.shard == shard).count()
    }

    /// The oldest packet that waits for the stage of a shard. Its frame reference passes to the
    /// caller.
    pub(crate) fn next_waiting(&mut self, shard: ShardId) -> Option<WaitingPacket> {
        let oldest = self.waiting.iter().position(|waiting| waiting.shard == shard)?;
        Some(self.waiting.remove(oldest))
    }

    /// Forgets old requests. Returns when more become old.
    pub(crate) fn forget_old(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
    ) -> Option<Nanos> {
        let now = io.now;
        let end = |opening: &Opening| opening.asked_at.saturating_add(AGAIN_NANOS);
        let is_old = |opening: &Opening| now >= end(opening);
        while let Some(index) = self.opening.iter().position(is_old) {
            let Opening { shard, .. } = self.opening.swap_remove(index);
            self.let_go(shard, DropReason::Opening, io.frames);
        }
        self.opening.iter().map(end).min()
    }

    /// Notes that another worker has a requested shard.
    pub(crate) fn elsewhere(&mut self, shard: ShardId) {
        self.opening.retain(|opening| opening.shard != shard);
    }

    /// Takes out a stage that a source has replaced, once sinks no longer request packets sent with
    /// it.
    pub(crate) fn retire(&mut self, frames: &mut impl Frames, now: Nanos) -> Option<Stage> {
        let mut sources = self.shards.iter_mut().filter(|shard| shard.is_source());
        sources.find_map(|shard| shard.take_spare(frames, now))
    }

    /// Takes out a stage that was not used for a while and has proven nothing; with its shard if it
    /// has no other.
    pub(crate) fn give_back(&mut self, frames: &mut impl Frames, now: Nanos) -> Option<Stage> {
        let spare = self.shards.iter_mut().find_map(|shard| shard.take_spare(frames, now));
        if spare.is_some() {
            return spare;
        }
        let idle = self.shards.iter().position(|shard| shard.is_idle(now))?;
        let shard = self.shards.remove(idle);
        Some(self.close(shard, frames))
    }

    /// Drops the packets that wait for the stage of a shard.
    fn let_go(&mut self, shard: ShardId, reason: DropReason, frames: &mut impl Frames) {
        while let Some(waiting) = self.next_waiting(shard) {
            frames.release(waiting.payload.frame);
            Fate::Dropped(reason).count(&mut self.packets);
        }
    }

    /// Drops all waiting packets, and releases all frames.
    pub(crate) fn release(&mut self, frames: &mut impl Frames) {
        while let Some(waiting) = self.waiting.pop() {
            frames.release(waiting.payload.frame);
            Fate::Dropped(DropReason::Opening).count(&mut self.packets);
        }
        self.shards.iter_mut().for_each(|shard| shard.release(frames));
    }

    /// Adopts a stage. Returns the one that it replaces.
    pub(crate) fn opened(
        &mut self,
        Opened { shard, stage }: Opened,
        io: &mut Io<'_, impl Frames, impl Egress>,
    ) -> Option<Stage> {
        let asked = self.opening.iter().find(|opening| opening.shard == shard);
        let epoch = asked.map(|opening| opening.epoch);
        self.opening.retain(|opening| opening.shard != shard);
        // Parameters may have changed since the request.
        let settings = self.settings(shard.flow);
        let stage = settings.and_then(|settings| stage.under(settings, epoch, io.now))?;
        match self.search(shard) {
            Ok(index) => self.shards[index].open(stage, io),
            Err(at) => {
                self.shards.insert(at, Shard::new(shard, stage, io.combiner));
                None
            }
        }
    }

    /// Notes that there is no memory for a requested stage.
    pub(crate) fn refused(&mut self, shard: ShardId, frames: &mut impl Frames) {
        self.let_go(shard, DropReason::NoMemory, frames);
        let asked = self.opening.iter_mut().filter(|opening| opening.shard == shard);
        asked.for_each(|opening| opening.is_refused = true);
    }

    /// Frees frames under pressure: one unit per packet, of the shard that holds most among those
    /// examined in turn and the one relieved last.
    pub(crate) fn relieve(&mut self, io: &mut Io<'_, impl Frames, impl Egress>) {
        let count = self.shards.len();
        let in_turn = (0..RELIEF_LOOKS.min(count)).map(|step| (self.relief.next + step) % count);
        let last = (self.relief.last < count).then_some(self.relief.last);
        let Some(most) = in_turn.chain(last).max_by_key(|at| self.shards[*at].held()) else {
            return;
        };
        self.relief = Relief { next: (self.relief.next + RELIEF_LOOKS) % count, last: most };
        self.shards[most].evict_oldest(io);
    }
}

fn sorted(snapshot: &Snapshot) -> Vec<FlowParams> {
    let mut settings = snapshot.flows.clone();
    settings.sort_by_key(|params| params.id);
    settings
}
