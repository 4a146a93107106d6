//! Source edge of a window flow: IP packets in, source packets and repair packets out.

use crate::combine::Combiner;
use crate::egress::Egress;
use crate::emit::NextHops;
use crate::io::{Io, earlier};
use crate::layout::{payload_of, symbol_offset};
use crate::params::{FlowCode, FlowParams, Nanos, WindowParams};
use crate::plan::Plan;
use crate::remote::Remote;
use crate::report::{FlowCounters, FlowReport};
use crate::window::pace::Pace;
use crate::window::{density, field, parameters};
use recoded_code::window::{ENCODING_WINDOW_MAX, Encoder, Parameters};
use recoded_wire::feedback::{Item, items};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Flags, HEADER_BYTES, Header, PacketType, WINDOW_BYTES};
use recoded_wire::window::{ADU_HEADER_BYTES, SOURCE_ID_BYTES};

/// Repair packets of a tail in one call: nobody else is served meanwhile.
const TAIL_PER_CALL: usize = 32;

/// Source state of a window flow.
pub(crate) struct WindowSource {
    flow: u32,
    code: WindowParams,
    parameters: Parameters,
    encoder: Encoder,
    /// The ESI that the next packet gets.
    next: u32,
    epoch: u8,
    pace: Pace,
    /// When the last packets get their tail of repair packets.
    flush_at: Option<Nanos>,
    hops: NextHops,
    remote: Remote,
}

impl WindowSource {
    pub(crate) fn new(params: &FlowParams, code: WindowParams, combiner: &mut Combiner) -> Self {
        let parameters = parameters(params, &code, ENCODING_WINDOW_MAX);
        // A random start tells a restarted source from stragglers of its former life.
        let next = combiner.next_u32();
        Self {
            flow: params.id,
            code,
            parameters,
            encoder: encoder(parameters, next),
            next,
            epoch: combiner.next_u32() as u8,
            pace: Pace::new(params, &code),
            flush_at: None,
            hops: NextHops::new(&params.next_hops, combiner),
            remote: Remote::new(),
        }
    }

    /// Adopts parameters. When packets will look different, what was sent gets its tail under the old
    /// ones, and a new epoch begins with an empty window.
    pub(crate) fn apply(
        &mut self,
        old: &FlowParams,
        new: &FlowParams,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
    ) {
        let FlowCode::Window(code) = new.code else { return };
        let parameters = parameters(new, &code, ENCODING_WINDOW_MAX);
        if parameters != self.parameters {
            self.drain(old, counters, io);
            let shape = |of: &Parameters| (of.scheme, of.symbol_bytes);
            if shape(&parameters) != shape(&self.parameters) {
                self.epoch = self.epoch.wrapping_add(1);
            }
            self.parameters = parameters;
            self.encoder = encoder(parameters, self.next);
        }
        self.code = code;
        self.hops.update(&new.next_hops, io.combiner);
        self.pace.reset(new, &code);
    }

    /// Takes one IP packet, and sends it.
    pub(crate) fn ingress(
        &mut self,
        params: &FlowParams,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
        packet: &[u8],
    ) {
        counters.ingress_packets += 1;
        counters.ingress_bytes += packet.len() as u64;
        self.pace.refresh(params, &self.code, io);
        let room = usize::from(self.parameters.symbol_bytes) - ADU_HEADER_BYTES;
        if packet.is_empty() || packet.len() > room {
            counters.ingress_dropped += 1;
            return;
        }
        let Some(payload) = take(io, packet.len() + SOURCE_ID_BYTES, 0) else {
            counters.ingress_dropped += 1;
            counters.send_failed += 1;
            return;
        };
        let Ok(esi) = self.encoder.push(0, packet) else {
            io.frames.release(payload.frame);
            counters.ingress_dropped += 1;
            return;
        };
        self.next = esi.wrapping_add(1);
        let (adu, id) = io.frames.bytes_mut(payload)[HEADER_BYTES..].split_at_mut(packet.len());
        adu.copy_from_slice(packet);
        id.copy_from_slice(&esi.to_be_bytes());
        counters.generations += 1;
        counters.source_symbols += 1;
        counters.sent_systematic += 1;
        let header = self.header(Flags::SYSTEMATIC, esi);
        counters.send_failed += self.hops.send(io.frames, io.egress, payload, header);
        self.pace.earn(params, &self.code);
        while self.pace.spend() {
            self.send_repair(counters, io);
        }
        self.flush_at = Some(io.now + params.flush_timeout_nanos);
    }

