//! An agent with a real daemon: a relay over UDP sockets on loopback, which needs no privileges.

#![forbid(unsafe_code)]

mod common;

use common::{Node, bundle, skipped, until};
use recoded_agent::agent::Agent;
use recoded_agent::settings::Settings;
use recoded_api::client::Client;
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A daemon, which ends with this.
struct Real {
    child: Child,
    socket: PathBuf,
}

impl Real {
    fn client(&self) -> Client {
        Client::connect(&self.socket).expect("the daemon answers")
    }

    /// Number of events of this kind.
    fn events(&self, kind: &str) -> usize {
        let events = self.client().events(0).expect("events").events;
        events.iter().filter(|event| event.kind == kind).count()
    }

    fn config(&self) -> String {
        self.client().config().expect("its configuration")
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("told to stop");
        self.child.wait().expect("it ended");
    }
}

fn relay(socket: &Path, port: u16, more: &str) -> String {
    format!(
        "[daemon]\nsocket = \"{}\"\nport = {port}\n{more}\n\
         [[link]]\nname = \"lo\"\ninterface = \"lo\"\nlocal = \"127.0.0.1\"\nbackend = \"udp\"\n\
         [[flow]]\nid = 1\nrole = \"relay\"\nupstream = {{ link = \"lo\", address = \"127.0.0.2\" }}\n\
         next_hops = [{{ link = \"lo\", address = \"127.0.0.3\" }}]\n",
        socket.display()
    )
}

#[test]
fn real_daemon_goes_over_and_back_and_its_process_stays() {
    let program = Path::new(env!("CARGO_BIN_EXE_recoded-agent")).with_file_name("recoded");
    if !program.exists() {
        return skipped("the daemon's program is not built: cargo build -p recoded");
    }
    let node = Node::new("relay");
    let path = |name: &str| node.folder.path().join(name);
    let port = UdpSocket::bind("127.0.0.1:0").expect("a port").local_addr().expect("it").port();
    let socket = path("run/recoded.sock");
    fs::create_dir(path("run")).expect("folder");
    let first = relay(&socket, port, "");
    fs::write(path("recoded.toml"), &first).expect("written");
    let log = fs::File::create(path("daemon.log")).expect("log");
    let mut command = Command::new(&program);
    command.arg("--config").arg(path("recoded.toml")).stdin(Stdio::null()).stderr(log);
    let real = Real { child: command.spawn().expect("it starts"), socket: socket.clone() };
    until("the daemon answers", || Client::connect(&socket).is_ok());
    // The supervisor reports it a moment later.
    until("its process has started", || real.events("process_started") == 1);
    let text = node.settings_text(&node.directory(), "");
    let text = text.replace(&path("control.sock").display().to_string(), &socket.to_string_lossy());
    let text = text.replace(&path("check").display().to_string(), &program.to_string_lossy());
    let text = text.replace("confirm_seconds = 3\n", "confirm_seconds = 60\n");
    let settings = Settings::parse(Path::new("agent.toml"), &text).expect("settings");
    let mut agent = Agent::open(settings).expect("it starts");
    let mut version = 0;
    let mut step = |text: &str| {
        version += 1;
        node.publish(&bundle("relay", version, text));
        agent.step();
        agent.status().refusal.clone().unwrap_or_default()
    };

    let live = format!("{first}redundancy_max = 3.0\n");
    assert_eq!(step(&live), "");
    assert!(real.config().contains("redundancy_max = 3.0\n"), "{}", real.config());
    assert_eq!((node.file(), real.events("config_confirmed")), (live.clone(), 1));
    assert_eq!(real.events("process_started"), 1, "no other process took over");

    let words = step(&format!("{live}colour = 3\n"));
    assert!(words.contains("unknown key colour"), "{words}");
    let words = step(&live.replace("recoded.sock", "other.sock"));
    assert!(words.contains("a running daemon cannot change this"), "{words}");
    assert_eq!((node.file(), real.events("config_applied")), (live, 1));

    // Another process takes over, and the change is confirmed when that one runs with it.
    assert_eq!(step(&relay(&socket, port, "frames = 8192")), "");
    assert!(real.config().contains("frames = 8192\n"));
    until("the new process is reported", || real.events("process_started") == 2);
    assert_eq!(real.events("config_confirmed"), 2);
    let history = real.client().history().expect("history");
    assert_eq!(history.confirm_seconds_left, None);
    let causes: Vec<&str> = history.entries.iter().map(|entry| entry.cause.as_str()).collect();
    assert_eq!(causes, ["start", "reload", "reload"]);
}
