//! DSCP and ECN bits of IP packets: their copies on outer packets, and congestion marks propagated
//! back into inner ones (RFC 2983, RFC 6040).

use crate::base::layout::MARKER;

/// ECN bits of a traffic class.
const ECN: u8 = 0x03;

/// ECN-capable, not marked: ECT(0).
const ECT: u8 = 0x02;

/// Congestion experienced.
const CE: u8 = 0x03;

/// The traffic class of an IP packet: TOS in IPv4, traffic class in IPv6. 0 if it is neither.
pub fn of(packet: &[u8]) -> u8 {
    match *packet {
        [first, second, ..] if first >> 4 == 4 => second,
        [first, second, ..] if first >> 4 == 6 => first << 4 | second >> 4,
        _ => 0,
    }
}

/// The class of a symbol's content: an IP packet, or a sealed one, which carries its class
/// unencrypted.
pub(crate) fn of_carried(carried: &[u8]) -> u8 {
    match *carried {
        [MARKER, class, ..] => class,
        _ => of(carried),
    }
}

/// The traffic class of an outer packet around one of class `inner`: the same DSCP, and ECN-capable
/// if `inner` is. A mark on `inner` stays inside.
pub(crate) fn outer(inner: u8) -> u8 {
    inner & !ECN | if inner & ECN == 0 { 0 } else { ECT }
}

/// Whether a router marked a packet of this class.
pub(crate) fn is_marked(class: u8) -> bool {
    class & ECN == CE
}

/// Whether packets of this class may be marked.
pub fn is_capable(class: u8) -> bool {
    class & ECN != 0
}

/// The class with a mark.
pub(crate) fn marked(class: u8) -> u8 {
    class | CE
}

/// Marks an IP packet that is ECN-capable.
pub fn mark(packet: &mut [u8]) {
    let before = of(packet);
    let added = CE & !before;
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= 12 => {
            packet[1] |= CE;
            // RFC 1624: the header sum grows by the added value, and the checksum is its
            // complement.
            let checksum = u16::from_be_bytes([packet[10], packet[11]]);
            let (sum, carry) = (!checksum).overflowing_add(u16::from(added));
            let checksum = !(sum + u16::from(carry));
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        Some(6) if packet.len() >= 2 => packet[1] |= CE << 4,
        _ => {}
    }
}

/// Congestion marks received and not yet propagated. A mark concerns the packets that share the
/// path, not one of them: recoding leaves no packet that a mark could stay on (RFC 9599 section 4.4
/// conveys them in like number).
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pending: u16,
}

/// Marks kept while no packet can take them: more would report the same congestion event.
const PENDING_MAX: u16 = 64;

impl Marks {
    /// Notes a packet of this class.
    pub(crate) fn came(&mut self, class: u8) {
        if is_marked(class) {
            self.pending = (self.pending + 1).min(PENDING_MAX);
        }
    }

    /// Whether a packet of this class is to be marked; if so, takes a pending mark.
    pub(crate) fn take(&mut self, class: u8) -> bool {
        let marks = self.pending > 0 && is_capable(class);
        self.pending -= u16::from(marks);
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The checksum of an IPv4 header (RFC 791).
    fn checksum(header: &[u8]) -> u16 {
        let words = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum: u32 = words.sum();
        let folded = (sum & 0xFFFF) + (sum >> 16);
        !((folded & 0xFFFF) as u16 + (folded >> 16) as u16)
    }

    proptest! {
        #[test]
        fn marked_headers_have_a_right_checksum(noise: [u8; 20], ecn in 1u8..4) {
            let mut header = noise;
            header[0] = 0x45;
            header[1] = header[1] & !ECN | ecn;
            header[10..12].fill(0);
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            mark(&mut header);
            prop_assert!(is_marked(of(&header)));
            prop_assert_eq!(of(&header) & !ECN, noise[1] & !ECN);
            // A header with its checksum sums to all ones.
            let words = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
            let mut sum: u32 = words.sum();
            sum = (sum & 0xFFFF) + (sum >> 16);
            prop_assert_eq!((sum & 0xFFFF) + (sum >> 16), 0xFFFF);
        }

        #[test]
        fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = outer(of(&bytes));
            mark(&mut bytes);
        }
    }

    #[test]
    fn classes_of_both_ip_versions_are_read_and_marked() {
        let mut v6 = [0x6B, 0x8A, 1, 2];
        assert_eq!(of(&v6), 0xB8);
        assert_eq!(outer(of(&v6)), 0xB8, "EF, not ECN-capable");
        v6[1] |= 0x10;
        assert_eq!((of(&v6), outer(of(&v6))), (0xB9, 0xBA), "ECT(1) inside, ECT(0) outside");
        mark(&mut v6);
        assert_eq!((of(&v6), v6[1] & 0x0F), (0xBB, 0x0A), "the flow label stays");
        assert_eq!(of(&[0, 1, 2]), 0);
        assert_eq!((of_carried(&[0, 1, 2]), of_carried(&[0]), of_carried(&v6)), (1, 0, of(&v6)));
    }

    #[test]
    fn marks_wait_for_packets_that_can_take_them() {
        let mut marks = Marks::default();
        (0..3).for_each(|_| marks.came(marked(ECT)));
        marks.came(ECT);
        assert!(!marks.take(0));
        let taken = (0..5).filter(|_| marks.take(ECT)).count();
        assert_eq!(taken, 3);
    }
}
