//! Valid files, invalid files, and random text.

mod fit;
mod keys;
mod open_loop;
mod paths;
mod routes;
mod tcp_split;
mod units;

use super::symbol::symbol_bytes_in;
use super::*;
use proptest::prelude::*;
use recoded_api::keys::FLOW;
use recoded_gf::FieldOrder;
use recoded_pipeline::params::{FlowCode, PeerId, Redundancy, StreamParams, TunnelId};

pub(super) const HEAD: &str = r#"[[link]]
name = "west"
interface = "eth0"
local = "10.0.1.2"
[[link]]
name = "east"
interface = "eth1"
local = "10.0.2.1"
[[tunnel]]
name = "rec0"
address = "10.99.0.1/24"
[[flow]]
id = 1
"#;

pub(super) const SOURCE: &str = r#"role = "source"
tunnel = "rec0"
next_hops = [{ link = "east", address = "10.0.2.2" }]
"#;

/// The same with generations.
pub(super) const RLNC: &str = r#"role = "source"
tunnel = "rec0"
next_hops = [{ link = "east", address = "10.0.2.2" }]
code = "rlnc"
"#;

pub(super) const RELAY: &str = r#"role = "relay"
next_hops = [{ link = "east", address = "10.0.2.2" }]
upstream = { link = "west", address = "10.0.1.1" }
"#;

pub(super) const SINK: &str = r#"role = "sink"
tunnel = "rec0"
upstream = { link = "west", address = "10.0.1.1" }
"#;

pub(super) fn parse(text: &str) -> Result<Config, ConfigErrors> {
    Config::parse("relay.toml", text, &|_| None).map(|(_, _, config)| config)
}

pub(super) fn errors(text: &str) -> String {
    parse(text).map(|_| ()).expect_err("the text must be refused").to_string()
}

#[test]
fn shortest_source_gets_the_documented_defaults() {
    let config = parse(&format!("{HEAD}{SOURCE}")).expect("valid");
    assert_eq!(config.daemon.frames, 16384);
    assert_eq!(config.daemon.port, 9426);
    assert_eq!(config.daemon.metrics, None, "metrics are off by default");
    let flow = &config.flows[0];
    assert!(!flow.written.symbol_bytes && !flow.written.code);
    let expected = FlowParams {
        id: 1,
        role: Role::Source { tunnel: TunnelId(0) },
        next_hops: vec![PeerId(0)],
        shards: 1,
        code: FlowCode::Stream(StreamParams::new(32_768)),
        field: FieldOrder::TwoFiftySix,
        generation_size: 1,
        symbol_bytes: 1424,
        redundancy: Redundancy::Auto,
        target_loss: 1e-4,
        redundancy_max: 4.0,
        flush_timeout_nanos: 1_000_000,
        generation_timeout_nanos: 20_000_000,
        hold_timeout_nanos: 200_000_000,
        spread: recoded_pipeline::params::Spread::Every,
        lag_timeout_nanos: 500_000_000,
        further_upstreams: Vec::new(),
        recoding: recoded_pipeline::params::Recoding::Systematic,
        onward_share: 1.0,
        adaptive: true,
        repair: true,
        sealed: false,
        tagged: false,
        strict: false,
        wrong_tags_max: 64,
        generations: 256,
    };
    assert_eq!(flow.params, expected);
    assert_eq!(config.tunnels[0].mtu, 1421, "a full packet fits one symbol, whatever the code");
    assert_eq!(config.hops, [Neighbour { link: 1, address: IpAddr::from([10, 0, 2, 2]) }]);
}

#[test]
fn relay_and_sink_see_sizes_by_the_packets() {
    let relay = parse(&format!("{HEAD}{RELAY}")).expect("valid");
    let params = &relay.flows[0].params;
    assert_eq!(
        (params.generation_size, params.symbol_bytes),
        (16, symbol_bytes_in(FrameSize::SMALL))
    );
    assert_eq!(params.role, Role::Relay { upstream: PeerId(0) });
    assert_eq!(params.next_hops, [PeerId(1)]);
    let sink = parse(&format!("{HEAD}{SINK}")).expect("valid");
    assert_eq!(sink.tunnels[0].mtu, 1400, "no source reads from the tunnel");
}

