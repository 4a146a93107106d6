//! Coding vectors on the wire: packed indices of field elements.
//!
//! Element 0 comes first, most significant bits first; the last byte is filled with zero bits and
//! the whole is padded with zero bytes to a multiple of four, so that the symbol stays aligned.
//!
//! ```text
//!  order 16, size 3:   | e0 e1 | e2 0 | 0 0 | 0 0 |
//! ```

use recoded_gf::FieldOrder;

/// Bytes of a packed vector of `size` elements, padding to a multiple of four included.
#[inline]
#[must_use]
pub const fn packed_bytes(size: usize, field: FieldOrder) -> usize {
    (size * field.bits() as usize).div_ceil(8).next_multiple_of(4)
}

/// Packs `elements`, which lie in the subfield `field` of GF(256), and zeroes the padding.
///
/// # Panics
/// When `out` is not exactly [`packed_bytes`] long. An element outside the subfield is a broken
/// invariant: debug builds panic, release builds send zero in its place.
pub fn pack(field: FieldOrder, elements: &[u8], out: &mut [u8]) {
    assert_eq!(out.len(), packed_bytes(elements.len(), field), "pack: wrong output length");
    if field == FieldOrder::TwoFiftySix {
        let (packed, padding) = out.split_at_mut(elements.len());
        packed.copy_from_slice(elements);
        return padding.fill(0);
    }
    let bits = field.bits();
    let per_byte = 8 / bits as usize;
    out.fill(0);
    for (byte, group) in out.iter_mut().zip(elements.chunks(per_byte)) {
        let mut shift = 8;
        for &element in group {
            let index = field.index_of(element);
            debug_assert!(index.is_some(), "pack: {element} lies outside GF({field})");
            shift -= bits;
            *byte |= index.unwrap_or(0) << shift;
        }
    }
}

/// Unpacks one element of GF(256) into each byte of `out`; the padding is ignored.
///
/// # Panics
/// When `packed` is shorter than `out.len()` elements need (padding not counted).
pub fn unpack(field: FieldOrder, packed: &[u8], out: &mut [u8]) {
    let bits = field.bits();
    let per_byte = 8 / bits as usize;
    let needed = out.len().div_ceil(per_byte);
    assert!(packed.len() >= needed, "unpack: {} bytes, {needed} needed", packed.len());
    if field == FieldOrder::TwoFiftySix {
        return out.copy_from_slice(&packed[..needed]);
    }
    for (&byte, group) in packed.iter().zip(out.chunks_mut(per_byte)) {
        let mut rest = byte;
        for element in group {
            // The next index is in the top bits; `embed` ignores what lies above its own bits.
            rest = rest.rotate_left(bits);
            *element = field.embed(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn packed_bytes_of_known_sizes_are_multiples_of_four() {
        use FieldOrder::{Four, Sixteen, Two, TwoFiftySix};
        for (size, field, bytes) in [
            (1, Two, 4),
            (32, Two, 4),
            (33, Two, 8),
            (256, Two, 32),
            (16, Four, 4),
            (17, Four, 8),
            (16, Sixteen, 8),
            (3, Sixteen, 4),
            (16, TwoFiftySix, 16),
            (256, TwoFiftySix, 256),
        ] {
            assert_eq!(packed_bytes(size, field), bytes, "{size} elements of GF({field})");
        }
    }

    #[test]
    fn pack_puts_the_first_element_into_the_most_significant_bits() {
        let mut out = [0xFF; 4];
        pack(FieldOrder::Two, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 1], &mut out);
        assert_eq!(out, [0b1000_0000, 0b0100_0000, 0, 0]);
        let field = FieldOrder::Sixteen;
        pack(field, &[field.embed(0xA), field.embed(0x5), field.embed(0xC)], &mut out);
        assert_eq!(out, [0xA5, 0xC0, 0, 0]);
        let field = FieldOrder::Four;
        pack(field, &[1, field.embed(2), field.embed(3), 0, 1], &mut out);
        assert_eq!(out, [0b0110_1100, 0b0100_0000, 0, 0]);
    }

    proptest! {
        #[test]
        fn unpack_of_packed_vector_returns_it(
            code in 0_u8..4,
            indices in proptest::collection::vec(any::<u8>(), 0..=256),
        ) {
            let field = FieldOrder::from_code(code).expect("code below four");
            let elements: Vec<u8> = indices.iter().map(|&index| field.embed(index)).collect();
            let mut packed = vec![0xFF; packed_bytes(elements.len(), field)];
            pack(field, &elements, &mut packed);
            let used_bits = elements.len() * field.bits() as usize;
            for bit in used_bits..packed.len() * 8 {
                prop_assert_eq!(packed[bit / 8] >> (7 - bit % 8) & 1, 0, "padding bit {}", bit);
            }
            let mut unpacked = vec![0xFF; elements.len()];
            unpack(field, &packed, &mut unpacked);
            prop_assert_eq!(unpacked, elements);
        }

        #[test]
        fn unpack_of_any_bytes_stays_in_the_subfield(
            code in 0_u8..4,
            packed in proptest::collection::vec(any::<u8>(), 256),
            size in 0_usize..=256,
        ) {
            let field = FieldOrder::from_code(code).expect("code below four");
            let mut unpacked = vec![0; size];
            unpack(field, &packed, &mut unpacked);
            prop_assert!(unpacked.iter().all(|&element| field.index_of(element).is_some()));
        }
    }
}
