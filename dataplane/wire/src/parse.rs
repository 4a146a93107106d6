//! A received packet, parsed once, by its type.

use crate::announcement::parse_announcement;
use crate::coded::{Coded, parse_coded};
use crate::feedback::FeedbackHeader;
use crate::handshake::parse_handshake;
use crate::header::{Header, HeaderError, PacketType};
use crate::link::{LinkReport, parse_link};
use crate::stream::{StreamPacket, parse_stream};

/// A packet of any type. All values are within the range of their fields.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Packet<'a> {
    /// A packet of a generation or of a batch.
    Coded(Coded<'a>),
    /// Feedback, whose items are read by [`crate::feedback::items`].
    Feedback(FeedbackHeader),
    /// A packet of a stream.
    Stream(StreamPacket),
    /// A link report, whose gaps are read by [`crate::link::link_gaps`].
    Link(LinkReport),
    /// A message of a handshake, which lies after the header.
    Handshake(Header),
    /// A neighbour's announcement of itself; read by [`parse_announcement`].
    Announcement(Header),
}

/// Parses a UDP payload.
///
/// # Errors
/// [`HeaderError`] when it is not a valid packet, or contradicts itself.
#[inline]
pub fn parse(payload: &[u8]) -> Result<Packet<'_>, HeaderError> {
    match Header::parse(payload)?.packet_type {
        PacketType::Bats | PacketType::Generation => parse_coded(payload).map(Packet::Coded),
        PacketType::Feedback => FeedbackHeader::parse(payload).map(Packet::Feedback),
        PacketType::Stream => parse_stream(payload).map(Packet::Stream),
        PacketType::Link => parse_link(payload).map(Packet::Link),
        PacketType::Handshake => parse_handshake(payload).map(Packet::Handshake),
        PacketType::Announcement => {
            parse_announcement(payload).map(|(header, ..)| Packet::Announcement(header))
        }
    }
}

impl Packet<'_> {
    /// Header common to all packets.
    pub fn header(&self) -> &Header {
        match self {
            Packet::Coded(coded) => &coded.header.common,
            Packet::Feedback(header) => &header.common,
            Packet::Stream(packet) => &packet.header.common,
            Packet::Link(report) => &report.header,
            Packet::Handshake(header) | Packet::Announcement(header) => header,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_parses_is_what_its_header_says(
            kind in 1u8..9,
            mut bytes in prop::collection::vec(any::<u8>(), 16..300),
        ) {
            bytes[0] = crate::header::VERSION << 4 | kind;
            if let Ok(packet) = parse(&bytes) {
                prop_assert_eq!(Ok(*packet.header()), Header::parse(&bytes));
                prop_assert_eq!(packet.header().packet_type as u8, kind);
            }
        }
    }
}