#[test]
fn paths_part_at_a_source_and_meet_at_a_sink() {
    let west = "{ link = \"west\", address = \"10.0.1.1\" }";
    let both = format!("[{west}, {{ link = \"east\", address = \"10.0.2.2\" }}]");
    let sink = format!("{HEAD}{SINK}").replace(west, &both);
    let config = parse(&sink).expect("valid");
    let params = &config.flows[0].params;
    assert_eq!(params.upstreams().collect::<Vec<_>>(), [PeerId(0), PeerId(1)]);
    assert_eq!(parse(&config.to_toml()).expect("valid"), config);
    let twice =
        errors(&sink.replace("east\", address = \"10.0.2.2", "west\", address = \"10.0.1.1"));
    assert!(
        twice.contains("upstream[1]") && twice.contains("each neighbour is listed once"),
        "{twice}"
    );
    let none = errors(&format!("{HEAD}{SINK}").replace(west, "[]"));
    assert!(none.contains("a flow has 1 to 8 upstreams"), "{none}");
    let source = format!("{HEAD}{SOURCE}spread = \"backup\"\n");
    let config =
        parse(&source.replace("next_hops = [", &format!("next_hops = [{west}, "))).expect("valid");
    assert_eq!(config.flows[0].params.spread, recoded_pipeline::params::Spread::Backup);
    assert_eq!(parse(&config.to_toml()).expect("valid"), config);
}

#[test]
fn symbol_bytes_follow_the_narrowest_next_hop() {
    let text = format!("{HEAD}{SOURCE}code = \"rlnc\"\n")
        .replace("next_hops = [", "next_hops = [{ link = \"west\", address = \"10.0.1.1\" }, ");
    let mtu = |name: &str| Some(if name == "eth0" { 1280 } else { 1500 });
    let (_, _, config) = Config::parse("relay.toml", &text, &mtu).expect("valid");
    assert_eq!(config.flows[0].params.symbol_bytes, 1208);
    assert_eq!(config.tunnels[0].mtu, 1204);
}

#[test]
fn default_file_shows_the_default_of_each_key() {
    let text = include_str!("../../recoded.toml");
    let shown = parse(text).expect("the default file is valid");
    let bare: String = text
        .lines()
        .filter(|line| {
            let key = line.split(" =").next().unwrap_or_default();
            let named = ["name", "interface", "local", "address", "id", "role", "tunnel"];
            line.starts_with('[') || named.contains(&key) || key == "next_hops" || key == "upstream"
        })
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(shown, parse(&bare).expect("valid"), "what is written is the default");
    let uncommented = text.replace("\n#cores", "\ncores").replace("\n#rate", "\nrate");
    let uncommented = uncommented.replace("\n#mtu", "\nmtu").replace("\n#symbol", "\nsymbol");
    let full = parse(&uncommented).expect("commented keys are valid too");
    assert_eq!(full.links[0].rate_mbit, Some(300.0));
    assert!(full.flows[0].written.symbol_bytes);
}

