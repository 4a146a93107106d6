//! `recoded-swarm` over a lossy link: one source and fifty receivers, which serve each other. Its
//! other tests are in `dataplane/swarm`, most in virtual time; this one has real sockets, queues
//! and processes that vanish.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common;
use recoded_netns::process::Background;
use recoded_netns::traffic::{sha256, write_random_file};
use recoded_netns::{Bed, Loss, binary};

const RECEIVERS: usize = 50;

/// Receivers that are killed while they fetch, one in ten.
const GONE: usize = 5;

const FILE_BYTES: u64 = 1 << 19;

/// Until all have the file, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A receiver, and its file.
struct Receiver {
    program: Background,
    file: std::path::PathBuf,
}

/// Starts a receiver that fetches from the source and from the two receivers before it.
fn receiver(bed: &Bed, content: &str, number: usize) -> Receiver {
    let file = bed.directory().join(format!("copy{number}"));
    let address = |number: usize| format!("{}:{}", Bed::east_address(1), 7801 + number);
    let mut command: Command = bed.sink().command(binary("recoded-swarm"));
    command.args(["get", content, &format!("{}:7800", Bed::west_address(1))]);
    command.args((number.saturating_sub(2)..number).map(address));
    command.arg("--out").arg(&file);
    command.args(["--serve", &address(number), "--linger", "20"]);
    let log = bed.directory().join(format!("swarm{number}.log"));
    Receiver { program: Background::start(&mut command, &log).unwrap(), file }
}

#[test]
fn fifty_receivers_behind_a_lossy_link_get_the_file_though_some_vanish() {
    let Some(_turn) = common::daemons() else { return };
    let bed = common::bed(1, Loss::independent(0.1), 100.0);
    let film = bed.directory().join("film");
    write_random_file(&film, FILE_BYTES).unwrap();
    let right = sha256(&film).unwrap();
    let log = bed.directory().join("source.log");
    let mut command = bed.source().command(binary("recoded-swarm"));
    command.arg("serve").arg(&film);
    command.args(["--listen", &format!("{}:7800", Bed::west_address(1))]);
    let _source = Background::start(&mut command, &log).unwrap();
    let content = loop {
        let said = fs::read_to_string(&log).unwrap_or_default();
        if said.contains("listening on") {
            let line = said.lines().find_map(|line| line.strip_prefix("content "));
            break line.expect("the id").to_owned();
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let begin = Instant::now();
    let mut all: Vec<Receiver> = (0..RECEIVERS).map(|it| receiver(&bed, &content, it)).collect();
    std::thread::sleep(Duration::from_millis(300));
    let step = RECEIVERS / GONE;
    for number in (0..GONE).map(|it| it * step + 3) {
        all[number].program.kill();
    }
    let left = all.iter().enumerate().filter(|(number, _)| number % step != 3);
    let mut done = 0;
    for (number, receiver) in left {
        while !receiver.file.exists() {
            let log = bed.directory().join(format!("swarm{number}.log"));
            let said = fs::read_to_string(log).unwrap_or_default();
            assert!(begin.elapsed() < PATIENCE, "{done} have it; receiver {number}: {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
        // It appears whole: the program renames it.
        assert_eq!(sha256(&receiver.file).unwrap(), right, "receiver {number}");
        done += 1;
    }
    println!(
        "{done} of {RECEIVERS} receivers have {FILE_BYTES} bytes after {:.1?}",
        begin.elapsed()
    );
    assert_eq!(done, RECEIVERS - GONE);
}
