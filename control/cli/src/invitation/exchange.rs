//! Messages between a hub and a box that joins: JSON in Noise, in frames of a TCP connection.
//!
//! ```text
//!  frame: length 2 | kind 1 | content        kind 0: Noise; 1: no such invitation, without content
//! ```
//!
//! Frames of more than [`FRAME_BYTES_MAX`] end the connection. Text of the other side is shown
//! without control characters.

use recoded_network::is_host_name;
use recoded_secure::{JOIN_PAYLOAD_BYTES_MAX, JoinChannel, Refused};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};

/// A payload with the overhead of a handshake, and the kind.
pub const FRAME_BYTES_MAX: usize = JOIN_PAYLOAD_BYTES_MAX + 128;

/// Characters of a reason that the other side gives.
const REASON_CHARS_MAX: usize = 600;

/// Kinds of frames.
const NOISE: u8 = 0;
const UNKNOWN: u8 = 1;

/// Why there is no next message.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The connection ended, or nothing came in time.
    #[error("{0}")]
    Connection(#[from] io::Error),
    /// The hub has no such invitation.
    #[error("the hub does not know this invitation")]
    Unknown,
    /// Not from the other side, or of another version.
    #[error("the other side sent a message that does not fit")]
    Message,
}

impl From<Refused> for ExchangeError {
    fn from(_: Refused) -> ExchangeError {
        ExchangeError::Message
    }
}

/// What the hub offers to the box.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// Name of the box.
    pub name: String,
    /// Name of the hub.
    pub hub: String,
    /// Address or host name where the box finds the hub.
    pub at: String,
    /// `full` or `hop`.
    pub auth: String,
    /// UDP port of all boxes, unless it is the default one.
    pub port: Option<u16>,
    /// Address of the hub in the tunnel, with its length.
    pub hub_tunnel: String,
    /// That of the box.
    pub tunnel: String,
    /// Id of the flow to the box.
    pub id: u32,
}

/// Answer of the hub to the first message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Offer(Offer),
    Refused(String),
}

/// Answer of the box to the offer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Accepted {
        /// Address or host name of the box, if it has a fixed one.
        at: Option<String>,
    },
    Declined(String),
}

/// Last message of the hub.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Done,
    Refused(String),
}

/// Parses an address or host name, without a port, of a command line.
pub fn address(text: &str) -> Result<String, String> {
    let is_address = text.parse::<IpAddr>().is_ok_and(|it| !it.is_unspecified());
    let is_it = is_address || is_host_name(text);
    let rule = || "write an address or host name, without port".into();
    is_it.then(|| text.to_owned()).ok_or_else(rule)
}

/// The payload of a message.
pub fn payload<Message: Serialize>(message: &Message) -> Result<Vec<u8>, ExchangeError> {
    serde_json::to_vec(message).map_err(|_| ExchangeError::Message)
}

/// The message of a payload.
pub fn message<Message: DeserializeOwned>(payload: &[u8]) -> Result<Message, ExchangeError> {
    serde_json::from_slice(payload).map_err(|_| ExchangeError::Message)
}

/// A sealed connection.
pub struct Channel {
    pub stream: TcpStream,
    pub noise: JoinChannel,
}

impl Channel {
    /// Sends a message.
    pub fn send<Message: Serialize>(&mut self, message: &Message) -> Result<(), ExchangeError> {
        let sealed = self.noise.seal(&payload(message)?)?;
        Ok(self.stream.write_all(&frame(&sealed))?)
    }

    /// Receives the next message, within the timeout of the connection.
    pub fn receive<Message: DeserializeOwned>(&mut self) -> Result<Message, ExchangeError> {
        let sealed = read(&mut self.stream)?;
        message(&self.noise.open(&sealed)?)
    }
}

/// A frame of Noise.
pub fn frame(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len() + 1).unwrap_or(u16::MAX);
    [&length.to_be_bytes()[..], &[NOISE], content].concat()
}

/// The answer to a peer without the secret.
pub const fn unknown() -> [u8; 3] {
    [0, 1, UNKNOWN]
}

/// The length of a frame behind its first two bytes.
pub fn length(head: [u8; 2]) -> Result<usize, ExchangeError> {
    let length = usize::from(u16::from_be_bytes(head));
    Some(length)
        .filter(|length| (1..=FRAME_BYTES_MAX).contains(length))
        .ok_or(ExchangeError::Message)
}

/// The content of a frame of Noise.
pub fn content(frame: &[u8]) -> Result<&[u8], ExchangeError> {
    match frame.split_first() {
        Some((&NOISE, content)) => Ok(content),
        Some((&UNKNOWN, [])) => Err(ExchangeError::Unknown),
        _ => Err(ExchangeError::Message),
    }
}

/// Reads a frame of Noise.
pub fn read(stream: &mut impl Read) -> Result<Vec<u8>, ExchangeError> {
    let mut head = [0; 2];
    stream.read_exact(&mut head)?;
    let mut frame = vec![0; length(head)?];
    stream.read_exact(&mut frame)?;
    content(&frame).map(<[u8]>::to_vec)
}

/// A reason of the other side, as one line.
pub fn plain(reason: &str) -> String {
    let plain = reason.chars().map(|it| if it.is_control() { ' ' } else { it });
    plain.take(REASON_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_bounded_and_other_bytes_refused() {
        assert_eq!(read(&mut &frame(b"abc")[..]).unwrap(), b"abc");
        for (bytes, is_it) in [
            (&[][..], "Connection"),
            (&[0, 5, 0, 1][..], "Connection"),
            (&[0, 0][..], "Message"),
            (b"GET / HTTP/1.1\r\n\r\n", "Message"),
            (&[0xff; 70_000][..], "Message"),
            (&[0, 2, 1, 0][..], "Message"),
            (&[0, 1, 9][..], "Message"),
            (&unknown()[..], "Unknown"),
        ] {
            let refused = read(&mut &bytes[..]).unwrap_err();
            assert!(format!("{refused:?}").starts_with(is_it), "{bytes:?}: {refused:?}");
        }
        for text in ["", "{}", "{\"offer\":{}}", "[[[[[[", "null", "\"done\"", "{\"refused\":1}"] {
            assert!(message::<Answer>(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(plain("a\n\x1b[31mb"), "a  [31mb");
    }
}
