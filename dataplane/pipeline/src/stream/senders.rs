//! The sending side of a node of a stream: each next hop by itself, at its own pace, out of one
//! store.

use crate::edge::class;
use crate::egress::Egress;
use crate::io::{Context, earlier};
use crate::layout::{payload_of, symbol_offset};
use crate::params::{FlowParams, Nanos, PeerId, Spread, StreamProfile};
use crate::peer::repair::{ROUNDS, RepairBudget};
use crate::report::{DropReason, NextHop};
use crate::stream::paths::Paths;
use crate::stream::sender::{Next, Sender};
use crate::stream::store::Store;
use recoded_code::window::{COMBINED_MAX, combination as combination_of};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Flags, PacketType};
use recoded_wire::link::LinkReport;
use recoded_wire::stream::{
    COMBINATION_BYTES, Combination, KEEPALIVE_BYTES, STREAM_BYTES, StreamHeader, StreamSymbol,
    write_combination, write_symbol,
};

/// Packets that one call sends to one hop: no other flow is served meanwhile.
const PER_CALL: usize = 64;

/// When frames ran out, it is tried again after this.
const AGAIN_NANOS: Nanos = 1_000_000;

/// What all packets that leave have in common.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Outgoing {
    pub epoch: u8,
    pub window_log2: u8,
    /// Hops travelled, and the sum of their round trips, in units of the wire.
    pub hop_index: u8,
    pub round_trips: u16,
    pub profile: StreamProfile,
    /// Whether the stream is spread over several paths.
    pub has_paths: bool,
}

/// What became of a request of the sink.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answered {
    /// The symbol is on its way, or was before.
    Done,
    /// The symbol is not here.
    Unknown,
    /// There is no budget for it.
    Refused,
}

/// All next hops.
#[derive(Debug)]
pub(crate) struct Senders {
    hops: Vec<(PeerId, Sender)>,
    paths: Paths,
    symbols: usize,
    /// What the sink's requests may cost.
    budget: RepairBudget,
    again_at: Option<Nanos>,
}

impl Senders {
    /// For the next hops of a flow and a window of so many symbols, a power of two.
    pub(crate) fn new(params: &FlowParams, symbols: usize) -> Self {
        Self::to(&params.next_hops, params.spread, symbols)
    }

    fn to(peers: &[PeerId], spread: Spread, symbols: usize) -> Self {
        let receivers = spread.receivers(peers.len());
        let is_path = spread != Spread::Every;
        let sender = |hop: usize| Sender::new((hop, hop.min(receivers - 1)), is_path, symbols);
        let hops = peers.iter().enumerate().map(|(hop, peer)| (*peer, sender(hop))).collect();
        let paths = Paths::new(spread, symbols);
        Self { hops, paths, symbols, budget: RepairBudget::new(), again_at: None }
    }

    /// Bytes that it allocates.
    pub(crate) fn memory_bytes(params: &FlowParams, symbols: usize) -> usize {
        let sender = Sender::memory_bytes(symbols) + size_of::<Sender>();
        params.next_hops.len() * sender + Paths::memory_bytes(params.spread, symbols)
    }

    /// Follows a change of neighbours: one that is new begins with what comes next. Whether there
    /// was one.
    fn follow<F, E>(&mut self, cx: &Context<'_, '_, F, E>) -> bool {
        let spread = cx.params.spread;
        let is_same = self.hops.len() == cx.hops.len()
            && self.paths.spread() == spread
            && self.hops.iter().enumerate().all(|(place, (peer, _))| cx.hops.peer(place) == *peer);
        if !is_same {
            let peers: Vec<PeerId> = (0..cx.hops.len()).map(|place| cx.hops.peer(place)).collect();
            *self = Senders::to(&peers, spread, self.symbols);
        }
        !is_same
    }

    /// Queues a symbol of so many bytes for all next hops, or for the path that it is to take.
    pub(crate) fn queue(&mut self, (number, bytes): (u32, usize), now: Nanos) {
        self.budget.earn(1);
        let Self { hops, paths, symbols, .. } = self;
        if paths.spread() != Spread::Every {
            let path = paths.assign(hops, (number, bytes), false, now);
            return hops.get_mut(path).into_iter().for_each(|(_, sender)| {
                sender.queue(number, *symbols);
            });
        }
        for (_, sender) in hops {
            sender.queue(number, *symbols);
        }
    }

