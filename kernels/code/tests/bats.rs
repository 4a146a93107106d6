//! The outer code of BATS end to end: blocks through lossy lines of recoding relays.

#![cfg(feature = "bats")]

mod bats_line;

use std::convert::Infallible;

use bats_line::{Line, random, seed};
use rand_chacha::rand_core::Rng;
use recoded_code::bats::{
    Batch, Code, Decoder, Effort, Gain, Limits, Operand, PAPER_ROW_DEGREES, Params, ParamsError,
    Payloads, Profile, Rejected, Rows,
};
use recoded_gf::Kernel;

/// Payload work that is skipped: for tests of coefficients only.
struct Nothing;

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

/// Payload work that fails occasionally.
struct Flaky<'a> {
    rows: &'a mut Rows,
    left: u32,
}

impl Payloads for Flaky<'_> {
    type Error = ();

    fn combine(
        &mut self,
        coefficients: &[u8],
        sources: &[Operand],
        destinations: &[Operand],
        accumulate: bool,
    ) -> Result<(), ()> {
        let is_new = destinations.iter().any(|&row| self.rows.get(row).is_none());
        if is_new && self.left == 0 {
            return Err(());
        }
        self.left = self.left.saturating_sub(1);
        let Ok(()) = self.rows.combine(coefficients, sources, destinations, accumulate);
        Ok(())
    }
}

fn params(source_symbols: usize, profile: Profile) -> Params {
    Params { source_symbols, profile, ..Params::default() }
}

/// Encodes random blocks, sends batches until the decoder has enough, compares every byte.
fn assert_round_trip(code: &Code, line: &mut Line, flaky: bool) {
    const SYMBOL_BYTES: usize = 24;
    let shape = code.params();
    let mut source = Rows::new(SYMBOL_BYTES);
    let symbols: Vec<Vec<u8>> = (0..shape.source_symbols)
        .map(|_| (0..SYMBOL_BYTES).map(|_| line.random.next_u32() as u8).collect())
        .collect();
    for (index, symbol) in symbols.iter().enumerate() {
        source.set(Operand::Symbol(index as u16), symbol);
    }
    let Ok(()) = code.precode_symbols(&mut source);
    let mut decoder = Decoder::new(Limits::of(shape.source_symbols, shape.batch_size));
    decoder.reset(shape).expect("within its own limits");
    let mut sink = Rows::new(SYMBOL_BYTES);
    let mut known = vec![false; shape.source_symbols];
    let mut batch = Batch::new();
    for id in 0..u16::MAX {
        if decoder.is_complete() {
            break;
        }
        code.batch(id, &mut batch);
        for vector in line.cross(shape.batch_size) {
            let Ok(Gain::Innovative { slot }) = decoder.insert(id, &vector) else { continue };
            let payload = combine(&vector, &batch, &source, SYMBOL_BYTES);
            sink.set(Operand::Received(slot), &payload);
            loop {
                let left = if flaky { line.random.next_u32() % 4 } else { u32::MAX };
                let mut payloads = Flaky { rows: &mut sink, left };
                if decoder.advance(&mut payloads, |symbol| known[usize::from(symbol)] = true)
                    == Ok(())
                {
                    break;
                }
            }
        }
    }
    assert!(known.iter().all(|&known| known), "{shape:?}: not every symbol was reported");
    for (index, symbol) in symbols.iter().enumerate() {
        assert!(decoder.is_decoded(index));
        let decoded = sink.get(Operand::Symbol(index as u16));
        assert_eq!(decoded, Some(symbol.as_slice()), "{shape:?}: symbol {index}");
    }
}

/// The payload of a packet with this coding vector.
fn combine(vector: &[u8], batch: &Batch, source: &Rows, symbol_bytes: usize) -> Vec<u8> {
    let mut factors = vec![0; batch.degree()];
    Kernel::best().reduce(&mut factors, vector, batch.generator(), batch.degree());
    let mut payload = vec![0; symbol_bytes];
    for (&factor, &symbol) in factors.iter().zip(batch.indices()) {
        let row = source.get(Operand::Symbol(symbol)).expect("a symbol that was encoded");
        Kernel::best().madd(&mut payload, factor, row);
    }
    payload
}

