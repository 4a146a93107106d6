//! Third-party programs on the daemon's host, used as in the documentation and examples: networkd,
//! ifupdown, nftables, tshark.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common;
use recoded_netns::process::{Background, output};
use recoded_netns::traffic::send_paced;
use recoded_netns::{AuthPlan, CodePlan, Daemon, LinePlan, Loss, Namespace};

/// Until something on a busy machine is as it should be.
const PATIENCE: Duration = Duration::from_secs(60);

/// The other end of the tunnel.
const FAR: &str = "10.99.0.2";

const NETWORKD: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../control/daemon/package/examples/networkd/30-rec0.network"
);
const IFUPDOWN: &str = include_str!("../../../../control/daemon/package/examples/ifupdown/rec0");
const DISSECTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/wireshark/recoded.lua");
const BY_SYMPTOM: &str = include_str!("../../../../TROUBLESHOOTING.md");

/// Types of packets, as the dissector numbers them; 3 is reserved.
const TYPES: [usize; 7] = [1, 2, 4, 5, 6, 7, 8];

fn plan(udp: &[usize], code: CodePlan) -> LinePlan {
    let mut plan = LinePlan { udp: udp.to_vec(), ..LinePlan::protected(1) };
    for flow in &mut plan.flows {
        // One that every code has.
        (flow.code, flow.field) = (code, 256);
    }
    plan
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Reports that a test cannot run; in CI that is a failure.
fn skip(reason: &str) {
    assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none(), "cannot run: {reason}");
    println!("skipped: {reason}");
}

/// systemd-networkd in a namespace, with the package's example. If /sys is read-only, it does not
/// wait for udev.
fn networkd(host: &Namespace, program: &Path, log: &Path) -> Background {
    let script = "mount -t tmpfs none /run && mkdir -p /run/systemd/network && \
                  mount -o remount,bind,ro /sys && cp \"$1\" /run/systemd/network/ && exec \"$2\"";
    let mut command = host.command("unshare");
    command.args(["--mount", "sh", "-ec", script, "sh", NETWORKD]).arg(program);
    Background::start(&mut command, log).unwrap()
}

#[test]
fn routes_of_networkd_come_with_the_path_and_go_with_it() {
    let Some(_turn) = common::daemons_beside() else { return };
    let folders = ["/lib/systemd", "/usr/lib/systemd"];
    let programs = folders.map(|folder| PathBuf::from(folder).join("systemd-networkd"));
    let Some(program) = programs.iter().find(|program| program.is_file()) else {
        return skip("systemd-networkd is not installed");
    };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    let source = bed.source();
    let mut daemons = Daemon::start_line(&bed, &plan(&[], CodePlan::Stream)).unwrap();
    let log = bed.directory().join("networkd.log");
    let mut manager = networkd(source, program, &log);
    let routes = || source.ip("route show 10.20.0.0/16").unwrap();
    let is_routed = || {
        // Traffic for the path, so that its failure or recovery is noticed.
        common::answers(source, FAR);
        routes().contains("dev rec0") && routes().contains("metric 50")
    };
    let told = || fs::read_to_string(&log).unwrap_or_default();
    wait_until("a route by networkd", || {
        assert!(manager.is_running(), "networkd has ended:\n{}", told());
        is_routed()
    });
    assert!(source.ip("address show dev rec0").unwrap().contains("10.99.0.1/24"), "{}", told());

    daemons[1].kill();
    wait_until("no route while the sink does not answer", || !is_routed());
    daemons[1].spawn_again().unwrap();
    daemons[1].wait_until_it_answers().unwrap();
    wait_until("a route when it answers again", is_routed);
    assert!(!told().contains("30-rec0.network:"), "a line is not understood:\n{}", told());
}

/// Runs the commands of `ifup` and `ifdown` with the same shell.
#[test]
fn lines_of_ifupdown_add_the_route_and_take_it_away() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    let source = bed.source();
    let _daemons = Daemon::start_line(&bed, &plan(&[], CodePlan::Stream)).unwrap();
    let lines = IFUPDOWN.lines().map(str::trim);
    let runs = |word: &str| {
        let commands = lines.clone().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        let commands: Vec<&str> = commands.collect();
        assert_eq!(commands.len(), 1, "{word}: {commands:?}");
        let mut command = source.command("sh");
        let ended = output(command.args(["-ec", commands[0]]).env("IFACE", "rec0")).unwrap();
        assert!(ended.success, "{word}: {}", ended.stderr);
        source.ip("route show 10.20.0.0/16").unwrap()
    };
    let route = runs("up");
    assert!(route.contains("dev rec0") && route.contains("metric 50"), "{route:?}");
    assert_eq!(runs("up"), route, "a second time changes nothing");
    assert_eq!(runs("down"), "");
    assert_eq!(runs("down"), "", "a route that is gone already is no error");
    assert!(source.ip("address show dev rec0").unwrap().contains("10.99.0.1/24"));
}

