//! A box in a separate machine: the program there, and its remote control by cases.
//!
//! ```text
//!  machine with cases                              peer, whose root is in memory
//!    namespace b: daemon, card -- pair 0 -------- link0, daemon of box a
//!    Peer::run ---- pair 1 (management) --------- manage0, port 7000: runs commands
//! ```
//! The daemon of box a is either a program of this host, started by a script, or that of the
//! packages, started by systemd.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use recoded_netns::process;

use super::boxes::{INSIDE, Node, OUTSIDE, Setup, Side, config};
use super::{Guest, pair, transfer};
use crate::LabError;
use crate::nic::{Nic, mac};

/// Port of the peer for commands.
pub const PORT: u16 = 7000;

/// Addresses for management: of the peer, and of the machine with cases.
pub const MANAGEMENT: [&str; 2] = ["198.51.100.1", "198.51.100.2"];

/// Interfaces of the peer: that of the link, and that for management.
pub const INTERFACES: [&str; 2] = ["link0", "manage0"];

/// Folder of the packages `recoded.deb` and `recoded-agent.deb` in a peer that installs them.
pub const PACKAGES: &str = "/packages";

/// Timeout for the peer's boot.
const BOOT_PATIENCE: Duration = Duration::from_secs(300);

/// Timeout of a command. dpkg takes 10 s on an idle machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// Timeout until box a carries the first packet.
const FIRST_PATIENCE: Duration = Duration::from_secs(120);

/// Pings after the first, and bytes of a round trip through the tunnel.
const PINGS: u32 = 5;
const ECHO_BYTES: usize = 200_000;

/// Files of box a in a peer, and scripts for its daemon.
#[derive(Debug)]
pub struct Installation {
    config: &'static str,
    socket: &'static str,
    key: &'static str,
    start: &'static str,
    stop: &'static str,
    log: &'static str,
}

/// Programs of this host.
static LOCAL: Installation = Installation {
    config: "/run/a.toml",
    socket: "/run/a.sock",
    key: "/run/a.key",
    start: "recoded --config /run/a.toml --state /run/a </dev/null >>/run/a.log 2>&1 &",
    // Its children have other names.
    stop: "kill $(pidof recoded)",
    log: "tail -n 12 /run/a.log",
};

/// The packages, with the files that the documentation names.
pub static PACKAGED: Installation = Installation {
    config: "/etc/recoded/recoded.toml",
    socket: "/run/recoded/recoded.sock",
    key: "/etc/recoded/private.key",
    start: "systemctl enable --now recoded 2>&1",
    stop: "systemctl stop recoded 2>&1",
    log: "journalctl --no-pager -n 30 -o cat -u recoded 2>&1",
};

/// The first program of a peer: runs commands until the machine ends.
///
/// # Errors
/// If its interfaces are missing, or it cannot listen.
pub fn serve(nics: &[Nic]) -> Result<(), LabError> {
    let ip = |arguments: &str| process::run(Command::new("ip").args(arguments.split(' ')));
    ip("link set lo up")?;
    for (number, name) in INTERFACES.iter().enumerate().take(nics.len()) {
        ip(&format!("link set {} name {name}", pair::named(&mac(number, 0))?))?;
    }
    ip(&format!("addr add {}/24 dev {}", MANAGEMENT[0], INTERFACES[1]))?;
    ip(&format!("link set {} up", INTERFACES[1]))?;
    let listener = TcpListener::bind(("0.0.0.0", PORT));
    let listener = listener.map_err(|error| LabError::Wrong(error.to_string()))?;
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || {
            if let Err(error) = execute(stream) {
                println!("lab: a command failed: {error}");
            }
        });
    }
    Ok(())
}

/// Runs a script that ends when its sender closes; answers with a letter for its success, and its
/// output.
fn execute(mut stream: TcpStream) -> std::io::Result<()> {
    let mut script = Vec::new();
    stream.read_to_end(&mut script)?;
    let mut shell = Command::new("sh");
    let shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut shell = shell.spawn()?;
    let mut commands = shell.stdin.take();
    // Output of a script may be longer than a pipe.
    let writer = std::thread::spawn(move || commands.as_mut().map(|to| to.write_all(&script)));
    let output = shell.wait_with_output()?;
    drop(writer.join());
    stream.write_all(if output.status.success() { b"y" } else { b"n" })?;
    stream.write_all(&output.stdout)
}

/// The peer, as the machine with cases sees it.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    installation: &'static Installation,
}

impl Peer {
    /// Runs a script in the peer and returns its output.
    ///
    /// # Errors
    /// When the peer does not answer, or the script fails.
    pub fn run(&self, script: &str) -> Result<String, LabError> {
        let (is_success, output) = ask(MANAGEMENT[0], script)
            .map_err(|error| LabError::Wrong(format!("the peer does not answer: {error}")))?;
        match is_success {
            true => Ok(output),
            false => LabError::wrong(format!("the peer fails in `{script}`: {output}")),
        }
    }

    /// Starts its daemon, which continues from its saved state.
    ///
    /// # Errors
    /// When the peer does not answer.
    pub fn start_daemon(&self) -> Result<(), LabError> {
        self.run(self.installation.start).map(drop)
    }

    /// Ends its daemon in order.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop_daemon(&self) -> Result<(), LabError> {
        self.run(self.installation.stop)?;
        let gone = "for i in $(seq 150); do\n\
                    ip link show rec0 >/dev/null 2>&1 || exit 0\n\
                    sleep 0.1\n\
                    done\n\
                    exit 1";
        self.run(gone)?;
        Ok(())
    }

    /// The end of the log of its daemon.
    pub fn log(&self) -> String {
        self.run(self.installation.log).unwrap_or_else(|error| error.to_string())
    }
}

