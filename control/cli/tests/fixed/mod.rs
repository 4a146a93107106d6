//! The state shown in tests, with a bit of everything.

#[allow(dead_code, reason = "only some tests show one path")]
pub mod line;

use recoded_api::v1::{
    Change, Disagreement, Engine, Event, Events, Flow, FlowNeighbour, FlowUpstream, Frames,
    History, HistoryEntry, HopLoss, Link, Neighbour, Parameters, Reloaded, Remote, Session, Split,
    State, Tunnel, Worker,
};
use std::collections::BTreeMap;
use std::path::Path;

/// Some changes; with `has_gap`, one that costs a gap.
pub fn reloaded(has_gap: bool) -> Reloaded {
    let change =
        |what: &str, line, cost: &str| Change { what: what.into(), line, cost: cost.into() };
    let mut changes = vec![
        change("link east: rate_mbit = 97.0 becomes 50.0", Some(12), "live"),
        change("flow 1: redundancy = \"auto\" becomes 1.5", Some(31), "live"),
        change("flow 3 is taken away", None, "live"),
    ];
    if has_gap {
        changes.insert(0, change("daemon: frames = 16384 becomes 32768", Some(5), "gap"));
    }
    Reloaded { changes, ..Reloaded::default() }
}

pub fn history() -> History {
    let entry = |number, age_seconds, cause: &str| {
        let at = 1_700_000_000 - age_seconds;
        HistoryEntry { number, at, age_seconds, cause: cause.into() }
    };
    History {
        entries: vec![
            entry(5, 400_000, "start"),
            entry(6, 9_000, "set"),
            entry(7, 600, "unconfirmed"),
            entry(8, 9, "reload"),
        ],
        directory: Some("/var/lib/recoded".into()),
        trouble: "/var/lib/recoded cannot be used (No space left on device (os error 28)): make \
                  room there and let the daemon write to it, or name another directory with \
                  --state; until then the history is in memory only"
            .into(),
        confirm_seconds_left: Some(51),
    }
}

pub fn events() -> Events {
    let event = |number, level: &str, kind: &str, subject: &str, text: &str| Event {
        number,
        at_ms: 1_795_419_900_000 + 1_000 * number,
        level: level.into(),
        kind: kind.into(),
        subject: subject.into(),
        text: text.into(),
        ..Event::default()
    };
    let silent =
        "east:10.0.2.2 does not answer, although packets are sent to it; last report 3 s ago";
    let ended = "the dataplane process ended (signal: 9 (SIGKILL)) after 61000 ms; another starts \
                 in 0 ms, tunnels and XDP programs stay";
    let events = vec![
        event(1, "info", "daemon_started", "daemon", "recoded 0.1.0 starts"),
        event(2, "info", "flow_up", "flow 5", "up: a next hop answers"),
        Event {
            about: "east:10.0.2.2".into(),
            ..event(11, "warning", "next_hop_silent", "flow 5", silent)
        },
        event(12, "error", "process_ended", "process", ended),
        Event { left_out: 7, ..event(14, "warning", "link_down", "link east", "eth1 is down") },
    ];
    Events { events, newest: 14, began_ms: 1_795_419_900_000 }
}

pub fn engine() -> Engine {
    Engine {
        mode: "auto".into(),
        up: true,
        device: "cuda".into(),
        reason: "device lost: poll failed: launch failure (719)".into(),
        offered: 90_000,
        taken: 61_000,
        offloaded: 60_950,
        offloaded_bytes: 44_000_000_000,
        declined: counted([("cost", 0), ("down", 28_500), ("full", 500)]),
        redone: counted([("hung", 0), ("lost", 50)]),
        bundles: counted([("age", 900), ("bytes", 3_000), ("idle", 0)]),
        bundle_bytes: vec![0, 0, 0, 12, 900, 0, 0, 0, 2_988],
        latency_us: vec![0, 0, 0, 0, 0, 0, 1_000, 2_800, 100],
        counters: counted([
            ("offered_jobs", 90_000),
            ("device_downs", 1),
            ("device_ups", 2),
            ("late", 0),
            ("jobs_of_tomorrow", 6),
        ]),
    }
}

fn counted<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counts.map(|(name, number)| (name.to_owned(), number)).into()
}

pub fn source_parameters() -> Parameters {
    Parameters {
        code: Some("rlnc".into()),
        shards: Some(1),
        field: Some(16),
        generation_size: Some(16),
        symbol_bytes: 1428,
        redundancy: Some("auto".into()),
        target_loss: Some(1e-4),
        redundancy_max: Some(4.0),
        flush_timeout_us: Some(1000),
        repair: Some(true),
        ..Parameters::default()
    }
}

