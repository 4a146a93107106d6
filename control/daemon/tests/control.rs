//! Live changes to a fake dataplane, and their atomicity.

#![forbid(unsafe_code)]

mod common;

use common::{FILE, Pairs, Served, changes, generations};
use recoded::config::{Config, EngineChoice};
use recoded_api::keys::FLOW;
use recoded_api::v1::{Flow, FlowNeighbour};
use recoded_gf::FieldOrder;
use recoded_pipeline::params::{FlowCode, Redundancy};
use recoded_pipeline::report::{FlowCounters, Remainder};
use std::collections::BTreeSet;

#[test]
fn set_publishes_one_snapshot_with_every_change() {
    let served = Served::rlnc();
    let mut client = served.client();
    let all = changes(&[
        ("field", "4"),
        ("generation_size", "64"),
        ("redundancy", "1.5"),
        ("target_loss", "1e-3"),
        ("redundancy_max", "8"),
        ("flush_timeout_us", "500"),
        ("repair", "false"),
    ]);
    let adopted = client.set(1, &all).expect("adopted");
    assert_eq!((adopted.edition, adopted.flow), (2, 1));
    assert_eq!(adopted.parameters.redundancy.as_deref(), Some("1.5"));
    assert_eq!(adopted.parameters.symbol_bytes, 1420, "the vector has grown by eight bytes");

    let published = served.dataplane.with(|fake| fake.published.clone());
    let [snapshot] = &published[..] else { panic!("one snapshot, not {}", published.len()) };
    let flow = &snapshot.flows[0];
    assert_eq!((snapshot.edition, flow.field, flow.generation_size), (2, FieldOrder::Four, 64));
    assert_eq!(flow.redundancy, Redundancy::Fixed(1.5));
    assert_eq!((flow.flush_timeout_nanos, flow.repair), (500_000, false));
    assert_eq!(snapshot.flows.len(), 3, "the other flows are still there");

    let auto = client.set(1, &changes(&[("redundancy", "auto")])).expect("a word needs no quotes");
    assert_eq!((auto.edition, auto.parameters.redundancy.as_deref()), (3, Some("auto")));
    let relay = client.set(2, &changes(&[("recoding", "random"), ("generation_timeout_us", "9")]));
    assert_eq!(relay.expect("adopted").parameters.recoding.as_deref(), Some("random"));
    let config = client.config().expect("config");
    assert!(config.contains("generation_size = 64") && config.contains("recoding = \"random\""));
    let (_, _, again) = Config::parse("again", &config, &|_| Some(1500)).expect("valid");
    assert_eq!(again.to_toml(), config);
}

#[test]
fn change_that_takes_another_code_says_so() {
    let served = Served::start();
    let mut client = served.client();
    let mut notices = |pairs| client.set(1, &changes(pairs)).expect("adopted").notices;
    let said = notices(&[("redundancy", "1.2")]);
    assert!(said[0].starts_with("code = \"auto\" is rlnc now and was stream before"), "{said:?}");
    assert!(notices(&[("target_loss", "1e-3")]).is_empty());
    assert_eq!(notices(&[("redundancy", "auto")]).len(), 1);
    assert!(notices(&[("code", "rlnc")]).is_empty(), "the change itself names it");
}

