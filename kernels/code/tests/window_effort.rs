//! Work that hostile packets of a sliding window cause through equations: bounded per packet on
//! average, counted in bytes of equations, not in time.

use recoded_code::window::{
    Decoder, Density, Encoder, Parameters, REPAIR_ID_BYTES, RepairId, Scheme, WORK_PER_PACKET,
    WORK_SAVED,
};

const FLOW: u8 = 3;

fn parameters(symbol_bytes: usize, window_symbols: usize) -> Parameters {
    Parameters { scheme: Scheme::Gf256, symbol_bytes: symbol_bytes as u16, window_symbols }
}

/// A decoder that tracks from ESI 0 on.
fn decoder(symbol_bytes: usize, window_symbols: usize) -> Decoder {
    let made = Decoder::new(parameters(symbol_bytes, window_symbols));
    let mut decoder = made.expect("parameters in range");
    decoder.join(0);
    decoder
}

fn source_packet(esi: u32) -> Vec<u8> {
    [&[1; 9][..], &esi.to_be_bytes()].concat()
}

/// Repair packets over 4095 symbols that never arrived cost more with each equation. Without a
/// limit, all of the first 4095 become equations, at 10 ms each in the end.
#[test]
fn repair_packets_over_what_never_came_take_bounded_work() {
    let mut decoder = decoder(3, 8192);
    let (packets, mut innovative) = (2500, 0);
    for key in 0..packets {
        let id = RepairId { key, density: Density::FULL, source_symbols: 4095, first: 0 };
        innovative += decoder.add_repair(&[&id.to_bytes()[..], &[7; 3]].concat()).expect("honest");
    }
    assert!((500..1600).contains(&innovative), "{innovative} equations");
    let refused = usize::from(packets) - innovative;
    assert_eq!((decoder.counts().refused, decoder.counts().redundant), (refused as u64, 0));
    // The last equation may take more than is left.
    let last = innovative * (2 * 4095 + 2000);
    let allowed = WORK_SAVED + usize::from(packets) * WORK_PER_PACKET + last;
    assert!(decoder.work_bytes() <= allowed as u64, "{} bytes", decoder.work_bytes());
}

/// Source packets are not refused. If each is in thousands of long equations, these are dropped.
#[test]
fn source_packets_within_many_equations_take_bounded_work() {
    const SYMBOL_BYTES: usize = 60_000;
    let mut decoder = decoder(SYMBOL_BYTES, 512);
    let mut repair = vec![7; REPAIR_ID_BYTES + SYMBOL_BYTES];
    for key in 0..250 {
        let id = RepairId { key, density: Density::FULL, source_symbols: 512, first: 0 };
        repair[..REPAIR_ID_BYTES].copy_from_slice(&id.to_bytes());
        decoder.add_repair(&repair).expect("honest");
    }
    let before = decoder.work_bytes();
    for esi in 300..400 {
        decoder.add_source(FLOW, &source_packet(esi)).expect("honest");
    }
    let allowed = 2 * WORK_SAVED + 101 * WORK_PER_PACKET + 512 * SYMBOL_BYTES;
    let taken = decoder.work_bytes() - before;
    assert!(taken <= allowed as u64, "{taken} bytes");
    assert!(decoder.counts().refused > 0, "{:?}", decoder.counts());
    // It still works: a new symbol is recovered.
    for esi in 512..1024 {
        decoder.add_source(FLOW, &source_packet(esi)).expect("honest");
    }
    let id = RepairId { key: 0, density: Density::FULL, source_symbols: 1, first: 1024 };
    repair[..REPAIR_ID_BYTES].copy_from_slice(&id.to_bytes());
    assert_eq!(decoder.add_repair(&repair), Ok(1));
}

/// The limit is for attacks: a window of 1024 symbols that is lost as a whole is recovered with the
/// 1024th repair packet or so, long symbols or not.
#[test]
fn a_whole_window_of_1024_symbols_comes_back_from_repair_packets_alone() {
    for symbol_bytes in [16, 1400] {
        let mut encoder =
            Encoder::new(parameters(symbol_bytes, 1024)).expect("parameters in range");
        let mut decoder = decoder(symbol_bytes, 2048);
        for number in 0..1024_u32 {
            encoder.push(FLOW, &number.to_be_bytes()).expect("a short ADU");
        }
        let mut packet = vec![0; REPAIR_ID_BYTES + symbol_bytes];
        for _ in 0..1030 {
            encoder.repair(Density::FULL, &mut packet).expect("a window with symbols");
            decoder.add_repair(&packet).expect("honest");
        }
        assert_eq!(decoder.counts().refused, 0, "symbols of {symbol_bytes} bytes");
        for number in 0..1024_u32 {
            let symbol = decoder.symbol(number).expect("recovered");
            assert_eq!(symbol[3..7], number.to_be_bytes());
        }
    }
}
