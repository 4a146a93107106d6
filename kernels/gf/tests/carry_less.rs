//! Sums of carry-less products: every method of this CPU against bitwise products, over all lengths
//! of a packet at odd places. `RECODED_SEED` repeats a run.

#[path = "common/seed.rs"]
mod seed;

use rand_chacha::rand_core::Rng;
use recoded_gf::CarryLess;
use seed::seeded;

fn word(bytes: &[u8], index: usize) -> u64 {
    (0..8)
        .rev()
        .fold(0, |word, i| word << 8 | u64::from(bytes.get(8 * index + i).copied().unwrap_or(0)))
}

fn expected(key: &[u8], message: &[u8]) -> u128 {
    (0..message.len().div_ceil(16)).fold(0, |sum, pair| {
        let factor = |index| word(key, index) ^ word(message, index);
        let (a, b) = (factor(2 * pair), factor(2 * pair + 1));
        let bits = (0..64).filter(|bit| b >> bit & 1 == 1);
        bits.fold(sum, |sum, bit| sum ^ u128::from(a) << bit)
    })
}

#[test]
fn every_way_adds_products_of_polynomials() {
    let mut random = seeded();
    let lengths: Vec<usize> = if cfg!(miri) {
        vec![0, 1, 16, 47, 64, 129]
    } else {
        (0..=300).chain([1428, 1500, 9000]).collect()
    };
    for way in CarryLess::all_available() {
        println!("{}", way.name());
        for &bytes in &lengths {
            // Arbitrary places; and a key may be longer than it needs to be.
            let (at, more) = (random.next_u32() as usize % 64, bytes.next_multiple_of(16) + 5);
            let mut buffer = vec![0; at + 2 * more];
            random.fill_bytes(&mut buffer);
            let (key, message) = buffer[at..].split_at(more);
            let message = &message[..bytes];
            assert_eq!(way.sum(key, message), expected(key, message), "{bytes}, {}", way.name());
        }
    }
}

#[test]
#[should_panic(expected = "a key of 16 bytes for 32")]
fn a_key_that_is_too_short_is_refused() {
    let _ = CarryLess::best().sum(&[0; 16], &[0; 17]);
}