/// The default file shows other codes in comments: at least three consecutive lines each.
#[test]
fn flows_of_other_codes_in_the_default_file_show_the_default_of_each_key() {
    let text = include_str!("../../recoded.toml");
    let head = HEAD.trim_end_matches("id = 1\n").trim_end_matches("[[flow]]\n");
    let (_, others) = text.split_once("\n#[[flow]]").expect("there are some");
    let mut seen = 0;
    for section in others.split("\n#[[flow]]") {
        let is_key =
            |line: &&str| line.starts_with('#') && line.contains(" = ") && !line.starts_with("# ");
        let lines: Vec<&str> =
            section.lines().filter(is_key).map(|line| line.trim_start_matches('#')).collect();
        let needed = ["id", "role", "tunnel", "next_hops", "upstream", "code"];
        if !cfg!(feature = "bats") && lines.contains(&"code = \"bats\"") {
            continue;
        }
        let bare = lines
            .iter()
            .filter(|line| needed.iter().any(|key| line.starts_with(&format!("{key} ="))));
        let flow = |lines: Vec<&str>| parse(&format!("{head}[[flow]]\n{}\n", lines.join("\n")));
        let shortest = flow(bare.copied().collect()).expect("valid");
        let mut written = flow(lines).expect("valid");
        written.flows[0].written = shortest.flows[0].written;
        assert_eq!(written, shortest, "what is written is the default");
        let again = parse(&shortest.to_toml()).expect("the active configuration is valid");
        assert_eq!(again, shortest);
        seen += 1;
    }
    let expected = if cfg!(feature = "bats") { 3 } else { 2 };
    assert_eq!(seen, expected, "sources of rlnc, bats and stream");
}

#[test]
fn config_in_force_parses_to_itself() {
    let (_, _, config) =
        Config::parse("d", include_str!("../../recoded.toml"), &|_| Some(1400)).expect("valid");
    let (_, _, again) = Config::parse("d", &config.to_toml(), &|_| Some(1400)).expect("valid");
    assert_eq!(again, config);
}

/// Every rule of a flow: a line added to one of the three roles, and the exact message.
#[test]
fn bad_flow_values_are_refused_by_line_key_value_and_rule() {
    let size = "a generation has 1 to 256 symbols";
    let factor = "a factor is at least 1 and at most redundancy_max, which is 4";
    let choice = "it is \"auto\" or a factor of at least 1";
    let range = "is out of range";
    let whole = "is not a whole number";
    let chosen = "is not a choice";
    let none = "does not apply";
    let learned = "only a source chooses it; relays and sinks learn it from packets";
    let spread = "code = \"stream\" can be spread over paths, rlnc only as \"sum\"";
    let room = "eth1 carries 1500-byte packets, which leave 1444 bytes for a symbol to 10.0.2.2 \
                with generation_size 16 and field 16";
    let hold = "delivery must wait (hold_timeout_us, 19999) at least as long as a repair request \
                does (generation_timeout_us, 20000)";
    let micros = |range| format!("{range} microseconds, or with a unit, such as \"20 ms\"");
    let cases = [
        (RLNC, "generation_size = 300", range, size),
        (RLNC, "generation_size = 0", range, size),
        (RLNC, "generation_size = -1", range, size),
        (RLNC, "generation_size = 16.0", whole, size),
        (RLNC, "generation_size = \"16\"", whole, size),
        (RLNC, "field = 8", "is not a supported field", "it is 2, 4, 16 or 256"),
        (RLNC, "field = true", whole, "it is 2, 4, 16 or 256"),
        (SOURCE, "symbol_bytes = 9195", range, "a symbol has 16 to 9194 bytes"),
        (RLNC, "symbol_bytes = 1445", "is too large", room),
        (SOURCE, "redundancy = 0.9", range, factor),
        (SOURCE, "redundancy = 5", range, factor),
        (SOURCE, "redundancy = \"lots\"", chosen, choice),
        (SOURCE, "redundancy = nan", chosen, choice),
        (SOURCE, "target_loss = 0", range, "a share of generations from 1e-9 to 0.5"),
        (
            SOURCE,
            "redundancy_max = inf",
            "is not a number",
            "1 to 32 packets per symbol may be sent",
        ),
        (SOURCE, "flush_timeout_us = 0", range, &micros("1 to 1000000")),
        (SOURCE, "repair = \"yes\"", "is neither", "it is true or false"),
        (SOURCE, "spread = \"both\"", chosen, "it is \"every\", \"sum\" or \"backup\""),
        (RLNC, "spread = \"backup\"", "does not suit the code", spread),
        (SINK, "spread = \"sum\"", none, "a sink is where the flow ends"),
        (SOURCE, "lag_timeout_us = 999", range, &micros("1000 to 10000000")),
        (SINK, "lag_timeout_us = 1000", none, "a sink is where the flow ends"),
        (SOURCE, "upstream = 1", none, "a source is where feedback ends"),
        (SOURCE, "recoding = \"random\"", none, "it is for relays"),
        (RELAY, "field = 16", none, learned),
        (RELAY, "generation_size = 16", none, learned),
        (RELAY, "recoding = \"clever\"", chosen, "it is \"systematic\" or \"random\""),
        (RELAY, "generation_timeout_us = 20000000", range, &micros("1 to 10000000")),
        (RELAY, "hold_timeout_us = 1", none, "it is for sinks"),
        (RELAY, "onward_share = 0", range, "a share of the packets from 0.01 to 1"),
        (SOURCE, "onward_share = 0.5", none, "it is for relays"),
        (RELAY, "tunnel = \"rec0\"", none, "a relay has none"),
        (SINK, "hold_timeout_us = 19999", "does not fit", hold),
        (SINK, "redundancy_max = 2", none, "it is for sources and relays"),
        (SINK, "next_hops = []", none, "a sink is where the flow ends"),
    ];
    for (role, line, verdict, rule) in cases {
        let number = if role == RLNC { 18 } else { 17 };
        let expected = format!("relay.toml:{number}: flow 1: {line} {verdict}: {rule}");
        assert_eq!(errors(&format!("{HEAD}{role}{line}\n")), expected);
    }
}

