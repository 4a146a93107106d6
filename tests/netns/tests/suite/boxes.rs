//! One file for all boxes: each daemon reads the same text, and finds its own part and interfaces.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common;
use recoded_netns::process::output;
use recoded_netns::{AuthPlan, Bed, Daemon, LinePlan, Loss, binary};

/// The other end of the tunnel.
const FAR: &str = "10.99.0.2";

/// Starts a daemon with this file; only the socket differs, since hosts share a file system.
fn start(bed: &Bed, host: usize, text: &str, name: Option<&str>) -> Daemon {
    let name = name.map(|name| ("RECODED_NAME", name.to_owned()));
    start_in(bed, host, text, name.into_iter().collect())
}

/// The same with variables of the environment.
pub fn start_in(
    bed: &Bed,
    host: usize,
    text: &str,
    environment: Vec<(&'static str, String)>,
) -> Daemon {
    let mut plan = LinePlan::protected(bed.hops());
    plan.environment.extend(environment);
    let own = |socket: &str| format!("daemon.socket = \"{socket}\"\ndaemon.frames = 8192\n{text}");
    Daemon::start_as(bed, host, &plan, own).unwrap()
}

/// Puts a key where the file of the network has the private key of every box.
fn put_key(path: &Path, keys: &AuthPlan, host: usize) {
    std::fs::write(path, keys.private(host)).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

/// Pings the other end of the tunnel from the host of a daemon until most answers come.
fn ping(bed: &Bed, daemon: &Daemon) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let mut command = bed.source().command(binary("recodectl"));
        command.arg("--socket").arg(daemon.socket());
        let ended = output(command.args(["ping", FAR, "-c", "20", "-i", "0.05"])).unwrap();
        if ended.code == Some(0) {
            return;
        }
        assert!(Instant::now() < deadline, "{}{}", ended.stdout, ended.stderr);
    }
}

/// A laptop whose address is not written, and a server: four lines, the same on both.
#[test]
fn laptop_and_server_start_from_one_file_and_ping_each_other() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.02), 50.0);
    let (keys, path) = (AuthPlan::new("full", 1), bed.directory().join("private.key"));
    let text = format!(
        "private_key = \"{}\"\n[boxes]\n\
         laptop = {{ key = \"{}\", tunnel = \"10.99.0.1/24\" }}\n\
         server = {{ at = \"10.77.1.2\", key = \"{}\", tunnel = \"10.99.0.2/24\" }}\n",
        path.display(),
        keys.public(0),
        keys.public(1)
    );
    let mut daemons = Vec::new();
    for host in [1, 0] {
        put_key(&path, &keys, host);
        daemons.push(start(&bed, host, &text, None));
    }
    for daemon in &daemons {
        daemon.wait_until_it_has_sessions().unwrap();
    }
    ping(&bed, &daemons[1]);
    // What the daemon runs with is its part; the file stays, and no box changes it alone.
    let refused = output(&mut daemons[1].control(&["set", "1", "target_loss=1e-3", "--save"]));
    let refused = refused.unwrap();
    assert_eq!(refused.code, Some(4), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("is the same on all boxes"), "{}", refused.stderr);
    let file = std::fs::read_to_string(daemons[1].config()).unwrap();
    std::fs::write(
        daemons[1].config(),
        file + "[[path]]\nvia = [\"laptop\", \"server\"]\nmode = 1\n",
    )
    .unwrap();
    let refused = output(&mut daemons[1].control(&["reload"])).unwrap();
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(refused.stderr.contains("mode = 1 is wrong"), "{}", refused.stderr);
}

