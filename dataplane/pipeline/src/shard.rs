//! One shard of a flow on one node: its parameters, neighbours, counters and stages.
//!
//! Packets announce their code and sizes. When these change, the previous stage remains alongside
//! the new one: a source still answers NACKs with it, and a sink decodes packets that are still in
//! flight.

mod change;
pub(crate) mod numbers;
mod pace;
mod size;
mod timers;
mod verified;

use std::cmp::min_by_key;
use std::mem::{replace, swap};

use crate::base::time::earlier;
use crate::config::params::{FlowParams, Nanos, PeerId, Role, ShardId, Sizes};
use crate::config::report::{DropReason, FlowCounters, FlowReport};
use crate::edge::class::Marks;
use crate::env::combine::Combiner;
use crate::env::egress::{Egress, ReportFate, Ticket};
use crate::env::io::Io;
use crate::hop::receive::Upstreams;
use crate::hop::send::next_hops::{Counts, NextHops};
use crate::packet::arrival::{Arrival, Data, Fate};
use crate::plan::Plan;
use crate::shard::numbers::SourceNumbers;
use crate::stage::{RoleState, Stage, each, source};
use crate::unit::context::Context;
use crate::unit::role::Lifecycle;
use crate::unit::source::{SourceCode, take_in};
use recoded_wire::feedback::FeedbackHeader;
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::Header;
use recoded_wire::link::LinkReport;

/// A stage that accepted no packet for this long may be replaced if there is another: deliveries
/// never wait longer.
const REPLACE_NANOS: Nanos = 200_000_000;

/// A shard of a flow on this node.
pub(crate) struct Shard {
    id: ShardId,
    counters: FlowCounters,
    upstreams: Upstreams,
    hops: NextHops,
    marks: Marks,
    /// When the first symbol with a valid tag arrived.
    verified_at: Option<Nanos>,
    present: Stage,
    /// Configured bytes of a symbol: a source may have to make shorter ones.
    symbol_bytes: usize,
    /// The previous stage, or one that has yet to prove itself.
    other: Option<Stage>,
    /// Source: numbers of the stages before.
    numbers: SourceNumbers,
    /// Source: parameters that would require a third stage at other nodes, until those no longer
    /// need the first.
    postponed: Option<Box<FlowParams>>,
    /// When a source changed to another code, or to larger sizes.
    changed_at: Option<Nanos>,
    /// Next deadline of [`Shard::tick`]; it may be early, never late.
    deadline: Option<Nanos>,
}

/// A stage's state and its context.
fn split<'a, 'io, F, E>(
    shard: &'a mut Shard,
    io: &'a mut Io<'io, F, E>,
) -> (&'a mut RoleState, Context<'a, 'io, F, E>) {
    let Shard { id, counters, upstreams, hops, marks, present, .. } = shard;
    let upstream = upstreams.present_mut();
    let Stage { params, state, .. } = present;
    (state, Context { shard: *id, params, counters, upstream, hops, marks, io })
}

impl Shard {
    pub(crate) fn new(id: ShardId, present: Stage, combiner: &mut Combiner) -> Shard {
        Shard {
            id,
            counters: FlowCounters::default(),
            upstreams: Upstreams::new(id, &present.params, combiner),
            hops: NextHops::new(id, &present.params, combiner),
            marks: Marks::default(),
            symbol_bytes: present.params.symbol_bytes,
            verified_at: None,
            present,
            other: None,
            numbers: SourceNumbers::default(),
            postponed: None,
            changed_at: None,
            deadline: None,
        }
    }

    /// Takes the second stage out.
    fn take_other(&mut self, frames: &mut impl Frames) -> Option<Stage> {
        let mut other = self.other.take()?;
        each!(&mut other.state, role => role.release(frames));
        Some(other)
    }

    /// Calls `act` once for each stage, with that stage in the present one's place.
    fn both<T>(&mut self, mut act: impl FnMut(&mut Self) -> T) -> (T, Option<T>) {
        let first = act(self);
        let Some(other) = self.other.take() else { return (first, None) };
        let present = replace(&mut self.present, other);
        let second = act(self);
        self.other = Some(replace(&mut self.present, present));
        (first, Some(second))
    }

    /// Swaps the present stage and the second one.
    fn exchange(&mut self) {
        self.other.iter_mut().for_each(|other| swap(&mut self.present, other));
    }

    pub(crate) fn id(&self) -> ShardId {
        self.id
    }

    /// Whether its role in the flow is that of `params`.
    pub(crate) fn has_role_of(&self, params: &FlowParams) -> bool {
        self.present.has_role_of(params)
    }

