//! `recodectl` as scripts see it: what it prints for a fixed state, and how it exits.
//!
//! Golden files lie in `tests/golden`; `RECODED_BLESS=1 cargo test -p recodectl` writes them anew.

#![forbid(unsafe_code)]

use recoded_api::INTERFACE;
use recoded_api::error::ControlError;
use recoded_api::keys::FLOW;
use recoded_api::service::{Backend, Service, SetFuture};
use recoded_api::v1::{
    Adopted, Engine, Flow, Frames, HopLoss, Link, Neighbour, Parameters, Remote, State, Tunnel,
    Version, Worker,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Fake;

impl Backend for Fake {
    fn version(&self) -> Version {
        Version {
            version: "0.1.0".into(),
            interface: INTERFACE.into(),
            kernel: "avx2".into(),
            edition: 4,
        }
    }

    fn state(&self) -> State {
        state()
    }

    fn config(&self) -> String {
        state().config
    }

    fn set(&mut self, flow: i64, changes: BTreeMap<String, String>) -> SetFuture<'_> {
        Box::pin(async move {
            if flow != 1 {
                let reason = format!("no flow {flow} here: there is 1, 2");
                return Err(ControlError::UnknownFlow { flow, reason });
            }
            if changes.get("generation_size").is_some_and(|size| size == "300") {
                let reason = "flow 1: generation_size = 300 is out of range: a generation has 1 \
                              to 256 symbols"
                    .to_owned();
                return Err(ControlError::Refused { reason });
            }
            if changes.contains_key("field") {
                let reason = "edition 5 was not adopted".to_owned();
                return Err(ControlError::NotAdopted { edition: 5, reason });
            }
            Ok(Adopted { flow: 1, edition: 5, parameters: source_parameters() })
        })
    }

    fn set_engine(&mut self, mode: &str) -> Result<Engine, ControlError> {
        if !["auto", "cpu", "cuda"].contains(&mode) {
            let reason = format!("engine = \"{mode}\" is not a choice");
            return Err(ControlError::Refused { reason });
        }
        Ok(Engine { mode: mode.to_owned(), ..engine() })
    }
}

fn engine() -> Engine {
    Engine {
        mode: "auto".into(),
        up: true,
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

fn source_parameters() -> Parameters {
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
    let hops =
        (0..10).map(|hop| HopLoss { hop, loss: 0.125 + hop as f64 / 512.0, burst_mean: 1.5 });
    Flow {
        id: 1,
        role: "source".into(),
        tunnel: Some("rec0".into()),
        next_hops: vec!["east:10.0.2.2".into()],
        upstream: None,
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
        rank_theory: Some(0.99902),
        overhead: Some(1.37434),
        overhead_theory: None,
        decode_delay_mean_us: None,
        decode_delay_max_us: None,
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
        upstream: Some("west:10.0.1.1".into()),
        parameters: Parameters {
            symbol_bytes: 1472,
            redundancy_max: Some(4.0),
            generation_timeout_us: Some(20_000),
            recoding: Some("systematic".into()),
            adaptive: Some(true),
            ..Parameters::default()
        },
        hops: vec![HopLoss { hop: 0, loss: 0.0987, burst_mean: 1.12 }],
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
        rank_theory: None,
        overhead: None,
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
        overhead: Some(1.34769),
        overhead_theory: Some(1.29694),
        ..source()
    }
}

fn window_sink() -> Flow {
    Flow {
        id: 4,
        role: "sink".into(),
        next_hops: vec![],
        upstream: Some("west:10.0.1.1".into()),
        parameters: Parameters {
            symbol_bytes: 1472,
            generation_timeout_us: Some(20_000),
            hold_timeout_us: Some(200_000),
            repair: Some(true),
            ..Parameters::default()
        },
        code: "window".into(),
        remote: None,
        hops: vec![],
        counters: counted([
            ("received", 120_000),
            ("delivered_packets", 80_000),
            ("source_symbols", 80_000),
        ]),
        rank_theory: None,
        overhead: Some(1.5),
        decode_delay_mean_us: Some(1_234.5),
        decode_delay_max_us: Some(98_765.4),
        ..source()
    }
}

fn link(name: &str, interface: &str, local: &str) -> Link {
    Link {
        name: name.into(),
        interface: interface.into(),
        local: local.into(),
        state: "up".into(),
        mtu: 1500,
        xdp_mode: "native".into(),
        socket_mode: "copy".into(),
        reason: "zero-copy: the driver of veth does not offer it".into(),
        queues: 1,
        rate_mbit: None,
        neighbours: vec![Neighbour { address: "10.0.1.1".into(), resolved: true }],
        received_packets: 1_390_100,
        received_bytes: 2_100_000_000,
        sent_packets: 12,
        sent_bytes: 1_200,
        counters: counted([("rx_packets", 1_390_100), ("tx_ring_empty", 4)]),
        faults: counted([("rx_ring_full", 0), ("tx_no_neighbour", 0)]),
    }
}

fn state() -> State {
    let silent = Neighbour { address: "fd00:1234::2".into(), resolved: false };
    State {
        version: "0.1.0".into(),
        edition: 4,
        uptime_seconds: 3_725,
        kernel: "avx2".into(),
        links: vec![
            link("west", "eth0", "10.0.1.2"),
            Link {
                xdp_mode: "native".into(),
                socket_mode: "zero-copy".into(),
                reason: String::new(),
                rate_mbit: Some(300.0),
                neighbours: vec![silent],
                state: "gone".into(),
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
            },
            Worker { index: 1, idle: "adaptive".into(), edition: 4, ..Worker::default() },
        ],
        flows: vec![source(), relay(), bats_source(), window_sink()],
        tunnels: vec![Tunnel {
            name: "rec0".into(),
            address: "10.99.0.1/24".into(),
            mtu: 1426,
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
        }],
        verdicts: counted([("redirected", 1_390_100), ("pass_not_ip", 40), ("drop_version", 5)]),
        drops: counted([("late", 100), ("mismatch", 0)]),
        engine: engine(),
        config: "[daemon]\nworkers = 2\n".into(),
    }
}

/// Serves a [`Fake`] until the test process ends.
fn serve(folder: &Path) -> PathBuf {
    let path = folder.join("control.sock");
    let (ready, started) = std::sync::mpsc::channel();
    let bound = path.clone();
    std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let listener = zlink::tokio::unix::bind(&bound).expect("bind");
            ready.send(()).expect("the test waits");
            zlink::Server::new(listener, Service::new(Box::new(Fake))).run().await
        })
    });
    started.recv().expect("the server starts");
    path
}

