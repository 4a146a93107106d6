//! Messages, byte by byte. Numbers are big-endian. The README of this crate has the same table.
//!
//! ```text
//!  0  'S' 'W'   2  version   3  type   4..  fields of the type   [ 16 bytes MAC, with a key ]
//! ```
//!
//! Parsing allocates nothing and reads no byte twice; every length is checked.

use crate::bounds::{BLOCKS_MAX, VERSION};

/// First bytes of every datagram.
const MAGIC: [u8; 2] = *b"SW";

/// Bytes of a cookie.
pub(crate) const COOKIE_BYTES: usize = 16;

/// Bytes before the fields of a message.
const HEADER_BYTES: usize = 4;

/// Bytes of a hello: more than any message that answers an address without a valid cookie.
pub const HELLO_BYTES: usize = 92;

/// Segments that a request names: those a receiver decodes at the same time.
pub const GRANTS_MAX: usize = 8;

/// Bytes of a part of a manifest, so that it fits every IPv6 path.
pub const PART_BYTES: usize = 1024;

/// Fixed bytes of a block, before its coding vector or seed.
const BLOCK_FIXED_BYTES: usize = HEADER_BYTES + 8 + 4 + 4 + 2 + 1;

/// Most bytes of a datagram of this protocol.
pub const DATAGRAM_BYTES_MAX: usize = 4608;

/// Why a hello was refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// All places of the table of peers are taken.
    Full,
    /// Another content is served here.
    OtherContent,
}

/// Start of a session.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Id of the content.
    pub content: [u8; 32],
    /// Random number that the answer repeats.
    pub nonce: u64,
    /// The cookie of the challenge; zeros in the first hello.
    pub cookie: [u8; COOKIE_BYTES],
    /// X25519 public key of this session, to seal checks.
    pub public_key: [u8; 32],
}

/// A session was created, or exists.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The nonce of the hello.
    pub nonce: u64,
    /// Random number of the session.
    pub session: u64,
    /// Bytes of the manifest.
    pub manifest_bytes: u32,
    /// Whether the sender holds the key of the source, and so issues checks.
    pub is_source: bool,
}

/// How many blocks of a segment the receiver wants, counted since the session began with it.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Grant {
    /// The segment.
    pub segment: u32,
    /// Blocks in all. It only grows, so requests may be lost and repeated.
    pub total: u32,
}

/// All grants of a receiver. A segment that is not named is no longer wanted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The session.
    pub session: u64,
    /// Number of this request. Older requests than the latest one have no effect.
    pub sequence: u32,
    /// Rate that the receiver requests, in kbit/s; 0 means the sender's limit.
    pub rate_kbit: u32,
    /// The grants, the most urgent one first.
    pub grants: [Grant; GRANTS_MAX],
    /// Number of grants.
    pub count: usize,
}

/// Coefficients of a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Coding<'a> {
    /// Seed of the coefficients, from a sender that holds the segment.
    Seed(u64),
    /// A coefficient for each block of the segment, from a sender that recodes.
    Vector(&'a [u8]),
}

/// A linear combination of the blocks of a segment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Block<'a> {
    /// The session.
    pub session: u64,
    /// The segment.
    pub segment: u32,
    /// Blocks of this segment that the session was sent before.
    pub number: u32,
    /// Degrees of freedom that the sender has of this segment.
    pub rank: u16,
    /// The coefficients.
    pub coding: Coding<'a>,
    /// The combination.
    pub payload: &'a [u8],
}

