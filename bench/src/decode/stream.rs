//! A hop of a stream: combining at the relay, decoding at the sink.
//!
//! ```text
//!  n symbols with one in eight lost, then as many combinations of all n
//!    sink:    Pipeline::receive per packet: headers, store, equations, delivery
//!    kernels: invert, matmul for n symbols that are all coded
//!  one combination of n symbols
//!    relay:   recoded_code::window::combination: draws coefficients, multiplies
//!    kernels: matmul, coefficients at hand
//! ```

use std::hint::black_box;

use rand::rngs::SmallRng;
use recoded_code::window::combination;
use recoded_gf::{Field, Kernel};
use recoded_pipeline::memory::HeapFrames;
use recoded_pipeline::params::{FlowCode, FlowParams, Role, Snapshot, StreamParams, TunnelId};
use recoded_pipeline::recorder::Recorder;
use recoded_pipeline::{Datagram, Pipeline};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Flags, Header, PacketType};
use recoded_wire::stream::{
    COMBINATION_BYTES, Combination, STREAM_BYTES, SYMBOL_HEADER_BYTES, StreamHeader, StreamSymbol,
    write_combination, write_symbol, write_symbol_header,
};

use crate::decode::dataplane::{
    Delivery, FRAME_BYTES, FRAMES, PACKET_BYTES, SHARD, UPSTREAM, ip_packet,
};
use crate::decode::wrong;
use crate::error::BenchError;
use crate::kernels::contest::{Contestant, Role as Part};
use crate::kernels::rows::Decoding;

/// The first of this many symbols is lost.
const LOST_OF: usize = 8;

/// Bytes of a symbol in combinations.
pub const CODED_BYTES: usize = SYMBOL_HEADER_BYTES + PACKET_BYTES;

/// Symbols that a sink keeps: the daemon's default.
const WINDOW_LOG2: u8 = 14;

/// Time between windows: 10 Gbit/s of 64 symbols.
const WINDOW_NANOS: u64 = 73_000;

/// A window of symbols and the combinations that follow it.
pub struct Window {
    /// As they are combined.
    symbols: Vec<&'static [u8]>,
    /// By combination: its coefficients, and its sum.
    combinations: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Window {
    /// Of `n` symbols, a power of two.
    pub fn new(n: usize) -> Window {
        let symbol = |number: usize| {
            let mut bytes = vec![0; SYMBOL_HEADER_BYTES];
            write_symbol_header(&header_of(number as u32), &mut bytes);
            bytes.extend_from_slice(&ip_packet(number));
            &*bytes.leak()
        };
        let symbols: Vec<&'static [u8]> = (0..n).map(symbol).collect();
        let combinations = (0..n.div_ceil(LOST_OF)).map(|key| {
            let mut sum = vec![0; CODED_BYTES];
            combination(Kernel::best(), key as u16, &symbols, &mut sum);
            (coefficients(key as u16, n), sum)
        });
        Window { combinations: combinations.collect(), symbols }
    }

    fn n(&self) -> usize {
        self.symbols.len()
    }

    /// Payload bits of all `n` symbols, in 10^9.
    fn gigabits(&self) -> f64 {
        (self.n() * CODED_BYTES * 8) as f64 / 1e9
    }

    /// The kernels' own decoding of as many symbols, all of them coded: the reference for the other
    /// rows.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] if the result differs from the symbols.
    pub fn kernels(&self, random: &mut SmallRng) -> Result<Contestant, BenchError> {
        Decoding::of(self.symbols.clone(), random).ours(Kernel::best())
    }

    /// The real sink, which also delivers the symbols that were not lost.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] if delivered packets differ from the sent ones.
    pub fn sink(&self) -> Result<(Contestant, Delivery), BenchError> {
        let error = || wrong("stream, sink", self.n(), CODED_BYTES);
        let mut sink = Sink::new(self).ok_or_else(error)?;
        sink.begin();
        sink.outputs.copies = true;
        sink.receive();
        sink.outputs.copies = false;
        let mut packets = std::mem::take(&mut sink.outputs.delivered);
        let mut sent: Vec<Vec<u8>> =
            self.symbols.iter().map(|symbol| symbol[SYMBOL_HEADER_BYTES..].to_vec()).collect();
        packets.sort_unstable();
        sent.sort_unstable();
        if packets != sent {
            return Err(error());
        }
        sink.outputs.delivered_count = 0;
        let delivery = Delivery::of(self.n() as u64);
        let counted = delivery.clone();
        let job = move || {
            sink.receive();
            counted.count(sink.outputs.delivered_count);
        };
        Ok((Contestant::new(Part::Ours, Kernel::best().name(), self.gigabits(), job), delivery))
    }

    /// One combination, its coefficients at hand.
    pub fn product(&self) -> Contestant {
        let (kernel, symbols) = (Kernel::best(), self.symbols.clone());
        let (row, mut out) = (coefficients(0, self.n()), vec![0; CODED_BYTES]);
        let job = move || kernel.matmul(black_box(&row), &symbols, &mut [&mut out]);
        Contestant::new(Part::Ours, kernel.name(), self.gigabits(), job)
    }

    /// One combination, computed as in a relay.
    pub fn relay(&self) -> Contestant {
        let (kernel, symbols, mut out) =
            (Kernel::best(), self.symbols.clone(), vec![0; CODED_BYTES]);
        let mut key = 0_u16;
        let job = move || {
            key = key.wrapping_add(1);
            combination(kernel, key, black_box(&symbols), &mut out);
        };
        Contestant::new(Part::Ours, kernel.name(), self.gigabits(), job)
    }
}

/// Coefficients of a combination of `n` symbols by `key`.
fn coefficients(key: u16, n: usize) -> Vec<u8> {
    let unit = |at: usize| -> Vec<u8> { (0..n).map(|index| u8::from(index == at)).collect() };
    let units: Vec<Vec<u8>> = (0..n).map(unit).collect();
    let mut row = vec![0; n];
    let units: Vec<&[u8]> = units.iter().map(Vec::as_slice).collect();
    combination(Kernel::best(), key, &units, &mut row);
    row
}

fn header_of(number: u32) -> StreamSymbol {
    StreamSymbol { number, after: 0, place: number as u16, bytes: PACKET_BYTES as u16 }
}

/// A sink, and the packets of a window in frames that are kept.
struct Sink {
    pipeline: Pipeline,
    frames: HeapFrames,
    outputs: Recorder,
    symbols: Vec<(u32, Span)>,
    /// The lost symbols, which arrive in the first window only.
    lost: Vec<(u32, Span)>,
    /// With the sum of the coefficients and the number's bytes in the sum of the first window.
    combinations: Vec<(Combination, u8, [u8; 4], Span)>,
    first: u32,
    step: u32,
    link_sequence: u32,
    now: u64,
}

impl Sink {
    fn new(window: &Window) -> Option<Sink> {
        let (n, mut frames) = (window.n(), HeapFrames::new(FRAMES, FRAME_BYTES));
        let arriving = (0..n).map(|number| {
            let mut payload = vec![0; STREAM_BYTES];
            packet_header(Flags(Flags::SYSTEMATIC)).write(&mut payload);
            payload.extend_from_slice(&window.symbols[number][SYMBOL_HEADER_BYTES..]);
            Some((number as u32, frames.receive(&payload)?))
        });
        let all = arriving.collect::<Option<Vec<_>>>()?;
        let (lost, symbols) =
            all.into_iter().partition(|(number, _)| number.is_multiple_of(LOST_OF as u32));
        let combinations = window.combinations.iter().enumerate().map(|(key, (row, sum))| {
            let mut payload = vec![0; COMBINATION_BYTES];
            packet_header(Flags(0)).write(&mut payload);
            payload.extend_from_slice(sum);
            let combination = Combination { first: 0, count: n as u16, key: key as u16 };
            let number = [sum[0], sum[1], sum[2], sum[3]];
            let all = row.iter().fold(0, |all, coefficient| all ^ coefficient);
            Some((combination, all, number, frames.receive(&payload)?))
        });
        let combinations = combinations.collect::<Option<Vec<_>>>()?;
        let role = Role::Sink { tunnel: TunnelId(0), upstream: UPSTREAM };
        let code = FlowCode::Stream(StreamParams::new(1 << WINDOW_LOG2));
        let flow = FlowParams::new(SHARD.flow, role, Vec::new());
        let flow = FlowParams { code, symbol_bytes: PACKET_BYTES, ..flow };
        Some(Sink {
            pipeline: Pipeline::new(&Snapshot { edition: 1, flows: vec![flow] }, 1),
            frames,
            outputs: Recorder::counting(FRAMES, None),
            symbols,
            lost,
            combinations,
            first: 0,
            step: n as u32,
            link_sequence: 0,
            now: WINDOW_NANOS,
        })
    }