fn ask(address: &str, script: &str) -> std::io::Result<(bool, String)> {
    let to: SocketAddr = SocketAddr::new(address.parse().map_err(std::io::Error::other)?, PORT);
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(script.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let is_success = answer.starts_with('y');
    Ok((is_success, answer.split_off(1.min(answer.len()))))
}

/// Box a in the peer, and box b in a namespace of this machine.
#[derive(Debug)]
pub struct Apart {
    /// The machine of box a.
    pub peer: Peer,
    /// Box b.
    pub node: Node,
}

impl Guest {
    /// Starts box a in the peer and box b here, with keys and records.
    ///
    /// # Errors
    /// When the peer does not boot, or a daemon does not start.
    pub fn apart(&self, backend: Option<&'static str>) -> Result<Apart, LabError> {
        let setup = Setup { backend, ..Setup::default() };
        self.apart_as(self.peer(&LOCAL)?, &setup, &setup)
    }

    /// Starts box a in the peer and box b here, with keys and records. Of these setups only backend
    /// and stack count, and of box a only the backend.
    ///
    /// # Errors
    /// When a daemon does not start.
    pub fn apart_as(&self, peer: Peer, of_a: &Setup, of_b: &Setup) -> Result<Apart, LabError> {
        let files = peer.installation;
        let setup = Setup { has_keys: true, folder: Some("/run/apart"), ..of_b.clone() };
        std::fs::create_dir_all("/run/apart").map_err(LabError::file(Path::new("/run/apart")))?;
        let mut node = Node::make(self.case, 1, &self.interface(Nic::Virtio, 1)?, &setup)?;
        let begin = format!(
            "ip addr replace {}/24 dev {link} && ip link set {link} up\n\
             rm -rf /run/a /run/a.log\n\
             umask 077\n\
             [ -e {key} ] || recodectl genkey >{key}\n\
             recodectl pubkey <{key}",
            OUTSIDE[0],
            link = INTERFACES[0],
            key = files.key
        );
        let keys = [peer.run(&begin)?.trim().to_owned(), node.public_key()?];
        let side = Side {
            end: 0,
            interface: INTERFACES[0],
            socket: Path::new(files.socket),
            key: Path::new(files.key),
            peer_key: Some(&keys[1]),
        };
        let config = config(&side, of_a);
        peer.run(&format!("cat >{} <<'END'\n{config}END", files.config))?;
        peer.start_daemon()?;
        node.configure(&setup, Some(&keys[0]))?;
        node.spawn()?;
        node.wait_until_it_answers()?;
        Ok(Apart { peer, node })
    }

    /// Waits until the peer accepts commands.
    ///
    /// # Errors
    /// When it does not boot.
    pub fn peer(&self, installation: &'static Installation) -> Result<Peer, LabError> {
        let interface = self.interface(Nic::E1000e, 1)?;
        let ip = |arguments: &str| process::run(Command::new("ip").args(arguments.split(' ')));
        ip(&format!("addr replace {}/24 dev {interface}", MANAGEMENT[1]))?;
        ip(&format!("link set {interface} up"))?;
        let (peer, began) = (Peer { installation }, Instant::now());
        while let Err(error) = peer.run("true") {
            if began.elapsed() > BOOT_PATIENCE {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        Ok(peer)
    }
}

impl Apart {
    /// Pings box a until the first answer; returns the time that took.
    ///
    /// # Errors
    /// If none arrives in time.
    pub fn first_ping(&self, patience: Duration) -> Result<Duration, LabError> {
        transfer::first_ping(&self.node.namespace, INSIDE[0], patience)
            .map_err(|error| self.told(error))
    }

    /// Pings through the tunnel, and echoes bytes through it.
    ///
    /// # Errors
    /// When a ping after the first is lost, or the echo differs.
    pub fn carry(&self) -> Result<(), LabError> {
        self.carry_bytes(ECHO_BYTES)
    }

    /// The same with this many bytes.
    ///
    /// # Errors
    /// As [`Apart::carry`].
    pub fn carry_bytes(&self, bytes: usize) -> Result<(), LabError> {
        self.first_ping(FIRST_PATIENCE)?;
        transfer::ping(&self.node.namespace, INSIDE[0], PINGS).map_err(|error| self.told(error))?;
        let text: String = (0..bytes / 6).map(|number| format!("{number:05}\n")).collect();
        let script = format!("cat <<'END'\n{text}END\n");
        let answer = self.node.namespace.inside(|| ask(INSIDE[0], &script))?;
        match answer {
            Ok((true, output)) if output == text => Ok(()),
            Ok((_, output)) => {
                let problem = format!("{} of {} bytes came back", output.len(), text.len());
                Err(self.told(LabError::Wrong(problem)))
            }
            Err(error) => Err(self.told(LabError::Wrong(format!("TCP to box a: {error}")))),
        }
    }

    /// Runs `work` while box b pings box a: every ping must be answered.
    ///
    /// # Errors
    /// When a ping is lost, or `work` fails.
    pub fn without_loss<T>(
        &self,
        work: impl FnOnce() -> Result<T, LabError>,
    ) -> Result<T, LabError> {
        let (result, pings) = transfer::under_pings(&self.node.namespace, INSIDE[0], work)?;
        match pings.lost {
            0 => Ok(result),
            _ => Err(self.told(LabError::Wrong(format!("{pings}")))),
        }
    }

    fn told(&self, error: LabError) -> LabError {
        LabError::Wrong(format!("{error}; box a: {}", self.peer.log()))
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // The next case would find its daemon.
        let _ = self.peer.stop_daemon();
    }
}
