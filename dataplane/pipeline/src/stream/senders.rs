//! The sending side of a stream node: each next hop has its own sender and pace; all share one
//! store.

use crate::base::layout::{payload_of, symbol_offset};
use crate::base::time::earlier;
use crate::config::params::{FlowParams, Nanos, PeerId, Spread, StreamProfile, sealing_bytes};
use crate::config::report::{Branch, DropReason, NextHop};
use crate::config::segmentation::Comparison;
use crate::edge::class;
use crate::env::egress::Egress;
use crate::hop::send::path_mtu::FLOOR_BYTES;
use crate::hop::send::repair::{ROUNDS, RepairBudget};
use crate::stream::paths::Paths;
use crate::stream::sender::{Next, Sender};
use crate::stream::store::Store;
use crate::unit::context::Context;
use recoded_code::window::{COMBINED_MAX, combination as combination_of};
use recoded_wire::feedback::ArrivalReport;
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Flags, PacketType};
use recoded_wire::link::LinkReport;
use recoded_wire::stream::{
    COMBINATION_BYTES, Combination, KEEPALIVE_BYTES, OPEN_LOOP_UNITS, STREAM_BYTES, StreamHeader,
    StreamSymbol, write_combination, write_symbol,
};

/// Most packets that one call sends to one hop: it blocks all other flows.
const PER_CALL: usize = 64;

/// Retry interval when frames ran out.
const AGAIN_NANOS: Nanos = 1_000_000;

/// Header fields shared by all outgoing packets.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Outgoing {
    pub epoch: u8,
    pub window_log2: u8,
    /// Hops travelled, and the sum of their round trips, in units of the wire format.
    pub hop_index: u8,
    pub round_trips: u16,
    pub profile: StreamProfile,
    /// Whether the stream is spread over several paths.
    pub has_paths: bool,
    /// Combinations per symbol of an open loop; `None` if next hops report.
    pub open_loop: Option<f64>,
}

/// A new symbol, still in the frame that it arrived in.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ArrivedSymbol {
    pub number: u32,
    pub payload: Span,
}

/// Where a packet is written.
struct Room {
    /// The symbol of a packet, in an empty frame.
    span: Span,
    /// The symbol to be sent, where it is in its own frame.
    in_place: Option<ArrivedSymbol>,
}

/// Outcome of a request of the sink.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answered {
    /// The symbol is queued, or was before.
    Done,
    /// The symbol is not stored here.
    Unknown,
    /// The budget is exhausted.
    Refused,
}

/// All next hops.
#[derive(Debug)]
pub(crate) struct Senders {
    hops: Vec<(PeerId, Sender)>,
    paths: Paths,
    symbols: usize,
    /// Budget for the requests of a single sink behind all of them.
    budget: RepairBudget,
    again_at: Option<Nanos>,
}

impl Senders {
    /// Creates senders for the next hops of a flow and a window of this many symbols, a power of
    /// two.
    pub(crate) fn new(params: &FlowParams, symbols: usize) -> Self {
        Self::to(&params.next_hops, params.spread, symbols)
    }

    fn to(peers: &[PeerId], spread: Spread, symbols: usize) -> Self {
        let (paths, budget) = (Paths::new(spread, symbols), RepairBudget::new());
        let mut senders = Self { hops: Vec::new(), paths, symbols, budget, again_at: None };
        senders.send_to(peers);
        senders
    }

    /// Replaces the neighbours. The state of receivers that remain is kept.
    fn send_to(&mut self, peers: &[PeerId]) {
        let is_path = self.paths.spread() != Spread::Every;
        let mut before = std::mem::take(&mut self.hops);
        let mut bits = if is_path { 0 } else { bits_of(&before, peers) };
        for (hop, peer) in peers.iter().enumerate() {
            let known = before.iter().position(|(known, _)| known == peer).filter(|_| !is_path);
            let sender = match known {
                Some(place) => before.swap_remove(place).1.moved_to(hop),
                None => {
                    let receiver = if is_path { 0 } else { bits.trailing_ones() as usize };
                    bits |= 1 << receiver;
                    Sender::new(hop, receiver, is_path, self.symbols)
                }
            };
            self.hops.push((*peer, sender));
        }
    }

