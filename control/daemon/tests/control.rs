//! The control socket over a fake dataplane: live changes, their atomicity, and hostile clients.

#![forbid(unsafe_code)]

use recoded::config::Config;
use recoded::control::bounded::{
    CONNECTIONS_MAX, CONNECTIONS_ROOT, IDLE_TIMEOUT, REQUEST_BYTES_MAX, serve,
};
use recoded::control::socket::{SocketError, claim};
use recoded::dataplane::{Dataplane, Observation, Refused};
use recoded::live::Live;
use recoded_api::client::Client;
use recoded_api::service::Service;
use recoded_gf::FieldOrder;
use recoded_pipeline::params::{Redundancy, Snapshot};
use recoded_pipeline::report::{FlowCounters, FlowReport, HopLoss};
use recoded_runtime::offload::Mode;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const FILE: &str = include_str!("../recoded.toml");

/// Two workers that adopt what they are given, unless told not to.
#[derive(Default)]
struct Fake {
    published: Vec<Snapshot>,
    refuses: bool,
    stuck: bool,
    engine: Option<Mode>,
}

#[derive(Clone, Default)]
struct Handle(Arc<Mutex<Fake>>);

impl Handle {
    fn with<T>(&self, work: impl FnOnce(&mut Fake) -> T) -> T {
        work(&mut self.0.lock().expect("no test panics while holding it"))
    }

    fn editions(&self) -> Vec<u64> {
        self.with(|fake| fake.published.iter().map(|snapshot| snapshot.edition).collect())
    }
}

impl Dataplane for Handle {
    fn publish(&self, snapshot: Snapshot) -> Result<(), Refused> {
        self.with(|fake| {
            if fake.refuses {
                return Err(Refused("the fake refuses".into()));
            }
            fake.published.push(snapshot);
            Ok(())
        })
    }

    fn editions(&self) -> Vec<u64> {
        self.with(|fake| {
            let newest = fake.published.last().map_or(1, |snapshot| snapshot.edition);
            if fake.stuck { vec![newest, 1] } else { vec![newest, newest] }
        })
    }

    fn set_engine(&self, mode: Mode) {
        self.with(|fake| fake.engine = Some(mode));
    }

    fn observe(&self) -> Observation {
        let report = |received, loss| FlowReport {
            id: 1,
            role: recoded_pipeline::params::Role::Source {
                tunnel: recoded_pipeline::params::TunnelId(0),
            },
            code: recoded_pipeline::params::FlowCode::Rlnc,
            epoch: 3,
            field: FieldOrder::Sixteen,
            generation_size: 16,
            symbol_bytes: 1428,
            planned: 20,
            hops: vec![HopLoss { hop: 0, loss, burst_mean: 1.0 }],
            remote: None,
            held: 2,
            counters: FlowCounters {
                received,
                sent_systematic: 4 * received,
                sent_coded: received,
                source_symbols: 4 * received,
                generations_complete: 2,
                decode_delay_nanos: 1_000 * received,
                decode_delay_nanos_max: 100_000 * received,
                rank_histogram: vec![0, 0, received],
                ..FlowCounters::default()
            },
        };
        let drops = BTreeMap::from([("late".to_owned(), 0)]);
        Observation {
            flows: vec![vec![report(3, 0.25)], vec![report(5, 0.5)]],
            drops,
            ..Observation::default()
        }
    }
}

/// A control socket in a folder of its own, served from a thread until dropped.
struct Served {
    _folder: tempfile::TempDir,
    path: PathBuf,
    dataplane: Handle,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn start() -> Served {
        Served::with(FILE)
    }

    fn with(text: &str) -> Served {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("run/control.sock");
        let dataplane = Handle::default();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (behind, bound, text) = (dataplane.clone(), path.clone(), text.to_owned());
        let thread = std::thread::spawn(move || {
            let (document, mtus, config) =
                Config::parse("test.toml", &text, &|_| Some(1500)).expect("valid");
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("rt");
            let (listener, _claim) = claim(&bound).expect("the path is free");
            let live = Live::new(document, mtus, config, Rc::new(behind));
            ready.send(()).expect("the test waits");
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    served = serve(listener, Service::new(Box::new(live))) => {
                        panic!("the server ended by itself: {served:?}");
                    }
                }
            });
        });
        is_ready.recv().expect("the server starts");
        Served { _folder: folder, path, dataplane, stop: Some(stop), thread: Some(thread) }
    }

    fn client(&self) -> Client {
        Client::connect(&self.path).expect("the daemon answers")
    }

    fn raw(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).expect("connect");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
        stream
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.expect("joined once").expect("the server must not panic");
            assert!(!self.path.exists(), "the socket is removed at the end");
        }
    }
}

