//! How large a symbol may be: what the MTU of the next hops leaves, and what a frame holds.

use super::document::Document;
use super::{Link, Neighbour};
use recoded_pipeline::params::{FlowParams, PeerId};
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

    /// MTU of `interface`, if it is known.
    pub fn get(&self, interface: &str) -> Option<u32> {
        self.0.get(interface).and_then(|mtu| u32::try_from(*mtu).ok())
    }

    /// MTU of `interface`, or the default.
    pub fn of(&self, interface: &str) -> usize {
        self.0.get(interface).copied().unwrap_or(MTU_DEFAULT)
    }
}

/// Where flows go.
#[derive(Copy, Clone)]
pub struct Paths<'a> {
    /// The links.
    pub links: &'a [Link],
    /// The neighbours that next hops refer to.
    pub hops: &'a [Neighbour],
    /// MTUs of the interfaces.
    pub mtus: &'a Mtus,
}

/// What the next hops of a flow leave for a symbol.
pub struct SymbolRoom {
    /// Largest symbol that all of them carry.
    pub most: usize,
    /// Size of symbols when none is configured.
    pub default: usize,
    /// The next hop that carries least: its address, our interface and the interface's MTU.
    pub tightest: (IpAddr, String, usize),
}

impl Paths<'_> {
    /// What is left for a symbol with the code and sizes of `params`.
    pub fn symbol_room(&self, params: &FlowParams) -> SymbolRoom {
        let header_bytes = params.code.header_bytes(params.generation_size, params.field);
        self.room_behind(header_bytes, &params.next_hops)
    }

    /// What is left for a symbol behind so many bytes of headers.
    pub fn room_behind(&self, header_bytes: usize, next_hops: &[PeerId]) -> SymbolRoom {
        let tightest = (IpAddr::from([0, 0, 0, 0]), String::new(), 0);
        let mut room = SymbolRoom { most: SYMBOL_BYTES_MAX, default: SYMBOL_BYTES_MAX, tightest };
        for hop in next_hops {
            let Neighbour { link, address } = self.hops[usize::from(hop.0)];
            let interface = &self.links[link].interface;
            let mtu = self.mtus.of(interface);
            let most = symbol_bytes_max(mtu, address, header_bytes).unwrap_or(0);
            if most < room.most {
                room.most = most;
                room.tightest = (address, interface.clone(), mtu);
            }
            room.default = room.default.min(symbol_bytes_default(mtu, address, header_bytes));
        }
        room
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
