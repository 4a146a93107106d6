//! A line of relays, each behind a lossy link. Relays that recode send fresh combinations of what
//! they hold, so a hop makes up for its own losses; relays that forward multiply the losses.
//!
//! ```text
//! cargo run -p recoded-library --example recoding_chain
//! ```

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_library::{Decoder, Encoder, Recoder};
use std::error::Error;

const SIZE: usize = 16;
const SYMBOL_BYTES: usize = 64;
const RELAYS: usize = 4;

/// Each of the five links drops one packet in five.
const LOST_OF: u32 = 5;

/// Packets that the source sends until the sink has a generation, on average of this many.
const GENERATIONS: usize = 200;

/// Ends with an error if a call is refused.
pub fn main() -> Result<(), Box<dyn Error>> {
    let forwarded = packets(false)?;
    let recoded = packets(true)?;
    let size = SIZE as f64;
    println!("packets of the source for a symbol, over {} links:", RELAYS + 1);
    println!("  relays that forward {:.2}", forwarded / size);
    println!("  relays that recode  {:.2}", recoded / size);
    assert!(recoded < 0.7 * forwarded);
    Ok(())
}

/// Mean packets of the source for a generation.
fn packets(recodes: bool) -> Result<f64, Box<dyn Error>> {
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let mut sent = 0;
    for _ in 0..GENERATIONS {
        let mut encoder = Encoder::new(SIZE, SYMBOL_BYTES, random.next_u64())?;
        let mut relays = (0..RELAYS)
            .map(|_| Recoder::new(SIZE, SYMBOL_BYTES, random.next_u64()))
            .collect::<Result<Vec<_>, _>>()?;
        let mut decoder = Decoder::new(SIZE, SYMBOL_BYTES)?;
        for symbol in 0..SIZE {
            encoder.add(&[symbol as u8; SYMBOL_BYTES])?;
        }
        let (mut vector, mut symbol) = ([0; SIZE], [0; SYMBOL_BYTES]);
        while !decoder.is_complete() {
            encoder.take(&mut vector, &mut symbol)?;
            sent += 1;
            // A packet that arrives triggers one at the next link, and so does a pause without one.
            let mut is_there = !random.next_u32().is_multiple_of(LOST_OF);
            for relay in &mut relays {
                if is_there {
                    relay.add(&vector, &symbol)?;
                }
                if recodes && relay.rank() > 0 {
                    relay.take(&mut vector, &mut symbol)?;
                    is_there = true;
                }
                is_there &= !random.next_u32().is_multiple_of(LOST_OF);
            }
            if is_there {
                decoder.add(&vector, &symbol)?;
            }
        }
        let mut data = [0; SIZE * SYMBOL_BYTES];
        decoder.decode(&mut data)?;
        assert!(data.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at / SYMBOL_BYTES));
    }
    Ok(sent as f64 / GENERATIONS as f64)
}
