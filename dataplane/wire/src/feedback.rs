//! FEEDBACK bodies: reports, NACKs and block acknowledgements from sinks and relays to the source.
//!
//! A feedback packet is a header followed by items, each `kind (8) | reserved (8) | value bytes
//! (16) | value`. Relays pass feedback upstream unchanged, so one packet may cross several lossy
//! links: every item is a statement of present state that stays true when it is repeated or lost.
//!
//! Where the edges of a flow have keys, the packets of a sink end with a seal over all that relays
//! need not change. Relays withdraw NACKs that they answered; reports of their own are packets of
//! their own, without a seal.

use crate::coded::SIZE_MAX;
use crate::header::{HEADER_BYTES, Header, HeaderError, PacketType, word};

/// Bytes of the header of a feedback packet.
pub const FEEDBACK_BYTES: usize = HEADER_BYTES + 8;

/// Bytes in front of every item's value.
const ITEM_HEADER_BYTES: usize = 4;
const HOP_BYTES: usize = 8;
const FLOW_BYTES: usize = 12;
const NACK_BYTES: usize = 8;
const RANKS_HEADER_BYTES: usize = 4;
const BLOCK_ACK_BYTES: usize = 4;
const SIZE_BYTES: usize = 4;
const ARRIVALS_HEADER_BYTES: usize = 4;

/// Kind of an item that an intermediate node has handled, of those that it may handle, and of the
/// seal.
const KIND_WITHDRAWN: u8 = 0;
const KIND_NACK: u8 = 3;
const KIND_SEAL: u8 = 8;

/// Bytes of a seal: an envelope without a packet.
pub const SEAL_BYTES: usize = 25;

/// Bytes of the item of a seal.
pub const SEAL_ITEM_BYTES: usize = ITEM_HEADER_BYTES + SEAL_BYTES;

/// Bytes of the context of a sealed report: epoch, shard, flow.
const SEAL_CONTEXT_BYTES: usize = 6;

/// Maximum NACKs of one packet, so that it fits any link.
pub const NACKS_MAX: usize = 32;

/// Maximum numbers of an arrival report.
pub const ARRIVALS_MAX: usize = 256;

/// The header of a feedback packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FeedbackHeader {
    /// Header common to all packets. The shard is the one that the report is about, the epoch the
    /// newest of it that the node has seen.
    pub common: Header,
    /// The reporting node: a random number.
    pub node: u32,
    /// Number of the report.
    pub number: u32,
}

impl FeedbackHeader {
    /// Reads the header of a feedback packet.
    ///
    /// # Errors
    /// [`HeaderError`] when there are too few bytes, or it is not the header of a feedback packet.
    pub fn parse(payload: &[u8]) -> Result<FeedbackHeader, HeaderError> {
        let bytes: &[u8; FEEDBACK_BYTES] = payload.first_chunk().ok_or(HeaderError::Truncated)?;
        let common = Header::parse(bytes)?;
        if common.packet_type != PacketType::Feedback {
            return Err(HeaderError::Type(common.packet_type as u8));
        }
        if common.flags.0 != 0 {
            return Err(HeaderError::Flags(common.flags.0));
        }
        let (node, number) = (word(bytes, HEADER_BYTES), word(bytes, HEADER_BYTES + 4));
        Ok(FeedbackHeader { common, node, number })
    }

    /// Writes the header to the start of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`FEEDBACK_BYTES`].
    pub fn write(&self, out: &mut [u8]) {
        self.common.write(out);
        out[HEADER_BYTES..][..4].copy_from_slice(&self.node.to_be_bytes());
        out[HEADER_BYTES + 4..][..4].copy_from_slice(&self.number.to_be_bytes());
    }
}

/// Loss of the link over which a flow reaches one node.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct HopReport {
    /// Hop index: 0 for the link that leaves the source.
    pub hop: u8,
    /// Share of packets lost, 0 to 1 (wire unit 1/65535).
    pub loss: f32,
    /// Mean run of consecutive losses in packets, at least 1 (wire unit 1/256).
    pub burst_mean: f32,
}

/// The largest packet that reaches the next hops of one node, if larger ones vanish.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SizeReport {
    /// Hop index of the link over which packets reach the node, as in [`HopReport`].
    pub hop: u8,
    /// Bytes of UDP payload.
    pub bytes: u16,
}

