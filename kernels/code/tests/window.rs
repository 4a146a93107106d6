//! The sliding window of RFC 8681: bytes by hand, decoding against a slow reference, long lossy
//! sessions, hostile packets, no allocation. `RECODED_SEED` repeats a run; it is printed.

// Not every test uses all of it.
#[allow(dead_code)]
mod reference;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::theory::LossModel;
use recoded_code::theory::window::WindowCode;
use recoded_code::window::{
    AduError, Counts, Decoder, Density, Encoder, Parameters, ParametersError, REPAIR_ID_BYTES,
    Received, Rejected, RepairError, RepairId, Scheme, coding_coefficients,
};
use recoded_gf::mul;
use reference::Reference;

const FLOW: u8 = 3;

fn seeded() -> ChaCha8Rng {
    let from_clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos());
    let given = std::env::var("RECODED_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| from_clock() as u64);
    println!("RECODED_SEED={seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

fn below(rng: &mut ChaCha8Rng, limit: usize) -> usize {
    rng.next_u32() as usize % limit
}

fn bytes(rng: &mut ChaCha8Rng, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    rng.fill_bytes(&mut bytes);
    bytes
}

fn parameters(scheme: Scheme, symbol_bytes: u16, window_symbols: usize) -> Parameters {
    Parameters { scheme, symbol_bytes, window_symbols }
}

fn encoder(scheme: Scheme, symbol_bytes: u16, window_symbols: usize) -> Encoder {
    Encoder::new(parameters(scheme, symbol_bytes, window_symbols)).expect("parameters in range")
}

fn decoder(scheme: Scheme, symbol_bytes: u16, window_symbols: usize) -> Decoder {
    Decoder::new(parameters(scheme, symbol_bytes, window_symbols)).expect("parameters in range")
}

fn density(threshold: u8) -> Density {
    Density::new(threshold).expect("a threshold up to 15")
}

fn source_packet(esi: u32, adu: &[u8]) -> Vec<u8> {
    [adu, &esi.to_be_bytes()].concat()
}

/// A repair packet of `symbols` repair symbols.
fn repair_packet(
    encoder: &mut Encoder,
    threshold: u8,
    symbol_bytes: u16,
    symbols: usize,
) -> Vec<u8> {
    let mut packet = vec![0; REPAIR_ID_BYTES + usize::from(symbol_bytes) * symbols];
    encoder.repair(density(threshold), &mut packet).expect("a window with symbols");
    packet
}

/// ADUs recovered since the last call: ESI, flow, bytes.
fn recovered(decoder: &mut Decoder) -> Vec<(u32, u8, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(adu) = decoder.next_recovered() {
        let mut bytes = vec![0; adu.bytes];
        adu.copy_to(&mut bytes).expect("room for the ADU");
        assert_eq!(adu.chunks().collect::<Vec<_>>().concat(), bytes);
        assert_eq!(adu.copy_to(&mut vec![0; adu.bytes.saturating_sub(1)]).is_none(), adu.bytes > 0);
        all.push((adu.esi, adu.flow, bytes));
    }
    all
}

/// RFC 8681 figures 1, 6, 8 and section 3.7.2, every byte by hand.
#[test]
fn packets_have_the_bytes_of_the_rfc() {
    for scheme in [Scheme::Gf2, Scheme::Gf256] {
        let mut encoder = encoder(scheme, 6, 4);
        assert_eq!(encoder.push(FLOW, b"abcde"), Ok(0));
        assert_eq!(encoder.push(9, b"xyz"), Ok(2));
        let symbols = [*b"\x03\0\x05abc", *b"de\0\0\0\0", *b"\x09\0\x03xyz"];
        // Key 0, DT 7, NSS 3, first ESI 0; the second repair symbol has key 1.
        let packet = repair_packet(&mut encoder, 7, 6, 2);
        assert_eq!(packet[..8], [0, 0, 0x70, 3, 0, 0, 0, 0]);
        for (key, repair) in (0..).zip(packet[8..].chunks_exact(6)) {
            let mut coefficients = [0; 3];
            coding_coefficients(scheme, key, density(7), &mut coefficients);
            for (at, &byte) in repair.iter().enumerate() {
                let products = coefficients.iter().zip(symbols).map(|(&c, s)| mul(c, s[at]));
                assert_eq!(byte, products.fold(0, |sum, product| sum ^ product));
            }
        }
        let packet = repair_packet(&mut encoder, 15, 6, 1);
        // RFC 8681 section 5.1.3: an unused key is zero.
        let key = if scheme == Scheme::Gf2 { 0 } else { 2 };
        assert_eq!(packet[..8], [0, key, 0xF0, 3, 0, 0, 0, 0]);
    }
}

/// A session that fits into the window: after every packet, exactly those ADUs are delivered that
/// elimination from scratch determines and whose beginning is certain.
#[test]
fn decoder_recovers_exactly_what_is_determined() {
    let mut rng = seeded();
    for round in 0..160 {
        let scheme = if round % 2 == 0 { Scheme::Gf256 } else { Scheme::Gf2 };
        let threshold = (round / 2 % 16) as u8;
        exact_session(&mut rng, scheme, threshold);
    }
}

fn exact_session(rng: &mut ChaCha8Rng, scheme: Scheme, threshold: u8) {
    const SYMBOL_BYTES: u16 = 8;
    let window = 1 + below(rng, 20);
    let mut encoder = encoder(scheme, SYMBOL_BYTES, window);
    let mut adus: Vec<(u32, usize, Vec<u8>)> = Vec::new();
    let mut packets: Vec<Vec<u8>> = Vec::new();
    let mut symbols = 0;
    for _ in 0..24 {
        if below(rng, 3) > 0 {
            let length = below(rng, 22);
            let adu = bytes(rng, length);
            let Ok(esi) = encoder.push(FLOW, &adu) else { continue };
            let count = (3 + adu.len()).div_ceil(8);
            packets.push(source_packet(esi, &adu));
            adus.push((esi, count, adu));
            symbols += count;
        } else if encoder.held() > 0 {
            let count = 1 + below(rng, 2);
            packets.push(repair_packet(&mut encoder, threshold, SYMBOL_BYTES, count));
        }
    }
    if symbols == 0 {
        return;
    }
    let mut decoder = decoder(scheme, SYMBOL_BYTES, symbols);
    let mut oracle = Oracle::new(scheme, symbols, adus);
    packets.retain(|_| below(rng, 10) < 6);
    if below(rng, 2) == 0 {
        // Any order: a window as long as the session waits for all of them.
        packets.sort_by_cached_key(|_| rng.next_u32());
    }
    for packet in &packets {
        // Only source packets end in an ESI; the address distinguishes them.
        let is_source = oracle.adus.iter().any(|adu| source_packet(adu.0, &adu.2) == *packet);
        if is_source {
            let received = decoder.add_source(FLOW, packet).expect("an honest packet");
            oracle.add_source(packet, received);
        } else {
            let innovative = decoder.add_repair(packet).expect("an honest packet");
            assert_eq!(innovative, oracle.add_repair(packet));
        }
        for (esi, flow, bytes) in recovered(&mut decoder) {
            assert_eq!(flow, FLOW);
            oracle.deliver(esi, &bytes);
        }
        oracle.check();
    }
    assert_eq!(decoder.counts().malformed + decoder.counts().overrun, 0);
}

struct Oracle {
    scheme: Scheme,
    symbols: usize,
    /// First ESI, symbols, bytes.
    adus: Vec<(u32, usize, Vec<u8>)>,
    vectors: Reference,
    received: Vec<bool>,
    delivered: Vec<bool>,
}

impl Oracle {
    fn new(scheme: Scheme, symbols: usize, adus: Vec<(u32, usize, Vec<u8>)>) -> Self {
        let none = vec![false; adus.len()];
        let vectors = Reference::new(symbols);
        Self { scheme, symbols, adus, vectors, received: none.clone(), delivered: none }
    }

    fn unit(&self, symbol: usize) -> Vec<u8> {
        (0..self.symbols).map(|index| u8::from(index == symbol)).collect()
    }

    fn add_source(&mut self, packet: &[u8], received: Received<'_>) {
        let esi = u32::from_be_bytes(*packet.last_chunk().expect("an ESI"));
        let at = self.adus.iter().position(|adu| adu.0 == esi).expect("an ADU");
        let is_new = matches!(received, Received::New { adu, .. } if adu == self.adus[at].2);
        assert_eq!(is_new, !self.delivered[at], "ADU {at} twice or never");
        self.delivered[at] = true;
        self.received[at] = true;
        for symbol in 0..self.adus[at].1 {
            self.vectors.insert(&self.unit(esi as usize + symbol));
        }
    }

    /// Number of innovative repair symbols.
    fn add_repair(&mut self, packet: &[u8]) -> usize {
        let id = RepairId::from_bytes(*packet.first_chunk().expect("a payload ID"));
        let first = id.first as usize;
        let mut innovative = 0;
        for index in 0..(packet.len() - REPAIR_ID_BYTES) / 8 {
            let mut vector = vec![0; self.symbols];
            let window = &mut vector[first..first + usize::from(id.source_symbols)];
            coding_coefficients(self.scheme, id.key + index as u16, id.density, window);
            innovative += usize::from(self.vectors.insert(&vector));
        }
        innovative
    }

    fn deliver(&mut self, esi: u32, bytes: &[u8]) {
        let at = self.adus.iter().position(|adu| adu.0 == esi).expect("an ADU begins there");
        assert_eq!(self.adus[at].2, bytes);
        assert!(!self.delivered[at], "ADU {at} delivered twice");
        self.delivered[at] = true;
    }

    fn check(&self) {
        let mut is_certain = true; // the first one begins with ESI 0
        for (at, (esi, count, _)) in self.adus.iter().enumerate() {
            let is_known = |s: usize| self.vectors.contains(&self.unit(*esi as usize + s));
            is_certain |= self.received[at];
            let expected = is_certain && (0..*count).all(is_known);
            assert_eq!(self.delivered[at], expected, "ADU {at} at ESI {esi}");
            is_certain &= is_known(0);
        }
    }
}

/// Results of a long session.
#[derive(Default, Debug)]
struct Session {
    sent: usize,
    delivered: usize,
    counts: Counts,
}

/// A long session over a lossy, reordering, duplicating channel.
struct Channel {
    loss_percent: usize,
    repair_every: usize,
    threshold: u8,
    first_esi: u32,
}

fn long_session(
    rng: &mut ChaCha8Rng,
    encoder: &mut Encoder,
    decoder: &mut Decoder,
    channel: &Channel,
) -> Session {
    const SYMBOL_BYTES: u16 = 32;
    let mut session = Session::default();
    let mut sent: BTreeMap<u32, (Vec<u8>, bool)> = BTreeMap::new();
    let mut wire: Vec<Vec<u8>> = Vec::new();
    encoder.reset(channel.first_esi);
    for round in 0..3000 {
        let length = if below(rng, 8) == 0 { below(rng, 100) } else { 29 };
        let adu = bytes(rng, length);
        let esi = encoder.push(FLOW, &adu).expect("an ADU shorter than the window");
        wire.push([&[0], &*source_packet(esi, &adu)].concat());
        sent.insert(esi, (adu, false));
        if round % channel.repair_every == 0 {
            let repair = repair_packet(encoder, channel.threshold, SYMBOL_BYTES, 1);
            wire.push([&[1], &*repair].concat());
        }
        while wire.len() > 4 {
            let packet = wire.remove(below(rng, 3));
            if below(rng, 50) == 0 {
                wire.push(packet.clone());
            }
            if below(rng, 100) >= channel.loss_percent {
                receive(decoder, &packet, &mut sent);
            }
        }
    }
    session.sent = sent.len();
    session.delivered = sent.values().filter(|adu| adu.1).count();
    session.counts = decoder.counts();
    session
}

fn receive(decoder: &mut Decoder, packet: &[u8], sent: &mut BTreeMap<u32, (Vec<u8>, bool)>) {
    let mut deliver = |esi: u32, bytes: &[u8]| {
        let (adu, is_delivered) = sent.get_mut(&esi).expect("an ADU begins there");
        assert_eq!(adu, bytes, "ESI {esi}");
        assert!(!std::mem::replace(is_delivered, true), "ESI {esi} twice");
    };
    if packet[0] == 0 {
        match decoder.add_source(FLOW, &packet[1..]) {
            Ok(Received::New { esi, adu }) => deliver(esi, adu),
            Ok(Received::Duplicate) | Err(Rejected::Late { .. }) => {}
            Err(error) => panic!("an honest packet was rejected: {error}"),
        }
    } else {
        match decoder.add_repair(&packet[1..]) {
            Ok(_) | Err(Rejected::Late { .. }) => {}
            Err(error) => panic!("an honest packet was rejected: {error}"),
        }
    }
    for (esi, flow, bytes) in recovered(decoder) {
        assert_eq!(flow, FLOW);
        deliver(esi, &bytes);
    }
}

#[test]
fn any_density_and_field_deliver_only_what_was_sent() {
    let mut rng = seeded();
    for scheme in [Scheme::Gf2, Scheme::Gf256] {
        for threshold in 0..16 {
            let window = 1 + below(&mut rng, 60);
            let mut encoder = encoder(scheme, 32, window.max(4));
            let mut decoder = decoder(scheme, 32, window.max(4) + below(&mut rng, 60));
            let channel = Channel {
                loss_percent: below(&mut rng, 40),
                repair_every: 1 + below(&mut rng, 6),
                threshold,
                first_esi: rng.next_u32(),
            };
            let session = long_session(&mut rng, &mut encoder, &mut decoder, &channel);
            let lost = session.sent - session.delivered;
            assert!(session.delivered > 0 && session.counts.malformed == 0, "{session:?}");
            // Unrecovered symbols are those of lost ADUs; some are still in the window.
            assert!(lost == 0 || session.counts.given_up as usize + 200 >= lost, "{session:?}");
        }
    }
}

/// Repair symbols at a quarter against a loss of a tenth: hardly any residual loss.
#[test]
fn enough_repair_recovers_nearly_everything_across_the_wrap_of_the_esi() {
    let mut rng = seeded();
    for (scheme, threshold) in [(Scheme::Gf256, 15), (Scheme::Gf256, 7), (Scheme::Gf2, 7)] {
        let mut encoder = encoder(scheme, 32, 50);
        let mut decoder = decoder(scheme, 32, 100);
        let first_esi = 0_u32.wrapping_sub(1500);
        let channel = Channel { loss_percent: 10, repair_every: 3, threshold, first_esi };
        let session = long_session(&mut rng, &mut encoder, &mut decoder, &channel);
        // Except those still in flight.
        assert!(session.delivered + 30 >= session.sent, "{scheme:?} {threshold}: {session:?}");
        assert!(session.counts.recovered > 200, "{session:?}");
    }
}

#[test]
fn hostile_packets_end_in_errors() {
    let mut decoder = decoder(Scheme::Gf256, 8, 16);
    let mut repair = |bytes: &[u8]| decoder.add_repair(bytes);
    assert_eq!(repair(&[0; 7]), Err(Rejected::TooShort { bytes: 7, needed: 8 }));
    let id = |source_symbols, first| {
        RepairId { key: 0, density: Density::FULL, source_symbols, first }.to_bytes()
    };
    let with = |id: [u8; 8], symbol_bytes: usize| [&id[..], &vec![0; symbol_bytes]].concat();
    let wrong = |bytes| Err(Rejected::RepairBytes { bytes, symbol_bytes: 8 });
    assert_eq!(repair(&with(id(4, 0), 0)), wrong(0));
    assert_eq!(repair(&with(id(4, 0), 9)), wrong(9));
    assert_eq!(repair(&with(id(0, 0), 8)), Err(Rejected::NoSourceSymbols));
    let too_long = Rejected::WindowTooLong { source_symbols: 17, window_symbols: 16 };
    assert_eq!(repair(&with(id(17, 0), 8)), Err(too_long));
    // Key 0 is a key.
    assert_eq!(repair(&with(id(4, 100), 8)), Ok(1));
    assert_eq!(repair(&with(id(4, 80), 8)), Err(Rejected::Late { esi: 80, base: 88 }));

    let mut source = |esi: u32, adu: &[u8]| {
        let packet = source_packet(esi, adu);
        decoder.add_source(FLOW, &packet).map(|received| received != Received::Duplicate)
    };
    assert_eq!(source(100, &[1; 13]), Ok(true));
    assert_eq!(source(100, &[1; 13]), Ok(false));
    assert_eq!(source(101, &[1; 2]), Err(Rejected::Overlap { esi: 101 }));
    assert_eq!(source(99, &[1; 8]), Err(Rejected::Overlap { esi: 99 }));
    assert_eq!(source(87, &[1; 2]), Err(Rejected::Late { esi: 87, base: 88 }));
    assert_eq!(source(104, &[1; 200]), Err(Rejected::AduTooLong { bytes: 200 }));
    assert_eq!(source(104, &[1; 70_000]), Err(Rejected::AduTooLong { bytes: 70_000 }));
    let too_short = Err(Rejected::TooShort { bytes: 3, needed: 4 });
    assert_eq!(decoder.add_source(FLOW, &[0; 3]), too_short);
}

/// A repair packet of another flow's symbols decodes to bytes that a source packet contradicts.
#[test]
fn forged_recovery_is_noticed() {
    let mut decoder = decoder(Scheme::Gf256, 8, 16);
    let id = RepairId { key: 1, density: Density::FULL, source_symbols: 1, first: 0 };
    // A length of 0xFFFF is no ADU of this window.
    let forged = [&id.to_bytes()[..], &[0xFF; 8]].concat();
    assert_eq!(decoder.add_repair(&forged), Ok(1));
    assert!(decoder.next_recovered().is_none());
    assert_eq!(decoder.counts().malformed, 1);
    let id = RepairId { first: 5, ..id };
    assert_eq!(decoder.add_repair(&[&id.to_bytes()[..], &[0xFF; 8]].concat()), Ok(1));
    let honest = source_packet(5, b"abc");
    assert_eq!(decoder.add_source(FLOW, &honest), Err(Rejected::Mismatch { esi: 5 }));
}

#[test]
fn parameters_and_adus_out_of_range_are_errors() {
    let wanted = parameters(Scheme::Gf2, 2, 8);
    let too_small = ParametersError::SymbolBytes { symbol_bytes: 2 };
    assert_eq!(Decoder::new(wanted).err(), Some(too_small));
    for window_symbols in [0, 4096] {
        let wanted = parameters(Scheme::Gf2, 8, window_symbols);
        let expected = ParametersError::Window { window_symbols, max: 4095 };
        assert_eq!(Encoder::new(wanted).err(), Some(expected));
    }
    let mut encoder = encoder(Scheme::Gf2, 8, 4);
    let mut packet = [0; 16];
    assert_eq!(encoder.repair(Density::FULL, &mut packet), Err(RepairError::Empty));
    let too_long = AduError::Window { symbols: 5, window_symbols: 4 };
    assert_eq!(encoder.push(FLOW, &[0; 30]), Err(too_long));
    assert_eq!(encoder.push(FLOW, &[0; 70_000]), Err(AduError::TooLong { bytes: 70_000 }));
    assert_eq!(encoder.push(FLOW, &[0; 3]), Ok(0));
    let wrong = RepairError::Buffer { bytes: 15, symbol_bytes: 8 };
    assert_eq!(encoder.repair(Density::FULL, &mut packet[..15]), Err(wrong));
    encoder.retire(1);
    assert_eq!(encoder.repair(Density::FULL, &mut packet), Err(RepairError::Empty));
}

#[test]
fn a_decoder_takes_another_shape_within_its_memory() {
    let mut decoder = decoder(Scheme::Gf256, 32, 16);
    let shapes = [(Scheme::Gf2, 8), (Scheme::Gf256, 32), (Scheme::Gf256, 3), (Scheme::Gf2, 20)];
    let too_long = Err(ParametersError::SymbolBytes { symbol_bytes: 33 });
    assert_eq!(decoder.reshape(Scheme::Gf2, 33), too_long);
    assert!(decoder.reshape(Scheme::Gf2, 2).is_err());
    for (round, (scheme, symbol_bytes)) in shapes.into_iter().enumerate() {
        let mut encoder = encoder(scheme, symbol_bytes, 16);
        let start = 1000 * round as u32 + 100;
        encoder.reset(start);
        let adus: Vec<Vec<u8>> =
            (0..8).map(|index| vec![index; usize::from(symbol_bytes) - 3]).collect();
        for adu in &adus {
            encoder.push(FLOW, adu).expect("one symbol");
        }
        let mut repair = vec![0; REPAIR_ID_BYTES + usize::from(symbol_bytes)];
        encoder.repair(Density::FULL, &mut repair).expect("a window with symbols");
        let allocations = allocation_counter::measure(|| {
            decoder.reshape(scheme, symbol_bytes).expect("it fits");
        });
        assert_eq!(allocations.count_total, 0);
        for (esi, adu) in (start..).zip(&adus).filter(|(esi, _)| *esi != start + 5) {
            assert!(decoder.add_source(FLOW, &source_packet(esi, adu)).is_ok());
        }
        assert_eq!((decoder.end(), decoder.symbol(start + 5)), (start + 8, None));
        assert_eq!(decoder.add_repair(&repair), Ok(1));
        let expected = [&[FLOW, 0, symbol_bytes as u8 - 3][..], &adus[5]].concat();
        assert_eq!(decoder.symbol(start + 5), Some(&expected[..]));
        assert_eq!(decoder.symbol(start + 8), None);
    }
}

/// Residual loss at the planned rate is within the target, and not far below it.
#[test]
fn planned_rates_meet_their_target_without_waste() {
    let mut rng = seeded();
    let target = 2e-3;
    for (scheme, redundant, window_symbols, loss) in
        [(Scheme::Gf256, 1.0 / 256.0, 32, 0.1), (Scheme::Gf2, 0.5, 64, 0.05)]
    {
        let path = LossModel::independent(loss);
        let code = WindowCode { symbols: window_symbols, redundant, path };
        let rate = code.rate(target, 2.0);
        let mut encoder = encoder(scheme, 4, window_symbols);
        let mut decoder = decoder(scheme, 4, 2 * window_symbols);
        let (symbols, threshold) = (150_000, if scheme == Scheme::Gf2 { 7 } else { 15 });
        let (mut lost, mut back, mut credit) = (0, 0, 0.0);
        let mut is_lost = || f64::from(rng.next_u32()) < loss * 4_294_967_296.0;
        for number in 0..symbols {
            let adu = [number as u8];
            let esi = encoder.push(FLOW, &adu).expect("a short ADU");
            if is_lost() && number > 0 {
                lost += 1;
            } else {
                decoder.add_source(FLOW, &source_packet(esi, &adu)).expect("honest");
            }
            credit += rate;
            while credit >= 1.0 {
                credit -= 1.0;
                let packet = repair_packet(&mut encoder, threshold, 4, 1);
                if !is_lost() {
                    decoder.add_repair(&packet).expect("honest");
                }
            }
            while decoder.next_recovered().is_some() {
                back += 1;
            }
        }
        let residual = f64::from(lost - back) / f64::from(symbols);
        println!("{scheme:?}: rate {rate}, residual loss {residual:.5}, planned for {target}");
        assert!(residual < 2.5 * target && residual > target / 10.0, "{residual} at {rate}");
    }
}

/// Honest packets, mutated packets and noise: errors, no panic, not one allocation.
#[test]
fn noise_neither_panics_nor_allocates() {
    let mut rng = seeded();
    for scheme in [Scheme::Gf2, Scheme::Gf256] {
        let mut encoder = encoder(scheme, 16, 40);
        let mut decoder = decoder(scheme, 16, 64);
        let mut packets = Vec::new();
        for round in 0..4000 {
            let length = below(&mut rng, 40);
            let adu = bytes(&mut rng, length);
            let esi = encoder.push(FLOW, &adu).expect("a short ADU");
            let mut packet = if round % 3 == 0 {
                repair_packet(&mut encoder, below(&mut rng, 16) as u8, 16, 1)
            } else {
                source_packet(esi, &adu)
            };
            if below(&mut rng, 3) == 0 {
                let at = below(&mut rng, packet.len());
                packet[at] ^= 1 << below(&mut rng, 8);
            }
            if below(&mut rng, 9) == 0 {
                let length = below(&mut rng, 40);
                packet = bytes(&mut rng, length);
            }
            packets.push((round % 3 == 0, packet));
        }
        let mut used = 0;
        let allocations = allocation_counter::measure(|| {
            for (is_repair, packet) in &packets {
                used += usize::from(if *is_repair {
                    decoder.add_repair(packet).is_ok()
                } else {
                    decoder.add_source(FLOW, packet).is_ok()
                });
                while let Some(adu) = decoder.next_recovered() {
                    used += adu.chunks().map(<[u8]>::len).sum::<usize>().min(1);
                }
            }
        });
        assert_eq!(allocations.count_total, 0, "{allocations:?}");
        assert!(used > 0);
    }
}