fn recodectl(socket: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    command.env_remove("RECODED_SOCKET").arg("--socket").arg(socket);
    command.args(arguments.split_whitespace()).output().expect("recodectl runs")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("no signal")
}

#[test]
fn output_for_a_fixed_state_is_golden_and_fits_100_columns() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let cases = [
        ("show.txt", "show"),
        ("show-flows.txt", "show flows"),
        ("show-links.txt", "show links"),
        ("show-workers.txt", "show workers"),
        ("show-drops.txt", "show drops"),
        ("show-config.txt", "show config"),
        ("show-engine.txt", "show engine"),
        ("set-engine.txt", "set engine cpu"),
        ("set.txt", "set 1 generation_size=32 repair=false"),
        ("version.txt", "version"),
        ("show.json", "--json show"),
        ("show-drops.json", "show drops --json"),
        ("show-config.json", "show config --json"),
        ("set.json", "set 1 generation_size=32 --json"),
        ("version.json", "version --json"),
        ("refused.json", "--json set 1 generation_size=300"),
    ];
    for (file, arguments) in cases {
        let output = recodectl(&socket, arguments);
        let printed = String::from_utf8(output.stdout).expect("text");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments}");
        let too_long = printed.lines().find(|line| line.chars().count() > 100);
        assert_eq!(too_long.filter(|_| file.ends_with(".txt")), None, "{arguments}");
        let path = golden.join(file);
        if std::env::var_os("RECODED_BLESS").is_some() {
            std::fs::write(&path, &printed).expect("write");
        }
        let expected = std::fs::read_to_string(&path).expect("the golden file");
        assert_eq!(printed, expected, "recodectl {arguments} prints otherwise than {file}");
    }
}

#[test]
fn parts_as_json_equal_the_parts_of_the_whole() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let parse = |arguments: &str| -> serde_json::Value {
        serde_json::from_slice(&recodectl(&socket, arguments).stdout).expect("JSON")
    };
    let whole = parse("show --json");
    for part in ["flows", "links", "workers", "config"] {
        assert_eq!(parse(&format!("show {part} --json"))[part], whole[part]);
    }
    let back: State = serde_json::from_value(whole).expect("the state");
    assert_eq!(back, state());
}

