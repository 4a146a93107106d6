//! A stream to two receivers. Each gets everything over a link of its own; one that is down does
//! not delay the other, and gets everything again once it is up.
//!
//! ```text
//!   h0 ── link 1, 10 % ── h1 ── link 2, 10 % ── h2      source h1, sinks with one address
//! ```

use crate::common;
use crate::numbered::{receive, send};
use recoded_netns::{Bed, BedConfig, Daemon, DirectionConfig, LinkConfig, Loss};
use std::net::{IpAddr, SocketAddr};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// As many milliseconds.
const PACKETS: u32 = 9000;

/// The first packets go where streams are not open yet.
const SETTLED: usize = 500;

fn config(index: usize, socket: &str) -> String {
    let head = format!("[daemon]\nsocket = \"{socket}\"\nauth = \"none\"\nframes = 8192\n");
    let link = |name: &str, address: IpAddr| {
        format!("[[link]]\nname = \"{name}\"\ninterface = \"{name}\"\nlocal = \"{address}\"\n")
    };
    let hop =
        |name: &str, address: IpAddr| format!("{{ link = \"{name}\", address = \"{address}\" }}");
    let (west, east) = (Bed::west_address, Bed::east_address);
    let tunnel = |host: u8| {
        format!("[[tunnel]]\nname = \"rec0\"\naddress = \"10.99.0.{host}/24\"\nmtu = 1400\n")
    };
    let sink = |from: String| {
        let flow = "[[flow]]\nid = 1\nrole = \"sink\"\ntunnel = \"rec0\"\n";
        tunnel(2) + flow + &format!("upstream = {from}\n")
    };
    match index {
        0 => head + &link("east", west(1)) + &sink(hop("east", east(1))),
        2 => head + &link("west", east(2)) + &sink(hop("west", west(2))),
        _ => {
            let links = link("west", east(1)) + &link("east", west(2));
            let (one, other) = (hop("west", west(1)), hop("east", east(2)));
            let flow = "[[flow]]\nid = 1\nrole = \"source\"\ntunnel = \"rec0\"\n";
            let hops = format!("next_hops = [{one}, {other}]\nlag_timeout_us = 300000\n");
            head + &links + &tunnel(1) + flow + &hops
        }
    }
}

#[test]
fn sink_that_is_gone_delays_no_other_and_comes_back() {
    let Some(_turn) = common::daemons() else { return };
    let direction = DirectionConfig::new(Loss::independent(0.1), 50.0);
    let delay = Duration::from_millis(5);
    let link = LinkConfig::both(DirectionConfig { delay, ..direction });
    let mut bed = Bed::build(&BedConfig::uniform(2, link)).expect("the bed builds");
    let start = |index| Daemon::start_with(&bed, index, |socket| config(index, socket)).unwrap();
    let daemons: Vec<Daemon> = (0..3).map(start).collect();
    let to = SocketAddr::from(([10, 99, 0, 2], 7000));
    let sink = |host: usize| receive(bed.hosts()[host].udp_socket(to).unwrap(), PACKETS);
    let sinks = [sink(2), sink(0)];
    let sender = bed.hosts()[1].udp_socket(SocketAddr::from(([10, 99, 0, 1], 0))).unwrap();
    let begin = Instant::now();
    let sending = send(sender, to, PACKETS);
    sleep(Duration::from_secs(3));
    let cut = begin.elapsed().as_millis() as usize;
    bed.set_link(1, link.with_loss(Loss::ALL)).unwrap();
    sleep(Duration::from_secs(3));
    bed.set_link(1, link).unwrap();
    let back = begin.elapsed().as_millis() as usize;
    sending.join().unwrap();
    let source = daemons[1].show().unwrap();
    let [(near, gap), (far, _)] = sinks.map(|sink| sink.join().unwrap());
    let lost = |came: &[bool], from: usize, to: usize| {
        came[from.min(to)..to].iter().filter(|came| !**came).count()
    };
    let all = PACKETS as usize;
    println!("{} of {all} lost, longest gap {gap:?}", lost(&near, SETTLED, all));
    println!(
        "the other: {} before, {} while gone",
        lost(&far, SETTLED, cut),
        lost(&far, cut, back)
    );
    println!("{} since, {} left out", lost(&far, back, all), source.flows[0].count("lagged"));
    assert!(lost(&near, SETTLED, all) <= all / 200);
    assert!(gap < Duration::from_millis(1000), "{gap:?}");
    assert!(lost(&far, SETTLED, cut.saturating_sub(500)) <= all / 200);
    assert!(lost(&far, cut, back) > (back - cut) / 2, "nothing comes while it is gone");
    assert!(lost(&far, (back + 1500).min(all), all) <= all / 200, "it gets all again");
    assert!(source.flows[0].count("lagged") > 500);
}
