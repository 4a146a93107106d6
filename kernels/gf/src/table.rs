//! Constant tables of every field, computed by the compiler.
//!
//! In every [`Field`] the product by a coefficient is a linear map of the eight bits of a byte; the
//! tables hold that map in the forms that instructions need.
//!
//! | table | bytes a field | one entry holds | for |
//! |---|---|---|---|
//! | `columns` | 2,048 | the products with each single bit: the definition | imul |
//! | `affine` | 2,048 | the map as a bit matrix | `vgf2p8affineqb` |
//! | `nibbles` | 8,192 | products with the 16 low and the 16 high nibbles | byte shuffles |
//! | `products` | 65,536 | the product of a coefficient and a byte | naive |
//! | `inverses` | 256 | the multiplicative inverse (0 for 0) | elimination |
//! | `to_11b` and its columns | 32 | isomorphism to GF(256) modulo 0x11B, and back | `vgf2p8mulb` |
//! | `logarithms`, `powers` | 768 | of and to the base of the smallest generator | table |
//!
//! Packed fields have fewer coefficients than 256; bits beyond are ignored, so their tables repeat.

use crate::field::Field;

/// Shuffle tables, aligned so that a pair never crosses a cache line.
#[derive(Copy, Clone)]
#[repr(C, align(32))]
pub(crate) struct NibblePair {
    /// Products of the coefficient with 0x00, 0x01, ... 0x0F.
    pub low: [u8; 16],
    /// Products of the coefficient with 0x00, 0x10, ... 0xF0.
    pub high: [u8; 16],
}

/// Everything constant about one field. Indexed by coefficient.
#[repr(C, align(64))]
pub(crate) struct Tables {
    /// The bit matrix of a coefficient in the layout of `vgf2p8affineqb`: byte `7 - i` selects the
    /// input bits whose sum is output bit `i`.
    pub affine: [u64; 256],
    /// `nibbles[c].low[x & 15] ^ nibbles[c].high[x >> 4]` is the product of `c` and the byte `x`.
    pub nibbles: [NibblePair; 256],
    /// `columns[c][i]` is the product of `c` and the byte `1 << i`.
    pub columns: [[u8; 8]; 256],
    /// `products[c][x]` is the product of `c` and the byte `x`.
    pub products: [[u8; 256]; 256],
    /// `inverses[c]` is the inverse of `c`; entry 0 is 0 and has no meaning.
    pub inverses: [u8; 256],
    /// `logarithms[c]` is the power of the generator that is `c`; entry 0 has no meaning. GF(256)
    /// only.
    pub logarithms: [u8; 256],
    /// Powers of the generator, twice over so that two logarithms add without reduction.
    /// GF(256) only.
    pub powers: [u8; 512],
    /// The isomorphism to GF(256) modulo 0x11B in the layout of `affine`; GF(256) only.
    pub to_11b: u64,
    /// Image of the byte `1 << i`.
    pub to_11b_columns: [u8; 8],
    /// Its inverse in the layout of `affine`.
    pub from_11b: u64,
    /// Inverse image of the byte `1 << i`.
    pub from_11b_columns: [u8; 8],
    /// The field itself.
    pub field: Field,
}

impl Tables {
    /// The tables of a field.
    #[inline]
    pub const fn of(field: Field) -> &'static Self {
        match field {
            Field::Gf256x11D => &GF256_11D,
            Field::Gf256x11B => &GF256_11B,
            Field::PackedGf16x13 => &GF16_13,
            Field::PackedGf4x7 => &GF4_7,
            Field::PackedGf2 => &GF2,
        }
    }
}

static GF256_11D: Tables = tables(Field::Gf256x11D);
static GF256_11B: Tables = tables(Field::Gf256x11B);
static GF16_13: Tables = tables(Field::PackedGf16x13);
static GF4_7: Tables = tables(Field::PackedGf4x7);
static GF2: Tables = tables(Field::PackedGf2);

impl Field {
    /// The product of the coefficient `c` and every element of `byte`. Bits of `c` beyond
    /// [`Field::element_bits`] are ignored, as by every kernel.
    #[inline]
    #[must_use]
    pub fn mul(self, c: u8, byte: u8) -> u8 {
        Tables::of(self).products[usize::from(c)][usize::from(byte)]
    }

