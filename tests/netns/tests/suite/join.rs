//! A box without any file joins the network of a running hub by two commands.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::Value;

use crate::boxes::start_in;
use crate::common;
use crate::reload::{DONE, REFUSED, recodectl};
use recoded_netns::process::output;
use recoded_netns::{AuthPlan, Bed, Daemon, Loss, binary};

/// Echoes of the box that was there before, and seconds between them: more than both commands
/// take.
const ECHOES: &str = "200";
const INTERVAL: &str = "0.05";

/// Two boxes, `hub` at host 2 and `a` at host 0. The hub comes first, since all hosts have the
/// files of all keys here, and a command finds its box by them.
fn network(bed: &Bed) -> String {
    let keys = AuthPlan::new("full", 2);
    let this = |host: usize, more: &str| {
        let file = bed.directory().join(format!("key{host}"));
        std::fs::write(&file, keys.private(host)).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let (key, file) = (keys.public(host), file.display());
        format!("{{ key = \"{key}\", private_key = \"{file}\", {more} }}\n")
    };
    let at = "at = \"10.77.2.2\", tunnel = \"10.99.0.1/24\"";
    format!("[boxes]\nhub = {}a = {}", this(2, at), this(0, "tunnel = \"10.99.0.2/24\""))
}

/// Starts a daemon with a state directory, as the unit has one: a hub that restarts finds there
/// where roaming boxes were.
fn start(bed: &Bed, host: usize, text: &str, name: &str) -> Daemon {
    let state = bed.directory().join(format!("state{host}")).display().to_string();
    let environment = vec![("RECODED_NAME", name.to_owned()), ("STATE_DIRECTORY", state)];
    start_in(bed, host, text, environment)
}

/// The summary of echoes to an address in a tunnel, each awaited for long enough to see the pause
/// of a restart.
fn ping(bed: &Bed, host: usize, address: &str, count: &str) -> Value {
    let mut command = bed.hosts()[host].command(binary("recodectl"));
    command.args(["--json", "--socket", "none", "ping", address, "-c", count, "-i", INTERVAL]);
    let ended = output(command.args(["-W", "10"])).unwrap();
    serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|_| panic!("{}{}", ended.stdout, ended.stderr))
}

/// Runs both commands, in their namespaces; returns the text of the new box's file.
fn join(bed: &Bed, hub: &Daemon, name: &str) -> String {
    let mut invite = bed.sink().command(binary("recodectl"));
    invite.arg("--json").arg("--socket").arg(hub.socket()).args(["invite", name, "--config"]);
    invite.arg(hub.config());
    let mut invite = invite.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(invite.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let opened: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
    let place = |end: &str| bed.directory().join(format!("{name}.{end}"));
    let mut join = bed.hosts()[1].command(binary("recodectl"));
    join.args(["join", opened["token"].as_str().unwrap(), "--config"]).arg(place("toml"));
    let joined = output(join.arg("--key").arg(place("key"))).unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let is_done = invite.wait().unwrap().success() && joined.success;
    assert!(is_done, "{rest}{}{}\n{}", joined.stdout, joined.stderr, hub.log());
    let invited: Value = serde_json::from_str(&rest).unwrap_or_else(|_| panic!("{rest}"));
    assert_eq!(invited["daemon"], "reloaded", "{rest}");
    assert_eq!(invited["tunnel"], "10.99.1.2/30", "{rest}");
    std::fs::read_to_string(place("toml")).unwrap()
}

#[test]
fn box_without_files_joins_a_running_hub_and_another_box_loses_no_echo_meanwhile() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.02), 50.0);
    let text = network(&bed);
    let hub = start(&bed, 2, &text, "hub");
    let other = start(&bed, 0, &text, "a");
    for daemon in [&hub, &other] {
        daemon.wait_until_it_has_sessions().unwrap();
    }
    common::wait_for("the first answer", &hub, || common::answers(&bed.hosts()[0], "10.99.0.1"));
    let (echoes, file) = std::thread::scope(|scope| {
        let echoes = scope.spawn(|| ping(&bed, 0, "10.99.0.1", ECHOES));
        let file = join(&bed, &hub, "c");
        let joined = start(&bed, 1, &file, "c");
        common::wait_for("an answer", &joined, || common::answers(&bed.hosts()[1], "10.99.1.1"));
        common::wait_for("an answer", &hub, || common::answers(bed.sink(), "10.99.1.2"));
        (echoes.join().unwrap(), file)
    });
    println!("{echoes}");
    assert_eq!(echoes["figures"]["lost"], 0, "{echoes}\n{}", hub.log());
    assert!(file.contains("hub = { at = \"10.77.2.2\", key = "), "{file}");
    // The file of the other box is as it was.
    assert!(std::fs::read_to_string(other.config()).unwrap().ends_with(&text));
    assert!(!hub.log().contains("recoded takes over"), "the supervisor restarted:\n{}", hub.log());
}

/// A reload once restarted the daemon for a tunnel more or less.
#[test]
fn tunnel_that_comes_and_goes_at_a_reload_costs_no_echo_of_another() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.02), 50.0);
    let text = network(&bed);
    let hub = start(&bed, 2, &text, "hub");
    let other = start(&bed, 0, &text, "a");
    for daemon in [&hub, &other] {
        daemon.wait_until_it_has_sessions().unwrap();
    }
    common::wait_for("the first answer", &hub, || common::answers(&bed.hosts()[0], "10.99.0.1"));
    let before = std::fs::read_to_string(hub.config()).unwrap();
    let key = AuthPlan::new("full", 0).public(0);
    let with = before.replace("[boxes]\n", &format!("[boxes]\nc = {{ key = \"{key}\" }}\n"))
        + "[[path]]\nvia = [\"a\", \"hub\"]\nid = 1\n"
        + "[[path]]\nvia = [\"hub\", \"c\"]\ntunnel = [\"10.99.1.1/30\", \"10.99.1.2/30\"]\n";
    let index = |name: &str| bed.sink().run("cat", &format!("/sys/class/net/{name}/ifindex")).ok();
    let own = index("rec0");
    let echoes = std::thread::scope(|scope| {
        let echoes = scope.spawn(|| ping(&bed, 0, "10.99.0.1", ECHOES));
        for (text, is_there) in [(&with, true), (&before, false), (&with, true), (&before, false)] {
            std::thread::sleep(std::time::Duration::from_millis(1500));
            std::fs::write(hub.config(), text).unwrap();
            let (code, said) = recodectl(&hub, "reload");
            assert_eq!(code, DONE, "{said}\n{}", hub.log());
            assert!(said.contains("tunnel rec1") && !said.contains("restart"), "{said}");
            assert_eq!(index("rec1").is_some(), is_there, "{}", hub.log());
            let routes = bed.sink().ip("route show").unwrap();
            assert_eq!(routes.contains("10.99.1.0/30 dev rec1"), is_there, "{routes}");
        }
        echoes.join().unwrap()
    });
    println!("{echoes}");
    assert_eq!(echoes["figures"]["lost"], 0, "{echoes}\n{}", hub.log());
    assert_eq!(index("rec0"), own, "the tunnel that stays is the same");
    // An interface of another program is found before anything is replaced.
    bed.sink().ip("link add rec1 type veth peer name rec1-far").unwrap();
    let process = hub.dataplane_pid().unwrap();
    std::fs::write(hub.config(), &with).unwrap();
    let (code, said) = recodectl(&hub, "reload");
    assert_eq!(code, REFUSED, "{said}");
    assert!(said.contains("tunnel rec1: an interface of this name exists already"), "{said}");
    assert_eq!(hub.dataplane_pid().unwrap(), process);
}
