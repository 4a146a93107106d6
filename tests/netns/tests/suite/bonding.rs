//! A stream over two paths between the same two hosts: their rates add up, and cutting one costs
//! only its own rate.
//!
//! ```text
//!   h0 ─────────── link 1 ─────────── h1      the first path: one hop
//!    \_ mgmt _ h2 _ link 2 ___________/       the second: over a relay
//! ```

use crate::common;
use crate::numbered::{Received, missing, receive, receive_twice, send};
use recoded_netns::process::output;
use recoded_netns::stream::Stream;
use recoded_netns::traffic::{Iperf, UdpLoad};
use recoded_netns::{AuthPlan, Bed, BedConfig, Daemon, DirectionConfig, LinkConfig, Loss};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

const FAST_MBIT: f64 = 60.0;
const SLOW_MBIT: f64 = 30.0;

/// TCP payload share of a link's rate, after headers and loss.
const SHARE: f64 = 0.95 * 1373.0 / 1514.0;

/// A link that loses one packet in twenty.
fn link(rate_mbit: f64, delay_millis: u64) -> LinkConfig {
    let direction = DirectionConfig::new(Loss::independent(0.05), rate_mbit);
    LinkConfig::both(DirectionConfig { delay: Duration::from_millis(delay_millis), ..direction })
}

/// Each host's part of both flows; with keys, everything is encrypted.
fn config(index: usize, socket: &str, keys: Option<&AuthPlan>) -> String {
    let mut head = format!("[daemon]\nsocket = \"{socket}\"\nframes = 8192\n");
    head += &match keys {
        Some(_) => format!("private_key = \"{}\"\n", AuthPlan::key_file(socket)),
        None => "auth = \"none\"\n".to_owned(),
    };
    let known = |link: &str, address: &str, host: usize| {
        keys.map_or(String::new(), |keys| {
            let key = keys.public(host);
            format!(
                "[[neighbour]]\nlink = \"{link}\"\naddress = \"{address}\"\npublic_key = \"{key}\"\n"
            )
        })
    };
    let edge = |host: usize| {
        keys.map_or(String::new(), |keys| format!("edge_key = \"{}\"\n", keys.public(host)))
    };
    let link = |name: &str, address: String| {
        format!("[[link]]\nname = \"{name}\"\ninterface = \"{name}\"\nlocal = \"{address}\"\n")
    };
    let hop =
        |name: &str, address: String| format!("{{ link = \"{name}\", address = \"{address}\" }}");
    let (west, east) = (Bed::west_address, Bed::east_address);
    let (mgmt0, mgmt2) = ("10.76.0.1".to_owned(), "10.76.0.2".to_owned());
    let tunnel =
        |host: u8| format!("[[tunnel]]\nname = \"rec0\"\naddress = \"10.99.0.{host}/24\"\n");
    let edges = |source: u8, sink: u8, hops: [String; 2], other_end: usize| {
        let [one, other] = hops;
        let edge = edge(other_end);
        format!(
            "[[flow]]\nid = {source}\nrole = \"source\"\ntunnel = \"rec0\"\n\
             next_hops = [{one}, {other}]\nspread = \"sum\"\n{edge}\
             [[flow]]\nid = {sink}\nrole = \"sink\"\ntunnel = \"rec0\"\n\
             upstream = [{one}, {other}]\n{edge}"
        )
    };
    match index {
        0 => {
            let links = link("east", west(1).to_string()) + &link("mgmt", mgmt0);
            let known = known("east", &east(1).to_string(), 1) + &known("mgmt", &mgmt2, 2);
            let hops = [hop("east", east(1).to_string()), hop("mgmt", mgmt2)];
            head + &links + &known + &tunnel(1) + &edges(1, 2, hops, 1)
        }
        1 => {
            let links = link("west", east(1).to_string()) + &link("east", west(2).to_string());
            let hops = [hop("west", west(1).to_string()), hop("east", east(2).to_string())];
            let known =
                known("west", &west(1).to_string(), 0) + &known("east", &east(2).to_string(), 2);
            head + &links + &known + &tunnel(2) + &edges(2, 1, hops, 0)
        }
        _ => {
            let links = link("mgmt", mgmt2) + &link("west", east(2).to_string());
            let known = known("mgmt", &mgmt0, 0) + &known("west", &west(2).to_string(), 1);
            let (to_0, to_1) = (hop("mgmt", mgmt0), hop("west", west(2).to_string()));
            let relay = |id: u8, from: &str, to: &str| {
                format!(
                    "[[flow]]\nid = {id}\nrole = \"relay\"\nupstream = {from}\nnext_hops = [{to}]\n"
                )
            };
            head + &links + &known + &relay(1, &to_0, &to_1) + &relay(2, &to_1, &to_0)
        }
    }
}

