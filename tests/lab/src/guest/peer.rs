//! A box in a separate machine: the program there, and its remote control by cases.
//!
//! ```text
//!  machine with cases                              peer, whose root is in memory
//!    namespace b: daemon, card -- pair 0 -------- link0, daemon of box a
//!    Peer::run ---- pair 1 (management) --------- manage0, port 7000: runs commands
//! ```

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
const PORT: u16 = 7000;

/// Addresses for management: of the peer, and of the machine with cases.
const MANAGEMENT: [&str; 2] = ["198.51.100.1", "198.51.100.2"];

/// Timeout for the peer's boot.
const BOOT_PATIENCE: Duration = Duration::from_secs(300);

/// Timeout of a command.
const PATIENCE: Duration = Duration::from_secs(120);

/// Timeout until box a carries the first packet.
const FIRST_PATIENCE: Duration = Duration::from_secs(120);

/// Pings after the first, and bytes of a round trip through the tunnel.
const PINGS: u32 = 5;
const ECHO_BYTES: usize = 200_000;

/// The first program of a peer: runs commands until the machine ends.
///
/// # Errors
/// If its interfaces are missing, or it cannot listen.
pub fn serve(nics: &[Nic]) -> Result<(), LabError> {
    let ip = |arguments: &str| process::run(Command::new("ip").args(arguments.split(' ')));
    ip("link set lo up")?;
    for (number, name) in ["link0", "manage0"].iter().enumerate().take(nics.len()) {
        ip(&format!("link set {} name {name}", pair::named(&mac(number, 0))?))?;
    }
    ip(&format!("addr add {}/24 dev manage0", MANAGEMENT[0]))?;
    ip("link set manage0 up")?;
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
pub struct Peer(());

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
        self.run("recoded --config /run/a.toml --state /run/a </dev/null >>/run/a.log 2>&1 &")?;
        Ok(())
    }

    /// Ends its daemon in order.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop_daemon(&self) -> Result<(), LabError> {
        // Its children have other names.
        self.run("kill $(pidof recoded)")?;
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
        self.run("tail -n 12 /run/a.log").unwrap_or_else(|error| error.to_string())
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
        let peer = self.peer()?;
        let setup =
            Setup { backend, has_keys: true, folder: Some("/run/apart"), ..Setup::default() };
        std::fs::create_dir_all("/run/apart").map_err(LabError::file(Path::new("/run/apart")))?;
        let mut node = Node::make(self.case, 1, &self.interface(Nic::Virtio, 1)?, &setup)?;
        let begin = format!(
            "ip addr replace {}/24 dev link0 && ip link set link0 up\n\
             rm -rf /run/a /run/a.log\n\
             umask 077\n\
             [ -e /run/a.key ] || recodectl genkey >/run/a.key\n\
             recodectl pubkey </run/a.key",
            OUTSIDE[0]
        );
        let keys = [peer.run(&begin)?.trim().to_owned(), node.public_key()?];
        let side = Side {
            end: 0,
            interface: "link0",
            socket: Path::new("/run/a.sock"),
            key: Path::new("/run/a.key"),
            peer_key: Some(&keys[1]),
        };
        peer.run(&format!("cat >/run/a.toml <<'END'\n{}END", config(&side, &setup)))?;
        peer.start_daemon()?;
        node.configure(&setup, Some(&keys[0]))?;
        node.spawn()?;
        node.wait_until_it_answers()?;
        Ok(Apart { peer, node })
    }

    /// Waits until the peer accepts commands.
    fn peer(&self) -> Result<Peer, LabError> {
        let interface = self.interface(Nic::E1000e, 1)?;
        let ip = |arguments: &str| process::run(Command::new("ip").args(arguments.split(' ')));
        ip(&format!("addr replace {}/24 dev {interface}", MANAGEMENT[1]))?;
        ip(&format!("link set {interface} up"))?;
        let (peer, began) = (Peer(()), Instant::now());
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
        self.first_ping(FIRST_PATIENCE)?;
        transfer::ping(&self.node.namespace, INSIDE[0], PINGS).map_err(|error| self.told(error))?;
        let text: String = (0..ECHO_BYTES / 6).map(|number| format!("{number:05}\n")).collect();
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
