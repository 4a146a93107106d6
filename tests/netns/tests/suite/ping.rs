//! `recodectl ping` through tunnels: with all privileges, without any, and without an answer.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common;
use recoded_netns::process::{self, output};
use recoded_netns::{Bed, Daemon, LinePlan, Loss, binary};

/// The other end of the tunnel.
const FAR: &str = "10.99.0.2";

/// A user and a group of no rights.
const ANYONE: &str = "65534";

/// Exit codes of recodectl.
const OK: i32 = 0;
const FAILED: i32 = 1;
const UNHEALTHY: i32 = 5;

fn ping(bed: &Bed, daemon: &Daemon, arguments: &[&str]) -> (i32, String) {
    let mut command = bed.source().command(binary("recodectl"));
    command.arg("--socket").arg(daemon.socket()).arg("ping").args(arguments);
    let ended = output(&mut command).unwrap();
    (ended.code.unwrap_or(-1), ended.stdout + &ended.stderr)
}

/// The same as an unprivileged user, who cannot read the build folder.
fn ping_by_anyone(bed: &Bed, program: &Path, daemon: &Daemon) -> (i32, String) {
    let mut command = bed.source().command("setpriv");
    command.args(["--reuid", ANYONE, "--regid", ANYONE, "--clear-groups", "--no-new-privs"]);
    command.arg(program).arg("--socket").arg(daemon.socket());
    let ended = output(command.args(["ping", FAR, "-c", "5", "-i", "0.1"])).unwrap();
    (ended.code.unwrap_or(-1), ended.stdout + &ended.stderr)
}

#[test]
fn ping_crosses_the_tunnel_and_names_the_hops_and_silence() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.1), 20.0);
    let mut daemons = Daemon::start_line(&bed, &LinePlan::protected(2)).unwrap();
    // The first pings find flows that are still starting, and hops without reports.
    let begin = Instant::now();
    let json = loop {
        let words = ["--json", FAR, "-c", "100", "-i", "0.02"];
        let (code, text) = ping(&bed, &daemons[0], &words);
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
        let near = &json["ways"][0]["hops"][0]["neighbour"];
        if code == OK && json["figures"]["lost"] == 0 && near.is_string() {
            assert!(near.as_str().is_some_and(|name| name.starts_with("east:")), "{near}");
            break json;
        }
        // Each of four links loses a tenth: without Recoded one ping in three would be lost.
        assert!(begin.elapsed() < Duration::from_secs(60), "{code}: {text}");
    };
    println!("{json}");
    assert_eq!((&json["tunnel"], &json["not_known"]), (&"rec0".into(), &Value::Null));
    let roles: Vec<&str> =
        json["ways"].as_array().unwrap().iter().filter_map(|way| way["role"].as_str()).collect();
    assert_eq!(roles, ["source", "sink"]);

    let (code, text) = ping(&bed, &daemons[0], &[FAR, "-c", "3", "-i", "0.1"]);
    assert!(
        code == OK && text.contains("tunnel rec0") && text.contains("hop  neighbour"),
        "{text}"
    );
    // The neighbour itself, outside of the tunnel.
    let beside = Bed::east_address(1).to_string();
    let (_, text) = ping(&bed, &daemons[0], &[&beside, "-c", "20", "-i", "0.02", "-W", "1"]);
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains("the path without Recoded"), "{text}");

    anyone_may_ping_where_linux_lets_them(&bed, &daemons[0]);

    assert!(daemons[1].stop());
    let (code, text) = ping(&bed, &daemons[0], &[FAR, "-c", "3", "-i", "0.1", "-W", "1"]);
    assert_eq!(code, UNHEALTHY, "{text}");
    assert!(text.contains("no answer within 1 s") && text.contains("answered 0"), "{text}");
    assert!(text.contains("recodectl doctor"), "{text}");
}

fn anyone_may_ping_where_linux_lets_them(bed: &Bed, daemon: &Daemon) {
    let folder = std::env::temp_dir().join(format!("recoded-ping-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.join("recodectl");
    process::install_program(&binary("recodectl"), &program).unwrap();
    bed.source().sysctl("net.ipv4.ping_group_range", "1 0").unwrap();
    let refused = ping_by_anyone(bed, &program, daemon);
    bed.source().sysctl("net.ipv4.ping_group_range", "0 2147483647").unwrap();
    let allowed = ping_by_anyone(bed, &program, daemon);
    fs::remove_dir_all(&folder).unwrap();
    let (code, text) = refused;
    assert!(code == FAILED && text.contains("net.ipv4.ping_group_range"), "{code}: {text}");
    let (code, text) = allowed;
    assert!(code == OK && text.contains("this user may not open"), "{code}: {text}");
}
