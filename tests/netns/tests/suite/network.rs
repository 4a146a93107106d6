//! `recodectl -f net.toml` over a real sshd: three daemons are queried, checked and changed at
//! once.
//!
//! Each connection starts an sshd of its own in the namespace of its host (`ProxyCommand`), with
//! keys and configuration of this test: the machine's own sshd is not involved.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common;
use recoded_netns::traffic::send_paced;
use recoded_netns::{AuthPlan, Bed, Daemon, LinePlan, Loss, binary};

/// Exit codes of recodectl.
const DONE: i32 = 0;
const NO_ANSWER: i32 = 3;
const REFUSED: i32 = 4;

const SSHD: &str = "/usr/sbin/sshd";

/// The SSH programs, or, printed, why there are none.
fn has_ssh() -> bool {
    let missing = [SSHD, "/usr/bin/ssh", "/usr/bin/ssh-keygen"];
    let Some(missing) = missing.into_iter().find(|path| !Path::new(path).exists()) else {
        return true;
    };
    let reason = format!("there is no {missing} (scripts/test installs openssh-server)");
    assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none(), "cannot run: {reason}");
    println!("skipped: {reason}");
    false
}

/// Files for ssh and sshd, in the folder of a bed.
struct Ssh {
    config: PathBuf,
}

impl Ssh {
    fn new(bed: &Bed) -> Ssh {
        let folder = bed.directory().join("ssh");
        fs::create_dir(&folder).unwrap();
        let file = |name: &str| folder.join(name);
        for key in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file(key));
            assert!(keygen.status().unwrap().success());
        }
        // sshd's directory for privilege separation; empty, and elsewhere created by the package's
        // unit.
        fs::create_dir_all("/run/sshd").unwrap();
        let programs = binary("recodectl").parent().unwrap().display().to_string();
        let sshd = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\nStrictModes no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin prohibit-password\nLogLevel ERROR\n\
             SetEnv PATH={programs}:/usr/bin:/bin\n",
            file("host").display(),
            file("user.pub").display()
        );
        fs::write(file("sshd_config"), sshd).unwrap();
        let public = fs::read_to_string(file("host.pub")).unwrap();
        fs::write(file("known_hosts"), format!("bed {public}")).unwrap();
        let mut ssh = String::new();
        for (index, host) in bed.hosts().iter().enumerate() {
            let config = file("sshd_config");
            ssh += &format!(
                "Host h{index}\n  ProxyCommand ip netns exec {} {SSHD} -i -e -f {}\n",
                host.name(),
                config.display()
            );
        }
        ssh += &format!(
            "Host gone\n  HostName 127.0.0.1\n  Port 1\n\
             Host *\n  User root\n  IdentityFile {}\n  IdentitiesOnly yes\n  HostKeyAlias bed\n  \
             UserKnownHostsFile {}\n  StrictHostKeyChecking yes\n  GlobalKnownHostsFile none\n",
            file("user").display(),
            file("known_hosts").display()
        );
        fs::write(file("config"), ssh).unwrap();
        Ssh { config: file("config") }
    }
}

/// A network file for a line of daemons.
struct Net<'a> {
    bed: &'a Bed,
    ssh: Ssh,
}

impl Net<'_> {
    fn file(&self) -> PathBuf {
        self.bed.directory().join("net.toml")
    }

    /// The file of the line of `daemons`. Tunnels, workers and interfaces match the running ones,
    /// because no reload changes these.
    fn text(&self, daemons: &[Daemon]) -> String {
        let mut text = "[nodes]\n".to_owned();
        for (index, daemon) in daemons.iter().enumerate() {
            let socket = daemon.socket().display().to_string();
            text += &format!(
                "h{index} = {{ config = \"{}\", private_key = \"{}\", daemon = {{ socket = \
                 \"{socket}\" }} }}\n",
                daemon.config().display(),
                AuthPlan::key_file(&socket)
            );
        }
        for number in 1..=self.bed.hops() {
            text += &format!(
                "[[link]]\nh{} = \"{} dev east\"\nh{number} = \"{} dev west\"\nrate_mbit = 18\n",
                number - 1,
                Bed::west_address(number),
                Bed::east_address(number)
            );
        }
        text + "[[path]]\nfrom = \"h0\"\nvia = [\"h1\"]\nto = \"h2\"\n\
                tunnel = [\"10.99.0.1/24\", \"10.99.0.2/24\"]\n"
    }

    fn write(&self, text: &str) {
        fs::write(self.file(), text).unwrap();
    }

    /// Runs recodectl; returns exit code and output.
    fn recodectl(&self, arguments: &str) -> (i32, String) {
        let Output { status, stdout, stderr } = Command::new(binary("recodectl"))
            .env("RECODED_SSH", format!("ssh -F {}", self.ssh.config.display()))
            .arg("-f")
            .arg(self.file())
            .args(arguments.split_whitespace())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
        println!("$ recodectl -f net.toml {arguments}\n{said}");
        (status.code().unwrap(), said)
    }
}

fn files(daemons: &[Daemon]) -> Vec<String> {
    daemons.iter().map(|daemon| fs::read_to_string(daemon.config()).unwrap()).collect()
}