/// The code follows the configured path properties, in both directions.
#[test]
fn auto_chooses_again_with_every_change_and_shows_what_it_chose() {
    let served = Served::start();
    let mut client = served.client();
    let mut set = |pairs| client.set(1, &changes(pairs)).expect("adopted").parameters;
    let mut codes = Vec::new();
    let steps: [Pairs; 6] = [
        &[("repair", "false")],
        &[("repair", "true")],
        &[("redundancy", "1.5")],
        &[("redundancy", "auto")],
        &[("code", "rlnc"), ("field", "4")],
        &[("code", "auto")],
    ];
    for step in steps {
        let now = set(step);
        let sizes = (now.field, now.generation_size, now.stream_symbols);
        codes.push(match (now.code.as_deref(), sizes) {
            (Some("auto"), (Some(256), None, Some(32_768))) => "auto: stream",
            (Some("auto"), (Some(16), Some(16), None)) => "auto: rlnc",
            (Some("rlnc"), (Some(4), Some(16), None)) => "rlnc",
            other => panic!("{step:?}: {other:?}"),
        });
    }
    let expected =
        ["auto: rlnc", "auto: stream", "auto: rlnc", "auto: stream", "rlnc", "auto: stream"];
    assert_eq!(codes, expected);
    let published = served.dataplane.with(|fake| fake.published.clone());
    let codes = published.iter().map(|snapshot| snapshot.flows[0].code.name());
    assert_eq!(codes.collect::<Vec<_>>(), expected.map(|code| code.trim_start_matches("auto: ")));
    let config = client.config().expect("config");
    assert!(config.contains("\ncode = \"auto\"\n# auto: code = \"stream\"\n"), "{config}");
    let said = "flow 1: generation_size = 32 does not apply: it is for code = \"rlnc\"";
    let size = client.set(1, &changes(&[("generation_size", "32")]));
    assert_eq!(size.expect_err("a stream has none").to_string(), said);

    // The tunnel of a source that starts with generations has room for a stream.
    let served = Served::with(&FILE.replacen("\nrepair = true", "\nrepair = false", 1));
    let back = served.client().set(1, &changes(&[("repair", "true")])).expect("adopted");
    assert_eq!(back.parameters.stream_symbols, Some(32_768));
}

#[test]
fn the_profile_of_a_stream_changes_live_and_goes_with_its_code() {
    let served = Served::start();
    let mut client = served.client();
    let interactive: Pairs = &[("stream_profile", "interactive")];
    let steps: [(Pairs, Option<&str>); 5] = [
        (interactive, Some("interactive")),
        (&[("code", "stream")], Some("interactive")),
        (&[("code", "auto")], Some("interactive")),
        (&[("code", "rlnc")], None),
        (&[("code", "auto")], Some("balanced")),
    ];
    for (step, expected) in steps {
        let now = client.set(1, &changes(step)).expect("adopted").parameters;
        assert_eq!(now.stream_profile.as_deref(), expected, "{step:?}");
        let published = served.dataplane.with(|fake| fake.published.clone());
        let code = published.last().expect("published").flows[0].code;
        let profile = match code {
            FlowCode::Stream(stream) => Some(stream.profile.name()),
            _ => None,
        };
        assert_eq!(profile, expected, "{step:?}");
    }
    client.set(1, &changes(&[("code", "rlnc")])).expect("adopted");
    let said =
        "flow 1: stream_profile = \"interactive\" does not apply: it is for code = \"stream\"";
    let refused = client.set(1, &changes(interactive));
    assert_eq!(refused.expect_err("generations have none").to_string(), said);
}

/// A code that does not fit the tunnel is refused while the tunnel exists, even if the file would
/// change the tunnel.
#[test]
fn a_stream_is_refused_live_where_packets_of_the_tunnel_are_longer_than_its_symbols() {
    let served = Served::rlnc();
    let mut client = served.client();
    let stream = changes(&[("code", "stream")]);
    let adopted = client.set(1, &stream).expect("the tunnel has room for any code").parameters;
    assert_eq!((adopted.field, adopted.symbol_bytes), (Some(256), 1424));
    // The field is the code's default, since a stream does not support 16; and 16 again afterwards.
    let back = client.set(1, &changes(&[("code", "rlnc")])).expect("adopted").parameters;
    assert_eq!((back.field, back.generation_size), (Some(16), Some(16)));
    let served = Served::with(&generations(&FILE.replacen("#mtu = 1400", "mtu = 1430", 1)));
    let mut client = served.client();
    assert_eq!(client.state().expect("state").tunnels[0].mtu, 1430);
    let said = "flow 1: code = \"stream\" does not fit: each packet takes a symbol, and symbols of 1424 \
                bytes have room for 1424 bytes, but tunnel rec0 has mtu 1430: the file can give it \
                mtu = 1424";
    assert_eq!(client.set(1, &stream).expect_err("a byte too many").to_string(), said);
}

