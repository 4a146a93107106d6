//! The Internet checksum (RFC 1071), for headers written here and for packets split or merged at a
//! tunnel. Pure.

/// One's complement sum of the big-endian 16-bit words of `bytes`, an odd last byte padded with
/// zero.
#[inline]
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    // The sum does not depend on the byte order it is computed in, except for the order of its own
    // two bytes (RFC 1071, section 2B). Words of 32 bits in native order need no swap and leave the
    // carries in the upper half, so the loop becomes vector additions.
    let (words, rest) = bytes.as_chunks::<4>();
    let mut sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum += u64::from(u32::from_ne_bytes(last));
    u64::from(u16::from_be(fold(sum)))
}

/// A one's complement sum folded to 16 bits.
#[inline]
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071, written as plainly as possible.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    proptest! {
        #[test]
        fn sum_matches_the_plain_one(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(fold(sum(&bytes)), plain(&bytes));
        }
    }

    #[test]
    fn sum_of_the_largest_packet_does_not_overflow() {
        assert_eq!(fold(sum(&[0xff; 65_535])), plain(&[0xff; 65_535]));
    }
}
