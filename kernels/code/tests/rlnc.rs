//! Whole generations through encoder, recoders and decoder, and all invalid inputs.

use proptest::prelude::*;
use recoded_code::Outcome;
use recoded_code::rlnc::{
    Coding, Decoder, Density, Encoder, Error, Generator, Packet, Random, Recoder, draw,
};
use recoded_gf::{FieldOrder, Kernel};

/// A generation and the path of its packets.
#[derive(Clone, Debug)]
struct Case {
    size: usize,
    bytes: usize,
    field: FieldOrder,
    is_systematic: bool,
    density: Density,
    relays: usize,
    loss: f64,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let density = prop_oneof![
        Just(Density::UNIFORM),
        (0.3..0.9).prop_map(|share| Density::share(share).expect("a share")),
    ];
    let channel = (0_usize..3, 0.0..0.4, any::<u64>());
    let shape = (1_usize..40, 0_usize..50, 0_u8..4);
    (shape, any::<bool>(), density, channel).prop_map(
        |((size, bytes, code), is_systematic, density, (relays, loss, seed))| Case {
            size,
            bytes,
            field: FieldOrder::from_code(code).expect("a code below four"),
            is_systematic,
            density,
            relays,
            loss,
            seed,
        },
    )
}

/// A packet.
#[derive(Clone)]
struct CodedPacket {
    vector: Vec<u8>,
    symbol: Vec<u8>,
}

fn slices(symbols: &[Vec<u8>]) -> Vec<&[u8]> {
    symbols.iter().map(Vec::as_slice).collect()
}

fn random_bytes(random: &mut Random, bytes: usize) -> Vec<u8> {
    let mut symbol = vec![0; bytes];
    random.fill(FieldOrder::TwoFiftySix, &mut symbol);
    symbol
}

/// Whether the channel loses a packet.
fn is_lost(channel: &mut Random, loss: f64) -> bool {
    random_bytes(channel, 2).iter().fold(0.0, |sum, &byte| (sum + f64::from(byte)) / 256.0) < loss
}

/// The next packet of a source that has `present` symbols.
fn encoded(
    encoder: &mut Encoder,
    random: &mut Random,
    symbols: &[Vec<u8>],
    present: usize,
) -> CodedPacket {
    let (mut vector, mut symbol) = (vec![0; encoder.size()], vec![0; symbols[0].len()]);
    match encoder.next(present, random, &mut vector).expect("a packet") {
        Packet::Systematic(index) => {
            vector[index] = 1;
            symbol.copy_from_slice(&symbols[index]);
        }
        Packet::Coded => encoder
            .encode(&slices(&symbols[..present]), &vector, &mut [&mut symbol])
            .expect("a drawn vector"),
    }
    CodedPacket { vector, symbol }
}

/// Presents `vector` to a recoder or decoder: unit vectors as systematic packets.
fn coding(vector: &[u8]) -> Coding<'_> {
    let mut others = vector.iter().enumerate().filter(|(_, element)| **element != 0);
    match (others.next(), others.next()) {
        (Some((index, 1)), None) => Coding::Systematic(index),
        _ => Coding::Vector(vector),
    }
}

/// A relay's output, from those of `packets` that reach it.
fn relayed(
    case: &Case,
    random: &mut Random,
    channel: &mut Random,
    packets: &[CodedPacket],
    count: usize,
) -> Vec<CodedPacket> {
    let mut recoder = Recoder::new(64).expect("a valid size");
    recoder.reset(case.size).expect("there is room");
    let mut held = Vec::new();
    for CodedPacket { vector, symbol } in packets {
        if !is_lost(channel, case.loss)
            && recoder.insert(coding(vector)).expect("a packet").is_innovative()
        {
            held.push(symbol.clone());
        }
    }
    assert_eq!(recoder.rank(), held.len());
    if held.is_empty() {
        return Vec::new();
    }
    let mut vectors = vec![0xFF; count * case.size];
    let mut symbols = vec![vec![0xFF; case.bytes]; count];
    let mut places: Vec<&mut [u8]> = symbols.iter_mut().map(Vec::as_mut_slice).collect();
    let recoded = recoder.recode(case.field, random, &slices(&held), &mut vectors, &mut places);
    recoded.expect("a payload set");
    let vectors = vectors.chunks(case.size).map(<[u8]>::to_vec);
    vectors.zip(symbols).map(|(vector, symbol)| CodedPacket { vector, symbol }).collect()
}