/// It was accepted, and the source then dropped every full-size packet.
#[test]
fn a_generation_or_block_is_refused_live_where_packets_of_the_tunnel_are_longer() {
    let served = Served::with(&generations(&FILE.replacen("#mtu = 1400", "mtu = 1500", 1)));
    let mut client = served.client();
    let small = changes(&[("generation_size", "1")]);
    let said = "flow 1: generation_size = 1 does not fit: symbols of 1432 bytes give a generation \
                room for a packet of 1430 bytes and its length, but tunnel rec0 has mtu 1500: \
                generation_size = 2 is the least that works";
    assert_eq!(client.set(1, &small).expect_err("no full-size packet fits").to_string(), said);
    if cfg!(feature = "bats") {
        let small = changes(&[("code", "bats"), ("block_symbols", "1")]);
        let said = client.set(1, &small).expect_err("no full-size packet fits").to_string();
        assert!(said.starts_with("flow 1: block_symbols = 1 does not fit: "), "{said}");
        assert!(said.ends_with(": block_symbols = 2 is the least that works"), "{said}");
    }
    assert_eq!(served.dataplane.editions(), [0_u64; 0]);
    client.set(1, &changes(&[("generation_size", "2")])).expect("what the message says");
    // A tunnel with the default MTU has room for any size.
    Served::rlnc().client().set(1, &small).expect("each packet fits one symbol");
}

#[cfg(feature = "bats")]
#[test]
fn code_changes_live_and_the_keys_of_the_other_code_are_forgotten() {
    let served = Served::rlnc();
    let mut client = served.client();
    let pairs: Pairs = &[("code", "bats"), ("block_symbols", "64"), ("interleave", "auto")];
    let adopted = client.set(1, &changes(pairs)).expect("adopted").parameters;
    assert_eq!(adopted.code.as_deref(), Some("bats"));
    assert_eq!((adopted.block_symbols, adopted.batch_size), (Some(64), Some(16)));
    assert_eq!(adopted.interleave.as_deref(), Some("auto"));
    assert_eq!(adopted.stream_symbols, None);
    let config = client.config().expect("config");
    assert!(config.contains("block_symbols = 64") && !config.contains("\ngeneration_size = "));
    let stream: Pairs = &[("code", "stream"), ("field", "256"), ("stream_symbols", "1024")];
    let adopted = client.set(1, &changes(stream)).expect("adopted").parameters;
    assert_eq!((adopted.stream_symbols, adopted.field), (Some(1024), Some(256)));
    assert_eq!((adopted.block_symbols, adopted.generation_size), (None, None));
    let other = client.set(1, &changes(&[("code", "rlnc"), ("profile", "baseline")]));
    let said = "flow 1: profile = \"baseline\" does not apply: it is for code = \"bats\"";
    assert_eq!(other.expect_err("a key of another code").to_string(), said);
    let sink = client.set(3, &changes(&[("code", "bats")])).expect_err("it sees the code");
    let said = "flow 3: code = \"bats\" does not apply: only a source chooses it; relays and sinks \
                learn it from packets; the source of this tunnel here is flow 1: recodectl set 1 \
                code=bats";
    assert_eq!(sink.to_string(), said);
    let back = client.set(1, &changes(&[("code", "rlnc")])).expect("adopted").parameters;
    assert_eq!((back.generation_size, back.field), (Some(16), Some(256)));
    let relay = client.set(2, &changes(&[("adaptive", "false")])).expect("adopted").parameters;
    assert_eq!((relay.adaptive, relay.code), (Some(false), None));
}