    /// Units held.
    pub(crate) fn held(&self) -> usize {
        let held = |stage: &Stage| each!(&stage.state, role => role.held());
        held(&self.present) + self.other.as_ref().map_or(0, held)
    }

    /// Takes the second stage out, if it was not used for a while and, at a source, gets no more
    /// requests.
    pub(crate) fn take_spare(&mut self, frames: &mut impl Frames, now: Nanos) -> Option<Stage> {
        self.other.as_ref().filter(|other| other.is_unused(now))?;
        self.take_other(frames)
    }

    pub(crate) fn is_source(&self) -> bool {
        matches!(self.present.params.role, Role::Source { .. })
    }

    fn is_relay(&self) -> bool {
        matches!(self.present.params.role, Role::Relay { .. })
    }

    /// Whether no stage was used for a while, and none ever proved that its packets were genuine.
    pub(crate) fn is_idle(&self, now: Nanos) -> bool {
        let is_idle = |stage: &Stage| stage.is_unused(now) && !stage.is_proven;
        !self.is_source() && is_idle(&self.present) && self.other.as_ref().is_none_or(is_idle)
    }

    /// How far its sources have come.
    pub(crate) fn numbers(&self) -> SourceNumbers {
        let mut numbers = self.numbers;
        let stages = self.other.iter().chain([&self.present]);
        stages.for_each(|stage| numbers.note(stage));
        numbers
    }

    /// Lets its source, which has sent nothing, begin above these numbers.
    pub(crate) fn continue_from(&mut self, numbers: SourceNumbers) {
        self.numbers = numbers;
        numbers.begin(&mut self.present);
    }

    /// Its counters, and its stage.
    pub(crate) fn into_parts(self) -> (FlowCounters, Stage) {
        (self.counted(), self.present)
    }

    fn counted(&self) -> FlowCounters {
        let Counts { packets, bytes, feedback } = self.hops.counts();
        let mut counters = self.counters.clone();
        counters.sent_packets = packets;
        counters.sent_bytes = bytes;
        counters.feedback = feedback;
        counters
    }

    /// Notes a data packet from `peer`, before its outcome is known.
    ///
    /// # Errors
    /// The reason why it must be dropped.
    pub(crate) fn admit(
        &mut self,
        peer: PeerId,
        header: &Header,
        now: Nanos,
    ) -> Result<(), DropReason> {
        if self.is_source() {
            return Err(DropReason::WrongRole);
        }
        if !self.upstreams.choose_peer(peer) {
            return Err(DropReason::UnknownPeer);
        }
        if self.upstreams.is_shut_out(now) {
            return Err(DropReason::Quarantined);
        }
        self.upstreams.present_mut().arrived(header, now)?;
        self.counters.received += 1;
        Ok(())
    }

    /// Handles an admitted data packet. [`DropReason::Oversize`] and [`DropReason::WrongCode`] mean
    /// that no stage accepts such packets: see [`Shard::that_take`].
    pub(crate) fn take(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        arrival: &Arrival<'_>,
    ) -> Fate {
        if arrival.data.is_keepalive() {
            return self.answer_keepalive(arrival, io.now);
        }
        if let Err(reason) = self.choose(&arrival.data, io.now) {
            return Fate::Dropped(reason);
        }
        self.marks.came(arrival.traffic_class);
        (self.present.used_at, self.present.epoch) = (io.now, Some(arrival.data.header().epoch));
        let delivered = self.counters.delivered_packets;
        let refused = self.counters.tag_refused;
        let (state, mut cx) = split(self, io);
        let fate = each!(state, role => role.receive(&mut cx, arrival));
        let is_symbol = matches!(&arrival.data, Data::Stream(packet) if packet.symbol().is_some());
        if arrival.data.is_mended() && matches!(fate, Fate::Consumed | Fate::Forwarded) {
            let bytes = usize::from(arrival.payload.len);
            let upstream = self.upstreams.present_mut();
            upstream.track(arrival.data.header(), bytes, !is_symbol, io.now);
            if matches!(arrival.data, Data::Stream(_)) && !is_symbol {
                upstream.asked();
            }
        }
        self.present.is_proven |= self.counters.delivered_packets > delivered;
        let refused = self.counters.tag_refused - refused;
        if refused > 0 {
            // Wrong tags of symbols that were solved from the neighbour's combinations.
            self.distrust(io, refused);
        }
        self.wake(io.now);
        fate
    }

