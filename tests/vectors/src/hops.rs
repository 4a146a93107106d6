//! `wire.json`: packets of streams, and link reports about them.

use recoded_wire::announcement::{
    ANNOUNCEMENT_BYTES_MAX, Announcement, Entry, Refusal, parse_announcement, write_announcement,
};
use recoded_wire::handshake::{
    MESSAGE_BYTES_MAX, parse_handshake, travel, write_edge_handshake, write_hop_handshake,
};
use recoded_wire::header::HEADER_BYTES;
use recoded_wire::header::{Flags, PacketType};
use recoded_wire::link::{self, LINK_BYTES, LINK_GAPS_MAX, LinkReport, Missing, write_link};
use recoded_wire::stream::{
    self, COMBINED_MAX, KEEPALIVE_BYTES, STREAM_BYTES, StreamHeader, StreamSymbol,
    write_combination, write_symbol,
};
use serde::{Deserialize, Serialize};

use crate::common_header::{Header, common};
use crate::{Hex, symbols};

/// A packet of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stream {
    /// The common header.
    pub header: Header,
    /// Binary logarithm of the symbols that nodes keep.
    pub window_log2: u8,
    /// Sum of the round trips of the hops traversed, in units of 1/4 ms.
    pub round_trips: u16,
    /// The uncoded symbol, if it carries one.
    pub symbol: Option<Symbol>,
    /// The combination, if it carries one. A keepalive has neither.
    pub combination: Option<Combination>,
    /// All bytes of the UDP payload.
    pub bytes: Hex,
}

/// A symbol of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Symbol {
    /// Its number.
    pub number: u32,
    /// Distance in numbers to the symbol that is delivered before it; 0 for none.
    pub after: u16,
    /// Lower half of its place on this hop.
    pub place: u16,
    /// The IP packet.
    pub packet: Hex,
}

/// Symbols of consecutive places, combined.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Combination {
    /// Place of the first.
    pub first: u32,
    /// How many.
    pub count: u16,
    /// Repair key of RFC 8681, which determines the coefficients.
    pub key: u16,
    /// The sum.
    pub sum: Hex,
}

/// A link report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Link {
    /// The common header.
    pub header: Header,
    /// The first link sequence number that it covers.
    pub from: u32,
    /// The number after the last one that it covers.
    pub horizon: u32,
    /// The number that arrived last.
    pub latest: u32,
    /// Its arrival time, in microseconds.
    pub arrived: u32,
    /// Microseconds from then to the report.
    pub held: u16,
    /// Queueing delay of the latest arrival, in units of 16 microseconds.
    pub backlog: u16,
    /// Bytes of UDP payload received.
    pub received_bytes: u32,
    /// Packets received.
    pub received_packets: u32,
    /// Sum of the round trips of the hops from the receiver on, in units of 1/4 ms.
    pub beyond: u16,
    /// Lower halves of places of symbols that are missing.
    pub missing: Vec<u16>,
    /// Missing numbers.
    pub gaps: Vec<Gap>,
    /// All bytes of the UDP payload.
    pub bytes: Hex,
}

/// Consecutive missing numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Gap {
    /// The first.
    pub first: u32,
    /// How many.
    pub count: u16,
}

impl From<link::LinkGap> for Gap {
    fn from(link::LinkGap { first, count }: link::LinkGap) -> Self {
        Self { first, count }
    }
}

/// A message of a handshake; its contents are in `secure.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Handshake {
    /// The common header.
    pub header: Header,
    /// The message; none in a hello between neighbours.
    pub message: Hex,
    /// All bytes of the UDP payload.
    pub bytes: Hex,
}

/// Messages and hellos between neighbours and between edges, the last two in flight.
pub(crate) fn handshakes() -> Vec<Handshake> {
    let cases = [(false, 141, 0), (false, 0, 0), (true, 86, 0), (true, 25, 2), (true, 160, 64)];
    let handshake = |(is_edge, length, hops): (bool, usize, u8)| {
        let message: Vec<u8> = (0..length).map(|at| at as u8 ^ 0x5A).collect();
        let mut bytes = [0; HEADER_BYTES + MESSAGE_BYTES_MAX];
        let written = match is_edge {
            true => write_edge_handshake(0x0102_0304, &message, &mut bytes),
            false => write_hop_handshake(&message, &mut bytes),
        };
        let bytes = &mut bytes[..written];
        (0..hops).for_each(|_| assert!(travel(bytes), "few enough hops"));
        let header = parse_handshake(bytes).expect("a message");
        Handshake { header: header.into(), message: Hex(message), bytes: Hex(bytes.to_vec()) }
    };
    cases.into_iter().map(handshake).collect()
}

