//! Packing of IP packets into symbols: `[length (16)][bytes]` back to back through all symbols of a
//! generation, so that small packets waste nothing and large ones span symbols. A length of zero
//! ends it.
//!
//! Packets never span generations: a generation that cannot be decoded costs only its own packets.

use crate::base::layout::{LENGTH_BYTES, MARKER, SEALED_BYTES_MIN};

/// Smallest useful entry: a length and an IPv4 header, sealed or not.
pub(crate) fn entry_bytes_min(sealed: bool) -> usize {
    LENGTH_BYTES + if sealed { SEALED_BYTES_MIN } else { 20 }
}

/// Longest packet that the length field can express.
pub(crate) const LENGTH_MAX: usize = u16::MAX as usize;

/// The length in front of a packet of at most [`LENGTH_MAX`] bytes.
pub(crate) fn length_of(packet: &[u8]) -> [u8; LENGTH_BYTES] {
    (packet.len() as u16).to_be_bytes()
}

/// Reads the packets of one generation, symbol by symbol in order.
#[derive(Debug)]
pub(crate) struct Unpacker {
    partial: Vec<u8>,
    expected: usize,
    length_high: Option<u8>,
    ended: bool,
}

impl Unpacker {
    /// An unpacker with its buffer allocated.
    pub(crate) fn new() -> Unpacker {
        Unpacker {
            partial: Vec::with_capacity(LENGTH_MAX),
            expected: 0,
            length_high: None,
            ended: false,
        }
    }

    /// Starts a generation; an incomplete packet of the last one is discarded.
    pub(crate) fn reset(&mut self) {
        self.partial.clear();
        self.expected = 0;
        self.length_high = None;
        self.ended = false;
    }

    /// Takes the next symbol. Calls `deliver` for each packet completed; a packet wholly inside the
    /// symbol is passed without a copy.
    pub(crate) fn feed(&mut self, mut symbol: &[u8], mut deliver: impl FnMut(&[u8])) {
        while !symbol.is_empty() && !self.ended {
            if self.expected == 0 {
                symbol = self.read_length(symbol);
                continue;
            }
            let wanted = self.expected - self.partial.len();
            let (bytes, rest) = symbol.split_at(wanted.min(symbol.len()));
            symbol = rest;
            if bytes.len() < wanted {
                self.partial.extend_from_slice(bytes);
                continue;
            }
            if self.partial.is_empty() {
                deliver(bytes);
            } else {
                self.partial.extend_from_slice(bytes);
                deliver(&self.partial);
                self.partial.clear();
            }
            self.expected = 0;
        }
    }

    fn read_length<'a>(&mut self, symbol: &'a [u8]) -> &'a [u8] {
        match self.length_high.take() {
            None => self.length_high = Some(symbol[0]),
            Some(high) => {
                self.expected = usize::from(u16::from_be_bytes([high, symbol[0]]));
                self.ended = self.expected == 0;
            }
        }
        &symbol[1..]
    }
}

/// Whether `packet` is one IPv4 or IPv6 packet of exactly its own length: the check before a
/// decoded packet is delivered.
pub(crate) fn is_ip_packet(packet: &[u8]) -> bool {
    let half = |at: usize| {
        packet.get(at..at + 2).map(|bytes| usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
    };
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => packet.len() >= 20 && half(2) == Some(packet.len()),
        Some(6) => packet.len() >= 40 && half(4).map(|payload| payload + 40) == Some(packet.len()),
        _ => false,
    }
}

/// Whether the first symbol of a unit begins with an IP packet, or a sealed one, as far as the
/// symbol shows.
pub(crate) fn begins_with_packet(symbol: &[u8], sealed: bool) -> bool {
    let half =
        |at: usize| symbol.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let Some(length) = half(0) else { return false };
    let Some(version) = symbol.get(LENGTH_BYTES).map(|byte| byte >> 4) else { return false };
    if sealed {
        let marker = symbol[LENGTH_BYTES];
        return marker == MARKER && usize::from(length) >= SEALED_BYTES_MIN;
    }
    match version {
        4 => length >= 20 && half(LENGTH_BYTES + 2).is_none_or(|total| total == length),
        6 => {
            length >= 40
                && half(LENGTH_BYTES + 4).is_none_or(|rest| rest.checked_add(40) == Some(length))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pack(packets: &[Vec<u8>], symbol_bytes: usize) -> Vec<Vec<u8>> {
        let mut stream = Vec::new();
        for packet in packets {
            stream.extend_from_slice(&(packet.len() as u16).to_be_bytes());
            stream.extend_from_slice(packet);
        }
        stream.resize(stream.len().div_ceil(symbol_bytes).max(1) * symbol_bytes, 0);
        stream.chunks(symbol_bytes).map(<[u8]>::to_vec).collect()
    }

    proptest! {
        #[test]
        fn packets_packed_are_unpacked_in_order(
            packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 0..40),
            symbol_bytes in 1usize..150,
        ) {
            let mut unpacker = Unpacker::new();
            for _ in 0..2 {
                unpacker.reset();
                let mut seen = Vec::new();
                for symbol in pack(&packets, symbol_bytes) {
                    unpacker.feed(&symbol, |packet| seen.push(packet.to_vec()));
                }
                prop_assert_eq!(&seen, &packets);
            }
        }

        #[test]
        fn random_symbols_never_panic(
            symbols in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..20),
        ) {
            let mut unpacker = Unpacker::new();
            for symbol in &symbols {
                unpacker.feed(symbol, |_| ());
            }
            prop_assert!(unpacker.partial.capacity() == LENGTH_MAX);
        }
    }

    #[test]
    fn ip_packet_of_another_length_is_refused() {
        let mut packet = vec![0x45; 40];
        packet[2..4].copy_from_slice(&40u16.to_be_bytes());
        assert!(is_ip_packet(&packet));
        packet[3] = 41;
        assert!(!is_ip_packet(&packet));
        assert!(!is_ip_packet(&[]));
        assert!(!is_ip_packet(&[0x60; 30]));
    }

    #[test]
    fn units_begin_with_packets_of_their_kind() {
        let least = SEALED_BYTES_MIN as u8;
        for (symbol, is_clear, is_sealed) in [
            (&[0, 20, 0x45, 0, 0, 20][..], true, false),
            (&[0, 20, 0x45, 0, 0, 21][..], false, false),
            (&[0, least, MARKER, 0, 0, 0][..], false, true),
            (&[0, least - 1, MARKER, 0, 0, 0][..], false, false),
            (&[0, least, MARKER][..], false, true),
            (&[0, least][..], false, false),
        ] {
            let begins = [false, true].map(|sealed| begins_with_packet(symbol, sealed));
            assert_eq!(begins, [is_clear, is_sealed], "{symbol:?}");
        }
    }
}
