//! Contenders that carry the stream, and their setup.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use recoded_netns::process::{Background, tail};
use recoded_netns::{AuthPlan, CodePlan, LinePlan, binary};

use crate::edge::bed::{self, Bed, mortal};
use crate::error::BenchError;
use crate::namespace::{Namespace, run};

/// A program, or Linux alone, that carries TCP from the left host to the right one.
#[derive(Copy, Clone, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// The cable, with Linux's offloads.
    Linux,
    /// The cable, one packet of its MTU at a time.
    LinuxNoOffload,
    /// WireGuard in user space.
    Boringtun,
    /// recoded with generations.
    Rlnc,
    /// recoded with blocks of batches.
    Bats,
    /// recoded with a window that every hop keeps whole.
    Stream,
    /// With generations, and AF_XDP sockets, which are not the default between ends on veth.
    RlncXdp,
    /// With a window that every hop keeps whole, and AF_XDP sockets.
    StreamXdp,
    /// recoded with generations, authenticated and encrypted.
    RlncFull,
    /// The same with a window that every hop keeps whole.
    StreamFull,
    /// A cable with jumbo frames, one packet of its MTU at a time.
    LinuxJumbo,
    /// WireGuard in user space over the cable with jumbo frames.
    BoringtunJumbo,
    /// recoded with a window that every hop keeps whole, over the cable with jumbo frames.
    StreamJumbo,
    /// The same, authenticated and encrypted.
    StreamJumboFull,
}

/// A contender that is ready. Ends when dropped.
pub struct Running {
    /// Destination of the stream.
    pub to: &'static str,
    _processes: Vec<Background>,
}

impl Contender {
    /// All, in the order of the table.
    pub const ALL: [Contender; 14] = [
        Contender::Linux,
        Contender::LinuxNoOffload,
        Contender::Boringtun,
        Contender::Rlnc,
        Contender::Bats,
        Contender::Stream,
        Contender::RlncXdp,
        Contender::StreamXdp,
        Contender::RlncFull,
        Contender::StreamFull,
        Contender::LinuxJumbo,
        Contender::BoringtunJumbo,
        Contender::StreamJumbo,
        Contender::StreamJumboFull,
    ];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Linux => "Linux, no tunnel",
            Contender::LinuxNoOffload => "the same, no offloads",
            Contender::Boringtun => "boringtun",
            Contender::Rlnc => "recoded, rlnc",
            Contender::Bats => "recoded, bats",
            Contender::Stream => "recoded, stream",
            Contender::RlncXdp => "recoded, rlnc, AF_XDP",
            Contender::StreamXdp => "recoded, stream, AF_XDP",
            Contender::RlncFull => "recoded, rlnc, auth full",
            Contender::StreamFull => "recoded, stream, auth full",
            Contender::LinuxJumbo => "MTU 9001: no tunnel, no offloads",
            Contender::BoringtunJumbo => "MTU 9001: boringtun",
            Contender::StreamJumbo => "MTU 9001: recoded, stream",
            Contender::StreamJumboFull => "MTU 9001: recoded, stream, auth full",
        }
    }

    /// MTU of the cable.
    pub fn mtu_bytes(self) -> u32 {
        match self {
            Contender::LinuxJumbo
            | Contender::BoringtunJumbo
            | Contender::StreamJumbo
            | Contender::StreamJumboFull => JUMBO_MTU_BYTES,
            _ => MTU_BYTES,
        }
    }

    /// Sets it up on a bed. The inner error explains why it cannot run here.
    ///
    /// # Errors
    /// [`BenchError`] if it should work but fails.
    pub fn start(
        self,
        bed: &Bed,
        boringtun: Option<&Path>,
    ) -> Result<Result<Running, String>, BenchError> {
        let cable = Running { to: bed::RIGHT, _processes: Vec::new() };
        let code = match self {
            Contender::Linux => return Ok(Ok(cable)),
            Contender::LinuxNoOffload | Contender::LinuxJumbo => {
                for (host, name) in [(&bed.left, "east"), (&bed.right, "west")] {
                    let off = ["-K", name, "tso", "off", "gso", "off", "gro", "off"];
                    run(host.command("ethtool").args(off))?;
                }
                return Ok(Ok(cable));
            }
            Contender::Boringtun | Contender::BoringtunJumbo => {
                return start_boringtun(bed, boringtun, self.mtu_bytes());
            }
            Contender::Rlnc | Contender::RlncXdp | Contender::RlncFull => CodePlan::Rlnc,
            Contender::Bats => {
                CodePlan::Bats { block_symbols: 256, interleave: None, adaptive: true }
            }
            Contender::Stream
            | Contender::StreamXdp
            | Contender::StreamFull
            | Contender::StreamJumbo
            | Contender::StreamJumboFull => CodePlan::Stream,
        };
        let is_full = matches!(
            self,
            Contender::RlncFull | Contender::StreamFull | Contender::StreamJumboFull
        );
        let auth = is_full.then(|| AuthPlan::new("full", 1));
        let is_told = matches!(self, Contender::RlncXdp | Contender::StreamXdp);
        let chooses = if is_told { Vec::new() } else { vec![0, 1] };
        start_recoded(bed, code, LinePlan { auth, chooses, ..LinePlan::protected(1) }).map(Ok)
    }
}

