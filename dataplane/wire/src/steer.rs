//! What the XDP program decides about a packet, and the names of the maps it shares with user
//! space.
//!
//! ```text
//!  frame -> find_udp -> own port and address? -> length, version, type -> neighbour? -> flow?
//!              |                 |                          |                  |         |
//!            pass              pass                       drop               drop      drop
//!
//!  -> socket? -> redirect      (handshakes between neighbours and announcements belong to no flow)
//!        |
//!      drop
//! ```
//!
//! The rule: a packet that is not UDP to the port of Recoded **passes** to Linux unchanged (ARP and
//! neighbour discovery included: without them no next hop resolves), and so do packets to another
//! host. UDP to this node's address and port belongs to the dataplane. If it cannot be a coded
//! packet of a neighbour and a configured flow it is **dropped** here, so that a flood at the port
//! costs a few dozen instructions a packet and never reaches a socket, a worker, connection
//! tracking or the ICMP port-unreachable generator.
//!
//! Every packet gets exactly one [`Verdict`], and each verdict is one counter in [`MAP_VERDICTS`].

use crate::header::{FLAGS_OFFSET, FLOW_OFFSET, Flags, HEADER_BYTES, PacketType, VERSION};
use crate::packet::{AddressWords, NotUdp, PacketBytes, find_udp};

/// XSKMAP, receive queue index -> AF_XDP socket.
pub const MAP_XSKS: &str = "XSKS";
/// Entries of [`MAP_XSKS`]: the highest receive queue index that can be served, plus one.
pub const XSKS_MAX: u32 = 64;
/// Hash map, flow id (`u32`, host order) -> `u32` (reserved, write 1): the configured flows.
pub const MAP_FLOWS: &str = "FLOWS";
/// Entries of [`MAP_FLOWS`]: flows per interface.
pub const FLOWS_MAX: u32 = 1024;
/// Hash map, [`AddressWords`] -> `u32`: the neighbours on the interface, with their
/// packets of another version ([`crate::other_version::OtherVersion`]; write 0).
pub const MAP_NEIGHBOURS: &str = "NEIGHBOURS";
/// Entries of [`MAP_NEIGHBOURS`].
pub const NEIGHBOURS_MAX: u32 = 1024;
/// Per-CPU array, [`Verdict`] as `u32` -> packets (`u64`).
pub const MAP_VERDICTS: &str = "VERDICTS";
/// Per-CPU array of one entry: the source of the last [`Verdict::DropNotNeighbour`], all zero
/// before the first.
pub const MAP_NOT_NEIGHBOURS: &str = "NOT_NEIGHBOURS";
/// Name of the program in its object.
pub const PROGRAM: &str = "recoded";
/// Constant of the program that the loader overrides: UDP port of Recoded, `u16`, host order.
pub const GLOBAL_PORT: &str = "PORT";
/// Constant of the program that the loader overrides: this node's address, [`AddressWords`]. Until
/// then packets of every address to every address are taken, without [`MAP_NEIGHBOURS`].
pub const GLOBAL_LOCAL: &str = "LOCAL";

/// What happens to a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// To the AF_XDP socket of its receive queue.
    Redirect,
    /// To Linux, unchanged.
    Pass,
    /// Nowhere.
    Drop,
}

/// The verdicts from one list: `/// meaning` above `Variant = "name", Action` or, where the packet
/// is dropped, `Variant = "name", Drop => "cure"`.
macro_rules! verdicts {
    (
        $(#[$attribute:meta])*
        $name:ident {
            $(
                $(#[doc = $meaning:literal])+
                $verdict:ident = $text:literal, $action:ident $(=> $cure:literal)?;
            )*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Copy, Clone, PartialEq, Eq, Debug)]
        #[repr(u32)]
        pub enum $name {
            $($(#[doc = $meaning])+ $verdict,)*
        }

        impl $name {
            /// Every verdict, in the order of the counters.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$verdict),*];

            /// Number of verdicts, and entries of [`MAP_VERDICTS`].
            pub const COUNT: u32 = Self::ALL.len() as u32;

            /// Name of the counter.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$verdict => $text,)*
                }
            }

            /// What was counted, in sentences.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$verdict => concat!($($meaning),+).trim_ascii(),)*
                }
            }

            /// What to do when it grows; empty if that is no fault.
            pub const fn cure(self) -> &'static str {
                match self {
                    $(Self::$verdict => concat!($($cure)?),)*
                }
            }

            /// What the program does with the packet.
            #[inline(always)]
            pub const fn action(self) -> Action {
                match self {
                    $(Self::$verdict => Action::$action,)*
                }
            }
        }
    };
}

