//! Streams with a fixed redundancy, which use no reports.

use super::{HEAD, SOURCE, errors, parse};

/// Reports give the state of paths, and an open loop has none. Copies need no state.
#[test]
fn streams_with_a_fixed_redundancy_are_not_spread_over_paths() {
    let fixed = |code: &str, spread: &str| {
        format!("{HEAD}{SOURCE}code = \"{code}\"\nredundancy = 1.5\nspread = \"{spread}\"\n")
    };
    for spread in ["sum", "backup"] {
        let said = format!(
            "relay.toml:19: flow 1: spread = \"{spread}\" does not suit a fixed redundancy: the \
             state of paths comes from reports, which a stream with a fixed redundancy does not \
             use: write redundancy = \"auto\" or spread = \"every\""
        );
        assert_eq!(errors(&fixed("stream", spread)), said);
        let auto = fixed("stream", spread).replace("1.5", "\"auto\"");
        assert!(parse(&auto).is_ok(), "{auto}");
    }
    for (code, spread, chosen) in
        [("stream", "every", "stream"), ("auto", "sum", "rlnc"), ("rlnc", "sum", "rlnc")]
    {
        let config = parse(&fixed(code, spread)).expect("valid");
        assert_eq!(config.flows[0].params.code.name(), chosen, "{code} {spread}");
    }
}
