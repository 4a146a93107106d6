//! Link reports: packets of one shard that a node has received over one link, reported to the
//! neighbour that sends it. Every node consumes those it gets; they travel one hop.

use crate::header::{HEADER_BYTES, Header, HeaderError, PacketType, word};
use crate::stream::ROUND_TRIPS_UNIT_NANOS;

/// Bytes of a link report without its gaps.
pub const LINK_BYTES: usize = HEADER_BYTES + 30 + 2 + 2 * LINK_MISSING_MAX;

/// Most gaps in one report.
pub const LINK_GAPS_MAX: usize = 64;

/// Most places of missing symbols in one report.
pub const LINK_MISSING_MAX: usize = 7;

/// Bytes of a gap.
const GAP_BYTES: usize = 4;

/// Microseconds in a unit of [`LinkReport::backlog`].
pub const BACKLOG_UNIT_MICROS: u32 = 16;

/// A node's record of packets received over a link. Numbers are link sequence numbers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LinkReport {
    /// Header common to all packets.
    pub header: Header,
    /// The report covers numbers from this one on.
    pub from: u32,
    /// Every number from `from` to before this one arrived, except for the gaps.
    pub horizon: u32,
    /// The number that arrived last.
    pub latest: u32,
    /// When it arrived, in microseconds of the receiver's clock, modulo 2^32.
    pub arrived: u32,
    /// Microseconds from then to this report; saturates.
    pub held: u16,
    /// Queueing delay of the last packet in the receiver before it is forwarded, in units of
    /// [`BACKLOG_UNIT_MICROS`]; saturates.
    pub backlog: u16,
    /// Bytes of UDP payload received, modulo 2^32.
    pub bytes: u32,
    /// Packets received, modulo 2^32.
    pub packets: u32,
    /// Sum of the round trips of the hops after the receiver, in units of
    /// [`ROUND_TRIPS_UNIT_NANOS`]; saturates.
    pub beyond: u16,
    /// Symbols that neither arrived nor were recovered so far: lower halves of their places.
    pub missing: Missing,
}

/// Lower halves of the places of some symbols.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Missing {
    count: u8,
    places: [u16; LINK_MISSING_MAX],
}

impl Missing {
    /// The first of these places that a report has room for.
    pub fn of(places: impl Iterator<Item = u16>) -> Missing {
        let mut missing = Missing::default();
        for (slot, place) in missing.places.iter_mut().zip(places) {
            *slot = place;
            missing.count += 1;
        }
        missing
    }

    /// The places.
    pub fn places(&self) -> &[u16] {
        &self.places[..usize::from(self.count)]
    }
}

impl LinkReport {
    /// Sum of the round trips of the hops after the receiver, in nanoseconds.
    pub fn beyond_nanos(&self) -> u64 {
        u64::from(self.beyond) * ROUND_TRIPS_UNIT_NANOS
    }

    /// Queueing delay of the last packet in the receiver, in nanoseconds.
    pub fn backlog_nanos(&self) -> u64 {
        u64::from(self.backlog) * u64::from(BACKLOG_UNIT_MICROS) * 1000
    }
}

/// Numbers that did not arrive.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LinkGap {
    /// The first of them.
    pub first: u32,
    /// How many, at least one.
    pub count: u16,
}

/// Parses a link report; its gaps are read by [`link_gaps`].
///
/// # Errors
/// [`HeaderError`] when it is of another type, bytes are missing, it has flags, or its numbers are
/// out of order.
pub fn parse_link(payload: &[u8]) -> Result<LinkReport, HeaderError> {
    let header = Header::parse(payload)?;
    if header.packet_type != PacketType::Link {
        return Err(HeaderError::Type(header.packet_type as u8));
    }
    if header.flags.0 != 0 {
        return Err(HeaderError::Flags(header.flags.0));
    }
    let bytes: &[u8; LINK_BYTES] = payload.first_chunk().ok_or(HeaderError::Truncated)?;
    let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let report = LinkReport {
        header,
        from: word(bytes, 16),
        horizon: word(bytes, 20),
        latest: word(bytes, 24),
        arrived: word(bytes, 28),
        held: half(32),
        backlog: half(34),
        bytes: word(bytes, 36),
        packets: word(bytes, 40),
        beyond: half(44),
        missing: Missing::of((0..usize::from(half(46))).map(|at| half(48 + 2 * at.min(6)))),
    };
    //= docs/protocol §2.7(a)
    if usize::from(half(46)) > LINK_MISSING_MAX {
        return Err(HeaderError::Value);
    }
    let gaps = payload.len() - LINK_BYTES;
    let is_ordered = report.horizon.wrapping_sub(report.from) < 1 << 31;
    if !gaps.is_multiple_of(GAP_BYTES) || gaps / GAP_BYTES > LINK_GAPS_MAX || !is_ordered {
        return Err(HeaderError::Value);
    }
    Ok(report)
}

