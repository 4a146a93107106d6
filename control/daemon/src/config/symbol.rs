//! How large a symbol may be: what the MTU of the next hops leaves, and what a frame holds.

use super::document::Document;
use recoded_runtime::{IP_PACKET_BYTES_MAX, symbol_bytes_max};
use recoded_wire::coded::{INDEX_BYTES, coding_offset};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// MTU taken for an interface whose own cannot be read (a check on another machine, say).
pub const MTU_DEFAULT: usize = 1500;

/// Bytes left free for an authentication tag, so that turning it on will not change the size of
/// symbols, and with it the MTU of tunnels.
const TAG_BYTES: usize = 16;

/// Least useful symbol: below this the headers outweigh it.
pub const SYMBOL_BYTES_MIN: usize = 16;

/// Largest symbol that any frame holds: over IPv6 and UDP, with the shortest vector.
pub const SYMBOL_BYTES_MAX: usize =
    IP_PACKET_BYTES_MAX - 40 - 8 - coding_offset(false) - INDEX_BYTES;

/// The MTUs of the configured interfaces, as last seen.
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

    /// Takes over what a link's interface has now.
    pub fn follow(&mut self, interface: &str, mtu: usize) {
        if let Some(known) = self.0.get_mut(interface).filter(|_| mtu > 0) {
            *known = mtu;
        }
    }

    /// MTU of `interface`, or the default.
    pub fn of(&self, interface: &str) -> usize {
        self.0.get(interface).copied().unwrap_or(MTU_DEFAULT)
    }
}

/// Size of symbols when none is configured: the largest that fits, less room for a tag, in whole
/// words.
pub fn symbol_bytes_default(mtu: usize, address: IpAddr, header_bytes: usize) -> usize {
    let most = symbol_bytes_max(mtu, address, header_bytes);
    most.unwrap_or(0).saturating_sub(TAG_BYTES) & !3
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn default_at_ethernet_mtu_is_what_the_wire_format_promises() {
        let v4 = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
        assert_eq!(symbol_bytes_default(1500, v4, 28), 1428);
        assert_eq!(symbol_bytes_default(1500, v6, 28), 1408);
        assert_eq!(symbol_bytes_default(1500, v4, 276), 1180);
        assert_eq!(symbol_bytes_default(1500, v4, 24), 1432, "an index still takes four bytes");
        assert_eq!(symbol_bytes_default(9000, v4, 28), 1704, "a frame holds no more");
        assert_eq!(symbol_bytes_default(68, v4, 276), 0);
    }
}
