//! The packets of a measurement, in both directions. Everything here may be forged.
//!
//! ```text
//!  0      4         5     6         22
//!  | RcPL | version |  0  |  token  |  body (postcard) | padding ..
//! ```
//!
//! The token is the one that the listener issued for an address, zero before that. A body is a
//! [`Body`] in postcard encoding; padding after it is ignored.

use serde::{Deserialize, Serialize};

use crate::summary::Summary;

/// Version of the packets, incremented with every change.
pub const VERSION: u8 = 1;

/// Default UDP port of a listener, close to the daemon's 9426.
pub const PORT: u16 = 9428;

/// Length of a packet that opens a session. No response to one is longer, so a listener does not
/// amplify traffic to unverified addresses.
pub const OPENING_BYTES: usize = 96;

/// Longest packet without padding.
pub const BYTES_MAX: usize = 320;

const MAGIC: [u8; 4] = *b"RcPL";
const BODY_AT: usize = 22;

/// Proves that a client receives at its source address.
pub type Token = [u8; 16];

/// A packet.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Packet {
    /// Issued by the listener, or zero.
    pub token: Token,
    /// Its message.
    pub body: Body,
}

/// Why a listener refuses a session.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// Another client is being served, for at most this many seconds.
    Busy(u32),
    /// The packet has another version than the listener.
    Version,
}

/// Message of a packet. Times are nanoseconds of the sender's clock.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Body {
    /// Client: request for a token.
    Hello {
        /// Echoed in the response.
        nonce: u64,
    },
    /// Listener: the token, which is in this packet's header.
    Cookie {
        /// From the request.
        nonce: u64,
    },
    /// Client: request for a session, with the token.
    Open {
        /// Echoed in the response.
        nonce: u64,
    },
    /// Listener: a session is open.
    Opened {
        /// From the request.
        nonce: u64,
        /// Highest rate in both directions.
        rate_max_kbit: u32,
        /// Longest duration of the session.
        seconds: u32,
    },
    /// Listener: no session.
    Refused {
        /// From the request, or zero if it was unreadable.
        nonce: u64,
        /// The reason.
        refusal: Refusal,
    },
    /// Client: request for an immediate response.
    Ping {
        /// Number of the ping.
        number: u32,
        /// Time sent.
        at: u64,
    },
    /// Listener: response to a ping.
    Pong {
        /// From the ping.
        number: u32,
        /// From the ping.
        at: u64,
        /// Time that the listener held it.
        held_nanos: u32,
    },
    /// A packet of a train, padded.
    Data {
        /// The train; numbers increase in each direction.
        train: u32,
        /// Index in its train, from 0.
        number: u32,
        /// Time sent.
        at: u64,
    },
    /// Client: query about a train of this many packets.
    Ask {
        /// The train.
        train: u32,
        /// Its packets.
        sent: u32,
    },
    /// Listener: the summary.
    Report(Summary),
    /// Client: request for a train.
    Send {
        /// Its number.
        train: u32,
        /// Maximum number of packets.
        packets: u32,
        /// UDP payload of each packet.
        payload_bytes: u16,
        /// Interval between packets.
        interval_nanos: u32,
    },
    /// Listener: the end of a train.
    Sent {
        /// Its number.
        train: u32,
        /// Packets sent.
        sent: u32,
    },
    /// Client: size probe, padded to this size.
    Probe {
        /// UDP payload.
        payload_bytes: u16,
    },
    /// Listener: confirms a probe.
    Probed {
        /// From the probe.
        payload_bytes: u16,
    },
    /// Client: request for a packet of this size.
    ProbeBack {
        /// UDP payload.
        payload_bytes: u16,
    },
    /// Listener: packet padded to the requested size.
    Echo {
        /// From the request.
        payload_bytes: u16,
    },
    /// Client: end of the session.
    Bye,
}

/// Why bytes are not a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// Not a packet of this protocol.
    #[error("this is no packet of a measurement")]
    Foreign,
    /// A packet of this protocol with another version.
    #[error("a packet of version {0}")]
    Version(u8),
    /// A packet of this protocol that is malformed.
    #[error("a packet that says nothing")]
    Malformed,
}

impl Packet {
    /// Reads a packet. Allocates nothing.
    ///
    /// # Errors
    /// It is not a valid packet.
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

    /// Writes it at the front of `buffer` and returns its length without padding; `None` if the
    /// buffer is too short.
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

    /// Responses of a listener to an unverified address.
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
