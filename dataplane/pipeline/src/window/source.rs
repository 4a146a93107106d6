//! Source edge of a window flow: IP packets in, source packets and repair packets out.

use crate::combine::Combiner;
use crate::context::Context;
use crate::edge::class;
use crate::egress::Egress;
use crate::io::Io;
use crate::layout::{payload_of, symbol_offset};
use crate::params::{FlowCode, FlowParams, Nanos, PeerId, ShardId, WindowParams};
use crate::peer::mender::Mender;
use crate::peer::path_size::PathSize;
use crate::peer::sent::Carried;
use crate::plan::Plan;
use crate::report::FlowReport;
use crate::role::Lifecycle;
use crate::segmentation::Comparison;
use crate::source::remote::Remote;
use crate::source::{Inbound, SourceCode};
use crate::time::earlier;
use crate::window::kept::{KeptPackets, kept_packets};
use crate::window::pace::{Mending, Pace};
use crate::window::{density, field, parameters};
use recoded_code::window::{ENCODING_WINDOW_MAX, Encoder, Parameters};
use recoded_wire::feedback::{FeedbackHeader, Item, items};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Flags, HEADER_BYTES, PacketType};
use recoded_wire::link::LinkReport;
use recoded_wire::window::{ADU_HEADER_BYTES, SOURCE_ID_BYTES, WINDOW_BYTES, write_header};

/// Repair packets of a tail per call: no other flow is served meanwhile.
const TAIL_PER_CALL: usize = 32;

/// Overhead of a source packet around its IP packet.
const OVERHEAD_BYTES: usize = HEADER_BYTES + SOURCE_ID_BYTES;

/// The sink is silent when it has not reported for this time and a round trip. It reports every 20
/// ms, and reports are lost on the return path: over six hops of 20 %, three in four.
const SILENCE_NANOS: Nanos = 500_000_000;

/// Source state of a window flow.
pub(crate) struct WindowSource {
    code: WindowParams,
    parameters: Parameters,
    encoder: Encoder,
    /// The ESI of the next packet.
    next: u32,
    epoch: u8,
    pace: Pace,
    /// When the tail of repair packets for the last packets is due.
    flush_at: Option<Nanos>,
    /// Traffic class of the newest IP packet.
    class: u8,
    remote: Remote,
    mender: Mender,
    kept: KeptPackets,
    /// The largest packet that the whole path carries.
    size: PathSize,
    /// When the first packet without a later report of the sink was sent.
    unheard_since: Option<Nanos>,
    has_heard: bool,
    /// Whether round trips of the path are long, relative to its losses and its traffic.
    is_slow: bool,
}

impl WindowSource {
    pub(crate) fn new(
        shard: ShardId,
        params: &FlowParams,
        code: WindowParams,
        combiner: &mut Combiner,
    ) -> Self {
        let parameters = parameters(params, &code, ENCODING_WINDOW_MAX);
        // A random start separates a restarted source from stragglers of its previous run.
        let next = combiner.next_u32();
        Self {
            code,
            parameters,
            encoder: encoder(parameters, next),
            next,
            epoch: combiner.next_u32() as u8,
            pace: Pace::new(shard, params, &code),
            flush_at: None,
            class: 0,
            remote: Remote::new(),
            mender: Mender::new(kept_packets(params)),
            kept: KeptPackets::new(kept_packets(params)),
            size: PathSize::default(),
            unheard_since: None,
            has_heard: false,
            is_slow: false,
        }
    }

    /// State of the packets in flight to the next node.
    pub(crate) fn mender(&self) -> &Mender {
        &self.mender
    }

    /// Sends a repair packet over the encoding window.
    fn send_repair(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let symbol_bytes = usize::from(self.parameters.symbol_bytes);
        let Some(payload) = take(cx.io, symbol_bytes, WINDOW_BYTES) else {
            cx.counters.send_failed += 1;
            return;
        };
        let body = &mut cx.io.frames.bytes_mut(payload)[HEADER_BYTES..];
        match self.encoder.repair(density(&self.code), body) {
            Ok(_) => {
                cx.counters.sent_coded += 1;
                let number = cx.hops.next_number().filter(|_| cx.asks_to_mend());
                self.send(cx, payload, 0);
                if let Some(number) = number {
                    let what = (Carried::Nothing, usize::from(payload.len));
                    self.mender.left_with(what, (number, 1), cx.io.now);
                }
            }
            // No source packet has been sent yet.
            Err(_) => cx.io.frames.release(payload.frame),
        }
    }

