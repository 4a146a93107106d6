//! Packets of another version of the protocol, counted for each neighbour.
//!
//! The first byte of a packet has the version in its upper half and the type in its lower half, in
//! every version. A node reads nothing else of a packet of another version, and does not answer it.

/// Such packets from one neighbour, in the 32 bits of its entry in a map of the XDP program: their
/// number, modulo 2^28, above the version of the last one.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct OtherVersion(u32);

/// Bits of a version.
const VERSION_BITS: u32 = 4;

impl OtherVersion {
    /// From an entry of the map.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> OtherVersion {
        OtherVersion(bits)
    }

    /// The entry of the map.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// With one packet more, which begins with the byte `first`.
    #[inline(always)]
    #[must_use]
    pub const fn counted(self, first: u8) -> OtherVersion {
        let packets = (self.0 >> VERSION_BITS).wrapping_add(1);
        OtherVersion(packets << VERSION_BITS | (first >> VERSION_BITS) as u32)
    }

    /// With the packets of another worker or program; the version is that of `other` if it has any.
    #[must_use]
    pub const fn with(self, other: OtherVersion) -> OtherVersion {
        let packets = self.packets().wrapping_add(other.packets());
        let version = if other.packets() > 0 { other.0 } else { self.0 };
        OtherVersion(packets << VERSION_BITS | version & ((1 << VERSION_BITS) - 1))
    }

    /// Packets, modulo 2^28.
    pub const fn packets(self) -> u32 {
        self.0 >> VERSION_BITS
    }

    /// Version of the last packet; `None` without packets.
    pub const fn version(self) -> Option<u8> {
        if self.packets() == 0 { None } else { Some((self.0 & ((1 << VERSION_BITS) - 1)) as u8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_counted_with_the_version_of_the_last_one() {
        let none = OtherVersion::default();
        assert_eq!((none.packets(), none.version()), (0, None));
        let two = none.counted(0x25).counted(0x1f);
        assert_eq!((two.packets(), two.version()), (2, Some(1)));
        assert_eq!(OtherVersion::from_bits(two.bits()), two);
        let three = none.counted(0xf0).with(two);
        assert_eq!((three.packets(), three.version()), (3, Some(1)));
        assert_eq!(three.with(none), three);
        let full = OtherVersion::from_bits(u32::MAX).counted(0x20);
        assert_eq!(full.packets(), 0, "modulo 2^28");
    }
}