verdicts! {
    /// The end of a packet in the XDP program; the value is the index of its counter.
    Verdict {
        /// A coded packet of a configured flow, a handshake between neighbours or an announcement,
        /// redirected to the socket of its queue. The socket may still refuse it when its ring is
        /// full: the socket's own statistics count that.
        Redirected = "redirected", Redirect;
        /// ARP, LLDP and everything else that is neither IPv4 nor IPv6.
        PassNotIp = "pass_not_ip", Pass;
        /// With the number of a VLAN, or more than one tag: of another network than the interface.
        PassTags = "pass_tags", Pass;
        /// IP but not UDP: TCP, ICMP, ICMPv6 with neighbour discovery.
        PassNotUdp = "pass_not_udp", Pass;
        /// UDP to another port.
        PassOtherPort = "pass_other_port", Pass;
        /// UDP to Recoded's port of another host, which this host forwards.
        PassOtherAddress = "pass_other_address", Pass;
        /// IPv6 with an extension header.
        PassExtension = "pass_extension", Pass;
        /// A fragment.
        PassFragment = "pass_fragment", Pass;
        /// Too short for its headers, so that no port can be read.
        PassTruncated = "pass_truncated", Pass;
        /// An IP header that contradicts itself.
        PassMalformed = "pass_malformed", Pass;
        /// To Recoded's port, but a wrong length field, or fewer bytes than a coded header has.
        DropTruncated = "drop_truncated", Drop => "Nothing, if few: recodectl doctor of a \
            neighbour sends such packets. Else look for other senders to this port.";
        /// To Recoded's port, but of another version of the protocol.
        DropVersion = "drop_version", Drop => "recodectl doctor names neighbours of another \
            version: upgrade the older box. Else look for other senders to this port.";
        /// To Recoded's port, but of a packet type that does not exist.
        DropType = "drop_type", Drop => "Run the same version on all nodes; else look for other \
            senders to this port.";
        /// A coded header, but from an address that is no neighbour on this interface.
        DropNotNeighbour = "drop_not_neighbour", Drop => "recodectl show links names \
            the last addresses. If one should be a neighbour, give it in next_hops, upstream or \
            [[neighbour]]; else look for the sender.";
        /// A coded header from a neighbour, but of a flow that is not configured.
        DropUnknownFlow = "drop_unknown_flow", Drop => "Configure the flow, or correct next_hops of \
            the node before this one.";
        // Dropped and not passed: Linux has no listener for it either and would answer with ICMP
        // errors, while the code repairs losses.
        /// A coded packet of a configured flow on a queue without a socket: the daemon is starting,
        /// stopping or gone, or the interface has just got more queues, or has more than 64.
        DropNoSocket = "drop_no_socket", Drop => "Nothing, while the daemon starts or stops, and \
            within a second after the interface got more queues. Else look at the log.";
    }
}

/// What the decision depends on besides the packet.
pub trait Tables {
    /// The UDP destination port of this node.
    fn port(&self) -> u16;
    /// The address of this node; [`ANY_ADDRESS`] takes packets to and from every address.
    fn local(&self) -> AddressWords;
    /// Whether an address is that of a neighbour. Asked at most once.
    fn is_neighbour(&self, source: AddressWords) -> bool;
    /// Whether a flow id is configured. Asked at most once.
    fn is_known(&self, flow: u32) -> bool;
    /// Counts a packet of another version for its source, if that is a neighbour. `first` is its
    /// first byte.
    fn count_other_version(&self, source: AddressWords, first: u8);
}

