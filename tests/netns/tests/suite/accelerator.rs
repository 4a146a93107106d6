//! Sinks that have large generations decoded on a card: a CUDA stand-in that runs the kernels on
//! this CPU, an FPGA card with simulated circuits, or the CUDA card of this machine, if there is
//! one. The first two inject faults on request.

use std::time::{Duration, Instant};

use crate::common;
use recoded_api::v1::Engine;
use recoded_netns::traffic::{Fetch, WebServer, sha256, write_random_file};
use recoded_netns::{Bed, BedConfig, Daemon, LinePlan, LinkConfig, Loss};

const RATE_MBIT: f64 = 60.0;

/// Symbols of a generation: enough to make a card worthwhile.
const SIZE: usize = 48;

struct Line {
    daemons: Vec<Daemon>,
    _server: WebServer,
    bed: Bed,
}

impl Line {
    /// A line of one lossy hop whose sink uses the stand-in, which fails according to `faults` once
    /// `fail` is called.
    fn start(faults: &str, file_bytes: u64) -> Line {
        Line::with(bed(false), file_bytes, |plan, bed| {
            plan.engine = "cuda";
            plan.environment = vec![
                ("LD_LIBRARY_PATH", recoded_cuda_standin::folder().display().to_string()),
                // The stand-in has its kernels built in, so any file will do.
                ("RECODED_CUDA_IMAGE", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").into()),
                ("STANDIN_FAULTS", faults.into()),
                ("STANDIN_FAULTS_WHILE", bed.directory().join("faults").display().to_string()),
            ];
        })
    }

    /// The same with a simulated FPGA card, which misbehaves according to [`Line::set_mishap`].
    fn simulated(file_bytes: u64) -> Line {
        Line::with(bed(false), file_bytes, |plan, bed| {
            (plan.engine, plan.fpga) = ("fpga", Some("simulated"));
            let mishaps = bed.directory().join("mishaps").display().to_string();
            plan.environment = vec![("RECODED_FPGA_MISHAPS", mishaps)];
        })
    }

    /// A line whose sink is configured by `configure`.
    fn with(bed: Bed, file_bytes: u64, configure: impl FnOnce(&mut LinePlan, &Bed)) -> Line {
        write_random_file(&bed.directory().join("file"), file_bytes).unwrap();
        let server = WebServer::start(bed.source(), bed.directory()).unwrap();
        let mut plan = LinePlan { pace_mbit: Some(0.97 * RATE_MBIT), ..LinePlan::protected(1) };
        plan.flows[0].generation_size = SIZE;
        let source = Daemon::start(&bed, 0, &plan).unwrap();
        configure(&mut plan, &bed);
        let sink = Daemon::start(&bed, 1, &plan).unwrap();
        Line { daemons: vec![source, sink], _server: server, bed }
    }

    fn fail(&self) {
        std::fs::write(self.bed.directory().join("faults"), "").unwrap();
    }

    /// Has the simulated card behave in this way from now on.
    fn set_mishap(&self, mishap: &str) {
        std::fs::write(self.bed.directory().join("mishaps"), mishap).unwrap();
    }

    fn engine(&self) -> Engine {
        self.daemons[1].show().unwrap().engine
    }

    fn wait_for_card(&self) {
        let begun = Instant::now();
        while !self.engine().up {
            let engine = self.engine();
            assert!(begun.elapsed() < Duration::from_secs(60), "no card: {engine:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Downloads the file and compares it.
    fn download(&self) {
        let (file, copy) = (self.bed.directory().join("file"), self.bed.directory().join("copy"));
        let server = [10, 99, 0, 1].into();
        let limit = Duration::from_secs(60);
        let fetch = Fetch::start(self.bed.sink(), server, "file", &copy, limit).unwrap();
        let download = fetch.finish().unwrap();
        println!("{download:?}, {:.1} Mbit/s", download.mbit());
        assert!(download.complete, "{download:?}");
        assert_eq!(sha256(&file).unwrap(), sha256(&copy).unwrap());
    }
}

/// One lossy hop. With a timed link it needs no traffic shaping in Linux.
fn bed(timed: bool) -> Bed {
    let link = LinkConfig { timed, ..LinkConfig::new(Loss::independent(0.1), RATE_MBIT) };
    Bed::build(&BedConfig::uniform(1, link)).expect("the bed builds")
}

#[test]
fn download_is_decoded_by_the_card_until_an_operator_says_otherwise() {
    let Some(_turn) = common::daemons() else { return };
    let line = Line::start("", 2 << 20);
    line.wait_for_card();
    line.download();
    let engine = line.engine();
    println!("{engine:?}");
    assert!(engine.offloaded > 0, "{engine:?}");
    assert_eq!(engine.redone.values().sum::<u64>(), 0, "{engine:?}");
    let control = &line.daemons[1];
    assert!(control.control(&["set", "engine", "cpu"]).status().unwrap().success());
    let taken = line.engine().taken;
    line.download();
    let engine = line.engine();
    assert_eq!((engine.mode.as_str(), engine.taken), ("cpu", taken));
    assert!(engine.declined["off"] > 0, "{engine:?}");
}

#[test]
fn download_is_decoded_by_the_cuda_card_of_this_machine() {
    let Some(_turn) = common::daemons() else { return };
    let line = Line::with(bed(true), 4 << 20, |plan, _| plan.engine = "cuda");
    let begun = Instant::now();
    while !line.engine().up {
        let reason = line.engine().reason;
        if reason.contains("none answered") {
            println!("skipped: no card: {reason}");
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no card: {reason}");
        std::thread::sleep(Duration::from_millis(50));
    }
    download_until(&line, "the card decodes", |before, now| now.offloaded > before.offloaded + 20);
    let engine = line.engine();
    println!("{engine:?}");
    assert_eq!(redone(&engine), 0, "{engine:?}");
    // By its own measurements, as an operator would have it.
    let control = &line.daemons[1];
    assert!(control.control(&["set", "engine", "auto"]).status().unwrap().success());
    line.download();
    println!("{:?}", line.engine());
}

#[test]
fn download_survives_a_card_that_dies() {
    let Some(_turn) = common::daemons() else { return };
    let line = Line::start("cuLaunchKernel@1+=719", 2 << 20);
    line.wait_for_card();
    line.download();
    // Its context is lost.
    line.fail();
    let begun = Instant::now();
    while line.engine().redone["lost"] + line.engine().redone["failed"] == 0 {
        assert!(begun.elapsed() < Duration::from_secs(90), "{:?}", line.engine());
        line.download();
    }
    line.download();
    let engine = line.engine();
    println!("{engine:?}");
    assert!(engine.offloaded > 0 && !engine.reason.is_empty(), "{engine:?}");
}

/// The card's circuits are simulated in the sink's daemon, hundreds of times slower than a card.
/// Jobs that time out are repeated by the CPU, and not lost.
#[test]
fn download_is_decoded_by_a_simulated_fpga_card_that_is_reset_stalls_and_lies() {
    let Some(_turn) = common::daemons() else { return };
    let line = Line::simulated(1 << 20);
    let begun = Instant::now();
    while !line.engine().up {
        let engine = line.engine();
        if engine.reason.contains("`fpga-sim`") {
            let reason = "the daemon was built without the feature fpga-sim";
            println!("skipped: {reason}");
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "no card: {engine:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(line.engine().device, "fpga, simulated");
    download_until(&line, "the card decodes", |before, now| now.offloaded > before.offloaded);
    for mishap in ["lie", "reset", "stall", "refuse"] {
        let what = format!("{mishap} is noticed");
        line.set_mishap(mishap);
        // Wrong, failed or late work was repeated, and every download was correct.
        download_until(&line, &what, |before, now| redone(now) > redone(before));
        println!("{mishap}: {:?}", line.engine().reason);
        line.set_mishap("");
        // An operator's reset, because backoff grows and a device that often hung is no longer
        // tried.
        let control = &line.daemons[1];
        for choice in ["cpu", "fpga"] {
            assert!(control.control(&["set", "engine", choice]).status().unwrap().success());
        }
        download_until(&line, "it decodes again", |before, now| now.offloaded > before.offloaded);
    }
    let engine = line.engine();
    println!("{engine:?}");
    assert!(engine.redone["wrong"] > 0, "a lie is noticed: {engine:?}");
}

fn redone(engine: &Engine) -> u64 {
    engine.redone.values().sum()
}

/// Downloads the file, comparing it each time, until that has happened.
fn download_until(line: &Line, what: &str, has_happened: impl Fn(&Engine, &Engine) -> bool) {
    let (begun, before) = (Instant::now(), line.engine());
    while !has_happened(&before, &line.engine()) {
        let engine = line.engine();
        assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain: {what}: {engine:?}");
        line.download();
    }
}
