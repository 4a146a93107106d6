//! Sink edge of a window flow: source and repair packets in, IP packets out, in order.
//!
//! The decoder keeps the newest symbols, known and missing, and this delivers them one after the
//! other. A missing one is awaited until it is recovered, the window moves past it, or the hold
//! timeout ends; then it is abandoned. No frame is held.
//!
//! ```text
//!    delivered or given up  |  known  missing  known  |  not heard of
//!  ------ base ----------- next -------------------- end ----------->  ESI
//!           <-------------- decoding window --------->
//! ```

use crate::arrival::{Arrival, Data, Fate, RESTART_DISTANCE};
use crate::context::Context;
use crate::edge::outlet::Outlet;
use crate::egress::Egress;
use crate::incoming::Incoming;
use crate::io::Io;
use crate::params::{FlowParams, Nanos, Role, WindowParams};
use crate::peer::loss::hop_report;
use crate::report::{DropReason, FlowReport};
use crate::role::Lifecycle;
use crate::sink::SinkCode;
use crate::sink::pace::Pace;
use crate::window::late::GivenUp;
use crate::window::parameters;
use recoded_code::window::{DECODING_WINDOW_MAX, Decoder, Received, Rejected, Scheme};
use recoded_wire::feedback::{FlowReport as SinkReport, Item};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{HEADER_BYTES, serial_before};
use recoded_wire::window::{ADU_HEADER_BYTES, SOURCE_ID_BYTES, WindowPacket};

/// A packet may be ahead of the newest symbol by this part of the window, and at least by this many
/// symbols. Beyond that, and two windows behind, further packets must confirm it, and the window
/// must have been idle.
const AHEAD_PART: usize = 4;
const AHEAD_MIN: usize = 32;

/// Minimum number of symbols that a sink waits for if hops recover their losses: a retransmission
/// arrives a round trip of a hop later, and this covers 70 ms at 150 Mbit/s.
const MENDED_SYMBOLS: usize = 1024;

/// Symbols before the first one received, which may have been lost and arrive later.
const FIRST: u32 = 64;

/// Fields that all packets of an epoch share.
#[derive(Copy, Clone, PartialEq, Eq)]
struct Shape {
    epoch: u8,
    scheme: Scheme,
    symbol_bytes: u16,
}

/// Decision on a packet before the decoder sees it.
enum Admission {
    Welcome,
    /// It starts an empty window, with delivery at `next`: the first packet, the source restarted,
    /// or its parameters changed.
    Begins {
        next: u32,
    },
    /// From before the window or before a change of parameters, or a repair packet before any other
    /// packet.
    Useless,
    Mismatch,
}

/// Sink state of a window flow.
pub(crate) struct WindowSink {
    decoder: Decoder,
    /// Symbols of the decoder, and of the decoding window while hops do not recover losses.
    decoder_symbols: usize,
    unmended_symbols: usize,
    is_mended: bool,
    /// Shape of the arriving packets, and the ESI next to be delivered; `None` before the first
    /// source packet.
    stream: Option<(Shape, u32)>,
    /// When a packet first referred to a symbol, by the low bits of its ESI.
    heard: Box<[Nanos]>,
    incoming: Incoming,
    given_up: GivenUp,
    pace: Pace,
}

impl WindowSink {
    pub(crate) fn new(params: &FlowParams, code: &WindowParams) -> Self {
        let window_symbols = decoding_symbols(code);
        let parameters =
            parameters(params, &WindowParams { window_symbols, ..*code }, DECODING_WINDOW_MAX);
        let unmended_symbols = code.window_symbols.saturating_mul(2);
        let slots = parameters.window_symbols.next_power_of_two();
        Self {
            decoder: Decoder::new(parameters).expect("parameters were brought into range"),
            decoder_symbols: parameters.window_symbols,
            unmended_symbols: unmended_symbols.clamp(1, parameters.window_symbols),
            is_mended: false,
            stream: None,
            heard: vec![0; slots].into_boxed_slice(),
            incoming: Incoming::default(),
            given_up: GivenUp::new(),
            pace: Pace::new(),
        }
    }