    /// Whether all hops recover their losses: the first one reports, and reports of the sink
    /// arrive, so that each other hop has a return path, too.
    fn hops_do<F, E>(&self, cx: &Context<'_, '_, F, E>) -> Mending {
        if !cx.asks_to_mend() || !self.mender.is_on(cx.io.now) || self.is_silent(cx.io.now) {
            Mending::Nothing
        } else if self.is_slow {
            Mending::Late
        } else {
            Mending::Soon
        }
    }

    /// Whether the sink's reports are overdue.
    fn is_silent(&self, now: Nanos) -> bool {
        let patience = SILENCE_NANOS + self.mender.path_round_trip();
        !self.has_heard || self.unheard_since.is_some_and(|since| since + patience <= now)
    }

    /// Updates the pace of the link, and returns the fates of packets reported since the last call.
    pub(crate) fn settle(&mut self, pace: Option<f64>) -> Comparison {
        self.mender.settle(pace)
    }

    /// Reads the next node's report on the link to it, and sends the packets it lacks.
    pub(crate) fn hear_link(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        (report, payload): (&LinkReport, Span),
    ) {
        let Self { mender, kept, .. } = self;
        let about = (report, cx.io.frames.bytes(payload));
        mender.hear_each(about, cx.io.now, |carried, outcome| {
            if let Carried::Source(esi) = carried {
                kept.note(esi, outcome);
            }
        });
        kept.mend(cx, mender);
        self.size.age(cx.io.now);
        if let Some(bytes) = self.mender.limit() {
            self.size.hear(bytes, cx.io.now);
        }
    }

    /// Writes the header of a packet and sends it.
    fn send(&self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, payload: Span, flags: u8) {
        let flags = Flags(flags | field(self.parameters.scheme).code());
        let flags = flags.with(Flags::MENDED, cx.asks_to_mend());
        let header = cx.header(PacketType::Window, flags, self.epoch);
        let bytes = cx.io.frames.bytes_mut(payload);
        let Parameters { symbol_bytes, window_symbols, .. } = self.parameters;
        write_header(&header, symbol_bytes, window_symbols as u16, bytes);
        cx.send(payload, self.class);
    }

    /// Sends the tail of repair packets, or the next part of it.
    fn flush(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let params = cx.params;
        for _ in 0..TAIL_PER_CALL {
            if !self.pace.spend_on_tail(params) {
                self.flush_at = None;
                return;
            }
            self.send_repair(cx);
        }
        self.flush_at = Some(cx.io.now);
    }
}

impl SourceCode for WindowSource {
    fn apply(&mut self, new: &FlowParams, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let FlowCode::Window(code) = new.code else { return };
        let parameters = parameters(new, &code, ENCODING_WINDOW_MAX);
        if parameters != self.parameters {
            self.drain(cx);
            self.epoch = self.epoch.wrapping_add(1);
            self.parameters = parameters;
            self.encoder = encoder(parameters, self.next);
        }
        self.code = code;
        self.pace.reset(new, &code);
    }

    fn epoch(&self) -> u8 {
        self.epoch
    }

    fn begin_epoch(&mut self, epoch: u8) {
        self.epoch = epoch;
        // An epoch begins with an empty window: sinks do not have packets sent before it.
        self.encoder.reset(self.next);
    }

    fn takes(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        carried_bytes: usize,
    ) -> bool {
        let room = usize::from(self.parameters.symbol_bytes) - ADU_HEADER_BYTES;
        cx.counters.ingress_dropped += u64::from(carried_bytes > room);
        let is_too_large = cx.asks_to_mend() && self.mender.refuses(carried_bytes + OVERHEAD_BYTES);
        cx.counters.too_large += u64::from(carried_bytes <= room && is_too_large);
        carried_bytes <= room && !is_too_large
    }

