//! Neighbours of a link that send packets of another version of the protocol.

use recoded_wire::other_version::OtherVersion;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Neighbours listed by a socket. A box of another version stays so for hours, and few do at once.
pub(crate) const LISTED_MAX: usize = 8;

/// One of them.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Sender {
    address: IpAddr,
    /// Bits of an [`OtherVersion`].
    packets: u32,
}

/// Their packets, by address.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OtherVersions(Vec<Sender>);

impl OtherVersions {
    /// Allocates room for [`LISTED_MAX`] neighbours.
    pub(crate) fn new() -> OtherVersions {
        OtherVersions(Vec::with_capacity(LISTED_MAX))
    }

    /// Counts a packet of a neighbour. Beyond [`LISTED_MAX`] neighbours, further ones are left out.
    pub(crate) fn count(&mut self, address: IpAddr, packet: &[u8]) {
        let Some(first) = packet.first() else { return };
        self.add_one(address, OtherVersion::default().counted(*first));
    }

    /// Adds the packets of one neighbour.
    pub(crate) fn add_one(&mut self, address: IpAddr, packets: OtherVersion) {
        if let Some(it) = self.0.iter_mut().find(|it| it.address == address) {
            it.packets = OtherVersion::from_bits(it.packets).with(packets).bits();
        } else if self.0.len() < LISTED_MAX && packets.packets() > 0 {
            self.0.push(Sender { address, packets: packets.bits() });
        }
    }

    /// Adds those of another worker, or of a program.
    pub(crate) fn add(&mut self, other: &OtherVersions) {
        for it in &other.0 {
            self.add_one(it.address, OtherVersion::from_bits(it.packets));
        }
    }

    /// The packets of the neighbour at an address.
    pub(crate) fn of(&self, address: IpAddr) -> OtherVersion {
        let found = self.0.iter().find(|it| it.address == address);
        found.map_or(OtherVersion::default(), |it| OtherVersion::from_bits(it.packets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(last: usize) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last as u8).into()
    }

    #[test]
    fn neighbours_are_counted_and_bounded() {
        let mut all = OtherVersions::new();
        for round in 0..3 {
            (0..2 * LISTED_MAX).for_each(|it| all.count(address(it), &[0x10 * round]));
        }
        all.count(address(0), &[]);
        assert_eq!(all.of(address(0)).packets(), 3);
        assert_eq!(all.of(address(0)).version(), Some(2));
        assert_eq!(all.of(address(LISTED_MAX)).version(), None);
        let mut sum = OtherVersions::new();
        sum.add(&all);
        sum.add(&all);
        assert_eq!(sum.of(address(1)).packets(), 6);
        assert_eq!(all.0.capacity(), LISTED_MAX, "no allocation on the packet path");
    }
}