    /// Receives the first window. Its combinations recover nothing, because a sink keeps symbols
    /// for combinations only from its first combination on. Nothing of this window is lost: the
    /// sink would wait four seconds for each missing symbol, and its table would outgrow the
    /// caches.
    fn begin(&mut self) {
        let (symbols, lost) = (self.symbols.clone(), std::mem::take(&mut self.lost));
        self.symbols.extend(lost);
        self.receive();
        self.symbols = symbols;
    }

    /// Receives one window. Its packets already lie in their frames; only the differences from the
    /// previous window are written into them. Numbers are those of the first window with other high
    /// bits, so their sums change by the sum of the coefficients times these bits.
    fn receive(&mut self) {
        let Sink { pipeline, frames, outputs, first, link_sequence, .. } = self;
        let mut arrive = |frames: &mut HeapFrames, span: Span| {
            let sequence = &mut frames.bytes_mut(span)[8..12];
            sequence.copy_from_slice(&link_sequence.to_be_bytes());
            *link_sequence = link_sequence.wrapping_add(1);
            // The pipeline consumes one reference; the other keeps the packet.
            frames.retain(span.frame);
            let datagram = Datagram::best_effort(Some(UPSTREAM), span);
            pipeline.receive(frames, outputs, datagram, self.now);
        };
        for (number, span) in &self.symbols {
            write_symbol(&header_of(*first | number), frames.bytes_mut(*span));
            arrive(frames, *span);
        }
        for (combination, all, number, span) in &self.combinations {
            let bytes = frames.bytes_mut(*span);
            write_combination(&Combination { first: *first, ..*combination }, bytes);
            let sum = &mut bytes[COMBINATION_BYTES..][..4];
            for ((sum, number), high) in sum.iter_mut().zip(number).zip(first.to_be_bytes()) {
                *sum = number ^ Field::Gf256x11D.mul(*all, high);
            }
            arrive(frames, *span);
        }
        pipeline.tick(frames, outputs, self.now);
        outputs.release(frames);
        self.first = first.wrapping_add(self.step);
        self.now += WINDOW_NANOS;
    }
}

fn packet_header(flags: Flags) -> StreamHeader {
    let common = Header {
        packet_type: PacketType::Stream,
        flags,
        epoch: 0,
        shard: SHARD.shard,
        flow: SHARD.flow,
        link_sequence: 0,
        hop_index: 0,
    };
    StreamHeader { common, window_log2: WINDOW_LOG2, round_trips: 0 }
}
