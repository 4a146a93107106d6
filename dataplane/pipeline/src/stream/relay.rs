//! A relay of a stream: it stores symbols, forwards each as soon as it is known, and recovers
//! losses on the link to the next node on its own.

use crate::config::params::{FlowParams, Nanos, PeerId, StreamParams};
use crate::config::report::{DropReason, FlowReport};
use crate::config::segmentation::Comparison;
use crate::env::egress::Egress;
use crate::hop::receive::link_report::Onward;
use crate::hop::receive::loss::hop_report;
use crate::packet::arrival::{Arrival, Data, Fate};
use crate::packet::incoming::Incoming;
use crate::stream::combination_decoder::CombinationDecoders;
use crate::stream::senders::{Answered, ArrivedSymbol, Outgoing, Senders};
use crate::stream::store::Store;
use crate::stream::window_admission::{self, Candidate, Kept};
use crate::unit::context::Context;
use crate::unit::role::Lifecycle;
use crate::unit::tags;
use recoded_wire::feedback::{FeedbackHeader, Item, SizeReport, items, withdraw_nacks};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::Flags;
use recoded_wire::link::LinkReport;
use recoded_wire::stream::{
    COMBINATION_BYTES, OPEN_LOOP_UNITS, STREAM_BYTES, StreamBody, StreamSymbol,
};

/// Interval of reports passed on from several receivers without requests: that of a single
/// receiver.
const SAMPLE_NANOS: Nanos = 20_000_000;

/// Relay state of a stream.
pub(crate) struct StreamRelay {
    store: Store,
    senders: Senders,
    incoming: Incoming,
    decoders: CombinationDecoders,
    outgoing: Outgoing,
    /// When a report of several receivers without requests was last passed on.
    sampled_at: Nanos,
}

impl StreamRelay {
    pub(crate) fn new(params: &FlowParams, code: StreamParams) -> Self {
        let window_log2 = code.window_log2();
        let symbols = 1 << window_log2;
        Self {
            store: Store::new(
                symbols,
                params.symbol_bytes,
                params.spread.receivers(params.next_hops.len()),
            ),
            senders: Senders::new(params, symbols),
            incoming: Incoming::default(),
            decoders: CombinationDecoders::new(params),
            outgoing: Outgoing {
                epoch: 0,
                window_log2,
                hop_index: 0,
                round_trips: 0,
                profile: code.profile,
                has_paths: false,
                open_loop: None,
            },
            sampled_at: 0,
        }
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes(params: &FlowParams, code: &StreamParams) -> usize {
        let symbols = 1 << code.window_log2();
        Store::memory_bytes(symbols, params.symbol_bytes)
            + CombinationDecoders::memory_bytes(params)
            + Senders::memory_bytes(params, symbols)
    }

    fn pump(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let Self { store, senders, outgoing, .. } = self;
        senders.pump(cx, store, outgoing, None);
    }
}

impl Lifecycle for StreamRelay {
    fn receive(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        arrival: &Arrival<'_>,
    ) -> Fate {
        let Arrival { payload, data: Data::Stream(packet), key, .. } = arrival else {
            return Fate::Dropped(DropReason::WrongCode);
        };
        let header = packet.header;
        self.incoming.arrived_stream(packet);
        self.outgoing = Outgoing {
            epoch: header.common.epoch,
            window_log2: header.window_log2,
            hop_index: header.common.hop_index.saturating_add(1),
            round_trips: header.round_trips,
            profile: StreamParams::announced(&header).profile,
            has_paths: header.common.flags.has(Flags::PATHS),
            //= docs/protocol §2.6(d)
            open_loop: header.open_loop().map(|units| {
                let combinations = f64::from(units) / f64::from(OPEN_LOOP_UNITS);
                combinations.min(cx.params.redundancy_max - 1.0)
            }),
        };
        let decoder = self.decoders.of(cx.upstream.place);
        decoder.set_open_loop(header.open_loop().is_some());
        let bytes = cx.io.frames.bytes(*payload);
        let is_repair = header.common.flags.has(Flags::REPAIR);
        let mut arrived = None;
        let is_news = match packet.body {
            StreamBody::Keepalive => return Fate::Consumed,
            StreamBody::Symbol(symbol) => {
                arrived = Some(ArrivedSymbol { number: symbol.number, payload: *payload });
                let packet = &bytes[STREAM_BYTES..];
                let candidate = Candidate { symbol, packet, key: *key };
                let Self { store, senders, incoming, .. } = self;
                match keep(store, senders, incoming, &candidate, cx.io.now, cx.params) {
                    // Not acknowledged: it is retransmitted once others confirm its number.
                    Kept::Stray => return Fate::Dropped(DropReason::Stray),
                    kept => {
                        let decoder = self.decoders.of(cx.upstream.place);
                        decoder.symbol(&symbol, packet, is_repair, cx.io.now);
                        kept.is_news()
                    }
                }
            }
            StreamBody::Combination(combination) => {
                let sum = &bytes[COMBINATION_BYTES..];
                let decoder = self.decoders.of(cx.upstream.place);
                match decoder.combination(&combination, sum, cx.io.now) {
                    Some(is_news) => is_news,
                    // Not acknowledged: the symbols that it should recover are retransmitted.
                    None => return Fate::Dropped(DropReason::Stray),
                }
            }
        };
        cx.counters.innovative += u64::from(is_news);
        cx.counters.redundant += u64::from(!is_news);
        let Self { store, senders, incoming, decoders, .. } = self;
        let decoder = decoders.of(cx.upstream.place);
        while let Some((symbol, packet)) = decoder.next(header.window_symbols()) {
            let (now, params) = (cx.io.now, cx.params);
            let verified = tags::verify_stream(cx.io.egress, cx.shard, params, &symbol, packet);
            let Ok(key) = verified else {
                cx.counters.tag_refused += 1;
                decoder.distrust();
                continue;
            };
            let candidate = Candidate { symbol, packet, key };
            if keep(store, senders, incoming, &candidate, now, params) == Kept::Stray {
                decoder.refuse();
            }
        }
        let Self { store, senders, outgoing, .. } = self;
        let is_forwarded = senders.pump(cx, store, outgoing, arrived.filter(|_| is_news));
        if is_forwarded { Fate::Forwarded } else { Fate::Consumed }
    }

