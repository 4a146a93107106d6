//! `recodectl plan` over emulated links: its measurements match the links' settings.

use std::io::Read;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common;
use recoded_netns::{Bed, BedConfig, DirectionConfig, LinkConfig, Loss, Namespace, binary};

const PORT: u16 = 9428;

/// Losses of all cases are within three deviations, except by chance in one run in fifty.
const DRAWS: usize = 3;

/// Tolerances of rate and round trip; of the latter at least `ROUND_TRIP_MILLIS`.
const RATE_TOLERANCE: f64 = 0.1;
const ROUND_TRIP_TOLERANCE: f64 = 0.05;
const ROUND_TRIP_MILLIS: f64 = 1.0;

/// Delay that hosts and emulators add to a round trip, on a shared machine.
const IDLE_MILLIS: f64 = 0.5;

struct Listening(Child);

impl Listening {
    fn start(host: &Namespace) -> Listening {
        let mut child = host
            .command(binary("recodectl"))
            .args(["plan", "--listen", "--for", "2m"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It reports when it listens.
        child.stderr.as_mut().unwrap().read_exact(&mut [0; 9]).unwrap();
        Listening(child)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn plan(bed: &Bed, to: IpAddr, arguments: &[&str]) -> Value {
    let mut command = bed.source().command(binary("recodectl"));
    let command = command.args(["--json", "plan", &to.to_string()]);
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path} in {value}"))
}

fn direction(loss: Loss, rate_mbit: f64, delay_millis: u64) -> DirectionConfig {
    let delay = Duration::from_millis(delay_millis);
    DirectionConfig { delay, ..DirectionConfig::new(loss, rate_mbit) }
}

/// Three standard deviations of a share measured over `packets` packets with bursty losses.
fn three_sigma(loss: Loss, packets: f64) -> f64 {
    let runs = if loss.is_bursty() { 2.0 * loss.burst_mean - 1.0 } else { 1.0 };
    3.0 * (loss.share * (1.0 - loss.share) * runs / packets).sqrt()
}

/// Whether the losses of one direction match the settings.
fn is_right(way: &Value, loss: Loss) -> bool {
    let (measured, packets) = (number(way, "/loss"), number(way, "/packets"));
    let is_right = (measured - loss.share).abs() <= three_sigma(loss, packets);
    if loss.is_bursty() && number(way, "/lost") > 200.0 {
        let runs = number(way, "/lost") / loss.burst_mean;
        let off = (number(way, "/burst_mean") - loss.burst_mean).abs();
        return is_right && off < 3.0 * loss.burst_mean / runs.sqrt();
    }
    is_right
}

fn check(to: IpAddr, link: &LinkConfig, mtu: f64, measured: &Value) {
    for (name, set) in [("there", &link.eastward), ("back", &link.westward)] {
        let way = &measured[name];
        let rate = number(way, "/rate_mbit");
        let off = (rate / set.rate_mbit - 1.0).abs();
        assert!(off <= RATE_TOLERANCE, "{name}: {rate} of {} Mbit/s", set.rate_mbit);
        assert_eq!(number(way, "/mtu"), mtu, "{name}");
        // The queue alone, without further packets that wait in the emulator.
        let (queue, is_least) = (number(way, "/queue_ms"), way["queue_is_least"] == true);
        let set_queue = set.queue.as_secs_f64() * 1e3;
        assert!(queue < 1.5 * set_queue + 3.0, "{name}: queue {queue} ms");
        assert!(is_least || queue > 0.7 * set_queue, "{name}: queue {queue} ms");
    }
    let delay = (link.eastward.delay + link.westward.delay).as_secs_f64() * 1e3 + IDLE_MILLIS;
    let tolerance = (ROUND_TRIP_TOLERANCE * delay).max(ROUND_TRIP_MILLIS);
    let found = number(measured, "/round_trip/min_ms");
    assert!((found - delay).abs() <= tolerance, "round trip {found} ms of {delay}");
    assert_eq!(measured["to"], to.to_string());
}

/// Gives both ends of a one-link bed IPv6 addresses; returns the sink's.
fn with_ipv6(bed: &Bed) -> IpAddr {
    for (host, interface, number) in [(bed.source(), "east", 1), (bed.sink(), "west", 2)] {
        for name in ["all", interface] {
            host.sysctl(&format!("net.ipv6.conf.{name}.disable_ipv6"), "0").unwrap();
        }
        host.ip(&format!("-6 address add 2001:db8::{number}/64 dev {interface} nodad")).unwrap();
    }
    "2001:db8::2".parse().unwrap()
}

fn measure(link: LinkConfig, mtu: u16, to: impl Fn(&Bed) -> IpAddr) -> Value {
    let config = BedConfig::uniform(1, link);
    println!("seed {}", config.seed);
    let bed = Bed::build(&config).expect("the bed builds");
    for side in ["west", "east"] {
        bed.link(1).ip(&format!("link set {side} mtu {mtu}")).unwrap();
    }
    let to = to(&bed);
    let _listening = Listening::start(bed.sink());
    for draw in 1.. {
        let plan = plan(&bed, to, &["--seconds", "3"]);
        let measured = &plan["measured"];
        println!("{measured}");
        check(to, &link, f64::from(mtu), measured);
        let right = [("there", link.eastward.loss), ("back", link.westward.loss)]
            .iter()
            .all(|(name, loss)| is_right(&measured[name], *loss));
        if right {
            return plan;
        }
        assert!(draw < DRAWS, "losses {measured}");
    }
    unreachable!("the loop returns")
}

fn verdict(plan: &Value, direction: usize) -> &str {
    plan["forecasts"][direction]["verdict"].as_str().unwrap()
}

#[test]
fn plan_measures_what_links_were_set_to() {
    let Some(_turn) = common::daemons() else { return };
    let lossy = LinkConfig {
        eastward: direction(Loss::independent(0.1), 100.0, 15),
        westward: direction(Loss::independent(0.02), 40.0, 5),
        timed: true,
    };
    let plan = measure(lossy, 1500, Bed::sink_address);
    assert!(number(&plan, "/forecasts/0/rows/0/mbit") < 20.0, "cubic starves: {plan}");
    let bursty = LinkConfig {
        eastward: direction(Loss { share: 0.05, burst_mean: 8.0 }, 50.0, 3),
        westward: DirectionConfig {
            reorder: 0.02,
            reorder_by: Duration::from_millis(3),
            ..direction(Loss::independent(0.0), 50.0, 3)
        },
        timed: true,
    };
    let plan = measure(bursty, 1400, Bed::sink_address);
    assert_eq!(verdict(&plan, 0), "yes");
    assert_eq!(verdict(&plan, 1), "no");
    let reordered = number(&plan, "/measured/back/reordered");
    assert!((0.005..0.06).contains(&reordered), "{reordered}");
    assert_eq!(number(&plan, "/measured/there/reordered"), 0.0);
    configured(&plan);
}

/// The least MTU of IPv6, and its longer headers.
#[test]
fn plan_over_ipv6_measures_what_links_were_set_to() {
    let Some(_turn) = common::daemons() else { return };
    let lossy = LinkConfig {
        eastward: direction(Loss::independent(0.1), 50.0, 10),
        westward: direction(Loss::independent(0.0), 50.0, 10),
        timed: true,
    };
    let plan = measure(lossy, 1280, with_ipv6);
    assert_eq!(verdict(&plan, 0), "datagrams");
    configured(&plan);
}

/// The configuration printed for the first host is one that the daemon accepts.
fn configured(plan: &Value) {
    let folder = std::env::temp_dir().join(format!("recoded-plan-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (hop, file) = (folder.join("hop.json"), folder.join("recoded.toml"));
    std::fs::write(&hop, plan.to_string()).unwrap();
    let output =
        Command::new(binary("recodectl")).args(["plan", "--hops"]).args([&hop, &hop]).output();
    let output = output.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let at = text.find("[[link]]").expect("a configuration");
    std::fs::write(&file, &text[at..]).unwrap();
    let checked = Command::new(binary("recoded"))
        .args(["--check", "--offline", "--config"])
        .arg(&file)
        .output();
    let checked = checked.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(checked.status.success(), "{checked:?}\n{text}");
}

/// A firewall that drops, and a closed port.
#[test]
fn plan_says_why_there_is_no_answer() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    let fails = || {
        let mut command = bed.source().command(binary("recodectl"));
        let command = command.args(["--json", "plan", &bed.sink_address().to_string()]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error: Value = serde_json::from_slice(&output.stdout).unwrap();
        error["error"]["message"].as_str().unwrap().to_owned()
    };
    let closed = fails();
    assert!(closed.contains("port unreachable") && closed.contains("--listen"), "{closed}");
    // A filtered listener does not even return an error.
    let _quiet = bed.sink().udp_socket(([0, 0, 0, 0], PORT).into()).unwrap();
    let silent = fails();
    assert!(silent.contains("not even an error") && silent.contains("firewall"), "{silent}");
    bed.source().ip("route add blackhole 198.51.100.0/24").unwrap();
    let mut command = bed.source().command(binary("recodectl"));
    let output = command.args(["plan", "198.51.100.1"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && text.contains("198.51.100.1"), "{text}");
}