fn two_paths(keys: Option<&AuthPlan>) -> (Bed, Vec<Daemon>) {
    let uniform = BedConfig::uniform(2, link(FAST_MBIT, 5));
    let links = vec![link(FAST_MBIT, 5), link(SLOW_MBIT, 20)];
    let bed = Bed::build(&BedConfig { links, ..uniform }).expect("the bed builds");
    let start = |index| {
        let write = |socket: &str| {
            if let Some(keys) = keys {
                let file = AuthPlan::key_file(socket);
                std::fs::write(&file, keys.private(index)).unwrap();
                std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
            }
            config(index, socket, keys)
        };
        Daemon::start_with(&bed, index, write).unwrap()
    };
    let daemons = (0..3).map(start).collect();
    (bed, daemons)
}

fn to() -> SocketAddr {
    SocketAddr::from(([10, 99, 0, 2], 7000))
}

#[test]
fn tcp_gets_the_sum_of_both_paths_and_outlives_a_cut() {
    let Some(_turn) = common::daemons() else { return };
    let (mut bed, daemons) = two_paths(None);
    let (source, sink) = (&bed.hosts()[0].clone(), &bed.hosts()[1].clone());
    let stream = Stream::start(source, to(), sink, to(), "bbr").unwrap();
    sleep(Duration::from_secs(8));
    bed.set_link(1, link(FAST_MBIT, 5).with_loss(Loss::ALL)).unwrap();
    sleep(Duration::from_secs(6));
    bed.set_link(1, link(FAST_MBIT, 5)).unwrap();
    sleep(Duration::from_secs(6));
    let shown = daemons[0].show().unwrap();
    let outcome = stream.finish();
    let [both, one, again] =
        [(3.0, 8.0), (10.0, 14.0), (16.0, 20.0)].map(|(from, to)| outcome.mbit_between(from, to));
    println!("both {both:.1}, the slower one {one:.1}, both again {again:.1} Mbit/s");
    assert_eq!(shown.flows[0].code, "stream", "auto follows spread");
    assert_eq!(shown.flows[0].neighbours.len(), 2);
    assert_eq!(shown.flows[1].upstreams.len(), 2);
    // TCP needs time to find the available rate; these are the rates of a busy machine.
    assert!(both > 0.6 * FAST_MBIT * SHARE, "{both}");
    assert!(one > 0.4 * SLOW_MBIT * SHARE, "{one}");
    assert!(again > 0.6 * FAST_MBIT * SHARE, "{again}");
}

#[test]
fn datagrams_of_more_than_either_path_carries_arrive() {
    let Some(_turn) = common::daemons() else { return };
    let (bed, _daemons) = two_paths(None);
    let (source, sink) = (&bed.hosts()[0], &bed.hosts()[1]);
    let load = |mbit| UdpLoad { to: to().ip(), payload_bytes: 1300, mbit, seconds: 4 };
    // The first finds the rates.
    for mbit in [40.0, 64.0] {
        let run = Iperf::start(source, sink, &load(mbit), bed.directory()).unwrap();
        let outcome = run.finish().unwrap();
        println!("{mbit} Mbit/s: {:.4} of them arrive", outcome.delivered());
        // 51 are all that the better path could carry.
        assert!(outcome.delivered() * mbit > 0.9 * mbit, "{outcome:?}");
    }
}

/// With all keys: the ends agree over both paths, and each path has its own tags.
#[test]
fn datagrams_that_are_encrypted_go_on_when_either_path_is_cut() {
    let Some(_turn) = common::daemons() else { return };
    let keys = AuthPlan::new("full", 2);
    let (mut bed, daemons) = two_paths(Some(&keys));
    cut_both(&mut bed);
    for daemon in &daemons[..2] {
        let shown = daemon.show().unwrap();
        assert_eq!(shown.flows[0].code, "stream");
        let count = |name: &str| shown.flows.iter().map(|flow| flow.count(name)).sum::<u64>();
        let wrong = ["tag_refused", "tag_failed", "unseal_refused", "clear_refused"].map(count);
        println!("{} symbols verified, {wrong:?} refused", count("tag_verified"));
        assert_eq!(wrong, [0; 4]);
    }
    let sink = daemons[1].show().unwrap();
    let verified: u64 = sink.flows.iter().map(|flow| flow.count("tag_verified")).sum();
    assert!(verified > 8000, "{verified}");
}

#[test]
fn datagrams_go_on_when_either_path_is_cut() {
    let Some(_turn) = common::daemons() else { return };
    let (mut bed, _daemons) = two_paths(None);
    cut_both(&mut bed);
}

