//! Where the pipeline's results go. The runtime implements this over rings and a TUN interface, the
//! simulator over queues.

pub use crate::layout::{ENVELOPE_BYTES, STRICT_TAG_BYTES, TAG_BYTES};
use crate::params::{PeerId, ShardId, TunnelId};
use crate::plan::PlanRequest;
use crate::segmentation::Comparison;
use crate::stage_memory::{OpenRequest, Rent};
use recoded_wire::frames::Span;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// What came of a packet for the shard of another worker.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HandOver {
    /// No other worker has the shard.
    Unowned,
    /// It was taken.
    Taken,
    /// The worker that has it can take no more.
    Full,
}

/// Why a packet was not sealed, or not opened.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Unsealed {
    /// There are no keys, none for this packet, or they are used up.
    NoKeys,
    /// It is not genuine, or it came before.
    Refused,
}

impl fmt::Display for Unsealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoKeys => "no keys for this packet",
            Self::Refused => "the packet is not genuine, or came before",
        })
    }
}

impl Error for Unsealed {}

/// Bytes of a [`TaggedUnit`]'s context.
pub const CONTEXT_BYTES: usize = 16;

/// A unit whose symbols have tags, and what those are bound to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TaggedUnit {
    /// The shard that it is of.
    pub shard: ShardId,
    /// What it is.
    pub kind: UnitKind,
    /// Its number, which does not repeat as long as a key is valid.
    pub number: u64,
    /// What all of its packets say; of a stream, what a symbol says of itself.
    pub context: [u8; CONTEXT_BYTES],
}

/// What a unit is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum UnitKind {
    /// A generation.
    Generation,
    /// A batch.
    Batch,
    /// [`STREAM_UNIT`] symbols of a stream in a row.
    Stream,
}

/// Symbols of a stream that are a unit: number modulo this is the index of one.
pub const STREAM_UNIT: u32 = 16;

/// How a symbol was formed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Formed<'a> {
    /// It is that of this index, as the source formed it.
    Source(usize),
    /// By these coefficients, elements of GF(256).
    Combination(&'a [u8]),
}

/// Why a symbol has no tag, or a wrong one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Untagged {
    /// There are no keys.
    NoKeys,
    /// It is not what honest nodes make of what the source sent.
    Refused,
}

impl fmt::Display for Untagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoKeys => "no keys for tags of this flow",
            Self::Refused => "the tag of the symbol is wrong",
        })
    }
}

impl Error for Untagged {}

/// Receives what the pipeline decided, and has the keys of sealed and tagged flows. Nothing here
/// may block.
pub trait Egress {
    /// Sends the UDP payload in `span` to a neighbour, in a packet that `outer` describes.
    ///
    /// Takes over one reference to the frame, also when it must drop the packet, which it counts.
    /// The frame's bytes in front of the span may be overwritten (`HEADROOM_BYTES` of them);
    /// the span itself may not.
    fn transmit(&mut self, peer: PeerId, span: Span, outer: Outer);

    /// Bytes a second that our side of the link to a neighbour lets through at most, with headers,
    /// if that is limited: what exceeds it is dropped by [`Egress::transmit`].
    fn pace(&self, peer: PeerId) -> Option<f64> {
        let _ = peer;
        None
    }

    /// A neighbour reported the fate of these packets. Its reports may say anything.
    fn reported(&mut self, peer: PeerId, comparison: &Comparison) {
        let _ = (peer, comparison);
    }

    /// Hands a decoded IP packet to a tunnel.
    fn deliver(&mut self, tunnel: TunnelId, packet: &[u8]);

    /// Encrypts an IP packet of a source into `out`, which is [`ENVELOPE_BYTES`] longer, for the
    /// sink of its flow.
    ///
    /// # Errors
    /// It cannot be encrypted. It is dropped and counted.
    fn seal(&mut self, shard: ShardId, packet: &[u8], out: &mut [u8]) -> Result<(), Unsealed> {
        let _ = (shard, packet, out);
        Err(Unsealed::NoKeys)
    }

    /// Decrypts what [`Egress::seal`] made here, as long as its keys are valid. `packet` is
    /// [`ENVELOPE_BYTES`] shorter.
    ///
    /// # Errors
    /// It cannot be decrypted.
    fn open_own(
        &mut self,
        shard: ShardId,
        sealed: &[u8],
        packet: &mut [u8],
    ) -> Result<(), Unsealed> {
        let _ = (shard, sealed, packet);
        Err(Unsealed::NoKeys)
    }