fn source() -> Flow {
    let hops = (0..10).map(|hop| HopLoss {
        hop,
        loss: 0.125 + hop as f64 / 512.0,
        burst_mean: 1.5,
        arrived_theory: Some(1.0 - (hop + 1) as f64 * 0.000_098),
    });
    Flow {
        waits: String::new(),
        id: 1,
        role: "source".into(),
        tunnel: Some("rec0".into()),
        next_hops: vec!["east:10.0.2.2".into()],
        end: String::new(),
        neighbours: vec![],
        spread: None,
        carries_mbit: None,
        upstreams: vec![],
        arrivals: vec![],
        parameters: source_parameters(),
        code: "rlnc".into(),
        epoch: 3,
        field: 16,
        generation_size: 16,
        symbol_bytes: 1428,
        planned: 22,
        held: 64,
        hops: hops.collect(),
        remote: Some(Remote {
            newest: 70_123,
            complete: 70_100,
            failed: 7,
            rank_histogram: vec![0; 17],
            rank_ratio: Some(0.99871),
        }),
        counters: counted([
            ("ingress_packets", 1_234_567_890),
            ("ingress_bytes", 1_700_000_000_000),
            ("sent_systematic", 1_122_000),
            ("sent_coded", 420_000),
            ("sent_repair", 12),
            ("source_symbols", 1_122_000),
            ("generations", 70_125),
            ("repairs", 9),
            ("repairs_refused", 3),
            ("counter_of_tomorrow", 5),
        ]),
        rank_histogram: vec![],
        rank_ratio: None,
        residual_loss: Some(7.0 / 70_107.0),
        rank_theory: Some(0.99902),
        overhead: Some(1.37434),
        overhead_theory: None,
        decode_delay_mean_us: None,
        decode_delay_max_us: None,
        state: Some("up".into()),
        goodput_mbit: Some(61.2),
        wire_mbit: Some(93.04),
        heard_ago_seconds: Some(1.0),
        received_ago_seconds: None,
    }
}

fn relay() -> Flow {
    let mut rank_histogram = vec![0; 17];
    rank_histogram[14] = 120;
    rank_histogram[15] = 900;
    rank_histogram[16] = 68_000;
    Flow {
        id: 4_294_967_295,
        role: "relay".into(),
        tunnel: None,
        next_hops: vec!["east:10.0.2.2".into(), "west:fd00:1234::2".into()],
        spread: Some("every".into()),
        upstreams: vec!["west:10.0.1.1".into(), "north:10.0.3.1".into()],
        arrivals: vec![
            FlowUpstream {
                upstream: "west:10.0.1.1".into(),
                loss: Some(0.0987),
                share: Some(0.6667),
                received_ago_seconds: Some(0.1),
            },
            FlowUpstream {
                upstream: "north:10.0.3.1".into(),
                share: Some(0.3333),
                received_ago_seconds: Some(41.4),
                ..FlowUpstream::default()
            },
        ],
        parameters: Parameters {
            symbol_bytes: 1472,
            redundancy_max: Some(4.0),
            generation_timeout_us: Some(20_000),
            recoding: Some("systematic".into()),
            adaptive: Some(true),
            ..Parameters::default()
        },
        hops: vec![HopLoss { loss: 0.0987, burst_mean: 1.12, ..HopLoss::default() }],
        remote: None,
        counters: counted([
            ("received", 1_390_000),
            ("innovative", 1_100_000),
            ("redundant", 290_000),
            ("sent_forwarded", 1_100_000),
            ("sent_recoded", 300_000),
            ("generations", 69_020),
            ("generations_complete", 68_000),
        ]),
        rank_ratio: Some(0.9989),
        rank_histogram,
        residual_loss: None,
        rank_theory: None,
        overhead: None,
        state: Some("quiet".into()),
        goodput_mbit: None,
        wire_mbit: Some(87.6),
        heard_ago_seconds: None,
        received_ago_seconds: Some(41.4),
        ..source()
    }
}

fn bats_source() -> Flow {
    Flow {
        id: 3,
        parameters: Parameters {
            code: Some("bats".into()),
            block_symbols: Some(256),
            batch_size: Some(16),
            profile: Some("cyclic-shift".into()),
            generator_bits: Some(8),
            interleave: Some("auto".into()),
            generation_size: None,
            ..source_parameters()
        },
        code: "bats".into(),
        symbol_bytes: 1424,
        counters: counted([
            ("ingress_packets", 255_000),
            ("sent_coded", 340_000),
            ("sent_repair", 5_008),
            ("source_symbols", 256_000),
            ("generations", 1_000),
            ("repairs", 150),
        ]),
        rank_theory: Some(0.77104),
        state: Some("down".into()),
        overhead: Some(1.34769),
        overhead_theory: Some(1.29694),
        ..source()
    }
}

