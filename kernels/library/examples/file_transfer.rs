//! A file over a link that loses packets, without acknowledgements per packet: generations of
//! random linear network coding, each until the receiver has enough.
//!
//! ```text
//! cargo run -p recoded-library --example file_transfer [FILE]
//! ```

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_library::{Decoder, Encoder};
use std::error::Error;

/// Symbols of a generation, and bytes of each: a packet of 1328 bytes with its coding vector.
const SIZE: usize = 32;
const SYMBOL_BYTES: usize = 1296;

/// The link drops one packet in five.
const LOST_OF: u32 = 5;

/// Ends with an error if a call is refused.
pub fn main() -> Result<(), Box<dyn Error>> {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let file = match std::env::args().nth(1).filter(|name| std::path::Path::new(name).is_file()) {
        Some(name) => std::fs::read(name)?,
        None => (0..300_000u32).map(|byte| byte as u8).collect(),
    };
    let mut encoder = Encoder::new(SIZE, SYMBOL_BYTES, random.next_u64())?;
    let mut decoder = Decoder::new(SIZE, SYMBOL_BYTES)?;
    let (mut vector, mut symbol) = ([0; SIZE], [0; SYMBOL_BYTES]);
    let (mut received, mut sent) = (Vec::new(), 0);
    for generation in file.chunks(SIZE * SYMBOL_BYTES) {
        encoder.reset();
        decoder.reset()?;
        // The last generation is filled up with zeros.
        let padded = generation.iter().copied().chain(std::iter::repeat(0));
        let padded: Vec<u8> = padded.take(SIZE * SYMBOL_BYTES).collect();
        for part in padded.chunks(SYMBOL_BYTES) {
            encoder.add(part)?;
        }
        while !decoder.is_complete() {
            // First the symbols themselves, then combinations of all.
            encoder.take(&mut vector, &mut symbol)?;
            sent += 1;
            if !random.next_u32().is_multiple_of(LOST_OF) {
                decoder.add(&vector, &symbol)?;
            }
        }
        let mut decoded = vec![0; SIZE * SYMBOL_BYTES];
        decoder.decode(&mut decoded)?;
        received.extend_from_slice(&decoded[..generation.len()]);
    }
    assert_eq!(received, file);
    let needed = file.len().div_ceil(SYMBOL_BYTES);
    println!("{} bytes: {sent} packets for {needed} symbols, one in {LOST_OF} lost", file.len());
    Ok(())
}
