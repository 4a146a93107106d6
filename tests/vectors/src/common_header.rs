//! The header of every packet of `wire.json`.

use recoded_wire::header::{self, Flags, PacketType};
use serde::{Deserialize, Serialize};

pub(crate) const FLOW: u32 = 0x0102_0304;

/// The common header of all packets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// Type: 1 BATS, 2 RLNC generation, 4 feedback, 5 stream, 6 link report, 7 message of a
    /// handshake, 8 announcement; 3 is reserved.
    pub packet_type: u8,
    /// Flags with the field code.
    pub flags: u8,
    /// Parameter epoch.
    pub epoch: u8,
    /// Shard of the flow.
    pub shard: u8,
    /// Flow id.
    pub flow: u32,
    /// Link sequence number.
    pub link_sequence: u32,
    /// Hops travelled.
    pub hop_index: u8,
}

impl From<header::Header> for Header {
    fn from(header: header::Header) -> Self {
        let header::Header { packet_type, flags, epoch, shard, flow, link_sequence, hop_index } =
            header;
        let (packet_type, flags) = (packet_type as u8, flags.0);
        Self { packet_type, flags, epoch, shard, flow, link_sequence, hop_index }
    }
}

pub(crate) fn common(packet_type: PacketType, flags: u8, number: u8) -> header::Header {
    header::Header {
        packet_type,
        flags: Flags(flags),
        epoch: 253u8.wrapping_add(number),
        shard: number * 5 % 16,
        flow: FLOW,
        link_sequence: u32::MAX - 3 + u32::from(number % 4),
        hop_index: number,
    }
}
