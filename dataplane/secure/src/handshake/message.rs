//! Bytes of handshake messages.
//!
//! ```text
//!                0        1          2             3               4
//!  initiation    0x27     1          sender's id   path            noise, 137  mac1, 16  mac2, 16
//!  response      0x27     2          path          receiver's id   noise, 82   mac1, 16  mac2, 16
//!  cookie        0x27     3          bytes 2 and 3 of the          nonce, 24   sealed cookie, 32
//!                                    message answered
//!  opening       0x27     4          sender's id   profile         see one_way
//!  grant         0x27     5          epochs        columns         see grant
//!  telling       0x27     6          0             0               see group
//!
//!  payload of an initiation   stamp (64), profile (8), marks (256)
//!  payload of a response      sender's id (8), profile (8), marks (256)
//! ```
//!
//! 0x27 marks messages of handshakes; the header in front has the version of the protocol. An id
//! names keys in packets, and is chosen by their receiver. The four bytes before an initiation's
//! noise are part of the prologue of the handshake, including the path: two nodes with several
//! paths between them agree on keys for each. The path is 0 if there is only one, and between the
//! ends of flows.

/// Marks messages of handshakes.
pub(crate) const FIRST_BYTE: u8 = 0x20 | HANDSHAKE_TYPE;

/// The packet type of handshakes.
pub const HANDSHAKE_TYPE: u8 = 7;

pub(super) const INITIATION: u8 = 1;
pub(super) const RESPONSE: u8 = 2;
pub(super) const COOKIE: u8 = 3;
pub(crate) const OPENING: u8 = 4;
pub(crate) const GRANT: u8 = 5;
pub(crate) const GROUP: u8 = 6;

pub(super) const HEADER: usize = 4;
pub(crate) const MAC: usize = 16;
pub(super) const MACS: usize = 2 * MAC;

/// Bytes of a mark. Zeros stand for none.
pub(super) const MARK: usize = 16;

/// Bytes of the marks in a message: its own, and the returned one.
pub const MARKS_BYTES: usize = 2 * MARK;

/// A stamp, a profile, and marks.
pub(super) const INITIATION_PAYLOAD: usize = 9 + MARKS_BYTES;
/// A key id, a profile, and marks.
pub(super) const RESPONSE_PAYLOAD: usize = 2 + MARKS_BYTES;

/// Ephemeral key, static key with its tag, payload with its tag.
const INITIATION_NOISE: usize = 32 + 32 + 16 + INITIATION_PAYLOAD + 16;
/// Ephemeral key, payload with its tag.
const RESPONSE_NOISE: usize = 32 + RESPONSE_PAYLOAD + 16;

pub(super) const INITIATION_BYTES: usize = HEADER + INITIATION_NOISE + MACS;
pub(super) const RESPONSE_BYTES: usize = HEADER + RESPONSE_NOISE + MACS;
pub(super) const NONCE: usize = 24;
pub(super) const COOKIE_BYTES: usize = HEADER + NONCE + MAC + 16;

/// The longest message.
pub const HANDSHAKE_BYTES_MAX: usize = INITIATION_BYTES;

/// A message of a known form and length.
#[derive(Copy, Clone)]
pub(super) enum Message<'a> {
    Initiation { header: &'a [u8; HEADER], noise: &'a [u8] },
    Response { path: u8, receiver: u8, noise: &'a [u8] },
    Cookie { answered: [u8; 2], nonce: &'a [u8; NONCE], sealed: &'a [u8] },
}

/// The path that a message names: anyone may write one. `None` for a cookie, which identifies the
/// message it answers, and for anything that is not a handshake message.
#[must_use]
pub fn path_of(message: &[u8]) -> Option<u8> {
    match parse(message)? {
        Message::Initiation { header, .. } => Some(header[3]),
        Message::Response { path, .. } => Some(path),
        Message::Cookie { .. } => None,
    }
}

/// Whether a message has the form of a response: anyone may write one.
#[must_use]
pub fn is_response(message: &[u8]) -> bool {
    matches!(parse(message), Some(Message::Response { .. }))
}

/// Whether a message has the form of a cookie: anyone may write one.
#[must_use]
pub fn is_cookie(message: &[u8]) -> bool {
    matches!(parse(message), Some(Message::Cookie { .. }))
}

/// Form of a message; `None` if it has none.
pub(super) fn parse(bytes: &[u8]) -> Option<Message<'_>> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    match (*header, bytes.len()) {
        ([FIRST_BYTE, INITIATION, _, _], INITIATION_BYTES) => {
            Some(Message::Initiation { header, noise: &rest[..INITIATION_NOISE] })
        }
        ([FIRST_BYTE, RESPONSE, path, receiver], RESPONSE_BYTES) => {
            Some(Message::Response { path, receiver, noise: &rest[..RESPONSE_NOISE] })
        }
        ([FIRST_BYTE, COOKIE, one, other], COOKIE_BYTES) => {
            let (nonce, sealed) = rest.split_first_chunk()?;
            Some(Message::Cookie { answered: [one, other], nonce, sealed })
        }
        _ => None,
    }
}