fn stream_sink() -> Flow {
    Flow {
        id: 4,
        role: "sink".into(),
        next_hops: vec![],
        upstreams: vec!["west:10.0.1.1".into()],
        parameters: Parameters {
            symbol_bytes: 1472,
            generation_timeout_us: Some(20_000),
            hold_timeout_us: Some(200_000),
            repair: Some(true),
            ..Parameters::default()
        },
        code: "stream".into(),
        remote: None,
        hops: vec![],
        counters: counted([
            ("received", 120_000),
            ("delivered_packets", 80_000),
            ("source_symbols", 80_000),
            ("generations", 80_000),
            ("generations_complete", 79_980),
            ("generations_failed", 20),
        ]),
        residual_loss: Some(0.000_25),
        rank_theory: None,
        overhead: Some(1.5),
        decode_delay_mean_us: Some(1_234.5),
        decode_delay_max_us: Some(98_765.4),
        state: Some("waiting".into()),
        goodput_mbit: Some(0.0),
        wire_mbit: None,
        heard_ago_seconds: None,
        ..source()
    }
}

fn stream_source() -> Flow {
    let near = FlowNeighbour {
        next_hop: "east:10.0.2.2".into(),
        rate_mbit: 93.41,
        round_trip_us: Some(2_345.6),
        queue_us: Some(412.0),
        loss: Some(0.0987),
        heard_ago_seconds: Some(0.012),
        silent: false,
        lost_packet_bytes: Some(1473),
        arrived_packet_bytes: Some(1400),
        needed_packet_bytes: None,
        share: Some(0.812),
        in_doubt: false,
        behind_us: Some(0.0),
    };
    let in_doubt = FlowNeighbour {
        next_hop: "south:10.0.4.2".into(),
        rate_mbit: 41.0,
        loss: Some(0.02),
        silent: false,
        in_doubt: true,
        share: Some(0.188),
        lost_packet_bytes: Some(668),
        arrived_packet_bytes: Some(228),
        needed_packet_bytes: Some(671),
        ..near.clone()
    };
    let never_heard = FlowNeighbour {
        next_hop: "west:fd00:1234:5678:9abc::2".into(),
        rate_mbit: 20.0,
        silent: true,
        ..FlowNeighbour::default()
    };
    Flow {
        id: 5,
        next_hops: [&near, &never_heard, &in_doubt].map(|hop| hop.next_hop.clone()).into(),
        neighbours: vec![near, never_heard, in_doubt],
        spread: Some("sum".into()),
        carries_mbit: Some(84.2),
        parameters: Parameters {
            code: Some("stream".into()),
            stream_symbols: Some(32_768),
            stream_profile: Some("interactive".into()),
            generation_size: None,
            ..source_parameters()
        },
        code: "stream".into(),
        field: 256,
        generation_size: 32_768,
        planned: 0,
        hops: [0.0987, 0.05, 0.101]
            .into_iter()
            .zip(0..)
            .map(|(loss, hop)| HopLoss { hop, loss, burst_mean: 1.2, arrived_theory: Some(1.0) })
            .collect(),
        remote: Some(Remote { newest: 1_000, complete: 998, ..Remote::default() }),
        counters: counted([("ingress_packets", 1_000), ("sent_systematic", 1_000)]),
        residual_loss: Some(0.0),
        rank_theory: None,
        overhead: Some(1.144),
        overhead_theory: Some(1.11),
        state: Some("up".into()),
        heard_ago_seconds: None,
        ..source()
    }
}

fn neighbour(address: &str, resolved: bool) -> Neighbour {
    Neighbour { address: address.into(), resolved, ..Neighbour::default() }
}

fn link(name: &str, interface: &str, local: &str) -> Link {
    Link {
        name: name.into(),
        interface: interface.into(),
        local: local.into(),
        state: "up".into(),
        waits: String::new(),
        mtu: 1500,
        xdp_mode: "native".into(),
        socket_mode: "copy".into(),
        reason: "zero-copy: the driver of veth does not offer it".into(),
        queues: 1,
        rate_mbit: None,
        not_neighbours: vec!["192.0.2.77".into()],
        neighbours: vec![Neighbour {
            version: "0.1.0".into(),
            said_ago_seconds: Some(4.2),
            clock_ahead_seconds: -1,
            endpoint: "198.51.100.7:40017".into(),
            moves: 2,
            ..neighbour("10.0.1.1", true)
        }],
        received_packets: 1_390_100,
        received_bytes: 2_100_000_000,
        sent_packets: 12,
        sent_bytes: 1_200,
        counters: counted([("rx_packets", 1_390_100), ("tx_ring_empty", 4)]),
        faults: counted([("rx_ring_full", 0), ("tx_no_neighbour", 0)]),
    }
}

