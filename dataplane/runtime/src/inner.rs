//! IP packets that tests put into tunnels.

use crate::checksum::{fold, sum};

/// A TCP or UDP packet to build.
#[derive(Clone, Debug)]
pub(crate) struct Inner {
    pub(crate) is_v4: bool,
    pub(crate) is_tcp: bool,
    /// Last byte of the source address, and source port.
    pub(crate) flow: u8,
    pub(crate) class: u8,
    /// IPv4: identification, and whether fragmentation is forbidden.
    pub(crate) id: u16,
    pub(crate) dont_fragment: bool,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// A multiple of four bytes.
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Inner {
    /// A packet of a TCP flow with ACK set.
    pub(crate) fn tcp(flow: u8, sequence: u32, payload: &[u8]) -> Inner {
        Inner {
            is_v4: true,
            is_tcp: true,
            flow,
            class: 0,
            id: 7,
            dont_fragment: true,
            sequence,
            acknowledgement: 77,
            flags: 0x10,
            window: 512,
            options: Vec::new(),
            payload: payload.to_vec(),
        }
    }

    /// A packet of a UDP flow.
    pub(crate) fn udp(flow: u8, payload: &[u8]) -> Inner {
        Inner { is_tcp: false, ..Inner::tcp(flow, 0, payload) }
    }

    /// Its bytes, with all checksums valid.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut segment = self.transport_header();
        segment.extend_from_slice(&self.payload);
        let at = if self.is_tcp { 16 } else { 6 };
        let number = if self.is_tcp { 6 } else { 17 };
        if !self.is_tcp {
            let length = segment.len() as u16;
            segment[4..6].copy_from_slice(&length.to_be_bytes());
        }
        let mut packet = self.network_header(segment.len(), number);
        let addresses = if self.is_v4 { 12..20 } else { 8..40 };
        let pseudo = sum(&packet[addresses]) + segment.len() as u64 + u64::from(number);
        let checksum = match !fold(pseudo + sum(&segment)) {
            0 if !self.is_tcp => 0xffff,
            checksum => checksum,
        };
        segment[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        packet.extend_from_slice(&segment);
        packet
    }

    fn network_header(&self, length: usize, number: u8) -> Vec<u8> {
        if !self.is_v4 {
            let mut header = vec![0x60 | self.class >> 4, self.class << 4, 0, 9];
            header.extend_from_slice(&(length as u16).to_be_bytes());
            header.extend_from_slice(&[number, 64]);
            header.extend_from_slice(&[0xfd; 15]);
            header.push(self.flow);
            header.extend_from_slice(&[0xfe; 16]);
            return header;
        }
        let mut header = vec![0x45, self.class];
        header.extend_from_slice(&(20 + length as u16).to_be_bytes());
        header.extend_from_slice(&self.id.to_be_bytes());
        header.extend_from_slice(&[u8::from(self.dont_fragment) << 6, 0, 64, number, 0, 0]);
        header.extend_from_slice(&[10, 99, 0, self.flow, 10, 99, 0, 2]);
        let checksum = !fold(sum(&header));
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        header
    }

    fn transport_header(&self) -> Vec<u8> {
        let mut header = (1000 + u16::from(self.flow)).to_be_bytes().to_vec();
        header.extend_from_slice(&80u16.to_be_bytes());
        if !self.is_tcp {
            header.extend_from_slice(&[0; 4]);
            return header;
        }
        header.extend_from_slice(&self.sequence.to_be_bytes());
        header.extend_from_slice(&self.acknowledgement.to_be_bytes());
        header.extend_from_slice(&[(5 + self.options.len() as u8 / 4) << 4, self.flags]);
        header.extend_from_slice(&self.window.to_be_bytes());
        header.extend_from_slice(&[0; 4]);
        header.extend_from_slice(&self.options);
        header
    }
}