#[test]
fn blocks_of_every_profile_and_shape_decode_to_themselves() {
    let mut line = Line::new(seed("round trip"), 3, 0.2);
    for profile in Profile::ALL {
        for source_symbols in [1, 2, 5, 16, 17, 31, 40, 100, 117, 200, 256, 300] {
            for (batch_size, generator_bits) in [(16, 8), (16, 2), (4, 4), (32, 3), (1, 8)] {
                let shape = Params { source_symbols, batch_size, profile, generator_bits };
                let code = Code::new(shape).expect("valid parameters");
                assert_round_trip(&code, &mut line, false);
            }
        }
    }
}

#[test]
fn large_batches_and_blocks_decode_to_themselves() {
    let mut line = Line::new(seed("large"), 2, 0.1);
    for (source_symbols, batch_size) in [(1024, 16), (700, 64), (1024, 128)] {
        let shape = Params { source_symbols, batch_size, ..Params::default() };
        assert_round_trip(&Code::new(shape).expect("valid parameters"), &mut line, false);
    }
}

#[test]
fn decoding_goes_on_where_payload_work_failed() {
    let mut line = Line::new(seed("flaky"), 4, 0.1);
    for profile in Profile::ALL {
        let code = Code::new(params(150, profile)).expect("valid parameters");
        assert_round_trip(&code, &mut line, true);
    }
}

/// Sends `batches` batches; returns whether all symbols are then determined.
fn decodes(code: Code, batches: u16, decoder: &mut Decoder, line: &mut Line) -> bool {
    let batch_size = code.params().batch_size;
    decoder.reset_with(code).expect("within the limits");
    for id in 0..batches {
        for vector in line.cross(batch_size) {
            decoder.insert(id, &vector).expect("there is room");
        }
    }
    let Ok(()) = decoder.advance(&mut Nothing, |_| ());
    decoder.is_complete()
}

#[test]
fn structured_block_of_192_decodes_from_20_batches_over_any_number_of_hops() {
    // The paper's experiment 1, which always decodes at full coefficient width.
    let mut decoder = Decoder::new(Limits::of(192, 16));
    for hops in [1, 2, 4, 7, 10, 15, 20] {
        let mut line = Line::new(seed("structured"), hops, 0.1);
        for run in 0..15 {
            let shape = params(192, Profile::CyclicShift);
            let code = Code::with_row_degrees(shape, &PAPER_ROW_DEGREES).expect("valid");
            assert!(decodes(code, 20, &mut decoder, &mut line), "paper, {hops} hops, run {run}");
            let code = Code::new(shape).expect("valid");
            assert!(decodes(code, 20, &mut decoder, &mut line), "{hops} hops, run {run}");
        }
    }
}

/// Successful runs among `runs`: the block is decoded once the received rank is `share` of its
/// symbols.
fn decoded_at_rank(shape: Params, share: f64, runs: usize, hops: usize) -> usize {
    let mut line = Line::new(seed("rank"), hops, 0.1);
    let mut decoder = Decoder::new(Limits::of(shape.source_symbols, shape.batch_size));
    let enough = (share * shape.source_symbols as f64).floor() as usize;
    let mut decoded = 0;
    for run in 0..runs {
        decoder.reset(shape).expect("within the limits");
        // Random graphs differ by batch id; a structured one begins with its first batch.
        let is_random = shape.profile != Profile::CyclicShift;
        let mut id = if is_random { (run * 97) as u16 } else { 0 };
        while decoder.rank() < enough {
            let mut vectors = line.cross(shape.batch_size);
            vectors.truncate(enough - decoder.rank());
            for vector in vectors {
                decoder.insert(id, &vector).expect("there is room");
            }
            id = id.wrapping_add(1);
        }
        let Ok(()) = decoder.advance(&mut Nothing, |_| ());
        decoded += usize::from(decoder.is_complete());
    }
    decoded
}

#[test]
fn precoded_blocks_decode_from_five_percent_more_than_their_size() {
    assert!(decoded_at_rank(params(256, Profile::Precoded), 1.05, 100, 10) >= 99);
    assert!(decoded_at_rank(params(1024, Profile::Precoded), 1.05, 20, 10) >= 20);
}