/// A neighbour's announcement of itself and of its flows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Announced {
    /// The common header.
    pub header: Header,
    /// Version of its software.
    pub software: [u8; 3],
    /// Bit t is set where it has the code of packet type t.
    pub codes: u8,
    /// Largest UDP payload that the link carries.
    pub packet_bytes: u16,
    /// Random number drawn at its start.
    pub instance: u16,
    /// Seconds since 1970.
    pub clock: u64,
    /// Marks of the session with the neighbour.
    pub marks: Hex,
    /// Announcements of flows.
    pub entries: Vec<Said>,
    /// All bytes of the UDP payload.
    pub bytes: Hex,
}

/// Announcement of a flow, as on the wire.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Said {
    /// The flow.
    pub flow: u32,
    /// 1 sends, 2 expects, 128 and more refuses.
    pub kind: u8,
    /// Packet type of the code, or 0.
    pub code: u8,
    /// Bytes of UDP payload, or 0.
    pub value: u16,
}

/// One without flows, and one with an entry of each kind.
pub(crate) fn announcements() -> Vec<Announced> {
    let sends = |flow, code, packet_bytes| Entry::Sends { flow, code, packet_bytes };
    let refuses = |flow, refusal| Entry::Refuses { flow, refusal };
    let said = |(flow, kind, code, value)| Said { flow, kind, code, value };
    let all = [
        (sends(1, Some(PacketType::Bats), 1472), (1, 1, 1, 1472)),
        (sends(0x0102_0304, None, 0), (0x0102_0304, 1, 0, 0)),
        (Entry::Expects { flow: 2 }, (2, 2, 0, 0)),
        (refuses(3, Refusal::UnknownFlow), (3, 128, 0, 0)),
        (refuses(4, Refusal::NotExpected), (4, 129, 0, 0)),
        (refuses(5, Refusal::NotSent), (5, 130, 0, 0)),
        (refuses(6, Refusal::NotThere), (6, 131, 0, 0)),
        (refuses(7, Refusal::Code(PacketType::Bats)), (7, 132, 1, 0)),
        (refuses(u32::MAX, Refusal::TooLarge(1372)), (u32::MAX, 133, 0, 1372)),
        (
            Entry::Sizes { flow: 8, generation_size: 256, symbols_log2: 15, header_bytes: 300 },
            (8, 3, 255, 0x792c),
        ),
        (refuses(9, Refusal::SymbolBytes(1200)), (9, 134, 0, 1200)),
        (refuses(10, Refusal::Memory(300)), (10, 135, 0, 300)),
    ];
    let announced = |count: usize| {
        let announcement = Announcement {
            software: [0, 1, 20],
            codes: 0x2E,
            packet_bytes: 1472,
            instance: 0xBEEF,
            clock: 1_763_884_800 + count as u64,
            marks: std::array::from_fn(|place| (count + place) as u8),
        };
        let entries = all[..count].iter().map(|(entry, _)| *entry).collect::<Vec<_>>();
        let mut bytes = [0; ANNOUNCEMENT_BYTES_MAX];
        let len = write_announcement(&announcement, &entries, &mut bytes);
        let (header, ..) = parse_announcement(&bytes[..len]).expect("an announcement");
        let Announcement { software, codes, packet_bytes, instance, clock, marks } = announcement;
        Announced {
            header: header.into(),
            software,
            codes,
            packet_bytes,
            instance,
            clock,
            marks: Hex(marks.to_vec()),
            entries: all[..count].iter().map(|(_, fields)| said(*fields)).collect(),
            bytes: Hex(bytes[..len].to_vec()),
        }
    };
    [0, all.len()].map(announced).into()
}

/// Symbols, one of them retransmitted, combinations, and keepalives, the last of another code.
pub(crate) fn streams() -> Vec<Stream> {
    let symbol = Flags::SYSTEMATIC;
    let cases = [
        (symbol, 6, 0, Some((u32::MAX, 0))),
        (symbol, 14, 41, Some((0, 1))),
        (symbol, 15, u16::MAX, Some((7, 32_767))),
        (symbol | Flags::REPAIR, 14, 0x0102, Some((u32::MAX - 1, 300))),
        (Flags::END, 6, 0, None),
        (Flags::END, 15, 3, None),
        (0, 6, 1, Some((u32::MAX - 3, 64))),
        (0, 14, 2, Some((0x0102_0304, COMBINED_MAX))),
        (symbol | Flags::INTERACTIVE, 14, 9, Some((8, 0))),
        (Flags::INTERACTIVE, 14, 9, Some((8, 1))),
        (Flags::END | Flags::INTERACTIVE, 14, 9, None),
        (Flags::END, 0, 0, None),
        (symbol | Flags::PATHS, 14, 5, Some((99, 2))),
        (Flags::PATHS | Flags::INTERACTIVE, 14, 5, Some((10, 3))),
    ];
    let packet = |(number, (flags, window_log2, round_trips, carries))| {
        packet(number, flags, window_log2, round_trips, carries)
    };
    (0..).zip(cases).map(packet).collect()
}

