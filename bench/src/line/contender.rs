//! The contenders, as a table: adding a code is one entry of [`CONTENDERS`].

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use recoded_netns::process::Background;
use recoded_netns::{Bed, BedError, CodePlan, Daemon, FlowPlan, LinePlan, Towards};

use crate::error::BenchError;
use crate::line::case::Case;
use crate::line::proxy;

/// Port of the stream and of the proxies.
const PORT: u16 = 5202;

/// Timeout until a tunnel or a chain of proxies carries packets.
const PATIENCE: Duration = Duration::from_secs(10);

/// A contender that carries the stream.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Contender {
    /// Name on the command line and in tables.
    pub name: &'static str,
    /// How.
    pub kind: Kind,
}

/// How a stream is carried.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Kind {
    /// Linux forwards it; its sender has this congestion control.
    Plain(&'static str),
    /// A proxy on every relay terminates it and opens the next one, all with this congestion
    /// control.
    Split(&'static str),
    /// A Recoded tunnel.
    Tunnel {
        /// Of the flow eastward.
        code: CodePlan,
        /// Order of its field.
        field: u16,
    },
}

/// All contenders.
pub const CONTENDERS: &[Contender] = &[
    Contender { name: "cubic", kind: Kind::Plain("cubic") },
    Contender { name: "bbr", kind: Kind::Plain("bbr") },
    Contender { name: "split-bbr", kind: Kind::Split("bbr") },
    tunnel("stream", CodePlan::Stream, 256),
    tunnel("rlnc", CodePlan::Rlnc, 16),
    tunnel("bats", CodePlan::Bats { block_symbols: 256, interleave: None, adaptive: true }, 16),
    tunnel("open-loop", CodePlan::OpenLoop, 256),
    tunnel("interactive", CodePlan::Interactive, 256),
    tunnel("auto", CodePlan::Auto, 256),
];

const fn tunnel(name: &'static str, code: CodePlan, field: u16) -> Contender {
    Contender { name, kind: Kind::Tunnel { code, field } }
}

/// A contender that is ready. Ends when dropped.
pub struct Running {
    /// Destination of the stream.
    pub to: SocketAddr,
    /// Listening address of the stream.
    pub listen: SocketAddr,
    /// Destination of datagrams.
    pub datagrams: IpAddr,
    /// The daemons in path order, if any.
    pub daemons: Vec<Daemon>,
    proxies: Vec<Background>,
}

impl Contender {
    /// The contender of a name.
    pub fn named(name: &str) -> Option<&'static Contender> {
        CONTENDERS.iter().find(|contender| contender.name == name)
    }

    /// Whether it is measured if no contender is named. The automatic choice of daemons is a stream
    /// here, interactive streams are for datagrams, and open loops for links without a return path.
    pub fn is_default(&self) -> bool {
        let Kind::Tunnel { code, .. } = self.kind else { return true };
        !matches!(code, CodePlan::Auto | CodePlan::Interactive | CodePlan::OpenLoop)
    }

    /// Whether it is a tunnel, whose headers lower its limit.
    pub fn is_tunnel(&self) -> bool {
        matches!(self.kind, Kind::Tunnel { .. })
    }

    /// Whether it is a tunnel with a code other than a stream. Their twins are measured only if
    /// named.
    pub fn is_other_code(&self) -> bool {
        let is_stream = matches!(self.kind, Kind::Tunnel { code: CodePlan::Stream, .. });
        self.is_tunnel() && !is_stream
    }

    /// Whether its daemons choose the code.
    pub fn is_automatic(&self) -> bool {
        matches!(self.kind, Kind::Tunnel { code: CodePlan::Auto, .. })
    }

    /// The congestion controls to measure it with.
    pub fn controls(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Plain("cubic") => &["cubic"],
            Kind::Tunnel { .. } => &["cubic", "bbr"],
            _ => &["bbr"],
        }
    }

    /// Whether it need not be measured on this line: one hop has no relay to split at, and only
    /// daemons are killed.
    pub fn is_redundant(&self, case: &Case) -> bool {
        match self.kind {
            Kind::Plain(_) => case.relay_killed,
            Kind::Split(_) => case.hops == 1 || case.relay_killed,
            Kind::Tunnel { .. } => false,
        }
    }

    /// Sets it up.
    ///
    /// # Errors
    /// [`BenchError`] if one of its programs does not start.
    pub fn start(&self, bed: &Bed) -> Result<Running, BenchError> {
        let sink = bed.sink_address();
        let straight = |daemons, address| Running {
            to: SocketAddr::new(address, PORT),
            listen: SocketAddr::new(address, PORT),
            datagrams: address,
            daemons,
            proxies: Vec::new(),
        };
        match self.kind {
            Kind::Plain(_) => Ok(straight(Vec::new(), sink)),
            Kind::Split(control) => {
                let proxies = start_proxies(bed, control)?;
                let to = SocketAddr::new(Bed::east_address(1), PORT);
                Ok(Running { to, proxies, ..straight(Vec::new(), sink) })
            }
            Kind::Tunnel { code, field } => {
                let plan = plan(bed, code, field);
                let daemons = Daemon::start_line(bed, &plan).map_err(BenchError::Bed)?;
                let address = plan.tunnels[0].sink_address();
                wait_until_reached(bed, address)?;
                Ok(straight(daemons, address))
            }
        }
    }
}