    /// A keepalive of a hop of generations or batches requests a link report and nothing more.
    fn answer_keepalive(&mut self, arrival: &Arrival<'_>, now: Nanos) -> Fate {
        let bytes = usize::from(arrival.payload.len);
        self.upstreams.present_mut().track(arrival.data.header(), bytes, true, now);
        self.wake(now);
        Fate::Consumed
    }

    /// Makes the stage that accepts a packet the present one. Code and sizes are constant within an
    /// epoch, so a packet that differs from others of its epoch is forged or damaged.
    fn choose(&mut self, data: &Data<'_>, now: Nanos) -> Result<(), DropReason> {
        let epoch = data.header().epoch;
        let fits = self.present.takes(data);
        if let Some(is_other) = self.other.as_ref().and_then(|other| self.present.or(other, data)) {
            is_other.then(|| self.exchange());
            return Ok(());
        }
        if self.present.is_of(epoch, now) || self.present.epoch == Some(epoch) && fits.is_ok() {
            return fits.map_err(|_| DropReason::Mismatch);
        }
        let Some(other) = &self.other else { return fits };
        match other.takes(data) {
            Err(_) if other.is_of(epoch, now) => return Err(DropReason::Mismatch),
            Ok(()) if other.epoch == Some(epoch) || fits.is_err() => {}
            _ => return fits,
        }
        self.exchange();
        Ok(())
    }

    /// Sizes of a stage that would accept a packet that no stage here accepts. `None` while the
    /// stage to be replaced is in use.
    pub(crate) fn that_take(
        &self,
        settings: &FlowParams,
        data: &Data<'_>,
        io: &Io<'_, impl Frames, impl Egress>,
    ) -> Option<Sizes> {
        let idle = |stage: &Stage| io.now >= stage.used_at.saturating_add(REPLACE_NANOS);
        let goes = |other| min_by_key(other, &self.present, |stage| stage.worth());
        if self.other.as_ref().is_some_and(|other| !idle(goes(other))) {
            return None;
        }
        settings.that_take(data, Some(self.present.params.sizes()), io.frames)
    }

    /// Adopts a requested stage. Returns the one it replaces.
    pub(crate) fn open(
        &mut self,
        stage: Stage,
        io: &mut Io<'_, impl Frames, impl Egress>,
    ) -> Option<Stage> {
        if self.is_relay() && !self.present.params.code.is_stream() {
            self.drain(io);
        }
        let kind = std::mem::discriminant(&self.present.state);
        if self.other.as_ref().is_some_and(|other| other.worth() > self.present.worth()) {
            self.exchange();
        }
        let mut gone = self.take_other(io.frames);
        self.other = Some(replace(&mut self.present, stage));
        if self.is_relay() && std::mem::discriminant(&self.present.state) == kind {
            // The larger one accepts everything that the smaller one accepted.
            gone = self.take_other(io.frames);
        }
        // The next packet decides which of the two is the present one.
        self.exchange();
        self.wake(io.now);
        gone
    }

    /// Takes an IP packet; only a source processes it.
    pub(crate) fn ingress(&mut self, io: &mut Io<'_, impl Frames, impl Egress>, packet: &[u8]) {
        let (state, mut cx) = split(self, io);
        source!(
            state,
            source => {
                cx.counters.ingress_packets += 1;
                cx.counters.ingress_bytes += packet.len() as u64;
                take_in(&mut **source, &mut cx, packet);
            },
            ()
        );
        self.wake(io.now);
    }

    /// Handles a feedback packet from `peer`: the source reads it, a relay passes it upstream.
    pub(crate) fn receive_feedback(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        peer: PeerId,
        payload: Span,
        header: FeedbackHeader,
    ) -> Fate {
        if matches!(self.present.params.role, Role::Sink { .. }) {
            return Fate::Dropped(DropReason::WrongRole);
        }
        if let Err(reason) = self.hops.heard(peer, &header.common, io.now) {
            return Fate::Dropped(reason);
        }
        // The relay's packets are wanted: it is proven.
        self.present.is_proven |= self.is_relay();
        if self.is_relay() {
            // Of two codes, the one that the report concerns passes it upstream.
            let is_before = |other: &Stage| other.epoch == Some(header.common.epoch);
            if self.present.epoch != Some(header.common.epoch)
                && self.other.as_ref().is_some_and(is_before)
            {
                self.exchange();
            }
            let (state, mut cx) = split(self, io);
            //= docs/protocol §2.1(d)
            let fate = match header.common.hop_index {
                u8::MAX => Fate::Dropped(DropReason::WrongRole),
                _ => each!(state, role => role.hand_up(&mut cx, peer, payload, header)),
            };
            self.wake(io.now);
            return fate;
        }
        match self.verify_report(io, payload) {
            Ok(ReportFate::New) => {}
            Ok(ReportFate::Copy) => return Fate::Consumed,
            Err(reason) => return Fate::Dropped(reason),
        }
        let (fate, _) = self.both(|shard| {
            let (state, mut cx) = split(shard, io);
            source!(
                state,
                source => {
                    source.receive_feedback(&mut cx, peer, payload, header);
                    Fate::Consumed
                },
                Fate::Dropped(DropReason::WrongRole)
            )
        });
        self.follow_size(io);
        self.wake(io.now);
        fate
    }