/// Inserts packets and checks every symbol as soon as they determine it.
struct Sink<'a> {
    decoder: Decoder,
    source: &'a [Vec<u8>],
    held: Vec<Vec<u8>>,
    named: Vec<usize>,
}

impl Sink<'_> {
    fn take(&mut self, packet: &CodedPacket) {
        let CodedPacket { vector, symbol } = packet;
        let before = self.decoder.rank();
        match self.decoder.insert(coding(vector)).expect("a packet") {
            Outcome::Innovative { rank, slot } => {
                assert_eq!((rank, slot), (before + 1, self.held.len()));
                self.held.push(symbol.clone());
            }
            Outcome::Redundant => assert_eq!(self.decoder.rank(), before),
        }
        while let Some(index) = self.decoder.next_decoded() {
            assert!(!self.named.contains(&index), "symbol {index} is named once");
            self.named.push(index);
            let mut restored = vec![0xFF; symbol.len()];
            let payloads = slices(&self.held);
            self.decoder.restore(&[index], &payloads, &mut [&mut restored]).expect("decoded");
            assert_eq!(restored, self.source[index], "symbol {index}");
            if let Some(slot) = self.decoder.arrived(index) {
                assert_eq!(self.held[slot], self.source[index]);
            }
        }
        self.check_counts();
    }

    fn check_counts(&self) {
        let decoder = &self.decoder;
        let size = decoder.size();
        let count = |is: &dyn Fn(usize) -> bool| (0..size + 2).filter(|&s| is(s)).count();
        assert_eq!(count(&|symbol| decoder.is_seen(symbol)), decoder.rank());
        assert_eq!(count(&|symbol| decoder.is_decoded(symbol)), decoder.decoded());
        assert_eq!(decoder.decoded(), self.named.len());
        let sum = decoder.missing() + decoder.partially_decoded() + decoder.decoded();
        assert_eq!(sum, size);
        assert_eq!(decoder.is_complete(), decoder.missing() == 0);
    }
}

