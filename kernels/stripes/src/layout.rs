//! Where each byte of a set is: the content in stripes of k units, a unit of each stripe in each
//! shard. All numbers are checked here once, so that no later arithmetic overflows.
//!
//! ```text
//!  content   [ stripe 0: k units ][ stripe 1: k units ] .. [ last stripe: k shorter units ]
//!  shard i   [ header ][ unit i of stripe 0 | checksum ][ unit i of stripe 1 | checksum ] ..
//! ```

use crate::unit::CHECKSUM_BYTES;

/// Bytes of a header, which is the start of a shard.
pub const HEADER_BYTES: usize = 128;

/// Bytes of a unit unless chosen. Longer units make a small update dearer; shorter ones cost more
/// system calls and seeks for each byte.
pub const UNIT_BYTES_DEFAULT: usize = 256 << 10;

/// Shortest unit. A checksum of 32 bytes then adds half.
pub const UNIT_BYTES_MIN: usize = 64;

/// Longest unit.
pub const UNIT_BYTES_MAX: usize = 1 << 20;

/// Units are a multiple of this, the width of vector registers.
pub const UNIT_BYTES_MULTIPLE: usize = 64;

/// Most bytes of a stripe, parity included. It bounds memory, because a thread holds a stripe.
pub const STRIPE_BYTES_MAX: usize = 64 << 20;

/// Most bytes of content. Sums of offsets stay far below the range of 64 bits.
const TOTAL_BYTES_MAX: u64 = 1 << 56;

/// A code, the length of a unit and the length of the content.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    data: usize,
    parity: usize,
    unit_bytes: usize,
    total_bytes: u64,
}

/// The reason why there is no such layout.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// The numbers of shards.
    #[error(
        "{data} data and {parity} parity shards\nfix: choose at least 1 of each, at most 256 in all"
    )]
    Shards {
        /// Data shards, k.
        data: usize,
        /// Parity shards, m.
        parity: usize,
    },
    /// The length of a unit.
    #[error(
        "units of {bytes} bytes\nfix: choose a multiple of {UNIT_BYTES_MULTIPLE} from \
         {UNIT_BYTES_MIN} to {UNIT_BYTES_MAX} bytes"
    )]
    Unit {
        /// The length.
        bytes: usize,
    },
    /// A stripe takes too much memory.
    #[error(
        "{shards} units of {unit_bytes} bytes make a stripe of more than {STRIPE_BYTES_MAX} bytes\n\
         fix: choose shorter units or fewer shards"
    )]
    Stripe {
        /// Shards in all.
        shards: usize,
        /// Bytes of a unit.
        unit_bytes: usize,
    },
    /// The content is too long.
    #[error("{bytes} bytes of content\nfix: protect at most {TOTAL_BYTES_MAX} bytes in one set")]
    Total {
        /// Its length.
        bytes: u64,
    },
}

impl Layout {
    /// The layout of empty content.
    ///
    /// # Errors
    /// A number is out of range.
    pub const fn new(data: usize, parity: usize, unit_bytes: usize) -> Result<Self, LayoutError> {
        if data == 0 || parity == 0 || data.saturating_add(parity) > 256 {
            return Err(LayoutError::Shards { data, parity });
        }
        let is_in_range = unit_bytes >= UNIT_BYTES_MIN && unit_bytes <= UNIT_BYTES_MAX;
        if !is_in_range || !unit_bytes.is_multiple_of(UNIT_BYTES_MULTIPLE) {
            return Err(LayoutError::Unit { bytes: unit_bytes });
        }
        if (data + parity) * unit_bytes > STRIPE_BYTES_MAX {
            return Err(LayoutError::Stripe { shards: data + parity, unit_bytes });
        }
        Ok(Self { data, parity, unit_bytes, total_bytes: 0 })
    }

    /// The same for content of `total_bytes`.
    ///
    /// # Errors
    /// The content is too long.
    pub const fn with_total(self, total_bytes: u64) -> Result<Self, LayoutError> {
        if total_bytes > TOTAL_BYTES_MAX {
            return Err(LayoutError::Total { bytes: total_bytes });
        }
        Ok(Self { total_bytes, ..self })
    }

