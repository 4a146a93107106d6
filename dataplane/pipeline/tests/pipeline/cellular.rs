//! Live video over two cellular paths: delay, stalls and redundancy of each way to spread a stream.

use crate::timed::cellular::{Camera, Cell, Trace, Video};
use crate::timed::{Line, Link, Load, MILLI, SECOND};
use recoded_pipeline::params::{FlowParams, Nanos, Spread};

const LOAD: Load = Load { bytes: 1300, rate: Some(1e-9), ordered: false };
const DEADLINE: Nanos = 100 * MILLI;

/// When the first delays count, and the end.
const SINCE: Nanos = 4 * SECOND;
const TAKES: Nanos = 43 * SECOND;

/// Two operators, from a moving car: one cell of 60 Mbit/s with 20 ms one way, another one of 50
/// with 28. Handovers of 50 to 300 ms every four seconds on average, one in thirty four times as
/// long; scheduling adds up to 10 ms in each direction.
fn cells() -> [(Cell, Link); 2] {
    let cell = Cell {
        rate: 60e6,
        fading: 0.3,
        scheduling: 10 * MILLI,
        between: 4 * SECOND,
        outage: (50 * MILLI, 300 * MILLI),
        failures: 0.03,
    };
    let link = Link { queue: 400 * MILLI, ..Link::new(0.001, 20) };
    let other = Cell { rate: 50e6, ..cell };
    [(cell, link), (other, Link { delay: 28 * MILLI, ..link })]
}

/// A video of 30 Mbit/s over these of [`cells`].
fn video(paths: &[usize], spread: Spread, seed: u64) -> Video {
    let cells = cells();
    let links: Vec<[Link; 1]> = paths.iter().map(|path| [cells[*path].1]).collect();
    let links: Vec<&[Link]> = links.iter().map(|links| &links[..]).collect();
    let change = |params: &mut FlowParams| params.spread = spread;
    let mut line = Line::paths(&links, LOAD, seed, change);
    line.pause();
    for (hop, path) in paths.iter().enumerate() {
        let trace = Trace::of(&cells[*path].0, 60 * SECOND, 100 * seed + *path as u64);
        line.follow(hop, &trace);
    }
    let mut camera = Camera::new(seed);
    camera.run(&mut line, TAKES);
    line.run(SECOND);
    let video = camera.video(&line, SINCE, DEADLINE);
    print(&format!("{spread:?} {paths:?}"), &video);
    video
}

fn print(name: &str, video: &Video) {
    let Video { in_time, p50, p99, lost, late, frames, stalled, redundancy, most } = video;
    println!(
        "{name:13} p50 {:4} p99 {:4} ms, in time {:.2} %, {lost:4} lost, {late:4} of {frames} \
         late, stalled {:5} ms, redundancy {:5.1} %, at most {:5.1} %",
        p50 / MILLI,
        p99 / MILLI,
        100.0 * in_time,
        stalled / MILLI,
        100.0 * redundancy,
        100.0 * most,
    );
}

/// CellFusion (SIGCOMM 2023) reports 71 % less delay and 66 to 81 % fewer stalls over cells, with
/// less than a tenth of redundancy.
#[test]
fn both_cells_together_end_most_stalls_of_a_video_for_a_tenth() {
    let (mut both, mut best) = (0, 0);
    for seed in 1..=3 {
        println!("seed {seed}");
        let alone = [video(&[0], Spread::Every, seed), video(&[1], Spread::Every, seed)];
        let sum = video(&[0, 1], Spread::Sum, seed);
        for spread in [Spread::Backup, Spread::Every] {
            video(&[0, 1], spread, seed);
        }
        let better = alone.iter().map(|path| path.p99).min().expect("two paths");
        assert!(sum.p99 * 10 <= better * 3, "{} of {} ms", sum.p99 / MILLI, better / MILLI);
        assert!(sum.redundancy < 0.1, "{}", sum.redundancy);
        best += alone.iter().map(|path| path.stalled).min().expect("two paths");
        both += sum.stalled;
    }
    println!("stalled {} ms, on the better path {} ms", both / MILLI, best / MILLI);
    assert!(both * 5 <= best, "{} of {} ms", both / MILLI, best / MILLI);
}