impl Running {
    /// Processor time that daemons and proxies have used, in seconds.
    ///
    /// # Errors
    /// If one has exited.
    pub fn processor_seconds(&self) -> Result<f64, BenchError> {
        let mut seconds = 0.0;
        for daemon in &self.daemons {
            seconds += daemon.processor_time().map_err(BenchError::Bed)?.as_secs_f64();
        }
        for proxy in &self.proxies {
            let time = recoded_netns::process::processor_time(proxy.pid());
            seconds += time.map_err(BenchError::Bed)?.as_secs_f64();
        }
        Ok(seconds)
    }
}

/// Defaults, including the sockets of each link. The return traffic is acknowledgements, which are
/// few, small and urgent and do not fill blocks, so it uses generations.
fn plan(bed: &Bed, code: CodePlan, field: u16) -> LinePlan {
    let mut plan = LinePlan::protected(bed.hops());
    plan.chooses = (0..=bed.hops()).collect();
    plan.flows[0] = FlowPlan { code, field, ..FlowPlan::new(1, Towards::East, "rec0") };
    if matches!(code, CodePlan::Stream | CodePlan::Interactive | CodePlan::Auto) {
        // Acknowledgements need no generation to fill.
        plan.flows[1].code = code;
    }
    plan
}

fn start_proxies(bed: &Bed, control: &str) -> Result<Vec<Background>, BenchError> {
    let start = |index: usize| {
        let to = SocketAddr::new(Bed::east_address(index + 1), PORT);
        proxy::start(bed, &bed.hosts()[index], PORT, to, control)
    };
    (1..bed.hops()).map(start).collect()
}

/// Waits until a datagram arrives through the tunnel.
fn wait_until_reached(bed: &Bed, address: IpAddr) -> Result<(), BenchError> {
    let socket = |host: &recoded_netns::Namespace, local: SocketAddr| {
        host.udp_socket(local).map_err(BenchError::Bed)
    };
    let to = SocketAddr::new(address, PORT);
    let receiver = socket(bed.sink(), to)?;
    let step = Some(Duration::from_millis(100));
    receiver.set_read_timeout(step).map_err(BenchError::os("waiting for a tunnel"))?;
    let sender = socket(bed.source(), SocketAddr::from(([0, 0, 0, 0], 0)))?;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        // Fails while there is no route yet.
        let _ = sender.send_to(&[0; 16], to);
        if receiver.recv(&mut [0; 64]).is_ok() {
            return Ok(());
        }
    }
    Err(BenchError::Bed(BedError::Output {
        program: "recoded".into(),
        detail: format!("nothing came through the tunnel in {} s", PATIENCE.as_secs()),
    }))
}