    /// Symbols of the decoding window.
    fn window_symbols(&self) -> usize {
        if self.is_mended { self.decoder_symbols } else { self.unmended_symbols }
    }

    /// Decides on a packet, and makes room for it in the window.
    fn admit(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        packet: &WindowPacket,
    ) -> Admission {
        let params = cx.params;
        let shape = Shape::of(packet);
        match self.judge(packet, shape, params, cx.io.now) {
            Admission::Welcome => {}
            Admission::Begins { next } => {
                let end = self.decoder.end();
                self.pass(end, cx);
                if self.decoder.reshape(shape.scheme, shape.symbol_bytes).is_err() {
                    return Admission::Mismatch;
                }
                self.decoder.join(next);
                if next != end {
                    self.given_up.clear();
                }
                if self.stream.is_none() {
                    // The first packet of a flow may arrive after the second.
                    self.given_up.note_unheard(next.wrapping_sub(FIRST), FIRST);
                }
                self.stream = Some((shape, next));
            }
            refusal => return refusal,
        }
        let (end, after) = (self.decoder.end(), packet.last().wrapping_add(1));
        if serial_before(end, after) {
            self.pass(after.wrapping_sub(self.window_symbols() as u32), cx);
            self.hear(end, after, cx.io.now);
        }
        Admission::Welcome
    }

    /// Decides on a packet.
    fn judge(
        &mut self,
        packet: &WindowPacket,
        shape: Shape,
        params: &FlowParams,
        now: Nanos,
    ) -> Admission {
        let first_source = packet.is_source().then_some(packet.first);
        let Some((known, next)) = self.stream else {
            return first_source.map_or(Admission::Useless, |next| Admission::Begins { next });
        };
        let end = self.decoder.end();
        let ahead = |esi: u32| esi.wrapping_sub(end).cast_signed();
        let news = ahead(packet.last());
        let ahead_max = (self.window_symbols() / AHEAD_PART).max(AHEAD_MIN) as i32;
        let behind_max = 2 * self.unmended_symbols as i32;
        // A packet that is awaited may come late.
        let is_awaited = news < 0 && !serial_before(packet.first, next);
        if is_awaited || (-behind_max..ahead_max).contains(&news) {
            self.incoming.note_in_range(now);
        } else if packet.is_mended() && GivenUp::is_near(packet.first, next) {
            // Retransmitted by a hop, after its successors were delivered: no sign of a restart.
            return Admission::Useless;
        } else {
            // A repair packet does not show which source packets came before it.
            let timing = (now, params.generation_timeout_nanos);
            let follow = first_source
                .and_then(|esi| self.incoming.note_out_of_range(esi, RESTART_DISTANCE, timing));
            let Some(next) = follow else { return Admission::Useless };
            // Behind: the window followed forged packets before, or the source restarted.
            if news < 0 || news.unsigned_abs() >= RESTART_DISTANCE {
                return Admission::Begins { next };
            }
        }
        if shape == known {
            Admission::Welcome
        } else if shape.epoch == known.epoch {
            Admission::Mismatch
        } else if ahead(packet.first) < 0 {
            Admission::Useless
        } else {
            Admission::Begins { next: end }
        }
    }

    /// Notes when the symbols from `end` to before `after` were first seen, as far as they fit the
    /// window.
    fn hear(&mut self, end: u32, after: u32, now: Nanos) {
        let count = (after.wrapping_sub(end) as usize).min(self.decoder_symbols) as u32;
        let mask = self.heard.len() - 1;
        for back in 1..=count {
            self.heard[after.wrapping_sub(back) as usize & mask] = now;
        }
    }

    /// Delivers the known symbols before `until`, if that is ahead, and abandons the rest.
    fn pass(&mut self, until: u32, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let end = self.decoder.end();
        while let Some((shape, next)) = self.stream.filter(|(_, next)| serial_before(*next, until))
        {
            let left = until.wrapping_sub(next);
            if !serial_before(next, end) {
                // No packet referred to these.
                cx.counters.generations += u64::from(left);
                cx.counters.generations_failed += u64::from(left);
                self.given_up.note_unheard(next, left);
                self.stream = Some((shape, until));
                return;
            }
            self.finish(cx);
        }
    }

