//! A live stream with the sliding window of RFC 8681: one repair packet after every four source
//! packets, no generations to wait for, no return path.
//!
//! ```text
//! cargo run -p recoded-library --example sliding_window
//! ```

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::window::{
    Decoder, Density, Encoder, Parameters, REPAIR_ID_BYTES, SOURCE_ID_BYTES, Scheme,
};
use std::error::Error;

const PACKETS: u32 = 2000;
const PACKET_BYTES: usize = 100;
const SYMBOL_BYTES: usize = 128;
const FLOW: u8 = 1;

/// The link drops one packet in ten.
const LOST_OF: u32 = 10;

/// Ends with an error if a call is refused.
pub fn main() -> Result<(), Box<dyn Error>> {
    let mut random = ChaCha8Rng::seed_from_u64(4);
    let symbol_bytes = u16::try_from(SYMBOL_BYTES)?;
    let sending = Parameters { scheme: Scheme::Gf256, symbol_bytes, window_symbols: 40 };
    let receiving = Parameters { window_symbols: 80, ..sending };
    let (mut encoder, mut decoder) = (Encoder::new(sending)?, Decoder::new(receiving)?);
    let mut is_lost = || random.next_u32().is_multiple_of(LOST_OF);
    let (mut plain, mut with_repairs) = (0, 0);
    for number in 0..PACKETS {
        // A source packet is the data, followed by its number.
        let mut packet = vec![number as u8; PACKET_BYTES];
        let esi = encoder.push(FLOW, &packet)?;
        packet.extend_from_slice(&esi.to_be_bytes());
        assert_eq!(packet.len(), PACKET_BYTES + SOURCE_ID_BYTES);
        if !is_lost() {
            decoder.add_source(FLOW, &packet)?;
            (plain, with_repairs) = (plain + 1, with_repairs + 1);
        }
        if number % 4 == 3 {
            let mut repair = [0; REPAIR_ID_BYTES + SYMBOL_BYTES];
            encoder.repair(Density::FULL, &mut repair)?;
            if !is_lost() {
                decoder.add_repair(&repair)?;
            }
        }
        while let Some(recovered) = decoder.next_recovered() {
            let mut bytes = [0; PACKET_BYTES];
            recovered.copy_to(&mut bytes).ok_or("larger than it was")?;
            assert!(bytes.iter().all(|byte| *byte == bytes[0]));
            with_repairs += 1;
        }
    }
    println!("of {PACKETS} packets, {plain} arrive; with repairs {with_repairs}");
    assert!(with_repairs > PACKETS - PACKETS / 100);
    Ok(())
}
