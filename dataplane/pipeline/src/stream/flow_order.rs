//! Ordering of packets of one TCP flow. A packet names the previous one of its flow, so that no
//! flow waits for another. Acknowledgements without data have no order: if one waited for earlier
//! ones, the sender would conclude that the path became slow.

use crate::edge::inner::{FlowKey, is_acknowledgement};

/// Flows distinguished; flows that share an entry are ordered together.
const PLACES: usize = 1024;

/// The newest packet of each ordered flow.
#[derive(Debug)]
pub(crate) struct FlowOrder {
    newest: Box<[Option<u32>; PLACES]>,
}

impl FlowOrder {
    pub(crate) fn new() -> Self {
        Self { newest: Box::new([None; PLACES]) }
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes() -> usize {
        size_of::<[Option<u32>; PLACES]>()
    }

    /// Records the number of `packet`. Returns its distance from the packet that must be delivered
    /// first, less than `window`; 0 for none.
    pub(crate) fn note(&mut self, packet: &[u8], number: u32, window: usize) -> u16 {
        let Some(flow) = ordered_flow(packet) else { return 0 };
        let before = self.newest[flow as usize % PLACES].replace(number);
        let distance = before.map_or(0, |before| number.wrapping_sub(before));
        u16::try_from(distance).ok().filter(|distance| usize::from(*distance) < window).unwrap_or(0)
    }
}

/// A hash shared by data packets of one TCP flow; `None` for other packets, including fragments.
fn ordered_flow(packet: &[u8]) -> Option<u32> {
    let key = Some(FlowKey::of(packet)).filter(FlowKey::is_tcp)?;
    if is_acknowledgement(packet) {
        return None;
    }
    // FNV-1a: a collision only costs some waiting.
    let hash = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let hash = key.addresses.iter().chain(key.ports).fold(0x811C_9DC5, hash);
    Some(hash ^ hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 packet with a source port.
    fn packet(protocol: u8, port: u8) -> [u8; 40] {
        let mut packet = [0; 40];
        packet[0] = 0x45;
        (packet[9], packet[21]) = (protocol, port);
        packet
    }

    #[test]
    fn packets_name_the_one_before_them_of_their_tcp_flow() {
        let mut order = FlowOrder::new();
        let noted = [(6, 1, 10, 0), (6, 2, 11, 0), (17, 1, 12, 0), (6, 1, 13, 3), (6, 2, 14, 3)];
        for (protocol, port, number, expected) in noted {
            assert_eq!(order.note(&packet(protocol, port), number, 64), expected, "{number}");
        }
        assert_eq!(order.note(&packet(6, 1), 13 + 64, 64), 0, "before the window");
        assert_eq!(order.note(&packet(6, 1), 13 + 65, 64), 1);
    }

    #[test]
    fn fragments_have_no_order() {
        let mut order = FlowOrder::new();
        let mut fragment = packet(6, 1);
        fragment[6] = 0x20;
        for number in 0..3 {
            assert_eq!(order.note(&fragment, number, 64), 0);
        }
    }
}
