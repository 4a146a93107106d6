//! Writes the inputs of the corpus that are made by hand: packets as they occur, for the target
//! `header`, which no fuzzer would guess. `cargo run -p recoded-fuzz --example seeds`.

use std::path::Path;
use std::{fs, io};

use recoded_wire::feedback::{FlowReport, HopReport, Item, RepairRequest, Writer};
use recoded_wire::header::{Block, Flags, HEADER_BYTES, Header, PacketType, write_index};

fn main() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/header");
    let payloads = [
        ("systematic", systematic()),
        ("coded-gf2", coded(0)),
        ("coded-gf256", coded(3)),
        ("batch", batch()),
        ("feedback", feedback()),
    ];
    for (name, payload) in payloads {
        fs::write(folder.join(name), &payload)?;
        fs::write(folder.join(format!("{name}-ipv4")), ipv4(&payload))?;
        fs::write(folder.join(format!("{name}-ipv6-vlan")), ipv6(&payload))?;
    }
    Ok(())
}

fn header(packet_type: PacketType, flags: u8) -> Header {
    Header {
        packet_type,
        flags: Flags(flags),
        epoch: 1,
        size: 16,
        flow: 0x0A0B_0C0D,
        generation: 0xFFFF_FFFF,
        hop_index: 2,
        key_id: 0,
        planned: 18,
        link_sequence: 77,
    }
}

fn systematic() -> Vec<u8> {
    let mut packet = vec![0x55; HEADER_BYTES + 4 + 32];
    header(PacketType::Generation, Flags::SYSTEMATIC | 2).write(&mut packet);
    write_index(&mut packet, PacketType::Generation, 15);
    packet
}

fn coded(field: u8) -> Vec<u8> {
    let header = header(PacketType::Generation, Flags::RECODED | Flags::END | field);
    let vector = header.vector_bytes().unwrap_or_default();
    let mut packet = vec![0xA7; HEADER_BYTES + vector + 32];
    header.write(&mut packet);
    packet
}

fn batch() -> Vec<u8> {
    let header = header(PacketType::Bats, 2);
    let block = Block {
        number: 0xFFFF,
        batch: 3,
        source_symbols: 256,
        profile: 2,
        generator_bits: 8,
        interleave: 4,
    };
    let mut packet = vec![0x33; PacketType::Bats.coding_offset() + 8 + 32];
    header.write(&mut packet);
    block.write(&mut packet);
    packet
}

fn feedback() -> Vec<u8> {
    let mut packet = vec![0; 400];
    header(PacketType::Feedback, Flags::END).write(&mut packet);
    let mut writer = Writer::new(&mut packet);
    writer.push(Item::Hop(HopReport { hop: 1, loss: 0.1, burst_mean: 2.5 }));
    writer.push(Item::Flow(FlowReport { newest: 9, complete: 7, failed: 1 }));
    writer.push(Item::Repair(RepairRequest { generation: 8, missing: 3, round: 0 }));
    writer.push(Item::Repair(RepairRequest { generation: 9, missing: 65535, round: 1 }));
    writer.push(Item::Enough(0xFFFE));
    writer.push_ranks(1, (0..17).map(|rank| rank * rank));
    let length = writer.finish();
    packet.truncate(length);
    packet
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    let ports = [49_152_u16, 9426, length, 0].map(u16::to_be_bytes);
    [ports.as_flattened(), payload].concat()
}

fn ipv4(payload: &[u8]) -> Vec<u8> {
    let datagram = udp(payload);
    let [high, low] = (20 + datagram.len() as u16).to_be_bytes();
    let ip = [0x45, 0, high, low, 0, 7, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    [&[2; 12], &[0x08, 0x00][..], &ip, &datagram].concat()
}

fn ipv6(payload: &[u8]) -> Vec<u8> {
    let datagram = udp(payload);
    let [high, low] = (datagram.len() as u16).to_be_bytes();
    let ip = [0x60, 0, 0, 0, high, low, 17, 64];
    [&[2; 12], &[0x81, 0x00, 0, 42, 0x86, 0xDD][..], &ip, &[0xFD; 32], &datagram].concat()
}
