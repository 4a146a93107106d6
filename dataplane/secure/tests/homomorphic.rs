//! Homomorphic tags: combinations by honest nodes verify; changed symbols do not.

#![forbid(unsafe_code)]

use proptest::prelude::*;
use proptest::sample::Index;
use recoded_gf::Kernel;
use recoded_secure::{
    CONTEXT_BYTES, ColumnSeed, Formed, Masks, Refused, SUBSET_MIN, Secrets, Space, Strength,
    TagKey, TaggedUnit, UnitKind, UnitMasks,
};

const BYTES_MAX: usize = 1500;
const SPACE: Space = Space { flow: 0xF10F, shard: 3, kind: UnitKind::Generation };

fn seeds(strength: Strength) -> Vec<ColumnSeed> {
    Secrets::extract(b"ends", &[9; 32]).column_seeds(strength)
}

fn key(strength: Strength) -> TagKey {
    TagKey::new(strength, &seeds(strength), BYTES_MAX).expect("all columns")
}

/// Symbols of a unit, tags first, and the masks.
fn tagged(key: &TagKey, masks: &Masks, prefix: &[u8], payloads: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let tag = |(index, payload): (usize, &Vec<u8>)| {
        let mut symbol = vec![0; key.tag_bytes()];
        key.tag(masks, index, prefix, payload, &mut symbol).expect("a tag");
        symbol.extend_from_slice(payload);
        symbol
    };
    payloads.iter().enumerate().map(tag).collect()
}

/// A relay's recoding: sums of coefficient times symbol, tags included, with zeros after short
/// ones.
fn combined(coefficients: &[u8], symbols: &[Vec<u8>]) -> Vec<u8> {
    let bytes = symbols.iter().map(Vec::len).max().unwrap_or(0);
    let mut sum = vec![0; bytes];
    for (&c, symbol) in coefficients.iter().zip(symbols) {
        Kernel::best().madd(&mut sum[..symbol.len()], c, symbol);
    }
    sum
}

fn verify(key: &TagKey, masks: &Masks, coefficients: &[u8], symbol: &[u8]) -> Result<(), Refused> {
    let (tag, payload) = symbol.split_at(key.tag_bytes());
    key.verify(masks, coefficients, &[], tag, payload).map(drop)
}

fn strengths() -> impl Strategy<Value = Strength> {
    prop_oneof![Just(Strength::Standard), Just(Strength::Strict)]
}