/// The largest values of the key fit a frame; larger generations are dropped as oversize on
/// arrival.
#[test]
fn relay_and_sink_take_the_largest_symbols() {
    for role in [RELAY, SINK] {
        assert!(parse(&format!("{HEAD}{role}symbol_bytes = 9194\n")).is_ok());
    }
}

#[test]
fn frames_symbols_and_tunnels_follow_the_largest_mtu_that_a_flow_can_use() {
    let config = |text: &str, (west, east)| {
        let mtu = |name: &str| Some(if name == "eth0" { west } else { east });
        Config::parse("f", text, &mtu).expect("valid").2
    };
    let relay = format!("{HEAD}{RELAY}");
    let cases =
        [((1500, 1500), 2048), ((9001, 1500), 2048), ((2000, 3000), 4096), ((9001, 9001), 9280)];
    for (mtus, bytes) in cases {
        let config = config(&relay, mtus);
        assert_eq!(config.frame_size.bytes(), bytes, "{mtus:?}");
        assert!(config.flows[0].params.frame_bytes_min() <= bytes);
    }
    let xdp = relay.replace("[[link]]", "[[link]]\nbackend = \"xdp\"");
    assert_eq!(config(&xdp, (9001, 9001)).frame_size, FrameSize::PAGE);

    let source = config(&format!("{HEAD}{SOURCE}"), (1500, 9001));
    let FlowParams { code, symbol_bytes, .. } = source.flows[0].params;
    assert_eq!(code, FlowCode::Stream(StreamParams::new(8192)));
    assert!((8900..9001).contains(&symbol_bytes), "{symbol_bytes}");
    assert!((8900..=9000).contains(&source.tunnels[0].mtu), "{}", source.tunnels[0].mtu);
    let written = source.to_toml();
    assert_eq!(config(&written, (1500, 9001)).to_toml(), written);
}