/// A message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are those of the structures above")]
pub enum Message<'a> {
    /// Type 1, by a receiver.
    Hello(Hello),
    /// Type 2: the address is to be proven by a hello with this cookie.
    Challenge { nonce: u64, cookie: [u8; COOKIE_BYTES] },
    /// Type 3: a session.
    Welcome(Welcome),
    /// Type 4: no session.
    Refused { nonce: u64, reason: Refusal },
    /// Type 5: a part of the manifest is wanted.
    ManifestRequest { session: u64, offset: u32 },
    /// Type 6: a part of the manifest.
    ManifestPart { session: u64, offset: u32, bytes: &'a [u8] },
    /// Type 7: the checks of a segment are wanted.
    ChecksRequest { session: u64, segment: u32, part: u8 },
    /// Type 8: sealed checks of 128 blocks.
    Checks { session: u64, segment: u32, part: u8, sealed: &'a [u8] },
    /// Type 9: blocks are wanted.
    Request(Request),
    /// Type 10: a block.
    Block(Block<'a>),
    /// Type 11: the sender has nothing of this segment.
    Unavailable { session: u64, segment: u32 },
    /// Type 12: the session ends; of either side.
    Bye { session: u64 },
}

/// The bytes are no message of this version.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Malformed;

/// Reads fields in order.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (first, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(first)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

impl<'a> Message<'a> {
    /// Parses untrusted bytes.
    ///
    /// # Errors
    /// They are no message of this version, too short or too long.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(bytes);
        if fields.array()? != MAGIC || fields.u8()? != VERSION {
            return Err(Malformed);
        }
        let message = Self::parse_fields(&mut fields)?;
        if fields.0.is_empty() { Ok(message) } else { Err(Malformed) }
    }

    fn parse_fields(fields: &mut Fields<'a>) -> Result<Self, Malformed> {
        Ok(match fields.u8()? {
            1 => Self::Hello(Hello {
                content: fields.array()?,
                nonce: fields.u64()?,
                cookie: fields.array()?,
                public_key: fields.array()?,
            }),
            2 => Self::Challenge { nonce: fields.u64()?, cookie: fields.array()? },
            3 => Self::Welcome(Welcome {
                nonce: fields.u64()?,
                session: fields.u64()?,
                manifest_bytes: fields.u32()?,
                is_source: flag(fields.u8()?)?,
            }),
            4 => Self::Refused { nonce: fields.u64()?, reason: refusal(fields.u8()?)? },
            5 => Self::ManifestRequest { session: fields.u64()?, offset: fields.u32()? },
            6 => Self::ManifestPart {
                session: fields.u64()?,
                offset: fields.u32()?,
                bytes: fields.rest(),
            },
            7 => Self::ChecksRequest {
                session: fields.u64()?,
                segment: fields.u32()?,
                part: fields.u8()?,
            },
            8 => Self::Checks {
                session: fields.u64()?,
                segment: fields.u32()?,
                part: fields.u8()?,
                sealed: fields.rest(),
            },
            9 => Self::Request(parse_request(fields)?),
            10 => Self::Block(parse_block(fields)?),
            11 => Self::Unavailable { session: fields.u64()?, segment: fields.u32()? },
            12 => Self::Bye { session: fields.u64()? },
            _ => return Err(Malformed),
        })
    }

    /// Appends the message to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(MAGIC);
        out.extend([VERSION, self.number()]);
        match *self {
            Self::Hello(hello) => {
                out.extend(hello.content);
                out.extend(hello.nonce.to_be_bytes());
                out.extend(hello.cookie);
                out.extend(hello.public_key);
            }
            Self::Challenge { nonce, cookie } => {
                out.extend(nonce.to_be_bytes());
                out.extend(cookie);
            }
            Self::Welcome(welcome) => {
                out.extend(welcome.nonce.to_be_bytes());
                out.extend(welcome.session.to_be_bytes());
                out.extend(welcome.manifest_bytes.to_be_bytes());
                out.push(welcome.is_source.into());
            }
            Self::Refused { nonce, reason } => {
                out.extend(nonce.to_be_bytes());
                out.push(match reason {
                    Refusal::Full => 1,
                    Refusal::OtherContent => 2,
                });
            }
            Self::ManifestRequest { session, offset } => write_place(out, session, offset, None),
            Self::ManifestPart { session, offset, bytes } => {
                write_place(out, session, offset, None);
                out.extend(bytes);
            }
            Self::ChecksRequest { session, segment, part } => {
                write_place(out, session, segment, Some(part));
            }
            Self::Checks { session, segment, part, sealed } => {
                write_place(out, session, segment, Some(part));
                out.extend(sealed);
            }
            Self::Request(request) => write_request(out, &request),
            Self::Block(block) => {
                write_block_head(out, &block);
                out.extend(block.payload);
            }
            Self::Unavailable { session, segment } => write_place(out, session, segment, None),
            Self::Bye { session } => out.extend(session.to_be_bytes()),
        }
    }

    const fn number(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Challenge { .. } => 2,
            Self::Welcome(_) => 3,
            Self::Refused { .. } => 4,
            Self::ManifestRequest { .. } => 5,
            Self::ManifestPart { .. } => 6,
            Self::ChecksRequest { .. } => 7,
            Self::Checks { .. } => 8,
            Self::Request(_) => 9,
            Self::Block(_) => 10,
            Self::Unavailable { .. } => 11,
            Self::Bye { .. } => 12,
        }
    }
}

/// Writes everything of a block but its payload, header included, into `head`.
pub(crate) fn block_head(out: &mut Vec<u8>, block: &Block<'_>) {
    out.extend(MAGIC);
    out.extend([VERSION, 10]);
    write_block_head(out, block);
}

/// Bytes of a block before its payload.
pub(crate) const fn block_head_bytes(coding: &Coding<'_>) -> usize {
    BLOCK_FIXED_BYTES
        + match coding {
            Coding::Seed(_) => 8,
            Coding::Vector(vector) => 2 + vector.len(),
        }
}

fn write_block_head(out: &mut Vec<u8>, block: &Block<'_>) {
    write_place(out, block.session, block.segment, None);
    out.extend(block.number.to_be_bytes());
    out.extend(block.rank.to_be_bytes());
    match block.coding {
        Coding::Seed(seed) => {
            out.push(0);
            out.extend(seed.to_be_bytes());
        }
        Coding::Vector(vector) => {
            out.push(1);
            out.extend((vector.len() as u16).to_be_bytes());
            out.extend(vector);
        }
    }
}