fn start_recoded(bed: &Bed, code: CodePlan, mut plan: LinePlan) -> Result<Running, BenchError> {
    for flow in &mut plan.flows {
        flow.code = code;
    }
    let mut processes = Vec::new();
    for (index, host) in [&bed.left, &bed.right].into_iter().enumerate() {
        let (config, log) = (bed.file(&format!("{index}.toml")), bed.file(&format!("{index}.log")));
        let socket = bed.file(&format!("{index}.sock"));
        fs::write(&config, plan.config(index, &socket.to_string_lossy()))
            .map_err(BenchError::os("writing a configuration"))?;
        if let Some(auth) = &plan.auth {
            let key = AuthPlan::key_file(&socket.to_string_lossy());
            fs::write(&key, auth.private(index)).map_err(BenchError::os("writing a key"))?;
            let private = fs::Permissions::from_mode(0o600);
            fs::set_permissions(&key, private).map_err(BenchError::os("writing a key"))?;
        }
        let mut command = mortal(host, binary("recoded"));
        command.arg("--config").arg(&config);
        processes.push(start(&mut command, &log)?);
    }
    let to = "10.99.0.2";
    wait_until_reached(bed, to)?;
    Ok(Running { to, _processes: processes })
}

fn start_boringtun(
    bed: &Bed,
    program: Option<&Path>,
    mtu_bytes: u32,
) -> Result<Result<Running, String>, BenchError> {
    let program = program.map_or_else(default_boringtun, Path::to_owned);
    let tools = [
        (&*program, "cargo install boringtun-cli --root target/rivals"),
        (Path::new("wg"), "apt-get install wireguard-tools"),
    ];
    for (tool, cure) in tools {
        if Command::new(tool).arg("--version").output().is_err() {
            return Ok(Err(format!("no `{}`: `{cure}`", tool.display())));
        }
    }
    // Their control sockets share one folder, so the names must differ.
    let pid = std::process::id();
    let ends = [
        End::new(bed, &bed.left, format!("wg{pid}l"), "10.77.1.1:51820", "10.98.0.1")?,
        End::new(bed, &bed.right, format!("wg{pid}r"), "10.77.1.2:51820", "10.98.0.2")?,
    ];
    let mut processes = Vec::new();
    for end in &ends {
        let mut command = mortal(end.host, &program);
        command.args(["--foreground", "--disable-drop-privileges", &end.name]);
        processes.push(start(&mut command, &bed.file(&format!("{}.log", end.name)))?);
        wait_for("boringtun", || end.host.ip(&format!("link show {}", end.name)).is_ok())?;
    }
    ends[0].join(&ends[1], mtu_bytes)?;
    ends[1].join(&ends[0], mtu_bytes)?;
    let to = "10.98.0.2";
    wait_until_reached(bed, to)?;
    Ok(Ok(Running { to, _processes: processes }))
}