#[test]
fn unknown_keys_are_refused_with_what_was_meant() {
    let sized = format!("{HEAD}{SOURCE}generation_sise = 16\n");
    let said = "flow 1: unknown key generation_sise: did you mean generation_size?";
    assert_eq!(errors(&sized), format!("relay.toml:17: {said}"));
    let strange = errors(&format!("{HEAD}{SOURCE}colour = \"red\"\n"));
    assert!(
        strange.starts_with("relay.toml:17: flow 1: unknown key colour: [[flow]] has id, role")
    );
    let said = "relay.toml:2: daemon: unknown key Workers: did you mean workers?";
    assert_eq!(errors(&format!("[daemon]\nWorkers = 1\n{HEAD}{RELAY}")), said);
    let said = "relay.toml:1: link is missing: write a [[link]] for each interface that carries \
                coded packets";
    assert_eq!(errors("[daemon]\n"), said);
    let said = "relay.toml:1: unknown key deamon: did you mean [daemon]?";
    assert_eq!(errors("[deamon]\n"), said);
    let said = "relay.toml:2: link a: unknown key mtu: [[link]] has name, interface, local, \
                backend, rate_mbit";
    let link = "[[link]]\nmtu = 1500\nname = \"a\"\ninterface = \"eth0\"\nlocal = \"::1\"\n";
    assert_eq!(errors(link), said);
}