#[test]
fn next_hops_are_those_of_all_shards_together() {
    let served = Served::start();
    let flows = served.client().state().expect("state").flows;
    let neighbour = FlowNeighbour {
        next_hop: flows[0].next_hops[0].clone(),
        rate_mbit: 16.0,
        round_trip_us: Some(5_000.0),
        queue_us: Some(5.0),
        loss: Some(0.375),
        heard_ago_seconds: Some(3.0),
        silent: true,
        lost_packet_bytes: Some(1431),
        arrived_packet_bytes: None,
        needed_packet_bytes: None,
        share: Some(0.375),
        in_doubt: true,
        behind_us: Some(5_500_000.0),
    };
    assert_eq!(flows[0].neighbours, [neighbour]);
    assert_eq!(flows[1].neighbours, []);
}

#[test]
fn set_that_changes_nothing_publishes_nothing() {
    let served = Served::rlnc();
    let adopted = served.client().set(1, &changes(&[("field", "16")])).expect("the same as before");
    assert_eq!(adopted.edition, 1);
    assert_eq!(served.dataplane.editions(), [0_u64; 0]);
}

#[test]
fn set_is_refused_by_key_value_and_rule_and_changes_nothing() {
    let served = Served::rlnc();
    let mut client = served.client();
    let live = FLOW.live().map(|key| key.name).collect::<Vec<_>>().join(", ");
    assert!(live.starts_with("code, field, ") && !live.contains("symbol_bytes"), "{live}");
    let long = "1".repeat(65);
    let cases: [(i64, Pairs, String); 10] = [
        (
            1,
            &[("generation_size", "300"), ("field", "4")],
            "flow 1: generation_size = 300 is out of range: a generation has 1 to 256 symbols".into(),
        ),
        (
            2,
            &[("field", "4")],
            "flow 2: field = 4 does not apply: only a source chooses it; relays and sinks learn it \
             from packets"
                .into(),
        ),
        (
            1,
            &[("symbol_bytes", "100")],
            format!(
                "flow 1: symbol_bytes cannot be set while the daemon runs: edit the file and \
                 run recodectl reload; these can: {live}"
            ),
        ),
        (
            1,
            &[("reduncancy", "2")],
            "flow 1: unknown key reduncancy: did you mean redundancy?".into(),
        ),
        (1, &[("colour", "red")], format!("flow 1: unknown key colour: these can change: {live}")),
        (1, &[], "flow 1: nothing to change: name a key and a value".into()),
        (7, &[("field", "4")], "no flow 7 here: there is 1, 2, 3".into()),
        (
            1,
            &[("field", "4\nrepair = false")],
            "flow 1: field = \"4\\nrepair = false\" is not a whole number: it is 2, 4, 16 or 256"
                .into(),
        ),
        (
            1,
            &[("field", &long)],
            "flow 1: the value of field is longer than any it can have".into(),
        ),
        (
            3,
            &[("hold_timeout_us", "1")],
            "flow 3: hold_timeout_us = 1 does not fit: delivery must wait (hold_timeout_us, 1) at \
             least as long as a repair request does (generation_timeout_us, 20000)"
                .into(),
        ),
    ];
    for (flow, pairs, said) in cases {
        let error = client.set(flow, &changes(pairs)).expect_err("must be refused");
        assert_eq!((error.to_string(), error.exit_code()), (said, 4));
    }
    assert_eq!(served.dataplane.editions(), [0_u64; 0]);
    assert_eq!(client.state().expect("state").edition, 1);
}