/// One end of a WireGuard tunnel.
struct End<'a> {
    host: &'a Namespace,
    name: String,
    endpoint: &'static str,
    address: &'static str,
    key: PathBuf,
    public: String,
}

impl<'a> End<'a> {
    fn new(
        bed: &Bed,
        host: &'a Namespace,
        name: String,
        endpoint: &'static str,
        address: &'static str,
    ) -> Result<End<'a>, BenchError> {
        let private = said(Command::new("wg").arg("genkey"))?;
        let key = bed.file(&format!("{name}.key"));
        fs::write(&key, private).map_err(BenchError::os("writing a key"))?;
        let file = fs::File::open(&key).map_err(BenchError::os("reading a key"))?;
        let public = said(Command::new("wg").arg("pubkey").stdin(Stdio::from(file)))?;
        Ok(End { host, name, endpoint, address, key, public: public.trim().to_owned() })
    }

    fn join(&self, other: &End<'_>, mtu_bytes: u32) -> Result<(), BenchError> {
        let mut command = self.host.command("wg");
        command.args(["set", &self.name, "listen-port", "51820", "private-key"]).arg(&self.key);
        command.args(["peer", &other.public, "endpoint", other.endpoint]);
        run(command.args(["allowed-ips", "10.98.0.0/24"]))?;
        self.host.ip(&format!("address add {}/24 dev {}", self.address, self.name))?;
        // MTU left by IPv6, UDP and WireGuard: 1420 of 1500, its usual value.
        let inner = mtu_bytes - WIREGUARD_BYTES;
        self.host.ip(&format!("link set {} mtu {inner} up", self.name))
    }
}

/// Path that `cargo install --root target/rivals` installs to, relative to this program; otherwise
/// the shell's.
fn default_boringtun() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let found = own.ancestors().map(|folder| folder.join("rivals/bin/boringtun-cli"));
    found.into_iter().find(|path| path.is_file()).unwrap_or_else(|| "boringtun-cli".into())
}

fn start(command: &mut Command, log: &Path) -> Result<Background, BenchError> {
    Background::start(command, log).map_err(BenchError::Bed)
}

/// Standard output of a program.
fn said(command: &mut Command) -> Result<String, BenchError> {
    let action = format!("running `{}`", command.get_program().to_string_lossy());
    let output = command.output().map_err(BenchError::os(action))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits until the right host answers through the tunnel: it refuses a connection to a port that
/// no socket listens on.
fn wait_until_reached(bed: &Bed, address: &str) -> Result<(), BenchError> {
    let target: SocketAddr = format!("{address}:9").parse().map_err(|error| {
        BenchError::os(format!("reading the address {address}"))(std::io::Error::other(error))
    })?;
    let reached = || {
        let connect = || Ok(TcpStream::connect_timeout(&target, Duration::from_secs(1)));
        matches!(
            bed.left.inside(connect),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused
        )
    };
    wait_for(address, reached).map_err(|_| BenchError::Command {
        command: format!("connecting to {address}"),
        output: logs(bed.folder()),
    })
}

/// Logs of the programs of the bed.
fn logs(folder: &Path) -> String {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .map(|path| tail(&fs::read_to_string(path).unwrap_or_default()))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Waits until a condition holds, for a bounded time.
///
/// # Errors
/// [`BenchError::Command`] if it does not.
pub fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) -> Result<(), BenchError> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if is_true() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = format!("nothing after {} s", PATIENCE.as_secs());
    Err(BenchError::Command { command: what.to_owned(), output })
}

/// MTU of Ethernet without jumbo frames.
const MTU_BYTES: u32 = 1500;
/// MTU of virtual machines in public clouds.
const JUMBO_MTU_BYTES: u32 = 9001;
/// Headers of a packet of WireGuard over IPv6.
const WIREGUARD_BYTES: u32 = 80;
/// Timeout for the start of a program.
const PATIENCE: Duration = Duration::from_secs(10);