fn units() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let payload = proptest::collection::vec(any::<u8>(), 1..200);
    proptest::collection::vec(payload, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_combination_of_combinations_verifies_and_any_change_does_not(
        strength in strengths(),
        payloads in units(),
        unit in any::<u64>(),
        coefficients in proptest::collection::vec(any::<[u8; 40]>(), 1..4),
        again in any::<[u8; 4]>(),
        (place, change) in (any::<Index>(), 1..=255_u8),
    ) {
        let key = key(strength);
        let mut masks = Masks::new(&key, 40);
        masks.fill(&key, SPACE, unit, payloads.len()).expect("room");
        let symbols = tagged(&key, &masks, &[], &payloads);
        // A relay combines, and the next one combines the results.
        let first: Vec<_> =
            coefficients.iter().map(|row| combined(&row[..symbols.len()], &symbols)).collect();
        let mut vector = vec![0; symbols.len()];
        for (row, &c) in coefficients.iter().zip(&again) {
            Kernel::best().madd(&mut vector, c, &row[..symbols.len()]);
        }
        let second = combined(&again[..first.len()], &first);
        let expected =
            if vector.iter().all(|&c| c == 0) { Err(Refused::ZeroVector) } else { Ok(()) };
        prop_assert_eq!(verify(&key, &masks, &vector, &second), expected);
        let mut changed = second.clone();
        changed[place.index(second.len())] ^= change;
        prop_assert!(verify(&key, &masks, &vector, &changed).is_err());
        let mut other = vector.clone();
        other[place.index(vector.len())] ^= change;
        prop_assert!(verify(&key, &masks, &other, &second).is_err());
        let mut elsewhere = Masks::new(&key, 40);
        elsewhere.fill(&key, SPACE, unit ^ 1, payloads.len()).expect("room");
        prop_assert!(verify(&key, &elsewhere, &vector, &second).is_err());
    }

    #[test]
    fn repairs_over_any_window_of_a_stream_verify(
        payloads in units(),
        first in any::<u32>(),
        from in any::<Index>(),
        coefficients in any::<[u8; 40]>(),
    ) {
        let key = key(Strength::Standard);
        let space = Space { kind: UnitKind::Stream, ..SPACE };
        let mut one = Masks::new(&key, 1);
        let mut symbols = Vec::new();
        for (number, payload) in (u64::from(first)..).zip(&payloads) {
            // Number and length are combined with the packet, and not sent with it.
            let prefix = [number as u8; 8];
            one.fill_stream(&key, space, number, 1).expect("room");
            let mut tag = [0; 8];
            key.tag(&one, 0, &prefix, payload, &mut tag).expect("a tag");
            prop_assert!(key.verify_source(&one, 0, &prefix, &tag, payload).is_ok());
            symbols.push([&tag[..], &prefix, payload].concat());
        }
        let from = from.index(symbols.len());
        let window = &symbols[from..];
        let mut masks = Masks::new(&key, 40);
        masks.fill_stream(&key, space, u64::from(first) + from as u64, window.len()).expect("room");
        let vector = &coefficients[..window.len()];
        let sum = combined(vector, window);
        let zero = vector.iter().all(|&c| c == 0);
        prop_assert_eq!(verify(&key, &masks, vector, &sum).is_ok(), !zero);
    }

    #[test]
    fn a_holder_of_some_columns_verifies_and_finds_forgeries_of_others(
        payload in proptest::collection::vec(any::<u8>(), 1..BYTES_MAX),
        (place, change) in (any::<Index>(), 1..=255_u8),
    ) {
        let whole = key(Strength::Standard);
        let mut masks = Masks::new(&whole, 1);
        masks.fill(&whole, SPACE, 1, 1).expect("room");
        let symbol = &tagged(&whole, &masks, &[], &[payload])[0];
        let held: Vec<_> =
            seeds(Strength::Standard).into_iter().skip(1).step_by(2).take(SUBSET_MIN).collect();
        let some = TagKey::new(Strength::Standard, &held, BYTES_MAX).expect("some columns");
        let mut some_masks = Masks::new(&some, 1);
        some_masks.fill(&some, SPACE, 1, 1).expect("room");
        prop_assert_eq!(verify(&some, &some_masks, &[1], symbol), Ok(()));
        let mut changed = symbol.clone();
        let place = 8 + place.index(symbol.len() - 8);
        changed[place] ^= change;
        prop_assert!(verify(&some, &some_masks, &[1], &changed).is_err());
        // A holder of these columns can forge them, but not the others.
        let mut forged = changed.clone();
        for column in &held {
            let alone = std::slice::from_ref(column);
            let alone = TagKey::new(Strength::Standard, alone, BYTES_MAX).expect("a column");
            let mut alone_masks = Masks::new(&alone, 1);
            alone_masks.fill(&alone, SPACE, 1, 1).expect("room");
            let byte = usize::from(column.column);
            let fits = |value| {
                let mut tried = forged.clone();
                tried[byte] = value;
                verify(&alone, &alone_masks, &[1], &tried).is_ok()
            };
            forged[byte] = (0..=255).find(|&value| fits(value)).expect("one of 256");
        }
        prop_assert_eq!(verify(&some, &some_masks, &[1], &forged), Ok(()));
        prop_assert!(verify(&whole, &masks, &[1], &forged).is_err());
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let key = key(Strength::Standard);
    let mut masks = Masks::new(&key, 20);
    assert_eq!(masks.fill(&key, SPACE, 1, 64), Err(Refused::Vector));
    assert_eq!(masks.fill(&key, SPACE, 1, usize::MAX), Err(Refused::Vector));
    assert_eq!(masks.fill_stream(&key, SPACE, 15, 20), Ok(()));
    assert_eq!(masks.fill_stream(&key, SPACE, 15, 21), Err(Refused::Vector));
    masks.fill(&key, SPACE, 1, 20).expect("room");
    let payload = [1; 10];
    let refused = |coefficients: &[u8], tag: &[u8], payload: &[u8]| {
        key.verify(&masks, coefficients, &[], tag, payload).expect_err("refused")
    };
    assert_eq!(refused(&[1; 21], &[0; 8], &payload), Refused::Vector);
    assert_eq!(refused(&[0; 20], &[0; 8], &payload), Refused::ZeroVector);
    assert_eq!(refused(&[], &[0; 8], &payload), Refused::ZeroVector);
    assert_eq!(refused(&[1], &[0; 7], &payload), Refused::Malformed);
    assert_eq!(refused(&[1], &[0; 8], &[1; BYTES_MAX + 1]), Refused::Long);
    assert_eq!(key.tag(&masks, 20, &[], &payload, &mut [0; 8]), Err(Refused::Vector));
    assert_eq!(key.tag(&masks, usize::MAX, &[], &payload, &mut [0; 8]), Err(Refused::Vector));
}

#[test]
fn keys_of_no_or_unordered_columns_are_none_and_some_columns_form_no_tag() {
    let mut columns = seeds(Strength::Strict);
    assert!(TagKey::new(Strength::Standard, &columns, 10).is_none(), "more than a tag has");
    assert!(TagKey::new(Strength::Strict, &[], 10).is_none());
    let some = TagKey::new(Strength::Strict, &columns[..15], 10).expect("some");
    let mut masks = Masks::new(&some, 1);
    masks.fill(&some, SPACE, 0, 1).expect("room");
    assert_eq!(some.tag(&masks, 0, &[], &[1], &mut [0; 16]), Err(Refused::Incomplete));
    columns.swap(0, 1);
    assert!(TagKey::new(Strength::Strict, &columns, 10).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A context equals a prefix of every symbol; in a combination its coefficient is the sum of
    /// the coefficients. Units replace each other, keys change, relays hold some of the columns.
    #[test]
    fn units_with_contexts_verify_as_symbols_with_prefixes_do(
        payloads in units(),
        context: [u8; CONTEXT_BYTES],
        drawn in proptest::collection::vec(any::<u8>(), 40),
        numbers in proptest::collection::vec(any::<u64>(), 1..6),
        (at, bit) in (any::<Index>(), 0..8_u8),
    ) {
        let keys = [key(Strength::Standard), key(Strength::Standard)];
        let relay = TagKey::new(Strength::Standard, &seeds(Strength::Standard)[2..6], BYTES_MAX);
        let relay = relay.expect("four columns");
        // Fewer places than units.
        let (mut masks, mut few) = (UnitMasks::new(&keys[0], 2), UnitMasks::new(&relay, 2));
        let mut plain = Masks::new(&keys[0], 256);
        for (turn, number) in numbers.iter().enumerate() {
            let key = &keys[turn % 2];
            let unit = TaggedUnit { space: SPACE, number: *number, context };
            plain.fill(key, SPACE, *number, payloads.len()).unwrap();
            let expected = tagged(key, &plain, &context, &payloads);
            let bytes = payloads.iter().map(Vec::len).max().unwrap_or(0) + key.tag_bytes();
            for (index, expected) in expected.iter().enumerate() {
                let mut symbol = expected.clone();
                symbol[..key.tag_bytes()].fill(0xAA);
                masks.tag(key, &unit, index, &mut symbol).unwrap();
                prop_assert_eq!(&symbol, expected);
                prop_assert_eq!(masks.verify(key, &unit, Formed::Source(index), &symbol), Ok(()));
            }
            let coefficients = &drawn[..payloads.len().min(drawn.len())];
            prop_assume!(coefficients.iter().any(|c| *c != 0) && payloads.len() <= drawn.len());
            let mut sum = combined(coefficients, &expected);
            prop_assert_eq!(sum.len(), bytes);
            let formed = Formed::Combination(coefficients);
            prop_assert_eq!(masks.verify(key, &unit, formed, &sum), Ok(()));
            prop_assert_eq!(few.verify(&relay, &unit, formed, &sum), Ok(()));
            let mut other = unit;
            other.context[at.index(CONTEXT_BYTES)] ^= 1 << bit;
            if coefficients.iter().fold(0, |sum, c| sum ^ c) != 0 {
                let verdict = masks.verify(key, &other, formed, &sum);
                prop_assert_eq!(verdict, Err(Refused::Tag));
            }
            sum[at.index(bytes)] ^= 1 << bit;
            prop_assert_eq!(masks.verify(key, &unit, formed, &sum), Err(Refused::Tag));
        }
    }
}

#[test]
fn units_have_no_more_symbols_than_masks_and_no_zero_vectors() {
    let key = key(Strength::Standard);
    let mut masks = UnitMasks::new(&key, 4);
    let unit = TaggedUnit { space: SPACE, number: 1, context: [0; CONTEXT_BYTES] };
    let mut symbol = [7; 100];
    assert_eq!(masks.tag(&key, &unit, 255, &mut symbol), Ok(()));
    assert_eq!(masks.tag(&key, &unit, 256, &mut symbol), Err(Refused::Vector));
    assert_eq!(masks.tag(&key, &unit, usize::MAX, &mut symbol), Err(Refused::Vector));
    assert_eq!(masks.tag(&key, &unit, 0, &mut symbol[..7]), Err(Refused::Malformed));
    let zero = Formed::Combination(&[0; 256]);
    assert_eq!(masks.verify(&key, &unit, zero, &[0; 100]), Err(Refused::ZeroVector));
    assert_eq!(
        masks.verify(&key, &unit, Formed::Combination(&[]), &[0; 100]),
        Err(Refused::ZeroVector)
    );
    let long = Formed::Combination(&[1; 257]);
    assert_eq!(masks.verify(&key, &unit, long, &[0; 100]), Err(Refused::Vector));
    let long = vec![0; BYTES_MAX];
    assert_eq!(masks.verify(&key, &unit, Formed::Source(0), &long), Err(Refused::Long));
}
