//! Three real members of an etcd, and an agent as a separate process: failures of etcd never affect
//! the daemon, and a value at a quorum is applied promptly.

#![forbid(unsafe_code)]

mod common;

use common::etcd::Cluster;
use common::{Node, PATIENCE, bundle, signer, until};
use recoded_agent::bundle::{BUNDLE_BYTES_MAX, Bundle};
use recoded_agent::key::Signer;
use recoded_agent::status::Status;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The program, following `source`.
struct Following {
    child: Child,
    status: std::path::PathBuf,
}

impl Following {
    fn start(node: &Node, source: &str) -> Following {
        let path = |name: &str| node.folder.path().join(name);
        std::fs::write(path("agent.toml"), node.settings_text(source, "")).expect("written");
        let log = std::fs::File::create(path("agent.log")).expect("log");
        let mut agent = Command::new(env!("CARGO_BIN_EXE_recoded-agent"));
        agent.args(["run", "--config"]).arg(path("agent.toml"));
        agent.arg("--status").arg(path("status.json"));
        let child = agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        Following { child: child.expect("it starts"), status: path("status.json") }
    }

    fn status(&self) -> Status {
        Status::read(&self.status).expect("it was written")
    }

    fn refusal(&self) -> String {
        self.status().refusal.unwrap_or_default()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("it ended");
    }
}

/// Puts a bundle, and waits until it is applied; prints how long that took.
fn changes(what: &str, cluster: &Cluster, node: &Node, version: u64) {
    let text = format!("# {version}, {what}\n");
    cluster.put(&node.name, &bundle(&node.name, version, &text));
    let at = Instant::now();
    let is_there = || node.in_force() == text && node.daemon.get().confirmed == version;
    while !is_there() {
        if at.elapsed() > PATIENCE {
            let read = |name| std::fs::read_to_string(node.folder.path().join(name));
            let [status, log] = ["status.json", "agent.log"].map(|it| read(it).unwrap_or_default());
            panic!("not active: {what}\n{status}\n{log}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("{what}: active {} ms after a quorum had it", at.elapsed().as_millis());
}

#[test]
fn what_a_quorum_has_is_in_force_whatever_becomes_of_members() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    let mut node = Node::new("a");
    node.start();
    cluster.put("a", &bundle("a", 1, "# 1\n"));
    let agent = Following::start(&node, &cluster.source());
    until("the first one", || node.in_force() == "# 1\n" && node.daemon.get().confirmed == 1);
    changes("all members run", &cluster, &node, 2);

    let leader = cluster.leader();
    cluster.members[leader].kill();
    changes("the leader was killed", &cluster, &node, 3);
    cluster.restart(leader);
    until("it is back", || cluster.members[leader].answers());

    // Each member is cut off in turn, including the agent's.
    for index in 0..3 {
        cluster.members[index].freeze();
        changes("a member is cut off", &cluster, &node, 4 + index as u64);
        cluster.members[index].thaw();
    }

    // No quorum: nothing changes, and the box continues.
    let number = node.daemon.get().number;
    let (one, other) = (leader, (leader + 1) % 3);
    cluster.members[one].freeze();
    cluster.members[other].freeze();
    until("it says so", || agent.status().trouble.is_some());
    let trouble = agent.status().trouble.unwrap_or_default();
    println!("without a quorum: {trouble}");
    assert_eq!((node.daemon.get().number, agent.status().version), (number, Some(6)));
    // An agent that starts meanwhile leaves the box unchanged.
    drop(agent);
    let agent = Following::start(&node, &cluster.source());
    until("it says so as well", || agent.status().trouble.is_some());
    assert_eq!((node.daemon.get().number, agent.status().version), (number, Some(6)));
    cluster.members[one].thaw();
    cluster.members[other].thaw();
    changes("a quorum is back", &cluster, &node, 7);
    until("it says so", || agent.status().trouble.is_none());
    assert_eq!(agent.status().exit_code(), 0);
}

#[test]
fn store_that_is_taken_over_changes_no_box() {
    let Some(cluster) = Cluster::start(3) else { return };
    let mut node = Node::new("a");
    node.start();
    let old = bundle("a", 1, "# 1\n");
    cluster.put("a", &old);
    let agent = Following::start(&node, &cluster.source());
    until("the first one", || node.in_force() == "# 1\n" && node.daemon.get().confirmed == 1);
    changes("the second one", &cluster, &node, 2);
    let number = node.daemon.get().number;
    let forged =
        Bundle::new("a", 3, "# forged\n").expect("it is one").sign(&Signer::from_seed(&[1; 32]));
    let large = vec![b'#'; BUNDLE_BYTES_MAX + 1];
    let cases: [(&[u8], &str); 5] = [
        (&old, "version 1 is older than version 2"),
        (forged.as_bytes(), "the signature is wrong"),
        (&bundle("b", 3, "# b\n"), "it is for node b"),
        (&large, "it is larger than"),
        (b"\0", "it is not a bundle"),
    ];
    for (bytes, expected) in cases {
        cluster.put("a", bytes);
        until(expected, || agent.refusal().contains(expected));
        assert_eq!((node.daemon.get().number, agent.status().version), (number, Some(2)));
    }
    changes("a good one", &cluster, &node, 3);
    until("it says so", || agent.refusal().is_empty());
}

/// Signs with the operator's program, into the store, and reads from it.
#[test]
fn bundles_that_the_program_signs_are_taken() {
    let Some(cluster) = Cluster::start(1) else { return };
    let mut node = Node::new("a");
    node.start();
    let folder = node.folder.path();
    let boxes = folder.join("boxes");
    std::fs::create_dir(&boxes).expect("folder");
    std::fs::write(boxes.join("a.toml"), "# by the program\n").expect("written");
    std::fs::write(folder.join("key"), "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\n")
        .expect("key");
    let run = |arguments: &[&str]| {
        let mut agent = Command::new(env!("CARGO_BIN_EXE_recoded-agent"));
        let output = agent.args(arguments).current_dir(folder).output().expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, _, refused) = run(&["pubkey", "key"]);
    assert!(code == Some(2) && refused.contains("chmod 600"), "{code:?}: {refused}");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(folder.join("key"), mode).expect("mode");
    assert_eq!(run(&["pubkey", "key"]).1, format!("{}\n", signer().verifier()));
    let urls = cluster.members[0].url.clone();
    let sign = ["sign", "boxes", "--key", "key", "--etcd", &urls];
    let (code, signed, error) = run(&sign);
    assert_eq!(code, Some(0), "{error}");
    assert!(signed.starts_with("a: version ") && signed.ends_with(", signed\n"), "{signed}");
    assert!(run(&sign).1.ends_with(", unchanged\n"));
    let _agent = Following::start(&node, &cluster.source());
    until("it is active", || node.in_force() == "# by the program\n");
    until("it is confirmed", || node.daemon.get().confirmed == 1);
    let status = ["status", "--status", "status.json"];
    until("it says so", || run(&status).0 == Some(0));
    let (_, text, _) = run(&status);
    assert!(text.starts_with("node     a\nversion  ") && text.contains(", active\n"), "{text}");
    let (code, _, error) = run(&["status", "--status", "none.json"]);
    assert!(code == Some(3) && error.contains("is recoded-agent running?"), "{error}");
}