fn in_force(daemons: &[Daemon]) -> Vec<String> {
    daemons.iter().map(|daemon| daemon.show().unwrap().config).collect()
}

fn traffic(bed: &Bed) {
    let to = SocketAddr::from(([10, 99, 0, 2], 7000));
    send_paced(bed.source(), to, 200, 200, 1000.0).unwrap();
}

/// A change that needs new processes at the ends, which have tunnels, and then back.
fn go_over_and_back(net: &Net<'_>, text: &str) {
    let has_other = || net.bed.source().ip("link show dev rec7").is_ok();
    net.write(&text.replace("via =", "name = \"rec7\"\nredundancy_max = 3\nvia ="));
    let (code, said) = net.recodectl("apply --confirm 30s");
    assert_eq!(code, DONE, "{said}");
    assert!(said.contains("confirmed on all boxes"), "{said}");
    assert_eq!((said.matches("gap").count(), has_other()), (2, true), "{said}");
    net.write(text);
    let (code, said) = net.recodectl("apply --confirm 30s");
    assert_eq!((code, has_other()), (DONE, false), "{said}");
    traffic(net.bed);
}

#[test]
fn network_of_three_daemons_is_asked_checked_and_changed_over_ssh() {
    let Some(_turn) = common::daemons_beside() else { return };
    if !has_ssh() {
        return;
    }
    let bed = common::bed(2, Loss::independent(0.02), 20.0);
    let auth = Some(AuthPlan::new("full", 2));
    let plan = LinePlan { auth, chooses: vec![0, 1, 2], ..LinePlan::protected(2) };
    let mut daemons = Daemon::start_line(&bed, &plan).unwrap();
    let net = Net { bed: &bed, ssh: Ssh::new(&bed) };
    let text = net.text(&daemons);
    net.write(&text);

    // Public keys are requested once.
    let (code, said) = net.recodectl("keys --save");
    assert_eq!(code, DONE, "{said}");
    assert!(said.contains("3 written into"), "{said}");
    let text = fs::read_to_string(net.file()).unwrap();
    traffic(&bed);
    let (code, said) = net.recodectl("status");
    assert_eq!(code, DONE, "{said}");
    let up = said.lines().filter(|line| line.split_whitespace().nth(1) == Some("up")).count();
    assert_eq!(up, 3, "{said}");
    assert!(!said.contains("drop_truncated"), "the boxes probe each other: {said}");
    let (code, said) = net.recodectl("doctor --seconds 1");
    assert_eq!(code, DONE, "{said}");
    assert!(said.contains("boxes 3, errors 0,"), "{said}");

    // All boxes go over to the file, and traffic with them.
    let (before, config) = (files(&daemons), in_force(&daemons));
    let (code, said) = net.recodectl("check");
    assert_eq!(code, DONE, "{said}");
    assert_eq!((files(&daemons), said.matches("differs").count()), (before, 3), "{said}");
    let (code, said) = net.recodectl("apply --confirm 30s");
    assert_eq!(code, DONE, "{said}");
    assert!(said.contains("confirmed on all boxes"), "{said}");
    let (applied, changed) = (files(&daemons), in_force(&daemons));
    assert!(applied.iter().all(|file| file.contains("by recodectl render")), "{applied:?}");
    assert_ne!(changed, config);
    let waiting = daemons.iter().any(|daemon| {
        let output = daemon.control(&["history"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("rolling back in")
    });
    assert!(!waiting, "everything is confirmed");
    let delivered = |daemons: &[Daemon]| daemons[2].show().unwrap().tunnels[0].counters.clone();
    let begun = delivered(&daemons);
    traffic(&bed);
    assert_ne!(delivered(&daemons), begun, "packets arrive");
    assert_eq!(net.recodectl("check").1.matches("same").count(), 3);

    // A file that one host refuses changes nothing on any host: the error is found before any
    // change.
    net.write(&text.replace("dev west\"\nrate_mbit = 18\n[[path]]", "dev west7\"\n[[path]]"));
    let (code, said) = net.recodectl("apply");
    assert_eq!(code, REFUSED, "{said}");
    assert!(said.contains("FAIL h2") && said.contains("west7"), "{said}");
    assert_eq!((files(&daemons), in_force(&daemons)), (applied.clone(), changed.clone()));

    go_over_and_back(&net, &text);
    assert_eq!(files(&daemons), applied);

    // A host that does not answer, and a daemon that does not.
    net.write(&text.replace("h1 = { ", "h1 = { ssh = \"gone\", "));
    let (code, said) = net.recodectl("status");
    assert_eq!(code, NO_ANSWER, "{said}");
    assert!(said.contains("FAIL h1") && said.contains("Connection refused"), "{said}");
    assert_eq!(net.recodectl("apply").0, NO_ANSWER);
    net.write(&text);
    assert!(daemons[1].stop());
    let (code, said) = net.recodectl("status");
    assert_eq!(code, NO_ANSWER, "{said}");
    assert!(said.contains("no daemon") && said.contains("FAIL h1"), "{said}");
    assert_eq!(files(&daemons), applied);
    let (code, said) = net.recodectl("doctor --seconds 1");
    assert_eq!(code, NO_ANSWER, "{said}");
    assert!(said.contains("FAIL h1") && said.contains("boxes 3, errors "), "{said}");
}
