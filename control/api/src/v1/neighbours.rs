//! Neighbours: of a link, and of a flow, where it is sent to and where it comes from.

use serde::{Deserialize, Serialize};
use zlink::introspect::CustomType;

/// A next hop of a stream, from its reports. Values are null before the first report.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct FlowNeighbour {
    /// link:address.
    pub next_hop: String,
    /// How fast it may be sent to in Mbit/s, headers of Ethernet, IP and UDP included, summed over
    /// shards.
    pub rate_mbit: f64,
    /// Mean time from a packet to the report on it, of the slowest shard.
    pub round_trip_us: Option<f64>,
    /// Mean time that packets waited in queues on the link, of the slowest shard.
    pub queue_us: Option<f64>,
    /// Share of packets that the link loses, averaged over shards.
    pub loss: Option<f64>,
    /// Seconds since it reported last. Without packets there is nothing to report.
    pub heard_ago_seconds: Option<f64>,
    /// Whether it has not answered for 3 seconds or longer, although packets were sent to it.
    pub silent: bool,
    /// IP packets of this many bytes and longer do not arrive, while shorter ones do.
    pub lost_packet_bytes: Option<u64>,
    /// The longest of those that arrived meanwhile.
    pub arrived_packet_bytes: Option<u64>,
    /// Where the tunnel cannot become as small as the path: bytes of IP packets that the path has
    /// to carry.
    #[serde(default)]
    pub needed_packet_bytes: Option<u64>,
    /// Path to one receiver: share of the newest symbols that went this way.
    #[serde(default)]
    pub share: Option<f64>,
    /// Path to one receiver: whether its symbols moved to other paths, since it does not answer, or
    /// nothing is forwarded behind it.
    #[serde(default)]
    pub in_doubt: bool,
    /// How long the oldest symbol has waited that is still to be sent to it; 0 when none waits.
    #[serde(default)]
    pub behind_us: Option<f64>,
}

/// A neighbour that a relay or sink receives from.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct FlowUpstream {
    /// link:address.
    pub upstream: String,
    /// Share of packets that its link loses, averaged over shards; null before it is measured.
    pub loss: Option<f64>,
    /// Share of the newest packets that came from it.
    pub share: Option<f64>,
    /// Seconds since a packet came from it; null before the first.
    pub received_ago_seconds: Option<f64>,
}

/// A next hop on a link.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct Neighbour {
    /// Its IP address, as configured; the host name while that has no address; the name of the box
    /// where the configuration has no address.
    pub address: String,
    /// Name of the box; empty if the configuration has none.
    #[serde(default)]
    pub name: String,
    /// Why its host name has no address; empty where it has one, or the address is configured.
    #[serde(default)]
    pub waits: String,
    /// Where it is, address and port, if it roams and has moved; else empty.
    #[serde(default)]
    pub endpoint: String,
    /// How often it moved since the daemon has looked.
    #[serde(default)]
    pub moves: u64,
    /// Whether packets can be sent to it: with AF_XDP its Ethernet address is known, with UDP
    /// sockets Linux finds it.
    pub resolved: bool,
    /// Version of the daemon there, from its latest announcement; empty without one.
    #[serde(default)]
    pub version: String,
    /// Version of the protocol of its last packet that was not of this box's; null if none came.
    #[serde(default)]
    pub other_protocol: Option<u64>,
    /// Packets dropped for that; of AF_XDP, since the packet process began.
    #[serde(default)]
    pub other_protocol_packets: u64,
    /// Seconds since it said something of itself; null if it never did.
    #[serde(default)]
    pub said_ago_seconds: Option<f64>,
    /// Seconds that its clock was ahead of this node's; negative where it was behind.
    #[serde(default)]
    pub clock_ahead_seconds: i64,
    /// Bytes of UDP payload that this end of the link carries; null before the neighbour said
    /// something.
    #[serde(default)]
    pub packet_bytes: Option<u64>,
    /// The same of the neighbour's end, from its announcement.
    #[serde(default)]
    pub packet_bytes_there: Option<u64>,
    /// On what the two do not agree.
    #[serde(default)]
    pub disagreements: Vec<Disagreement>,
}

impl Neighbour {
    /// Cause and cure if it sends packets of another version of the protocol than `protocol`, that
    /// of this box. `who` is its name. Such packets have no tags that this box could check, so
    /// it serves for neighbours that are otherwise silent.
    pub fn other_protocol_words(&self, who: &str, protocol: u64) -> Option<[String; 2]> {
        let there = self.other_protocol.filter(|it| *it != protocol)?;
        let older = if there < protocol { who } else { "this box" };
        Some([
            format!("{who} speaks protocol {there}, this box {protocol}: its packets are dropped"),
            format!("upgrade {older}; both then have the same version"),
        ])
    }
}

/// An announced value that one of two neighbours refuses.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct Disagreement {
    /// The flow.
    pub flow: i64,
    /// unknown_flow, not_expected, not_sent, not_there, code, too_large, symbol_bytes or memory.
    pub reason: String,
    /// Whether this node refuses; otherwise the neighbour does.
    pub ours: bool,
    /// What is wrong.
    pub cause: String,
    /// What to do about it.
    pub cure: String,
}
