//! The 16 bytes that every packet begins with.
//!
//! Source: the wire format drawn in `docs/protocol/packets.md`. The parse checks shape only
//! (version, type, shard); whether a flow may use a packet's values is the pipeline's decision.
//! Every value comes from the network: nothing here panics or allocates.

/// Most shards of a flow.
pub const SHARDS_MAX: usize = 16;

/// Bytes of the header of every packet.
pub const HEADER_BYTES: usize = 16;

/// Wire format version of this crate. Boxes of different versions drop each other's packets, so it
/// is raised when an older box would misread a packet, and for nothing else.
pub const VERSION: u8 = 3;

/// Byte offset of the flags, which the XDP program reads.
pub const FLAGS_OFFSET: usize = 1;

/// Byte offset of the flow id, which the XDP program reads.
pub const FLOW_OFFSET: usize = 4;

/// Byte offset of the shard.
pub(crate) const SHARD_OFFSET: usize = 3;

/// Byte offset of the link sequence number.
const LINK_SEQUENCE_OFFSET: usize = 8;

/// Contents of a packet. Number 3 is reserved.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PacketType {
    /// A packet of a BATS batch.
    Bats = 1,
    /// A packet of an RLNC generation.
    Generation = 2,
    /// Reports and NACKs, travelling from sink to source.
    Feedback = 4,
    /// A packet of a stream.
    Stream = 5,
    /// Report on packets received over one link, to the neighbour that sends them.
    Link = 6,
    /// A message of a handshake, between neighbours or between source and sink.
    Handshake = 7,
    /// A neighbour's announcement of itself and of the flows that it shares with this node.
    Announcement = 8,
}

impl PacketType {
    /// Every type.
    pub const ALL: [PacketType; 7] = [
        PacketType::Bats,
        PacketType::Generation,
        PacketType::Feedback,
        PacketType::Stream,
        PacketType::Link,
        PacketType::Handshake,
        PacketType::Announcement,
    ];

    /// The type of a nibble.
    //= docs/protocol §2.5(a)
    #[inline(always)]
    pub fn from_nibble(nibble: u8) -> Option<PacketType> {
        Some(match nibble {
            1 => PacketType::Bats,
            2 => PacketType::Generation,
            4 => PacketType::Feedback,
            5 => PacketType::Stream,
            6 => PacketType::Link,
            7 => PacketType::Handshake,
            8 => PacketType::Announcement,
            _ => return None,
        })
    }
}

/// Flag bits. The low two bits hold the field code. Which flags a packet may have depends on its
/// type; others make it malformed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The symbol is a source symbol (of a batch: a coded symbol as the source formed it).
    pub const SYSTEMATIC: u8 = 0x80;
    /// Sent outside the plan of its generation, to answer a NACK or to end a burst.
    pub const REPAIR: u8 = 0x40;
    /// Last planned packet of its generation or batch on this hop.
    pub const END: u8 = 0x20;
    /// Combined by a relay.
    pub const RECODED: u8 = 0x10;
    /// Each hop protects the stream with more packets, for low delay.
    pub const INTERACTIVE: u8 = 0x08;
    /// Each hop recovers its own losses: nodes send link reports. Set by the source.
    pub const MENDED: u8 = 0x04;
    /// In a stream: its symbols are spread over several paths. Set where the paths part.
    pub const PATHS: u8 = 0x04;
    /// In a stream: no hop waits for reports, and each packet announces its redundancy. Set by the
    /// source, for paths without a return path.
    pub const OPEN_LOOP: u8 = 0x10;
    /// In a handshake: between source and sink of the flow; relays forward it.
    pub const EDGE: u8 = 0x80;
    /// Mask of the field code: 0, 1, 2, 3 for orders 2, 4, 16, 256.
    pub const FIELD: u8 = 0x03;

    /// Whether all bits of `mask` are set.
    #[inline]
    pub fn has(self, mask: u8) -> bool {
        self.0 & mask == mask
    }

    /// Field code, 0 to 3.
    #[inline]
    pub fn field_code(self) -> u8 {
        self.0 & Flags::FIELD
    }

    /// These flags with `mask` set or cleared.
    pub fn with(self, mask: u8, on: bool) -> Flags {
        Flags(if on { self.0 | mask } else { self.0 & !mask })
    }
}

/// Fields common to all packets, in wire order.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Contents of the packet.
    pub packet_type: PacketType,
    /// Flag bits and field code.
    pub flags: Flags,
    /// Parameter epoch of the source, modulo 256.
    pub epoch: u8,
    /// Shard of the flow, below [`SHARDS_MAX`].
    pub shard: u8,
    /// Flow id.
    pub flow: u32,
    /// Counts packets per hop, flow, shard and direction. Hop-mutable.
    pub link_sequence: u32,
    /// Hops travelled: 0 when it was just formed. Hop-mutable.
    pub hop_index: u8,
}

/// Why bytes are not a valid packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HeaderError {
    /// Shorter than its own header announces.
    Truncated,
    /// A version that this build does not support.
    Version(u8),
    /// An unassigned packet type, or not the expected one.
    Type(u8),
    /// Flags that its type does not have.
    Flags(u8),
    /// A value outside its range, or values that contradict each other.
    Value,
}