/// Whole files with other mistakes: an edit of a valid file, and the message.
const BAD_STRUCTURES: [(&str, &str, &str); 28] = [
    (
        "\"source\"\n",
        "\"spring\"\n",
        "14: flow 1: role = \"spring\" is not a choice: it is \"source\", \"relay\" or \"sink\"",
    ),
    (
        "role = \"source\"\n",
        "",
        "12: flow 1: role is missing: it is \"source\", \"relay\" or \"sink\"",
    ),
    (
        "id = 1\n",
        "",
        "12: flow number 1: id is missing: it is the number of the flow in every packet, 0 to \
             4294967295, the same on every host of the path",
    ),
    (
        "tunnel = \"rec0\"",
        "tunnel = \"rec1\"",
        "15: flow 1: tunnel = \"rec1\" is unknown: the tunnels are \"rec0\"",
    ),
    (
        "link = \"east\",",
        "link = \"eats\",",
        "16: flow 1: next_hops[0].link = \"eats\" is unknown: the links are \"west\", \"east\"",
    ),
    (
        "link = \"east\",",
        "",
        "16: flow 1: next_hops[0].link = (nothing) is unknown: the links are \"west\", \"east\"",
    ),
    (
        "link = \"east\",",
        "link = \"east\", via = 1,",
        "16: flow 1: next_hops[0].via = 1 is unknown: a hop has link and address",
    ),
    (
        "\"10.0.2.2\"",
        "\"10.0.2.256\"",
        "16: flow 1: next_hops[0].address = \"10.0.2.256\" is not an address: it is the \
             neighbour's IP address on the link, or its host name",
    ),
    (
        "\"10.0.2.2\"",
        "\"10.0.2.1\"",
        "16: flow 1: next_hops[0].address = \"10.0.2.1\" is a local address: it is the neighbour's \
             IP address",
    ),
    (
        "\"10.0.2.2\"",
        "\"fe80::1\"",
        "16: flow 1: next_hops[0].address = \"fe80::1\" does not fit the link: the link's own \
             address is 10.0.2.1: both are IPv4 or both IPv6",
    ),
    (
        "[{ link = \"east\", address = \"10.0.2.2\" }]",
        "[]",
        "16: flow 1: next_hops = [] is too short or too long: a flow has 1 to 8 next hops",
    ),
    (
        "local = \"10.0.2.1\"",
        "local = \"224.0.0.1\"",
        "8: link east: local = \"224.0.0.1\" is not allowed: it is this host's IP address on the \
             link, or 0.0.0.0 or :: for any",
    ),
    (
        "local = \"10.0.2.1\"",
        "local = \"0.0.0.0\"\nbackend = \"xdp\"",
        "8: link east: local = \"0.0.0.0\" does not apply: AF_XDP needs this host's IP address on \
             the link; backend = \"udp\" does not",
    ),
    (
        "local = \"10.0.2.1\"",
        "local = \"::\"",
        "16: flow 1: next_hops[0].address = \"10.0.2.2\" does not fit the link: the link's own \
             address is ::: both are IPv4 or both IPv6",
    ),
    (
        "\"eth1\"",
        "\"eth0\"",
        "7: link east: interface = \"eth0\" is taken: an interface belongs to one link; \
             several neighbours can share that link",
    ),
    (
        "\"eth1\"",
        "\"an/interface\"",
        "7: link east: interface = \"an/interface\" is not allowed: it is the interface's name \
             as `ip link` shows it",
    ),
    (
        "10.99.0.1/24",
        "10.99.0.1",
        "11: tunnel rec0: address = \"10.99.0.1\" is not allowed: it is an IP address with a \
             prefix length, such as 10.99.0.1/24, or a list of 1 to 8",
    ),
    (
        "\"10.99.0.1/24\"",
        "[\"10.99.0.1/24\", \"10.99.0.1/16\"]",
        "11: tunnel rec0: address[1] = \"10.99.0.1/16\" is a repetition: each address is listed \
             once",
    ),
    (
        "\"10.99.0.1/24\"",
        "[]",
        "11: tunnel rec0: address = [] is too short or too long: it is an IP address with a prefix \
             length, such as 10.99.0.1/24, or a list of 1 to 8",
    ),
    (
        "\"10.99.0.1/24\"",
        "[\"10.99.0.1/24\", \"fd00::1/64\"]\nmtu = 1000",
        "12: tunnel rec0: mtu = 1000 is out of range: a tunnel's MTU is 1280 to 9216",
    ),
    (
        "\"10.99.0.1/24\"",
        "\"fd00::1/64\"\nmtu = 1000",
        "12: tunnel rec0: mtu = 1000 is out of range: a tunnel's MTU is 1280 to 9216",
    ),
    (
        "[[tunnel]]\n",
        "[tunnel]\n",
        "9: tunnel = (table) is not a section: write [[tunnel]] with two brackets, once for \
             each tunnel",
    ),
    (
        "[[flow]]\n",
        "[daemon]\nworkers = 0\n[[flow]]\n",
        "13: daemon: workers = 0 is out of range: there are 1 to 64",
    ),
    (
        "[[flow]]\n",
        "[daemon]\ncores = [1, 2]\n[[flow]]\n",
        "13: daemon: cores = [1, 2] is too long or too short: it lists the core of each \
             worker, as many as `workers`, each once",
    ),
    (
        "[[flow]]\n",
        "[daemon]\nsocket = \"run\"\n[[flow]]\n",
        "13: daemon: socket = \"run\" is not allowed: an absolute path of at most 107 bytes",
    ),
    (
        "[[flow]]\n",
        "[daemon]\nidle = \"lazy\"\n[[flow]]\n",
        "13: daemon: idle = \"lazy\" is not a choice: it is \"busy\", \"adaptive\" or \
             \"interrupt\"",
    ),
    ("id = 1\n", "id = 1\nid = 2\n", "14: id appears twice"),
    (
        "id = 1\n",
        "id = 99999999999999999999\n",
        "13: flow: id = 99999999999999999999 is out of range: numbers have 64 bits",
    ),
];

#[test]
fn bad_structure_is_refused_by_line_key_value_and_rule() {
    let good = format!("{HEAD}{SOURCE}");
    for (from, to, said) in BAD_STRUCTURES {
        assert!(good.contains(from), "{from}");
        let said = format!("relay.toml:{said}");
        let heard = errors(&good.replacen(from, to, 1));
        assert!(heard.split('\n').any(|line| line == said), "heard: {heard}\nwanted: {said}");
    }
}