    /// Answers the sink's request of a round for a symbol, if it is here and was not answered
    /// before.
    pub(crate) fn answer(
        &mut self,
        store: &mut Store,
        (number, round): (u32, u8),
        now: Nanos,
    ) -> Answered {
        if round >= ROUNDS || !store.is_known(number) {
            return Answered::Unknown;
        }
        if !self.budget.is_left() {
            return Answered::Refused;
        }
        if store.answers(number, round) {
            self.budget.grant(1, || 1);
            let Self { hops, paths, .. } = self;
            let is_one_path = paths.spread() != Spread::Every;
            let about = (number, store.packet_bytes(number));
            let path = is_one_path.then(|| paths.assign(hops, about, true, now));
            for (place, (_, sender)) in hops.iter_mut().enumerate() {
                if path.is_none_or(|path| path == place) {
                    sender.queue_first(number);
                }
            }
        }
        Answered::Done
    }

    /// Whether a symbol that comes now can leave soon; otherwise when to ask again, if that is
    /// known.
    pub(crate) fn opens_at(&self, now: Nanos) -> Result<(), Option<Nanos>> {
        if self.paths.spread() != Spread::Every {
            return self.paths.opens_at(&self.hops, now);
        }
        let mut at = None;
        let mut is_closed = false;
        for (_, sender) in &self.hops {
            match sender.opens_at(now) {
                Ok(()) if sender.is_idle() => {}
                Ok(()) => is_closed = true,
                Err(opens) => {
                    is_closed = true;
                    at = at.max(opens);
                }
            }
        }
        if is_closed { Err(at) } else { Ok(()) }
    }

    /// Whether an IP packet that is to leave is too large for every next hop.
    pub(crate) fn refuse(&mut self, packet_bytes: usize) -> bool {
        self.hops.iter_mut().all(|(_, sender)| sender.refuses(packet_bytes))
    }

    /// Whether every next hop has a number.
    pub(crate) fn have(&self, store: &Store, number: u32) -> bool {
        self.hops.iter().all(|(_, sender)| store.is_done(number, sender.receiver()))
    }

    /// Whether what comes now may not arrive, as far as that shows so soon.
    pub(crate) fn are_in_doubt(&self, now: Nanos) -> bool {
        self.hops.iter().all(|(_, sender)| sender.is_in_doubt(now))
    }

    /// How long what comes now waits for the slowest of them, or on the fastest path.
    pub(crate) fn backlog(&self, symbol_bytes: usize, now: Nanos) -> Nanos {
        let backlog = |(_, sender): &(PeerId, Sender)| sender.backlog(symbol_bytes, now);
        let backlogs = self.hops.iter().map(backlog);
        let is_one_path = self.paths.spread() != Spread::Every;
        if is_one_path { backlogs.min() } else { backlogs.max() }.unwrap_or(0)
    }

    /// The longest sum of the round trips of the hops from here on.
    pub(crate) fn path_round_trip(&self) -> Nanos {
        self.hops.iter().map(|(_, sender)| sender.path_round_trip()).max().unwrap_or(0)
    }

    /// Reads what a neighbour reports.
    ///
    /// # Errors
    /// [`DropReason::UnknownPeer`] when it is none of them.
    pub(crate) fn hear(
        &mut self,
        store: &mut Store,
        (peer, report, payload): (PeerId, &LinkReport, &[u8]),
        now: Nanos,
    ) -> Result<(), DropReason> {
        let sender = self.hops.iter_mut().find(|(known, _)| *known == peer);
        let (_, sender) = sender.ok_or(DropReason::UnknownPeer)?;
        sender.hear(store, (report, payload), now);
        Ok(())
    }

    /// The largest UDP payload that every next hop gets, if larger ones do not arrive.
    pub(crate) fn limit(&self) -> Option<u16> {
        self.hops.iter().filter_map(|(_, sender)| sender.sizes().limit()).min()
    }

