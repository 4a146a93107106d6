//! Numbered packets of 800 bytes, one a millisecond, and which of them come.

use std::net::{SocketAddr, UdpSocket};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

const BYTES: usize = 800;

/// Sends so many packets.
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

/// Numbers that did not come, as ranges.
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

/// Which packets come until none comes for four seconds, and the longest time without one.
pub fn receive(receiver: UdpSocket, packets: u32) -> JoinHandle<(Vec<bool>, Duration)> {
    receiver.set_read_timeout(Some(Duration::from_secs(4))).unwrap();
    spawn(move || {
        let (mut came, mut longest, mut last) =
            (vec![false; packets as usize], Duration::ZERO, None);
        let mut packet = [0; 2048];
        while let Ok(len) = receiver.recv(&mut packet) {
            assert_eq!(len, BYTES);
            let number = u32::from_be_bytes(packet[..4].try_into().unwrap());
            assert!(!std::mem::replace(&mut came[number as usize], true), "{number} came twice");
            let now = Instant::now();
            longest = longest.max(last.map_or(Duration::ZERO, |last| now - last));
            last = Some(now);
        }
        (came, longest)
    })
}
