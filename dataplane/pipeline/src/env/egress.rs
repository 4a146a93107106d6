//! Outputs of the pipeline. The runtime implements this over rings and a TUN interface, the
//! simulator over queues.

pub use crate::base::layout::{ENVELOPE_BYTES, STRICT_TAG_BYTES, TAG_BYTES};
use crate::config::params::{PeerId, ShardId, TunnelId};
use crate::config::segmentation::Comparison;
use crate::env::stage_memory::{OpenRequest, Rent};
use crate::plan::PlanRequest;
use recoded_wire::frames::Span;
pub use recoded_wire::unit::{CONTEXT_BYTES, Formed, STREAM_UNIT, Space, TaggedUnit, UnitKind};
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Outcome of handing a packet over to the worker that has its shard.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HandOver {
    /// No other worker has the shard.
    Unowned,
    /// It was taken.
    Taken,
    /// The worker that has it cannot take more.
    Full,
}

/// Why a packet was not sealed, or not opened.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Unsealed {
    /// There are no keys, none for this packet, or they are exhausted.
    NoKeys,
    /// It is not genuine, or it is a replay.
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

/// Whether a genuine report is new.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ReportFate {
    /// It may be read.
    New,
    /// It was received before.
    Copy,
}

/// Age of a key that verified a symbol, among all keys of this node: a later key has a greater
/// number.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KeySerial(pub u64);

/// Why a symbol has no tag, or a wrong one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Untagged {
    /// There are no keys.
    NoKeys,
    /// It is not a combination that honest nodes could form from the source's symbols.
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

/// Keys of sealed and tagged flows. Nothing here may block. By default there are none.
pub trait Keys {
    /// Encrypts an IP packet of a source into `out`, which is [`ENVELOPE_BYTES`] longer, for the
    /// sink of its flow.
    ///
    /// # Errors
    /// It cannot be encrypted. It is dropped and counted.
    fn seal(&mut self, shard: ShardId, packet: &[u8], out: &mut [u8]) -> Result<(), Unsealed> {
        let _ = (shard, packet, out);
        Err(Unsealed::NoKeys)
    }

    /// Decrypts a packet sealed here by [`Keys::seal`], as long as its keys are valid. `packet`
    /// is [`ENVELOPE_BYTES`] shorter.
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

    /// Decrypts in place a packet sealed by [`Keys::seal`] at the source, each packet once. The
    /// packet lies in `sealed`, after the header of the envelope. The input may be forged, with any
    /// length from [`ENVELOPE_BYTES`] and 20 up.
    ///
    /// # Errors
    /// It cannot be decrypted, or was already. It is dropped and counted.
    fn unseal<'a>(&mut self, shard: ShardId, sealed: &'a mut [u8]) -> Result<&'a [u8], Unsealed> {
        let _ = (shard, sealed);
        Err(Unsealed::NoKeys)
    }

    /// The key to tag the symbols of a beginning unit with, by a number that identifies it while
    /// the unit is open. Under one key, numbers of units only grow: `None` until there is another
    /// one, if the numbers of this source began at random since.
    fn tag_key(&mut self, shard: ShardId) -> Option<u8> {
        let _ = shard;
        None
    }

    /// Writes the tag of symbol `index` of a unit of a source into the first [`TAG_BYTES`] or
    /// [`STRICT_TAG_BYTES`] of `symbol`, before its payload; for a stream into the last ones.
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

    /// Verifies a received symbol of a tagged flow, tag and payload. All of it may be forged.
    /// Returns the key that verified it.
    ///
    /// # Errors
    /// It is not of the unit, or there are no keys.
    fn verify(
        &mut self,
        unit: &TaggedUnit,
        formed: Formed<'_>,
        symbol: &[u8],
    ) -> Result<KeySerial, Untagged> {
        let _ = (unit, formed, symbol);
        Err(Untagged::NoKeys)
    }

    /// Authenticates a sink's report to the source of its flow; `report` has the bytes that the
    /// seal covers.
    ///
    /// # Errors
    /// There are no keys from the sink to the source, or they are exhausted.
    fn seal_report(
        &mut self,
        shard: ShardId,
        report: &[u8],
    ) -> Result<[u8; ENVELOPE_BYTES], Unsealed> {
        let _ = (shard, report);
        Err(Unsealed::NoKeys)
    }

    /// Verifies a report of the sink of a flow that begins here, by the seal of the packet if it
    /// has one. All of it may be forged. Without keys from the sink to the source all are accepted.
    ///
    /// # Errors
    /// The sink did not write it, or there are no keys yet.
    fn verify_report(
        &mut self,
        shard: ShardId,
        report: &[u8],
        seal: Option<&[u8]>,
    ) -> Result<ReportFate, Unsealed> {
        let _ = (shard, report, seal);
        Ok(ReportFate::New)
    }

    /// Whether there are keys to verify symbols of a shard: a symbol under other keys was tagged
    /// for an earlier session.
    fn has_keys(&mut self, shard: ShardId) -> bool {
        let _ = shard;
        false
    }
}

