//! `recodectl doctor` and `recoded --check` on a line: silent if all is well, and specific if not.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common;
use recoded_netns::process::output;
use recoded_netns::traffic::send_paced;
use recoded_netns::{Bed, Daemon, LinePlan, Loss, binary};

/// Exit codes of recodectl.
const OK: i32 = 0;
const NOT_RUNNING: i32 = 3;
const UNHEALTHY: i32 = 5;

/// Runs recodectl in the namespace of a host.
fn recodectl(bed: &Bed, host: usize, daemon: &Daemon, arguments: &[&str]) -> (i32, String) {
    let mut command = bed.hosts()[host].command(binary("recodectl"));
    command.arg("--socket").arg(daemon.socket()).args(arguments);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    (status.code().unwrap_or(-1), text)
}

fn line() -> (Bed, LinePlan) {
    (common::bed(2, Loss::independent(0.02), 20.0), LinePlan::protected(2))
}

fn traffic(bed: &Bed) {
    let to = SocketAddr::from(([10, 99, 0, 2], 7000));
    send_paced(bed.source(), to, 200, 200, 1000.0).unwrap();
}

#[test]
fn doctor_finds_nothing_on_a_healthy_line_and_a_neighbour_that_is_gone() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, plan) = line();
    let mut daemons = Daemon::start_line(&bed, &plan).unwrap();
    // The first packets were answered by ICMP errors, because no neighbour's daemon ran yet. Errors
    // are read once a second, so an immediate doctor run would report them as recent.
    std::thread::sleep(Duration::from_secs(2));
    traffic(&bed);
    for (host, daemon) in daemons.iter().enumerate() {
        let (code, text) = recodectl(&bed, host, daemon, &["doctor"]);
        assert_eq!(code, OK, "h{host}: {text}");
        assert!(text.contains("errors 0,"), "{text}");
    }

    assert!(daemons[1].stop());
    // It counts as silent only after a packet was sent to it; its closed port is known at once.
    let begin = Instant::now();
    let text = loop {
        traffic(&bed);
        let (code, text) = recodectl(&bed, 0, &daemons[0], &["doctor"]);
        if code == UNHEALTHY && text.contains("port 9426 unreachable") {
            break text;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{code}: {text}");
    };
    println!("{text}");
    assert!(text.contains("FAIL link east"), "{text}");
    assert!(
        text.split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .contains("recoded is not running there")
    );
    // Its daemon has received the same error for its own packets.
    let heard = daemons[0].show().unwrap().links[0].faults["rx_icmp_no_port"];
    assert!(heard > 0, "ICMP errors are not counted");
    let (code, text) = recodectl(&bed, 0, &daemons[0], &["doctor", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, UNHEALTHY);
    assert_eq!(json["findings"][0]["level"], "error", "{text}");
    assert_eq!(recodectl(&bed, 1, &daemons[1], &["doctor"]).0, NOT_RUNNING);
}

/// The source was silent, and the relay only counted.
#[test]
fn doctor_of_a_relay_names_a_flow_that_is_not_configured_there() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, plan) = line();
    let mut relay = plan.clone();
    relay.flows.iter_mut().filter(|flow| flow.id == 1).for_each(|flow| flow.id = 17);
    let _source = Daemon::start(&bed, 0, &plan).unwrap();
    let relay = Daemon::start(&bed, 1, &relay).unwrap();
    let begin = Instant::now();
    loop {
        traffic(&bed);
        let (code, text) = recodectl(&bed, 1, &relay, &["doctor", "--seconds", "1"]);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.contains("sends flow 1, which this node does not have") {
            println!("{code}: {text}");
            assert_eq!(code, UNHEALTHY);
            assert!(words.contains("configure flow 1 here, or correct id or next_hops there"));
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{code}: {text}");
    }
}

