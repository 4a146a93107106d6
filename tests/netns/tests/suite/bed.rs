//! The bed itself: links apply the configured loss and rate, and the clean-up is complete.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common;
use recoded_netns::traffic::{
    Fetch, IPERF_PORT, Iperf, UdpLoad, WebServer, send_paced, sha256, write_random_file,
};
use recoded_netns::{Bed, BedConfig, LinkConfig, Loss, process};

#[test]
fn plain_udp_over_three_links_is_delivered_as_the_losses_multiply() {
    let Some(_turn) = common::namespaces() else {
        return;
    };
    let mut bed = common::bed(3, Loss::independent(0.0), 100.0);
    bed.side_path(IPERF_PORT).unwrap();
    let before = bed.counters().unwrap();
    let load = UdpLoad { to: bed.sink_address(), payload_bytes: 1400, mbit: 60.0, seconds: 4 };
    let iperf = Iperf::start(bed.source(), bed.sink(), &load, bed.directory()).unwrap();
    bed.set_loss_once_flowing(Loss::independent(0.1)).unwrap();
    let outcome = iperf.finish().unwrap();
    let mut carried = 1.0;
    for (before, after) in before.iter().zip(bed.counters().unwrap()) {
        let link = after.eastward.since(&before.eastward);
        assert!((link.loss() - 0.1).abs() < 0.01, "{link:?}");
        assert_eq!(link.merged, 0, "a merged packet is lost as a whole");
        carried *= 1.0 - link.loss();
    }
    // 20,000 packets: one standard deviation is 0.3 points. If other load takes the cores away,
    // Linux's own queues drop some more, which no link counts. The result is never fewer, and not
    // many more.
    assert!((carried - 0.729).abs() < 0.012, "{carried}");
    let delivered = outcome.delivered();
    assert!(delivered < carried + 0.012, "{outcome:?}, links carried {carried}");
    assert!(delivered > carried - 0.1, "{outcome:?}, links carried {carried}");
}

#[test]
fn bursty_link_has_the_loss_and_the_mean_burst_it_was_given() {
    let Some(_turn) = common::namespaces() else {
        return;
    };
    let bed = common::bed(1, Loss { share: 0.1, burst_mean: 8.0 }, 1000.0);
    let to = SocketAddr::new(bed.sink_address(), 9);
    let _open = bed.sink().udp_socket(to).unwrap();
    let sent = send_paced(bed.source(), to, 100, 40_000, 40_000.0).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let link = bed.counters().unwrap()[0].eastward;
    assert_eq!(link.seen, sent);
    // About 500 bursts determine their mean length to 5 %, and the loss to half a percentage point.
    assert!((link.loss() - 0.1).abs() < 0.025, "{link:?}");
    assert!((link.burst_mean() - 8.0).abs() < 1.6, "{link:?}");
}

#[test]
fn lossless_link_carries_a_download_at_the_rate_it_was_given() {
    let Some(_turn) = common::namespaces() else {
        return;
    };
    let bed = common::bed(2, Loss::independent(0.0), 100.0);
    let folder = bed.directory();
    write_random_file(&folder.join("file"), 8 << 20).unwrap();
    let _server = WebServer::start(bed.source(), folder).unwrap();
    let copy = folder.join("copy");
    let limit = Duration::from_secs(20);
    let fetch = Fetch::start(bed.sink(), bed.source_address(), "file", &copy, limit).unwrap();
    let download = fetch.finish().unwrap();
    assert!(download.complete);
    assert_eq!(sha256(&folder.join("file")).unwrap(), sha256(&copy).unwrap());
    // 1448 of every 1514 bytes are payload. The token bucket lets the start through faster.
    assert!((80.0..100.0).contains(&download.mbit()), "{download:?}");
}

#[test]
fn neighbours_unknown_at_the_start_are_found_through_the_link() {
    let Some(_turn) = common::namespaces() else {
        return;
    };
    let uniform = BedConfig::uniform(2, LinkConfig::new(Loss::independent(0.2), 100.0));
    let config = BedConfig { neighbours_known: false, ..uniform };
    let bed = Bed::build(&config).unwrap();
    let to = SocketAddr::new(bed.sink_address(), 7000);
    let receiver = bed.sink().udp_socket(to).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    send_paced(bed.source(), to, 100, 200, 1000.0).unwrap();
    let arrived = (0..200).take_while(|_| receiver.recv(&mut [0; 200]).is_ok()).count();
    // 64 % of the packets that waited for, or came after, the ARP replies.
    assert!(arrived > 60, "{arrived} of 200");
}

#[test]
fn dropped_bed_leaves_no_namespace_process_or_file() {
    let Some(_turn) = common::namespaces() else {
        return;
    };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    let (prefix, folder) = (bed.prefix().to_owned(), bed.directory().to_owned());
    let mut command = bed.source().command("sleep");
    let sleeper = process::Background::start(command.arg("60"), &folder.join("log")).unwrap();
    let pid = sleeper.pid();
    sleeper.leave();
    // Before that it is `ip`, which enters the namespace.
    let name = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let deadline = Instant::now() + Duration::from_secs(10);
    while name() != "sleep\n" {
        assert!(Instant::now() < deadline, "{}", name());
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(bed);
    let names = process::run(Command::new("ip").args(["netns", "list"])).unwrap();
    assert!(!names.contains(&prefix), "{names}");
    assert!(!folder.exists());
    assert!(!process::runs(pid));
}
