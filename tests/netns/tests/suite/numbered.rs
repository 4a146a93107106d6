//! Numbered packets of 800 bytes, one per millisecond, and the ones that arrive.

use std::net::{SocketAddr, UdpSocket};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

const BYTES: usize = 800;

/// Buffer of the receiving socket: packets that waited while a process was replaced arrive in one
/// burst, which overflows Linux's default if the receiver waits for a core.
const BUFFER_BYTES: usize = 1 << 20;

/// Sends `packets` packets.
pub fn send(sender: UdpSocket, to: SocketAddr, packets: u32) -> JoinHandle<()> {
    let begin = Instant::now();
    spawn(move || {
        for number in 0..packets {
            let at = Duration::from_millis(u64::from(number));
            sleep(at.saturating_sub(begin.elapsed()));
            let mut packet = [0; BYTES];
            packet[..4].copy_from_slice(&number.to_be_bytes());
            let _ = sender.send_to(&packet, to);
        }
    })
}

/// Numbers that did not arrive, as ranges.
pub fn missing(came: &[bool]) -> Vec<(usize, usize)> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in (0..came.len()).filter(|number| !came[*number]) {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == number => *end = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

/// Result of receiving numbered packets.
pub struct Received {
    /// Which of them.
    pub came: Vec<bool>,
    /// Packets that arrived a second time.
    pub twice: u32,
    /// The longest time without one.
    pub longest: Duration,
}

/// Receives each packet once, until none arrives for four seconds, and records the longest gap.
pub fn receive(receiver: UdpSocket, packets: u32) -> JoinHandle<(Vec<bool>, Duration)> {
    let receiving = receive_twice(receiver, packets);
    spawn(move || {
        let Received { came, twice, longest } = receiving.join().unwrap();
        assert_eq!(twice, 0, "packets came twice");
        (came, longest)
    })
}

/// Receives until nothing arrives for four seconds.
pub fn receive_twice(receiver: UdpSocket, packets: u32) -> JoinHandle<Received> {
    setsockopt(&receiver, sockopt::RcvBufForce, &BUFFER_BYTES).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(4))).unwrap();
    spawn(move || {
        let came = vec![false; packets as usize];
        let mut received = Received { came, twice: 0, longest: Duration::ZERO };
        let mut last = None;
        let mut packet = [0; 2048];
        while let Ok(len) = receiver.recv(&mut packet) {
            assert_eq!(len, BYTES);
            let number = u32::from_be_bytes(packet[..4].try_into().unwrap());
            let had = std::mem::replace(&mut received.came[number as usize], true);
            received.twice += u32::from(had);
            let now = Instant::now();
            received.longest = received.longest.max(last.map_or(Duration::ZERO, |last| now - last));
            last = Some(now);
        }
        received
    })
}
