//! Packets that a rule of the firewall logs to a group (NFLOG of Linux): first packets of
//! connections, before Linux answers them.
//!
//! ```text
//!  message:    length 4 | type 2 | flags 2 | sequence 4 | port 4 | family 1 | version 1 | group 2
//!  attribute:  length 2 | type 2 | value, padded to 4 bytes
//! ```
//! The headers have the byte order of the machine, group and values that of the network.

use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::OwnedFd;
use tokio::net::UdpSocket;

/// Numbers of Linux (linux/netlink.h, linux/netfilter/nfnetlink.h, nfnetlink_log.h).
const AF_NETLINK: i32 = 16;
const NETLINK_NETFILTER: i32 = 12;
const SUBSYSTEM: u16 = 4 << 8;
const PACKET: u16 = SUBSYSTEM;
const CONFIGURE: u16 = SUBSYSTEM | 1;
const REQUEST_AND_ACKNOWLEDGE: u16 = 1 | 4;
const ERROR: u16 = 2;
const EBUSY: i32 = 16;
const COMMAND: u16 = 1;
const COMMAND_BIND: u8 = 1;
const MODE: u16 = 2;
const MODE_COPY: u8 = 2;
const THRESHOLD: u16 = 5;
const PAYLOAD: u16 = 9;

/// Bytes of the header of netlink, and of that with netfilter's.
const NETLINK_HEADER: usize = 16;
const HEADER: usize = 20;

/// Groups that may be free: one for each tunnel of the box that is split.
const GROUPS: Range<u16> = 923..987;

/// Bytes of packets that wait to be read: some thousand first packets.
const BUFFER_BYTES: usize = 4 << 20;

/// Longest message: a packet and attributes.
const MESSAGE_BYTES: usize = 80 << 10;

/// A group of logged packets.
#[derive(Debug)]
pub(crate) struct Log {
    /// Of netlink: tokio reads every socket of datagrams alike.
    socket: UdpSocket,
    group: u16,
}

impl Log {
    /// Opens a free group. Needs CAP_NET_ADMIN; reading needs nothing.
    pub(crate) fn open() -> io::Result<Log> {
        let kind = Type::RAW.nonblocking();
        let socket =
            Socket::new(Domain::from(AF_NETLINK), kind, Some(Protocol::from(NETLINK_NETFILTER)))?;
        let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
        let mut groups = GROUPS;
        let group = loop {
            let Some(group) = groups.next() else {
                return Err(io::Error::other("all groups of NFLOG are in use"));
            };
            match configure(&socket, group, &attribute(COMMAND, &[COMMAND_BIND])) {
                Err(error) if error.raw_os_error() == Some(EBUSY) => {}
                bound => break bound.map(|()| group)?,
            }
        };
        let [high, low] = 0xffff_u16.to_be_bytes();
        configure(&socket, group, &attribute(MODE, &[0, 0, high, low, MODE_COPY, 0]))?;
        // Each packet at once.
        configure(&socket, group, &attribute(THRESHOLD, &1_u32.to_be_bytes()))?;
        let socket = std::net::UdpSocket::from(OwnedFd::from(socket));
        Ok(Log { socket: UdpSocket::from_std(socket)?, group })
    }

    pub(crate) fn group(&self) -> u16 {
        self.group
    }

    /// The next packets, from their IP headers on. Some may be missing where more came than fit the
    /// buffer.
    pub(crate) async fn next(&self, buffer: &mut Vec<u8>) -> io::Result<Vec<Vec<u8>>> {
        buffer.resize(MESSAGE_BYTES, 0);
        let count = self.socket.recv(buffer).await?;
        Ok(packets(&buffer[..count]))
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len() as u16;
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn configure(socket: &Socket, group: u16, attribute: &[u8]) -> io::Result<()> {
    let length = (HEADER + attribute.len()) as u32;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend([CONFIGURE, REQUEST_AND_ACKNOWLEDGE].map(u16::to_ne_bytes).concat());
    message.extend([0; 8]);
    message.extend([0, 0]);
    message.extend(group.to_be_bytes());
    message.extend(attribute);
    socket.send(&message)?;
    // Linux answers before it returns.
    let mut answer = [0; 256];
    let count = (&*socket).read(&mut answer)?;
    let error = answer[..count].get(NETLINK_HEADER..NETLINK_HEADER + 4);
    let kind = answer[..count].get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
    match error.map(|it| i32::from_ne_bytes([it[0], it[1], it[2], it[3]])) {
        Some(0) if kind == Some(ERROR) => Ok(()),
        Some(error) if kind == Some(ERROR) => Err(io::Error::from_raw_os_error(-error)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Splits `bytes` into its first entry and the rest, by a length of `width` bytes at its begin.
fn split_entry(bytes: &[u8], width: usize, least: usize) -> Option<(&[u8], &[u8])> {
    let mut length = [0; 4];
    length[..width].copy_from_slice(bytes.get(..width)?);
    // Little-endian machines have the low bytes first.
    let length = if cfg!(target_endian = "little") {
        u32::from_le_bytes(length) as usize
    } else {
        (u32::from_be_bytes(length) >> (8 * (4 - width))) as usize
    };
    let entry = bytes.get(..length).filter(|_| length >= least)?;
    Some((entry, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// The logged packets in some messages.
fn packets(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while let Some((message, rest)) = split_entry(bytes, 4, NETLINK_HEADER) {
        bytes = rest;
        if u16::from_ne_bytes([message[4], message[5]]) != PACKET {
            continue;
        }
        let mut attributes = message.get(HEADER..).unwrap_or_default();
        while let Some((attribute, rest)) = split_entry(attributes, 2, 4) {
            attributes = rest;
            if u16::from_ne_bytes([attribute[2], attribute[3]]) == PAYLOAD {
                packets.push(attribute[4..].to_vec());
            }
        }
    }
    packets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, attributes: &[u8]) -> Vec<u8> {
        let length = (HEADER + attributes.len()) as u32;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(attributes);
        bytes
    }

    #[test]
    fn payloads_of_packets_are_found_among_other_attributes_and_messages() {
        let attributes =
            [attribute(1, &[1, 2]), attribute(PAYLOAD, b"packet"), attribute(3, &[])].concat();
        let bytes = [
            message(PACKET, &attributes),
            message(3, &[]),
            message(PACKET, &attribute(PAYLOAD, b"second")),
        ];
        assert_eq!(packets(&bytes.concat()), [b"packet".to_vec(), b"second".to_vec()]);
    }

    /// Linux sends these, but a length that is wrong must not end in a loop or a panic.
    #[test]
    fn cut_and_wrong_messages_end() {
        let whole = message(PACKET, &attribute(PAYLOAD, b"packet"));
        for end in 0..whole.len() {
            assert!(packets(&whole[..end]).is_empty());
        }
        for at in 0..whole.len() {
            for value in [0, 1, 3, 255] {
                let mut wrong = whole.clone();
                wrong[at] = value;
                packets(&wrong);
            }
        }
    }

    #[tokio::test]
    async fn groups_are_taken_one_after_the_other() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: groups of NFLOG need root");
            return;
        }
        let (Ok(first), Ok(second)) = (Log::open(), Log::open()) else {
            println!("skipped: this Linux has no NFLOG");
            return;
        };
        assert_ne!(first.group(), second.group());
    }
}
