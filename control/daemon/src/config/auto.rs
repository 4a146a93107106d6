//! `code = "auto"`: chooses a source's code from its configuration.
//!
//! Conditions at run time are ignored: a next hop that is down is as silent as one without a return
//! path, so a choice based on replies would change with every outage.

use super::code::{self, CodeSettings, STREAM_SYMBOLS};
use super::reader::Reader;
use recoded_pipeline::params::{FlowCode, Redundancy, StreamParams};

/// Inputs of the choice.
#[derive(Copy, Clone)]
pub struct Facts {
    /// `repair`: false means that the return path is missing or slow.
    pub repair: bool,
    /// `redundancy`: a factor applies to generations; streams adapt their rate themselves.
    pub redundancy: Redundancy,
    /// Shards of the flow. They share the packets that a node keeps, so a flow takes about as much
    /// memory with any number of workers.
    pub shards: usize,
    /// Longest packet of the tunnel, in bytes.
    pub packet_bytes: usize,
    /// Longest packet that a stream takes: its symbol less the overhead of sealing, in bytes.
    pub symbol_bytes: usize,
}

/// Reads the code, and the written parameters if it is a stream.
pub fn read(reader: &mut Reader<'_>, facts: &Facts) -> CodeSettings {
    let chosen = choose(facts);
    let FlowCode::Stream(stream) = chosen.code else {
        let rule = "code = \"auto\" is rlnc here, which has no profiles";
        reader.unsuitable("stream_profile", rule);
        let rule = "code = \"auto\" is rlnc here, which keeps generations";
        reader.unsuitable("stream_symbols", rule);
        return chosen;
    };
    let stream = code::stream(reader, stream.window_symbols);
    CodeSettings { code: FlowCode::Stream(stream), ..chosen }
}

