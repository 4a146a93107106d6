//! Decoding: blocks whose packets have crossed lossy, recoding hops.

use std::convert::Infallible;
use std::hint::black_box;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use recoded_code::bats::{Batch, Code, Decoder, Gain, Limits, Operand, Payloads};
use recoded_code::theory::Recoding;
use recoded_gf::{FieldOrder, Kernel};

use crate::bats::block::{Block, wrong};
use crate::error::BenchError;
use crate::figures::line::{self, Holding, Relay, survives};
use crate::kernels::contest::{Contestant, LeftOut, Role};
use crate::kernels::memory::Layout;
use crate::kernels::rivals::raptorq as rival;

/// Hops that packets cross.
pub const HOPS: usize = 4;
/// Loss rate of each hop.
pub const LOSS: f64 = 0.1;

/// This project's decoder: inserts every packet and decodes as far as possible after each.
///
/// # Errors
/// [`BenchError::Wrong`] when the sources do not come out; a code is refused.
pub fn contestant(code: Code, block: &Block) -> Result<Contestant, BenchError> {
    let (symbols, bytes) = (block.shape.symbols, block.shape.bytes);
    let limits = Limits::of(symbols, block.shape.batch_size);
    let arrivals: Vec<Vec<Packet>> =
        (0..ARRIVALS).map(|number| arrive(&code, block, number, limits.batches_max)).collect();
    let mut decoder = Decoder::new(limits);
    let mut frames = Frames::new(limits, code.intermediate_symbols(), bytes);
    decoder.reset_with(code)?;
    for packets in &arrivals {
        decode(&mut decoder, packets, &mut frames);
        let mut made = frames.symbols.iter().zip(&block.sources);
        if !decoder.is_complete() || made.any(|(made, source)| made != source) {
            return Err(wrong("decoder", symbols, bytes));
        }
        frames.symbols.iter_mut().for_each(|symbol| symbol.fill(0));
    }
    let gigabits = (symbols * bytes * 8) as f64 / 1e9;
    let mut turn = 0;
    Ok(Contestant::new(Role::Ours, "ours", gigabits, move || {
        turn += 1;
        decode(&mut decoder, &arrivals[turn % arrivals.len()], &mut frames);
        black_box(&mut frames.symbols);
    }))
}

/// RaptorQ at the same loss rate: the source symbols that arrive, plus repair symbols.
pub fn raptorq(block: &Block) -> Result<Contestant, LeftOut> {
    let mut random = ChaCha8Rng::seed_from_u64(block.seed);
    let through = (1.0 - LOSS).powi(HOPS as i32);
    let arrived: Vec<usize> =
        (0..block.sources.len()).filter(|_| survives(&mut random, 1.0 - through)).collect();
    rival::decode_rest("raptorq, source and repair symbols", &block.sources, &arrived)
}

/// RaptorQ with repair symbols only.
pub fn raptorq_repair(block: &Block) -> Result<Contestant, LeftOut> {
    rival::decode_rest("raptorq, repair symbols", &block.sources, &[])
}

/// A packet at the sink.
struct Packet {
    batch: u16,
    vector: Vec<u8>,
    payload: &'static [u8],
}

/// Sends `batches` batches; returns the packets that arrive. `number` is the seed of the losses.
fn arrive(code: &Code, block: &Block, number: u64, batches: usize) -> Vec<Packet> {
    let mut random = ChaCha8Rng::seed_from_u64(block.seed ^ number);
    let symbols = block.intermediate(code);
    let size = block.shape.batch_size;
    let mut relay = Relay::new(size, FieldOrder::TwoFiftySix, Recoding::Systematic);
    let mut batch = Batch::new();
    let mut packets = Vec::new();
    for id in 0..batches as u16 {
        code.batch(id, &mut batch);
        let mut held = Holding::source(size);
        for _ in 1..HOPS {
            held = line::hop(&mut relay, &held, size, LOSS, &mut random);
        }
        let arrives: Vec<bool> = (0..size).map(|_| survives(&mut random, LOSS)).collect();
        let vectors = relay.packets(&held, arrives.into_iter(), &mut random);
        packets.extend(vectors.into_iter().map(|vector| {
            let payload = combine(&vector, &batch, &symbols, block.shape.bytes);
            Packet { batch: id, vector, payload }
        }));
    }
    packets
}