    fn hear_link(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        peer: PeerId,
        report: &LinkReport,
        payload: Span,
    ) -> Result<(), DropReason> {
        let bytes = cx.io.frames.bytes(payload);
        self.senders.hear(&mut self.store, peer, report, bytes, cx.io.now)?;
        self.pump(cx);
        Ok(())
    }

    fn hand_up(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        peer: PeerId,
        payload: Span,
        mut header: FeedbackHeader,
    ) -> Fate {
        if !cx.upstream.reporter.climbs(&mut header, cx.io.frames.bytes(payload)) {
            return Fate::Consumed;
        }
        let Self { store, senders, .. } = self;
        let (counters, now) = (&mut *cx.counters, cx.io.now);
        withdraw_nacks(cx.io.frames.bytes_mut(payload), |nack| {
            match senders.answer(store, peer, nack.unit, nack.round, now) {
                Answered::Done => counters.repairs += 1,
                Answered::Refused => counters.repairs_refused += 1,
                Answered::Unknown => return false,
            }
            true
        });
        self.pump(cx);
        if self.senders.gather_reports() && !is_urgent(cx.io.frames.bytes(payload)) {
            // Only a sample of the reports of many receivers is passed on.
            if cx.io.now < self.sampled_at + SAMPLE_NANOS {
                return Fate::Consumed;
            }
            self.sampled_at = cx.io.now;
        }
        let loss = cx.upstream.loss.loss();
        cx.upstream.reporter.relay(cx.io, payload, &header, loss)
    }

    fn adopt(&mut self, params: &FlowParams) {
        self.decoders.adopt(params);
    }

    fn apply_pace(&mut self, peer: PeerId, pace: Option<f64>) -> Comparison {
        self.senders.settle(peer, pace)
    }

    fn onward(&mut self, now: Nanos, symbol_bytes: usize, upstream: usize) -> Onward {
        // If there are other paths, prefer speed to certainty.
        let is_in_doubt = self.outgoing.has_paths && self.senders.are_in_doubt(now);
        Onward {
            backlog: match is_in_doubt {
                true => Nanos::MAX,
                false => self.senders.backlog(symbol_bytes, now),
            },
            beyond: self.senders.path_round_trip(),
            missing: self.decoders.of(upstream).missing(),
        }
    }

    fn abandon(&mut self, upstream: usize, symbol: &StreamSymbol) -> bool {
        self.decoders.of(upstream).give_up(symbol);
        true
    }

    fn tick(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> Option<Nanos> {
        self.pump(cx);
        if cx.upstream.reporter.due().is_some_and(|due| due <= cx.io.now) {
            let loss = hop_report(&cx.upstream.loss);
            let hop = self.outgoing.hop_index.saturating_sub(1);
            let size = self.senders.limit().map(|bytes| Item::Size(SizeReport { hop, bytes }));
            let epoch = cx.upstream.epoch();
            cx.upstream.reporter.send(cx.io, epoch, |writer| {
                loss.into_iter().chain(size).for_each(|item| {
                    writer.push(item);
                });
            });
        }
        self.wake(cx.params, cx.io.now)
    }

    fn wake(&self, _params: &FlowParams, now: Nanos) -> Option<Nanos> {
        self.senders.due(now)
    }

    fn fill(&self, report: &mut FlowReport) {
        self.incoming.fill(report);
        report.next_hops = self.senders.report(&self.store);
    }
}

/// Whether a report contains a request, or a limit of a link that the source must follow.
fn is_urgent(payload: &[u8]) -> bool {
    items(payload).any(|item| matches!(item, Item::Nack(_) | Item::Size(_)))
}

/// Stores a symbol and queues it for the next hops.
fn keep(
    store: &mut Store,
    senders: &mut Senders,
    incoming: &mut Incoming,
    candidate: &Candidate<'_>,
    now: Nanos,
    params: &FlowParams,
) -> Kept {
    let kept = window_admission::keep(store, incoming, candidate, now, params);
    if kept == Kept::First {
        senders.clear();
    }
    if kept.is_news() {
        senders.queue(candidate.symbol.number, candidate.packet.len(), now);
    }
    kept
}