#[test]
fn cyclic_shift_blocks_decode_from_two_percent_more_than_their_size() {
    for hops in [1, 4, 10] {
        let decoded = decoded_at_rank(params(256, Profile::CyclicShift), 1.02, 50, hops);
        assert!(decoded >= 49, "{hops} hops: {decoded} of 50");
    }
    assert!(decoded_at_rank(params(1024, Profile::CyclicShift), 1.02, 10, 4) >= 10);
}

#[test]
fn batches_are_what_their_profile_says() {
    let mut batch = Batch::new();
    for profile in Profile::ALL {
        for generator_bits in [1, 2, 3, 4, 8] {
            let shape = Params { generator_bits, ..params(300, profile) };
            let code = Code::new(shape).expect("valid parameters");
            for id in (0..100).chain([u16::MAX]) {
                code.batch(id, &mut batch);
                let mut sorted = batch.indices().to_vec();
                sorted.sort_unstable();
                sorted.dedup();
                assert_eq!(sorted.len(), batch.degree(), "{profile}, batch {id}: a symbol twice");
                assert!(
                    usize::from(*sorted.last().expect("a degree")) < code.intermediate_symbols()
                );
                assert_eq!(batch.generator().len(), 16 * batch.degree());
                let limit = 1u16 << generator_bits;
                assert!(batch.generator().iter().all(|&c| u16::from(c) < limit));
            }
        }
    }
}

#[test]
fn cyclic_shift_graph_covers_every_symbol_equally_often() {
    for source_symbols in [117, 192, 256, 500, 1024] {
        let code = Code::new(params(source_symbols, Profile::CyclicShift)).expect("valid");
        let rows = code.base_graph().expect("a base graph").rows();
        let mut counts = vec![0u32; source_symbols];
        let mut batch = Batch::new();
        for id in 0..(3 * rows) as u16 {
            code.batch(id, &mut batch);
            batch.indices().iter().for_each(|&symbol| counts[usize::from(symbol)] += 1);
        }
        let (least, most) = (counts.iter().min(), counts.iter().max());
        let spread = most.zip(least).map(|(most, least)| most - least);
        assert!(spread <= Some(3), "K = {source_symbols}: spread {spread:?}");
    }
}

#[test]
fn row_of_the_base_graph_moves_by_one_per_layer() {
    let code = Code::new(params(256, Profile::CyclicShift)).expect("valid parameters");
    let rows = code.base_graph().expect("a base graph").rows();
    let (mut first, mut later) = (Batch::new(), Batch::new());
    code.batch(2, &mut first);
    code.batch((2 + 5 * rows) as u16, &mut later);
    let moved: Vec<u16> = first.indices().iter().map(|symbol| (symbol + 5) % 256).collect();
    assert_eq!(later.indices(), moved);
    assert_eq!(later.generator(), first.generator());
}

#[test]
fn parameters_out_of_range_are_refused() {
    let with = |change: fn(&mut Params)| {
        let mut shape = Params::default();
        change(&mut shape);
        Code::new(shape).map(|_| ())
    };
    assert!(matches!(with(|p| p.source_symbols = 0), Err(ParamsError::SourceSymbols { .. })));
    assert!(matches!(with(|p| p.source_symbols = 4097), Err(ParamsError::SourceSymbols { .. })));
    assert!(matches!(with(|p| p.batch_size = 0), Err(ParamsError::BatchSize { .. })));
    assert!(matches!(with(|p| p.batch_size = 129), Err(ParamsError::BatchSize { .. })));
    assert!(matches!(with(|p| p.generator_bits = 5), Err(ParamsError::GeneratorBits { bits: 5 })));
    let degrees = Code::with_row_degrees(Params::default(), &[0]).map(|_| ());
    assert!(matches!(degrees, Err(ParamsError::RowDegrees { .. })));
    let mut decoder = Decoder::new(Limits::of(64, 8));
    assert!(decoder.reset(params(64, Profile::CyclicShift)).is_err(), "batches too large");
    assert!(
        decoder.reset(Params { source_symbols: 65, batch_size: 8, ..Params::default() }).is_err()
    );
}

