//! A node of a hundred flows: the cost of observing it. The daemon here is a stand-in that always
//! replies the same.

#![forbid(unsafe_code)]

#[allow(dead_code)]
mod fixed;

use nix::pty::openpty;
use recoded_api::INTERFACE;
use recoded_api::client::Client;
use recoded_api::service::{Answer, Backend, Service, SetFuture};
use recoded_api::v1::{
    Adopted, Confirmed, Engine, Events, Flow, History, Reloaded, State, Version,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const FLOWS: u64 = 100;

/// Longest reply of a node: the cost of a reply grows with the square of its length.
const REPLY_BYTES_MAX: usize = 24 << 10;

/// Observation time of `top`.
const WATCHED: Duration = Duration::from_secs(6);

/// The goal is a hundredth of a core, for an optimised program on an idle machine. This one is not
/// optimised, and its start counts.
const SHARE_MAX: f64 = 0.03;

struct Large;

impl Backend for Large {
    fn version(&self) -> Version {
        Version {
            version: "0.1.0".into(),
            interface: INTERFACE.into(),
            kernel: "avx2".into(),
            edition: 1,
        }
    }

    fn state(&self) -> State {
        let fixed = fixed::state();
        let kinds = &fixed.flows;
        let flows = (0..FLOWS).map(|id| {
            let kind = &kinds[id as usize % kinds.len()];
            Flow { id, rank_histogram: vec![1000; 65], ..kind.clone() }
        });
        let flows = flows.collect();
        State { flows, config: "[[flow]]\nid = 1\n".repeat(2000), ..fixed }
    }

    fn config(&self) -> String {
        self.state().config
    }

    fn set(&mut self, _: i64, _: BTreeMap<String, String>) -> SetFuture<'_> {
        Box::pin(async {
            Ok(Adopted { flow: 1, edition: 2, parameters: Default::default(), notices: Vec::new() })
        })
    }

    fn save(&mut self, flow: i64, changes: BTreeMap<String, String>) -> SetFuture<'_> {
        self.set(flow, changes)
    }

    fn set_engine(&mut self, _: &str) -> Answer<'_, Engine> {
        Box::pin(async { Ok(Engine::default()) })
    }

    fn reload(&mut self, _: bool, _: Option<u64>) -> Answer<'_, Reloaded> {
        Box::pin(async { Ok(Reloaded::default()) })
    }

    fn confirm(&mut self) -> Answer<'_, Confirmed> {
        Box::pin(async { Ok(Confirmed::default()) })
    }

    fn undo(&mut self, _: Option<u64>) -> Answer<'_, Reloaded> {
        Box::pin(async { Ok(Reloaded::default()) })
    }

    fn history(&self) -> Answer<'_, History> {
        Box::pin(async { Ok(History::default()) })
    }

    fn events(&self, _: u64) -> Answer<'_, Events> {
        Box::pin(async { Ok(fixed::events()) })
    }
}

fn serve(folder: &Path) -> PathBuf {
    let path = folder.join("control.sock");
    let (ready, started) = std::sync::mpsc::channel();
    let bound = path.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("runtime").block_on(async {
            let listener = zlink::tokio::unix::bind(&bound).expect("bind");
            ready.send(()).expect("the test waits");
            zlink::Server::new(listener, Service::new(Box::new(Large))).run().await
        })
    });
    started.recv().expect("the server starts");
    path
}

/// A reply of 290 kB took a daemon a third of a second, as zlink rewrites it for every 256 bytes.
#[test]
fn state_of_a_hundred_flows_comes_in_short_replies_that_make_the_whole() {
    let folder = tempfile::tempdir().expect("folder");
    let path = serve(folder.path());
    let mut stream = UnixStream::connect(&path).expect("connect");
    stream
        .write_all(b"{\"method\":\"org.recoded.Control1.GetState\",\"more\":true}\0")
        .expect("asked");
    let (mut replies, mut bytes) = (Vec::new(), vec![0; 1 << 16]);
    let mut said = Vec::new();
    loop {
        let length = stream.read(&mut bytes).expect("an answer");
        assert!(length > 0, "it ends after {} replies", replies.len());
        said.extend_from_slice(&bytes[..length]);
        while let Some(end) = said.iter().position(|byte| *byte == 0) {
            replies.push(said.drain(..=end).collect::<Vec<u8>>());
        }
        let last = replies.last().map(|reply| String::from_utf8_lossy(reply).into_owned());
        if last.is_some_and(|reply| reply.contains("\"continues\":false")) {
            break;
        }
    }
    let longest = replies.iter().map(Vec::len).max().unwrap_or_default();
    let all: usize = replies.iter().map(Vec::len).sum();
    println!("{} replies, {all} bytes, the longest {longest}", replies.len());
    assert!(all > 8 * REPLY_BYTES_MAX, "{all} bytes are too few to tell");
    assert!(longest <= REPLY_BYTES_MAX, "{longest} bytes in one reply");
    let mut client = Client::connect(&path).expect("connect");
    let began = Instant::now();
    assert_eq!(client.state().expect("a state"), Large.state());
    println!("first state of a connection {:?}, in a build for tests", began.elapsed());
    let began = Instant::now();
    let mut show = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    let shown = show.arg("show").arg("--socket").arg(&path).output();
    assert!(shown.expect("it runs").status.success());
    println!("recodectl show {:?}, from its start to its end", began.elapsed());
}

/// Processor time of all threads of a process.
fn processor_time(pid: u32) -> Option<Duration> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let nanos = tasks.map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    nanos.sum::<Option<u64>>().map(Duration::from_nanos)
}

#[test]
fn live_view_of_a_hundred_flows_leaves_the_processor_alone() {
    let folder = tempfile::tempdir().expect("folder");
    let path = serve(folder.path());
    let size = nix::pty::Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).expect("a terminal");
    let (mut keys, mut screen) = (File::from(terminal.master), Vec::new());
    let mut shown = keys.try_clone().expect("a descriptor");
    let end = File::from(terminal.slave);
    let mut top = Command::new(env!("CARGO_BIN_EXE_recodectl"))
        .env("TERM", "xterm")
        .args(["top", "--socket"])
        .arg(&path)
        .stdin(end.try_clone().expect("a descriptor"))
        .stdout(end)
        .spawn()
        .expect("recodectl starts");
    // Without a reader, it would block. The terminal closes with its program.
    let reading = std::thread::spawn(move || {
        let _ = shown.read_to_end(&mut screen);
        screen
    });
    let began = Instant::now();
    std::thread::sleep(WATCHED);
    let (took, elapsed) = (processor_time(top.id()), began.elapsed());
    keys.write_all(b"q").expect("a key");
    assert!(top.wait().expect("it ends").success());
    drop(keys);
    let screen = String::from_utf8_lossy(&reading.join().expect("read")).into_owned();
    assert!(screen.contains("Mbit/s"), "it shows nothing: {screen}");
    let Some(took) = took else {
        println!("skipped: this Linux does not count the time of threads (CONFIG_SCHED_INFO)");
        return;
    };
    let share = took.as_secs_f64() / elapsed.as_secs_f64();
    println!("top takes {:.2} % of a core", share * 100.0);
    assert!(share > 0.0 && share < SHARE_MAX, "{took:?} of {elapsed:?}");
}
