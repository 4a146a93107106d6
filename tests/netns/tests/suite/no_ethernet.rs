//! Links whose interfaces carry IP packets without an Ethernet header: raw-IP modems, PPP, VPNs and
//! tunnels of Linux. They have UDP sockets, which the daemon selects.
//!
//! ```text
//!  h0 east--west h1 wan0==wan0 h2 east--west h3     ==: no Ethernet header
//! ```

mod cable;

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common;
use cable::{Cable, MTU, NAME};
use recoded_api::v1::Link;
use recoded_netns::process::{Finished, output};
use recoded_netns::traffic::{Fetch, WebServer, sha256, write_random_file};
use recoded_netns::{AuthPlan, Bed, CodePlan, Daemon, LinePlan, Loss, Namespace, binary};
use recoded_wire::DEFAULT_PORT;

/// Rate of the links: any two cores carry a line of four daemons at this.
const RATE_MBIT: f64 = 100.0;
/// Bytes of each download.
const FILE_BYTES: u64 = 2 << 20;
/// The hosts at both ends of the link in the middle.
const NEAR: usize = 1;
const FAR: usize = 2;
/// The ends of the line through the tunnel.
const SOURCE: &str = "10.99.0.1";
const SINK: &str = "10.99.0.2";
/// Packets from a wrong address.
const FORGED: u64 = 500;
/// Until something on a busy machine is as it should be.
const PATIENCE: Duration = Duration::from_secs(60);
/// Reason that `show` reports for such a link.
const REASON: &str = "no Ethernet header";

/// Addresses of both ends of the link in the middle.
#[derive(Copy, Clone)]
struct Ends {
    near: &'static str,
    far: &'static str,
}

const V4: Ends = Ends { near: "10.78.2.1", far: "10.78.2.2" };
const V6: Ends = Ends { near: "fd00:78::1", far: "fd00:78::2" };

/// Interfaces of the link in the middle, while this lives.
enum Middle {
    Raw(Cable),
    /// A tunnel of Linux over the link of the bed.
    Tunnel,
}

/// A tunnel of Linux: its kind, and further arguments of `ip link add`.
#[derive(Copy, Clone)]
struct Kind {
    name: &'static str,
    options: &'static str,
}

const GRE: Kind = Kind { name: "gre", options: " ttl 64" };
const IPIP: Kind = Kind { name: "ipip", options: " ttl 64" };
const SIT: Kind = Kind { name: "sit", options: " ttl 64" };

impl Kind {
    /// Creates one end of it; returns the reason if Linux does not support this kind.
    fn make(self, host: &Namespace, local: &str, remote: &str) -> Result<(), String> {
        let Kind { name, options } = self;
        let command = format!("link add {NAME} type {name} local {local} remote {remote}{options}");
        host.ip(&command).map_err(|error| format!("this Linux has no {name}: {error}"))?;
        host.ip(&format!("link set {NAME} up")).map_err(|error| error.to_string())?;
        Ok(())
    }
}

/// Assigns an end its address as PPP does: with the address of the other end, and no network.
fn address(host: &Namespace, own: &str, other: &str) {
    let bits = if own.contains(':') { 128 } else { 32 };
    host.ip(&format!("addr add {own} peer {other}/{bits} dev {NAME}")).unwrap();
}

/// The bed and both ends of the middle link.
struct Line {
    bed: Bed,
    ends: Ends,
}

impl Line {
    fn new(ends: Ends) -> Line {
        let bed = common::bed(3, Loss::independent(0.0), RATE_MBIT);
        for index in [NEAR, FAR] {
            for key in ["all", "default"] {
                let name = format!("net.ipv6.conf.{key}.disable_ipv6");
                bed.hosts()[index].sysctl(&name, "0").unwrap();
            }
        }
        Line { bed, ends }
    }

    fn hosts(&self) -> [&Namespace; 2] {
        [NEAR, FAR].map(|index| &self.bed.hosts()[index])
    }

    fn give_addresses(&self) {
        let ([near, far], ends) = (self.hosts(), self.ends);
        address(near, ends.near, ends.far);
        address(far, ends.far, ends.near);
    }

    /// A cable between two devices.
    fn raw(&self) -> Middle {
        let [near, far] = self.hosts();
        let cable = Cable::plug(near, far);
        self.give_addresses();
        Middle::Raw(cable)
    }

    /// A tunnel over the link of the bed.
    fn tunnel(&self, kind: Kind) -> Result<Middle, String> {
        let number = NEAR + 1;
        let (west, east) = (Bed::west_address(number), Bed::east_address(number));
        let ([near, far], [west, east]) = (self.hosts(), [west, east].map(|it| it.to_string()));
        kind.make(near, &west, &east)?;
        kind.make(far, &east, &west)?;
        self.give_addresses();
        Ok(Middle::Tunnel)
    }