    fn ingress(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        Inbound { packet, carried }: Inbound<'_>,
    ) {
        let params = cx.params;
        self.pace.refresh(params, &self.code, cx.io);
        let Some(payload) = take(cx.io, carried.len() + SOURCE_ID_BYTES, 0) else {
            cx.counters.ingress_dropped += 1;
            cx.counters.send_failed += 1;
            return;
        };
        let Ok(esi) = self.encoder.push(0, carried) else {
            cx.io.frames.release(payload.frame);
            cx.counters.ingress_dropped += 1;
            return;
        };
        self.next = esi.wrapping_add(1);
        self.class = class::outer(class::of(packet));
        let (adu, id) = cx.io.frames.bytes_mut(payload)[HEADER_BYTES..].split_at_mut(carried.len());
        adu.copy_from_slice(carried);
        id.copy_from_slice(&esi.to_be_bytes());
        cx.counters.generations += 1;
        cx.counters.source_symbols += 1;
        cx.counters.sent_systematic += 1;
        let number = cx.hops.next_number().filter(|_| cx.asks_to_mend());
        if number.is_some() {
            cx.io.frames.retain(payload.frame);
        }
        self.send(cx, payload, Flags::SYSTEMATIC);
        if let Some(number) = number {
            self.kept.keep(cx, &mut self.mender, (number, esi, payload, self.class));
            cx.io.frames.release(payload.frame);
        }
        self.unheard_since.get_or_insert(cx.io.now);
        self.pace.set(self.hops_do(cx));
        self.pace.earn(params, &self.code);
        while self.pace.spend() {
            self.send_repair(cx);
        }
        self.flush_at = Some(cx.io.now + params.flush_timeout_nanos);
    }

    fn receive_feedback(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        (_, payload): (PeerId, Span),
        header: FeedbackHeader,
    ) {
        let params = cx.params;
        self.size.age(cx.io.now);
        for item in items(cx.io.frames.bytes(payload)) {
            match item {
                Item::Hop(report) => {
                    self.pace.hear(
                        params,
                        &self.code,
                        (header.common.hop_index, report),
                        cx.io.now,
                    );
                }
                Item::Size(report) if report.hop == header.common.hop_index => {
                    self.size.hear(report.bytes, cx.io.now);
                }
                Item::Flow(report) => {
                    self.remote.hear(report);
                    (self.unheard_since, self.has_heard) = (None, true);
                }
                // This code requests nothing and has no generations.
                _ => {}
            }
        }
        self.pace.refresh(params, &self.code, cx.io);
        self.is_slow = self.mender.is_path_slow(self.pace.path());
    }

    fn planned(&mut self, plan: Plan) {
        self.pace.adopt(plan);
    }
}

impl Lifecycle for WindowSource {
    fn tick(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> Option<Nanos> {
        let params = cx.params;
        if self.flush_at.is_some_and(|at| at <= cx.io.now) {
            self.pace.set(self.hops_do(cx));
            self.flush(cx);
        }
        self.mender.tick(cx, (self.epoch, 0));
        self.pace.refresh(params, &self.code, cx.io);
        self.wake(params, cx.io.now)
    }

    fn wake(&self, params: &FlowParams, _now: Nanos) -> Option<Nanos> {
        self.mender.earlier(earlier(self.flush_at, self.pace.due(params)))
    }

    fn held(&self) -> usize {
        self.kept.held()
    }

    fn evict_oldest(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> bool {
        self.kept.evict_oldest(cx.io.frames)
    }

    fn release(&mut self, frames: &mut impl Frames) {
        self.kept.release(frames);
    }

    fn drain(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        self.flush(cx);
        while self.flush_at.is_some() {
            self.flush(cx);
        }
    }

    fn fill(&self, report: &mut FlowReport) {
        report.epoch = self.epoch;
        report.field = field(self.parameters.scheme);
        report.generation_size = self.parameters.window_symbols;
        let packets = self.parameters.window_symbols as f64 * (1.0 + self.pace.rate());
        report.planned = packets.ceil() as usize;
        report.hops = self.pace.hops().to_vec();
        report.is_mended = self.pace.is_mended();
        let limit = self.size.limit().map(usize::from);
        report.packet_bytes_max = limit.map(|bytes| bytes.saturating_sub(OVERHEAD_BYTES));
        self.remote.fill(report);
    }
}

fn encoder(parameters: Parameters, next: u32) -> Encoder {
    let mut encoder = Encoder::new(parameters).expect("parameters were brought into range");
    encoder.reset(next);
    encoder
}

/// A payload of a header, `before` bytes and an aligned symbol of `bytes`, in a frame of its own.
fn take(io: &mut Io<'_, impl Frames, impl Egress>, bytes: usize, before: usize) -> Option<Span> {
    let frame = io.frames.take()?;
    let symbol =
        Span { frame, offset: symbol_offset(HEADER_BYTES + before) as u16, len: bytes as u16 };
    Some(payload_of(symbol, HEADER_BYTES + before))
}