/// The gaps of a parsed report, in the order they are written. Those outside the range of the
/// report are left out.
pub fn link_gaps<'a>(report: &LinkReport, payload: &'a [u8]) -> impl Iterator<Item = LinkGap> + 'a {
    let LinkReport { from, horizon, .. } = *report;
    let span = horizon.wrapping_sub(from);
    let gaps = payload.get(LINK_BYTES..).unwrap_or_default();
    gaps.chunks_exact(GAP_BYTES).filter_map(move |gap| {
        let back = u32::from(u16::from_be_bytes([gap[0], gap[1]]));
        let count = u16::from_be_bytes([gap[2], gap[3]]);
        let is_inside = back <= span && u32::from(count) <= back && count > 0;
        is_inside.then_some(LinkGap { first: horizon.wrapping_sub(back), count })
    })
}

/// Writes a report with its gaps to the start of `out`; gaps too far back to be expressed are left
/// out. Returns its bytes.
///
/// # Panics
/// When `out` is shorter than [`LINK_BYTES`] plus four for each of up to [`LINK_GAPS_MAX`] gaps.
pub fn write_link(
    report: &LinkReport,
    gaps: impl Iterator<Item = LinkGap>,
    out: &mut [u8],
) -> usize {
    report.header.write(out);
    let words = [report.from, report.horizon, report.latest, report.arrived];
    for (place, word) in out[HEADER_BYTES..][..16].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    out[32..34].copy_from_slice(&report.held.to_be_bytes());
    out[34..36].copy_from_slice(&report.backlog.to_be_bytes());
    out[36..40].copy_from_slice(&report.bytes.to_be_bytes());
    out[40..44].copy_from_slice(&report.packets.to_be_bytes());
    out[44..46].copy_from_slice(&report.beyond.to_be_bytes());
    out[46..48].copy_from_slice(&u16::from(report.missing.count).to_be_bytes());
    for (place, out) in report.missing.places.iter().zip(out[48..].chunks_exact_mut(2)) {
        out.copy_from_slice(&place.to_be_bytes());
    }
    let mut end = LINK_BYTES;
    for gap in gaps.take(LINK_GAPS_MAX) {
        let Ok(back) = u16::try_from(report.horizon.wrapping_sub(gap.first)) else { continue };
        out[end..end + 2].copy_from_slice(&back.to_be_bytes());
        out[end + 2..end + 4].copy_from_slice(&gap.count.to_be_bytes());
        end += GAP_BYTES;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Flags;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    fn report(from: u32, span: u32) -> LinkReport {
        let header = Header {
            packet_type: PacketType::Link,
            flags: Flags(0),
            epoch: 1,
            shard: 2,
            flow: 3,
            link_sequence: 4,
            hop_index: 0,
        };
        let horizon = from.wrapping_add(span);
        let latest = horizon.wrapping_sub(1);
        let (arrived, held, backlog, bytes, packets, beyond) = (5, 6, 7, 8, 9, 10);
        let missing = Missing::of([10, 11, 12].into_iter());
        LinkReport {
            header,
            from,
            horizon,
            latest,
            arrived,
            held,
            backlog,
            bytes,
            packets,
            beyond,
            missing,
        }
    }

    proptest! {
        #[test]
        fn a_report_written_then_parsed_is_itself(
            from: u32, span in 0u32..60_000, places in prop::collection::vec((0u32..60_000, 1u16..9), 0..70),
        ) {
            let report = report(from, span);
            let fits = |place: &(u32, u16)| place.0 + u32::from(place.1) <= span;
            let gap = |(at, count): (u32, u16)| LinkGap { first: from.wrapping_add(at), count };
            let gaps: Vec<LinkGap> =
                places.into_iter().filter(fits).take(LINK_GAPS_MAX).map(gap).collect();
            let mut bytes = vec![0; LINK_BYTES + 4 * LINK_GAPS_MAX];
            let end = write_link(&report, gaps.iter().copied(), &mut bytes);
            prop_assert_eq!(parse_link(&bytes[..end]), Ok(report));
            prop_assert!(link_gaps(&report, &bytes[..end]).eq(gaps));
            prop_assert!(parse_link(&bytes[..end - 1]).is_err());
        }

        #[test]
        fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 16..300)) {
            bytes[0] = crate::header::VERSION << 4 | PacketType::Link as u8;
            if let Ok(report) = parse_link(&bytes) {
                for gap in link_gaps(&report, &bytes) {
                    let at = gap.first.wrapping_sub(report.from);
                    let span = report.horizon.wrapping_sub(report.from);
                    prop_assert!(at + u32::from(gap.count) <= span);
                }
            }
        }
    }

    //= docs/protocol §2.7(a)
    #[test]
    fn reports_in_no_order_are_refused() {
        let mut bytes = [0; LINK_BYTES];
        write_link(&report(100, 0), [].into_iter(), &mut bytes);
        assert!(parse_link(&bytes).is_ok());
        bytes[20..24].copy_from_slice(&99u32.to_be_bytes());
        assert_eq!(parse_link(&bytes), Err(HeaderError::Value));
    }
}
