//! Writes the handmade inputs of the corpus, which no fuzzer would guess: real packets for the
//! targets `header` and `plan`, and attacks on lines for the target `pipeline`. `cargo run -p
//! recoded-fuzz --example seeds`.

use std::path::Path;
use std::{fs, io};

use recoded_plan::packet::{BYTES_MAX, Body, Packet, Refusal};
use recoded_plan::summary::Summary;
use recoded_wire::coded::{Block, CODED_BYTES, CodedHeader, coding_offset, write_index};
use recoded_wire::feedback::{FeedbackHeader, FlowReport, HopReport, Item, Nack, Writer};
use recoded_wire::header::{Flags, Header, PacketType};
use recoded_wire::stream::{
    COMBINATION_BYTES, Combination, OPEN_LOOP_UNITS, STREAM_BYTES, StreamHeader, StreamSymbol,
    write_combination, write_symbol,
};

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    headers(&corpus.join("header"))?;
    measurements(&corpus.join("plan"))?;
    lines(&corpus.join("pipeline"))
}

/// Packets, also as frames of two link layers.
fn headers(folder: &Path) -> io::Result<()> {
    let payloads = [
        ("systematic", systematic()),
        ("coded-gf2", coded(0)),
        ("coded-gf256", coded(3)),
        ("batch", batch()),
        ("stream-symbol", stream(true)),
        ("stream-combination", stream(false)),
        ("feedback", feedback()),
    ];
    for (name, payload) in payloads {
        fs::write(folder.join(name), &payload)?;
        fs::write(folder.join(format!("{name}-ipv4")), ipv4(&payload))?;
        fs::write(folder.join(format!("{name}-ipv6-vlan")), ipv6(&payload))?;
    }
    Ok(())
}

/// Packets of measurements, a train that arrives, and a listener that answers.
fn measurements(folder: &Path) -> io::Result<()> {
    let (nonce, train) = (0x1234_5678_9ABC_DEF0, 7);
    let summary = Summary {
        train,
        sent: 100,
        received: 97,
        runs: 2,
        runs_by_length: [1, 1, 0, 0, 0, 0, 0, 0],
        lost_late: 2,
        span_packets: 99,
        span_came_nanos: 100_000_000,
        span_sent_nanos: 99_000_000,
        queue_max_nanos: 5_000_000,
        queue_p99_nanos: 4_000_000,
        ..Summary::default()
    };
    let bodies = [
        ("hello", Body::Hello { nonce }),
        ("opened", Body::Opened { nonce, rate_max_kbit: 50_000, seconds: 180 }),
        ("busy", Body::Refused { nonce, refusal: Refusal::Busy(99) }),
        ("pong", Body::Pong { number: 3, at: nonce, held_nanos: 90_000 }),
        ("data", Body::Data { train, number: 5, at: nonce }),
        ("ask", Body::Ask { train, sent: 100 }),
        ("report", Body::Report(summary)),
        ("send", Body::Send { train, packets: 9000, payload_bytes: 1472, interval_nanos: 9 }),
        ("probe-back", Body::ProbeBack { payload_bytes: 1472 }),
        ("bye", Body::Bye),
    ];
    fs::create_dir_all(folder)?;
    for (name, body) in bodies {
        let mut bytes = [0; BYTES_MAX + 1];
        let packet = Packet { token: [9; 16], body };
        let length = packet.write(&mut bytes[1..]).unwrap_or_default();
        fs::write(folder.join(format!("packet-{name}")), &bytes[..=length])?;
    }
    // Number, times of both clocks, packets that found no room.
    let arrives = |number: u8| [1, number, 0, 1, number, 0, 2, number, 0];
    let came = (0..60).filter(|number| number % 7 > 0).flat_map(arrives);
    fs::write(folder.join("train"), [1, 0, 0, 0, 7].into_iter().chain(came).collect::<Vec<_>>())?;
    let answers = (0..2000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8);
    fs::write(folder.join("ramp"), [2, 0x40, 0].into_iter().chain(answers).collect::<Vec<_>>())
}

/// Every attack on lines of every code, with and without a relay. For the bytes of a script see
/// `src/pipeline/line.rs`.
fn lines(folder: &Path) -> io::Result<()> {
    // Code, switches with the size of generations, field, symbol bytes, tables; then the distance
    // of a unit ahead, 7 in tables of 7 and 14 units, and 255 in a window of 64 symbols.
    let codes: [(&str, &[u8], u8); 4] = [
        ("rlnc", &[0, 0x30, 2, 30, 5], 6),
        ("bats", &[1, 7, 2, 4, 0, 0x34, 2, 30, 5], 6),
        ("stream", &[3, 0, 0, 3, 30, 5], 12),
        ("open-loop", &[3, 0, 1, 3, 30, 5], 12),
    ];
    for (code, params, ahead) in codes {
        // A relay in between, and its link; several workers; stages that open late.
        let shapes = [
            ("pair", 0xC0, 0),
            ("relay", 0xC2, 1),
            ("plans", 0xC1, 0),
            ("workers", 0xC6, 1),
            ("stages", 0xCE, 1),
        ];
        for (shape, first, link) in shapes {
            for (attack, script) in attacks(link, ahead) {
                let bytes = [&[first], params, &script].concat();
                fs::write(folder.join(format!("{shape}-{code}-{attack}")), bytes)?;
            }
        }
    }
    Ok(())
}

/// Sixteen packets, two milliseconds apart.
const GOOD: [u8; 4] = [0, 15, 9, 40];