    /// Data shards: k.
    #[must_use]
    pub const fn data(&self) -> usize {
        self.data
    }

    /// Parity shards: m.
    #[must_use]
    pub const fn parity(&self) -> usize {
        self.parity
    }

    /// Data and parity shards.
    #[must_use]
    pub const fn shards(&self) -> usize {
        self.data + self.parity
    }

    /// Bytes of a unit in all stripes but the last one.
    #[must_use]
    pub const fn unit_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// Bytes of the content.
    #[must_use]
    pub const fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Bytes of content in a full stripe.
    #[must_use]
    pub const fn stripe_bytes(&self) -> usize {
        self.data * self.unit_bytes
    }

    /// Number of stripes.
    #[must_use]
    pub const fn stripes(&self) -> u64 {
        self.total_bytes.div_ceil(self.stripe_bytes() as u64)
    }

    /// Bytes of content in a stripe, which is less than `stripes`.
    #[must_use]
    pub fn content_bytes(&self, stripe: u64) -> usize {
        let rest = self.total_bytes.saturating_sub(stripe * self.stripe_bytes() as u64);
        rest.min(self.stripe_bytes() as u64) as usize
    }

    /// Bytes of a unit of a stripe, which is less than `stripes`. The last stripe has shorter
    /// units, and zeros behind its content.
    #[must_use]
    pub fn unit_bytes_of(&self, stripe: u64) -> usize {
        self.content_bytes(stripe).div_ceil(self.data)
    }

    /// Offset of the unit of a stripe in its shard.
    #[must_use]
    pub const fn unit_offset(&self, stripe: u64) -> u64 {
        HEADER_BYTES as u64 + stripe * (self.unit_bytes + CHECKSUM_BYTES) as u64
    }

    /// Bytes of each shard.
    #[must_use]
    pub fn shard_bytes(&self) -> u64 {
        let Some(last) = self.stripes().checked_sub(1) else { return HEADER_BYTES as u64 };
        self.unit_offset(last) + (self.unit_bytes_of(last) + CHECKSUM_BYTES) as u64
    }

    /// Stripes with at least a part in a shard of `bytes`.
    #[must_use]
    pub const fn stripes_within(&self, bytes: u64) -> u64 {
        let units = bytes.saturating_sub(HEADER_BYTES as u64);
        let stripes = units.div_ceil((self.unit_bytes + CHECKSUM_BYTES) as u64);
        if stripes < self.stripes() { stripes } else { self.stripes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(total_bytes: u64) -> Layout {
        Layout::new(3, 2, 64).and_then(|it| it.with_total(total_bytes)).expect("it is in range")
    }

    #[test]
    fn last_stripe_has_shorter_units() {
        for (total, stripes, last, shard) in [
            (0, 0, 0, 128),
            (1, 1, 1, 128 + 33),
            (191, 1, 64, 128 + 96),
            (192, 1, 64, 128 + 96),
            (193, 2, 1, 128 + 96 + 33),
        ] {
            let layout = layout(total);
            assert_eq!(layout.stripes(), stripes, "{total}");
            assert_eq!(layout.shard_bytes(), shard, "{total}");
            assert_eq!(layout.stripes_within(shard), stripes, "{total}");
            if let Some(index) = stripes.checked_sub(1) {
                assert_eq!(layout.unit_bytes_of(index), last, "{total}");
            }
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for (data, parity, unit_bytes) in [
            (0, 1, 64),
            (1, 0, 64),
            (200, 57, 64),
            (usize::MAX, 2, 64),
            (2, 1, 0),
            (2, 1, 65),
            (2, 1, UNIT_BYTES_MAX + 64),
            (200, 56, UNIT_BYTES_MAX),
        ] {
            assert!(Layout::new(data, parity, unit_bytes).is_err(), "{data} {parity} {unit_bytes}");
        }
        assert!(layout(0).with_total(u64::MAX).is_err());
        let longest = layout(0).with_total(TOTAL_BYTES_MAX).expect("it is the longest");
        assert!(longest.shard_bytes() > TOTAL_BYTES_MAX / 3);
    }
}