fn write_place(out: &mut Vec<u8>, session: u64, place: u32, part: Option<u8>) {
    out.extend(session.to_be_bytes());
    out.extend(place.to_be_bytes());
    out.extend(part);
}

fn write_request(out: &mut Vec<u8>, request: &Request) {
    write_place(out, request.session, request.sequence, None);
    out.extend(request.rate_kbit.to_be_bytes());
    let grants = &request.grants[..request.count.min(GRANTS_MAX)];
    out.push(grants.len() as u8);
    for grant in grants {
        out.extend(grant.segment.to_be_bytes());
        out.extend(grant.total.to_be_bytes());
    }
}

fn parse_request(fields: &mut Fields<'_>) -> Result<Request, Malformed> {
    let (session, sequence, rate_kbit) = (fields.u64()?, fields.u32()?, fields.u32()?);
    let count = usize::from(fields.u8()?);
    let mut grants = [Grant::default(); GRANTS_MAX];
    for grant in grants.get_mut(..count).ok_or(Malformed)? {
        *grant = Grant { segment: fields.u32()?, total: fields.u32()? };
    }
    Ok(Request { session, sequence, rate_kbit, grants, count })
}

fn parse_block<'a>(fields: &mut Fields<'a>) -> Result<Block<'a>, Malformed> {
    let (session, segment, number) = (fields.u64()?, fields.u32()?, fields.u32()?);
    let rank = fields.u16()?;
    let coding = match fields.u8()? {
        0 => Coding::Seed(fields.u64()?),
        1 => {
            let length = fields.u16()?;
            if length > BLOCKS_MAX {
                return Err(Malformed);
            }
            Coding::Vector(fields.bytes(length.into())?)
        }
        _ => return Err(Malformed),
    };
    Ok(Block { session, segment, number, rank, coding, payload: fields.rest() })
}

const fn flag(byte: u8) -> Result<bool, Malformed> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

const fn refusal(byte: u8) -> Result<Refusal, Malformed> {
    match byte {
        1 => Ok(Refusal::Full),
        2 => Ok(Refusal::OtherContent),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn examples(bytes: &[u8]) -> Vec<Message<'_>> {
        let mut grants = [Grant::default(); GRANTS_MAX];
        grants[0] = Grant { segment: 3, total: 200 };
        let block = |coding| {
            Message::Block(Block {
                session: 1,
                segment: 2,
                number: 3,
                rank: 4,
                coding,
                payload: bytes,
            })
        };
        vec![
            Message::Hello(Hello {
                content: [1; 32],
                nonce: 2,
                cookie: [3; 16],
                public_key: [4; 32],
            }),
            Message::Challenge { nonce: 5, cookie: [6; 16] },
            Message::Welcome(Welcome { nonce: 1, session: 2, manifest_bytes: 3, is_source: true }),
            Message::Refused { nonce: 1, reason: Refusal::Full },
            Message::Refused { nonce: 1, reason: Refusal::OtherContent },
            Message::ManifestRequest { session: 1, offset: 2 },
            Message::ManifestPart { session: 1, offset: 2, bytes },
            Message::ChecksRequest { session: 1, segment: 2, part: 1 },
            Message::Checks { session: 1, segment: 2, part: 1, sealed: bytes },
            Message::Request(Request { session: 1, sequence: 2, rate_kbit: 3, grants, count: 1 }),
            block(Coding::Seed(9)),
            block(Coding::Vector(&bytes[..7])),
            Message::Unavailable { session: 1, segment: 2 },
            Message::Bye { session: 1 },
        ]
    }

    #[test]
    fn messages_survive_their_bytes() {
        for message in examples(&[5; 64]) {
            let mut bytes = Vec::new();
            message.write(&mut bytes);
            assert_eq!(Message::parse(&bytes), Ok(message));
            for length in 0..bytes.len() {
                // A shorter one is malformed, or has shorter contents.
                assert_ne!(Message::parse(&bytes[..length]), Ok(message));
            }
        }
    }

    #[test]
    fn answers_to_unproven_addresses_are_shorter_than_a_hello() {
        let length = |message: &Message<'_>| {
            let mut bytes = Vec::new();
            message.write(&mut bytes);
            bytes.len()
        };
        let examples = examples(&[5; 64]);
        assert_eq!(length(&examples[0]), HELLO_BYTES);
        assert!(examples[1..5].iter().all(|answer| length(answer) < HELLO_BYTES));
    }

    #[test]
    fn random_bytes_do_not_panic() {
        let mut random = Random::new(&crate::tests_seed());
        let examples = examples(&[5; 64]);
        for round in 0..200_000 {
            let mut bytes = Vec::new();
            examples[round % examples.len()].write(&mut bytes);
            for _ in 0..1 + random.number() % 4 {
                let index = random.number() as usize % bytes.len();
                bytes[index] = random.number() as u8;
            }
            bytes.truncate(random.number() as usize % (bytes.len() + 1));
            if let Ok(message) = Message::parse(&bytes) {
                let mut again = Vec::new();
                message.write(&mut again);
                assert_eq!(again, bytes, "one message has one form");
            }
        }
    }
}