proptest! {
    #[test]
    fn decode_after_any_relays_and_losses_restores_every_symbol(case in cases()) {
        let (mut random, mut channel) = (Random::new(case.seed), Random::new(!case.seed));
        let source: Vec<Vec<u8>> =
            (0..case.size).map(|_| random_bytes(&mut random, case.bytes)).collect();
        let mut encoder = Encoder::new(case.size, case.field).expect("a valid size");
        encoder.set_systematic(case.is_systematic);
        random.set_density(case.density);
        let decoder = Decoder::new(64).expect("a valid size");
        let mut sink = Sink { decoder, source: &source, held: Vec::new(), named: Vec::new() };
        sink.decoder.reset(case.size).expect("there is room");
        let mut packets = Vec::new();
        for _ in 0..50 {
            packets.extend(
                (0..8 + case.size).map(|_| encoded(&mut encoder, &mut random, &source, case.size)),
            );
            let mut arriving = packets.clone();
            for _ in 0..case.relays {
                arriving = relayed(&case, &mut random, &mut channel, &arriving, 2 * case.size + 8);
            }
            for packet in arriving.iter().filter(|_| !is_lost(&mut channel, case.loss)) {
                sink.take(packet);
            }
            if sink.decoder.is_complete() {
                break;
            }
        }
        prop_assert!(sink.decoder.is_complete(), "rank {} of {}", sink.decoder.rank(), case.size);
    }

    #[test]
    fn growing_generation_is_delivered_as_it_grows(case in cases()) {
        let (mut random, mut channel) = (Random::new(case.seed), Random::new(!case.seed));
        let source: Vec<Vec<u8>> =
            (0..case.size).map(|_| random_bytes(&mut random, case.bytes)).collect();
        let mut encoder = Encoder::new(case.size, case.field).expect("a valid size");
        encoder.set_systematic(case.is_systematic);
        random.set_density(case.density);
        let decoder = Decoder::new(case.size).expect("a valid size");
        let mut sink = Sink { decoder, source: &source, held: Vec::new(), named: Vec::new() };
        for present in 1..=case.size {
            // Until the sink has all symbols of the source: later ones are not included.
            for _ in 0..1000 {
                let packet = encoded(&mut encoder, &mut random, &source, present);
                prop_assert!(packet.vector[present..].iter().all(|&element| element == 0));
                if !is_lost(&mut channel, case.loss) {
                    sink.take(&packet);
                }
                if sink.decoder.decoded() == present {
                    break;
                }
            }
            prop_assert_eq!(sink.decoder.decoded(), present);
        }
        prop_assert!(sink.decoder.is_complete());
    }

    #[test]
    fn hostile_packets_end_in_outcomes_and_errors(
        size in 1_usize..20,
        packets in proptest::collection::vec((0_u8..5, any::<usize>(), any::<u64>()), 1..200),
    ) {
        let mut decoder = Decoder::new(20).expect("a valid size");
        let mut recoder = Recoder::new(20).expect("a valid size");
        decoder.reset(size).expect("there is room");
        recoder.reset(size).expect("there is room");
        let (mut earlier, mut redundant) = (vec![0; size], 0);
        for (kind, number, seed) in packets {
            let mut random = Random::new(seed);
            let drawn = random_bytes(&mut random, number % 24);
            let zero = vec![0; size];
            let coding = match kind {
                0 => Coding::Systematic(number % 24),
                1 => Coding::Systematic(number),
                2 => Coding::Vector(&drawn),
                3 => Coding::Vector(&earlier),
                _ => Coding::Vector(&zero),
            };
            let (rank, outcome) = (decoder.rank(), decoder.insert(coding));
            prop_assert_eq!(recoder.insert(coding), outcome);
            let expected = match coding {
                Coding::Systematic(index) if index >= size => Err(Error::Index { index, size }),
                Coding::Vector(vector) if vector.len() != size => {
                    Err(Error::VectorLength { found: vector.len(), expected: size })
                }
                _ if kind > 2 => Ok(Outcome::Redundant),
                _ => outcome,
            };
            prop_assert_eq!(outcome, expected);
            redundant += u64::from(outcome == Ok(Outcome::Redundant));
            let innovative = outcome.is_ok_and(Outcome::is_innovative);
            prop_assert_eq!(decoder.rank(), rank + usize::from(innovative));
            prop_assert_eq!(decoder.redundant(), redundant);
            if kind == 2 && innovative {
                earlier = drawn;
            }
        }
    }
}

/// Bytes of a symbol if few are enough.
const BYTES: usize = 32;

/// A source of `size` symbols.
fn source(random: &mut Random, size: usize) -> Vec<Vec<u8>> {
    (0..size).map(|_| random_bytes(random, BYTES)).collect()
}