/// The sink's counters of a flow so far (modulo 2^32).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FlowReport {
    /// Newest generation, block or source symbol seen.
    pub newest: u32,
    /// Completely decoded ones.
    pub complete: u32,
    /// Abandoned ones.
    pub failed: u32,
}

/// Negative acknowledgement: a generation or block that lacks degrees of freedom at the sink.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Nack {
    /// Number of the generation or block.
    pub unit: u32,
    /// Degrees of freedom missing; [`Nack::ALL`] when nothing of it arrived.
    pub missing: u16,
    /// Round of this NACK, from 0: a source answers each round once, however often it is sent.
    pub round: u8,
}

impl Nack {
    /// `missing` of a unit whose size the sink does not know.
    pub const ALL: u16 = u16::MAX;
}

/// Rank histogram of a flow's full-size generations at the sink, counted since its epoch began.
///
/// Counters are modulo 2^32 and never reset within an epoch, so a lost report loses nothing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RankReport<'a> {
    /// Epoch of the parameters of these generations.
    pub epoch: u8,
    /// `size + 1` big-endian 32-bit counters, index = rank.
    counts: &'a [u8],
}

impl<'a> RankReport<'a> {
    /// Size of the generations counted.
    pub fn size(&self) -> usize {
        self.counts.len() / 4 - 1
    }

    /// Number of generations by rank, from rank 0 to the size.
    pub fn counts(&self) -> impl Iterator<Item = u32> + 'a {
        let words = self.counts.chunks_exact(4);
        words.map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
    }
}

/// Which source symbols of a block of numbers the sink of a stream has: the source judges by it
/// the paths that it sent them over.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ArrivalReport<'a> {
    /// The first number.
    first: u32,
    /// A bit for each number, most significant first.
    bitmap: &'a [u8],
}

impl<'a> ArrivalReport<'a> {
    /// The numbers, and whether the sink has them; at most [`ARRIVALS_MAX`].
    pub fn numbers(&self) -> impl Iterator<Item = (u32, bool)> + 'a {
        let Self { first, bitmap } = *self;
        let bits = (0..8 * bitmap.len()).map(move |at| bitmap[at / 8] << (at % 8) & 0x80 != 0);
        bits.enumerate().map(move |(at, came)| (first.wrapping_add(at as u32), came))
    }
}

/// One statement of a feedback packet.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Item<'a> {
    /// Kind 1.
    Hop(HopReport),
    /// Kind 2.
    Flow(FlowReport),
    /// Kind 3.
    Nack(Nack),
    /// Kind 4. Written by [`Writer::push_ranks`].
    Ranks(RankReport<'a>),
    /// Kind 5, block acknowledgement: this block of a BATS flow and all earlier ones need no more
    /// batches.
    BlockAck(u16),
    /// Kind 6.
    Size(SizeReport),
    /// Kind 7. Written by [`Writer::push_arrivals`].
    Arrivals(ArrivalReport<'a>),
}

/// Writes items after the header of a packet buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    length: usize,
}