/// Chooses a stream if there is a return path, redundancy is automatic and a packet of the tunnel
/// fits a symbol; generations otherwise. Streams suit several receivers, too: each link repairs its
/// own losses, where generations take three packets for each symbol
/// (`dataplane/pipeline/tests/pipeline/tree.rs`).
fn choose(facts: &Facts) -> CodeSettings {
    let is_answered = facts.repair && facts.redundancy == Redundancy::Auto;
    let fits = facts.packet_bytes <= facts.symbol_bytes;
    if !(is_answered && fits) {
        return CodeSettings::RLNC;
    }
    let share = STREAM_SYMBOLS / facts.shards.clamp(1, STREAM_SYMBOLS);
    let window_symbols = 1 << share.ilog2();
    CodeSettings {
        code: FlowCode::Stream(StreamParams::new(window_symbols)),
        ..CodeSettings::STREAM
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{HEAD, SOURCE, errors, parse};
    use super::*;
    use recoded_pipeline::params::StreamProfile;

    const LINE: Facts = Facts {
        repair: true,
        redundancy: Redundancy::Auto,
        shards: 1,
        packet_bytes: 1417,
        symbol_bytes: 1417,
    };

    #[test]
    fn auto_is_a_stream_unless_something_is_in_its_way() {
        assert_eq!(choose(&LINE).code.name(), "stream");
        let others = [
            Facts { repair: false, ..LINE },
            Facts { redundancy: Redundancy::Fixed(1.5), ..LINE },
            Facts { packet_bytes: 1418, ..LINE },
        ];
        assert_eq!(others.map(|facts| choose(&facts).code.name()), ["rlnc"; 3]);
    }

    #[test]
    fn shards_share_what_nodes_keep() {
        let symbols =
            [1, 2, 3, 12, 16].map(|shards| match choose(&Facts { shards, ..LINE }).code {
                FlowCode::Stream(stream) => stream.window_symbols,
                _ => 0,
            });
        assert_eq!(symbols, [32_768, 16_384, 8_192, 2_048, 2_048]);
    }

    /// A file, and the code that the source gets.
    #[test]
    fn auto_reads_next_hops_way_back_and_sizes_from_the_file() {
        let two_hops = "next_hops = [{ link = \"west\", address = \"10.0.1.1\" }, ";
        let file = format!("{HEAD}{SOURCE}");
        let files = [
            (file.clone(), "stream"),
            (format!("{file}code = \"auto\"\n"), "stream"),
            (format!("{file}code = \"rlnc\"\n"), "rlnc"),
            (format!("{file}repair = false\n"), "rlnc"),
            (format!("{file}redundancy = 2\n"), "rlnc"),
            (file.replace("next_hops = [", two_hops), "stream"),
            (file.replace("next_hops = [", two_hops) + "spread = \"sum\"\n", "stream"),
            (file.replace("/24\"\n", "/24\"\nmtu = 9000\n"), "rlnc"),
            (file.replace("/24\"\n", "/24\"\nmtu = 1424\n"), "stream"),
            (format!("{file}symbol_bytes = 570\n"), "rlnc"),
        ];
        for (text, code) in files {
            let config = parse(&text).expect("valid");
            assert_eq!(config.flows[0].params.code.name(), code, "{text}");
            assert_eq!(config.flows[0].written.code, text.contains("code = \"rlnc\""));
            assert_eq!(parse(&config.to_toml()).expect("valid"), config);
        }
    }

    #[test]
    fn a_profile_is_kept_where_auto_is_a_stream_and_refused_elsewhere() {
        let file = format!("{HEAD}{SOURCE}stream_profile = \"interactive\"\n");
        let config = parse(&file).expect("valid");
        let FlowCode::Stream(stream) = config.flows[0].params.code else { panic!("no stream") };
        assert_eq!(stream.profile, StreamProfile::Interactive);
        assert_eq!(parse(&config.to_toml()).expect("valid"), config);
        let said = "relay.toml:17: flow 1: stream_profile = \"interactive\" does not apply: code = \
                    \"auto\" is rlnc here, which has no profiles";
        assert_eq!(errors(&format!("{file}repair = false\n")), said);
    }

    #[test]
    fn window_is_kept_where_auto_is_a_stream_and_refused_elsewhere() {
        let file = format!("{HEAD}{SOURCE}stream_symbols = 1024\n");
        let config = parse(&file).expect("valid");
        let FlowCode::Stream(stream) = config.flows[0].params.code else { panic!("no stream") };
        assert_eq!(stream.window_symbols, 1024);
        assert_eq!(parse(&config.to_toml()).expect("valid"), config);
        let said = "relay.toml:17: flow 1: stream_symbols = 1024 does not apply: code = \"auto\" is \
                    rlnc here, which keeps generations";
        assert_eq!(errors(&format!("{file}repair = false\n")), said);
    }

    #[test]
    fn tunnels_that_exist_keep_their_packets_and_so_decide_the_code() {
        let text = format!("{HEAD}{SOURCE}");
        let (document, mtus, config) =
            crate::config::Config::parse("f", &text, &|_| Some(1500)).expect("valid");
        let again = |mtu| {
            let mut mtus = mtus.clone();
            mtus.follow("eth1", mtu);
            let config = crate::config::Config::from_document(&document, &mtus, Some(&config));
            config.expect("any code carries it").flows.remove(0).params.code
        };
        assert!(matches!(again(1500), FlowCode::Stream(_)));
        assert_eq!(again(1300), FlowCode::Rlnc, "packets of 1421 bytes span its symbols");
    }

    #[test]
    fn keys_of_codes_are_refused_where_auto_chooses() {
        for (line, rule) in [
            ("generation_size = 16", "it is for code = \"rlnc\""),
            ("field = 16", "code = \"auto\" chooses it"),
            ("field = 256", "code = \"auto\" chooses it"),
        ] {
            let said = format!("relay.toml:17: flow 1: {line} does not apply: {rule}");
            assert_eq!(errors(&format!("{HEAD}{SOURCE}{line}\n")), said);
        }
    }
}
