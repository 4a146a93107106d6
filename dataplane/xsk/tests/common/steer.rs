//! The committed XDP object on one interface, steering the test's flow to one socket, and the
//! packets of that flow.

use std::os::fd::{AsFd, AsRawFd};

use aya::{
    Ebpf, EbpfLoader,
    maps::{HashMap, MapData, XskMap},
    programs::{Xdp, xdp::XdpMode},
};
use recoded_wire::{
    DEFAULT_PORT,
    steer::{MAP_FLOWS, MAP_XSKS, PROGRAM},
};
use recoded_xsk::Socket;

/// Offset of the UDP payload in the test's packets: Ethernet 14, IPv4 20, UDP 8.
pub const PAYLOAD_AT: usize = 42;

const FLOW: u32 = 7;

/// An attached program; detaches when dropped.
pub struct Steer {
    _program: Ebpf,
}

impl Steer {
    /// Attaches the program to `interface` natively and enters `socket` for queue 0.
    pub fn attach(interface: &str, socket: &Socket) -> Steer {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ebpf/recoded.bpf.o");
        let mut object = EbpfLoader::new().load_file(path).expect("object loads");
        let map = object.map_mut(MAP_FLOWS).expect("flows");
        let mut flows: HashMap<&mut MapData, u32, u32> = map.try_into().expect("a hash map");
        flows.insert(FLOW, 1, 0).expect("flow is added");
        let map = object.map_mut(MAP_XSKS).expect("sockets");
        let mut sockets: XskMap<&mut MapData> = map.try_into().expect("an XSKMAP");
        sockets.set(0, socket.fd().as_fd().as_raw_fd(), 0).expect("socket is added");
        let program = object.program_mut(PROGRAM).expect("program");
        let program: &mut Xdp = program.try_into().expect("an XDP program");
        program.load().expect("verifier accepts");
        program.attach(interface, XdpMode::Driver).expect("attaches");
        Steer { _program: object }
    }
}

/// Fills `packet` with a coded packet of the test's flow, identified by `number`.
pub fn write_packet(packet: &mut [u8], number: u32) {
    let bytes = packet.len();
    for (place, index) in packet.iter_mut().zip(0u32..) {
        *place = (number.wrapping_mul(31).wrapping_add(index)) as u8;
    }
    packet[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    packet[12..14].copy_from_slice(&[0x08, 0x00]);
    let ip = &mut packet[14..34];
    ip.copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    ip[2..4].copy_from_slice(&((bytes - 14) as u16).to_be_bytes());
    let sum: u32 = ip.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let sum = (sum & 0xFFFF) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!((sum & 0xFFFF) + (sum >> 16)) as u16).to_be_bytes());
    packet[34..36].copy_from_slice(&40_000u16.to_be_bytes());
    packet[36..38].copy_from_slice(&DEFAULT_PORT.to_be_bytes());
    packet[38..40].copy_from_slice(&((bytes - 34) as u16).to_be_bytes());
    packet[40..42].fill(0);
    packet[PAYLOAD_AT..PAYLOAD_AT + 4].copy_from_slice(&[0x32, 0, 0, 0]);
    packet[PAYLOAD_AT + 4..PAYLOAD_AT + 8].copy_from_slice(&FLOW.to_be_bytes());
    packet[PAYLOAD_AT + 8..PAYLOAD_AT + 12].copy_from_slice(&number.to_be_bytes());
}
