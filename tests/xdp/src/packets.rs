//! Frames for the tests, built layer by layer from the outermost one inwards.
//!
//! Every length field is correct when [`Recipe::build`] returns; tests of wrong fields patch the
//! bytes.

use proptest::prelude::*;

/// The port the tests load the program with.
pub const PORT: u16 = 9426;
/// A flow the tests configure.
pub const FLOW: u32 = 0x0102_0304;

/// The layer below UDP.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Ip {
    /// IPv4 with 0 to 10 words of options and the flags-and-offset field.
    V4 {
        /// Words of 4 bytes.
        option_words: u8,
        /// Flags (3 bits) and fragment offset (13 bits).
        fragment: u16,
    },
    /// IPv6, with one 8-byte extension header of this type before the payload.
    V6 {
        /// Type of the extension header.
        extension: Option<u8>,
    },
}

/// Ingredients of a frame.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// EtherType of each VLAN tag, outermost first, with its priority and number.
    pub tags: Vec<(u16, u16)>,
    /// The layer below UDP.
    pub ip: Ip,
    /// IP protocol; 17 is UDP. The bytes after it look like UDP regardless.
    pub protocol: u8,
    /// UDP destination port.
    pub port: u16,
    /// First byte of the coded header: version and type.
    pub first: u8,
    /// Flags of the coded header.
    pub flags: u8,
    /// Flow id of the coded header.
    pub flow: u32,
    /// Last bytes of source and destination address.
    pub hosts: [u8; 2],
    /// Bytes of UDP payload, cut from header and symbol together.
    pub payload_bytes: usize,
    /// Bytes of Ethernet padding.
    pub padding_bytes: usize,
}

impl Default for Recipe {
    /// A coded packet of [`FLOW`] over plain IPv4.
    fn default() -> Self {
        Self {
            tags: Vec::new(),
            ip: Ip::V4 { option_words: 0, fragment: 0 },
            protocol: 17,
            port: PORT,
            first: 0x32,
            flags: 0,
            flow: FLOW,
            hosts: [1, 2],
            payload_bytes: 60,
            padding_bytes: 0,
        }
    }
}

impl Recipe {
    /// The frame.
    pub fn build(&self) -> Vec<u8> {
        let mut payload = vec![self.first, self.flags, 0, 0];
        payload.extend(self.flow.to_be_bytes());
        payload.resize(self.payload_bytes.max(8), 0x5a);
        payload.truncate(self.payload_bytes);

        let udp_bytes = 8 + payload.len() as u16;
        let mut udp = Vec::new();
        for field in [40000, self.port, udp_bytes, 0] {
            udp.extend(field.to_be_bytes());
        }
        udp.extend(payload);

        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for (ether_type, tag) in &self.tags {
            frame.extend(ether_type.to_be_bytes());
            frame.extend(tag.to_be_bytes());
        }
        match self.ip {
            Ip::V4 { option_words, fragment } => {
                self.push_v4(&mut frame, option_words, fragment, udp_bytes)
            }
            Ip::V6 { extension } => self.push_v6(&mut frame, extension, udp_bytes),
        }
        frame.extend(udp);
        frame.resize(frame.len() + self.padding_bytes, 0xee);
        frame
    }

    fn push_v4(&self, frame: &mut Vec<u8>, option_words: u8, fragment: u16, udp_bytes: u16) {
        let total_bytes = 20 + 4 * u16::from(option_words) + udp_bytes;
        frame.extend([0x08, 0x00, 0x45 + option_words, 0]);
        frame.extend(total_bytes.to_be_bytes());
        frame.extend([0, 7]);
        frame.extend(fragment.to_be_bytes());
        let [source, destination] = self.hosts;
        frame.extend([64, self.protocol, 0, 0, 10, 0, 0, source, 10, 0, 0, destination]);
        frame.resize(frame.len() + 4 * usize::from(option_words), 1);
    }

    fn push_v6(&self, frame: &mut Vec<u8>, extension: Option<u8>, udp_bytes: u16) {
        let payload_bytes = udp_bytes + if extension.is_some() { 8 } else { 0 };
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(payload_bytes.to_be_bytes());
        frame.extend([extension.unwrap_or(self.protocol), 64]);
        for host in self.hosts {
            frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        if extension.is_some() {
            frame.extend([self.protocol, 0, 1, 4, 0, 0, 0, 0]);
        }
    }
}

/// An ARP request.
pub fn arp() -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 2, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1]);
    frame.resize(60, 0);
    frame
}

/// An ICMPv6 message of this type: 135 is a neighbour solicitation.
pub fn icmpv6(message: u8) -> Vec<u8> {
    let recipe = Recipe { ip: Ip::V6 { extension: None }, protocol: 58, ..Recipe::default() };
    let mut frame = recipe.build();
    frame[54] = message;
    frame
}

/// Frames near the boundary between Recoded's packets and others: a random recipe, then a few
/// random edits and perhaps a truncation.
pub fn frames() -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((0usize..120, any::<u8>()), 0..4);
    let cut = prop_oneof![4 => Just(None), 1 => (0usize..140).prop_map(Some)];
    (recipes(), edits, cut).prop_map(|(recipe, edits, cut)| {
        let mut frame = recipe.build();
        for (offset, value) in edits {
            let offset = offset % frame.len();
            frame[offset] = value;
        }
        frame.truncate(cut.unwrap_or(frame.len()));
        frame
    })
}

fn recipes() -> impl Strategy<Value = Recipe> {
    let number = prop_oneof![2 => Just(0u16), 1 => Just(0xe000), 1 => any::<u16>()];
    let tag = (prop_oneof![Just(0x8100u16), Just(0x88a8)], number);
    let fragment = prop_oneof![6 => Just(0u16), 2 => Just(0x4000), 1 => any::<u16>()];
    let extension = prop_oneof![3 => Just(None), 1 => any::<u8>().prop_map(Some)];
    let ip = prop_oneof![
        (0u8..=10, fragment).prop_map(|(option_words, fragment)| Ip::V4 { option_words, fragment }),
        extension.prop_map(|extension| Ip::V6 { extension }),
    ];
    let protocol = prop_oneof![6 => Just(17u8), 1 => any::<u8>()];
    let port = prop_oneof![6 => Just(PORT), 1 => any::<u16>()];
    let first = prop_oneof![3 => (1u8..=7).prop_map(|kind| 0x20 | kind), 1 => any::<u8>()];
    let flags = prop_oneof![2 => Just(0u8), 1 => Just(0x80), 1 => any::<u8>()];
    let flow = prop_oneof![4 => Just(FLOW), 1 => any::<u32>()];
    let host = |usual: u8| prop_oneof![6 => Just(usual), 1 => 1u8..4];
    let ends = (port, flow, host(1), host(2));
    let tags = prop::collection::vec(tag, 0..3);
    (tags, ip, protocol, ends, (first, flags), 0usize..64, 0usize..20).prop_map(
        |(tags, ip, protocol, ends, (first, flags), payload_bytes, padding_bytes)| {
            let (port, flow, source, destination) = ends;
            let hosts = [source, destination];
            Recipe {
                tags,
                ip,
                protocol,
                port,
                first,
                flags,
                flow,
                hosts,
                payload_bytes,
                padding_bytes,
            }
        },
    )
}
