//! Streams beside TCP of others on one link, packet by packet: none of them starves.

mod timed;

use recoded_pipeline::params::Nanos;
use timed::{Line, Link, Load, MILLI, SECOND, is_emulated};

const GREEDY: Load = Load { bytes: 1400, rate: None, ordered: true };

/// Bytes on the link of a packet of TCP, and of a symbol.
const TCP_BYTES: f64 = 1514.0;
const SYMBOL_BYTES: f64 = 1464.0;

/// The parts of a link that a stream and TCP of others get, while so much time passes.
fn parts(line: &mut Line, link: &Link, rivals: &[usize], nanos: Nanos) -> (f64, f64) {
    let came = |line: &Line| rivals.iter().map(|rival| line.came_beside(*rival)).sum::<u64>();
    let (start, before) = (line.now, came(line));
    line.run(nanos);
    let all = link.rate / 8.0 * nanos as f64 / 1e9;
    let ours = line.delivered.iter().filter(|packet| packet.at > start).count() as f64;
    (ours * SYMBOL_BYTES / all, (came(line) - before) as f64 * TCP_BYTES / all)
}

/// Over 10 ms of 300 Mbit/s, CUBIC itself gets 0.15 beside BBR.
#[test]
fn none_starves_beside_tcp_of_others() {
    if is_emulated() {
        return;
    }
    for (control, delay) in [("cubic", 10), ("bbr", 10), ("bbr", 5)] {
        for is_first in [true, false] {
            let link = Link::new(0.0, delay);
            let mut line = Line::new(&[link], GREEDY, 1);
            line.run(MILLI);
            if !is_first {
                line.pause();
            }
            let rivals = [line.beside(0, control)];
            if !is_first {
                line.run(3 * SECOND);
                line.go_on();
            }
            line.run(6 * SECOND);
            let (ours, theirs) = parts(&mut line, &link, &rivals, 9 * SECOND);
            println!("{control}, {delay} ms, first: {is_first}: {ours:.2} beside {theirs:.2}");
            assert!(ours.min(theirs) > 0.25, "{ours} beside {theirs}");
        }
    }
}

/// Who shared the link stops: a stream has all of it again.
#[test]
fn what_others_leave_is_taken() {
    if is_emulated() {
        return;
    }
    for control in ["cubic", "bbr"] {
        let link = Link::new(0.0, 10);
        let mut line = Line::new(&[link], GREEDY, 1);
        let rivals = [line.beside(0, control)];
        line.run(6 * SECOND);
        line.end_beside();
        line.run(2 * SECOND);
        line.longest_wait(0);
        let (ours, _) = parts(&mut line, &link, &rivals, 3 * SECOND);
        let waits = line.longest_wait(0) / MILLI;
        println!("after {control}: {ours:.2}, a queue of {waits} ms at most");
        assert!(ours > 0.9 && waits < 20, "{ours}, {waits} ms");
    }
}