/// No address in particular.
pub const ANY_ADDRESS: AddressWords = [0; 4];

/// First byte of an announcement, which belongs to no flow.
const ANNOUNCEMENT: u8 = VERSION << 4 | PacketType::Announcement as u8;

/// First byte of a handshake message. One between neighbours, without EDGE, belongs to no flow.
const HANDSHAKE: u8 = VERSION << 4 | PacketType::Handshake as u8;

/// Decides about a packet up to the question whether a socket waits for it: [`Verdict::Redirected`]
/// means "for Recoded", and becomes [`Verdict::DropNoSocket`] when the redirect finds none.
#[inline(always)]
pub fn decide<P: PacketBytes + ?Sized>(packet: &P, tables: &impl Tables) -> Verdict {
    let udp = match find_udp(packet) {
        Ok(udp) => udp,
        Err(reason) => return pass(reason),
    };
    if udp.destination_port != tables.port() {
        return Verdict::PassOtherPort;
    }
    let local = tables.local();
    let is_pinned = local != ANY_ADDRESS;
    if is_pinned && udp.destination(packet) != Some(local) {
        return Verdict::PassOtherAddress;
    }
    let payload = match udp.payload(packet) {
        Some((offset, len)) if len >= HEADER_BYTES => offset,
        _ => return Verdict::DropTruncated,
    };
    let is_neighbour =
        || !is_pinned || udp.source(packet).is_some_and(|source| tables.is_neighbour(source));
    let verdict = decide_payload(packet, payload, is_neighbour, |flow| tables.is_known(flow));
    if matches!(verdict, Verdict::DropVersion)
        && is_pinned
        && let Some(source) = udp.source(packet)
        && let Some(first) = packet.u8_at(payload)
    {
        tables.count_other_version(source, first);
    }
    verdict
}

/// The same of a UDP payload of at least [`HEADER_BYTES`] to this node's address and port, for
/// sockets without an XDP program in front of them. Calls each closure at most once.
#[inline(always)]
pub fn decide_payload<P: PacketBytes + ?Sized>(
    packet: &P,
    payload: usize,
    is_neighbour: impl FnOnce() -> bool,
    is_known: impl FnOnce(u32) -> bool,
) -> Verdict {
    if let Some(drop) = check_coded(packet, payload) {
        return drop;
    }
    if !is_neighbour() {
        return Verdict::DropNotNeighbour;
    }
    if is_of_no_flow(packet, payload) {
        return Verdict::Redirected;
    }
    match packet.u32_at(payload + FLOW_OFFSET) {
        Some(flow) if is_known(flow) => Verdict::Redirected,
        Some(_) => Verdict::DropUnknownFlow,
        None => Verdict::DropTruncated,
    }
}

/// Whether two neighbours exchange it whatever flows they share.
#[inline(always)]
fn is_of_no_flow<P: PacketBytes + ?Sized>(packet: &P, payload: usize) -> bool {
    match packet.u8_at(payload) {
        Some(ANNOUNCEMENT) => true,
        Some(HANDSHAKE) => match packet.u8_at(payload + FLAGS_OFFSET) {
            Some(flags) => flags & Flags::EDGE == 0,
            None => false,
        },
        _ => false,
    }
}

/// Why the bytes at `payload` are no coded header. The verifier requires each value read,
/// checked and used in turn.
#[inline(always)]
fn check_coded<P: PacketBytes + ?Sized>(packet: &P, payload: usize) -> Option<Verdict> {
    let Some(first) = packet.u8_at(payload) else { return Some(Verdict::DropTruncated) };
    if first >> 4 != VERSION {
        return Some(Verdict::DropVersion);
    }
    if PacketType::from_nibble(first & 0x0f).is_none() {
        return Some(Verdict::DropType);
    }
    None
}