/// Hop reports in a script: the hops, each with 60 % loss, and the number of repetitions.
fn hops(number: u8, shape: u8, first: u8, count: u8) -> Vec<u8> {
    vec![4, 0, 1, 0, 0, number, 0, 0, shape, first, count - 1, 153, 0]
}

/// Forged packets: their number, distance, stride, and defect.
fn strike(link: u8, count: u8, place: u8, stride: u8, wrong: u8) -> Vec<u8> {
    vec![2, link, 1, count - 1, place, stride, wrong, 15]
}

fn attacks(link: u8, ahead: u8) -> [(&'static str, Vec<u8>); 9] {
    let between = |attack: &[u8]| [&GOOD, attack, &GOOD, attack, &GOOD, &GOOD].concat();
    let every_hop = [hops(1, 0, 0, 90), hops(2, 0, 90, 90), hops(3, 0, 180, 76)].concat();
    let idle = [7, 25, 0];
    let finished = [&idle, &strike(link, 6, 0, 0, 9)[..]].concat();
    let out_of_range = |count| strike(link, count, 18, 0, 9);
    let given_up = [&idle[..], &out_of_range(3), &idle, &out_of_range(5)].concat();
    let crowd = [strike(link, 64, 18, 7, 8), GOOD.to_vec(), strike(link, 64, 18, 2, 0x10)];
    let requests = [4, 0, 2, 0, 0, 9, 0, 0, 63, 0xFF, 0xFF, 0];
    let restart = [&idle, &strike(link, 3, 18, 2, 8)[..], &strike(link, 3, 18, 2, 0x88)[..]];
    [
        ("every-hop", between(&every_hop)),
        ("hop-by-hop", between(&hops(1, 1, 0, 119))),
        ("finished-unit", between(&finished)),
        ("given-up-unit", between(&given_up)),
        ("ahead", between(&strike(link, 3, ahead, 2, 8))),
        ("crowd", between(&crowd.concat())),
        ("walk", between(&strike(link, 33, 18, 5, 8))),
        ("requests", between(&requests.repeat(4))),
        ("restart", between(&[&restart.concat()[..], &[5, link, 3, 15]].concat())),
    ]
}

fn header(packet_type: PacketType, flags: u8) -> Header {
    Header {
        packet_type,
        flags: Flags(flags),
        epoch: 1,
        shard: 3,
        flow: 0x0A0B_0C0D,
        link_sequence: 77,
        hop_index: 2,
    }
}

fn coded_header(packet_type: PacketType, flags: u8) -> CodedHeader {
    let common = header(packet_type, flags);
    CodedHeader { common, size: 16, full_log2: 4, planned: 18, generation: 0xFFFF_FFFF }
}

fn systematic() -> Vec<u8> {
    let mut packet = vec![0x55; CODED_BYTES + 4 + 32];
    coded_header(PacketType::Generation, Flags::SYSTEMATIC | 2).write(&mut packet);
    write_index(&mut packet, false, 15);
    packet
}

fn coded(field: u8) -> Vec<u8> {
    let header = coded_header(PacketType::Generation, Flags::RECODED | Flags::END | field);
    let mut packet = vec![0xA7; CODED_BYTES + header.vector_bytes() + 32];
    header.write(&mut packet);
    packet
}

fn batch() -> Vec<u8> {
    let header = coded_header(PacketType::Bats, 2);
    let block = Block {
        number: 0xFFFF,
        batch: 3,
        source_symbols: 256,
        full_log2: 8,
        profile: 2,
        generator_bits: 8,
        interleave: 4,
    };
    let mut packet = vec![0x33; coding_offset(true) + 8 + 32];
    header.write(&mut packet);
    block.write(&mut packet);
    packet
}

/// A packet of a stream in an open loop.
fn stream(is_symbol: bool) -> Vec<u8> {
    let flags = if is_symbol { Flags::SYSTEMATIC } else { 0 };
    let common = header(PacketType::Stream, flags);
    let stream = StreamHeader { common, window_log2: 6, round_trips: 0 };
    let mut packet = vec![0; STREAM_BYTES.max(COMBINATION_BYTES)];
    stream.with_open_loop(OPEN_LOOP_UNITS / 4).write(&mut packet);
    if is_symbol {
        write_symbol(&StreamSymbol { number: 9, after: 1, place: 9, bytes: 40 }, &mut packet);
    } else {
        write_combination(&Combination { first: 9, count: 20, key: 1 }, &mut packet);
    }
    packet.extend([0x45; 40]);
    packet
}

fn feedback() -> Vec<u8> {
    let mut packet = vec![0; 400];
    let common = header(PacketType::Feedback, 0);
    FeedbackHeader { common, node: 0x0102_0304, number: 5 }.write(&mut packet);
    let mut writer = Writer::new(&mut packet);
    writer.push(Item::Hop(HopReport { hop: 1, loss: 0.1, burst_mean: 2.5 }));
    writer.push(Item::Flow(FlowReport { newest: 9, complete: 7, failed: 1 }));
    writer.push(Item::Nack(Nack { unit: 8, missing: 3, round: 0 }));
    writer.push(Item::Nack(Nack { unit: 9, missing: Nack::ALL, round: 1 }));
    writer.push(Item::BlockAck(0xFFFE));
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
    [&[2; 12], &[0x81, 0x00, 0xE0, 0, 0x86, 0xDD][..], &ip, &[0xFD; 32], &datagram].concat()
}
