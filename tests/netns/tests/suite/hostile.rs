//! Invalid packets, sent to a relay's port.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use crate::common;
use recoded_api::v1::State;
use recoded_netns::{Bed, Daemon, LinePlan, Loss};

/// Packets per round.
const PACKETS: u64 = 60_000;

/// The port of coded packets.
pub const PORT: u16 = 9426;

/// Bytes of the header of a generation's packet.
const HEADER_BYTES: usize = 20;

/// Shards of a flow.
pub const SHARDS: usize = 16;

#[test]
fn hostile_packets_at_a_relay_keep_memory_flat_and_are_all_counted() {
    let Some(_turn) = common::daemons() else { return };
    let bed = common::bed(2, Loss::independent(0.0), 1000.0);
    let relay = Daemon::start(&bed, 1, &LinePlan::protected(2)).unwrap();
    let target = SocketAddr::new(Bed::east_address(1), PORT);
    let socket = bed.source().udp_socket("0.0.0.0:0".parse().unwrap()).unwrap();
    let mut random = Random::of_this_process();
    let before = Counts::of(&relay.show().unwrap());

    // The first round fills every table; afterwards nothing may grow.
    let mut sent = throw(&socket, target, &mut random, 0);
    settle();
    let resident = relay.resident_kib().unwrap();
    for round in 1..3 {
        sent += throw(&socket, target, &mut random, round);
    }
    settle();
    let grown = relay.resident_kib().unwrap().saturating_sub(resident);
    let state = relay.show().unwrap();
    println!("{sent} packets, {grown} KiB more resident");
    println!("verdicts {:?}\ndrops {:?}\nlinks {:?}", state.verdicts, state.drops, state.links);

    assert!(grown < 1024, "memory grew by {grown} KiB");
    let counts = Counts::of(&state);
    assert_eq!(counts.refused + counts.redirected - before.refused - before.redirected, sent);
    assert_eq!(counts.redirected, counts.received + counts.talk + counts.ring_full);
    assert_eq!(counts.received, counts.fates);
    // It still does its work.
    assert!(relay.show().is_ok());
}

/// Counters of the relay, by stage.
struct Counts {
    /// By the XDP program, dropped.
    refused: u64,
    /// By the XDP program, handed to a socket.
    redirected: u64,
    /// By the sockets, refused because no worker took them in time.
    ring_full: u64,
    /// Counted by the workers: announcements and handshakes between neighbours, which bypass the
    /// pipeline.
    talk: u64,
    /// By the pipeline.
    received: u64,
    /// By the pipeline, at the other end.
    fates: u64,
}

impl Counts {
    fn of(state: &State) -> Counts {
        let verdicts = |prefix: &str| {
            let matching = state.verdicts.iter().filter(|(name, _)| name.starts_with(prefix));
            matching.map(|(_, count)| count).sum()
        };
        let faults = state.links.iter().flat_map(|link| &link.faults);
        let fates = state.workers.iter().map(|w| w.forwarded + w.consumed + w.dropped);
        Counts {
            refused: verdicts("drop"),
            redirected: verdicts("redirect"),
            ring_full: faults
                .filter(|(name, _)| name.contains("rx_dropped") || name.contains("rx_ring_full"))
                .map(|(_, count)| count)
                .sum(),
            talk: state
                .links
                .iter()
                .map(|link| link.counters["rx_announcements"] + link.counters["rx_handshakes"])
                .sum(),
            received: state.workers.iter().map(|worker| worker.received).sum(),
            fates: fates.sum(),
        }
    }
}

/// Sends a round; returns how many packets Linux took.
fn throw(socket: &UdpSocket, target: SocketAddr, random: &mut Random, round: u64) -> u64 {
    let mut taken = 0;
    for number in 0..PACKETS {
        let packet = match number % 4 {
            0 => {
                let length = random_length(random, 1472);
                random.bytes(length)
            }
            1 => truncated(random),
            2 => absurd(random),
            _ => plausible(random, round * PACKETS + number),
        };
        taken += u64::from(socket.send_to(&packet, target).is_ok());
        if number % 64 == 0 {
            // A link queue that overflows would drop packets that are not counted.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    taken
}

/// The right version, type and flow, truncated anywhere.
pub fn truncated(random: &mut Random) -> Vec<u8> {
    let number = random.next();
    let mut packet = plausible(random, number);
    packet.truncate(random_length(random, HEADER_BYTES + 12));
    packet
}

/// A packet of any type with random header fields, except those that the XDP program checks, and
/// often with flags that its type allows.
pub fn absurd(random: &mut Random) -> Vec<u8> {
    let length = HEADER_BYTES + random_length(random, 1400);
    let mut packet = random.bytes(length);
    packet[0] = 0x20 | (1 + random.below(4) as u8);
    packet[1] &= [0, 0x83, 0xF3, 0xFF][random.below(4)];
    packet[3] = random.below(SHARDS) as u8;
    packet[4..8].copy_from_slice(&(1 + random.below(2) as u32).to_be_bytes());
    packet
}

/// A generation packet in the source's format, of a random shard and generation, with random
/// content. `number` grows from packet to packet.
pub fn plausible(random: &mut Random, number: u64) -> Vec<u8> {
    let mut packet = random.bytes(HEADER_BYTES + 8 + 400);
    packet[..4].copy_from_slice(&[0x32, 0x02, 0, random.below(SHARDS) as u8]);
    packet[4..8].copy_from_slice(&1u32.to_be_bytes());
    packet[8..12].copy_from_slice(&(number as u32).to_be_bytes());
    // Hop 0, 16 symbols, as in the largest generations of this epoch, 18 packets planned.
    packet[12..16].copy_from_slice(&[0, 15, 0x40, 18]);
    packet
}

pub fn random_length(random: &mut Random, most: usize) -> usize {
    random.below(most + 1)
}

fn settle() {
    std::thread::sleep(Duration::from_millis(700));
}

/// SplitMix64: small, and good enough to be hostile.
pub struct Random(u64);

impl Random {
    /// Random numbers that differ in each run; the seed is printed.
    pub fn of_this_process() -> Random {
        let seed = std::process::id().into();
        println!("seed {seed}");
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}
