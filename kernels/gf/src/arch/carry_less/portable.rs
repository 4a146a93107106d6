//! Integer multiplication with holes: of every fourth bit at a time, so that carries end in bits
//! that are masked out. Its time depends on no bit (Pornin, BearSSL, `ghash_ctmul64`).

use super::{CarryLessMethod, padded};

pub(super) const WAY: CarryLessMethod =
    CarryLessMethod { name: "portable", is_available: || true, sum };

fn sum(key: &[u8], message: &[u8]) -> u128 {
    let (keys, _) = key.as_chunks::<16>();
    let blocks = message.chunks(16).map(padded);
    let words = keys
        .iter()
        .zip(blocks)
        .map(|(key, block)| u128::from_le_bytes(*key) ^ u128::from_le_bytes(block));
    words.fold(0, |sum, pair| sum ^ product(pair as u64, (pair >> 64) as u64))
}

fn product(a: u64, b: u64) -> u128 {
    let low = low_half(a, b);
    // The product of bit-reversed factors is bit-reversed, too, and one bit shorter.
    let high = low_half(a.reverse_bits(), b.reverse_bits()).reverse_bits() >> 1;
    u128::from(high) << 64 | u128::from(low)
}

/// The lower 64 bits of a product. No more than 16 bits meet in a place, and those only in the last
/// ones, where the carry leaves the word.
fn low_half(a: u64, b: u64) -> u64 {
    let part = |word: u64, first: u32| word & (EVERY_FOURTH << first);
    (0..4_u32).fold(0, |sum, first| {
        let products = (0..4).map(|i| part(a, i).wrapping_mul(part(b, first.wrapping_sub(i) % 4)));
        sum | part(products.fold(0, |sum, product| sum ^ product), first)
    })
}

const EVERY_FOURTH: u64 = 0x1111_1111_1111_1111;

#[cfg(test)]
mod tests {
    use super::product;

    #[test]
    fn product_is_that_of_polynomials() {
        let cases = [0, 1, 3, u64::MAX, 1 << 63, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];
        for a in cases {
            for b in cases {
                let bits = (0..64).filter(|bit| b >> bit & 1 == 1);
                let expected = bits.fold(0, |sum, bit| sum ^ u128::from(a) << bit);
                assert_eq!(product(a, b), expected, "{a:x} times {b:x}");
            }
        }
    }
}