    /// Decrypts in place what [`Egress::seal`] made at the source, each packet once. The packet
    /// lies in `sealed`, behind the header of the envelope. What comes here may be forged, of any
    /// length from [`ENVELOPE_BYTES`] and 20 on.
    ///
    /// # Errors
    /// It cannot be decrypted, or was before. It is dropped and counted.
    fn unseal<'a>(&mut self, shard: ShardId, sealed: &'a mut [u8]) -> Result<&'a [u8], Unsealed> {
        let _ = (shard, sealed);
        Err(Unsealed::NoKeys)
    }

    /// The key that symbols of a unit which begins now are tagged with, by a number that names it
    /// as long as the unit is open.
    fn tag_key(&mut self, shard: ShardId) -> Option<u8> {
        let _ = shard;
        None
    }

    /// Writes the tag of symbol `index` of a unit of a source into the first [`TAG_BYTES`] of
    /// `symbol`, or [`STRICT_TAG_BYTES`], and its payload follows; of a stream into the last ones.
    ///
    /// # Errors
    /// The key is gone, or such a symbol has no tag.
    fn tag(
        &mut self,
        key: u8,
        unit: &TaggedUnit,
        index: usize,
        symbol: &mut [u8],
    ) -> Result<(), Untagged> {
        let _ = (key, unit, index, symbol);
        Err(Untagged::NoKeys)
    }

    /// Verifies a symbol, tag and payload, that came for a tagged flow. All of it may be forged.
    ///
    /// # Errors
    /// It is not of the unit, or there are no keys.
    fn verify(
        &mut self,
        unit: &TaggedUnit,
        formed: Formed<'_>,
        symbol: &[u8],
    ) -> Result<(), Untagged> {
        let _ = (unit, formed, symbol);
        Err(Untagged::NoKeys)
    }

    /// Whether there are keys to verify symbols of a shard by: a symbol of others was tagged for a
    /// session before this one.
    fn has_keys(&mut self, shard: ShardId) -> bool {
        let _ = shard;
        false
    }

    /// So many symbols with wrong tags came from a neighbour that its keys should be changed.
    fn distrust(&mut self, peer: PeerId) {
        let _ = peer;
    }

    /// Offers a product to an accelerator. When it takes it, it calls `fill` at once, which writes
    /// all inputs, and says later what came of it: [`Pipeline::solved`](crate::Pipeline::solved).
    fn offload(
        &mut self,
        ticket: Ticket,
        product: Product,
        fill: impl FnOnce(&mut dyn ProductInputs),
    ) -> bool {
        let _ = (ticket, product, fill);
        false
    }

    /// Asks another thread for a stage that takes packets of a shard.
    fn open(&mut self, request: &OpenRequest) -> Answer {
        let _ = request;
        Answer::Here
    }

    /// Takes what the stage of before a change holds at a source of the budget, or says that there
    /// is too little left: it then goes at once.
    fn keep(&mut self, bytes: usize) -> Option<Rent> {
        Rent::take(&Arc::default(), bytes, usize::MAX)
    }

    /// Hands the UDP payload of a packet, and where it came from, to the worker that has its shard.
    fn hand_over(&mut self, shard: ShardId, origin: Origin, payload: &[u8]) -> HandOver {
        let _ = (shard, origin, payload);
        HandOver::Unowned
    }

    /// Takes a question for a plan to the thread that makes plans.
    fn plan(&mut self, request: &PlanRequest) -> Answer {
        let _ = request;
        Answer::Here
    }
}

/// Headers around a UDP payload, beyond what its next hop says.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Outer {
    /// UDP source port.
    pub source_port: u16,
    /// DSCP and ECN bits of the IP header.
    pub traffic_class: u8,
}

/// Where a packet came from.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The neighbour that sent it.
    pub peer: PeerId,
    /// DSCP and ECN bits of its IP header.
    pub traffic_class: u8,
}

/// What became of a question for a plan or for a stage.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// No other thread answers it: it is answered where it was asked.
    Here,
    /// The reply comes by [`Pipeline::planned`](crate::Pipeline::planned) or
    /// [`Pipeline::opened`](crate::Pipeline::opened).
    Elsewhere,
    /// The thread that answers is busy: ask again later.
    Busy,
}

/// Names a product that is computed elsewhere.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ticket {
    /// The shard it is for.
    pub shard: ShardId,
    /// The generation it is for.
    pub unit: u32,
}

/// A product of coefficients and symbols.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Product {
    /// Symbols to be computed.
    pub rows: usize,
    /// Symbols that they are combinations of: coefficients of a row.
    pub columns: usize,
    /// Bytes of a symbol.
    pub row_bytes: usize,
}

/// Where the inputs of a product are to be written.
pub trait ProductInputs {
    /// Row `row` of the coefficients.
    fn coefficients(&mut self, row: usize) -> &mut [u8];

    /// Source symbol `column`.
    fn source(&mut self, column: usize) -> &mut [u8];
}