#[test]
fn exit_codes_are_what_scripts_rely_on() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let cases = [
        (0, "show"),
        (0, "set 1 generation_size=32"),
        (1, "set 1 field=4"),
        (2, ""),
        (2, "explode"),
        (2, "show everything"),
        (2, "set 1"),
        (2, "set 1 generation_size"),
        (2, "set one generation_size=1"),
        (2, "man explode"),
        (4, "set 1 generation_size=300"),
        (4, "set 7 generation_size=16"),
    ];
    for (expected, arguments) in cases {
        let output = recodectl(&socket, arguments);
        assert_eq!(code(&output), expected, "recodectl {arguments}: {output:?}");
        assert_eq!(output.stderr.is_empty(), expected == 0, "recodectl {arguments}");
    }
    let refused = recodectl(&socket, "set 1 generation_size=300");
    assert_eq!(
        String::from_utf8_lossy(&refused.stderr),
        "recodectl: flow 1: generation_size = 300 is out of range: a generation has 1 to 256 \
         symbols\n"
    );
}

#[test]
fn without_a_daemon_the_exit_code_is_3_and_the_message_says_what_to_start() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = folder.path().join("none.sock");
    for arguments in ["show", "show config", "set 1 field=4", "version"] {
        let output = recodectl(&socket, arguments);
        assert_eq!(code(&output), 3);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let start = format!("recodectl: no daemon answers at {}: is `recoded` ", socket.display());
        assert!(said.starts_with(&start), "{said}");
    }
    let output = recodectl(&socket, "show --json");
    assert_eq!((code(&output), output.stderr.len()), (3, 0));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(said["error"]["kind"], "not_running");
    assert_eq!(said["error"]["exit_code"], 3);
}

#[test]
fn socket_comes_from_the_environment_unless_given() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    let output = command.env("RECODED_SOCKET", &socket).arg("version").output().expect("runs");
    assert_eq!(code(&output), 0, "{output:?}");
}

#[test]
fn completion_and_man_pages_need_no_daemon() {
    let socket = Path::new("/nonexistent");
    for shell in ["bash", "zsh", "fish"] {
        let output = recodectl(socket, &format!("completion {shell}"));
        assert_eq!(code(&output), 0);
        assert!(String::from_utf8_lossy(&output.stdout).contains("recodectl"));
    }
    for arguments in ["man", "man set", "man show"] {
        let output = recodectl(socket, arguments);
        assert_eq!(code(&output), 0);
        assert!(String::from_utf8_lossy(&output.stdout).contains(".TH recodectl"), "{arguments}");
    }
    let output = recodectl(socket, "man --json");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(said["man"].as_str().is_some_and(|page| page.contains(".TH")));
}

#[test]
fn reader_that_has_seen_enough_is_no_error() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    command.arg("--socket").arg(&socket).arg("show");
    let (reader, writer) = std::io::pipe().expect("pipe");
    drop(reader);
    assert_eq!(code(&command.stdout(writer).output().expect("runs")), 0);
}

/// A user finds every key that can be changed, and nothing else, with its values.
#[test]
fn help_and_completion_offer_the_live_keys_of_the_table() {
    let said = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_recodectl")).args(arguments).output();
        String::from_utf8(output.expect("it runs").stdout).expect("text")
    };
    let (help, script) = (said(&["set", "--help"]), said(&["completion", "bash"]));
    let lines = help.lines().skip_while(|line| !line.starts_with("Keys, by")).skip(1);
    let lines: Vec<Vec<&str>> = lines
        .map_while(|line| line.strip_prefix("  "))
        .map(|line| line.split("  ").collect())
        .collect();
    let names: Vec<&str> = lines.iter().map(|line| line[0]).collect();
    assert_eq!(names, FLOW.live().map(|key| key.name).collect::<Vec<_>>());
    let values = lines.iter().map(|line| line.last().map_or("", |words| words.trim()));
    assert!(values.eq(FLOW.live().map(|key| key.values_in_words().replace('"', ""))), "{help}");
    let examples = [&help[..], &said(&["--help"])].concat();
    let set = examples.split_whitespace().filter_map(|word| word.split_once('='));
    for (key, _) in set.filter(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_')) {
        assert!(names.contains(&key), "an example sets {key}");
    }

    let words = script.lines().find(|line| line.contains(" code=bats ")).expect("offered");
    let offered = words.split([' ', '"']).filter_map(|word| word.split_once('='));
    let offered: BTreeSet<&str> =
        offered.map(|(key, _)| key).filter(|key| *key != "opts").collect();
    assert_eq!(offered, names.into_iter().collect());
    for word in ["interleave=auto ", "interleave= ", "field=16 ", "adaptive=false ", " cuda"] {
        assert!(words.contains(word), "{word} is not completed");
    }
}

/// Relays and sinks follow packets: nothing is to be set there when a source's code changes.
#[test]
fn set_of_a_code_names_the_flow_it_changed_and_nothing_else() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let output = recodectl(&socket, "set 1 code=bats");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with("flow 1: code=bats: in force on every worker"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}
