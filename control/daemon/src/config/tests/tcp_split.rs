//! `tcp_split` of tunnels.

use super::*;
use crate::config::diff::{Cost, diff};

/// A source with this line in its tunnel.
fn with(line: &str) -> Result<(Document, Config), String> {
    let text = format!("{HEAD}{SOURCE}");
    let addresses = "[\"10.99.0.1/24\", \"10.98.0.1/24\", \"fd99::1/64\"]\n";
    let text = text.replace("\"10.99.0.1/24\"\n", &format!("{addresses}{line}\n"));
    let parsed = Config::parse("relay.toml", &text, &|_| Some(1500));
    parsed.map(|(file, _, config)| (file, config)).map_err(|errors| errors.to_string())
}

#[test]
fn other_edge_is_written_out_and_known_by_the_nearest_own_address() {
    for (peer, own) in
        [("10.98.0.2", "10.98.0.1"), ("192.0.2.7", "10.99.0.1"), ("fd99::2", "fd99::1")]
    {
        let (_, config) = with(&format!("tcp_split = \"{peer}\"")).unwrap();
        let tunnel = &config.tunnels[0];
        assert_eq!(tunnel.tcp_split.map(|it| it.to_string()).as_deref(), Some(peer));
        assert_eq!(tunnel.split_address().map(|it| it.to_string()).as_deref(), Some(own));
        let text = config.to_toml();
        let (.., again) = Config::parse("relay.toml", &text, &|_| Some(1500)).unwrap();
        assert_eq!(again.tunnels, config.tunnels, "{text}");
    }
    assert_eq!(with("").unwrap().1.tunnels[0].split_address(), None);
}

#[test]
fn wrong_edges_are_refused_in_words() {
    for (line, words) in [
        ("tcp_split = true", "is not a text in quotes"),
        ("tcp_split = \"split\"", "is not allowed"),
        ("tcp_split = \"224.0.0.1\"", "is not allowed"),
        ("tcp_split = \"10.99.0.1\"", "is this end's own address"),
    ] {
        let refused = with(line).unwrap_err();
        assert!(refused.contains(words) && refused.contains("tcp_split"), "{refused}");
    }
    let text = format!("{HEAD}{SOURCE}");
    let one = "\"10.99.0.1/24\"\n";
    let text = text.replace(one, &format!("{one}tcp_split = \"fd99::2\"\n"));
    let refused = Config::parse("relay.toml", &text, &|_| Some(1500)).unwrap_err().to_string();
    assert!(refused.contains("same family"), "{refused}");
}

#[test]
fn change_is_live() {
    let (_, off) = with("").unwrap();
    let (file, on) = with("tcp_split = \"10.99.0.2\"").unwrap();
    for (now, next) in [(&off, &on), (&on, &off)] {
        let changes = diff(now, next, &file);
        assert_eq!(changes.iter().map(|it| it.cost).collect::<Vec<_>>(), [Cost::Live]);
    }
}