/// No keys at all.
pub enum NoKeys {}

impl Keys for NoKeys {}

/// Takes the pipeline's results. Nothing here may block.
pub trait Egress {
    /// The keys of sealed and tagged flows.
    type Keys: Keys;

    /// Sends the UDP payload in `span` to a neighbour, in a packet that `outer` describes.
    ///
    /// Takes over one reference to the frame, even if it must drop the packet, which it counts. The
    /// frame's bytes in front of the span may be overwritten (`HEADROOM_BYTES` of them); the span
    /// itself may not.
    fn transmit(&mut self, peer: PeerId, span: Span, outer: Outer);

    /// Rate limit of the link to a neighbour at this node, in bytes per second including headers,
    /// if there is one: [`Egress::transmit`] drops packets beyond it.
    fn pace(&self, peer: PeerId) -> Option<f64> {
        let _ = peer;
        None
    }

    /// A neighbour reported the fate of these packets. Its reports are not trusted.
    fn reported(&mut self, peer: PeerId, comparison: &Comparison) {
        let _ = (peer, comparison);
    }

    /// Hands a decoded IP packet to a tunnel.
    fn deliver(&mut self, tunnel: TunnelId, packet: &[u8]);

    /// The keys of sealed and tagged flows; `None` at a node without any.
    fn keys(&mut self) -> Option<&mut Self::Keys> {
        None
    }

    /// Whether the keys of its hop authenticate the packets of a neighbour.
    fn is_authenticated(&self, peer: PeerId) -> bool {
        let _ = peer;
        false
    }

    /// A neighbour sent enough symbols with wrong tags that its keys should be changed.
    fn distrust(&mut self, peer: PeerId) {
        let _ = peer;
    }

    /// Offers a product to an accelerator. If the accelerator accepts, this calls `fill` at once,
    /// which writes all inputs, and the result arrives later through
    /// [`Pipeline::solved`](crate::Pipeline::solved).
    fn offload(
        &mut self,
        ticket: Ticket,
        product: Product,
        fill: impl FnOnce(&mut dyn ProductInputs),
    ) -> bool {
        let _ = (ticket, product, fill);
        false
    }

    /// Requests, from another thread, a stage that accepts packets of a shard.
    fn open(&mut self, request: &OpenRequest) -> Answer {
        let _ = request;
        Answer::Here
    }

    /// Charges the stage from before a change, which a source still holds, to the budget. `None` if
    /// too little is left: the stage is then closed at once.
    fn keep(&mut self, bytes: usize) -> Option<Rent> {
        Rent::take(&Arc::default(), bytes, usize::MAX)
    }

    /// Hands the UDP payload of a packet, and its origin, to the worker that has its shard.
    fn hand_over(&mut self, shard: ShardId, origin: Origin, payload: &[u8]) -> HandOver {
        let _ = (shard, origin, payload);
        HandOver::Unowned
    }

    /// Passes a plan request to the thread that makes plans.
    fn plan(&mut self, request: &PlanRequest) -> Answer {
        let _ = request;
        Answer::Here
    }
}

/// Outer header fields of a UDP payload, beyond those set by its next hop.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Outer {
    /// UDP source port.
    pub source_port: u16,
    /// DSCP and ECN bits of the IP header.
    pub traffic_class: u8,
}

/// Origin of a received packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The neighbour that sent it.
    pub peer: PeerId,
    /// DSCP and ECN bits of its IP header.
    pub traffic_class: u8,
}

/// Outcome of a request for a plan or for a stage.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// No other thread answers it: the caller computes the answer.
    Here,
    /// The reply arrives through [`Pipeline::planned`](crate::Pipeline::planned) or
    /// [`Pipeline::opened`](crate::Pipeline::opened).
    Elsewhere,
    /// The thread that answers is busy: retry later.
    Busy,
}

/// Identifies a product that is computed elsewhere.
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
    /// Symbols that they combine: coefficients of a row.
    pub columns: usize,
    /// Bytes of a symbol.
    pub row_bytes: usize,
}

/// Destination buffers for the inputs of a product.
pub trait ProductInputs {
    /// Row `row` of the coefficients.
    fn coefficients(&mut self, row: usize) -> &mut [u8];

    /// Source symbol `column`.
    fn source(&mut self, column: usize) -> &mut [u8];
}