/// Keys and values.
type Pairs<'a> = &'a [(&'a str, &'a str)];

fn changes(pairs: Pairs<'_>) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn set_publishes_one_snapshot_with_every_change() {
    let served = Served::start();
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
    let relay = client.set(2, &changes(&[("recoding", "random"), ("batch_timeout_us", "9")]));
    assert_eq!(relay.expect("adopted").parameters.recoding.as_deref(), Some("random"));
    let config = client.config().expect("config");
    assert!(config.contains("generation_size = 64") && config.contains("recoding = \"random\""));
    let (_, _, again) = Config::parse("again", &config, &|_| Some(1500)).expect("valid");
    assert_eq!(again.to_toml(), config);
}

/// What a tunnel does not fit is refused while it exists, whatever the file would make of it.
#[test]
fn a_window_is_refused_live_where_packets_of_the_tunnel_are_longer_than_its_symbols() {
    let served = Served::start();
    let mut client = served.client();
    let window = changes(&[("code", "window")]);
    let adopted = client.set(1, &window).expect("the tunnel has room for any code").parameters;
    assert_eq!((adopted.field, adopted.symbol_bytes), (Some(256), 1428));
    // Its field is the default of the code, since 16 is none of a window; and 16 again afterwards.
    let back = client.set(1, &changes(&[("code", "rlnc")])).expect("adopted").parameters;
    assert_eq!((back.field, back.generation_size), (Some(16), 16));
    let served = Served::with(&FILE.replacen("field = 16", "field = 2", 1));
    let mut client = served.client();
    let state = client.state().expect("state");
    assert_eq!((state.tunnels[0].mtu, state.flows[0].parameters.symbol_bytes), (1429, 1432));
    let said = "flow 1: code = \"window\" does not fit: each packet takes a symbol, and symbols of 1428 \
                bytes have room for 1425 bytes, but tunnel rec0 has mtu 1429: the file can give it \
                mtu = 1425";
    assert_eq!(client.set(1, &window).expect_err("4 bytes too many").to_string(), said);
}

#[cfg(feature = "bats")]
#[test]
fn code_changes_live_and_the_keys_of_the_other_code_are_forgotten() {
    let served = Served::start();
    let mut client = served.client();
    let pairs: Pairs = &[("code", "bats"), ("block_symbols", "64"), ("interleave", "auto")];
    let adopted = client.set(1, &changes(pairs)).expect("adopted").parameters;
    assert_eq!(adopted.code.as_deref(), Some("bats"));
    assert_eq!((adopted.block_symbols, adopted.batch_size), (Some(64), Some(16)));
    assert_eq!(adopted.interleave.as_deref(), Some("auto"));
    assert_eq!(adopted.window_symbols, None);
    let config = client.config().expect("config");
    assert!(config.contains("block_symbols = 64") && !config.contains("\ngeneration_size = "));
    let window: Pairs = &[("code", "window"), ("field", "256"), ("window_symbols", "32")];
    let adopted = client.set(1, &changes(window)).expect("adopted").parameters;
    assert_eq!((adopted.window_symbols, adopted.density), (Some(32), Some(15)));
    assert_eq!((adopted.block_symbols, adopted.generation_size), (None, 0));
    let other = client.set(1, &changes(&[("code", "rlnc"), ("profile", "baseline")]));
    let said = "flow 1: profile = \"baseline\" does not apply: it is for code = \"bats\"";
    assert_eq!(other.expect_err("a key of another code").to_string(), said);
    let sink = client.set(3, &changes(&[("code", "bats")])).expect("adopted").parameters;
    assert_eq!((sink.block_symbols, sink.batch_size), (Some(512), Some(32)));
    let back = client.set(1, &changes(&[("code", "rlnc")])).expect("adopted").parameters;
    assert_eq!((back.generation_size, back.field), (16, Some(256)));
    let relay = client.set(2, &changes(&[("adaptive", "false")])).expect("adopted").parameters;
    assert_eq!((relay.adaptive, relay.code), (Some(false), None));
}

#[test]
fn set_that_changes_nothing_publishes_nothing() {
    let served = Served::start();
    let adopted = served.client().set(1, &changes(&[("field", "16")])).expect("the same as before");
    assert_eq!(adopted.edition, 1);
    assert_eq!(served.dataplane.editions(), [0_u64; 0]);
}