/// Subnets behind both boxes: routes lead into the tunnel, are restored after removal,
/// follow the file at a reload, and go with the tunnel.
#[test]
fn subnets_behind_boxes_are_routed_into_the_tunnel() {
    const SUBNETS: [&str; 2] = ["10.61.0.0/24", "10.62.0.0/24"];
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.02), 50.0);
    let hosts = [bed.source(), bed.sink()];
    let text = "auth = \"none\"\n[boxes]\n\
                a = { at = \"10.77.1.1\", tunnel = [\"10.99.0.1/24\", \"fd99::1/64\"], routes = [\"10.61.0.0/24\"] }\n\
                b = { at = \"10.77.1.2\", tunnel = [\"10.99.0.2/24\", \"fd99::2/64\"], routes = [\"10.62.0.0/24\", \
                \"fd62::/64\"] }\n";
    for (host, space) in hosts.iter().enumerate() {
        space.ip(&format!("address add 10.{}.0.1/24 dev lo", 61 + host)).unwrap();
        space.sysctl("net.ipv6.conf.default.disable_ipv6", "0").unwrap();
    }
    let mut daemons: Vec<Daemon> = (0..2).map(|host| start(&bed, host, text, None)).collect();
    let routes = |host: usize, family: &str| {
        let text = hosts[host].run("ip", &format!("{family} route show proto 83")).unwrap();
        text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    };
    let wait = |host: usize, family: &str, expected: &[&str]| {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let found: Vec<String> = routes(host, family);
            if found == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{found:?} instead of {expected:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    wait(0, "-4", &SUBNETS[1..]);
    wait(0, "-6", &["fd62::/64"]);
    wait(1, "-4", &SUBNETS[..1]);
    for [from, to] in [[0, 1], [1, 0]] {
        let at = format!("10.{}.0.1:0", 61 + to);
        let listener = hosts[to].inside(|| TcpListener::bind(at)).unwrap().unwrap();
        let at = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&at, Duration::from_secs(20));
        hosts[from].inside(connect).unwrap().unwrap();
    }
    // Setting the tunnel down removes its routes, too.
    hosts[0].ip("link set rec0 down").unwrap();
    hosts[0].ip("link set rec0 up").unwrap();
    wait(0, "-4", &SUBNETS[1..]);
    hosts[0].ip("route delete 10.62.0.0/24").unwrap();
    wait(0, "-4", &SUBNETS[1..]);
    // The file changes, and takes effect without a new process.
    let process = daemons[0].dataplane_pid().unwrap();
    let file = std::fs::read_to_string(daemons[0].config()).unwrap();
    let changed = file.replace("\"10.62.0.0/24\", \"fd62::/64\"", "\"10.64.0.0/16\"");
    std::fs::write(daemons[0].config(), changed).unwrap();
    let reloaded = output(&mut daemons[0].control(&["reload"])).unwrap();
    assert_eq!(reloaded.code, Some(0), "{}{}", reloaded.stdout, reloaded.stderr);
    wait(0, "-4", &["10.64.0.0/16"]);
    wait(0, "-6", &[]);
    assert_eq!(daemons[0].dataplane_pid().unwrap(), process);
    // A route of another program stays, and the change is refused in words.
    hosts[0].ip("route add 10.65.0.0/16 dev lo").unwrap();
    std::fs::write(daemons[0].config(), file.replace("10.62.0.0/24", "10.65.0.0/16")).unwrap();
    let refused = output(&mut daemons[0].control(&["reload"])).unwrap();
    assert_eq!(refused.code, Some(4), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("route 10.65.0.0/16"), "{}", refused.stderr);
    wait(0, "-4", &["10.64.0.0/16"]);
    assert!(daemons[0].stop());
    wait(0, "-4", &[]);
}

/// Three boxes in a line, named on their command lines; a reload of the changed file.
#[test]
fn three_in_a_line_start_from_one_file_and_take_a_change_of_it() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.02), 50.0);
    let keys = AuthPlan::new("full", 2);
    let file = |host: usize| bed.directory().join(format!("key{host}"));
    let this = |host: usize, more: &str| {
        put_key(&file(host), &keys, host);
        let (key, file) = (keys.public(host), file(host).display().to_string());
        format!("{{ key = \"{key}\", private_key = \"{file}\", {more} }}\n")
    };
    let text = format!(
        "[boxes]\na = {}b = {}c = {}[[path]]\nvia = [\"a\", \"b\", \"c\"]\n",
        this(0, "at = \"10.77.1.1\", tunnel = \"10.99.0.1/24\""),
        this(1, "at = [\"10.77.1.2\", \"10.77.2.1\"]"),
        this(2, "at = \"10.77.2.2\", tunnel = \"10.99.0.2/24\"")
    );
    let names = ["a", "b", "c"];
    let start = |(host, name): (usize, &&str)| start(&bed, host, &text, Some(name));
    let daemons: Vec<Daemon> = names.iter().enumerate().map(start).collect();
    for daemon in &daemons {
        daemon.wait_until_it_has_sessions().unwrap();
    }
    ping(&bed, &daemons[0]);
    let links = daemons[1].show().unwrap().links;
    let interfaces: Vec<&str> = links.iter().map(|link| link.interface.as_str()).collect();
    assert_eq!(interfaces.len(), 2, "{interfaces:?}");
    for daemon in &daemons {
        let file = std::fs::read_to_string(daemon.config()).unwrap();
        std::fs::write(daemon.config(), file + "target_loss = 1e-3\n").unwrap();
        let reloaded = output(&mut daemon.control(&["reload"])).unwrap();
        assert_eq!(reloaded.code, Some(0), "{}{}", reloaded.stdout, reloaded.stderr);
    }
    ping(&bed, &daemons[0]);
}