impl<'a> Writer<'a> {
    /// Starts after the header, which the caller writes.
    pub fn new(buffer: &'a mut [u8]) -> Writer<'a> {
        Writer { buffer, length: FEEDBACK_BYTES }
    }

    /// Appends an item. Returns false, writing nothing, when it does not fit.
    pub fn push(&mut self, item: Item<'_>) -> bool {
        let mut value = [0u8; 12];
        let (kind, length) = match item {
            Item::Hop(report) => {
                value[0] = report.hop;
                let loss = (report.loss.clamp(0.0, 1.0) * 65535.0) as u16;
                value[2..4].copy_from_slice(&loss.to_be_bytes());
                let burst = (report.burst_mean.clamp(1.0, 255.0) * 256.0) as u16;
                value[4..6].copy_from_slice(&burst.to_be_bytes());
                (1, HOP_BYTES)
            }
            Item::Flow(report) => {
                value[..4].copy_from_slice(&report.newest.to_be_bytes());
                value[4..8].copy_from_slice(&report.complete.to_be_bytes());
                value[8..12].copy_from_slice(&report.failed.to_be_bytes());
                (2, FLOW_BYTES)
            }
            Item::Nack(nack) => {
                value[..4].copy_from_slice(&nack.unit.to_be_bytes());
                value[4..6].copy_from_slice(&nack.missing.to_be_bytes());
                value[6] = nack.round;
                (3, NACK_BYTES)
            }
            Item::BlockAck(block) => {
                value[..2].copy_from_slice(&block.to_be_bytes());
                (5, BLOCK_ACK_BYTES)
            }
            Item::Size(report) => {
                value[0] = report.hop;
                value[2..4].copy_from_slice(&report.bytes.to_be_bytes());
                (6, SIZE_BYTES)
            }
            Item::Ranks(report) => {
                let Some(out) = self.item(4, RANKS_HEADER_BYTES + report.counts.len()) else {
                    return false;
                };
                out[..RANKS_HEADER_BYTES].copy_from_slice(&[report.epoch, 0, 0, 0]);
                out[RANKS_HEADER_BYTES..].copy_from_slice(report.counts);
                return true;
            }
            Item::Arrivals(ArrivalReport { first, bitmap }) => {
                let Some(out) = self.item(7, ARRIVALS_HEADER_BYTES + bitmap.len()) else {
                    return false;
                };
                out[..ARRIVALS_HEADER_BYTES].copy_from_slice(&first.to_be_bytes());
                out[ARRIVALS_HEADER_BYTES..].copy_from_slice(bitmap);
                return true;
            }
        };
        let Some(out) = self.item(kind, length) else { return false };
        out.copy_from_slice(&value[..length]);
        true
    }

    /// Appends a rank histogram, `counts` by rank from 0 to the size. Returns false, writing
    /// nothing, when it does not fit.
    pub fn push_ranks(&mut self, epoch: u8, counts: impl ExactSizeIterator<Item = u32>) -> bool {
        let Some(out) = self.item(4, RANKS_HEADER_BYTES + 4 * counts.len()) else { return false };
        out[..RANKS_HEADER_BYTES].copy_from_slice(&[epoch, 0, 0, 0]);
        for (word, count) in out[RANKS_HEADER_BYTES..].chunks_exact_mut(4).zip(counts) {
            word.copy_from_slice(&count.to_be_bytes());
        }
        true
    }

    /// Appends an arrival report about `count` numbers, rounded down to a multiple of 8 and at most
    /// [`ARRIVALS_MAX`]. Returns false, writing nothing, when it does not fit or there are none.
    pub fn push_arrivals(
        &mut self,
        first: u32,
        count: usize,
        mut came: impl FnMut(u32) -> bool,
    ) -> bool {
        let bytes = count.min(ARRIVALS_MAX) / 8;
        if bytes == 0 {
            return false;
        }
        let Some(out) = self.item(7, ARRIVALS_HEADER_BYTES + bytes) else { return false };
        let (head, bitmap) = out.split_at_mut(ARRIVALS_HEADER_BYTES);
        head.copy_from_slice(&first.to_be_bytes());
        for (at, byte) in bitmap.iter_mut().enumerate() {
            let numbers = (0..8).map(|bit| first.wrapping_add(8 * at as u32 + bit));
            *byte = numbers.fold(0, |byte, number| byte << 1 | u8::from(came(number)));
        }
        true
    }

    /// Begins an item of `length` value bytes.
    fn item(&mut self, kind: u8, length: usize) -> Option<&mut [u8]> {
        let end = self.length + ITEM_HEADER_BYTES + length;
        let out = self.buffer.get_mut(self.length..end)?;
        self.length = end;
        let (head, value) = out.split_at_mut(ITEM_HEADER_BYTES);
        head[..2].copy_from_slice(&[kind, 0]);
        head[2..].copy_from_slice(&(length as u16).to_be_bytes());
        Some(value)
    }

    /// Bytes of the whole packet, header included.
    pub fn finish(self) -> usize {
        self.length
    }
}

/// The items of a feedback packet, up to one beyond its end. Unknown and short ones are skipped.
pub fn items(payload: &[u8]) -> impl Iterator<Item = Item<'_>> + '_ {
    let mut rest = payload.get(FEEDBACK_BYTES..).unwrap_or(&[]);
    core::iter::from_fn(move || {
        loop {
            let (head, body) = rest.split_at_checked(ITEM_HEADER_BYTES)?;
            let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
            let (value, tail) = body.split_at_checked(length)?;
            rest = tail;
            if let Some(item) = read(head[0], value) {
                return Some(item);
            }
        }
    })
}

/// Withdraws the NACKs that `answered` returns true for: nodes further upstream do not see them.
//= docs/protocol §2.8(h)
pub fn withdraw_nacks(payload: &mut [u8], mut answered: impl FnMut(Nack) -> bool) {
    let mut rest = payload.get_mut(FEEDBACK_BYTES..).unwrap_or(&mut []);
    while let Some((head, body)) = rest.split_at_mut_checked(ITEM_HEADER_BYTES) {
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let Some((value, tail)) = body.split_at_mut_checked(length) else { return };
        if let Some(Item::Nack(nack)) = read(head[0], value)
            && answered(nack)
        {
            head[0] = KIND_WITHDRAWN;
        }
        rest = tail;
    }
}

/// The seal of a packet and its offset: its last item, which ends the packet. `None` without one.
fn seal_at(payload: &[u8]) -> Option<(usize, &[u8])> {
    let mut at = FEEDBACK_BYTES;
    loop {
        let head = payload.get(at..at + ITEM_HEADER_BYTES)?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let end = at + ITEM_HEADER_BYTES + length;
        if head[0] == KIND_SEAL {
            let value = payload.get(at + ITEM_HEADER_BYTES..end)?;
            let is_whole = head[1] == 0 && length == SEAL_BYTES && end == payload.len();
            return is_whole.then_some((at, value));
        }
        at = end;
    }
}

/// The seal of a feedback packet that ends with one.
pub fn seal_of(payload: &[u8]) -> Option<&[u8]> {
    seal_at(payload).map(|(_, seal)| seal)
}

/// Appends the item of a seal to a packet of `length` bytes in a buffer; returns the new length.
///
/// # Panics
/// When the buffer has no room for [`SEAL_ITEM_BYTES`] more.
pub fn append_seal(buffer: &mut [u8], length: usize, seal: &[u8; SEAL_BYTES]) -> usize {
    let (head, value) = buffer[length..][..SEAL_ITEM_BYTES].split_at_mut(ITEM_HEADER_BYTES);
    head.copy_from_slice(&[KIND_SEAL, 0, 0, SEAL_BYTES as u8]);
    value.copy_from_slice(seal);
    length + SEAL_ITEM_BYTES
}

/// Writes what a seal covers of a feedback packet to `out`, whether the seal is there yet or not:
/// epoch, shard, flow, and the bytes behind the common header up to the seal. There the kind of
/// NACKs reads as that of withdrawn items. `None` if it does not fit, or the header is incomplete.
pub fn covered_by_seal<'a>(payload: &[u8], out: &'a mut [u8]) -> Option<&'a [u8]> {
    let end = seal_at(payload).map_or(payload.len(), |(at, _)| at);
    let body = payload.get(HEADER_BYTES..end).filter(|body| body.len() >= 8)?;
    let out = out.get_mut(..SEAL_CONTEXT_BYTES + body.len())?;
    let (context, covered) = out.split_at_mut(SEAL_CONTEXT_BYTES);
    context.copy_from_slice(&payload[2..2 + SEAL_CONTEXT_BYTES]);
    covered.copy_from_slice(body);
    let mut at = FEEDBACK_BYTES - HEADER_BYTES;
    while let Some(head) = covered.get_mut(at..at + ITEM_HEADER_BYTES) {
        if head[0] == KIND_NACK {
            head[0] = KIND_WITHDRAWN;
        }
        at += ITEM_HEADER_BYTES + usize::from(u16::from_be_bytes([head[2], head[3]]));
    }
    Some(out)
}

