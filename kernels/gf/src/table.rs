//! Constant tables of GF(256) modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11D, the polynomial of
//! RFC 6330 section 5.7.2, RFC 8681 and RFC 9426), computed by the compiler.
//!
//! | table | bytes | one entry holds |
//! |---|---|---|
//! | `PRODUCTS` | 65,536 | the product of two elements |
//! | `INVERSES` | 256 | the multiplicative inverse (0 for 0) |
//! | `NIBBLES` | 8,192 | products with the 16 low and the 16 high nibbles, for byte shuffles |
//! | `AFFINE` | 2,048 | the 8x8 bit matrix of a coefficient, for `vgf2p8affineqb` |

#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "tables of vector levels"))]

/// The reduction polynomial, with its x^8 term.
pub(crate) const POLYNOMIAL: u16 = 0x11D;

/// `PRODUCTS[a][b]` is the product of `a` and `b`.
pub(crate) static PRODUCTS: [[u8; 256]; 256] = products();

/// `INVERSES[a]` is the inverse of `a`; entry 0 is 0 and means nothing.
pub(crate) static INVERSES: [u8; 256] = inverses();

/// Shuffle tables, aligned so that a pair never crosses a cache line.
#[repr(C, align(32))]
pub(crate) struct NibblePair {
    /// Products of the coefficient with 0x00, 0x01, ... 0x0F.
    pub low: [u8; 16],
    /// Products of the coefficient with 0x00, 0x10, ... 0xF0.
    pub high: [u8; 16],
}

/// `NIBBLES[c].low[x & 15] ^ NIBBLES[c].high[x >> 4]` is the product of `c` and `x`.
pub(crate) static NIBBLES: [NibblePair; 256] = nibbles();

/// Multiplication by `c` as a bit matrix in the layout of `vgf2p8affineqb`: byte `7 - i` selects
/// the input bits whose sum is output bit `i`.
pub(crate) static AFFINE: [u64; 256] = affine();

/// The product of two elements of GF(256) modulo 0x11D.
#[inline]
#[must_use]
pub fn mul(a: u8, b: u8) -> u8 {
    PRODUCTS[usize::from(a)][usize::from(b)]
}

/// The multiplicative inverse, or `None` for zero.
#[inline]
#[must_use]
pub fn inverse(a: u8) -> Option<u8> {
    (a != 0).then(|| INVERSES[usize::from(a)])
}

/// Multiplication by x.
const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 == 0 { 0 } else { (POLYNOMIAL & 0xFF) as u8 }
}

/// Multiplication without tables, for the other tables and for `field`.
pub(crate) const fn mul_const(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut product) = (a, b, 0);
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    product
}

const fn products() -> [[u8; 256]; 256] {
    let mut table = [[0; 256]; 256];
    let mut a = 0;
    while a < 256 {
        let mut b = 1;
        while b < 256 {
            // a*b = (a * floor(b/2)) * x + a * (b mod 2)
            let odd = if b & 1 == 1 { a as u8 } else { 0 };
            table[a][b] = double(table[a][b >> 1]) ^ odd;
            b += 1;
        }
        a += 1;
    }
    table
}

const fn inverses() -> [u8; 256] {
    // x generates the multiplicative group, so the inverse of x^i is x^(255-i).
    let mut powers = [1_u8; 256];
    let mut i = 1;
    while i < 256 {
        powers[i] = double(powers[i - 1]);
        i += 1;
    }
    let mut table = [0; 256];
    let mut i = 0;
    while i < 255 {
        table[powers[i] as usize] = powers[255 - i];
        i += 1;
    }
    table
}

const fn nibbles() -> [NibblePair; 256] {
    let mut table = [const { NibblePair { low: [0; 16], high: [0; 16] } }; 256];
    let mut c = 0;
    while c < 256 {
        let mut x = 0;
        while x < 16 {
            table[c].low[x] = mul_const(c as u8, x as u8);
            table[c].high[x] = mul_const(c as u8, (x << 4) as u8);
            x += 1;
        }
        c += 1;
    }
    table
}

const fn affine() -> [u64; 256] {
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut input = 0;
        while input < 8 {
            let column = mul_const(c as u8, 1 << input);
            let mut output = 0;
            while output < 8 {
                if column >> output & 1 == 1 {
                    table[c] |= 1 << ((7 - output) * 8 + input);
                }
                output += 1;
            }
            input += 1;
        }
        c += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Schoolbook product of two polynomials over GF(2), then long division by 0x11D.
    fn mul_bitwise(a: u8, b: u8) -> u8 {
        let mut product = 0_u16;
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                product ^= u16::from(a) << bit;
            }
        }
        for bit in (8..16).rev() {
            if product >> bit & 1 == 1 {
                product ^= POLYNOMIAL << (bit - 8);
            }
        }
        u8::try_from(product).expect("the remainder has degree below 8")
    }

    #[test]
    fn mul_of_every_pair_equals_polynomial_arithmetic() {
        for a in 0..=255 {
            for b in 0..=255 {
                let expected = mul_bitwise(a, b);
                assert_eq!(mul(a, b), expected, "{a} * {b}");
                assert_eq!(mul_const(a, b), expected, "{a} * {b}");
                let pair = &NIBBLES[usize::from(a)];
                let shuffled = pair.low[usize::from(b & 15)] ^ pair.high[usize::from(b >> 4)];
                assert_eq!(shuffled, expected, "nibbles of {a} * {b}");
                assert_eq!(affine_product(AFFINE[usize::from(a)], b), expected, "affine {a} * {b}");
            }
        }
    }

    /// What `vgf2p8affineqb` computes on one byte.
    fn affine_product(matrix: u64, byte: u8) -> u8 {
        let rows = matrix.to_le_bytes();
        (0..8).fold(0, |sum, i| sum | ((rows[7 - i] & byte).count_ones() as u8 & 1) << i)
    }

    #[test]
    fn inverse_of_every_element_multiplies_to_one() {
        assert_eq!(inverse(0), None);
        for a in 1..=255 {
            assert_eq!(inverse(a).map(|b| mul(a, b)), Some(1), "element {a}");
        }
    }

    //= RFC 6330 section 5.7.3, table OCT_EXP
    #[test]
    fn powers_of_two_match_oct_exp() {
        let listed =
            [(0, 1), (1, 2), (7, 128), (8, 29), (9, 58), (12, 205), (25, 3), (50, 5), (254, 142)];
        let power = |exponent: u32| (0..exponent).fold(1, |product, _| mul(product, 2));
        for (exponent, value) in listed {
            assert_eq!(power(exponent), value, "OCT_EXP[{exponent}]");
        }
        assert_eq!(power(255), 1, "the order of the generator is 255");
    }
}
