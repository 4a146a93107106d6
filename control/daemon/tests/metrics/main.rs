//! Metrics as Prometheus sees them, hostile clients, and the rules and the dashboard generated from
//! the tables of counters.
//!
//! `RECODED_WRITE_METRICS=1 cargo test -p recoded --test metrics` rewrites those two files, and the
//! page of metrics.

#![forbid(unsafe_code)]

mod dashboard;
mod page;
mod rules;

use recoded::metrics::gauges::GAUGES;
use recoded::metrics::names::GROUPS;
use recoded::metrics::{CLIENTS_MAX, Listeners, REQUEST_BYTES_MAX, listen, serve, text};
use recoded_api::v1::{
    Flow, FlowNeighbour, FlowUpstream, HopLoss, Link, Neighbour, Session, Split, State, Tunnel,
    Worker,
};
use recoded_counters::{Table, engine, flow, link, split, tunnel, verdict, worker};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Every counter of a table, with some number.
fn counted(table: Table) -> BTreeMap<String, u64> {
    (1000..).zip(table.counters()).map(|(n, counter)| (counter.name.to_owned(), n)).collect()
}

/// A node with `flows` flows.
fn state(flows: u64) -> State {
    let hop = |hop| HopLoss { hop, loss: 0.1, burst_mean: 1.0, ..HopLoss::default() };
    let flow = |id| Flow {
        id,
        role: "source".into(),
        counters: counted(flow::TABLE),
        hops: (0..4).map(hop).collect(),
        neighbours: vec![FlowNeighbour {
            next_hop: "east:10.0.0.2".into(),
            rate_mbit: 80.0,
            round_trip_us: Some(20_500.0),
            queue_us: Some(100.0),
            loss: Some(0.01),
            heard_ago_seconds: Some(0.25),
            share: Some(0.5),
            behind_us: Some(1000.0),
            ..FlowNeighbour::default()
        }],
        arrivals: vec![FlowUpstream {
            upstream: "west:10.0.1.2".into(),
            loss: Some(0.02),
            share: Some(0.5),
            received_ago_seconds: Some(0.1),
        }],
        carries_mbit: Some(40.0),
        rank_ratio: Some(0.9),
        rank_theory: Some(0.91),
        overhead: Some(1.13),
        overhead_theory: Some(1.11),
        ..Flow::default()
    };
    let neighbour =
        Neighbour { address: "10.0.0.2".into(), resolved: true, ..Neighbour::default() };
    let (with, age_seconds) = ("east:10.0.0.2".to_owned(), Some(5.0));
    let session = Session { with, age_seconds, ..Session::default() };
    let engine = recoded_api::v1::Engine {
        counters: counted(engine::TABLE),
        declined: counted(engine::DECLINED),
        redone: counted(engine::REDONE),
        ..recoded_api::v1::Engine::default()
    };
    State {
        version: "0.1.0".into(),
        protocol: 3,
        edition: 3,
        uptime_seconds: 60,
        kernel: "avx2".into(),
        links: vec![Link {
            name: "east".into(),
            // Characters that a label must escape.
            interface: "eth\"0\\".into(),
            state: "up".into(),
            neighbours: vec![neighbour],
            counters: counted(link::TABLE),
            ..Link::default()
        }],
        workers: vec![Worker::default()],
        flows: (0..flows).map(flow).collect(),
        tunnels: vec![Tunnel {
            name: "rec0".into(),
            state: "present".into(),
            counters: counted(tunnel::TABLE),
            split: Some(Split { counters: counted(split::TABLE), ..Split::default() }),
            ..Tunnel::default()
        }],
        verdicts: counted(verdict::TABLE),
        drops: counted(worker::TABLE),
        engine,
        sessions: vec![session],
        config: String::new(),
    }
}

/// Names of samples, without labels.
fn samples(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split([' ', '{']).next()).map(str::to_owned).collect()
}

/// Serves a node of 100 flows at a free port until the process ends.
fn served() -> SocketAddr {
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).expect("listen");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("runtime").block_on(async {
            serve(&Listeners::new(Some(listener)), || state(100)).await;
        });
    });
    address
}