    /// A VPN over the link of the bed.
    fn wireguard(&self) -> Result<Middle, String> {
        let number = NEAR + 1;
        let keys = AuthPlan::new("full", 1);
        let at = [Bed::west_address(number), Bed::east_address(number)];
        for (index, host) in self.hosts().into_iter().enumerate() {
            let added = host.ip(&format!("link add {NAME} type wireguard"));
            added.map_err(|error| format!("this Linux has no WireGuard: {error}"))?;
            let file = self.bed.directory().join(format!("wireguard-{index}"));
            std::fs::write(&file, keys.private(index)).unwrap();
            let (peer, other) = (keys.public(1 - index), at[1 - index]);
            let set = format!(
                "set {NAME} listen-port 51820 private-key {} peer {peer} allowed-ips 0.0.0.0/0 \
                 endpoint {other}:51820",
                file.display()
            );
            host.run("wg", &set).map_err(|error| format!("no wireguard-tools: {error}"))?;
            host.ip(&format!("link set {NAME} up")).unwrap();
        }
        self.give_addresses();
        Ok(Middle::Tunnel)
    }

    /// Removes the interfaces of the middle.
    fn remove(&self, middle: Middle) {
        match middle {
            Middle::Raw(cable) => drop(cable),
            Middle::Tunnel => self.hosts().into_iter().for_each(|host| {
                host.ip(&format!("link del {NAME}")).unwrap();
            }),
        }
    }

    fn start(&self, plan: &LinePlan) -> Vec<Daemon> {
        let start = |index| {
            let text = |socket: &str| configuration(plan, index, socket, self.ends);
            Daemon::start_as(&self.bed, index, plan, text).unwrap()
        };
        let daemons: Vec<Daemon> = (0..=self.bed.hops()).map(start).collect();
        daemons.iter().for_each(|it| it.wait_until_it_has_sessions().unwrap());
        daemons
    }

    /// Pings in both directions and a file by TCP.
    fn assert_carries(&self, daemons: &[Daemon]) {
        let [first, .., last] = daemons else { panic!("a line has two ends") };
        common::wait_for("a ping", first, || common::answers(self.bed.source(), SINK));
        common::wait_for("a ping back", last, || common::answers(self.bed.sink(), SOURCE));
        download(&self.bed);
        for link in [NEAR, FAR].map(|index| middle(&daemons[index])) {
            assert_eq!((link.state.as_str(), link.socket_mode.as_str()), ("up", "udp"), "{link:?}");
            assert!(link.reason.contains(REASON), "{link:?}");
        }
    }
}

/// All hosts select their sockets, and none has its own addresses configured.
fn plan(auth: Option<AuthPlan>) -> LinePlan {
    let mut plan = LinePlan { auth, chooses: vec![0, 1, 2, 3], ..LinePlan::protected(3) };
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    plan
}

/// The file of a host of the line, whose middle has other interfaces and addresses.
fn configuration(plan: &LinePlan, index: usize, socket: &str, ends: Ends) -> String {
    let text = plan.config(index, socket);
    let lines = text.lines().filter(|line| !line.starts_with("local ="));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    let side = match index {
        NEAR => "east",
        FAR => "west",
        _ => return text,
    };
    let own = format!("interface = \"{side}\"");
    assert!(text.contains(&own), "{text}");
    let text = text.replace(&own, &format!("interface = \"{NAME}\""));
    let [near, far] = [Bed::west_address(NEAR + 1), Bed::east_address(NEAR + 1)];
    text.replace(&near.to_string(), ends.near).replace(&far.to_string(), ends.far)
}

/// Downloads a file through the line by TCP and compares it.
fn download(bed: &Bed) {
    let (file, copy) = (bed.directory().join("file"), bed.directory().join("copy"));
    let _server = WebServer::start(bed.source(), bed.directory()).unwrap();
    write_random_file(&file, FILE_BYTES).unwrap();
    let server = SOURCE.parse().unwrap();
    let fetch = Fetch::start(bed.sink(), server, "file", &copy, PATIENCE).unwrap();
    let download = fetch.finish().unwrap();
    println!("{download:?}, {:.1} Mbit/s", download.mbit());
    assert!(download.complete, "{download:?}");
    assert_eq!(sha256(&file).unwrap(), sha256(&copy).unwrap());
}

fn middle_if_any(daemon: &Daemon) -> Option<Link> {
    daemon.show().ok()?.links.into_iter().find(|link| link.interface == NAME)
}

fn middle(daemon: &Daemon) -> Link {
    middle_if_any(daemon).expect("the link in the middle")
}

fn waits(daemon: &Daemon) -> String {
    middle_if_any(daemon).map(|link| link.waits).unwrap_or_default()
}