impl Header {
    /// Reads the header from the start of a UDP payload. The three bytes after the hop index belong
    /// to the packet's type.
    ///
    /// # Errors
    /// [`HeaderError`] when there are too few bytes, or version, type or shard are invalid.
    #[inline]
    pub fn parse(payload: &[u8]) -> Result<Header, HeaderError> {
        //= docs/protocol §2.1(a), §2.1(b)
        let bytes: &[u8; HEADER_BYTES] = payload.first_chunk().ok_or(HeaderError::Truncated)?;
        let version = bytes[0] >> 4;
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let nibble = bytes[0] & 15;
        let packet_type = PacketType::from_nibble(nibble).ok_or(HeaderError::Type(nibble))?;
        if usize::from(bytes[3]) >= SHARDS_MAX {
            return Err(HeaderError::Value);
        }
        Ok(Header {
            packet_type,
            flags: Flags(bytes[1]),
            epoch: bytes[2],
            shard: bytes[3],
            flow: word(bytes, FLOW_OFFSET),
            link_sequence: word(bytes, LINK_SEQUENCE_OFFSET),
            hop_index: bytes[12],
        })
    }

    /// Writes the header to the start of `out`; the bytes that belong to the packet's type become
    /// zero.
    ///
    /// # Panics
    /// When `out` is shorter than [`HEADER_BYTES`] or the shard is out of range.
    #[inline]
    pub fn write(&self, out: &mut [u8]) {
        assert!(usize::from(self.shard) < SHARDS_MAX, "shard {}", self.shard);
        out[0] = VERSION << 4 | self.packet_type as u8;
        out[1] = self.flags.0;
        out[2] = self.epoch;
        out[3] = self.shard;
        out[4..8].copy_from_slice(&self.flow.to_be_bytes());
        out[8..12].copy_from_slice(&self.link_sequence.to_be_bytes());
        out[12..16].copy_from_slice(&[self.hop_index, 0, 0, 0]);
    }

    /// These values, if they have no flags except `allowed` and the field code.
    ///
    /// # Errors
    /// [`HeaderError::Flags`] when there are others.
    //= docs/protocol §2.2(a)
    #[inline]
    pub(crate) fn with_flags_of(self, allowed: u8) -> Result<Header, HeaderError> {
        if self.flags.0 & !(allowed | Flags::FIELD) == 0 {
            Ok(self)
        } else {
            Err(HeaderError::Flags(self.flags.0))
        }
    }
}

/// Overwrites the link sequence number of a packet.
///
/// # Panics
/// When `out` is shorter than a header.
#[inline]
pub fn write_link_sequence(out: &mut [u8], number: u32) {
    out[LINK_SEQUENCE_OFFSET..][..4].copy_from_slice(&number.to_be_bytes());
}

/// Whether serial number `a` comes before `b` (RFC 1982).
pub fn serial_before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

#[inline]
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Headers of a type, with the flags that it may have.
    pub(crate) fn headers(packet_type: PacketType, flags: u8) -> impl Strategy<Value = Header> {
        (any::<u8>(), any::<u8>(), 0..SHARDS_MAX as u8, any::<(u32, u32, u8)>()).prop_map(
            move |(bits, epoch, shard, (flow, link_sequence, hop_index))| Header {
                packet_type,
                flags: Flags(bits & flags),
                epoch,
                shard,
                flow,
                link_sequence,
                hop_index,
            },
        )
    }

    proptest! {
        #[test]
        fn header_written_then_parsed_is_itself(
            header in (0usize..7).prop_flat_map(|kind| headers(PacketType::ALL[kind], 0xFF)),
            link_sequence: u32,
        ) {
            let mut bytes = [0u8; HEADER_BYTES];
            header.write(&mut bytes);
            prop_assert_eq!(Header::parse(&bytes), Ok(header));
            write_link_sequence(&mut bytes, link_sequence);
            prop_assert_eq!(Header::parse(&bytes), Ok(Header { link_sequence, ..header }));
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Header::parse(&bytes);
        }
    }

    #[test]
    fn layout_is_the_documented_one() {
        let header = Header {
            packet_type: PacketType::Generation,
            flags: Flags(2).with(Flags::END, true),
            epoch: 3,
            shard: 15,
            flow: 0x0405_0607,
            link_sequence: 0x0809_0A0B,
            hop_index: 12,
        };
        let mut bytes = [0xFF; HEADER_BYTES];
        header.write(&mut bytes);
        assert_eq!(bytes, [0x32, 0x22, 3, 15, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0]);
    }

    //= docs/protocol §2.1(b)
    #[test]
    fn shard_out_of_range_is_refused() {
        let mut bytes = [0; HEADER_BYTES];
        (bytes[0], bytes[3]) = (VERSION << 4 | 2, SHARDS_MAX as u8);
        assert_eq!(Header::parse(&bytes), Err(HeaderError::Value));
    }

    /// Every distance of 16 bits, from either end of the number space and of its halves.
    #[test]
    fn serial_numbers_are_ordered_by_their_distance_wherever_they_wrap() {
        let ends = [0, 1, u32::MAX, 1 << 31, (1 << 31) - 1];
        for bits in 0..=u32::from(u16::MAX) {
            for distance in [bits, bits << 16, !bits, (1 << 31) + bits, (1 << 31) - bits] {
                let is_ahead = (1..1 << 31).contains(&distance);
                let is_behind = distance > 1 << 31;
                for a in ends {
                    let b = a.wrapping_add(distance);
                    let orders = (serial_before(a, b), serial_before(b, a));
                    assert_eq!(orders, (is_ahead, is_behind), "{a} and {b}");
                }
            }
        }
    }

    #[test]
    fn serial_numbers_wrap() {
        assert!(serial_before(u32::MAX, 0));
        assert!(!serial_before(0, u32::MAX));
        assert!(!serial_before(5, 5));
    }
}