    /// Resizes the window to this many symbols, a power of two; `end` is the next number.
    pub(crate) fn resize(&mut self, symbols: usize, end: u32) {
        self.symbols = symbols;
        self.paths.resize(symbols, end);
        self.hops.iter_mut().for_each(|(_, sender)| sender.resize(symbols));
    }

    /// A bit for each receiver.
    fn receivers(&self) -> u8 {
        self.hops.iter().fold(0, |bits, (_, sender)| bits | 1 << sender.receiver())
    }

    /// Whether each of several next hops receives everything.
    fn has_branches(&self) -> bool {
        self.paths.spread() == Spread::Every && self.hops.len() > 1
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes(params: &FlowParams, symbols: usize) -> usize {
        let sender = Sender::memory_bytes(symbols) + size_of::<Sender>();
        params.next_hops.len() * sender + Paths::memory_bytes(params.spread, symbols)
    }

    /// Follows a change of neighbours: a new one starts with the next symbol.
    fn follow<F, E>(&mut self, cx: &Context<'_, '_, F, E>, store: &mut Store) {
        let spread = cx.params.spread;
        let is_spread_as_before = self.paths.spread() == spread;
        let is_same = self.hops.len() == cx.hops.len()
            && is_spread_as_before
            && self.hops.iter().enumerate().all(|(place, (peer, _))| cx.hops.peer(place) == *peer);
        if is_same {
            return;
        }
        let peers: Vec<PeerId> = (0..cx.hops.len()).map(|place| cx.hops.peer(place)).collect();
        if is_spread_as_before && spread == Spread::Every {
            self.send_to(&peers);
        } else {
            *self = Senders::to(&peers, spread, self.symbols);
        }
        store.follow(self.receivers());
    }

    /// Queues a symbol of this many bytes for all next hops, or for its path.
    pub(crate) fn queue(&mut self, number: u32, bytes: usize, now: Nanos) {
        self.budget.earn(1);
        let Self { hops, paths, symbols, .. } = self;
        if paths.spread() != Spread::Every {
            let path = paths.assign(hops, number, bytes, false, now);
            return hops.get_mut(path).into_iter().for_each(|(_, sender)| {
                sender.queue(number, *symbols);
            });
        }
        for (_, sender) in hops {
            sender.link.budget.earn(1);
            sender.queue(number, *symbols);
        }
    }

    /// Answers a sink's request for a symbol, received from `peer`, if the symbol is stored and the
    /// round was not answered before.
    pub(crate) fn answer(
        &mut self,
        store: &mut Store,
        peer: PeerId,
        number: u32,
        round: u8,
        now: Nanos,
    ) -> Answered {
        let from = self.hops.iter().position(|(known, _)| *known == peer);
        let Some(from) = from.filter(|_| round < ROUNDS && store.is_known(number)) else {
            return Answered::Unknown;
        };
        let Self { hops, paths, budget, .. } = self;
        let is_one_path = paths.spread() != Spread::Every;
        let receiver = hops[from].1.receiver();
        // No receiver may exhaust the budget of the others.
        let budget = if is_one_path { budget } else { &mut hops[from].1.link.budget };
        if !budget.is_left() {
            return Answered::Refused;
        }
        if store.answers(number, round, receiver) {
            budget.grant(1, || 1);
            paths.note_requested(number);
            let bytes = store.packet_bytes(number);
            let place =
                if is_one_path { paths.assign(hops, number, bytes, true, now) } else { from };
            hops[place].1.queue_first(number);
        }
        Answered::Done
    }

    /// Whether a new symbol can leave soon; otherwise when to check again, if known.
    pub(crate) fn opens_at(&self, now: Nanos) -> Result<(), Option<Nanos>> {
        if self.paths.spread() != Spread::Every {
            return self.paths.opens_at(&self.hops, now);
        }
        // Of several receivers, none waits for a slower one.
        let is_alive = |hop: &&(PeerId, Sender)| !hop.1.is_in_doubt(now);
        let has_alive = self.hops.iter().any(|hop| is_alive(&hop));
        let mut at = None;
        for (_, sender) in self.hops.iter().filter(|hop| !has_alive || is_alive(hop)) {
            match sender.opens_at(now) {
                Ok(()) if sender.is_idle() => return Ok(()),
                Ok(()) => {}
                Err(opens) => at = earlier(at, opens),
            }
        }
        if self.hops.is_empty() { Ok(()) } else { Err(at) }
    }

    /// Whether an IP packet to be sent is too large for every next hop.
    pub(crate) fn refuse(&mut self, packet_bytes: usize) -> bool {
        self.hops.iter_mut().all(|(_, sender)| sender.refuses(packet_bytes))
    }

    /// Whether the next hop has a number, or any of several receivers: the others receive it while
    /// there is room.
    pub(crate) fn have(&self, store: &Store, number: u32) -> bool {
        self.hops.iter().any(|(_, sender)| store.is_done(number, sender.receiver()))
    }

    /// Whether reports of several receivers pass through here.
    pub(crate) fn gather_reports(&self) -> bool {
        self.has_branches()
    }

    /// Whether new symbols may not arrive, as far as early signs show.
    pub(crate) fn are_in_doubt(&self, now: Nanos) -> bool {
        !self.paths.is_reading(now) && self.hops.iter().all(|(_, sender)| sender.is_in_doubt(now))
    }

    /// Queueing delay of a new symbol to the fastest of them: a slow or failed receiver slows no
    /// other down.
    pub(crate) fn backlog(&self, symbol_bytes: usize, now: Nanos) -> Nanos {
        let backlog = |(_, sender): &(PeerId, Sender)| sender.backlog(symbol_bytes, now);
        self.hops.iter().map(backlog).min().unwrap_or(0)
    }

    /// The longest sum of the round trips of the hops from here on.
    pub(crate) fn path_round_trip(&self) -> Nanos {
        self.hops.iter().map(|(_, sender)| sender.link.path_round_trip()).max().unwrap_or(0)
    }

    /// Whether some of several paths do not answer, and others have taken over.
    pub(crate) fn lack_paths(&self) -> bool {
        self.paths.lacks_some(&self.hops)
    }

    /// Processes a report of a neighbour.
    ///
    /// # Errors
    /// [`DropReason::UnknownPeer`] when it is not a next hop.
    pub(crate) fn hear(
        &mut self,
        store: &mut Store,
        peer: PeerId,
        report: &LinkReport,
        payload: &[u8],
        now: Nanos,
    ) -> Result<(), DropReason> {
        let Self { hops, paths, .. } = self;
        let place = hops.iter().position(|(known, _)| *known == peer);
        let place = place.ok_or(DropReason::UnknownPeer)?;
        let is_suspended = paths.is_suspended(place, now);
        let came = |number| paths.note_came(place, number);
        hops[place].1.hear(store, report, payload, is_suspended, came, now);
        Ok(())
    }

    /// Notes that the sink reported, when it had the symbol `newest`.
    pub(crate) fn note_sink(&mut self, store: &Store, newest: u32, now: Nanos) {
        self.paths.note_heard(newest, store.end(), now);
    }

    /// Processes the sink's report on symbols that arrived, sent when it had the symbol `newest`.
    pub(crate) fn hear_arrivals(
        &mut self,
        store: &mut Store,
        report: &ArrivalReport<'_>,
        newest: u32,
        now: Nanos,
    ) {
        let Self { hops, paths, .. } = self;
        paths.hear_arrivals(hops, store, report, newest, now);
    }

    /// Applies the pace of the link to a neighbour, and returns the outcomes of packets reported
    /// since the last call.
    pub(crate) fn settle(&mut self, peer: PeerId, pace: Option<f64>) -> Comparison {
        let sender = self.hops.iter_mut().find(|(known, _)| *known == peer);
        sender.map(|(_, sender)| sender.link.settle(pace)).unwrap_or_default()
    }

    /// The largest UDP payload that every next hop receives, if larger ones do not arrive.
    pub(crate) fn limit(&self) -> Option<u16> {
        self.hops.iter().filter_map(|(_, sender)| sender.link.sizes().limit()).min()
    }

    /// Sends the packets that may leave now. `arrived` leaves in its frame, without a copy, if it
    /// may leave at once; the result tells whether it did.
    pub(crate) fn pump(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        store: &mut Store,
        outgoing: &Outgoing,
        mut arrived: Option<ArrivedSymbol>,
    ) -> bool {
        let has_arrived = arrived.is_some();
        self.follow(cx, store);
        let lag = self.has_branches().then_some(cx.params.lag_timeout_nanos);
        let is_source = outgoing.hop_index == 0;
        self.paths.watch(&mut self.hops, store, outgoing.has_paths, is_source, cx.io.now);
        self.again_at = None;
        let floor = floor(cx.params);
        let Self { hops, paths, .. } = self;
        for (place, (peer, sender)) in hops.iter_mut().enumerate() {
            sender.protect(outgoing.profile, lag);
            sender.set_open_loop(outgoing.open_loop);
            sender.set_floor(floor);
            sender.set_authenticated(cx.io.egress.is_authenticated(*peer));
            for _ in 0..PER_CALL {
                let Some(frame) = cx.io.frames.take() else {
                    if sender.due(cx.io.now).is_some_and(|due| due <= cx.io.now) {
                        cx.counters.send_failed += 1;
                        self.again_at = Some(cx.io.now + AGAIN_NANOS);
                    }
                    break;
                };
                let Some(next) = sender.next(store, cx.io.now) else {
                    cx.io.frames.release(frame);
                    break;
                };
                // To the first hop; a frame that waits to be sent may not be written to.
                let in_place = arrived.take_if(|symbol| next.is_symbol(symbol.number));
                if let Some(ArrivedSymbol { payload, .. }) = in_place {
                    cx.io.frames.retain(payload.frame);
                    cx.io.frames.release(frame);
                }
                let offset = symbol_offset(COMBINATION_BYTES) as u16;
                let room = Room { span: Span { frame, offset, len: 0 }, in_place };
                let (payload, class) = write(cx, store, sender, next, room, outgoing);
                let link = cx.send_to(sender.hop(), payload, class);
                sender.left(next, link, usize::from(payload.len), cx.io.now);
                if let Next::Symbol { number, is_repair: false, .. } = next
                    && is_source
                {
                    paths.note_left(place, number, cx.io.now);
                }
                if sender.is_at_rest(cx.io.now) {
                    break;
                }
            }
            let (too_large, lagged) = sender.take_given_up();
            cx.counters.too_large += too_large;
            cx.counters.lagged += lagged;
            cx.counters.repairs_refused += sender.take_refused();
        }
        has_arrived && arrived.is_none()
    }

    /// When [`Senders::pump`] is due next.
    pub(crate) fn due(&self, now: Nanos) -> Option<Nanos> {
        let due = |at, (_, sender): &(PeerId, Sender)| earlier(at, sender.due(now));
        let due = self.hops.iter().fold(self.paths.due(&self.hops, now), due);
        match self.again_at {
            Some(again) => Some(due.map_or(again, |due| due.max(again))),
            None => due,
        }
    }

    /// The current state of the next hops.
    pub(crate) fn report(&self, store: &Store) -> Vec<NextHop> {
        let hops = self.hops.iter().enumerate();
        hops.map(|(place, (peer, sender))| NextHop {
            peer: *peer,
            bytes_per_second: sender.link.rate.bytes_per_second(),
            heard: sender.heard(),
            silence: sender.silence(),
            black_hole: sender.link.sizes().black_hole(),
            planned: sender.planned(),
            branch: Branch { waits_since: sender.waits_since(store), ..self.paths.branch(place) },
        })
        .collect()
    }

    /// Drops all queues.
    pub(crate) fn clear(&mut self) {
        self.hops.iter_mut().for_each(|(_, sender)| sender.clear());
    }
}

/// Minimum size of a full packet: the minimum MTU of a tunnel, plus the overhead of keys. A relay
/// of tagged symbols does not know whether they are sealed as well, and assumes the default:
/// sealed.
fn floor(params: &FlowParams) -> u16 {
    let sealing_bytes = sealing_bytes(params.sealed || params.tagged);
    FLOOR_BYTES + (sealing_bytes + params.tag_bytes()) as u16
}

/// Bits of the receivers that remain.
fn bits_of(hops: &[(PeerId, Sender)], peers: &[PeerId]) -> u8 {
    let stay = hops.iter().filter(|(peer, _)| peers.contains(peer));
    stay.fold(0, |bits, (_, sender)| bits | 1 << sender.receiver())
}

/// Writes a packet to a frame. Returns its payload and class.
fn write<F: Frames, E: Egress>(
    cx: &mut Context<'_, '_, F, E>,
    store: &mut Store,
    sender: &Sender,
    next: Next,
    room: Room,
    outgoing: &Outgoing,
) -> (Span, u8) {
    let Room { span, in_place } = room;
    let Outgoing { epoch, window_log2, hop_index, profile, .. } = *outgoing;
    let flags = match next {
        Next::Keepalive | Next::Probe(_) => Flags(Flags::END),
        Next::Combination(_) => Flags(0),
        Next::Symbol { is_repair, .. } => Flags(Flags::SYSTEMATIC).with(Flags::REPAIR, is_repair),
    };
    let flags = flags.with(Flags::INTERACTIVE, profile == StreamProfile::Interactive);
    let parts = cx.params.spread != Spread::Every && cx.hops.len() > 1;
    let flags = flags.with(Flags::PATHS, outgoing.has_paths || parts);
    let mut common = cx.header(PacketType::Stream, flags, epoch);
    common.hop_index = hop_index;
    let header = StreamHeader { common, window_log2, round_trips: outgoing.round_trips };
    let header = match outgoing.open_loop {
        // Saturates.
        Some(rho) => header.with_open_loop((rho * f64::from(OPEN_LOOP_UNITS) + 0.5) as u16),
        None => header.with_round_trip(sender.link.round_trip.mean()),
    };
    match next {
        Next::Keepalive => {
            let payload = payload_of(span, KEEPALIVE_BYTES);
            header.write(cx.io.frames.bytes_mut(payload));
            cx.counters.sent_keepalive += 1;
            (payload, 0)
        }
        Next::Probe(bytes) => {
            // The position of a symbol of that size.
            let len = bytes.saturating_sub(STREAM_BYTES as u16);
            let payload = payload_of(Span { len, ..span }, STREAM_BYTES);
            let out = cx.io.frames.bytes_mut(payload);
            out.fill(0);
            header.write(out);
            cx.counters.sent_probe += 1;
            (payload, 0)
        }
        Next::Combination(combination) => combine(cx, store, sender, span, combination, &header),
        Next::Symbol { number, place, is_repair } => {
            let Some(symbol) = store.get(number) else { return (span, 0) };
            let bytes = symbol.packet.len() as u16;
            let class = class::outer(class::of_carried(symbol.packet));
            let payload = match in_place {
                Some(symbol) => symbol.payload,
                None => payload_of(Span { len: bytes, ..span }, STREAM_BYTES),
            };
            let out = cx.io.frames.bytes_mut(payload);
            header.write(out);
            let (after, place) = (symbol.after, place as u16);
            write_symbol(&StreamSymbol { number, after, place, bytes }, out);
            if in_place.is_none() {
                out[STREAM_BYTES..].copy_from_slice(symbol.packet);
            }
            let counters = &mut *cx.counters;
            match (is_repair, hop_index) {
                (true, _) => counters.sent_repair += 1,
                (false, 0) => counters.sent_systematic += 1,
                (false, _) => counters.sent_forwarded += 1,
            }
            (payload, class)
        }
    }
}

/// Writes a combination to a frame, with the class of its newest symbol.
fn combine<F: Frames, E: Egress>(
    cx: &mut Context<'_, '_, F, E>,
    store: &Store,
    sender: &Sender,
    span: Span,
    combination: Combination,
    header: &StreamHeader,
) -> (Span, u8) {
    let count = usize::from(combination.count);
    let number = |at: usize| sender.number_at(combination.first.wrapping_add(at as u32));
    let longest = (0..count).filter_map(|at| store.coded_bytes(number(at))).max().unwrap_or(0);
    let mut symbols: [&[u8]; COMBINED_MAX] = [&[]; COMBINED_MAX];
    for (at, place) in symbols[..count].iter_mut().enumerate() {
        *place = store.coded(number(at), longest).unwrap_or_default();
    }
    let newest = store.get(number(count - 1)).map_or(0, |symbol| class::of_carried(symbol.packet));
    let payload = payload_of(Span { len: longest as u16, ..span }, COMBINATION_BYTES);
    let out = cx.io.frames.bytes_mut(payload);
    header.write(out);
    write_combination(&combination, out);
    let sum = &mut out[COMBINATION_BYTES..];
    combination_of(cx.io.combiner.kernel(), combination.key, &symbols[..count], sum);
    match header.common.hop_index {
        0 => cx.counters.sent_coded += 1,
        _ => cx.counters.sent_recoded += 1,
    }
    (payload, class::outer(newest))
}