#[test]
fn a_source_has_as_many_shards_as_workers_unless_it_says_otherwise() {
    let of =
        |workers: usize, role: &str| parse(&format!("[daemon]\nworkers = {workers}\n{HEAD}{role}"));
    for role in [SOURCE, RELAY, SINK] {
        assert!(of(1, role).is_ok() && of(4, role).is_ok());
    }
    let shards = |workers, more: &str| {
        let config = of(workers, &format!("{SOURCE}{more}")).expect("valid");
        config.flows[0].params.shards
    };
    assert_eq!((shards(1, ""), shards(4, ""), shards(12, "")), (1, 4, 12));
    assert_eq!((shards(1, "shards = 4\n"), shards(4, "shards = 1\n")), (4, 1));
}

#[test]
fn two_flows_cannot_share_an_id_or_read_one_tunnel() {
    let second = SOURCE.replace("10.0.2.2", "10.0.2.3");
    let said = errors(&format!("{HEAD}{SOURCE}[[flow]]\nid = 1\n{RELAY}"));
    assert_eq!(said, "relay.toml:18: flow 1: id = 1 is taken: a host has one role in a flow");
    let said = errors(&format!("{HEAD}{SOURCE}[[flow]]\nid = 7\n{second}"));
    let rule = "packets of rec0 already go to flow 1";
    assert_eq!(said, format!("relay.toml:20: flow 7: tunnel = \"rec0\" is taken: {rule}"));
}

#[test]
fn every_mistake_is_reported_in_order_of_lines() {
    let text = format!("[daemon]\nport = 0\nframes = 1\n{HEAD}{SOURCE}field = 3\n");
    let said = errors(&text);
    let lines: Vec<&str> = said.lines().map(|line| &line[..13]).collect();
    assert_eq!(lines, ["relay.toml:2:", "relay.toml:3:", "relay.toml:20"]);
}

/// Words of a configuration file, and some that break it.
fn fragment() -> impl Strategy<Value = String> {
    let words = "[daemon] [[link]] [[tunnel]] [[flow]] [flow] id role tunnel name next_hops \
                 upstream field generation_size symbol_bytes cores local link interface = = 1 -1 \
                 16 1e308 nan true \"source\" \"relay\" \"sink\" \"east\" \"10.0.0.1\" \
                 \"10.0.0.1/8\" [ ] { } , # \"\" ''' \u{fffd} 0x7fffffff 1979-05-27 . \
                 [{link=\"east\",address=\"10.0.2.2\"}]";
    let words: Vec<String> =
        words.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    prop_oneof![
        12 => prop::sample::select::<String>(words),
        4 => Just("\n".to_owned()),
        1 => ".{0,6}",
    ]
}

proptest! {
    #[test]
    fn any_text_is_accepted_or_refused_and_never_panics(
        parts in prop::collection::vec(fragment(), 0..60),
    ) {
        if let Err(errors) = parse(&parts.concat()) {
            prop_assert!(!errors.errors.is_empty());
            prop_assert!(!errors.to_string().is_empty());
        }
    }

    #[test]
    fn any_line_in_a_good_file_is_accepted_or_refused_by_its_line(
        role in prop::sample::select(vec![SOURCE, RELAY, SINK]),
        key in prop::sample::select(FLOW.keys.iter().map(|key| key.name).collect::<Vec<_>>()),
        value in prop_oneof![
            any::<i64>().prop_map(|number| number.to_string()),
            (1..300_i64).prop_map(|number| number.to_string()),
            any::<f64>().prop_map(|number| toml::Value::Float(number).to_string()),
            ".{0,80}".prop_map(|text| toml::Value::String(text).to_string()),
            prop::sample::select(vec!["[]", "{}", "[[[]]]", "[{ link = 1 }]", "false"])
                .prop_map(str::to_owned),
        ],
    ) {
        match parse(&format!("{HEAD}{role}{key} = {value}\n")) {
            Ok(config) => {
                let again = parse(&config.to_toml()).expect("the active configuration is valid");
                prop_assert_eq!(again, config);
            }
            Err(errors) => {
                let said = errors.to_string();
                prop_assert!(said.lines().all(|line| line.starts_with("relay.toml:")), "{}", said);
            }
        }
    }
}