fn packet(
    number: u8,
    flags: u8,
    window_log2: u8,
    round_trips: u16,
    carries: Option<(u32, u16)>,
) -> Stream {
    let header = StreamHeader {
        common: common(PacketType::Stream, flags, number),
        window_log2,
        round_trips,
    };
    let noise = symbols(u32::from(number) + 40, 1, 20 + usize::from(number)).remove(0);
    let is_combined = flags & (Flags::SYSTEMATIC | Flags::END) == 0;
    let symbol = carries.filter(|_| !is_combined).map(|(symbol, after)| {
        let place = 0xFFFE + u16::from(number % 2);
        Symbol { number: symbol, after, place, packet: noise.clone() }
    });
    let combination = carries.filter(|_| is_combined).map(|(first, count)| {
        let key = 0x0A0B + u16::from(number);
        Combination { first, count, key, sum: noise.clone() }
    });
    let mut bytes = vec![0; if carries.is_some() { STREAM_BYTES } else { KEEPALIVE_BYTES }];
    header.write(&mut bytes);
    if let Some(Combination { first, count, key, sum }) = &combination {
        let combination = stream::Combination { first: *first, count: *count, key: *key };
        write_combination(&combination, &mut bytes);
        bytes.extend_from_slice(&sum.0);
    }
    if let Some(Symbol { number, after, place, packet }) = &symbol {
        let length = packet.0.len() as u16;
        let symbol = StreamSymbol { number: *number, after: *after, place: *place, bytes: length };
        write_symbol(&symbol, &mut bytes);
        bytes.extend_from_slice(&packet.0);
    }
    let header = Header::from(header.common);
    Stream { header, window_log2, round_trips, symbol, combination, bytes: Hex(bytes) }
}

/// Link reports without gaps, with some, and with as many as one may have.
pub(crate) fn links() -> Vec<Link> {
    let most = (0..LINK_GAPS_MAX as u32).map(|place| Gap { first: 3 * place, count: 2 });
    let some = [
        Gap { first: u32::MAX - 9, count: 1 },
        Gap { first: u32::MAX - 1, count: 5 },
        Gap { first: 90, count: 10 },
    ];
    let far = [Gap { first: 5, count: u16::MAX }];
    vec![
        link(0, u32::MAX - 2, 1, &[]),
        link(1, u32::MAX - 20, 100, &some),
        link(2, u32::MAX, 1000, &most.collect::<Vec<_>>()),
        link(3, 0, 65_540, &far),
    ]
}

fn link(number: u8, from: u32, horizon: u32, gaps: &[Gap]) -> Link {
    let common = common(PacketType::Link, 0, number);
    let common = recoded_wire::header::Header { hop_index: 0, ..common };
    let (arrived, held, backlog) = (0xFFFF_FF00, 0x0304, u16::MAX - u16::from(number));
    let (received_bytes, received_packets) = (0x8000_0001, 0x0A0B_0C0D);
    let latest = horizon.wrapping_sub(1);
    let beyond = 0x1122 * u16::from(number);
    let missing: Vec<u16> = (0..u16::from(number) * 3).take(7).map(|at| at * 9001).collect();
    let report = LinkReport {
        header: common,
        from,
        horizon,
        latest,
        arrived,
        held,
        backlog,
        bytes: received_bytes,
        packets: received_packets,
        beyond,
        missing: Missing::of(missing.iter().copied()),
    };
    let mut bytes = vec![0; LINK_BYTES + 4 * LINK_GAPS_MAX];
    let written = gaps.iter().map(|gap| link::LinkGap { first: gap.first, count: gap.count });
    let length = write_link(&report, written, &mut bytes);
    bytes.truncate(length);
    Link {
        header: Header::from(common),
        from,
        horizon,
        latest,
        arrived,
        held,
        backlog,
        received_bytes,
        received_packets,
        beyond,
        missing,
        gaps: gaps.to_vec(),
        bytes: Hex(bytes),
    }
}