#[test]
fn largest_generation_is_recoded_and_decoded() {
    const SIZE: usize = 1024;
    let mut random = Random::new(1);
    let source = source(&mut random, SIZE);
    for field in [FieldOrder::Two, FieldOrder::TwoFiftySix] {
        let mut encoder = Encoder::new(SIZE, field).expect("a valid size");
        let mut recoder = Recoder::new(SIZE).expect("a valid size");
        let mut held = Vec::new();
        while recoder.rank() < SIZE {
            // Half of the symbols arrive uncoded.
            encoder.set_systematic(held.len() < SIZE / 2);
            let packet = encoded(&mut encoder, &mut random, &source, SIZE);
            if recoder.insert(coding(&packet.vector)).expect("a packet").is_innovative() {
                held.push(packet.symbol);
            }
        }
        let held = slices(&held);
        let mut decoder = Decoder::new(SIZE).expect("a valid size");
        let mut received = Vec::new();
        while !decoder.is_complete() {
            let (mut vectors, mut symbols) = (vec![0; 40 * SIZE], vec![vec![0; BYTES]; 40]);
            let mut places: Vec<&mut [u8]> = symbols.iter_mut().map(Vec::as_mut_slice).collect();
            let recoded = recoder.recode(field, &mut random, &held, &mut vectors, &mut places);
            assert_eq!(recoded, Ok(()));
            for (vector, symbol) in vectors.chunks(SIZE).zip(symbols) {
                if decoder.insert(Coding::Vector(vector)).expect("a packet").is_innovative() {
                    received.push(symbol);
                }
            }
        }
        let all: Vec<usize> = (0..SIZE).rev().collect();
        let mut restored = vec![vec![0; BYTES]; SIZE];
        let mut places: Vec<&mut [u8]> = restored.iter_mut().rev().map(Vec::as_mut_slice).collect();
        assert_eq!(decoder.restore(&all, &slices(&received), &mut places), Ok(()));
        assert!(restored == source, "GF({field})");
    }
}

#[test]
fn nothing_is_allocated_for_packets_however_hostile() {
    let size = 64;
    let mut random = Random::new(2);
    let source = source(&mut random, size);
    let symbols = slices(&source);
    let mut encoder = Encoder::new(size, FieldOrder::Sixteen).expect("a valid size");
    let mut recoder = Recoder::new(size).expect("a valid size");
    let mut decoder = Decoder::new(size).expect("a valid size");
    let (mut vector, mut symbol, mut restored) = (vec![0; size], vec![0; BYTES], vec![0; BYTES]);
    let mut recode = |decoder: &mut Decoder, recoder: &mut Recoder| {
        for round in 0..2_000 {
            if round % 500 == 0 {
                decoder.reset(size).expect("there is room");
                recoder.reset(size).expect("there is room");
            }
            draw(&mut random, FieldOrder::Sixteen, size - 1, &mut vector).expect("a vector");
            encoder.encode(&symbols, &vector, &mut [&mut symbol]).expect("a drawn vector");
            for coding in [
                Coding::Vector(&vector),
                Coding::Vector(&vector[1..]),
                Coding::Systematic(size - 2),
                Coding::Systematic(size),
            ] {
                let _ = std::hint::black_box((decoder.insert(coding), recoder.insert(coding)));
            }
            let (rank, held) = (decoder.rank(), &symbols[..decoder.rank()]);
            assert_eq!(rank, recoder.rank());
            let recoded =
                recoder.recode(FieldOrder::Two, &mut random, held, &mut vector, &mut [&mut symbol]);
            assert_eq!(recoded, Ok(()));
            while let Some(index) = decoder.next_decoded() {
                decoder.restore(&[index], held, &mut [&mut restored]).expect("decoded");
            }
        }
    };
    // Exclude one-time setup per process.
    recode(&mut decoder, &mut recoder);
    let allocations = allocation_counter::measure(|| recode(&mut decoder, &mut recoder));
    assert_eq!(allocations.count_total, 0);
    assert_eq!(decoder.rank(), size - 1, "no packet ever had the last symbol");
}

