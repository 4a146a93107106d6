//! Boxes that are containers: the daemon is their first process, with Docker's capabilities (and
//! CAP_NET_ADMIN, for tunnels), hardly any lockable memory, and read-only /proc/sys and /sys.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common;
use crate::processes::{RATE_MBIT, SERVER, assert_same_file};
use recoded_api::client::Client;
use recoded_api::v1::State;
use recoded_netns::process::{self, Background};
use recoded_netns::traffic::{Fetch, WebServer, write_random_file};
use recoded_netns::{AuthPlan, Bed, CodePlan, LinePlan, Loss, binary};
use rustix::process::{Pid, Signal, kill_process};

/// Capabilities left by `docker run --cap-add NET_ADMIN`.
const CAPABILITIES: &str = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,\
                            +net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap,\
                            +net_admin";

/// Makes the container around the command that follows.
const SCRIPT: &str = "mount --make-rprivate / && mount --bind /proc/sys /proc/sys && \
                      mount -o remount,bind,ro /proc/sys && mount -o remount,bind,ro /sys && \
                      ulimit -l 64 && exec \"$@\"";

const BYTES: u64 = 4 << 20;

/// A daemon that is the first process of a container.
struct Container {
    holder: Background,
    socket: PathBuf,
    log: PathBuf,
}

impl Container {
    fn start(bed: &Bed, index: usize, plan: &LinePlan) -> Container {
        let place = |end: &str| bed.directory().join(format!("box{index}.{end}"));
        let (file, socket, log) = (place("toml"), place("sock"), place("log"));
        let name = socket.to_string_lossy();
        fs::write(&file, plan.config(index, &name)).unwrap();
        let key = AuthPlan::key_file(&name);
        fs::write(&key, plan.auth.as_ref().unwrap().private(index)).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let mut command = bed.hosts()[index].command("unshare");
        command.args(["--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]);
        command.args(["--mount-proc", "sh", "-c", SCRIPT, "sh", "setpriv"]);
        command.args([&format!("--bounding-set={CAPABILITIES}"), "--inh-caps=-all"]);
        command.arg(binary("recoded")).arg("--config").arg(&file);
        Container { holder: Background::start(&mut command, &log).unwrap(), socket, log }
    }

    /// The daemon, by its number outside.
    fn daemon(&self) -> u32 {
        process::children(self.holder.pid())[0]
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its state, once a process other than `before` sees packets and has its sessions.
    fn runs(&self, before: Option<u32>, sessions: usize) -> State {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(30) {
            let state = Client::connect(&self.socket).and_then(|mut client| client.state());
            if let Ok(state) = state
                && !before.is_some_and(process::runs)
                && state.sessions.iter().filter(|it| it.age_seconds.is_some()).count() >= sessions
            {
                return state;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{}", self.said());
    }
}

fn signal(process: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn boxes_that_are_containers_carry_packets_replace_processes_and_end_in_order() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.05), RATE_MBIT);
    let auth = Some(AuthPlan::new("full", 2));
    let chooses = vec![0, 1, 2];
    let mut plan = LinePlan { auth, chooses, ..LinePlan::protected(2) };
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    let mut boxes: Vec<Container> = (0..3).map(|it| Container::start(&bed, it, &plan)).collect();
    let (file, copy) = (bed.directory().join("file"), bed.directory().join("copy"));
    write_random_file(&file, BYTES).unwrap();
    let sessions = [3, 2, 3];
    let begun: Vec<State> =
        boxes.iter().zip(sessions).map(|(it, sessions)| it.runs(None, sessions)).collect();
    // AF_XDP sockets need more privileges, and `auto` reports that.
    for link in begun.iter().flat_map(|state| &state.links) {
        assert_eq!(link.socket_mode, "udp", "{link:?}");
    }
    assert!(begun[1].links[0].reason.contains("AF_XDP needs CAP_BPF"), "{:?}", begun[1].links[0]);
    let _server = WebServer::start(bed.source(), bed.directory()).unwrap();
    let download = || {
        let limit = Duration::from_secs(60);
        let fetch = Fetch::start(bed.sink(), SERVER.into(), "file", &copy, limit).unwrap();
        let download = fetch.finish().unwrap();
        assert!(download.complete, "{download:?}");
        assert_same_file(&file, &copy);
    };
    download();
    for (it, sessions) in boxes.iter().zip(sessions) {
        let before = process::children(it.daemon())[0];
        signal(before, Signal::KILL);
        it.runs(Some(before), sessions);
    }
    download();
    for it in &mut boxes {
        signal(it.daemon(), Signal::TERM);
        assert_eq!(it.holder.wait(Duration::from_secs(10)), Some(true), "{}", it.said());
        assert!(!it.said().contains("panicked"), "{}", it.said());
    }
    let links = bed.source().ip("link show").unwrap();
    assert!(!links.contains("rec0"), "the tunnel stays: {links}");
}
