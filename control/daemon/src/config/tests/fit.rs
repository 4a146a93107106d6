//! Checks tunnels against the generations, blocks and symbols that carry their packets.

use super::{HEAD, SOURCE};
use crate::config::Config;
use proptest::prelude::*;
use recoded_pipeline::params::{FlowCode, FlowParams};

/// A source whose links have this MTU, with keys of its tunnel and of the flow.
fn source(link_mtu: u32, address: &str, tunnel: &str, flow: &str) -> Result<Config, String> {
    let head = HEAD.replace("\"10.99.0.1/24\"\n", &format!("\"{address}\"\n{tunnel}"));
    let text = format!("[daemon]\nmemory = \"64 GiB\"\n{head}{SOURCE}{flow}");
    let config = Config::parse("f", &text, &|_| Some(link_mtu)).map(|(_, _, config)| config);
    config.map_err(|errors| errors.to_string())
}

const V4: &str = "10.99.0.1/24";
const V6: &str = "fd99::1/64";

/// The default was at least 576 for IPv6 as well, and Linux refused the address.
#[test]
fn default_mtu_of_an_ipv6_tunnel_is_at_least_1280() {
    let mtu = |link_mtu, address, flow| {
        source(link_mtu, address, "", flow).expect("valid").tunnels[0].mtu
    };
    let large = "code = \"rlnc\"\ngeneration_size = 256\nfield = 256\n";
    assert_eq!((mtu(1500, V4, large), mtu(1500, V6, large)), (1177, 1280));
    assert_eq!((mtu(1500, V4, ""), mtu(1500, V6, "")), (1421, 1421));
    assert_eq!((mtu(600, V4, ""), mtu(600, V6, "")), (576, 1280), "packets span symbols");
}

/// No error was reported before the tunnel got its address.
#[test]
fn links_that_leave_less_than_the_least_mtu_are_refused_with_what_to_change() {
    let said = source(1300, V6, "", "code = \"stream\"\n").expect_err("a symbol is too short");
    let rule = "each packet takes a symbol, and symbols of 1224 bytes have room for 1224 bytes, but \
                tunnel rec0 has mtu 1280, the least of an IPv6 tunnel: its links must carry larger \
                packets, or the flow needs another code";
    assert_eq!(said, format!("f:19: flow 1: code = \"stream\" does not fit: {rule}"));
    // The default symbol leaves room for a tag.
    let said = source(1345, V6, "", "code = \"stream\"\n").expect_err("a symbol is too short");
    let cure = "the file can give the flow symbol_bytes = 1280, the least that works";
    assert!(said.ends_with(cure), "{said}");
    assert!(source(1345, V6, "", "code = \"stream\"\nsymbol_bytes = 1280\n").is_ok());
    let said = source(1300, V6, "", "code = \"rlnc\"\ngeneration_size = 1\n")
        .expect_err("one symbol is too short");
    assert!(said.ends_with("generation_size = 2 is the least that works"), "{said}");
}

/// A stream has one symbol for each packet of its tunnel.
#[test]
fn tunnels_of_streams_fit_their_symbols() {
    let stream =
        |tunnel: &str, more: &str| source(1500, V4, tunnel, &format!("code = \"stream\"\n{more}"));
    assert_eq!(stream("", "").expect("valid").tunnels[0].mtu, 1421);
    assert!(stream("mtu = 1424\n", "").is_ok());
    let said = "each packet takes a symbol, and symbols of 1424 bytes have room for 1424 bytes, but \
                tunnel rec0 has mtu 1425: the file can give it mtu = 1424";
    let errors = stream("mtu = 1425\n", "").expect_err("a byte too many");
    assert_eq!(errors, format!("f:20: flow 1: code = \"stream\" does not fit: {said}"));
    let errors = stream("", "symbol_bytes = 575\n").expect_err("a byte too many");
    let said = "have room for 575 bytes, but tunnel rec0 has mtu 576, the least of an IPv4 tunnel: \
                the file can give the flow symbol_bytes = 576, the least that works";
    assert!(errors.ends_with(said), "{errors}");
}

/// The fix for an IPv6 tunnel was an MTU that the next check refused.
#[test]
fn cure_of_a_stream_is_no_mtu_below_the_least_of_the_tunnel() {
    let said = source(1300, V6, "mtu = 1400\n", "code = \"stream\"\n").expect_err("too short");
    assert!(!said.contains("can give it mtu"), "{said}");
}

/// Every full-size packet was silently dropped.
#[test]
fn generations_shorter_than_a_packet_of_the_tunnel_are_refused() {
    let rlnc =
        |tunnel: &str, flow: &str| source(1500, V4, tunnel, &format!("code = \"rlnc\"\n{flow}"));
    assert_eq!(rlnc("", "generation_size = 1\n").expect("valid").tunnels[0].mtu, 1424);
    assert!(rlnc("mtu = 1430\n", "generation_size = 1\n").is_ok(), "and two of length: 1432");
    let rule = "symbols of 1432 bytes give a generation room for a packet of 1430 bytes and its \
                length, but tunnel rec0 has mtu 1431: generation_size = 2 is the least that works";
    let said = rlnc("mtu = 1431\n", "generation_size = 1\n").expect_err("a byte too many");
    assert_eq!(said, format!("f:21: flow 1: generation_size = 1 does not fit: {rule}"));
    // Without the key the message names the flow's line: 16 symbols hold 256 bytes.
    let rule = "symbols of 16 bytes give a generation room for a packet of 254 bytes and its \
                length, but tunnel rec0 has mtu 576, the least of an IPv4 tunnel: generation_size \
                = 37 is the least that works";
    let said = rlnc("", "symbol_bytes = 16\n").expect_err("16 symbols are too few");
    assert_eq!(said, format!("f:14: flow 1: generation_size = 16 does not fit: {rule}"));
    assert!(rlnc("", "symbol_bytes = 16\ngeneration_size = 37\n").is_ok());
    let said = rlnc("mtu = 9000\n", "symbol_bytes = 16\n").expect_err("256 are too few");
    let cure = "the file can give the flow symbol_bytes = 563, the least that works";
    assert!(said.ends_with(cure), "{said}");
}