#[test]
fn encoder_refuses_what_it_cannot_encode() {
    let field = FieldOrder::Sixteen;
    assert_eq!(Encoder::new(0, field).err(), Some(Error::Size { size: 0, size_max: 1024 }));
    assert_eq!(Encoder::new(1025, field).err(), Some(Error::Size { size: 1025, size_max: 1024 }));
    let mut encoder = Encoder::new(4, field).expect("a valid size");
    let mut random = Random::new(3);
    let mut vector = [0; 4];
    assert_eq!(
        encoder.next(0, &mut random, &mut vector),
        Err(Error::Present { present: 0, size: 4 })
    );
    assert_eq!(
        encoder.next(5, &mut random, &mut vector),
        Err(Error::Present { present: 5, size: 4 })
    );
    assert_eq!(
        encoder.next(4, &mut random, &mut vector[..3]),
        Err(Error::VectorLength { found: 3, expected: 4 })
    );
    let (symbols, mut made): ([&[u8]; 3], _) = ([&[1; 5], &[2; 5], &[3; 5]], [9; 5]);
    let mut encode = |symbols: &[&[u8]], vectors: &[u8]| {
        let outcome = encoder.encode(symbols, vectors, &mut [&mut made]);
        (outcome, made)
    };
    let refused = |error| (Err(error), [9; 5]);
    assert_eq!(encode(&[], &[1, 0, 0, 0]), refused(Error::Present { present: 0, size: 4 }));
    assert_eq!(encode(&[symbols[0]; 5], &[1; 4]), refused(Error::Present { present: 5, size: 4 }));
    let length = Error::VectorLength { found: 5, expected: 4 };
    assert_eq!(encode(&symbols, &[1; 5]), refused(length));
    assert_eq!(encode(&symbols, &[1; 8]), refused(Error::Payloads { found: 1, expected: 2 }));
    let bytes = Error::SymbolBytes { found: 6, expected: 5 };
    assert_eq!(encode(&[&[1; 5], &[1; 6]], &[1; 4]), refused(bytes));
    assert_eq!(encode(&symbols, &[0; 4]), refused(Error::ZeroVector));
    assert_eq!(encode(&symbols, &[1; 4]), refused(Error::Absent { symbol: 3, present: 3 }));
    let outside = Error::OutsideField { element: 2, field };
    assert_eq!(encode(&symbols, &[1, 2, 0, 0]), refused(outside));
    assert_eq!(encode(&symbols, &[1, 1, 1, 0]), (Ok(()), [1 ^ 2 ^ 3; 5]));
}

#[test]
fn recoder_and_decoder_refuse_payloads_that_do_not_fit() {
    let mut recoder = Recoder::new(4).expect("a valid size");
    let mut decoder = Decoder::new(4).expect("a valid size");
    assert_eq!(recoder.reset(5), Err(Error::Size { size: 5, size_max: 4 }));
    assert_eq!(decoder.reset(0), Err(Error::Size { size: 0, size_max: 4 }));
    let (mut random, mut vector, mut made) = (Random::new(4), [0; 4], [9; 2]);
    let mut recode = |recoder: &mut Recoder, held: &[&[u8]], elements: usize| {
        let (vectors, field) = (&mut vector[..elements], FieldOrder::Two);
        recoder.recode(field, &mut random, held, vectors, &mut [&mut made])
    };
    let nothing = Error::Present { present: 0, size: 4 };
    assert_eq!(recode(&mut recoder, &[], 4), Err(nothing));
    for coding in [Coding::Systematic(2), Coding::Vector(&[1, 1, 0, 0])] {
        assert!(recoder.insert(coding).expect("a packet").is_innovative());
        assert!(decoder.insert(coding).expect("a packet").is_innovative());
    }
    let (short, held): ([&[u8]; 1], [&[u8]; 2]) = ([&[1; 2]], [&[1; 2], &[2; 2]]);
    let count = Error::Payloads { found: 1, expected: 2 };
    assert_eq!(recode(&mut recoder, &short, 4), Err(count));
    let length = Error::VectorLength { found: 3, expected: 4 };
    assert_eq!(recode(&mut recoder, &held, 3), Err(length));
    let bytes = Error::SymbolBytes { found: 3, expected: 2 };
    assert_eq!(recode(&mut recoder, &[&[1; 2], &[2; 3]], 4), Err(bytes));
    assert_eq!(recode(&mut recoder, &held, 4), Ok(()));

    let mut restore = |symbol, held: &[&[u8]]| decoder.restore(&[symbol], held, &mut [&mut made]);
    assert_eq!(restore(2, &short), Err(count));
    assert_eq!(restore(2, &[&[1; 3], &[2; 3]]), Err(Error::SymbolBytes { found: 2, expected: 3 }));
    assert_eq!(restore(0, &held), Err(Error::NotDecoded { symbol: 0 }), "seen, but mixed");
    assert_eq!(restore(4, &held), Err(Error::NotDecoded { symbol: 4 }));
    assert_eq!(restore(2, &held), Ok(()));
    assert_eq!(made, [1; 2]);
    let pair = decoder.restore(&[2, 2], &held, &mut [&mut made]);
    assert_eq!(pair, Err(Error::Payloads { found: 1, expected: 2 }));
}