    /// Delivers the next symbols in order, as far as they are known or their time is over; in parts
    /// if many became known at once.
    fn pump(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let params = cx.params;
        self.pace.pass(cx.io.now);
        while let Some((next, patience)) = self.patience(params) {
            let is_known = self.decoder.symbol(next).is_some();
            if if is_known { !self.pace.take() } else { patience > cx.io.now } {
                return;
            }
            let datagrams = self.finish(cx);
            if is_known && datagrams == 0 {
                self.pace.give_back();
            }
        }
    }

    /// The next symbol in order, if a packet referred to it, and when it is abandoned if it is
    /// missing.
    fn patience(&self, params: &FlowParams) -> Option<(u32, Nanos)> {
        let (_, next) = self.stream?;
        let heard = self.heard[next as usize & (self.heard.len() - 1)];
        let end = heard.saturating_add(params.hold_timeout_nanos);
        serial_before(next, self.decoder.end()).then_some((next, end))
    }

    /// Delivers the next symbol in order, or abandons it, and moves on. Returns how many non-TCP
    /// packets it delivered.
    fn finish(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> u32 {
        let params = cx.params;
        let (Role::Sink { tunnel, .. }, Some((shape, next))) = (&params.role, self.stream) else {
            return 0;
        };
        self.stream = Some((shape, next.wrapping_add(1)));
        cx.counters.generations += 1;
        let symbol = self.decoder.symbol(next);
        self.given_up.note(next, symbol.is_none());
        let Some(symbol) = symbol else {
            cx.counters.generations_failed += 1;
            return 0;
        };
        cx.counters.generations_complete += 1;
        cx.counters.source_symbols += 1;
        let Io { egress, combiner, .. } = &mut *cx.io;
        let (shard, sealed, tunnel) = (cx.shard, params.sealed, *tunnel);
        let mut outlet =
            Outlet { egress: &mut **egress, combiner, tunnel, shard, sealed, datagrams: Some(0) };
        outlet.deliver(adu(symbol).unwrap_or_default(), cx.counters, cx.marks);
        outlet.datagrams.unwrap_or(0)
    }

    /// Delivers the current packet if a hop recovered it too late to be waited for.
    fn deliver_late(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        (packet, payload): (&WindowPacket, Span),
    ) -> bool {
        let params = cx.params;
        let (Role::Sink { tunnel, .. }, Some((_, next))) = (&params.role, self.stream) else {
            return false;
        };
        if !packet.is_mended() || !packet.is_source() || !self.given_up.take(packet.first, next) {
            return false;
        }
        cx.counters.source_symbols += 1;
        let Io { frames, egress, combiner, .. } = &mut *cx.io;
        let (shard, sealed, tunnel) = (cx.shard, params.sealed, *tunnel);
        let mut outlet =
            Outlet { egress: &mut **egress, combiner, tunnel, shard, sealed, datagrams: None };
        let bytes = &frames.bytes(payload)[HEADER_BYTES..];
        let adu = &bytes[..bytes.len() - SOURCE_ID_BYTES];
        outlet.deliver(adu, cx.counters, cx.marks);
        true
    }

    fn report(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let hop = hop_report(&cx.upstream.loss);
        let state = Item::Flow(SinkReport {
            newest: self.decoder.end().wrapping_sub(1),
            complete: cx.counters.generations_complete as u32,
            failed: cx.counters.generations_failed as u32,
        });
        let about = (cx.upstream.epoch(), 0.0);
        cx.upstream.reporter.send(cx.io, about, |writer| {
            if let Some(hop) = hop {
                writer.push(hop);
            }
            writer.push(state);
        });
    }
}

impl SinkCode for WindowSink {
    fn receive(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        arrival: &Arrival<'_>,
    ) -> Fate {
        let Arrival { payload, data: Data::Window(packet), .. } = arrival else {
            return Fate::Dropped(DropReason::WrongCode);
        };
        if usize::from(packet.symbols) > self.unmended_symbols {
            return Fate::Dropped(DropReason::Oversize);
        }
        self.incoming.arrived_window(packet);
        self.is_mended = packet.is_mended();
        self.pace.arrived();
        match self.admit(cx, packet) {
            Admission::Welcome | Admission::Begins { .. } => {}
            Admission::Useless => {
                let came_late = self.deliver_late(cx, (packet, *payload));
                let counters = &mut *cx.counters;
                *if came_late { &mut counters.innovative } else { &mut counters.redundant } += 1;
                return Fate::Consumed;
            }
            Admission::Mismatch => return Fate::Dropped(DropReason::Mismatch),
        }
        let bytes = &cx.io.frames.bytes(*payload)[HEADER_BYTES..];
        let innovative = if packet.is_source() {
            self.decoder.add_source(0, bytes).map(|received| received != Received::Duplicate)
        } else {
            self.decoder.add_repair(bytes).map(|innovative| innovative > 0)
        };
        let fate = match innovative {
            Ok(true) => {
                // The decoder may have room for symbols that are no longer awaited.
                self.deliver_late(cx, (packet, *payload));
                cx.counters.innovative += 1;
                Fate::Consumed
            }
            Ok(false) | Err(Rejected::Late { .. }) => {
                let came_late = self.deliver_late(cx, (packet, *payload));
                let counters = &mut *cx.counters;
                *if came_late { &mut counters.innovative } else { &mut counters.redundant } += 1;
                Fate::Consumed
            }
            Err(rejected) => Fate::Dropped(reason(rejected)),
        };
        let next = self.stream.map(|(_, next)| next);
        while let Some(adu) = self.decoder.next_recovered() {
            // An abandoned symbol comes too late.
            if next.is_some_and(|next| !serial_before(adu.esi, next)) {
                let heard = self.heard[adu.esi as usize & (self.heard.len() - 1)];
                cx.counters.decoded_after(cx.io.now.saturating_sub(heard));
            }
        }
        self.pump(cx);
        fate
    }
}

impl Lifecycle for WindowSink {
    fn tick(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> Option<Nanos> {
        let params = cx.params;
        self.pump(cx);
        if cx.upstream.reporter.due().is_some_and(|due| due <= cx.io.now) {
            self.report(cx);
        }
        self.wake(params, cx.io.now)
    }

    fn wake(&self, params: &FlowParams, _now: Nanos) -> Option<Nanos> {
        let (_, end) = self.patience(params)?;
        // Symbols that wait for their turn are known.
        Some(self.pace.due().unwrap_or(end))
    }

    fn drain(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        self.pass(self.decoder.end(), cx);
    }

    fn fill(&self, report: &mut FlowReport) {
        self.incoming.fill(report);
        report.generation_size = self.unmended_symbols / 2;
    }
}

/// Symbols that a decoder has room for: twice the encoding window, as RFC 8681 appendix D advises
/// and the plan of the source assumes; more if hops recover their losses.
pub(crate) fn decoding_symbols(code: &WindowParams) -> usize {
    code.window_symbols.saturating_mul(2).max(MENDED_SYMBOLS)
}

impl Shape {
    fn of(packet: &WindowPacket) -> Self {
        let is_binary = packet.header.flags.field_code() == 0;
        Self {
            epoch: packet.header.epoch,
            scheme: if is_binary { Scheme::Gf2 } else { Scheme::Gf256 },
            symbol_bytes: packet.symbol_bytes,
        }
    }
}

/// The ADU in a source symbol; `None` when its length exceeds the symbol.
fn adu(symbol: &[u8]) -> Option<&[u8]> {
    let (header, adu) = symbol.split_first_chunk::<ADU_HEADER_BYTES>()?;
    adu.get(..usize::from(u16::from_be_bytes([header[1], header[2]])))
}

fn reason(rejected: Rejected) -> DropReason {
    match rejected {
        Rejected::TooShort { .. } => DropReason::Truncated,
        Rejected::RepairBytes { .. } | Rejected::NoSourceSymbols => DropReason::Malformed,
        Rejected::AduTooLong { .. } | Rejected::WindowTooLong { .. } => DropReason::Oversize,
        Rejected::Overlap { .. } | Rejected::Mismatch { .. } => DropReason::Mismatch,
        Rejected::Late { .. } => DropReason::Late,
    }
}