/// Sends `request` and returns the whole response.
fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connect");
    // A server may close before the whole request is written.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).expect("UTF-8")
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn every_counter_and_gauge_is_exposed_once_with_its_meaning() {
    let text = text::text(state(2)).expect("text");
    let names = samples(&text);
    for group in GROUPS {
        for counter in group.table.counters() {
            let selector = group.selector(counter);
            let (name, label) = selector.split_once('{').unwrap_or((&selector, ""));
            assert!(names.contains(name), "{name} in {text}");
            assert!(text.contains(label.trim_end_matches('}')), "{selector}");
        }
    }
    for gauge in GAUGES {
        assert!(
            text.contains(&format!("# HELP {} {}.", gauge.name, gauge.meaning)),
            "{}",
            gauge.name
        );
    }
    let declared = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let declared: Vec<&str> = declared.filter_map(|line| line.split(' ').next()).collect();
    let once: BTreeSet<&&str> = declared.iter().collect();
    assert_eq!(once.len(), declared.len(), "a metric is declared twice");
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let series: Vec<&str> =
        series.filter_map(|line| line.rsplit_once(' ')).map(|(s, _)| s).collect();
    let once: BTreeSet<&&str> = series.iter().collect();
    assert_eq!(once.len(), series.len(), "a series comes twice");
    assert!(text.contains(r#"interface="eth\"0\\""#), "labels are escaped");
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn every_table_of_counters_has_metrics_but_for_bundles() {
    for table in recoded_counters::TABLES.iter().filter(|table| **table != engine::BUNDLES) {
        for counter in table.counters() {
            let mut metrics = GROUPS.iter().flat_map(|group| group.table.counters());
            assert!(metrics.any(|metric| metric == counter), "{}: {}", table.owner, counter.name);
        }
    }
}

#[test]
fn scrape_of_100_flows_is_whole_and_its_time_is_printed() {
    let address = served();
    let first = ask(address, GET);
    assert!(first.starts_with("HTTP/1.1 200 OK\r\n"), "{first}");
    assert!(first.contains("application/openmetrics-text; version=1.0.0"), "{first}");
    assert!(first.contains("recoded_flow_ingress_packets_total{flow=\"99\",role=\"source\"} 1000"));
    let mut times: Vec<Duration> = (0..9)
        .map(|_| {
            // Lets the cached text expire.
            std::thread::sleep(Duration::from_millis(120));
            let begin = Instant::now();
            assert_eq!(ask(address, GET).len(), first.len());
            begin.elapsed()
        })
        .collect();
    times.sort();
    let (bytes, lines) = (first.len(), first.lines().count());
    println!("scrape of 100 flows: median {:?}, {lines} lines, {bytes} bytes", times[4]);
}

/// CPU time of this thread, which other programs do not take.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A text that grows by copying itself would pass the test above, but not with a larger node.
#[test]
fn four_times_as_many_flows_take_about_four_times_as_long() {
    let least = |flows| {
        let state = state(flows);
        let time = |_| {
            let (state, begin) = (state.clone(), cpu_time());
            assert!(text::text(state).expect("text").ends_with("# EOF\n"));
            cpu_time() - begin
        };
        (0..9).map(time).min().expect("nine times")
    };
    let (few, many) = (least(100), least(400));
    println!("text of 100 flows {few:?}, of 400 {many:?}");
    assert!(many < 8 * few, "{few:?} and {many:?}");
    let bytes = |flows| text::text(state(flows)).expect("text").len();
    let each = (bytes(400) - bytes(100)) / 300;
    assert!((1_000..6_000).contains(&each), "{each} bytes a flow");
}

#[test]
fn other_requests_get_an_answer_that_says_so() {
    let address = served();
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "405"),
        ("hello\r\n\r\n", "400"),
    ] {
        let answer = ask(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    }
}

#[test]
fn long_and_unfinished_requests_lose_their_client_only() {
    let address = served();
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(4 * REQUEST_BYTES_MAX));
    let answer = ask(address, &long);
    assert!(!answer.contains(" 200 "), "{answer}");
    let mut unfinished = TcpStream::connect(address).expect("connect");
    unfinished.write_all(b"GET /metr").expect("write");
    assert!(ask(address, GET).starts_with("HTTP/1.1 200 "));
    unfinished.shutdown(Shutdown::Write).expect("shutdown");
    assert!(ask(address, GET).starts_with("HTTP/1.1 200 "));
}

/// Slow clients made a scrape take ten seconds, and more of them made all scrapes fail.
#[test]
fn silent_clients_are_closed_for_new_ones_and_keep_no_scrape_waiting() {
    let address = served();
    let silent = |_| {
        let mut stream = TcpStream::connect(address).expect("connect");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHo").expect("write");
        stream
    };
    let mut silent: Vec<TcpStream> = (0..3 * CLIENTS_MAX).map(silent).collect();
    let begin = Instant::now();
    assert!(ask(address, GET).starts_with("HTTP/1.1 200 "));
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    silent[0].set_read_timeout(Some(Duration::from_secs(5))).expect("timeout");
    assert!(!matches!(silent[0].read(&mut [0]), Ok(1..)), "the oldest is closed");
}

/// A page whose name resolves to this host (DNS rebinding) sends its own name.
#[test]
fn request_with_another_name_or_two_is_refused() {
    let address = served();
    for hosts in ["evil.example", "localhost\r\nHost: evil.example"] {
        let answer = ask(address, &format!("GET /metrics HTTP/1.1\r\nHost: {hosts}\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert!(!answer.contains("recoded_"), "{answer}");
    }
}

#[test]
fn port_that_is_taken_is_an_error_with_its_cure() {
    let taken = listen(SocketAddr::from(([127, 0, 0, 1], 0))).expect("listen");
    let error = listen(taken.local_addr().expect("an address")).expect_err("taken");
    assert!(error.to_string().contains("configure an address of this host and a free port"));
}
