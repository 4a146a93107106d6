//! A block over a line of relays by BATS (RFC 9426): relays recode within batches of 16 packets, so
//! they hold 16 packets and not the block, and coding vectors have 16 bytes.
//!
//! ```text
//! cargo run -p recoded-library --example bats_line
//! ```

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::bats::{Batch, Code, Decoder, Gain, Limits, Operand, Params, Rows};
use recoded_gf::Kernel;
use recoded_library::{Encoder, Recoder};
use std::error::Error;

const SOURCE_SYMBOLS: usize = 256;
const SYMBOL_BYTES: usize = 64;
const HOPS: usize = 3;

/// Each link drops one packet in ten.
const LOST_OF: u32 = 10;

/// Ends with an error if a call is refused.
pub fn main() -> Result<(), Box<dyn Error>> {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let params = Params { source_symbols: SOURCE_SYMBOLS, ..Params::default() };
    let size = params.batch_size;
    let code = Code::new(params)?;
    let mut block = Rows::new(SYMBOL_BYTES);
    let mut symbols = vec![[0; SYMBOL_BYTES]; SOURCE_SYMBOLS];
    for (index, symbol) in symbols.iter_mut().enumerate() {
        random.fill_bytes(symbol);
        block.set(Operand::Symbol(index as u16), symbol);
    }
    let Ok(()) = code.precode_symbols(&mut block);

    let mut decoder = Decoder::new(Limits::of(SOURCE_SYMBOLS, size));
    decoder.reset(params)?;
    let (mut sink, mut batch, mut id) = (Rows::new(SYMBOL_BYTES), Batch::new(), 0);
    while !decoder.is_complete() {
        code.batch(id, &mut batch);
        for (vector, payload) in cross(&coded(&batch, &block, size), &mut random)? {
            // A packet that adds nothing is dropped, and so is one of a batch that is complete.
            let Ok(Gain::Innovative { slot }) = decoder.insert(id, &vector) else { continue };
            sink.set(Operand::Received(slot), &payload);
            let Ok(()) = decoder.advance(&mut sink, |_| {});
        }
        id += 1;
    }
    for (index, symbol) in symbols.iter().enumerate() {
        assert_eq!(sink.get(Operand::Symbol(index as u16)), Some(&symbol[..]));
    }
    let packets = usize::from(id) * size;
    println!(
        "{SOURCE_SYMBOLS} symbols: {packets} packets of the source over {HOPS} links that lose one \
         in {LOST_OF}"
    );
    assert!(packets < 2 * SOURCE_SYMBOLS);
    Ok(())
}

/// The coded symbols of a batch: each is a combination of source and precode symbols.
fn coded(batch: &Batch, block: &Rows, size: usize) -> Vec<Vec<u8>> {
    let coded = |column: usize| {
        let mut symbol = vec![0; SYMBOL_BYTES];
        let factors = batch.generator().chunks(batch.degree()).nth(column).unwrap_or_default();
        for (factor, index) in factors.iter().zip(batch.indices()) {
            let row = block.get(Operand::Symbol(*index)).unwrap_or_default();
            Kernel::best().madd(&mut symbol, *factor, row);
        }
        symbol
    };
    (0..size).map(coded).collect()
}

/// A packet: its coding vector and its symbol.
type Packet = (Vec<u8>, Vec<u8>);

/// Sends a batch over all links. Every node is source or relay of a generation: that batch.
fn cross(coded: &[Vec<u8>], random: &mut ChaCha8Rng) -> Result<Vec<Packet>, Box<dyn Error>> {
    let size = coded.len();
    let mut source = Encoder::new(size, SYMBOL_BYTES, random.next_u64())?;
    for symbol in coded {
        source.add(symbol)?;
    }
    let mut take = |vector: &mut [u8], symbol: &mut [u8]| source.take(vector, symbol);
    let mut packets = link(size, &mut take, random)?;
    for _ in 1..HOPS {
        let mut relay = Recoder::new(size, SYMBOL_BYTES, random.next_u64())?;
        for (vector, symbol) in &packets {
            relay.add(vector, symbol)?;
        }
        if relay.rank() == 0 {
            return Ok(Vec::new());
        }
        packets = link(size, &mut |vector, symbol| relay.take(vector, symbol), random)?;
    }
    Ok(packets)
}

/// The packets that arrive of as many as a batch has.
fn link(
    size: usize,
    take: &mut impl FnMut(&mut [u8], &mut [u8]) -> Result<(), recoded_library::Error>,
    random: &mut ChaCha8Rng,
) -> Result<Vec<Packet>, Box<dyn Error>> {
    let mut arrived = Vec::new();
    for _ in 0..size {
        let (mut vector, mut symbol) = (vec![0; size], vec![0; SYMBOL_BYTES]);
        take(&mut vector, &mut symbol)?;
        if !random.next_u32().is_multiple_of(LOST_OF) {
            arrived.push((vector, symbol));
        }
    }
    Ok(arrived)
}