/// `--check` accepted these files although nothing worked.
#[test]
fn check_of_the_host_finds_what_the_file_cannot_know() {
    let Some(_turn) = common::namespaces() else { return };
    let (bed, plan) = line();
    let file = bed.directory().join("check.toml");
    let socket = bed.directory().join("check.sock");
    let text = plan.config(1, &socket.to_string_lossy());
    let check = |text: &str, more: &[&str]| {
        fs::write(&file, text).unwrap();
        let mut command = bed.hosts()[1].command(binary("recoded"));
        let ended = output(command.args(["--check", "--config"]).arg(&file).args(more)).unwrap();
        (ended.code.unwrap_or(-1), ended.stdout + &ended.stderr)
    };
    let (code, said) = check(&text, &[]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("this host fits it: errors 0"), "{said}");

    let local = text.lines().find_map(|line| line.strip_prefix("local = ")).unwrap();
    let foreign = text.replacen(&format!("local = {local}"), "local = \"192.0.2.77\"", 1);
    let (code, said) = check(&foreign, &[]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("local = 192.0.2.77 is no address of"), "{said}");
    assert_eq!(check(&foreign, &["--offline"]).0, 0);

    bed.hosts()[1].ip("link set west down").unwrap();
    let (code, said) = check(&text, &[]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("ip link set west up"), "{said}");
    bed.hosts()[1].ip("link set west up").unwrap();

    configure_mends_what_a_program_may(&bed, &file, &text);

    let missing = text.replace("interface = \"west\"", "interface = \"wset\"");
    let (code, said) = check(&missing, &[]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("waits for wset") && said.contains("west"), "{said}");
}

/// An interface that is down is set up only on request; addresses are left to the operator.
fn configure_mends_what_a_program_may(bed: &Bed, file: &Path, text: &str) {
    let configure = |more: &[&str]| {
        let mut command = bed.hosts()[1].command(binary("recodectl"));
        let command = command.args(["configure", "host", "--config"]).arg(file).args(more);
        let ended = output(command).unwrap();
        (ended.code.unwrap_or(-1), ended.stdout + &ended.stderr)
    };
    fs::write(file, text).unwrap();
    bed.hosts()[1].ip("link set west down").unwrap();
    let (code, said) = configure(&[]);
    assert_eq!(code, OK, "{said}");
    assert!(said.contains("ip link set dev west up: would be run"), "{said}");
    let (_, again) = configure(&["--dry-run"]);
    assert_eq!(said, again, "nothing was changed");
    let (code, said) = configure(&["--apply"]);
    println!("{said}");
    assert_eq!(code, OK, "{said}");
    assert!(said.contains("ip link set dev west up: done"), "{said}");
    assert!(said.contains("changed: 1;"), "{said}");
    let (code, said) = configure(&["--apply"]);
    assert!(code == OK && said.contains("nothing to change"), "{said}");
    let (code, said) = configure(&["--json"]);
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, json["steps"].as_array().map(Vec::len)), (OK, Some(0)), "{said}");
    let local = text.lines().find_map(|line| line.strip_prefix("local = ")).unwrap();
    fs::write(file, text.replacen(local, "\"192.0.2.77\"", 1)).unwrap();
    let (code, said) = configure(&["--apply"]);
    assert_eq!(code, UNHEALTHY, "{said}");
    assert!(said.contains("is no address of"), "{said}");
}

/// Exit code and output of `recoded --check` for this file on a host.
fn check(bed: &Bed, host: usize, text: &str) -> (i32, String) {
    let file = bed.directory().join("checked.toml");
    fs::write(&file, text).unwrap();
    let mut command = bed.hosts()[host].command(binary("recoded"));
    let ended = output(command.args(["--check", "--config"]).arg(&file)).unwrap();
    let said = ended.stdout + &ended.stderr;
    (ended.code.unwrap_or(-1), words(&said))
}