#[test]
fn recode_with_explicit_coefficients_combines_vectors_and_symbols_alike() {
    let mut random = Random::new(5);
    let source = source(&mut random, 40);
    let mut recoder = Recoder::new(50).expect("a valid size");
    recoder.reset(40).expect("there is room");
    let mut held = Vec::new();
    for index in 0..20 {
        assert!(recoder.insert(Coding::Systematic(2 * index)).expect("fresh").is_innovative());
        held.push(source[2 * index].as_slice());
    }
    let coefficients = random_bytes(&mut random, 18 * 20);
    let (mut vectors, mut symbols) = (vec![0xFF; 18 * 40], vec![vec![0; BYTES]; 18]);
    let mut places: Vec<&mut [u8]> = symbols.iter_mut().map(Vec::as_mut_slice).collect();
    let short = recoder.recode_with(&coefficients[1..], &held, &mut vectors, &mut places);
    assert_eq!(short, Err(Error::VectorLength { found: 359, expected: 360 }));
    assert_eq!(recoder.recode_with(&coefficients, &held, &mut vectors, &mut places), Ok(()));
    for (vector, symbol) in vectors.chunks(40).zip(&symbols) {
        let mut expected = vec![0; BYTES];
        Kernel::best().matmul(vector, &slices(&source), &mut [&mut expected]);
        assert_eq!(symbol, &expected);
    }
}

/// Custom coefficients: all the same.
struct Constant(u8);

impl Generator for Constant {
    fn fill(&mut self, _: FieldOrder, row: &mut [u8]) {
        row.fill(self.0);
    }
}

#[test]
fn generators_of_the_callers_own_are_held_to_their_contract() {
    let mut vector = [7; 4];
    let field = FieldOrder::Four;
    assert_eq!(draw(&mut Constant(1), field, 3, &mut vector), Ok(()));
    assert_eq!(vector, [1, 1, 1, 0]);
    assert_eq!(draw(&mut Constant(0), field, 4, &mut vector), Err(Error::ZeroVector));
    let outside = Error::OutsideField { element: 2, field };
    assert_eq!(draw(&mut Constant(2), field, 4, &mut vector), Err(outside));
}

#[test]
fn densities_outside_their_range_are_refused() {
    for share in [0.0, -0.5, 1.000_1, f64::INFINITY] {
        assert_eq!(Density::share(share), Err(Error::Density { share }));
    }
    assert!(matches!(Density::share(f64::NAN), Err(Error::Density { .. })));
    let mut random = Random::new(6);
    random.set_density(Density::share(1.0).expect("the densest"));
    let mut vector = [0; 1000];
    draw(&mut random, FieldOrder::TwoFiftySix, 1000, &mut vector).expect("a vector");
    assert!(vector.iter().all(|&element| element != 0));
    random.set_density(Density::share(f64::MIN_POSITIVE).expect("the sparsest"));
    draw(&mut random, FieldOrder::Two, 1000, &mut vector).expect("a vector");
    assert_eq!(vector.iter().filter(|&&element| element != 0).count(), 1, "never none");
    random.fill(FieldOrder::Two, &mut []);
}