/// One packet decides the shape. Batches of 128 with single bits once never finished: no generator
/// made of them has full rank.
#[test]
fn every_shape_has_a_code() {
    let mut code = Code::new(Params::default()).expect("default parameters");
    for generator_bits in [1, 2, 3, 4, 8] {
        for batch_size in (1..=128).filter(|size| size % 8 < 2 || *size == 127) {
            for source_symbols in [batch_size, batch_size + 1, 1000] {
                let shape = Params { source_symbols, batch_size, generator_bits, ..code.params() };
                assert_eq!(code.reset(shape), Ok(()), "{shape:?}");
            }
        }
    }
}

#[test]
fn packets_that_do_not_fit_are_refused() {
    let limits = Limits { batches_max: 3, ..Limits::of(64, 16) };
    let mut decoder = Decoder::new(limits);
    decoder.reset(params(64, Profile::CyclicShift)).expect("within the limits");
    let long = decoder.insert(0, &[1; 17]);
    assert_eq!(long, Err(Rejected::VectorLength { elements: 17, batch_size: 16 }));
    assert_eq!(decoder.insert(0, &[0; 16]), Ok(Gain::Redundant));
    for id in 1..3 {
        assert!(matches!(decoder.insert(id, &[1; 16]), Ok(Gain::Innovative { .. })));
        assert_eq!(decoder.insert(id, &[1; 16]), Ok(Gain::Redundant));
    }
    assert_eq!(decoder.insert(7, &[1; 16]), Err(Rejected::TooManyBatches { max: 3 }));
}

#[test]
fn hostile_packets_never_panic_and_never_allocate() {
    let mut random = random(seed("hostile"));
    let limits = Limits { batches_max: 40, ..Limits::of(256, 16) };
    let mut decoder = Decoder::new(limits);
    for _ in 0..30 {
        let draw = |below: u32, random: &mut rand_chacha::ChaCha8Rng| random.next_u32() % below;
        let shape = Params {
            source_symbols: 1 + draw(256, &mut random) as usize,
            batch_size: 1 + draw(16, &mut random) as usize,
            profile: Profile::ALL[draw(3, &mut random) as usize],
            generator_bits: [1, 2, 3, 4, 8][draw(5, &mut random) as usize],
        };
        let mut vector = vec![0; shape.batch_size];
        let allocated = allocation_counter::measure(|| {
            decoder.reset(shape).expect("within the limits");
            for _ in 0..1500 {
                random.fill_bytes(&mut vector);
                vector.iter_mut().for_each(|element| *element &= (*element >> 4) & 3);
                let id = random.next_u32() as u16 % 64;
                let _ = decoder.insert(id, &vector);
                let Ok(()) = decoder.advance(&mut Nothing, |symbol| {
                    assert!(usize::from(symbol) < shape.source_symbols);
                });
            }
        });
        assert_eq!(allocated.count_total, 0, "{shape:?} allocated");
        assert!(decoder.decodable() <= shape.source_symbols);
        assert!(decoder.rank() <= 40 * shape.batch_size);
    }
    assert!(Decoder::memory_bytes(limits) < 2 << 20);
}

/// Blocks with too many inactive symbols were replanned at every packet if batches have one packet:
/// 3 ms each for 4096 symbols.
#[test]
fn blocks_that_cannot_be_planned_are_tried_seldom() {
    let (symbols, packets) = (1024, 1990);
    let shape = Params { batch_size: 1, ..params(symbols, Profile::CyclicShift) };
    let limits = Limits { inactive_max: 256, ..Limits::of(symbols, 1) };
    let mut decoder = Decoder::new(limits);
    decoder.reset(shape).expect("within the limits");
    let mut tried_at = Vec::new();
    for id in 0..packets {
        decoder.insert(id, &[1]).expect("there is room");
        let before = decoder.plans();
        let Ok(()) = decoder.advance(&mut Nothing, |_| ());
        if decoder.plans() > before {
            tried_at.push(decoder.rank());
        }
    }
    assert!(!decoder.is_complete(), "the case tests something");
    assert!(tried_at.contains(&symbols), "a full rank is tried: {tried_at:?}");
    // As many batches as packets; each plan examines all.
    let allowed = usize::from(packets) * 64 / symbols + 1;
    assert!(tried_at.len() <= allowed, "{} plans, not {allowed}", tried_at.len());
    decoder.reset(shape).expect("within the limits");
    assert_eq!(decoder.plans(), 0);
}

