//! The packets of a measurement, in both directions. Everything here may be forged.
//!
//! ```text
//!  0      4         5     6         22
//!  | RcPL | version |  0  |  token  |  body (postcard) | padding ..
//! ```
//!
//! The token is what the listener gave for an address, zero before that. A body is a [`Body`] as
//! postcard encodes it; what follows it is padding and is not looked at.

use serde::{Deserialize, Serialize};

use crate::summary::Summary;

/// Version of the packets, raised with every change of them.
pub const VERSION: u8 = 1;

/// UDP port of a listener unless told otherwise: beside that of the daemon, 9426.
pub const PORT: u16 = 9428;

/// A packet that opens a session is this long, so that no answer to one is longer than it: a
/// listener multiplies nothing for addresses that have not proved to be the sender's.
pub const OPENING_BYTES: usize = 96;

/// Longest packet without padding.
pub const BYTES_MAX: usize = 320;

const MAGIC: [u8; 4] = *b"RcPL";
const BODY_AT: usize = 22;

/// Proves that a client receives at the address it sends from.
pub type Token = [u8; 16];

/// A packet.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Packet {
    /// What the listener gave, or zero.
    pub token: Token,
    /// What it says.
    pub body: Body,
}

/// Why a listener does not open a session.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// Another client is being served, for so many seconds at most.
    Busy(u32),
    /// The packet has another version than the listener.
    Version,
}

/// What a packet says. Times are nanoseconds of the sender's clock.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Body {
    /// Client: is anybody there?
    Hello {
        /// Comes back in the answer.
        nonce: u64,
    },
    /// Listener: yes; the token is in this packet.
    Cookie {
        /// That of the question.
        nonce: u64,
    },
    /// Client: here is the token, let us begin.
    Open {
        /// Comes back in the answer.
        nonce: u64,
    },
    /// Listener: a session is open.
    Opened {
        /// That of the question.
        nonce: u64,
        /// Fastest that it sends and wants to be sent to.
        rate_max_kbit: u32,
        /// How long the session may last.
        seconds: u32,
    },
    /// Listener: no session.
    Refused {
        /// That of the question, or zero where it could not be read.
        nonce: u64,
        /// Why.
        refusal: Refusal,
    },
    /// Client: answer at once.
    Ping {
        /// Of this ping.
        number: u32,
        /// When it was sent.
        at: u64,
    },
    /// Listener: the answer.
    Pong {
        /// That of the ping.
        number: u32,
        /// That of the ping.
        at: u64,
        /// How long the listener had it.
        held_nanos: u32,
    },
    /// A packet of a train, padded.
    Data {
        /// Of the train; trains of a direction have ascending numbers.
        train: u32,
        /// Of the packet in its train, from 0.
        number: u32,
        /// When it was sent.
        at: u64,
    },
    /// Client: what came of a train, of which so many were sent?
    Ask {
        /// The train.
        train: u32,
        /// Its packets.
        sent: u32,
    },
    /// Listener: this.
    Report(Summary),
    /// Client: send me a train.
    Send {
        /// Its number.
        train: u32,
        /// Its packets, at most.
        packets: u32,
        /// UDP payload of each.
        payload_bytes: u16,
        /// Between two of them.
        interval_nanos: u32,
    },
    /// Listener: the train has been sent.
    Sent {
        /// Its number.
        train: u32,
        /// Its packets.
        sent: u32,
    },
    /// Client: padded to so many bytes; did it arrive?
    Probe {
        /// UDP payload.
        payload_bytes: u16,
    },
    /// Listener: it did.
    Probed {
        /// That of the probe.
        payload_bytes: u16,
    },
    /// Client: send me one of so many bytes.
    ProbeBack {
        /// UDP payload.
        payload_bytes: u16,
    },
    /// Listener: padded to so many bytes.
    Echo {
        /// That of the question.
        payload_bytes: u16,
    },
    /// Client: done.
    Bye,
}

/// Why bytes are no packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// Not one of ours.
    #[error("this is no packet of a measurement")]
    Foreign,
    /// One of ours, of this other version.
    #[error("a packet of version {0}")]
    Version(u8),
    /// One of ours, and nonsense.
    #[error("a packet that says nothing")]
    Malformed,
}