#[inline(always)]
fn pass(reason: NotUdp) -> Verdict {
    match reason {
        NotUdp::NotIp => Verdict::PassNotIp,
        NotUdp::Tagged => Verdict::PassTags,
        NotUdp::OtherProtocol => Verdict::PassNotUdp,
        NotUdp::ExtensionHeader => Verdict::PassExtension,
        NotUdp::Fragment => Verdict::PassFragment,
        NotUdp::Truncated => Verdict::PassTruncated,
        NotUdp::Malformed => Verdict::PassMalformed,
        // Not from find_udp, which leaves the length to the caller.
        NotUdp::UdpLength => Verdict::DropTruncated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::other_version::OtherVersion;
    use std::cell::Cell;

    /// A port, a local address, a neighbour, and one flow.
    struct One {
        port: u16,
        local: AddressWords,
        neighbour: AddressWords,
        flow: u32,
        others: Cell<OtherVersion>,
    }

    impl One {
        const fn new(port: u16, local: AddressWords, neighbour: AddressWords, flow: u32) -> One {
            One { port, local, neighbour, flow, others: Cell::new(OtherVersion::from_bits(0)) }
        }
    }

    impl Tables for One {
        fn port(&self) -> u16 {
            self.port
        }

        fn local(&self) -> AddressWords {
            self.local
        }

        fn is_neighbour(&self, source: AddressWords) -> bool {
            source == self.neighbour
        }

        fn is_known(&self, flow: u32) -> bool {
            flow == self.flow
        }

        fn count_other_version(&self, source: AddressWords, first: u8) {
            if source == self.neighbour {
                self.others.set(self.others.get().counted(first));
            }
        }
    }

    fn open() -> One {
        One::new(9426, ANY_ADDRESS, ANY_ADDRESS, 7)
    }

    /// IPv4, UDP 40000 -> 9426, a coded header with the given first byte and flow id 7.
    fn coded(first: u8) -> [u8; 58] {
        let mut frame = [0; 58];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14..18].copy_from_slice(&[0x45, 0, 0, 44]);
        frame[23] = 17;
        frame[34..40].copy_from_slice(&[0x9c, 0x40, 0x24, 0xd2, 0, 24]);
        frame[42] = first;
        frame[46..50].copy_from_slice(&7u32.to_be_bytes());
        frame
    }

    #[test]
    fn verdict_values_index_all() {
        for (index, verdict) in Verdict::ALL.into_iter().enumerate() {
            assert_eq!(verdict as usize, index);
        }
    }

    #[test]
    fn verdict_names_start_with_their_action_and_drops_have_cures() {
        for verdict in Verdict::ALL {
            let prefix = match verdict.action() {
                Action::Redirect => "redirect",
                Action::Pass => "pass_",
                Action::Drop => "drop_",
            };
            assert!(verdict.name().starts_with(prefix), "{}", verdict.name());
            let is_fault = !verdict.cure().is_empty();
            assert_eq!(is_fault, verdict.action() == Action::Drop, "{}", verdict.name());
        }
    }

    //= docs/protocol §2.1(a), §2.5(a)
    #[test]
    fn decide_first_byte_version_and_type_checked() {
        for first in 0..=255u8 {
            let expected = match (first >> 4, first & 0x0f) {
                (3, 1 | 2 | 4..=8) => Verdict::Redirected,
                (3, _) => Verdict::DropType,
                _ => Verdict::DropVersion,
            };
            assert_eq!(decide(&coded(first)[..], &open()), expected, "{first:#04x}");
        }
    }

    #[test]
    fn decide_flow_id_in_host_order_is_asked_for() {
        assert_eq!(decide(&coded(0x31)[..], &open()), Verdict::Redirected);
        let other = One::new(9426, ANY_ADDRESS, ANY_ADDRESS, 7u32.swap_bytes());
        assert_eq!(decide(&coded(0x31)[..], &other), Verdict::DropUnknownFlow);
        assert_eq!(decide(&coded(0x38)[..], &other), Verdict::Redirected, "of no flow");
    }

    /// Under the id of a flow that one of two neighbours lacks, no handshake between them passed.
    #[test]
    fn decide_handshakes_of_neighbours_need_no_flow_and_those_of_edges_do() {
        let other = One::new(9426, ANY_ADDRESS, ANY_ADDRESS, 8);
        let mut frame = coded(0x37);
        assert_eq!(decide(&frame[..], &other), Verdict::Redirected);
        frame[43] = Flags::EDGE;
        assert_eq!(decide(&frame[..], &other), Verdict::DropUnknownFlow);
        assert_eq!(decide(&frame[..], &open()), Verdict::Redirected);
        // Bits of other flags are for the parser to refuse.
        for flags in 0..=u8::MAX {
            frame[43] = flags;
            let is_edge = flags & Flags::EDGE != 0;
            assert_eq!(decide(&frame[..], &other) == Verdict::DropUnknownFlow, is_edge);
        }
    }

    #[test]
    fn decide_packets_of_neighbours_to_us_are_taken_and_no_others() {
        let mut frame = coded(0x31);
        frame[26..34].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
        let v4 = |last| [0, 0, 0xffff, u32::from_be_bytes([192, 0, 2, last])];
        let decided = |local, neighbour| decide(&frame[..], &One::new(9426, local, neighbour, 7));
        assert_eq!(decided(v4(2), v4(1)), Verdict::Redirected);
        assert_eq!(decided(v4(2), v4(3)), Verdict::DropNotNeighbour);
        assert_eq!(decided(v4(3), v4(1)), Verdict::PassOtherAddress);
        let unmapped = [0, 0, 0, v4(2)[3]];
        assert_eq!(decided(unmapped, v4(1)), Verdict::PassOtherAddress);
        assert_eq!(decided(ANY_ADDRESS, v4(3)), Verdict::Redirected);
    }

    /// Whatever the type is, and of neighbours only.
    #[test]
    fn decide_packets_of_another_version_are_counted_for_neighbours() {
        let v4 = |last| [0, 0, 0xffff, u32::from_be_bytes([192, 0, 2, last])];
        let ours = One::new(9426, v4(2), v4(1), 7);
        let mut counted = 0;
        for first in 0..=u8::MAX {
            let mut frame = coded(first);
            for neighbour in [1, 3] {
                frame[26..34].copy_from_slice(&[192, 0, 2, neighbour, 192, 0, 2, 2]);
                decide(&frame[..], &ours);
            }
            if first >> 4 == VERSION {
                assert_eq!(ours.others.get().packets(), counted, "{first:#04x}");
                continue;
            }
            counted += 1;
            assert_eq!(ours.others.get().packets(), counted, "{first:#04x}");
            assert_eq!(ours.others.get().version(), Some(first >> 4));
        }
    }

    #[test]
    fn decide_other_port_passes_whatever_it_carries() {
        assert_eq!(
            decide(&coded(0xff)[..], &One::new(9427, ANY_ADDRESS, ANY_ADDRESS, 0)),
            Verdict::PassOtherPort
        );
    }

    #[test]
    fn decide_every_truncation_passes_until_the_port_is_known() {
        let frame = coded(0x31);
        for len in 0..frame.len() {
            let expected = if len < 42 { Verdict::PassTruncated } else { Verdict::DropTruncated };
            assert_eq!(decide(&frame[..len], &open()), expected, "{len} bytes");
        }
    }

    #[test]
    fn decide_a_million_addresses_that_are_no_neighbours_end_there() {
        let address = |words: u32| [0, 0, 0xffff, words];
        let ours = One::new(9426, address(0xC000_0202), address(0xC000_0201), 7);
        let mut frame = coded(0x31);
        frame[30..34].copy_from_slice(&[192, 0, 2, 2]);
        let mut source = 1_u32;
        for _ in 0..1_000_000 {
            source = source.wrapping_mul(0x9E37_79B1).wrapping_add(1);
            frame[26..30].copy_from_slice(&source.to_be_bytes());
            frame[34..36].copy_from_slice(&(source as u16).to_be_bytes());
            let expected = match source {
                0xC000_0201 => Verdict::Redirected,
                _ => Verdict::DropNotNeighbour,
            };
            assert_eq!(decide(&frame[..], &ours), expected, "{source:#x}");
        }
    }
}