fn tunnels() -> Vec<Tunnel> {
    vec![
        Tunnel {
            name: "rec0".into(),
            addresses: vec!["10.99.0.1/24".into(), "fd00:99::1/64".into()],
            mtu: 1426,
            mtu_configured: 1426,
            state: "gone".into(),
            offload: "tcp".into(),
            reason: "Linux before 6.2 offers no more".into(),
            read_packets: 1_234_567,
            read_bytes: 1_700_000_000,
            written_packets: 3,
            written_bytes: 252,
            counters: counted([
                ("queue_delay", 120),
                ("queue_marked", 7),
                ("queued_packets", 900_000),
                ("writes", 1),
            ]),
            faults: counted([
                ("queue_full", 3),
                ("read_failed", 0),
                ("recreated", 1),
                ("write_failed", 2),
            ]),
            split: None,
        },
        Tunnel {
            name: "rec1".into(),
            addresses: vec!["10.98.0.1/24".into()],
            mtu: 1397,
            mtu_configured: 1429,
            state: "no-carrier".into(),
            offload: "tcp+udp".into(),
            split: Some(Split {
                peer: "10.98.0.2".into(),
                state: "waiting".into(),
                open: 12,
                waiting_bytes: 65_536,
                counters: counted([("opened", 340), ("refused", 2), ("reset", 9), ("served", 1)]),
                faults: counted([("full", 0)]),
                ..Split::default()
            }),
            ..Tunnel::default()
        },
    ]
}

fn sessions() -> Vec<Session> {
    let key = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
    let session = |with: &str| Session { with: with.into(), key: key.into(), ..Session::default() };
    vec![
        Session { age_seconds: Some(83.2), handshakes: 3, ..session("west:10.0.1.1") },
        session("east:fd00:1234::2"),
        Session { one_way: true, age_seconds: Some(4.1), handshakes: 9, ..session("up:10.0.3.1") },
        Session {
            one_way: true,
            refused: 12,
            refusal: "the tag is wrong".into(),
            ..session("up:10.0.3.2")
        },
        Session {
            refused: 4,
            refusal: "the handshake does not decrypt".into(),
            ..session("flow 1")
        },
    ]
}

pub fn state() -> State {
    let mut silent = neighbour("fd00:1234::2", false);
    silent.disagreements.push(Disagreement {
        flow: 7,
        reason: "unknown_flow".into(),
        ours: false,
        cause: "fd00:1234::2 does not have flow 7, which this node sends to it".into(),
        cure: "configure flow 7 there, or correct id or next_hops here".into(),
    });
    State {
        version: "0.1.0".into(),
        edition: 4,
        protocol: 3,
        uptime_seconds: 3_725,
        kernel: "avx2".into(),
        sessions: sessions(),
        links: vec![
            link("west", "eth0", "10.0.1.2"),
            Link {
                xdp_mode: "native".into(),
                socket_mode: "zero-copy".into(),
                reason: String::new(),
                rate_mbit: Some(300.0),
                neighbours: vec![silent],
                state: "waiting".into(),
                waits: "interface enp129s0f1np1 is missing".into(),
                mtu: 1300,
                faults: counted([
                    ("rx_ring_full", 3),
                    ("tx_no_neighbour", 17),
                    ("tx_over_rate", 40),
                    ("tx_oversize", 1200),
                ]),
                ..link("east", "enp129s0f1np1", "fd00:1234:5678:9abc::1")
            },
        ],
        workers: vec![
            Worker {
                index: 0,
                core: Some(1),
                idle: "adaptive".into(),
                edition: 4,
                frames: Frames { total: 8192, free: 4000, fill: 4096, held: 90, tx: 6 },
                received: 1_390_100,
                forwarded: 1_100_000,
                consumed: 290_000,
                handed_over: 0,
                dropped: 100,
                panics: 0,
            },
            Worker { index: 1, idle: "adaptive".into(), edition: 4, ..Worker::default() },
        ],
        flows: vec![source(), relay(), bats_source(), stream_sink(), stream_source()],
        tunnels: tunnels(),
        verdicts: counted([("redirected", 1_390_100), ("pass_not_ip", 40), ("drop_version", 5)]),
        drops: counted([("mismatch", 0), ("replayed", 100)]),
        engine: engine(),
        config: "[daemon]\nworkers = 2\n".into(),
    }
}

/// Compares with a file of `tests/golden`, or rewrites it on request.
pub fn assert_golden(file: &str, shown: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    if std::env::var_os("RECODED_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, shown).expect("write");
    }
    let expected = std::fs::read_to_string(&path).expect("the golden file");
    assert_eq!(shown, expected, "{file}");
}
