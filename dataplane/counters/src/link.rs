//! Counters of a link: what workers and Linux counted on its sockets.

use crate::Table;

/// Counters of a link.
pub const TABLE: Table = Table {
    owner: "a link",
    parts: &[LinkCounters::TABLE, Unparsed::TABLE, SocketStatistics::TABLE, IcmpErrors::TABLE],
};

reasons! {
    /// Why a packet from a socket has no readable UDP payload. The XDP program lets none of these
    /// through.
    Unparsed: Packets {
        /// Packets received that are not IP.
        NotIp = "rx_unparsed_not_ip" => "Look for another XDP program on the interface.",
        /// Packets received with the number of a VLAN, or more than one tag.
        TooManyTags = "rx_unparsed_too_many_tags" => "Look for another XDP program on the interface.",
        /// Packets received that are IP and not UDP.
        OtherProtocol = "rx_unparsed_other_protocol" => "Look for another XDP program on the \
            interface.",
        /// Packets received with an IPv6 extension header.
        ExtensionHeader = "rx_unparsed_extension_header" => "Look for another XDP program on the \
            interface.",
        /// Fragments received.
        Fragment = "rx_unparsed_fragment" => "Look for another XDP program on the interface.",
        /// Packets received that end before their UDP header does.
        Truncated = "rx_unparsed_truncated" => "Look for another XDP program on the interface.",
        /// Packets received with an IP header that contradicts itself.
        Malformed = "rx_unparsed_malformed" => "Look for another XDP program on the interface.",
        /// Packets received whose UDP length contradicts their size.
        UdpLength = "rx_unparsed_udp_length" => "Look for another XDP program on the interface.",
    }
}

counters! {
    /// Packets of one link, counted by the workers.
    #[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
    LinkCounters {
        /// Packets taken from the sockets.
        rx_packets: Packets,
        /// Their bytes, Ethernet header included.
        rx_bytes: Bytes,
        /// Of these, addressed to another IP address or port.
        rx_not_ours: Packets => "Compare address and port with next_hops and port of the neighbours.",
        /// Of these, messages of handshakes with neighbours.
        rx_handshakes: Packets,
        /// Of these, messages of handshakes that nothing came of: wrong keys, copies, forgeries, or
        /// more than are looked at.
        rx_handshakes_refused: Packets => "Nothing, if few. Else compare the keys of both nodes with \
            recodectl pubkey; if they are right, look for other senders to this port.",
        /// Of these, announcements of neighbours: version, clock, and which flows they share with
        /// this node.
        rx_announcements: Packets,
        /// Of these, dropped because there are no keys for them: no session yet, or the neighbour
        /// has no keys.
        rx_no_keys: Packets => "Nothing, while a node starts. Else give both nodes the public key of \
            the other one, and compare their clocks.",
        /// Of these, dropped because their tag is wrong: damaged or forged.
        rx_wrong_tag: Packets => "Look for other programs that send to this port, or for a device \
            that damages packets.",
        /// Of these, dropped because they came before, or far too late.
        rx_copies: Packets => "Nothing, if few. Else look for what duplicates or records packets.",
        /// Of these, from addresses that are no neighbour's, and with the tag of one that roams.
        rx_elsewhere: Packets,
        /// Times that Linux (UDP_GRO) was found to merge packets into bursts that do not split into
        /// whole ones; each is received by itself from then on.
        rx_merging_ended: Events => "See with ethtool -k NAME which offload merges wrongly (rx-gro-hw, \
            rx-udp-gro-forwarding), and update the driver. Without it packets cost CPU time only.",
        /// Packets given to the sockets.
        tx_packets: Packets,
        /// Their bytes, Ethernet header included.
        tx_bytes: Bytes,
        /// Packets dropped because the transmit ring was full.
        tx_full: Packets => "Give the link a rate_mbit that it can carry.",
        /// Packets dropped because their next hop was not resolved.
        tx_no_neighbour: Packets => "Check that the next hop is up, on this link, and answers ARP or \
            neighbour discovery.",
        /// Packets dropped because they exceed the interface's MTU.
        tx_oversize: Packets => "Raise the MTU, or lower symbol_bytes at the source of the flow.",
        /// Packets dropped because there is no session with the next hop yet.
        tx_no_keys: Packets => "Nothing, while a node starts. Else give both nodes the public key of \
            the other one, and compare their clocks.",
        /// Packets dropped because the interface was gone.
        tx_link_gone: Packets => "Bring the interface back; the daemon continues automatically.",
        /// Packets dropped because the backlog of the link was longer than its pace allows:
        /// repairs, or packets of a relay that arrived faster than the rate of the link.
        tx_over_rate: Packets => "Lower the incoming rate, or raise rate_mbit.",
        /// Times that packets of segmented bursts (UDP_SEGMENT) were found to be lost where single
        /// ones arrive; each is sent by itself from then on.
        tx_bursts_ended: Events => "See whether ethtool -K NAME tx-udp-segmentation off helps as well: then \
            the NIC segments wrongly, update its driver. Single packets cost CPU time only.",
    }
    by {
        /// Of the packets taken from the sockets, those without a readable UDP payload, by
        /// [`Unparsed`].
        rx_unparsed: Unparsed,
    }
}

counters! {
    /// What Linux counted on a socket since it was opened.
    #[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
    SocketStatistics {
        /// Packets dropped by Linux for other reasons than the two below: longer than a frame,
        /// mostly.
        rx_dropped: Packets => "Lower the MTU of the neighbours on the link to that of this end.",
        /// Packets dropped because the receive ring was full: the worker was too slow. Of UDP
        /// sockets, those with a wrong checksum as well.
        rx_ring_full: Packets => "Add workers, give them cores of their own, or pace the source. \
            If nstat -a UdpInCsumErrors rises as well, packets arrive damaged: try ethtool -K NAME tx off \
            at the neighbour and rx off here.",
        /// Times that a packet, or the driver for packets to come, found no frame: the worker is
        /// too slow to empty what it has, or holds too many frames.
        rx_fill_ring_empty: Packets => "Look at recodectl show workers: if one is busy all the time, \
            add workers; if few frames are free, raise frames.",
        /// Descriptors in the fill ring that Linux refused.
        rx_invalid_descriptors: Events => "Report it: a fault of Recoded.",
        /// Descriptors in the transmit ring that Linux refused.
        tx_invalid_descriptors: Events => "Report it: a fault of Recoded.",
        /// Times Linux looked for packets to send and found none.
        tx_ring_empty: Events,
    }
}

counters! {
    /// ICMP errors that quote a packet which left on the link. Anyone can forge them.
    #[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
    IcmpErrors {
        /// ICMP errors received: no program listens on the port of Recoded at the neighbour.
        rx_icmp_no_port: Events => "Start recoded there, and compare port.",
        /// ICMP errors received: a neighbour or its network is unreachable, or a firewall on the
        /// path blocks packets.
        rx_icmp_unreachable: Events => "Check routes and firewalls on the path to the neighbours of \
            the link; the log names them.",
        /// ICMP errors received: packets are too large for a link of the path.
        rx_icmp_too_large: Events => "Nothing for streams, which follow the path. Else raise the MTU \
            there, or lower symbol_bytes at the source of the flow.",
    }
}