/// The text with line breaks normalised.
fn words(said: &str) -> String {
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn check_of_the_host_finds_programs_routes_and_packets_that_do_not_fit() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, plan) = line();
    let relay = &bed.hosts()[1];
    let socket = |name: &str| bed.directory().join(name).to_string_lossy().into_owned();
    let text = plan.config(1, &socket("check.sock"));
    assert_eq!(check(&bed, 1, &text).0, OK);

    // A next hop that no route leads to.
    let address = Bed::east_address(2).to_string();
    let far = text.replace(&address, "192.0.2.77");
    assert_ne!(far, text);
    let (code, said) = check(&bed, 1, &far);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("there is no route out of east to neighbour 192.0.2.77"), "{said}");
    relay.ip(&format!("route add 192.0.2.77 via {address}")).unwrap();
    let (code, said) = check(&bed, 1, &far);
    assert_eq!(code, OK, "{said}");

    // Packets that the interface may send, and the daemon does not receive.
    relay.ip("link set west mtu 9000").unwrap();
    let (code, said) = check(&bed, 1, &text);
    assert!(code == OK && said.contains("west has MTU 9000"), "{code}: {said}");
    assert!(said.contains("ip link set west mtu 1500"), "{said}");
    relay.ip("link set west mtu 1500").unwrap();

    // Symbols that the path's interface has no room for.
    let mut large = plan.clone();
    large.flows.iter_mut().for_each(|flow| flow.symbol_bytes = Some(1400));
    let large = large.config(0, &socket("check.sock"));
    assert_eq!(check(&bed, 0, &large).0, OK);
    bed.source().ip("link set east mtu 1280").unwrap();
    let (code, said) = check(&bed, 0, &large);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("symbol_bytes = 1400") && said.contains("1280"), "{said}");

    // A program of another owner, here a daemon with another control socket.
    let mut other = Daemon::start(&bed, 1, &plan).unwrap();
    let (code, said) = check(&bed, 1, &text);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("of another owner is attached to west"), "{said}");
    assert!(other.stop());
    let (code, said) = check(&bed, 1, &text);
    assert_eq!(code, OK, "{said}");
}

/// Queues need no configuration, whatever the number of workers.
#[test]
fn interface_that_is_down_is_found_and_configured_and_queues_are_no_finding() {
    let Some(_turn) = common::namespaces() else { return };
    let bed = common::bed_of_queues(2, 2, Loss::independent(0.0), 20.0);
    let socket = bed.directory().join("check.sock");
    let config = |workers| {
        let plan = LinePlan { workers, ..LinePlan::protected(2) };
        plan.config(1, &socket.to_string_lossy())
    };
    for workers in [1, 2, 3] {
        let (code, said) = check(&bed, 1, &config(workers));
        assert!(code == OK && said.contains("errors 0, warnings 0"), "{said}");
    }
    let host = &bed.hosts()[1];
    host.ip("link set west down").unwrap();
    let (code, said) = check(&bed, 1, &config(1));
    assert!(code == 1 && said.contains("west is down"), "{said}");
    let mut command = host.command(binary("recodectl"));
    command.args(["configure", "host", "--apply", "--config"]);
    let ended = output(command.arg(bed.directory().join("checked.toml"))).unwrap();
    println!("{}", ended.stdout);
    assert!(ended.success && ended.stdout.contains("changed: 1; left to you: 0"), "{ended:?}");
    let (code, said) = check(&bed, 1, &config(1));
    assert_eq!(code, OK, "{said}");
}

/// Linux's limit of socket buffers, restored when dropped.
struct Limit(String);

impl Limit {
    const FILE: &str = "/proc/sys/net/core/rmem_max";

    fn read() -> u64 {
        fs::read_to_string(Self::FILE).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        let _ = fs::write(Self::FILE, &self.0);
    }
}

/// The limits bind only daemons without CAP_NET_ADMIN. Only the first network namespace can set
/// them.
#[test]
fn limit_of_socket_buffers_is_found_and_configured() {
    let Some(_turn) = common::namespaces() else { return };
    let (bed, plan) = line();
    let plan = LinePlan { udp: vec![1], ..plan };
    let file = bed.directory().join("check.toml");
    fs::write(&file, plan.config(1, &bed.directory().join("check.sock").to_string_lossy()))
        .unwrap();
    let configure = |inside: &str, more: &str| {
        let mut command = Command::new("sh");
        let script = format!("exec {inside} setpriv --bounding-set=-net_admin \"$0\" \"$@\"");
        command.args(["-c", &script]).arg(binary("recodectl"));
        command.args(["configure", "host", more, "--config"]).arg(&file);
        words(&output(&mut command).unwrap().stdout)
    };
    let _limit = Limit(fs::read_to_string(Limit::FILE).unwrap());
    let inside = format!("ip netns exec {}", bed.hosts()[1].name());
    fs::write(Limit::FILE, "300000").unwrap();
    let said = configure(&inside, "--dry-run");
    assert!(said.contains("net.core.rmem_max = 300000 bounds socket buffers"), "{said}");
    assert_eq!(Limit::read(), 300_000, "nothing was changed");
    let said = configure("", "--apply");
    println!("{said}");
    assert!(said.contains("sysctl -q -w net.core.rmem_max="), "{said}");
    assert!(Limit::read() > 300_000, "{said}");
    assert!(!configure(&inside, "--dry-run").contains("rmem_max"));
}