/// Without keys and with keys, and again after the interfaces were deleted and recreated.
fn carries_and_is_followed(ends: Ends, make: impl Fn(&Line) -> Result<Middle, String>) {
    for auth in [None, Some(AuthPlan::new("full", 3))] {
        let line = Line::new(ends);
        let middle = match make(&line) {
            Ok(middle) => middle,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let daemons = line.start(&plan(auth));
        line.assert_carries(&daemons);
        // Packets of full size may be too long until streams know the MTU of the path.
        let faults = ["tx_full", "tx_no_neighbour"];
        let link = self::middle(&daemons[NEAR]);
        assert_eq!(faults.map(|it| link.faults[it]), [0; 2], "{link:?}");
        let processes = [NEAR, FAR].map(|it| daemons[it].dataplane_pid().unwrap());
        line.remove(middle);
        let is_missing = || [NEAR, FAR].iter().all(|it| waits(&daemons[*it]).contains("missing"));
        common::wait_for("the interface is missed", &daemons[NEAR], is_missing);
        // It has another index.
        for host in line.hosts() {
            host.ip("link add spare type bridge").unwrap();
        }
        let _middle = make(&line).unwrap();
        line.assert_carries(&daemons);
        let after = [NEAR, FAR].map(|it| daemons[it].dataplane_pid().unwrap());
        assert_eq!(processes, after, "{}", daemons[NEAR].log());
    }
}

#[test]
fn raw_ip_carries_and_is_followed() {
    let Some(_turn) = common::daemons_beside() else { return };
    carries_and_is_followed(V4, |line| Ok(line.raw()));
}

#[test]
fn raw_ip_carries_and_is_followed_over_ipv6() {
    let Some(_turn) = common::daemons_beside() else { return };
    carries_and_is_followed(V6, |line| Ok(line.raw()));
}

#[test]
fn gre_carries_and_is_followed() {
    let Some(_turn) = common::daemons_beside() else { return };
    carries_and_is_followed(V4, |line| line.tunnel(GRE));
}

#[test]
fn ipip_carries_and_is_followed() {
    let Some(_turn) = common::daemons_beside() else { return };
    carries_and_is_followed(V4, |line| line.tunnel(IPIP));
}

/// Such a tunnel carries IPv6.
#[test]
fn sit_carries_and_is_followed() {
    let Some(_turn) = common::daemons_beside() else { return };
    carries_and_is_followed(V6, |line| line.tunnel(SIT));
}

#[test]
fn wireguard_carries_and_is_followed() {
    let Some(_turn) = common::daemons_beside() else { return };
    carries_and_is_followed(V4, Line::wireguard);
}

/// `wan0` is absent at the start, appears, and reappears with another index and address, like a
/// modem that redials: the far end follows it. Without its last address there is no route.
#[test]
fn interface_that_dials_in_later_and_again_is_followed_wherever_it_is() {
    let Some(_turn) = common::daemons_beside() else { return };
    let line = Line::new(V4);
    let auth = Some(AuthPlan::new("full", 3));
    let plan = LinePlan { roams: vec![NEAR], ..plan(auth) };
    let [near, far] = line.hosts();
    let start = |index| {
        let text = |socket: &str| {
            let text = configuration(&plan, index, socket, V4);
            // Its other link has AF_XDP sockets and one address.
            if index == FAR { text } else { text.replace("roams = true\n", "") }
        };
        Daemon::start_as(&line.bed, index, &plan, text).unwrap()
    };
    let daemons: Vec<Daemon> = (0..=3).map(start).collect();
    assert_eq!(waits(&daemons[NEAR]), "interface wan0 is missing");
    let process = daemons[NEAR].dataplane_pid().unwrap();
    for (own, has_route) in [(V4.near, true), ("10.78.2.77", true), ("10.78.9.9", false)] {
        let _cable = Cable::plug(near, far);
        address(far, V4.far, V4.near);
        far.ip(&format!("route add 10.78.0.0/16 dev {NAME}")).unwrap();
        match has_route {
            true => address(near, own, V4.far),
            false => drop(near.ip(&format!("addr add {own}/32 dev {NAME}")).unwrap()),
        }
        assert_eq!(near.ip("route show").unwrap().contains(V4.far), has_route);
        let is_at = || middle_if_any(&daemons[NEAR]).is_some_and(|link| link.local == own);
        common::wait_for("its address", &daemons[NEAR], is_at);
        line.assert_carries(&daemons);
        let link = middle(&daemons[NEAR]);
        assert_eq!(link.mtu, u64::from(MTU), "{link:?}");
        assert_sound(near, &daemons[NEAR]);
        drop(_cable);
        let is_missing = || waits(&daemons[NEAR]).contains("missing");
        common::wait_for("the interface is missed", &daemons[NEAR], is_missing);
    }
    assert_eq!(daemons[NEAR].dataplane_pid().unwrap(), process, "{}", daemons[NEAR].log());
}

/// `--check` and `doctor` find no problem, and `show` and `doctor` report why it has UDP sockets.
fn assert_sound(host: &Namespace, daemon: &Daemon) {
    let check = check(host, daemon.config());
    assert_eq!(check.code, Some(0), "{check:?}");
    assert!(check.stdout.contains("errors 0") && !check.stdout.contains(NAME), "{check:?}");
    for arguments in [&["show", "links"][..], &["doctor", "--seconds", "1"]] {
        let mut command = host.command(binary("recodectl"));
        let said = output(command.arg("--socket").arg(daemon.socket()).args(arguments)).unwrap();
        let words = said.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(REASON), "{words}");
        // While the interface was absent or had no route yet, packets could not be sent.
        let mut warnings = words.split("warn link ").skip(1);
        let is_expected = |warning: &str| {
            ["tx_no_neighbour,", "tx_link_gone,"].contains(&warning.split(' ').nth(1).unwrap_or(""))
        };
        assert!(!words.contains("FAIL link"), "{arguments:?}: {words}");
        assert!(warnings.all(is_expected), "{arguments:?}: {words}");
    }
}