    /// The multiplicative inverse of a coefficient, or `None` for zero.
    #[inline]
    #[must_use]
    pub fn inverse(self, c: u8) -> Option<u8> {
        let inverse = Tables::of(self).inverses[usize::from(c)];
        (inverse != 0).then_some(inverse)
    }
}

/// The product of two elements of GF(256) modulo 0x11D.
#[inline]
#[must_use]
pub fn mul(a: u8, b: u8) -> u8 {
    GF256_11D.products[usize::from(a)][usize::from(b)]
}

/// The multiplicative inverse in GF(256) modulo 0x11D, or `None` for zero.
#[inline]
#[must_use]
pub fn inverse(a: u8) -> Option<u8> {
    (a != 0).then(|| GF256_11D.inverses[usize::from(a)])
}

/// The product of two elements, schoolbook: shift, add, reduce.
pub(crate) const fn mul_elements(field: Field, a: u8, b: u8) -> u8 {
    let bits = field.element_bits();
    let (mut shifted, mut rest, mut product) = (a as u16, b, 0);
    while rest != 0 {
        if rest & 1 == 1 {
            product ^= shifted;
        }
        shifted <<= 1;
        if shifted >> bits & 1 == 1 {
            shifted ^= field.polynomial();
        }
        rest >>= 1;
    }
    product as u8
}

const fn tables(field: Field) -> Tables {
    let columns = columns(field);
    let products = products(&columns);
    let (logarithms, powers) = logarithms(field);
    let to_11b_columns = isomorphism(field, Field::Gf256x11B);
    let from_11b_columns = inverse_map(&to_11b_columns);
    Tables {
        affine: affine(&columns),
        nibbles: nibbles(&products),
        columns,
        products,
        inverses: inverses(field),
        logarithms,
        powers,
        to_11b: bit_matrix(&to_11b_columns),
        to_11b_columns,
        from_11b: bit_matrix(&from_11b_columns),
        from_11b_columns,
        field,
    }
}

const fn columns(field: Field) -> [[u8; 8]; 256] {
    let bits = field.element_bits();
    let mut table = [[0; 8]; 256];
    let mut c = 0;
    while c < 256 {
        let coefficient = (c % field.order() as usize) as u8;
        let mut bit = 0;
        while bit < 8 {
            // The bit belongs to the element that starts `bit - bit % bits` bits up.
            let product = mul_elements(field, coefficient, 1 << (bit % bits));
            table[c][bit as usize] = product << (bit - bit % bits);
            bit += 1;
        }
        c += 1;
    }
    table
}

const fn products(columns: &[[u8; 8]; 256]) -> [[u8; 256]; 256] {
    let mut table = [[0; 256]; 256];
    let mut c = 0;
    while c < 256 {
        let mut x = 1_usize;
        while x < 256 {
            // The lowest bit of x, and the rest, whose product is known.
            table[c][x] = table[c][x & (x - 1)] ^ columns[c][x.trailing_zeros() as usize];
            x += 1;
        }
        c += 1;
    }
    table
}

const fn affine(columns: &[[u8; 8]; 256]) -> [u64; 256] {
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        table[c] = bit_matrix(&columns[c]);
        c += 1;
    }
    table
}

/// A linear map, given by the image of each bit, in the layout of `vgf2p8affineqb`.
const fn bit_matrix(columns: &[u8; 8]) -> u64 {
    let (mut matrix, mut input) = (0, 0);
    while input < 8 {
        let mut output = 0;
        while output < 8 {
            let bit = (columns[input] >> output & 1) as u64;
            matrix |= bit << ((7 - output) * 8 + input);
            output += 1;
        }
        input += 1;
    }
    matrix
}

/// The image of a byte under a linear map.
const fn apply(columns: &[u8; 8], byte: u8) -> u8 {
    let (mut sum, mut bit) = (0, 0);
    while bit < 8 {
        if byte >> bit & 1 == 1 {
            sum ^= columns[bit];
        }
        bit += 1;
    }
    sum
}

