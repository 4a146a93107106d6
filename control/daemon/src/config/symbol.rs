//! How large a symbol may be: what the MTU of the next hops leaves, and what a frame holds.

use super::document::Document;
use recoded_wire::header::{HEADER_BYTES, INDEX_BYTES, vector_bytes};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// MTU taken for an interface whose own cannot be read (a check on another machine, say).
pub const MTU_DEFAULT: usize = 1500;

/// Largest IP packet of ours that a frame holds: 2048-byte chunks, of which Linux takes 256 for
/// XDP, and in which Ethernet and two VLAN tags need 22. Larger MTUs are used up to this.
const PACKET_BYTES_MAX: usize = 2048 - 256 - 22;

/// Bytes left free for an authentication tag, so that turning it on will not change the size of
/// symbols, and with it the MTU of tunnels.
const TAG_BYTES: usize = 16;

/// UDP header.
const UDP_BYTES: usize = 8;

/// Least useful symbol: below this the headers outweigh it.
pub const SYMBOL_BYTES_MIN: usize = 16;

/// Largest symbol that any frame holds, over IPv6 with the shortest vector.
pub const SYMBOL_BYTES_MAX: usize = PACKET_BYTES_MAX - 40 - UDP_BYTES - HEADER_BYTES - INDEX_BYTES;

/// The MTUs of the configured interfaces, read once at the start.
#[derive(Clone, Default, Debug)]
pub struct Mtus(BTreeMap<String, usize>);

impl Mtus {
    /// Asks `mtu_of` about every interface that the document names.
    pub fn read(document: &Document, mtu_of: &dyn Fn(&str) -> Option<u32>) -> Mtus {
        let named = document.links.iter().filter_map(|link| link.get("interface")?.value.as_str());
        let known =
            named.filter_map(|name| Some((name.to_owned(), usize::try_from(mtu_of(name)?).ok()?)));
        Mtus(known.collect())
    }

    /// MTU of `interface`, or the default.
    pub fn of(&self, interface: &str) -> usize {
        self.0.get(interface).copied().unwrap_or(MTU_DEFAULT)
    }
}

/// Largest symbol that fits a packet to `address` over a link with this MTU. 0 when none does.
pub fn symbol_bytes_max(mtu: usize, address: IpAddr, size: usize, field_code: u8) -> usize {
    let ip = if address.is_ipv4() { 20 } else { 40 };
    let vector = vector_bytes(size, field_code).max(INDEX_BYTES);
    mtu.min(PACKET_BYTES_MAX).saturating_sub(ip + UDP_BYTES + HEADER_BYTES + vector)
}

/// Size of symbols when none is configured: the largest that fits, less room for a tag, in whole
/// words.
pub fn symbol_bytes_default(mtu: usize, address: IpAddr, size: usize, field_code: u8) -> usize {
    symbol_bytes_max(mtu, address, size, field_code).saturating_sub(TAG_BYTES) & !3
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn default_at_ethernet_mtu_is_what_the_wire_format_promises() {
        let v4 = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
        assert_eq!(symbol_bytes_default(1500, v4, 16, 2), 1428);
        assert_eq!(symbol_bytes_default(1500, v6, 16, 2), 1408);
        assert_eq!(symbol_bytes_default(1500, v4, 256, 3), 1180);
        assert_eq!(symbol_bytes_default(1500, v4, 1, 0), 1432, "an index still takes four bytes");
        assert_eq!(symbol_bytes_default(9000, v4, 16, 2), 1696, "a frame holds no more");
        assert_eq!(symbol_bytes_default(68, v4, 256, 3), 0);
    }
}