fn check(host: &Namespace, config: &Path) -> Finished {
    let mut command = host.command(binary("recoded"));
    output(command.arg("--check").arg("--config").arg(config)).unwrap()
}

/// At the start, by `--check`, and if it appears while the daemon runs.
#[test]
fn backend_xdp_without_an_ethernet_header_is_refused_in_words_that_say_what_to_do() {
    let Some(_turn) = common::daemons_beside() else { return };
    let line = Line::new(V4);
    let plan = LinePlan { chooses: Vec::new(), ..plan(None) };
    let near = line.hosts()[0];
    let text = |socket: &str| configuration(&plan, NEAR, socket, V4);
    // It waits for the interface. Once that exists, there is no retry loop.
    let mut daemon = Daemon::start_as(&line.bed, NEAR, &plan, text).unwrap();
    let process = daemon.dataplane_pid().unwrap();
    let _middle = line.raw();
    let is_refused = || waits(&daemon).contains("no Ethernet header");
    common::wait_for("it is refused", &daemon, is_refused);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(daemon.dataplane_pid().unwrap(), process, "{}", daemon.log());
    let log = daemon.log();
    assert_eq!(log.matches("link east waits: packets of `wan0`").count(), 1, "{log}");
    let config = daemon.config().to_owned();
    assert!(daemon.stop(), "{log}");

    let check = check(near, &config);
    let cause = "link east: packets of wan0 have no Ethernet header";
    assert_eq!(check.code, Some(1), "{check:?}");
    let cure = "set backend = \"udp\" in its [[link]], or leave backend out";
    assert!(check.stdout.contains(cause) && check.stdout.contains(cure), "{check:?}");
    let mut command = near.command(binary("recoded"));
    let started = output(command.arg("--config").arg(&config)).unwrap();
    assert_eq!(started.code, Some(1), "{started:?}");
    assert!(started.stderr.contains("packets of `wan0` have no Ethernet header"), "{started:?}");
    assert!(started.stderr.contains(cure), "{started:?}");
}

#[test]
fn packets_of_others_are_dropped_and_counted_as_on_ethernet() {
    let Some(_turn) = common::daemons_beside() else { return };
    let line = Line::new(V4);
    let _middle = line.raw();
    let daemons = line.start(&plan(None));
    line.assert_carries(&daemons);
    let [_, far] = line.hosts();
    far.ip(&format!("addr add 10.78.2.66/32 dev {NAME}")).unwrap();
    let before = daemons[NEAR].show().unwrap().verdicts["drop_not_neighbour"];
    let socket: UdpSocket = far.udp_socket("10.78.2.66:0".parse().unwrap()).unwrap();
    let to = SocketAddr::new(V4.near.parse().unwrap(), DEFAULT_PORT);
    // A coded packet of the current version and flow 1.
    let mut coded = [0; 64];
    (coded[0], coded[7]) = (0x32, 1);
    for _ in 0..FORGED {
        socket.send_to(&coded, to).unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
    let dropped = || daemons[NEAR].show().unwrap().verdicts["drop_not_neighbour"] - before;
    let begun = Instant::now();
    while dropped() < FORGED && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("{:?}", daemons[NEAR].show().unwrap().verdicts);
    assert_eq!(dropped(), FORGED, "{:?}", daemons[NEAR].show().unwrap().verdicts);
    line.assert_carries(&daemons);
}