    /// Sends a repair packet over the encoding window.
    fn send_repair(
        &mut self,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
    ) {
        let symbol_bytes = usize::from(self.parameters.symbol_bytes);
        let Some(payload) = take(io, symbol_bytes, WINDOW_BYTES) else {
            counters.send_failed += 1;
            return;
        };
        let body = &mut io.frames.bytes_mut(payload)[HEADER_BYTES..];
        match self.encoder.repair(density(&self.code), body) {
            Ok(id) => {
                counters.sent_coded += 1;
                let header = self.header(0, id.first);
                counters.send_failed += self.hops.send(io.frames, io.egress, payload, header);
            }
            // Nothing has been sent yet that it could be of.
            Err(_) => io.frames.release(payload.frame),
        }
    }

    fn header(&self, flags: u8, esi: u32) -> Header {
        Header {
            packet_type: PacketType::Window,
            flags: Flags(flags | field(self.parameters.scheme).code()),
            epoch: self.epoch,
            size: 1,
            flow: self.flow,
            generation: esi,
            hop_index: 0,
            key_id: 0,
            planned: self.parameters.symbol_bytes,
            link_sequence: 0,
        }
    }

    /// Sends the whole tail of repair packets that the last source packets are owed.
    pub(crate) fn drain(
        &mut self,
        params: &FlowParams,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
    ) {
        self.flush(params, counters, io);
        while self.flush_at.is_some() {
            self.flush(params, counters, io);
        }
    }

    /// Sends that tail, or the next part of it.
    fn flush(
        &mut self,
        params: &FlowParams,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
    ) {
        for _ in 0..TAIL_PER_CALL {
            if !self.pace.spend_on_tail(params) {
                self.flush_at = None;
                return;
            }
            self.send_repair(counters, io);
        }
        self.flush_at = Some(io.now);
    }

    /// Reads a feedback packet.
    pub(crate) fn receive_feedback(
        &mut self,
        params: &FlowParams,
        io: &mut Io<'_, impl Frames, impl Egress>,
        payload: Span,
        header: Header,
    ) {
        for item in items(io.frames.bytes(payload)) {
            match item {
                Item::Hop(report) => {
                    self.pace.hear(params, &self.code, (&header, report), io.now);
                }
                Item::Flow(report) => self.remote.hear(report),
                // This code asks for nothing and has no generations.
                _ => {}
            }
        }
        self.pace.refresh(params, &self.code, io);
    }

    pub(crate) fn tick(
        &mut self,
        params: &FlowParams,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
    ) -> Option<Nanos> {
        if self.flush_at.is_some_and(|at| at <= io.now) {
            self.flush(params, counters, io);
        }
        self.pace.refresh(params, &self.code, io);
        self.wake(params)
    }

    /// When to call [`WindowSource::tick`] again.
    pub(crate) fn wake(&self, params: &FlowParams) -> Option<Nanos> {
        earlier(self.flush_at, self.pace.due(params))
    }

    /// Takes over a plan that was asked for.
    pub(crate) fn adopt(&mut self, plan: Plan) {
        self.pace.adopt(plan);
    }

    pub(crate) fn hops_mut(&mut self) -> &mut NextHops {
        &mut self.hops
    }

    pub(crate) fn fill(&self, report: &mut FlowReport) {
        report.epoch = self.epoch;
        report.field = field(self.parameters.scheme);
        report.generation_size = self.parameters.window_symbols;
        let packets = self.parameters.window_symbols as f64 * (1.0 + self.pace.rate());
        report.planned = packets.ceil() as usize;
        report.hops = self.pace.hops().to_vec();
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
    let symbol = Span { frame, offset: symbol_offset(before) as u16, len: bytes as u16 };
    Some(payload_of(symbol, before))
}
