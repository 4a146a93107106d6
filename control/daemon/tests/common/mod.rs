//! A control socket over a fake dataplane.
#![allow(dead_code)] // each test binary uses its own part

use recoded::config::{Config, EngineChoice};
use recoded::control::bounded::serve;
use recoded::control::socket::claim;
use recoded::control_service::ControlService;
use recoded::dataplane::{Dataplane, Observation, Refused};
use recoded::events;
use recoded::keeper::{self, Keeper};
use recoded::live::Live;
use recoded_api::client::Client;
use recoded_api::service::Service;
use recoded_api::v1::Link;
use recoded_gf::FieldOrder;
use recoded_pipeline::params::{PeerId, Snapshot};
use recoded_pipeline::report::{
    BlackHole, Branch, FlowCounters, FlowReport, HeardHop, HopLoss, NextHop, Planned, Remainder,
    RemoteReport, SILENT_NANOS,
};
use recoded_runtime::channel::Channel;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

pub const FILE: &str = include_str!("../../recoded.toml");

/// A file whose source has generations.
pub fn generations(file: &str) -> String {
    file.replacen("\ncode = \"auto\"", "\ncode = \"rlnc\"", 1)
}

/// Two workers that adopt each snapshot, unless disabled.
#[derive(Default)]
pub struct Fake {
    pub published: Vec<Snapshot>,
    pub refuses: bool,
    pub stuck: bool,
    pub engine: Option<EngineChoice>,
    pub rates: Vec<(usize, Option<f64>)>,
    /// Current MTU of eth1.
    pub mtu: Option<u64>,
    /// Counters of removed shards.
    pub remainders: Vec<Remainder>,
}

#[derive(Clone, Default)]
pub struct Handle(Arc<Mutex<Fake>>);

impl Handle {
    pub fn with<T>(&self, work: impl FnOnce(&mut Fake) -> T) -> T {
        work(&mut self.0.lock().expect("no test panics while holding it"))
    }

    pub fn editions(&self) -> Vec<u64> {
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

    fn set_engine(&self, choice: EngineChoice) {
        self.with(|fake| fake.engine = Some(choice));
    }

    fn set_rate(&self, link: usize, rate_mbit: Option<f64>) {
        self.with(|fake| fake.rates.push((link, rate_mbit)));
    }

    fn set_sinks(&self, _: Vec<(u32, Vec<recoded_runtime::secure::PublicKey>)>) {}

    fn observe(&self) -> Observation {
        let report = |received, loss| FlowReport {
            shard: 0,
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
            is_mended: false,
            upstreams: Vec::new(),
            hops: vec![HopLoss { hop: 0, loss, burst_mean: 1.0 }],
            next_hops: vec![next_hop(received, loss)],
            packet_bytes_max: None,
            remote: Some(RemoteReport {
                newest: 100,
                complete: 100 - received as u32,
                failed: received as u32,
                rank_histogram: Vec::new(),
            }),
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
        let at = 20 * SECOND;
        let drops = BTreeMap::from([("replayed".to_owned(), 0)]);
        let link = |mtu| Link { interface: "eth1".into(), mtu, ..Link::default() };
        Observation {
            links: self.with(|fake| fake.mtu).into_iter().map(link).collect(),
            flows: vec![vec![report(3, 0.25)], vec![report(5, 0.5)]],
            remainders: self.with(|fake| fake.remainders.clone()),
            drops,
            at,
            ..Observation::default()
        }
    }
}

/// The next hop of a shard, which last responded `seconds` before second 20.
fn next_hop(seconds: u64, loss: f64) -> NextHop {
    let round_trip_nanos = seconds * 1_000_000;
    let at = (20 - seconds) * SECOND;
    let heard = HeardHop { at, round_trip_nanos, queue_nanos: 5_000, loss: Some(loss) };
    let black_hole =
        Some(BlackHole { came_bytes: 0, lost_bytes: 1400 + seconds as u16, needed_bytes: 643 });
    let (peer, bytes_per_second, heard) = (PeerId(0), 1e6, Some(heard));
    let (planned, silence) = (Planned::default(), SILENT_NANOS);
    let waits_since = Some(at - SECOND / 2);
    let branch = Branch { share: Some(loss), is_in_doubt: seconds == 3, waits_since };
    NextHop { peer, bytes_per_second, heard, silence, black_hole, planned, branch }
}

/// A control socket in its own folder, served from a thread until dropped.
pub struct Served {
    pub folder: tempfile::TempDir,
    pub keeper: Arc<Keeper>,
    pub path: PathBuf,
    pub dataplane: Handle,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub fn start() -> Served {
        Served::with(FILE)
    }

    /// Serves a source of generations.
    pub fn rlnc() -> Served {
        Served::with(&generations(FILE))
    }

    pub fn with(text: &str) -> Served {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("run/control.sock");
        let dataplane = Handle::default();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let file = folder.path().join("test.toml");
        std::fs::write(&file, text).expect("file");
        let keeper = Arc::new(Keeper::new(&file, text, text, Some(folder.path().join("state"))));
        let (channel, asking) = Channel::pair().expect("channel");
        let keeping = keeper.clone();
        std::thread::spawn(move || keeping.serve(&channel).expect("it is understood"));
        let (telling, told) = Channel::pair().expect("channel");
        let log = keeper.events();
        std::thread::spawn(move || events::serve(&log, &telling).expect("it is understood"));
        let (behind, bound, text) = (dataplane.clone(), path.clone(), text.to_owned());
        let thread = std::thread::spawn(move || {
            let (document, mtus, config) =
                Config::parse("test.toml", &text, &|_| Some(1500)).expect("valid");
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("rt");
            let (listener, _claim) = claim(&bound, false).expect("the path is free");
            let live = Live::new(document, mtus, config, Rc::new(behind));
            let view = Rc::new(RefCell::new(live.view()));
            let (keeper, events) = (keeper::Client::new(asking), events::Client::new(told));
            let kept = ControlService::new(live, keeper, events, Rc::default(), view);
            ready.send(()).expect("the test waits");
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    served = serve(listener, Service::new(Box::new(kept))) => {
                        panic!("the server ended by itself: {served:?}");
                    }
                }
            });
        });
        is_ready.recv().expect("the server starts");
        Served { folder, keeper, path, dataplane, stop: Some(stop), thread: Some(thread) }
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.path).expect("the daemon answers")
    }

    pub fn raw(&self) -> UnixStream {
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
pub type Pairs<'a> = &'a [(&'a str, &'a str)];

pub fn changes(pairs: Pairs<'_>) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
