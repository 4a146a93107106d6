//! Words for TCP connections that end at both edges of a tunnel.

use crate::table::count;
use recoded_api::v1::{Split, Tunnel};

/// Cure of an edge that does not answer.
pub const WAITING_CURE: &str = "check that it runs recoded with tcp_split, and that the tunnel \
                                carries packets in both directions";

/// Cure of a program that ends.
pub const STOPPED_CURE: &str = "see its messages in the log of recoded";

/// The counts, in a few words.
pub fn split_counts(split: &Split) -> String {
    let of = |name: &str| split.counters.get(name).copied().unwrap_or_default();
    let mut text = format!("TCP split: {} open", count(split.open));
    for (number, word) in [
        (of("opened") + of("served"), "opened"),
        (of("refused"), "refused"),
        (split.waiting_bytes, "bytes waiting"),
    ] {
        text += &format!(", {} {word}", count(number));
    }
    text
}

/// Why connections are not split, with its cure. An edge behind a tunnel without a carrier cannot
/// answer.
pub fn split_trouble(tunnel: &Tunnel) -> Option<(String, &'static str)> {
    let Split { peer, reason, state, .. } = tunnel.split.as_ref()?;
    match state.as_str() {
        "waiting" if matches!(tunnel.state.as_str(), "" | "present") => {
            Some((format!("split TCP: the edge {peer} does not answer"), WAITING_CURE))
        }
        "stopped" => Some((format!("split TCP: recoded-split ended ({reason})"), STOPPED_CURE)),
        _ => None,
    }
}

/// The same in one sentence.
pub fn split_fault(tunnel: &Tunnel) -> Option<String> {
    split_trouble(tunnel).map(|(cause, cure)| format!("{cause}: {cure}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_troubles_are_in_words() {
        let counters = [("opened", 7_u64), ("served", 2), ("refused", 1)];
        let mut split = Split {
            peer: "10.99.0.2".into(),
            state: "connected".into(),
            open: 3,
            waiting_bytes: 4096,
            counters: counters.map(|(name, count)| (name.to_owned(), count)).into(),
            ..Split::default()
        };
        assert_eq!(
            split_counts(&split),
            "TCP split: 3 open, 9 opened, 1 refused, 4096 bytes waiting"
        );
        let fault = |split: &Split, state: &str| {
            let (split, state) = (Some(split.clone()), state.to_owned());
            split_fault(&Tunnel { split, state, ..Tunnel::default() })
        };
        assert_eq!(fault(&split, "present"), None);
        split.state = "waiting".into();
        assert!(fault(&split, "present").is_some_and(|text| text.contains("10.99.0.2")));
        assert_eq!(fault(&split, "no-carrier"), None, "that has a line of its own");
        (split.state, split.reason) = ("stopped".into(), "exit status: 1".into());
        assert!(fault(&split, "gone").is_some_and(|text| text.contains("exit status: 1")));
    }
}