#[test]
fn change_beyond_the_memory_budget_is_refused_and_names_the_largest() {
    let little = FILE.replace("\nmemory = \"512 MiB\"", "\nmemory = \"54 MiB\"");
    let served = Served::with(&generations(&little));
    let mut client = served.client();
    let stream: Pairs = &[("code", "stream"), ("stream_symbols", "32768")];
    let error = client.set(1, &changes(stream)).expect_err("too much");
    let error = error.to_string();
    assert!(error.contains("daemon: memory = \"54 MiB\" is too little"), "{error}");
    assert!(error.contains("flow 1 (source) "), "{error}");
    assert_eq!(served.dataplane.editions(), [0_u64; 0]);
    client.set(1, &changes(&[("generation_size", "8")])).expect("less is no matter");
}

#[test]
fn explicit_symbol_bytes_that_no_longer_fit_refuse_the_change() {
    let sized = FILE.replace("#symbol_bytes = 1424", "symbol_bytes = 1428");
    let served = Served::with(&generations(&sized));
    let error = served.client().set(1, &changes(&[("generation_size", "256"), ("field", "256")]));
    let said = "flow 1: symbol_bytes = 1428 is too large: eth1 carries 1500-byte packets, which \
                leave 1196 bytes for a symbol to 10.0.2.2 with generation_size 256 and field 256";
    let error = error.expect_err("too large").to_string();
    assert!(error.starts_with("test.toml:"), "it is written in the file: {error}");
    assert!(error.ends_with(said), "{error}");
}

/// The MTU was read only once: after it was lowered, every change restored symbols that did not
/// fit.
#[test]
fn symbols_follow_the_mtu_that_an_interface_has_now() {
    let served = Served::rlnc();
    let mut client = served.client();
    served.dataplane.with(|fake| fake.mtu = Some(1300));
    let adopted = client.set(1, &changes(&[("repair", "false")])).expect("adopted");
    assert_eq!(adopted.parameters.symbol_bytes, 1228);
    served.dataplane.with(|fake| fake.mtu = Some(1500));
    let adopted = client.set(1, &changes(&[("repair", "true")])).expect("adopted");
    assert_eq!(adopted.parameters.symbol_bytes, 1428);
}

#[test]
fn snapshot_that_the_dataplane_refuses_leaves_the_last_good_one() {
    let served = Served::rlnc();
    served.dataplane.with(|fake| fake.refuses = true);
    let mut client = served.client();
    let error = client.set(1, &changes(&[("field", "4")])).expect_err("refused");
    assert_eq!((error.to_string(), error.exit_code()), ("the fake refuses".into(), 4));
    assert!(client.config().expect("config").contains("field = 16"));
    served.dataplane.with(|fake| fake.refuses = false);
    assert_eq!(client.set(1, &changes(&[("field", "4")])).expect("adopted").edition, 2);
}

#[test]
fn edition_that_a_worker_does_not_adopt_is_taken_back() {
    let served = Served::rlnc();
    served.dataplane.with(|fake| fake.stuck = true);
    let mut client = served.client();
    let error = client.set(1, &changes(&[("field", "4")])).expect_err("worker 1 is stuck");
    let said = "edition 2 was not adopted within 2 s (worker 1 is at edition 1); rolled back to \
                the previous edition";
    assert_eq!((error.to_string(), error.exit_code()), (said.into(), 1));
    let fields: Vec<(u64, FieldOrder)> = served.dataplane.with(|fake| {
        fake.published.iter().map(|snapshot| (snapshot.edition, snapshot.flows[0].field)).collect()
    });
    assert_eq!(fields, [(2, FieldOrder::Four), (3, FieldOrder::Sixteen)]);
    assert!(client.config().expect("config").contains("field = 16"));
}

/// The total of a flow once fell when a shard of it was released.
#[test]
fn state_adds_what_shards_counted_that_are_gone() {
    let served = Served::start();
    let counters = FlowCounters { received: 100, decode_delay_nanos_max: 7, ..Default::default() };
    served.dataplane.with(|fake| {
        fake.remainders =
            [1, 2, 9].map(|flow| Remainder { flow, counters: counters.clone() }).into();
    });
    let flows = served.client().state().expect("state").flows;
    let of = |flow: &Flow| (flow.count("received"), flow.count("decode_delay_nanos_max"));
    assert_eq!(flows.iter().map(of).collect::<Vec<_>>(), [(108, 500_000), (100, 7), (0, 0)]);
    assert_eq!(flows[0].rank_histogram, [0, 0, 8]);
}

