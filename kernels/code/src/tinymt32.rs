//! TinyMT32, the generator that derives the same coefficients from a packet's seed everywhere.
//!
//! RFC 8682 with the parameter set that it fixes. Not for secrets: 127 bits of linear state,
//! and seeds travel in the clear.

/// RFC 8682 section 2.1: the only parameter set.
const MAT1: u32 = 0x8f70_11ee;
const MAT2: u32 = 0xfc78_ff1f;
const TMAT: u32 = 0x3793_fdff;

/// State words are mixed up to this round when seeding.
const MIN_LOOP: u32 = 8;
/// Outputs discarded after seeding.
const PRE_LOOP: u32 = 8;

/// A generator of 32-bit words, 16 bytes of state.
#[derive(Clone, Debug)]
pub struct TinyMt32 {
    status: [u32; 4],
}

impl TinyMt32 {
    /// The generator that RFC 8682's `tinymt32_init` creates from `seed`.
    #[must_use]
    pub fn new(seed: u32) -> Self {
        let mut status = [seed, MAT1, MAT2, TMAT];
        for round in 1..MIN_LOOP {
            let previous = status[(round as usize - 1) & 3];
            let mixed = 1_812_433_253_u32.wrapping_mul(previous ^ (previous >> 30));
            status[round as usize & 3] ^= round.wrapping_add(mixed);
        }
        // RFC 8682 drops TinyMT's period certification: this parameter set needs none.
        let mut generator = Self { status };
        for _ in 0..PRE_LOOP {
            generator.step();
        }
        generator
    }

    /// The next word, uniform over 0..2^32 (RFC 8682 `tinymt32_generate_uint32`).
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        self.step();
        self.temper()
    }

    /// The next element of GF(256): the low 8 bits of a word (RFC 8681 appendix A,
    /// `tinymt32_rand256`).
    #[inline]
    pub fn rand256(&mut self) -> u8 {
        (self.next_u32() & 0xFF) as u8
    }

    /// The next number of 0..16: the low 4 bits of a word (RFC 8681 appendix A,
    /// `tinymt32_rand16`).
    #[inline]
    pub fn rand16(&mut self) -> u8 {
        (self.next_u32() & 0xF) as u8
    }

    /// RFC 8682 `tinymt32_next_state`.
    #[inline]
    fn step(&mut self) {
        let [s0, s1, s2, s3] = self.status;
        let mut x = (s0 & 0x7fff_ffff) ^ s1 ^ s2;
        let mut y = s3;
        x ^= x << 1;
        y ^= (y >> 1) ^ x;
        let odd = (y & 1).wrapping_neg();
        self.status = [s1, s2 ^ (odd & MAT1), x ^ (y << 10) ^ (odd & MAT2), y];
    }

    /// RFC 8682 `tinymt32_temper`.
    #[inline]
    fn temper(&self) -> u32 {
        let [s0, _, s2, s3] = self.status;
        let sum = s0.wrapping_add(s2 >> 8);
        s3 ^ sum ^ ((sum & 1).wrapping_neg() & TMAT)
    }
}

#[cfg(test)]
mod tests {
    use super::TinyMt32;

    fn numbers(text: &str) -> impl Iterator<Item = u32> {
        text.split_whitespace().map(|number| number.parse().expect("a vector file of numbers"))
    }

    /// RFC 8682 figure 2.
    #[test]
    fn words_of_seed_1_match_rfc_8682() {
        let mut generator = TinyMt32::new(1);
        let vectors = include_str!("../tests/vectors/rfc8682_seed1_first50.txt");
        assert_eq!(numbers(vectors).count(), 50);
        for (index, expected) in numbers(vectors).enumerate() {
            assert_eq!(generator.next_u32(), expected, "word {index}");
        }
    }

    /// RFC 8681 appendix A.
    #[test]
    fn elements_of_seed_1_match_rfc_8681() {
        let mut generator = TinyMt32::new(1);
        let vectors = include_str!("../tests/vectors/rfc8681_rand256_seed1.txt");
        for (index, expected) in numbers(vectors).enumerate() {
            assert_eq!(u32::from(generator.rand256()), expected, "element {index}");
        }
        let mut generator = TinyMt32::new(1);
        let vectors = include_str!("../tests/vectors/rfc8681_rand16_seed1.txt");
        for (index, expected) in numbers(vectors).enumerate() {
            assert_eq!(u32::from(generator.rand16()), expected, "element {index}");
        }
    }
}