/// The payload of the packet with this coding vector.
fn combine(vector: &[u8], batch: &Batch, symbols: &[&'static [u8]], bytes: usize) -> &'static [u8] {
    let kernel = Kernel::best();
    let mut factors = vec![0; batch.degree()];
    kernel.reduce(&mut factors, vector, batch.generator(), batch.degree());
    let mut room = Layout::packed(1, bytes).zeros();
    let sources: Vec<&[u8]> =
        batch.indices().iter().map(|&index| symbols[usize::from(index)]).collect();
    kernel.matmul(&factors, &sources, &mut room);
    room.remove(0)
}

/// One block, from the first packet to the one that completes it.
fn decode(decoder: &mut Decoder, packets: &[Packet], frames: &mut Frames) {
    // The same parameters again: the previous block is discarded.
    let params = decoder.params();
    let is_reset = decoder.reset(params).is_ok();
    debug_assert!(is_reset, "the parameters served before");
    frames.received.clear();
    for Packet { batch, vector, payload } in packets {
        if let Ok(Gain::Innovative { .. }) = decoder.insert(*batch, vector) {
            frames.received.push(payload);
        }
        let Ok(()) = decoder.advance(frames, |_| ());
        if decoder.is_complete() {
            return;
        }
    }
}

/// Payload rows: received ones stay where they arrived.
struct Frames {
    kernel: &'static Kernel,
    received: Vec<&'static [u8]>,
    symbols: Vec<Vec<u8>>,
    spares: Vec<Vec<u8>>,
}

impl Frames {
    fn new(limits: Limits, symbols: usize, bytes: usize) -> Frames {
        let rows = |count: usize| vec![vec![0; bytes]; count];
        Frames {
            kernel: Kernel::best(),
            received: Vec::with_capacity(limits.batches_max * limits.batch_size_max),
            symbols: rows(symbols),
            spares: rows(limits.inactive_max),
        }
    }

    fn row(&self, operand: Operand) -> &[u8] {
        match operand {
            Operand::Received(slot) => self.received[slot as usize],
            Operand::Symbol(symbol) => &self.symbols[usize::from(symbol)],
            Operand::Spare(spare) => &self.spares[usize::from(spare)],
        }
    }

    fn row_mut(&mut self, operand: Operand) -> Option<&mut Vec<u8>> {
        match operand {
            Operand::Received(_) => None,
            Operand::Symbol(symbol) => self.symbols.get_mut(usize::from(symbol)),
            Operand::Spare(spare) => self.spares.get_mut(usize::from(spare)),
        }
    }
}

impl Payloads for Frames {
    type Error = Infallible;

    fn combine(
        &mut self,
        coefficients: &[u8],
        sources: &[Operand],
        destinations: &[Operand],
        accumulate: bool,
    ) -> Result<(), Infallible> {
        // Destination rows are taken out meanwhile: none of them is also a source.
        let mut rows: Vec<Vec<u8>> = destinations
            .iter()
            .map(|&operand| self.row_mut(operand).map(std::mem::take).unwrap_or_default())
            .collect();
        let inputs: Vec<&[u8]> = sources.iter().map(|&operand| self.row(operand)).collect();
        let mut outputs: Vec<&mut [u8]> = rows.iter_mut().map(Vec::as_mut_slice).collect();
        if accumulate {
            self.kernel.matmul_accumulate(coefficients, &inputs, &mut outputs);
        } else {
            self.kernel.matmul(coefficients, &inputs, &mut outputs);
        }
        for (&operand, row) in destinations.iter().zip(rows) {
            if let Some(place) = self.row_mut(operand) {
                *place = row;
            }
        }
        Ok(())
    }
}

/// Blocks that are decoded in turns: their losses differ, and so does the work.
const ARRIVALS: u64 = 4;