impl Packet {
    /// Reads a packet. Allocates nothing.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(bytes: &[u8]) -> Result<Packet, ParseError> {
        let (front, body) = bytes.split_at_checked(BODY_AT).ok_or(ParseError::Foreign)?;
        if front[..4] != MAGIC {
            return Err(ParseError::Foreign);
        }
        if front[4] != VERSION {
            return Err(ParseError::Version(front[4]));
        }
        let token = front[6..].try_into().map_err(|_| ParseError::Malformed)?;
        let body = postcard::take_from_bytes(body).map_err(|_| ParseError::Malformed)?;
        Ok(Packet { token, body: body.0 })
    }

    /// Writes it at the front of `buffer` and returns its length without padding; `None` where
    /// the buffer is shorter than that.
    pub fn write(&self, buffer: &mut [u8]) -> Option<usize> {
        let (front, rest) = buffer.split_at_mut_checked(BODY_AT)?;
        front[..4].copy_from_slice(&MAGIC);
        (front[4], front[5]) = (VERSION, 0);
        front[6..].copy_from_slice(&self.token);
        let body = postcard::to_slice(&self.body, rest).ok()?.len();
        Some(BODY_AT + body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn body() -> impl Strategy<Value = Body> {
        let numbers = (any::<u64>(), any::<u32>(), any::<u32>(), any::<u16>());
        (0..17_u8, numbers).prop_map(|(kind, (nonce, a, b, payload_bytes))| match kind {
            0 => Body::Hello { nonce },
            1 => Body::Cookie { nonce },
            2 => Body::Open { nonce },
            3 => Body::Opened { nonce, rate_max_kbit: a, seconds: b },
            4 => Body::Refused { nonce, refusal: Refusal::Busy(a) },
            5 => Body::Refused { nonce, refusal: Refusal::Version },
            6 => Body::Ping { number: a, at: nonce },
            7 => Body::Pong { number: a, at: nonce, held_nanos: b },
            8 => Body::Data { train: a, number: b, at: nonce },
            9 => Body::Ask { train: a, sent: b },
            10 => Body::Report(Summary { train: a, sent: b, ..Summary::default() }),
            11 => Body::Send { train: a, packets: b, payload_bytes, interval_nanos: a },
            12 => Body::Sent { train: a, sent: b },
            13 => Body::Probe { payload_bytes },
            14 => Body::Probed { payload_bytes },
            15 => Body::ProbeBack { payload_bytes },
            _ => Body::Echo { payload_bytes },
        })
    }

    proptest! {
        #[test]
        fn packet_that_was_written_is_read_with_any_padding(
            token: Token, body in body(), padding in 0..1500_usize,
        ) {
            let mut bytes = vec![0xA5; BYTES_MAX + padding];
            let packet = Packet { token, body };
            let length = packet.write(&mut bytes).expect("it fits");
            prop_assert_eq!(Packet::parse(&bytes[..length]), Ok(packet));
            prop_assert_eq!(Packet::parse(&bytes), Ok(packet));
            for short in 0..length {
                prop_assert!(Packet::parse(&bytes[..short]).is_err());
                prop_assert!(packet.write(&mut bytes[..short].to_vec()).is_none());
            }
        }

        #[test]
        fn any_bytes_are_a_packet_or_an_error(bytes: Vec<u8>, is_ours: bool) {
            let mut bytes = bytes;
            if is_ours && bytes.len() > 5 {
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[4] = VERSION;
            }
            if let Ok(packet) = Packet::parse(&bytes) {
                let mut again = [0; BYTES_MAX];
                let length = packet.write(&mut again).expect("it fits");
                prop_assert_eq!(Packet::parse(&again[..length]), Ok(packet));
            }
        }
    }

    #[test]
    fn packets_of_other_versions_and_others_are_told_apart() {
        let mut bytes = [0; BYTES_MAX];
        let packet = Packet { token: [7; 16], body: Body::Bye };
        let length = packet.write(&mut bytes).expect("it fits");
        bytes[4] = VERSION + 1;
        assert_eq!(Packet::parse(&bytes[..length]), Err(ParseError::Version(VERSION + 1)));
        bytes[0] = b'x';
        assert_eq!(Packet::parse(&bytes[..length]), Err(ParseError::Foreign));
        assert_eq!(Packet::parse(&[]), Err(ParseError::Foreign));
    }

    /// What a listener sends to an address that has proved nothing.
    #[test]
    fn no_answer_to_an_opening_packet_is_longer_than_it() {
        let nonce = u64::MAX;
        for body in [
            Body::Cookie { nonce },
            Body::Opened { nonce, rate_max_kbit: u32::MAX, seconds: u32::MAX },
            Body::Refused { nonce, refusal: Refusal::Busy(u32::MAX) },
        ] {
            let mut bytes = [0; BYTES_MAX];
            let length = Packet { token: [0xFF; 16], body }.write(&mut bytes);
            assert!(length.is_some_and(|length| length <= OPENING_BYTES));
        }
    }

    #[test]
    fn longest_packet_without_padding_fits() {
        let summary = Summary {
            train: u32::MAX,
            sent: u32::MAX,
            received: u32::MAX,
            duplicates: u32::MAX,
            overtaken: u32::MAX,
            overrun: u32::MAX,
            runs: u32::MAX,
            runs_by_length: [u32::MAX; 8],
            lost_late: u32::MAX,
            span_packets: u32::MAX,
            span_came_nanos: u64::MAX,
            span_sent_nanos: u64::MAX,
            way_min_nanos: i64::MIN,
            queue_median_nanos: u64::MAX,
            queue_p99_nanos: u64::MAX,
            queue_max_nanos: u64::MAX,
            queue_early_nanos: u64::MAX,
            queue_late_nanos: u64::MAX,
        };
        let packet = Packet { token: [0xFF; 16], body: Body::Report(summary) };
        assert!(packet.write(&mut [0; BYTES_MAX]).is_some());
    }
}
