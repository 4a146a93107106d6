//! Texts that users read, and JSON.

use std::net::SocketAddr;
use std::time::Duration;

use recoded_swarm::{Counters, Drop, Got, Manifest};
use serde_json::{Map, Value, json};

/// What `serve` prints when it listens.
pub(crate) fn started(manifest: &Manifest, addresses: &[SocketAddr]) -> String {
    let layout = &manifest.layout;
    let mut text = format!(
        "content {}\n{} B in {} segments of {} blocks of {} B",
        manifest.id(),
        layout.total_bytes,
        layout.segments(),
        layout.blocks,
        layout.block_bytes,
    );
    for address in addresses {
        text.push_str(&format!("\nlistening on {address}"));
    }
    text
}

/// A warning about datagrams that may not fit a path.
pub(crate) fn long_datagrams(bytes: u32, fitting: u32) -> String {
    format!(
        "recoded-swarm: warning: datagrams of up to {bytes} B are not fragmented, \
         and paths with an MTU of 1280 carry {fitting} B\n\
         fix: choose fewer --blocks or --block-bytes, unless every path has a larger MTU"
    )
}

/// Counters as a line of JSON.
pub(crate) fn counters(counters: &Counters) -> String {
    let drops: Map<String, Value> = (Drop::NAMES.iter().zip(counters.drops))
        .map(|(name, count)| ((*name).to_owned(), count.into()))
        .collect();
    json!({
        "peers": counters.peers,
        "sessions": counters.sessions,
        "blocks": counters.blocks,
        "bytes": counters.bytes,
        "combinations": counters.combinations,
        "unsent": counters.unsent,
        "drops": drops,
    })
    .to_string()
}

/// What `get` prints at its end.
pub(crate) fn finished(got: &Got, time: Duration) -> String {
    let progress = &got.progress;
    format!(
        "{} B in {:.1} s, verified. \
         Blocks: {} innovative, {} redundant, {} forged. Peers banned: {}",
        got.bytes,
        time.as_secs_f64(),
        progress.innovative,
        progress.redundant,
        progress.forged,
        got.banned,
    )
}