/// The sink accepts the packets that its rules let in. With AF_XDP, packets bypass the rules; with
/// UDP sockets, the documented rule lets them in.
#[test]
fn rule_of_the_page_lets_packets_to_udp_sockets_and_af_xdp_needs_none() {
    let Some(_turn) = common::daemons_beside() else { return };
    let rule =
        BY_SYMPTOM.lines().find_map(|line| line.split('`').find(|it| it.starts_with("nft ")));
    let rule = rule.and_then(|rule| rule.strip_prefix("nft ")).expect("a rule");
    for (udp, is_filtered) in [(&[][..], false), (&[0, 1], true)] {
        let bed = common::bed(1, Loss::independent(0.0), 100.0);
        let rules = "add table inet filter; \
                     add chain inet filter input { type filter hook input priority 0; policy drop; }; \
                     add rule inet filter input iifname { lo, rec0 } accept; \
                     add rule inet filter input drop";
        let set = |rules: &str| bed.sink().command("nft").arg(rules).output();
        if !set(rules).is_ok_and(|output| output.status.success()) {
            return skip("`nft` is not installed, or Linux has no nf_tables");
        }
        let _daemons = Daemon::start_line(&bed, &plan(udp, CodePlan::Stream)).unwrap();
        let answers = || common::answers(bed.source(), FAR);
        if is_filtered {
            assert!(!(0..3).any(|_| answers()), "the rules drop nothing");
            assert!(set(rule).unwrap().status.success(), "{rule}");
        }
        wait_until("an answer through the tunnel", answers);
    }
}

/// Packets on such a line as tshark sees them: the number of each type, and of malformed ones.
fn dissect(code: CodePlan, is_keyed: bool) -> Vec<usize> {
    let bed = common::bed(1, Loss::independent(0.1), 100.0);
    let file = bed.directory().join("line.pcap");
    let mut command = bed.link(1).command("tshark");
    command.args(["-q", "-i", "west", "-f", "udp port 9426", "-w"]).arg(&file);
    let mut tshark = Background::start(&mut command, &bed.directory().join("tshark.log")).unwrap();
    wait_until("a capture", || fs::metadata(&file).is_ok_and(|file| file.len() > 0));
    let keys = is_keyed.then(|| AuthPlan::new("full", 1));
    let daemons =
        Daemon::start_line(&bed, &LinePlan { auth: keys, ..plan(&[0, 1], code) }).unwrap();
    wait_until("an answer", || common::answers(bed.source(), FAR));
    let to = SocketAddr::from(([10, 99, 0, 2], 7000));
    send_paced(bed.source(), to, 900, 1500, 1500.0).unwrap();
    // Neighbours talk every few seconds, and at their end.
    daemons.into_iter().for_each(|mut daemon| assert!(daemon.stop()));
    std::thread::sleep(Duration::from_millis(300));
    assert!(tshark.terminate(PATIENCE));

    let mut command = std::process::Command::new("tshark");
    command.arg("-r").arg(&file).args(["-X", &format!("lua_script:{DISSECTOR}")]);
    command.args(["-o", &format!("recoded.tags:{}", if is_keyed { "TRUE" } else { "FALSE" })]);
    let fields = ["-T", "fields", "-e", "recoded.type", "-e", "recoded.malformed"];
    let read = output(command.args(fields)).unwrap();
    assert!(read.success && !read.stderr.contains("Lua"), "{}", read.stderr);
    let lines: Vec<&str> = read.stdout.lines().collect();
    assert!(lines.len() > 1000, "{code:?}: {} packets", lines.len());
    let kinds = lines.iter().map(|line| {
        let kind = line.trim_end().parse();
        kind.unwrap_or_else(|_| panic!("{code:?}: a packet that is not read: {line:?}"))
    });
    kinds.collect()
}

/// Between daemons, under losses, with all codes, with keys and without.
#[test]
fn dissector_reads_every_packet_of_lines_and_all_types_are_among_them() {
    let Some(_turn) = common::daemons_beside() else { return };
    if output(std::process::Command::new("tshark").arg("--version")).is_err() {
        return skip("tshark is not installed");
    }
    let bats = CodePlan::Bats { block_symbols: 64, interleave: None, adaptive: true };
    let lines = [
        (CodePlan::Stream, false),
        (CodePlan::Stream, true),
        (CodePlan::Rlnc, true),
        (bats, false),
        (CodePlan::OpenLoop, true),
    ];
    let kinds: Vec<usize> =
        lines.into_iter().flat_map(|(code, is_keyed)| dissect(code, is_keyed)).collect();
    let seen = TYPES.map(|kind| kinds.iter().filter(|other| **other == kind).count());
    println!("packets by type: {seen:?}");
    assert!(seen.iter().all(|packets| *packets > 0), "{seen:?}");
}
