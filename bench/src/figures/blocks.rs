//! Blocks through a line of recoding nodes, decoded by both decoders, on coefficients only.

use std::convert::Infallible;

use rand_chacha::ChaCha8Rng;
use recoded_code::bats::{Code, Decoder, Limits, Operand, Params, ParamsError, Payloads, Profile};
use recoded_code::theory::Recoding;
use recoded_gf::FieldOrder;

use crate::error::BenchError;
use crate::figures::line::{self, Holding, Relay};

/// Coded symbols of a batch, everywhere in the paper.
pub const BATCH_SIZE: usize = 16;
/// Loss of every hop in its experiments.
pub const LOSS: f64 = 0.1;

/// Batches as they arrive after each of `hops` hops: element `[hop][batch]`, hops from 0.
pub fn arrivals(batches: usize, hops: usize, random: &mut ChaCha8Rng) -> Vec<Vec<Holding>> {
    travel(batches, hops, LOSS, true, random)
}

/// The same at any loss, and with nodes that recode or only forward.
pub fn travel(
    batches: usize,
    hops: usize,
    loss: f64,
    recodes: bool,
    random: &mut ChaCha8Rng,
) -> Vec<Vec<Holding>> {
    let mut relay = Relay::new(BATCH_SIZE, FieldOrder::TwoFiftySix, Recoding::Systematic);
    let mut behind = Vec::with_capacity(hops);
    let mut held = vec![Holding::source(BATCH_SIZE); batches];
    for _ in 0..hops {
        for batch in &mut held {
            // A systematic node forwards its packets unchanged and sends combinations only
            // afterwards.
            let packets = if recodes { BATCH_SIZE } else { batch.rank() };
            *batch = line::hop(&mut relay, batch, packets, loss, random);
        }
        behind.push(held.clone());
    }
    behind
}

/// The parameters of a block whose generators have coefficients of `bits` bits.
pub fn params(source_symbols: usize, profile: Profile, bits: u8) -> Params {
    Params { source_symbols, batch_size: BATCH_SIZE, profile, generator_bits: bits }
}

/// Both decoders of the paper.
pub struct Decoders {
    inactivation: Decoder,
    belief_propagation: Decoder,
}

/// Outcome for a block: shares of its source symbols.
#[derive(Copy, Clone)]
pub struct Decoded {
    /// Decoded by inactivation.
    pub inactivation: f64,
    /// Decoded by belief propagation only.
    pub belief_propagation: f64,
}

impl Decoded {
    /// 1 if inactivation decoded the whole block, otherwise 0.
    pub fn is_whole(&self) -> f64 {
        f64::from(u8::from(self.inactivation >= 1.0))
    }
}

impl Decoders {
    /// Decoders for up to `source_symbols_max` symbols and `batches_max` batches per block.
    pub fn new(source_symbols_max: usize, batches_max: usize) -> Decoders {
        let limits = Limits { batches_max, ..Limits::of(source_symbols_max, BATCH_SIZE) };
        Decoders {
            inactivation: Decoder::new(limits),
            belief_propagation: Decoder::new(Limits { inactive_max: 0, ..limits }),
        }
    }

    /// Decodes a block from batches numbered from `first_id` on. `code` returns the same code each
    /// time.
    ///
    /// # Errors
    /// If there is no such code.
    pub fn decode(
        &mut self,
        code: impl Fn() -> Result<Code, ParamsError>,
        first_id: u16,
        batches: &[Holding],
    ) -> Result<Decoded, BenchError> {
        let by_propagation = &mut self.belief_propagation;
        let source_symbols = feed(by_propagation, code()?, first_id, batches)?;
        let mut propagated = 0;
        let Ok(()) = by_propagation.advance(&mut Nothing, |_| propagated += 1);
        feed(&mut self.inactivation, code()?, first_id, batches)?;
        let Ok(()) = self.inactivation.advance(&mut Nothing, |_| ());
        let share = |symbols: usize| symbols as f64 / source_symbols as f64;
        Ok(Decoded {
            inactivation: share(self.inactivation.decodable()),
            belief_propagation: share(propagated),
        })
    }
}

/// Gives a decoder all that arrived; the source symbols of its block.
fn feed(
    decoder: &mut Decoder,
    code: Code,
    first_id: u16,
    batches: &[Holding],
) -> Result<usize, BenchError> {
    let source_symbols = code.params().source_symbols;
    decoder.reset_with(code)?;
    let mut id = first_id;
    for batch in batches {
        for vector in batch.vectors() {
            decoder.insert(id, vector)?;
        }
        id = id.wrapping_add(1);
    }
    Ok(source_symbols)
}

/// Payload work that is not done: ranks and symbols do not depend on it.
pub struct Nothing;

impl Payloads for Nothing {
    type Error = Infallible;

    fn combine(
        &mut self,
        _: &[u8],
        _: &[Operand],
        _: &[Operand],
        _: bool,
    ) -> Result<(), Infallible> {
        Ok(())
    }
}