    /// Sends what may leave now.
    pub(crate) fn pump(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        store: &mut Store,
        outgoing: &Outgoing,
    ) {
        if self.follow(cx) {
            store.follow(self.paths.spread().receivers(self.hops.len()));
        }
        self.paths.watch(&mut self.hops, store, cx.io.now);
        self.again_at = None;
        for (_, sender) in &mut self.hops {
            sender.protect(outgoing.profile);
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
                let offset = symbol_offset(COMBINATION_BYTES) as u16;
                let span = Span { frame, offset, len: 0 };
                let (payload, class) = write(cx, store, (sender, next, span), outgoing);
                let link = cx.send_to(sender.hop(), payload, class);
                sender.left(next, (link, usize::from(payload.len)), cx.io.now);
                if sender.is_at_rest(cx.io.now) {
                    break;
                }
            }
            cx.counters.too_large += sender.take_given_up();
        }
    }

    /// When [`Senders::pump`] has something to do.
    pub(crate) fn due(&self, now: Nanos) -> Option<Nanos> {
        let due = |at, (_, sender): &(PeerId, Sender)| earlier(at, sender.due(now));
        let due = self.hops.iter().fold(self.paths.due(&self.hops, now), due);
        match self.again_at {
            Some(again) => Some(due.map_or(again, |due| due.max(again))),
            None => due,
        }
    }

    /// The next hops as they are now.
    pub(crate) fn report(&self) -> Vec<NextHop> {
        let hops = self.hops.iter();
        hops.map(|(peer, sender)| NextHop {
            peer: *peer,
            bytes_per_second: sender.bytes_per_second(),
            heard: sender.heard(),
            is_silent: sender.is_silent(),
            black_hole: sender.sizes().black_hole(),
            planned: sender.planned(),
        })
        .collect()
    }

    /// Lets go of everything that waits.
    pub(crate) fn clear(&mut self) {
        self.hops.iter_mut().for_each(|(_, sender)| sender.clear());
    }
}

/// Writes a packet to a frame; `span` says where its symbol begins. Returns its payload and class.
fn write<F: Frames, E: Egress>(
    cx: &mut Context<'_, '_, F, E>,
    store: &mut Store,
    (sender, next, span): (&Sender, Next, Span),
    outgoing: &Outgoing,
) -> (Span, u8) {
    let Outgoing { epoch, window_log2, hop_index, round_trips, profile, has_paths } = *outgoing;
    let flags = match next {
        Next::Keepalive | Next::Probe(_) => Flags(Flags::END),
        Next::Combination(_) => Flags(0),
        Next::Symbol { is_repair, .. } => Flags(Flags::SYSTEMATIC).with(Flags::REPAIR, is_repair),
    };
    let flags = flags.with(Flags::INTERACTIVE, profile == StreamProfile::Interactive);
    let parts = cx.params.spread != Spread::Every && cx.hops.len() > 1;
    let flags = flags.with(Flags::PATHS, has_paths || parts);
    let mut common = cx.header(PacketType::Stream, flags, epoch);
    common.hop_index = hop_index;
    let header =
        StreamHeader { common, window_log2, round_trips }.with_round_trip(sender.round_trip());
    match next {
        Next::Keepalive => {
            let payload = payload_of(span, KEEPALIVE_BYTES);
            header.write(cx.io.frames.bytes_mut(payload));
            cx.counters.sent_keepalive += 1;
            (payload, 0)
        }
        Next::Probe(bytes) => {
            // Where a symbol of that size lies.
            let len = bytes.saturating_sub(STREAM_BYTES as u16);
            let payload = payload_of(Span { len, ..span }, STREAM_BYTES);
            let out = cx.io.frames.bytes_mut(payload);
            out.fill(0);
            header.write(out);
            cx.counters.sent_probe += 1;
            (payload, 0)
        }
        Next::Combination(combination) => combine(cx, store, (sender, span, combination), &header),
        Next::Symbol { number, place, is_repair } => {
            let Some(symbol) = store.get(number) else { return (span, 0) };
            let bytes = symbol.packet.len() as u16;
            let class = class::outer(class::of_carried(symbol.packet));
            let payload = payload_of(Span { len: bytes, ..span }, STREAM_BYTES);
            let out = cx.io.frames.bytes_mut(payload);
            header.write(out);
            let (after, place) = (symbol.after, place as u16);
            write_symbol(&StreamSymbol { number, after, place, bytes }, out);
            out[STREAM_BYTES..].copy_from_slice(symbol.packet);
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

/// Writes a combination to a frame, whose class is that of its newest symbol.
fn combine<F: Frames, E: Egress>(
    cx: &mut Context<'_, '_, F, E>,
    store: &Store,
    (sender, span, combination): (&Sender, Span, Combination),
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
