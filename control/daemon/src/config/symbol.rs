//! Size limits of a symbol: room within the MTU of the next hops, and within a frame.

use super::document::{Document, Section};
use super::{Link, Neighbour};
use recoded_pipeline::params::{FlowParams, PeerId};
use recoded_runtime::{FrameSize, frame_size, ip_packet_bytes_max, symbol_bytes_max};
use recoded_wire::coded::{INDEX_BYTES, coding_offset};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// MTU assumed for an interface whose own cannot be read (for example, in a check on another
/// machine).
pub const MTU_DEFAULT: usize = 1500;

/// Drivers whose zero copy gives a card buffers of whole KiB: of a frame of 2048 bytes, 1792 are
/// for packets, so these have 1024, and the card splits longer packets (`ixgbe` on the 82599).
const DRIVERS_OF_WHOLE_KIB: [&str; 2] = ["igb", "ixgbe"];

/// Bytes reserved for an authentication tag, so that enabling it changes neither the size of
/// symbols nor the MTU of tunnels.
const TAG_BYTES: usize = 16;

/// Least useful symbol: below this the headers outweigh it.
pub const SYMBOL_BYTES_MIN: usize = 16;

/// Largest symbol that any frame holds.
pub const SYMBOL_BYTES_MAX: usize = symbol_bytes_in(FrameSize::LARGEST);

/// Largest symbol that frames of this size hold: over IPv6 and UDP, with the shortest vector.
pub const fn symbol_bytes_in(frame: FrameSize) -> usize {
    ip_packet_bytes_max(frame) - 40 - 8 - coding_offset(false) - INDEX_BYTES
}

/// The MTUs of the configured interfaces, as last read.
#[derive(Clone, Default, Debug)]
pub struct Mtus {
    known: BTreeMap<String, usize>,
    frame_size: FrameSize,
}

impl Mtus {
    /// Reads the MTU of every interface that the document names.
    pub fn read(document: &Document, mtu_of: &dyn Fn(&str) -> Option<u32>) -> Mtus {
        let named = document.links.iter().filter_map(|link| link.get("interface")?.value.as_str());
        let known =
            named.filter_map(|name| Some((name.to_owned(), usize::try_from(mtu_of(name)?).ok()?)));
        let mut mtus = Mtus { known: known.collect(), frame_size: FrameSize::SMALL };
        mtus.frame_size = mtus.frame_size(document);
        mtus
    }

    /// Frame size for the largest packets of any flow of the document. Links with a larger MTU than
    /// another link of the same flow do not count.
    fn frame_size(&self, document: &Document) -> FrameSize {
        let least =
            |flow: &Section| hop_links(flow).filter_map(|link| self.of_link(document, link)).min();
        let largest = document.flows.iter().filter_map(least).max();
        let mut size = frame_size(largest.unwrap_or(MTU_DEFAULT));
        let interfaces = document.links.iter().filter(|link| text(link, "backend") != Some("udp"));
        if interfaces.filter_map(|link| text(link, "interface")).any(has_buffers_of_whole_kib) {
            size = size.max(FrameSize::PAGE);
        }
        let is_xdp = |link: &Section| text(link, "backend") == Some("xdp");
        match document.links.iter().any(is_xdp) {
            true => size.min(FrameSize::PAGE),
            false => size,
        }
    }

    /// MTU of a link by its name.
    fn of_link(&self, document: &Document, name: &str) -> Option<usize> {
        let link = document.links.iter().find(|link| text(link, "name") == Some(name))?;
        Some(self.of(text(link, "interface")?))
    }

    /// Frame size for the flows' packets, by the MTUs when first read.
    pub fn frames(&self) -> FrameSize {
        self.frame_size
    }

    /// Updates the MTU of a link's interface.
    pub fn follow(&mut self, interface: &str, mtu: usize) {
        if let Some(known) = self.known.get_mut(interface).filter(|_| mtu > 0) {
            *known = mtu;
        }
    }

    /// MTU of `interface`, if it is known.
    pub fn get(&self, interface: &str) -> Option<u32> {
        self.known.get(interface).and_then(|mtu| u32::try_from(*mtu).ok())
    }

    /// MTU of `interface`, or the default.
    pub fn of(&self, interface: &str) -> usize {
        self.known.get(interface).copied().unwrap_or(MTU_DEFAULT)
    }
}

/// Whether the driver of an interface is one of [`DRIVERS_OF_WHOLE_KIB`].
fn has_buffers_of_whole_kib(interface: &str) -> bool {
    let driver = std::fs::read_link(format!("/sys/class/net/{interface}/device/driver"));
    let driver = driver.ok().and_then(|driver| driver.file_name()?.to_str().map(str::to_owned));
    driver.is_some_and(|driver| DRIVERS_OF_WHOLE_KIB.contains(&driver.as_str()))
}

fn text<'a>(section: &'a Section, key: &str) -> Option<&'a str> {
    section.get(key)?.value.as_str()
}

/// Names of the links to the neighbours of a flow.
fn hop_links(flow: &Section) -> impl Iterator<Item = &str> {
    let values =
        ["next_hops", "upstream"].into_iter().filter_map(|key| Some(&flow.get(key)?.value));
    let hops = values.flat_map(|value| match value.as_array() {
        Some(hops) => &hops[..],
        None => std::slice::from_ref(value),
    });
    hops.filter_map(|hop| hop.as_table()?.get("link")?.as_str())
}

/// Inputs for the size of flows' symbols.
#[derive(Copy, Clone)]
pub struct Paths<'a> {
    /// The links.
    pub links: &'a [Link],
    /// The neighbours that next hops refer to.
    pub hops: &'a [Neighbour],
    /// MTUs of the interfaces.
    pub mtus: &'a Mtus,
    /// Size of frames.
    pub frame_size: FrameSize,
}

/// Room for a symbol on the next hops of a flow.
pub struct SymbolRoom {
    /// Largest symbol that all of them carry.
    pub most: usize,
    /// Size of symbols when none is configured.
    pub default: usize,
    /// The next hop with the least room: its address, interface and interface MTU.
    pub tightest: (IpAddr, String, usize),
}

impl Paths<'_> {
    /// Room for a symbol with the code and sizes of `params`.
    pub fn symbol_room(&self, params: &FlowParams) -> SymbolRoom {
        let header_bytes = params.code.header_bytes(params.generation_size, params.field);
        self.room_behind(header_bytes, &params.next_hops)
    }

    /// Room for a symbol behind `header_bytes` of headers.
    pub fn room_behind(&self, header_bytes: usize, next_hops: &[PeerId]) -> SymbolRoom {
        let tightest = (IpAddr::from([0, 0, 0, 0]), String::new(), 0);
        let most = symbol_bytes_in(self.frame_size);
        let mut room = SymbolRoom { most, default: most, tightest };
        for hop in next_hops {
            let Neighbour { link, address } = self.hops[usize::from(hop.0)];
            let interface = &self.links[link].interface;
            let mtu = self.mtus.of(interface).min(ip_packet_bytes_max(self.frame_size));
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

/// Default size of symbols: the largest that fits, less room for a tag, in whole words.
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
        assert_eq!(symbol_bytes_default(68, v4, 276), 0);
    }
}