/// An isomorphism of two fields of order 256, given by the image of the byte `1 << i`: x goes to
/// the smallest element of `to` that is a root of the polynomial of `from`, and x^i to its powers.
/// Zeros for smaller fields.
const fn isomorphism(from: Field, to: Field) -> [u8; 8] {
    let mut columns = [0; 8];
    if from.order() != 256 {
        return columns;
    }
    let mut root = 2;
    while !is_root(from.polynomial(), to, root) {
        root += 1;
    }
    let (mut power, mut bit) = (1, 0);
    while bit < 8 {
        columns[bit] = power;
        power = mul_elements(to, power, root);
        bit += 1;
    }
    columns
}

/// Whether a polynomial over GF(2) is zero at an element of a field.
const fn is_root(polynomial: u16, field: Field, element: u8) -> bool {
    let (mut sum, mut power, mut bit) = (0, 1, 0);
    while bit <= 8 {
        if polynomial >> bit & 1 == 1 {
            sum ^= power;
        }
        power = mul_elements(field, power, element);
        bit += 1;
    }
    sum == 0
}

/// The inverse of a map that is one to one; zeros for the map to zero.
const fn inverse_map(columns: &[u8; 8]) -> [u8; 8] {
    let mut inverse = [0; 8];
    let mut byte = 1;
    while byte < 256 {
        let image = apply(columns, byte as u8);
        if image.is_power_of_two() {
            inverse[image.trailing_zeros() as usize] = byte as u8;
        }
        byte += 1;
    }
    inverse
}

const fn nibbles(products: &[[u8; 256]; 256]) -> [NibblePair; 256] {
    let mut table = [NibblePair { low: [0; 16], high: [0; 16] }; 256];
    let mut c = 0;
    while c < 256 {
        let mut x = 0;
        while x < 16 {
            table[c].low[x] = products[c][x];
            table[c].high[x] = products[c][x << 4];
            x += 1;
        }
        c += 1;
    }
    table
}

const fn inverses(field: Field) -> [u8; 256] {
    let order = field.order() as usize;
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        let a = (c % order) as u8;
        // a^(order - 2) by repeated multiplication of squares; GF(2) has only 1, its own inverse.
        let (mut square, mut exponent, mut power) = (a, order - 2, 1);
        while exponent != 0 {
            if exponent & 1 == 1 {
                power = mul_elements(field, power, square);
            }
            square = mul_elements(field, square, square);
            exponent >>= 1;
        }
        table[c] = if a == 0 { 0 } else { power };
        c += 1;
    }
    table
}

/// Logarithms and powers to the base of the smallest generator of the multiplicative group: x in
/// GF(256) modulo 0x11D, x + 1 modulo 0x11B.
const fn logarithms(field: Field) -> ([u8; 256], [u8; 512]) {
    let (mut logarithms, mut powers) = ([0; 256], [0; 512]);
    if field.order() != 256 {
        return (logarithms, powers);
    }
    let mut generator = 2;
    while order_of(field, generator) != 255 {
        generator += 1;
    }
    let (mut exponent, mut power) = (0, 1);
    while exponent < 512 {
        powers[exponent] = power;
        if exponent < 255 {
            logarithms[power as usize] = exponent as u8;
        }
        power = mul_elements(field, power, generator);
        exponent += 1;
    }
    (logarithms, powers)
}