#[test]
fn state_sums_workers_and_averages_losses() {
    let served = Served::with(&generations(FILE));
    let state = served.client().state().expect("state");
    let flow = &state.flows[0];
    assert_eq!((flow.count("received"), flow.held, flow.planned), (8, 4, 20));
    assert_eq!(flow.rank_histogram, [0, 0, 8]);
    assert_eq!(flow.rank_ratio, Some(1.0));
    assert_eq!(flow.hops.len(), 1);
    assert!((flow.hops[0].loss - 0.375).abs() < 1e-12);
    assert_eq!(flow.next_hops, ["east:10.0.2.2"]);
    assert_eq!((flow.count("source_symbols"), flow.overhead), (32, Some(1.25)));
    assert_eq!(flow.decode_delay_mean_us, Some(2.0));
    assert_eq!(flow.decode_delay_max_us, Some(500.0));
    let theory = flow.rank_theory.expect("the source knows the losses of the path");
    assert!((0.7..0.8).contains(&theory), "20 packets for 16 symbols, 37.5 % lost: {theory}");
    assert_eq!(flow.hops[0].arrived_theory, Some(theory), "the first hop is the last");
    assert_eq!(flow.residual_loss, Some(0.04), "3 and 5 of 100 generations");
    assert_eq!(flow.overhead_theory, None, "it depends on the target where there are no blocks");
    assert_eq!(state.flows[1].upstreams, ["west:10.0.1.1"]);
    assert_eq!(state.flows[1].rank_ratio, None, "no worker has reported it yet");
    let unseen = (&state.flows[1].code[..], state.flows[1].field, state.flows[1].generation_size);
    assert_eq!(unseen, ("", 0, 0), "it learns them from packets");
    assert_eq!(state.tunnels[0].addresses, ["10.99.0.1/24"]);
    assert_eq!(state.tunnels[0].mtu, 1424);
    assert_eq!(state.drops["replayed"], 0);
    assert_eq!(flow.count("decode_delay_nanos_max"), 500_000, "the longest, not a sum");
    let names: BTreeSet<&str> =
        recoded_counters::flow::TABLE.counters().map(|counter| counter.name).collect();
    for flow in &state.flows {
        let shown = flow.counters.keys().map(String::as_str);
        assert!(shown.eq(names.iter().copied()), "a flow shows its whole table, zeros too");
    }
}

#[test]
fn engine_changes_at_once_and_only_to_what_there_is() {
    let served = Served::rlnc();
    let mut client = served.client();
    assert_eq!(client.state().expect("state").engine.mode, "auto");
    assert_eq!(client.set_engine("cpu").expect("set").mode, "cpu");
    assert_eq!(served.dataplane.with(|fake| fake.engine), Some(EngineChoice::Cpu));
    assert!(client.config().expect("config").contains("engine = \"cpu\""));
    let refused = client.set_engine("abacus").expect_err("refused").to_string();
    assert!(refused.contains("abacus") && refused.contains("\"cuda\""), "{refused}");
    assert_eq!(client.state().expect("state").engine.mode, "cpu");
    assert_eq!(client.set_engine("fpga").expect("set").mode, "fpga");
    assert_eq!(served.dataplane.with(|fake| fake.engine), Some(EngineChoice::Fpga));
    client.set_engine("cpu").expect("set");
    // A later change of a flow does not restore the old engine.
    client.set(1, &changes(&[("field", "4")])).expect("adopted");
    assert_eq!(client.state().expect("state").engine.mode, "cpu");
}