/// Whether a feedback packet has items that only a sink writes.
pub fn is_of_sink(payload: &[u8]) -> bool {
    items(payload).any(|item| !matches!(item, Item::Hop(_) | Item::Size(_)))
}

fn read(kind: u8, value: &[u8]) -> Option<Item<'_>> {
    let word = |at: usize| Some(u32::from_be_bytes(value.get(at..at + 4)?.try_into().ok()?));
    let half = |at: usize| Some(u16::from_be_bytes(value.get(at..at + 2)?.try_into().ok()?));
    Some(match kind {
        1 => Item::Hop(HopReport {
            hop: *value.first()?,
            loss: f32::from(half(2)?) / 65535.0,
            burst_mean: (f32::from(half(4)?) / 256.0).max(1.0),
        }),
        2 => Item::Flow(FlowReport { newest: word(0)?, complete: word(4)?, failed: word(8)? }),
        3 => Item::Nack(Nack { unit: word(0)?, missing: half(4)?, round: *value.get(6)? }),
        4 => {
            let (head, counts) = value.split_at_checked(RANKS_HEADER_BYTES)?;
            let whole = counts.len() % 4 == 0 && (2..=SIZE_MAX + 1).contains(&(counts.len() / 4));
            return whole.then_some(Item::Ranks(RankReport { epoch: head[0], counts }));
        }
        5 => Item::BlockAck(half(0)?),
        6 => Item::Size(SizeReport { hop: *value.first()?, bytes: half(2)? }),
        7 => {
            let (_, bitmap) = value.split_at_checked(ARRIVALS_HEADER_BYTES)?;
            let fits = (1..=ARRIVALS_MAX / 8).contains(&bitmap.len());
            return fits.then_some(Item::Arrivals(ArrivalReport { first: word(0)?, bitmap }));
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Flags;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn items_written_are_read_back() {
        let mut buffer = [0u8; 128];
        let sent = [
            Item::Hop(HopReport { hop: 3, loss: 0.0, burst_mean: 2.5 }),
            Item::Flow(FlowReport { newest: 9, complete: 8, failed: 1 }),
            Item::Nack(Nack { unit: 7, missing: Nack::ALL, round: 2 }),
            Item::BlockAck(0xFFFE),
            Item::Size(SizeReport { hop: 3, bytes: 1372 }),
        ];
        let mut writer = Writer::new(&mut buffer);
        for item in sent {
            assert!(writer.push(item));
        }
        let length = writer.finish();
        assert_eq!(items(&buffer[..length]).collect::<Vec<_>>(), sent);
    }

    #[test]
    fn ranks_written_are_read_back() {
        let mut buffer = [0u8; 128];
        let mut writer = Writer::new(&mut buffer);
        assert!(writer.push_ranks(9, [1u32, 2, 3].into_iter()));
        let length = writer.finish();
        let Some(Item::Ranks(report)) = items(&buffer[..length]).next() else {
            panic!("no rank report");
        };
        assert_eq!((report.epoch, report.size()), (9, 2));
        assert_eq!(report.counts().collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn arrivals_written_are_read_back() {
        let mut buffer = [0u8; 128];
        let mut writer = Writer::new(&mut buffer);
        assert!(!writer.push_arrivals(7, 7, |_| true), "no whole byte");
        assert!(writer.push_arrivals(u32::MAX - 2, 19, |number| number % 3 == 0));
        let length = writer.finish();
        assert_eq!(buffer[FEEDBACK_BYTES..][..8], [7, 0, 0, 6, 0xFF, 0xFF, 0xFF, 0xFD]);
        let Some(Item::Arrivals(report)) = items(&buffer[..length]).next() else {
            panic!("no arrival report");
        };
        let read: Vec<_> = report.numbers().collect();
        assert_eq!((read.len(), read[0], read[2]), (16, (u32::MAX - 2, false), (u32::MAX, true)));
        assert!(read.iter().all(|(number, came)| (number % 3 == 0) == *came));
    }

    #[test]
    fn withdrawn_nacks_are_not_read_any_more() {
        let mut buffer = [0u8; 128];
        let mut writer = Writer::new(&mut buffer);
        for unit in 0..3 {
            writer.push(Item::Nack(Nack { unit, missing: 1, round: 0 }));
        }
        let length = writer.finish();
        withdraw_nacks(&mut buffer[..length], |nack| nack.unit != 1);
        let left = Item::Nack(Nack { unit: 1, missing: 1, round: 0 });
        assert_eq!(items(&buffer[..length]).collect::<Vec<_>>(), [left]);
    }

    #[test]
    fn seal_covers_all_but_what_relays_change() {
        let mut buffer = [0u8; 128];
        let common = Header {
            packet_type: PacketType::Feedback,
            flags: Flags(0),
            epoch: 3,
            shard: 4,
            flow: 0x0102_0304,
            link_sequence: 2,
            hop_index: 5,
        };
        FeedbackHeader { common, node: 1, number: 2 }.write(&mut buffer);
        let mut writer = Writer::new(&mut buffer);
        writer.push(Item::Flow(FlowReport { newest: 9, complete: 8, failed: 1 }));
        writer.push(Item::Nack(Nack { unit: 7, missing: 1, round: 0 }));
        let length = writer.finish();
        let (mut before, mut after) = ([0; 128], [0; 128]);
        let before = covered_by_seal(&buffer[..length], &mut before).unwrap();
        assert_eq!(before[..6], [3, 4, 1, 2, 3, 4]);
        assert_eq!(seal_of(&buffer[..length]), None);
        let sealed = append_seal(&mut buffer, length, &[0xEE; SEAL_BYTES]);
        assert_eq!(seal_of(&buffer[..sealed]), Some(&[0xEE; SEAL_BYTES][..]));
        for at in 0..length {
            let mut packet = buffer;
            packet[at] ^= 1;
            let changed = covered_by_seal(&packet[..sealed], &mut after) != Some(before);
            assert_eq!(changed, (2..8).contains(&at) || at >= HEADER_BYTES, "byte {at}");
        }
        withdraw_nacks(&mut buffer[..sealed], |_| true);
        assert_eq!(covered_by_seal(&buffer[..sealed], &mut after), Some(before));
        // Nothing may follow.
        assert_eq!(seal_of(&buffer[..sealed + 1]), None);
        assert!(is_of_sink(&buffer[..sealed]));
    }

    #[test]
    fn push_into_a_full_buffer_is_refused() {
        let mut buffer = [0u8; FEEDBACK_BYTES + 11];
        let mut writer = Writer::new(&mut buffer);
        assert!(!writer.push(Item::Hop(HopReport { hop: 0, loss: 0.5, burst_mean: 1.0 })));
        assert_eq!(writer.finish(), FEEDBACK_BYTES);
    }

    #[test]
    fn header_layout_is_the_documented_one() {
        let common = Header {
            packet_type: PacketType::Feedback,
            flags: Flags(0),
            epoch: 3,
            shard: 4,
            flow: 1,
            link_sequence: 2,
            hop_index: 5,
        };
        let header = FeedbackHeader { common, node: 0x1011_1213, number: 0x1415_1617 };
        let mut bytes = [0u8; FEEDBACK_BYTES];
        header.write(&mut bytes);
        assert_eq!(bytes[16..], [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17]);
        assert_eq!(FeedbackHeader::parse(&bytes), Ok(header));
        bytes[1] = Flags::END;
        assert_eq!(FeedbackHeader::parse(&bytes), Err(HeaderError::Flags(Flags::END)));
    }

    proptest! {
        #[test]
        fn random_bytes_end_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(items(&bytes).count() <= bytes.len());
            let mut bytes = bytes;
            withdraw_nacks(&mut bytes, |_| true);
            prop_assert!(!items(&bytes).any(|item| matches!(item, Item::Nack(_))));
            let (mut small, mut large) = ([0; 40], [0; 400]);
            let _ = (covered_by_seal(&bytes, &mut small), seal_of(&bytes));
            let covered = covered_by_seal(&bytes, &mut large).map(<[u8]>::len);
            prop_assert!(covered.is_none_or(|length| length + 10 <= bytes.len()));
        }

        #[test]
        fn loss_survives_the_wire_to_one_unit(loss in 0.0f32..=1.0) {
            let mut buffer = [0u8; 64];
            let mut writer = Writer::new(&mut buffer);
            writer.push(Item::Hop(HopReport { hop: 0, loss, burst_mean: 1.0 }));
            let length = writer.finish();
            let Some(Item::Hop(report)) = items(&buffer[..length]).next() else {
                return Err(TestCaseError::fail("no hop report"));
            };
            prop_assert!((report.loss - loss).abs() <= 1.0 / 65535.0);
        }
    }
}
