//! Bytes from the wire: frames, headers, coded and stream packets, feedback, link reports.

use recoded_wire::coded::{BLOCK_BYTES, CODED_BYTES, CodedHeader, parse_coded};
use recoded_wire::feedback::{FEEDBACK_BYTES, FeedbackHeader, Item, items, withdraw_nacks};
use recoded_wire::header::{HEADER_BYTES, Header};
use recoded_wire::link::{LINK_BYTES, LINK_GAPS_MAX, link_gaps, parse_link, write_link};
use recoded_wire::packet::locate;
use recoded_wire::stream::{
    COMBINED_MAX, STREAM_BYTES, StreamBody, parse_stream, write_combination, write_symbol,
};

/// The same bytes as a frame and as a UDP payload.
pub fn target(bytes: &[u8]) {
    if let Ok(found) = locate(bytes) {
        let payload = bytes.get(found.payload_offset..).and_then(|b| b.get(..found.payload_len));
        payload_target(payload.expect("a payload within the frame"));
    }
    payload_target(bytes);
}

fn payload_target(payload: &[u8]) {
    if let Ok(header) = Header::parse(payload) {
        let mut written = [0; HEADER_BYTES];
        header.write(&mut written);
        // The last three bytes belong to the packet's type.
        assert_eq!(written[..13], payload[..13], "{header:?}");
    }
    if let Ok(header) = CodedHeader::parse(payload) {
        let mut written = [0; CODED_BYTES];
        header.write(&mut written);
        assert_eq!(written, payload[..CODED_BYTES], "{header:?}");
    }
    if let Ok(header) = FeedbackHeader::parse(payload) {
        let mut written = [0; FEEDBACK_BYTES];
        header.write(&mut written);
        // Three bytes are reserved.
        assert_eq!((&written[..13], &written[16..]), (&payload[..13], &payload[16..24]));
    }
    if let Ok(coded) = parse_coded(payload) {
        assert!(coded.symbol_bytes > 0 && coded.symbol_offset > CODED_BYTES);
        assert_eq!(coded.symbol_offset + coded.symbol_bytes, payload.len());
        if let Some(block) = coded.block {
            let mut written = payload.to_vec();
            written[CODED_BYTES..CODED_BYTES + BLOCK_BYTES].fill(0);
            block.write(&mut written);
            assert_eq!(written, payload, "{block:?}");
        }
    }
    stream_target(payload);
    link_target(payload);
    feedback_target(payload);
}

/// A packet of a stream is written as it was read.
fn stream_target(payload: &[u8]) {
    let Ok(packet) = parse_stream(payload) else { return };
    let mut written = [0; STREAM_BYTES];
    packet.header.write(&mut written);
    assert_eq!(written[..HEADER_BYTES], payload[..HEADER_BYTES], "{packet:?}");
    if let StreamBody::Combination(combination) = packet.body {
        write_combination(&combination, &mut written);
        assert_eq!(written[..], payload[..STREAM_BYTES], "{packet:?}");
        assert!((1..=COMBINED_MAX).contains(&combination.count));
    }
    if let Some(symbol) = packet.symbol() {
        write_symbol(&symbol, &mut written);
        assert_eq!(written, payload[..STREAM_BYTES], "{packet:?}");
        assert_eq!(usize::from(symbol.bytes), payload.len() - STREAM_BYTES);
        assert!(symbol.bytes > 0 && usize::from(symbol.after) < packet.header.window_symbols());
    }
}

/// The same for a link report, with the gaps inside its range.
fn link_target(payload: &[u8]) {
    let Ok(report) = parse_link(payload) else { return };
    let gaps: Vec<_> = link_gaps(&report, payload).collect();
    for gap in &gaps {
        let (at, count) = (gap.first.wrapping_sub(report.from), u32::from(gap.count));
        assert!(count > 0 && at + count <= report.horizon.wrapping_sub(report.from), "{gap:?}");
    }
    let mut written = [0; LINK_BYTES + 4 * LINK_GAPS_MAX];
    let length = write_link(&report, gaps.iter().copied(), &mut written);
    let again = parse_link(&written[..length]);
    assert_eq!(again, Ok(report));
    assert!(link_gaps(&report, &written[..length]).eq(gaps));
}

/// Withdrawing NACKs removes only those.
fn feedback_target(payload: &[u8]) {
    // An item has four bytes at least.
    assert!(items(payload).count() <= payload.len() / 4);
    let is_nack = |item: &Item<'_>| matches!(item, Item::Nack(_));
    let nacks = items(payload).filter(is_nack).count();
    let mut copy = payload.to_vec();
    let mut asked = 0;
    withdraw_nacks(&mut copy, |_| {
        asked += 1;
        true
    });
    assert_eq!(asked, nacks);
    let others = items(payload).filter(|item| !is_nack(item));
    // Compared as text, because a float may differ from itself.
    let [before, after] = [others.map(text).collect(), items(&copy).map(text).collect::<Vec<_>>()];
    assert_eq!(before, after);
}

fn text(item: Item<'_>) -> String {
    format!("{item:?}")
}