/// The smallest positive power of `a` (which is not 0) that is 1.
const fn order_of(field: Field, a: u8) -> usize {
    let (mut order, mut power) = (1, a);
    while power != 1 {
        power = mul_elements(field, power, a);
        order += 1;
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Schoolbook product of two polynomials over GF(2), then long division.
    fn mul_bitwise(field: Field, a: u8, b: u8) -> u8 {
        let bits = field.element_bits();
        let mut product =
            (0..bits).fold(0, |sum, i| sum ^ (u16::from(a) * u16::from(b >> i & 1)) << i);
        for bit in (bits..2 * bits).rev() {
            if product >> bit & 1 == 1 {
                product ^= field.polynomial() << (bit - bits);
            }
        }
        u8::try_from(product).expect("the remainder has degree below 8")
    }

    /// The product of a coefficient with each element of a byte.
    fn mul_packed(field: Field, c: u8, byte: u8) -> u8 {
        let (bits, c) = (field.element_bits(), (u16::from(c) % field.order()) as u8);
        let element = |at: u32| byte >> at & (field.order() - 1) as u8;
        (0..8)
            .step_by(bits as usize)
            .fold(0, |sum, at| sum | mul_bitwise(field, c, element(at)) << at)
    }

    /// The result of `vgf2p8affineqb` for one byte.
    fn affine_product(matrix: u64, byte: u8) -> u8 {
        let rows = matrix.to_le_bytes();
        (0..8).fold(0, |sum, i| sum | ((rows[7 - i] & byte).count_ones() as u8 & 1) << i)
    }

    #[test]
    fn every_table_of_every_field_equals_polynomial_arithmetic() {
        for field in Field::ALL {
            let tables = Tables::of(field);
            assert_eq!(tables.field, field);
            for c in 0..=255_u8 {
                let (pair, columns) =
                    (&tables.nibbles[usize::from(c)], &tables.columns[usize::from(c)]);
                for x in 0..=255_u8 {
                    let expected = mul_packed(field, c, x);
                    assert_eq!(field.mul(c, x), expected, "{field}: {c} * {x}");
                    let shuffled = pair.low[usize::from(x & 15)] ^ pair.high[usize::from(x >> 4)];
                    assert_eq!(shuffled, expected, "{field}: nibbles of {c} * {x}");
                    let affine = affine_product(tables.affine[usize::from(c)], x);
                    assert_eq!(affine, expected, "{field}: affine {c} * {x}");
                    let sum = (0..8).fold(0, |sum, i| sum ^ (columns[i] * (x >> i & 1)));
                    assert_eq!(sum, expected, "{field}: columns of {c} * {x}");
                }
            }
        }
    }

    #[test]
    fn isomorphism_to_11b_keeps_sums_and_products_and_has_an_inverse() {
        for field in [Field::Gf256x11D, Field::Gf256x11B] {
            let tables = Tables::of(field);
            let to = |element| apply(&tables.to_11b_columns, element);
            for a in 0..=255 {
                assert_eq!(apply(&tables.from_11b_columns, to(a)), a, "{field}: {a}");
                assert_eq!(affine_product(tables.from_11b, to(a)), a, "{field}: {a}");
                assert_eq!(affine_product(tables.to_11b, a), to(a), "{field}: {a}");
                for b in 0..=255 {
                    assert_eq!(to(a ^ b), to(a) ^ to(b), "{field}: {a} + {b}");
                    let product = Field::Gf256x11B.mul(to(a), to(b));
                    assert_eq!(to(field.mul(a, b)), product, "{field}: {a} * {b}");
                }
            }
        }
    }

    #[test]
    fn logarithms_of_gf256_multiply() {
        for field in [Field::Gf256x11D, Field::Gf256x11B] {
            let Tables { logarithms, powers, .. } = Tables::of(field);
            for a in 1..=255 {
                for b in 1..=255 {
                    let sum = [a, b]
                        .map(|x| usize::from(logarithms[usize::from(x)]))
                        .iter()
                        .sum::<usize>();
                    assert_eq!(powers[sum], field.mul(a, b), "{field}: {a} * {b}");
                }
            }
        }
    }

    #[test]
    fn inverse_of_every_element_multiplies_to_one() {
        for field in Field::ALL {
            assert_eq!(field.inverse(0), None, "{field}");
            for c in 1..=(field.order() - 1) as u8 {
                assert_eq!(
                    field.inverse(c).map(|i| mul_elements(field, c, i)),
                    Some(1),
                    "{field}: {c}"
                );
            }
        }
        assert_eq!((inverse(0), inverse(2), mul(2, 142)), (None, Some(142), 1));
    }

    //= RFC 6330 section 5.7.3, OCT_EXP and OCT_LOG
    #[test]
    fn powers_and_logarithms_match_rfc_6330() {
        let Tables { logarithms, powers, .. } = Tables::of(Field::Gf256x11D);
        let listed =
            [(0, 1), (1, 2), (7, 128), (8, 29), (9, 58), (12, 205), (25, 3), (50, 5), (254, 142)];
        for (exponent, value) in listed {
            assert_eq!(powers[exponent], value, "OCT_EXP[{exponent}]");
            assert_eq!(usize::from(logarithms[usize::from(value)]), exponent, "OCT_LOG[{value}]");
        }
        assert_eq!(powers[255..510], powers[..255], "OCT_EXP repeats after 255");
    }
}