#[test]
fn block_that_never_gets_enough_says_how_much_it_lacks() {
    let mut line = Line::new(seed("lacks"), 2, 0.1);
    let mut decoder = Decoder::new(Limits::of(256, 16));
    decoder.reset(params(256, Profile::CyclicShift)).expect("within the limits");
    for id in 0..8 {
        for vector in line.cross(16) {
            decoder.insert(id, &vector).expect("there is room");
        }
        let Ok(()) = decoder.advance(&mut Nothing, |_| ());
        assert!(!decoder.is_determined());
        assert_eq!(decoder.missing(), 256 - decoder.rank());
    }
}

/// Payload work with a counter of symbol products.
struct Counted<'a> {
    rows: &'a mut Rows,
    products: usize,
}

impl Payloads for Counted<'_> {
    type Error = Infallible;

    fn combine(
        &mut self,
        coefficients: &[u8],
        sources: &[Operand],
        destinations: &[Operand],
        accumulate: bool,
    ) -> Result<(), Infallible> {
        self.products += sources.len() * destinations.len();
        self.rows.combine(coefficients, sources, destinations, accumulate)
    }
}

/// A block that decoded in one call occupied its worker for all of its multiplications, and a plan
/// for milliseconds, forged packets or not.
#[test]
fn calls_with_little_effort_do_little_each_and_decode_the_same() {
    const SYMBOL_BYTES: usize = 8;
    const PRODUCTS: usize = 512;
    /// One part more than the effort allows.
    const PART: usize = 64 * 16;
    let mut line = Line::new(seed("effort"), 2, 0.1);
    for (source_symbols, batch_size, profile) in [
        (1024, 16, Profile::Precoded),
        (256, 16, Profile::CyclicShift),
        (300, 16, Profile::Baseline),
        (700, 128, Profile::Precoded),
    ] {
        let shape = Params { source_symbols, batch_size, profile, ..Params::default() };
        let code = Code::new(shape).expect("valid parameters");
        let mut source = Rows::new(SYMBOL_BYTES);
        for symbol in 0..source_symbols {
            let bytes: Vec<u8> = (0..SYMBOL_BYTES).map(|_| line.random.next_u32() as u8).collect();
            source.set(Operand::Symbol(symbol as u16), &bytes);
        }
        let mut steps = Counted { rows: &mut source, products: 0 };
        for step in 0..code.precode_steps() {
            let before = steps.products;
            let Ok(products) = code.precode_step(step, &mut steps);
            assert_eq!(products, steps.products - before);
            assert!(products <= PART, "{shape:?}: {products} products in a step of the precode");
        }
        let mut decoder = Decoder::new(Limits::of(source_symbols, batch_size));
        decoder.reset(shape).expect("within its own limits");
        let (mut rows, mut batch) = (Rows::new(SYMBOL_BYTES), Batch::new());
        let (mut calls, mut most) = (0, 0);
        let mut advance = |decoder: &mut Decoder, rows: &mut Rows| {
            let mut payloads = Counted { rows, products: 0 };
            let effort = Effort::new(PRODUCTS * SYMBOL_BYTES, SYMBOL_BYTES);
            let Ok(()) = decoder.advance_by(effort, &mut payloads, |_| ());
            calls += 1;
            most = most.max(payloads.products);
        };
        for id in 0..u16::MAX {
            if decoder.is_complete() {
                break;
            }
            code.batch(id, &mut batch);
            for vector in line.cross(batch_size) {
                if let Ok(Gain::Innovative { slot }) = decoder.insert(id, &vector) {
                    let payload = combine(&vector, &batch, &source, SYMBOL_BYTES);
                    rows.set(Operand::Received(slot), &payload);
                }
                advance(&mut decoder, &mut rows);
            }
            // Packets that arrive during planning are not lost: none arrives after the last.
            while decoder.rank() >= source_symbols + source_symbols / 4 && decoder.is_cut() {
                advance(&mut decoder, &mut rows);
            }
        }
        assert!(most <= PRODUCTS + PART, "{shape:?}: {most} products in a call");
        assert!(calls > source_symbols, "{shape:?}: {calls} calls");
        for index in 0..source_symbols {
            let operand = Operand::Symbol(index as u16);
            assert_eq!(rows.get(operand), source.get(operand), "{shape:?}: symbol {index}");
        }
    }
}
