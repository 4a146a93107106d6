//! Bytes from the wire: frames, fixed headers, coded packets, feedback.

use recoded_wire::feedback::{Item, items, withdraw_repairs};
use recoded_wire::header::{BLOCK_BYTES, HEADER_BYTES, Header, parse_coded};
use recoded_wire::packet::locate;

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
        assert_eq!(written, payload[..HEADER_BYTES], "{header:?}");
    }
    if let Ok(coded) = parse_coded(payload) {
        assert!(coded.symbol_bytes > 0 && coded.symbol_offset > HEADER_BYTES);
        assert_eq!(coded.symbol_offset + coded.symbol_bytes, payload.len());
        if let Some(block) = coded.block {
            let mut written = payload.to_vec();
            written[HEADER_BYTES..HEADER_BYTES + BLOCK_BYTES].fill(0);
            block.write(&mut written);
            assert_eq!(written, payload, "{block:?}");
        }
    }
    feedback_target(payload);
}

/// Withdrawing repair requests takes away those and nothing else.
fn feedback_target(payload: &[u8]) {
    // An item has four bytes at least.
    assert!(items(payload).count() <= payload.len() / 4);
    let is_repair = |item: &Item<'_>| matches!(item, Item::Repair(_));
    let repairs = items(payload).filter(is_repair).count();
    let mut copy = payload.to_vec();
    let mut asked = 0;
    withdraw_repairs(&mut copy, |_| {
        asked += 1;
        true
    });
    assert_eq!(asked, repairs);
    let others = items(payload).filter(|item| !is_repair(item));
    // By their text, as a float may be equal to nothing.
    let [before, after] = [others.map(text).collect(), items(&copy).map(text).collect::<Vec<_>>()];
    assert_eq!(before, after);
}

fn text(item: Item<'_>) -> String {
    format!("{item:?}")
}
