//! Reference verdict for a frame, implemented independently.
//!
//! Written from the rules in `recoded_wire::steer`, not from its code: it consumes a slice from the
//! front where the code under test computes offsets. A disagreement is a bug in one of the two.

use std::net::IpAddr;

use recoded_wire::steer::Verdict;

/// Configuration of a program.
#[derive(Copy, Clone, Debug)]
pub struct Rules {
    /// The daemon's UDP port.
    pub port: u16,
    /// The only flow.
    pub flow: u32,
    /// Local address and that of the only neighbour, if they matter.
    pub ends: Option<Ends>,
}

/// Two addresses.
#[derive(Copy, Clone, Debug)]
pub struct Ends {
    /// The local address.
    pub local: IpAddr,
    /// The neighbour's.
    pub neighbour: IpAddr,
}

/// The verdict for a frame when a socket is in place.
pub fn verdict(frame: &[u8], rules: &Rules) -> Verdict {
    ethernet(frame, rules).unwrap_or(Verdict::PassTruncated)
}

/// `None`: the frame ended before its port was known.
fn ethernet(mut rest: &[u8], rules: &Rules) -> Option<Verdict> {
    take(&mut rest, 12)?;
    let mut ether_type = take_u16(&mut rest)?;
    let is_tag = |ether_type: u16| [0x8100, 0x88a8].contains(&ether_type);
    if is_tag(ether_type) {
        // The VLAN number, below the priority.
        if take_u16(&mut rest)? % 0x1000 > 0 {
            return Some(Verdict::PassTags);
        }
        ether_type = take_u16(&mut rest)?;
    }
    if is_tag(ether_type) {
        return Some(Verdict::PassTags);
    }
    match ether_type {
        0x0800 => ipv4(rest, rules),
        0x86dd => ipv6(rest, rules),
        _ => Some(Verdict::PassNotIp),
    }
}

fn ipv4(packet: &[u8], rules: &Rules) -> Option<Verdict> {
    let header_words = packet.first()? & 15;
    if packet[0] >> 4 != 4 || header_words < 5 {
        return Some(Verdict::PassMalformed);
    }
    let mut fields = packet;
    take(&mut fields, 2)?;
    let total = usize::from(take_u16(&mut fields)?);
    take(&mut fields, 2)?;
    let fragment = take_u16(&mut fields)?;
    if fragment % 0x4000 != 0 {
        return Some(Verdict::PassFragment);
    }
    take(&mut fields, 1)?;
    if take(&mut fields, 1)? != [17] {
        return Some(Verdict::PassNotUdp);
    }
    let header = usize::from(header_words) * 4;
    let four =
        |from: usize| Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(from..from + 4)?).ok()?));
    let addresses = [four(12)?, four(16)?];
    udp(packet.get(header..)?, total.checked_sub(header)?, addresses, rules)
}

fn ipv6(packet: &[u8], rules: &Rules) -> Option<Verdict> {
    if packet.first()? >> 4 != 6 {
        return Some(Verdict::PassMalformed);
    }
    let next_header = *packet.get(6)?;
    match next_header {
        17 => {}
        44 => return Some(Verdict::PassFragment),
        0 | 43 | 50 | 51 | 60 | 135 | 139 | 140 => return Some(Verdict::PassExtension),
        _ => return Some(Verdict::PassNotUdp),
    }
    let total = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
    let sixteen =
        |from: usize| Some(IpAddr::from(<[u8; 16]>::try_from(packet.get(from..from + 16)?).ok()?));
    udp(packet.get(40..)?, total, [sixteen(8)?, sixteen(24)?], rules)
}

/// `datagram` is the frame's content, padding included; `claimed` is the length in the IP header.
fn udp(
    datagram: &[u8],
    claimed: usize,
    [source, destination]: [IpAddr; 2],
    rules: &Rules,
) -> Option<Verdict> {
    if claimed < 8 {
        return None;
    }
    let mut rest = datagram;
    let header = take(&mut rest, 8)?;
    if u16::from_be_bytes([header[2], header[3]]) != rules.port {
        return Some(Verdict::PassOtherPort);
    }
    if rules.ends.is_some_and(|ends| ends.local != destination) {
        return Some(Verdict::PassOtherAddress);
    }
    let udp_bytes = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if udp_bytes > claimed || claimed > datagram.len() || udp_bytes < 8 + 16 {
        return Some(Verdict::DropTruncated);
    }
    Some(match (rest[0] >> 4, rest[0] & 15) {
        (3, 1 | 2 | 4..=8) if rules.ends.is_some_and(|ends| ends.neighbour != source) => {
            Verdict::DropNotNeighbour
        }
        // Announcements are of no flow, nor are handshakes without EDGE.
        (3, 8) => Verdict::Redirected,
        (3, 7) if rest[1] < 0x80 => Verdict::Redirected,
        (3, 1 | 2 | 4..=7) if rest[4..8] == rules.flow.to_be_bytes() => Verdict::Redirected,
        (3, 1 | 2 | 4..=7) => Verdict::DropUnknownFlow,
        (3, _) => Verdict::DropType,
        _ => Verdict::DropVersion,
    })
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(bytes)?;
    *rest = tail;
    Some(head)
}

fn take_u16(rest: &mut &[u8]) -> Option<u16> {
    let bytes = take(rest, 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}