#[test]
fn set_is_refused_by_key_value_and_rule_and_changes_nothing() {
    let served = Served::start();
    let mut client = served.client();
    let live = "code, field, generation_size, generation_size_max, block_symbols, \
                block_symbols_max, batch_size, batch_size_max, profile, generator_bits, interleave, \
                window_symbols, window_symbols_max, density, redundancy, target_loss, redundancy_max, flush_timeout_us, batch_timeout_us, hold_timeout_us, recoding, \
                adaptive, repair";
    let long = "1".repeat(65);
    let cases: [(i64, Pairs, String); 9] = [
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
                "flow 1: symbol_bytes cannot change while the daemon runs: edit the file and \
                 restart; these can: {live}"
            ),
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
             least as long as a repair request does (batch_timeout_us, 20000)"
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
fn explicit_symbol_bytes_that_no_longer_fit_refuse_the_change() {
    let served = Served::with(&FILE.replace("#symbol_bytes = 1428", "symbol_bytes = 1428"));
    let error = served.client().set(1, &changes(&[("generation_size", "256"), ("field", "256")]));
    let said = "flow 1: symbol_bytes = 1428 is too large: eth1 carries 1500-byte packets, which \
                leave 1196 bytes for a symbol to 10.0.2.2 with generation_size 256 and field 256";
    let error = error.expect_err("too large").to_string();
    assert!(error.starts_with("test.toml:"), "it is written in the file: {error}");
    assert!(error.ends_with(said), "{error}");
}

#[test]
fn snapshot_that_the_dataplane_refuses_leaves_the_last_good_one() {
    let served = Served::start();
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
    let served = Served::start();
    served.dataplane.with(|fake| fake.stuck = true);
    let mut client = served.client();
    let error = client.set(1, &changes(&[("field", "4")])).expect_err("worker 1 is stuck");
    let said = "edition 2 was not adopted within 2 s (worker 1 is at edition 1); what was in force \
                is in force again";
    assert_eq!((error.to_string(), error.exit_code()), (said.into(), 1));
    let fields: Vec<(u64, FieldOrder)> = served.dataplane.with(|fake| {
        fake.published.iter().map(|snapshot| (snapshot.edition, snapshot.flows[0].field)).collect()
    });
    assert_eq!(fields, [(2, FieldOrder::Four), (3, FieldOrder::Sixteen)]);
    assert!(client.config().expect("config").contains("field = 16"));
}

#[test]
fn state_sums_workers_and_averages_losses() {
    let served = Served::start();
    let state = served.client().state().expect("state");
    let flow = &state.flows[0];
    assert_eq!((flow.counters.received, flow.held, flow.planned), (8, 4, 20));
    assert_eq!(flow.rank_histogram, [0, 0, 8]);
    assert_eq!(flow.rank_ratio, Some(1.0));
    assert_eq!(flow.hops.len(), 1);
    assert!((flow.hops[0].loss - 0.375).abs() < 1e-12);
    assert_eq!(flow.next_hops, ["east:10.0.2.2"]);
    assert_eq!((flow.counters.source_symbols, flow.overhead), (32, Some(1.25)));
    assert_eq!(flow.decode_delay_mean_us, Some(2.0));
    assert_eq!(flow.decode_delay_max_us, Some(500.0));
    let theory = flow.rank_theory.expect("the source knows the losses of the path");
    assert!((0.7..0.8).contains(&theory), "20 packets for 16 symbols, 37.5 % lost: {theory}");
    assert_eq!(flow.overhead_theory, None, "it depends on the target where there are no blocks");
    assert_eq!(state.flows[1].upstream.as_deref(), Some("west:10.0.1.1"));
    assert_eq!(state.flows[1].rank_ratio, None, "no worker has reported it yet");
    assert_eq!((state.tunnels[0].address.as_str(), state.tunnels[0].mtu), ("10.99.0.1/24", 1425));
    assert_eq!(state.drops["late"], 0);
}

#[test]
fn engine_changes_at_once_and_only_to_what_there_is() {
    let served = Served::start();
    let mut client = served.client();
    assert_eq!(client.state().expect("state").engine.mode, "auto");
    assert_eq!(client.set_engine("cpu").expect("set").mode, "cpu");
    assert_eq!(served.dataplane.with(|fake| fake.engine), Some(Mode::Cpu));
    assert!(client.config().expect("config").contains("engine = \"cpu\""));
    let refused = client.set_engine("abacus").expect_err("refused").to_string();
    assert!(refused.contains("abacus") && refused.contains("\"cuda\""), "{refused}");
    assert_eq!(client.state().expect("state").engine.mode, "cpu");
    // A later change of a flow does not bring the old one back.
    client.set(1, &changes(&[("field", "4")])).expect("adopted");
    assert_eq!(client.state().expect("state").engine.mode, "cpu");
}

#[test]
fn socket_is_for_owner_and_group_only() {
    let served = Served::start();
    let mode = std::fs::metadata(&served.path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
}

#[test]
fn socket_of_a_live_daemon_is_refused_and_of_a_dead_one_replaced() {
    let served = Served::start();
    let error = claim(&served.path).map(|_| ()).expect_err("in use");
    assert!(matches!(error, SocketError::InUse { .. }), "{error:?}");
    assert!(error.to_string().contains("is in use by a running daemon: stop it"), "{error}");
    served.client().version().expect("the live daemon is unharmed");

    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("stale.sock");
    drop(UnixListener::bind(&path).expect("bind"));
    let (_listener, held) = claim(&path).expect("the stale socket is replaced");
    drop(held);
    assert!(!path.exists());

    std::fs::write(&path, "a file").expect("write");
    let error = claim(&path).map(|_| ()).expect_err("not ours to remove");
    assert!(error.to_string().contains("exists and is not a socket: remove it"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).expect("still there"), "a file");
}

/// Whether the peer has closed: reading ends, by end of file or by reset.
fn is_closed(stream: &mut UnixStream) -> bool {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn garbage_loses_the_client_and_not_the_daemon() {
    let served = Served::start();
    let deep = "[".repeat(60_000);
    let garbage: [&[u8]; 9] = [
        b"\0",
        b"\0\0\0\0",
        b"hello\0",
        b"{\"method\":\"org.recoded.Control1.GetState\"\0",
        b"{\"method\":1}\0",
        b"{\"method\":\"org.recoded.Control1.SetFlow\",\"parameters\":{\"flow\":\"x\"}}\0",
        b"\xff\xfe\xfd\0",
        b"{}{}\0",
        deep.as_bytes(),
    ];
    for bytes in garbage {
        let mut stream = served.raw();
        stream.write_all(bytes).expect("write");
        stream.shutdown(std::net::Shutdown::Write).expect("shutdown");
        assert!(is_closed(&mut stream), "{:?}", &bytes[..bytes.len().min(40)]);
        served.client().version().expect("the daemon still answers");
    }
}

#[test]
fn request_without_end_is_cut_off_at_the_limit() {
    let served = Served::start();
    let mut stream = served.raw();
    let chunk = vec![b'a'; 64 * 1024];
    let mut sent = 0;
    // 1 MiB: the daemon must have closed long before.
    while sent < 1 << 20 && stream.write_all(&chunk).is_ok() {
        sent += chunk.len();
    }
    assert!(is_closed(&mut stream));
    assert!(sent <= REQUEST_BYTES_MAX + 512 * 1024, "{sent} bytes were taken");
    served.client().version().expect("the daemon still answers");
}

#[test]
fn half_a_request_keeps_nobody_waiting() {
    let served = Served::start();
    let mut halves: Vec<UnixStream> = (0..4).map(|_| served.raw()).collect();
    for stream in &mut halves {
        stream.write_all(b"{\"method\":\"org.recoded.").expect("write");
    }
    served.client().version().expect("the daemon answers others meanwhile");
    let mut stream = halves.swap_remove(0);
    stream.write_all(b"Control1.GetVersion\"}\0").expect("the rest");
    let mut byte = [0];
    stream.read_exact(&mut byte).expect("an answer");
    assert_eq!(byte, *b"{", "a request may come in pieces");
}

#[test]
fn one_hundred_connections_are_bounded_and_room_returns() {
    let served = Served::start();
    let mut streams: Vec<UnixStream> = (0..100).map(|_| served.raw()).collect();
    let request = b"{\"method\":\"org.recoded.Control1.GetVersion\"}\0";
    let answered = streams.iter_mut().filter_map(|stream| {
        stream.write_all(request).ok()?;
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()
    });
    let for_root = if is_root() { CONNECTIONS_ROOT } else { 0 };
    assert_eq!(answered.count(), CONNECTIONS_MAX + for_root);
    let refused = Client::connect(&served.path).and_then(|mut client| client.version());
    let refused = refused.expect_err("no room");
    assert_eq!((refused.kind(), refused.exit_code()), ("closed", 1), "{refused}");

    drop(streams);
    let mut client = (0..500).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let mut client = Client::connect(&served.path).ok()?;
        client.version().is_ok().then_some(client)
    });
    client.as_mut().expect("room returns").state().expect("and serves");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Sixteen silent clients locked everybody out for half a minute.
#[test]
fn silent_clients_lock_nobody_out_for_long() {
    let served = Served::start();
    let silent: Vec<UnixStream> =
        (0..CONNECTIONS_MAX + CONNECTIONS_ROOT).map(|_| served.raw()).collect();
    let begin = Instant::now();
    let mut answers = std::iter::repeat_with(|| {
        std::thread::sleep(Duration::from_millis(20));
        Client::connect(&served.path).and_then(|mut client| client.version()).is_ok()
    });
    assert!(answers.any(|answered| answered), "endless");
    assert!(begin.elapsed() < IDLE_TIMEOUT / 6, "after {:?}", begin.elapsed());
    drop(silent);
}

#[test]
fn silence_is_borne_while_there_is_room() {
    let served = Served::start();
    let mut quiet = served.client();
    quiet.version().expect("an answer");
    std::thread::sleep(Duration::from_millis(2_500));
    quiet.version().expect("nobody else needed the slot");
}

/// Not a test by itself: the clients of another user for the next one.
#[test]
fn other_user_holds_every_slot_it_gets() {
    let Some(path) = std::env::var_os("RECODED_TEST_SOCKET") else { return };
    let streams: Vec<UnixStream> =
        (0..100).map(|_| UnixStream::connect(&path).expect("connect")).collect();
    // Answers prove that the connections were accepted.
    let request = b"{\"method\":\"org.recoded.Control1.GetVersion\"}\0";
    let answered = streams.iter().filter(|stream| {
        let mut stream: &UnixStream = stream;
        stream.write_all(request).is_ok() && stream.read_exact(&mut [0]).is_ok()
    });
    println!("answered {}", answered.count());
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end && PathBuf::from(&path).exists() {
        // Not silent, so that only the kept slot is left.
        for mut stream in &streams {
            let _ = stream.write_all(request);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn root_has_a_slot_that_no_other_user_gets() {
    if !is_root() {
        let reason = "acting as two users needs root";
        assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none_or(|all| all != "1"), "{reason}");
        println!("skipped: {reason}");
        return;
    }
    let served = Served::start();
    let folder = served.path.parent().and_then(std::path::Path::parent).expect("of the test");
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("ours");
    // The socket's group may connect. A copy, since the other user may not be let into our folders.
    let program = folder.join("other");
    std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("room");
    let mut other = Command::new(&program)
        .args(["--exact", "other_user_holds_every_slot_it_gets", "--nocapture"])
        .env("RECODED_TEST_SOCKET", &served.path)
        .uid(65_534)
        .gid(0)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let said = BufReader::new(other.stdout.take().expect("piped")).lines();
    let said = said.map_while(Result::ok).find(|line| line.contains("answered"));
    let taken = said.expect("it says how many answered");
    assert!(taken.ends_with(&format!("answered {CONNECTIONS_MAX}")), "{taken}");
    for _ in 0..10 {
        served.client().version().expect("root is answered at once");
        std::thread::sleep(Duration::from_millis(30));
    }
    other.kill().expect("it runs");
    other.wait().expect("it ends");
}

#[test]
fn client_that_does_not_read_is_dropped_and_others_are_served() {
    let served = Served::start();
    let mut greedy = served.raw();
    greedy.set_nonblocking(true).expect("nonblocking");
    let request = b"{\"method\":\"org.recoded.Control1.GetState\"}\0";
    let mut asked = 0;
    while asked < 100_000 && greedy.write(request).is_ok() {
        asked += 1;
    }
    assert!(asked > 10, "the daemon takes requests");
    served.client().version().expect("others are served, if half a second later");
}

#[test]
fn many_clients_at_once_get_their_own_answers() {
    let served = Served::start();
    let clients: Vec<_> = (0..8)
        .map(|index| {
            let path = served.path.clone();
            std::thread::spawn(move || {
                let mut client = Client::connect(&path).expect("connect");
                for round in 0..10 {
                    let size = (1 + index * 10 + round).to_string();
                    let set = changes(&[("generation_size", &size)]);
                    let adopted = client.set(1, &set).expect("adopted");
                    assert_eq!(adopted.parameters.generation_size.to_string(), size);
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("every client is served");
    }
    let editions = served.dataplane.editions();
    assert!(editions.windows(2).all(|pair| pair[1] == pair[0] + 1), "{editions:?}");
    assert_eq!(editions.last(), Some(&81));
}