    /// Handles a link report from `peer`, whose stream it belongs to.
    pub(crate) fn receive_link(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        peer: PeerId,
        payload: Span,
        report: &LinkReport,
    ) -> Fate {
        if let Err(reason) = self.hops.heard(peer, &report.header, io.now) {
            return Fate::Dropped(reason);
        }
        self.present.is_proven |= self.is_relay();
        let (first, second) = self.both(|shard| {
            let (state, mut cx) = split(shard, io);
            let heard = each!(state, role => role.hear_link(&mut cx, peer, report, payload));
            let pace = cx.io.egress.pace(peer);
            cx.io.egress.reported(peer, &each!(state, role => role.apply_pace(peer, pace)));
            heard
        });
        self.follow_size(io);
        self.wake(io.now);
        match first {
            Err(reason) if second.is_none_or(|second| second.is_err()) => Fate::Dropped(reason),
            _ => Fate::Consumed,
        }
    }

    /// Updates the deadline from the roles, after an event.
    fn wake(&mut self, now: Nanos) {
        let stages = [Some(&self.present), self.other.as_ref()];
        let wake = |stage: &Stage| each!(&stage.state, role => role.wake(&stage.params, now));
        let stages = stages.into_iter().flatten().fold(None, |at, stage| earlier(at, wake(stage)));
        self.deadline = earlier(self.deadline, earlier(stages, self.upstreams.due()));
    }

    /// Takes the result of an accelerator.
    pub(crate) fn solved<'a>(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        ticket: Ticket,
        rows: impl Iterator<Item = &'a [u8]>,
    ) {
        let (state, mut cx) = split(self, io);
        each!(state, role => role.solved(&mut cx, ticket, rows));
    }

    /// Adopts a requested plan.
    pub(crate) fn planned(&mut self, plan: Plan) {
        each!(&mut self.present.state, role => role.planned(plan));
    }

    /// Evicts the oldest unit held, to free frames. Returns false when none is held.
    pub(crate) fn evict_oldest(&mut self, io: &mut Io<'_, impl Frames, impl Egress>) -> bool {
        let mut done = false;
        // The previous stage first.
        self.exchange();
        self.both(|shard| {
            let (state, mut cx) = split(shard, io);
            done = done || each!(state, role => role.evict_oldest(&mut cx));
        });
        self.exchange();
        done
    }

    /// Closes all open units.
    pub(crate) fn drain(&mut self, io: &mut Io<'_, impl Frames, impl Egress>) {
        self.both(|shard| {
            let (state, mut cx) = split(shard, io);
            each!(state, role => role.drain(&mut cx));
        });
    }

    /// Releases all frames.
    pub(crate) fn release(&mut self, frames: &mut impl Frames) {
        for stage in [Some(&mut self.present), self.other.as_mut()].into_iter().flatten() {
            each!(&mut stage.state, role => role.release(frames));
        }
    }

    pub(crate) fn report(&self) -> FlowReport {
        let Stage { params, state, .. } = &self.present;
        let mut report = FlowReport {
            id: self.id.flow,
            shard: self.id.shard,
            role: params.role.clone(),
            code: params.code,
            epoch: 0,
            field: params.field,
            generation_size: params.generation_size,
            symbol_bytes: params.symbol_bytes,
            planned: 0,
            is_mended: false,
            hops: self.upstreams.losses().collect(),
            upstreams: self.upstreams.report(),
            next_hops: Vec::new(),
            packet_bytes_max: None,
            remote: None,
            held: self.held(),
            counters: self.counted(),
        };
        each!(state, role => role.fill(&mut report));
        let mender = each!(state, role => role.mender());
        if let (Some(mender), [peer]) = (mender, &params.next_hops[..]) {
            mender.fill(&mut report, *peer);
        }
        let longest = report.packet_bytes_max;
        report.packet_bytes_max =
            longest.map(|bytes| bytes.saturating_sub(params.sealing_bytes() + params.tag_bytes()));
        report
    }
}