#[cfg(feature = "bats")]
#[test]
fn blocks_shorter_than_a_packet_of_the_tunnel_are_refused() {
    let bats =
        |tunnel: &str, flow: &str| source(1500, V4, tunnel, &format!("code = \"bats\"\n{flow}"));
    assert!(bats("mtu = 1418\n", "block_symbols = 1\n").is_ok(), "and two of length: 1420");
    let rule = "symbols of 1420 bytes give a block room for a packet of 1418 bytes and its length, \
                but tunnel rec0 has mtu 9000: block_symbols = 7 is the least that works";
    let said = bats("mtu = 9000\n", "block_symbols = 1\n").expect_err("too small a block");
    assert_eq!(said, format!("f:21: flow 1: block_symbols = 1 does not fit: {rule}"));
    assert!(bats("mtu = 9000\n", "block_symbols = 7\n").is_ok());
}

/// Longest packet that a source takes, as in `ingress` of each code.
fn longest(params: &FlowParams) -> usize {
    let held = match params.code {
        FlowCode::Rlnc => params.generation_size * params.symbol_bytes,
        #[cfg(feature = "bats")]
        FlowCode::Bats(bats) => bats.source_symbols * params.symbol_bytes,
        FlowCode::Stream(_) => return params.symbol_bytes,
    };
    held.saturating_sub(2)
}

fn codes() -> impl Strategy<Value = String> {
    let rlnc = (1..20_u32, prop::sample::select(vec![2, 16, 256])).prop_map(|(size, field)| {
        format!("code = \"rlnc\"\ngeneration_size = {size}\nfield = {field}\n")
    });
    let auto = Just(String::new());
    let stream = Just("code = \"stream\"\n".to_owned());
    let bats = (1..8_u32).prop_map(|size| format!("code = \"bats\"\nblock_symbols = {size}\n"));
    let bats = bats.prop_filter("is built in", |_| cfg!(feature = "bats"));
    if cfg!(feature = "bats") {
        prop_oneof![auto, rlnc, stream, bats].boxed()
    } else {
        prop_oneof![auto, rlnc, stream].boxed()
    }
}

/// A line with `key = number` in place of the line of this key.
fn set(lines: &str, key: &str, number: usize) -> String {
    let others = lines.lines().filter(|line| !line.starts_with(&format!("{key} =")));
    let others: String = others.map(|line| format!("{line}\n")).collect();
    format!("{others}{key} = {number}\n")
}

proptest! {
    /// Suggested fixes had values that the next check refused.
    #[test]
    fn any_source_fits_its_tunnel_or_is_told_a_value_that_does(
        link_mtu in prop_oneof![100_u32..700, 1200_u32..1600, Just(9000)],
        address in prop::sample::select(vec![V4, V6]),
        mtu in prop::option::of(prop_oneof![576_u32..1700, 5000_u32..=9000]),
        symbol_bytes in prop::option::of(prop_oneof![16_u32..100, 500_u32..1500]),
        code in codes(),
    ) {
        let tunnel = mtu.map_or_else(String::new, |mtu| format!("mtu = {mtu}\n"));
        let bytes = symbol_bytes.map_or_else(String::new, |bytes| format!("symbol_bytes = {bytes}\n"));
        let flow = format!("{code}{bytes}");
        let said = match source(link_mtu, address, &tunnel, &flow) {
            Ok(config) => {
                let mtu = usize::from(config.tunnels[0].mtu);
                prop_assert!(mtu <= longest(&config.flows[0].params));
                let least = if address == V4 { 576 } else { 1280 };
                prop_assert!(mtu >= least, "{}", mtu);
                return Ok(());
            }
            Err(said) => said,
        };
        let Some((_, rule)) = said.split_once("does not fit: ") else { return Ok(()) };
        let Some((_, cure)) = rule.rsplit_once(": ") else { panic!("{said}") };
        let (flow, cure) = match cure.strip_prefix("with code = \"rlnc\", ") {
            Some(cure) => (format!("code = \"rlnc\"\n{flow}"), cure),
            None => (flow, cure),
        };
        let Some((before, after)) = cure.split_once(" = ") else {
            prop_assert!(cure.starts_with("its links must carry larger packets"), "{}", said);
            return Ok(());
        };
        let key = before.rsplit(' ').next().unwrap_or_default();
        let number = after.split([' ', ',']).next().unwrap_or_default();
        let number: usize = number.parse().expect("a number");
        let with = |number| match key {
            "mtu" => source(link_mtu, address, &set(&tunnel, key, number), &flow),
            _ => source(link_mtu, address, &tunnel, &set(&flow, key, number)),
        };
        prop_assert!(with(number).is_ok(), "{}\n{:?}", said, with(number));
        let next = if key == "mtu" { number + 1 } else { number - 1 };
        prop_assert!(with(next).is_err(), "{} is not the last: {}", number, said);
    }
}