/// Sends datagrams until one arrives: with keys, the ends must agree first.
fn wait_until_reached(bed: &Bed) {
    let to = SocketAddr::from((to().ip(), 7001));
    let receiver = bed.hosts()[1].udp_socket(to).unwrap();
    let sender = bed.hosts()[0].udp_socket(SocketAddr::from(([10, 99, 0, 1], 0))).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let comes = |_| {
        let _ = sender.send_to(&[0; 16], to);
        receiver.recv(&mut [0; 64]).is_ok()
    };
    assert!((0..300).any(comes), "nothing comes within 15 s");
}

/// Cuts one path after the other for two seconds, under a thousand datagrams a second.
fn cut_both(bed: &mut Bed) {
    wait_until_reached(bed);
    let receiver = bed.hosts()[1].udp_socket(to()).unwrap();
    let sender = bed.hosts()[0].udp_socket(SocketAddr::from(([10, 99, 0, 1], 0))).unwrap();
    const PACKETS: u32 = 9000;
    let sending = send(sender, to(), PACKETS);
    let receiving = receive(receiver, PACKETS);
    for (number, rate, delay) in [(1, FAST_MBIT, 5), (2, SLOW_MBIT, 20)] {
        sleep(Duration::from_secs(2));
        bed.set_link(number, link(rate, delay).with_loss(Loss::ALL)).unwrap();
        sleep(Duration::from_secs(2));
        bed.set_link(number, link(rate, delay)).unwrap();
    }
    sending.join().unwrap();
    let (came, longest) = receiving.join().unwrap();
    let lost = came.iter().filter(|came| !**came).count();
    println!("{lost} of {PACKETS} lost, longest gap {longest:?}: {:?}", missing(&came));
    assert!(lost <= PACKETS as usize / 200, "{lost}");
    assert!(longest < Duration::from_millis(1500), "{longest:?}");
}

/// The file of an end without the second path: without its link, its neighbour, and its route.
fn without_second(text: &str, link: &str) -> String {
    let mut kept = String::new();
    for block in text.replace("\n[[", "\n\u{0}[[").split('\u{0}') {
        let is_second = block.starts_with("[[link]]") || block.starts_with("[[neighbour]]");
        if !(is_second && block.contains(&format!("= \"{link}\"\n"))) {
            kept += block;
        }
    }
    let second = kept.find(&format!(", {{ link = \"{link}\"")).unwrap();
    let hop = &kept[second..second + kept[second..].find(" }").unwrap() + 2];
    kept.replace(&hop.to_owned(), "")
}

/// An operator adds a path to a running stream, and removes it again.
#[test]
fn datagrams_go_on_when_a_path_is_added_and_removed() {
    let Some(_turn) = common::daemons() else { return };
    for keys in [None, Some(AuthPlan::new("full", 2))] {
        let (bed, daemons) = two_paths(keys.as_ref());
        wait_until_reached(&bed);
        let receiver = bed.hosts()[1].udp_socket(to()).unwrap();
        let sender = bed.hosts()[0].udp_socket(SocketAddr::from(([10, 99, 0, 1], 0))).unwrap();
        const PACKETS: u32 = 14_000;
        let sending = send(sender, to(), PACKETS);
        let receiving = receive_twice(receiver, PACKETS);
        let ends = [(&daemons[0], "mgmt"), (&daemons[1], "east")];
        let both = ends.map(|(daemon, _)| std::fs::read_to_string(daemon.config()).unwrap());
        let one = [0, 1].map(|end| without_second(&both[end], ends[end].1));
        for texts in [&one, &both] {
            sleep(Duration::from_secs(1));
            for ((daemon, _), text) in ends.iter().zip(texts) {
                sleep(Duration::from_millis(1500));
                std::fs::write(daemon.config(), text).unwrap();
                let (before, begun) = (daemon.dataplane_pid().unwrap(), Instant::now());
                let said = output(&mut daemon.control(&["reload"])).unwrap();
                assert_eq!(said.code, Some(0), "{said:?}");
                println!("the reload took {:.0?}", begun.elapsed());
                assert!(!sending.is_finished(), "all was sent before");
                assert_ne!(daemon.dataplane_pid().unwrap(), before, "it was not replaced");
            }
        }
        sending.join().unwrap();
        let Received { came, twice, longest } = receiving.join().unwrap();
        let lost = came.iter().filter(|came| !**came).count();
        println!(
            "{lost} of {PACKETS} lost, {twice} twice, longest gap {longest:?}: {:?}",
            missing(&came)
        );
        // Packets that the replaced process had acknowledged, and packets sent on a path that the
        // other end does not know yet.
        assert!(lost < 50, "{lost}");
    }
}
