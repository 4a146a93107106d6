//! Two boxes in namespaces, a daemon in each, and a tunnel between them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use recoded_api::client::Client;
use recoded_api::v1::{Link, State};
use recoded_netns::process::{self, Background};
use recoded_netns::{Namespace, binary};

use super::{SHARED, transfer};
use crate::LabError;

/// How long a daemon may take until it answers. Everything takes some ten times as long as on a
/// processor that is not emulated.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// How long an interface may take until it has a carrier.
const CARRIER_PATIENCE: Duration = Duration::from_secs(20);

/// How long the first ping through the tunnel may take after both daemons have answered.
const FIRST_PING_PATIENCE: Duration = Duration::from_secs(30);

/// Pings after the first: none may be lost.
const PINGS: u32 = 5;

/// Bytes of TCP in each direction: several hundred packets.
const TCP_BYTES: usize = 1_000_000;

/// How long a daemon may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// What differs from the defaults of a daemon.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The link's `backend`, if it is written.
    pub backend: Option<&'static str>,
    /// Further lines of `[daemon]`.
    pub daemon: &'static str,
    /// Makes the interface of the link on top of the card.
    pub stack: Option<Stack>,
}

/// Makes an interface on top of another one and returns its name. Its arguments are the namespace,
/// the lower interface, and which of the two boxes this is.
pub type Stack = fn(&Namespace, &str, usize) -> Result<String, LabError>;

/// Two boxes. Their daemons end, and the interfaces are free again, when this is dropped.
#[derive(Debug)]
pub struct Boxes {
    nodes: [Node; 2],
}

/// One box.
#[derive(Debug)]
pub struct Node {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its interface.
    pub interface: String,
    /// Its address in the tunnel.
    pub inside: &'static str,
    config: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    daemon: Background,
}

/// Addresses of the two boxes on the link and in the tunnel.
const OUTSIDE: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const INSIDE: [&str; 2] = ["10.99.0.1", "10.99.0.2"];

impl Boxes {
    /// Starts both.
    ///
    /// # Errors
    /// When an interface has no carrier, or a daemon does not start.
    pub fn start(case: &str, interfaces: &[String; 2], setup: &Setup) -> Result<Boxes, LabError> {
        let first = Node::make(case, 0, &interfaces[0], setup)?;
        let second = Node::make(case, 1, &interfaces[1], setup)?;
        let mut boxes = Boxes { nodes: [first, second] };
        for (end, node) in boxes.nodes.iter().enumerate() {
            node.wait_for_carrier()?;
            let text = config(end, node, setup);
            fs::write(&node.config, text).map_err(LabError::file(&node.config))?;
        }
        for node in &mut boxes.nodes {
            node.spawn()?;
        }
        for node in &mut boxes.nodes {
            node.wait_until_it_answers()?;
        }
        Ok(boxes)
    }

    /// The two boxes.
    pub fn nodes(&self) -> &[Node; 2] {
        &self.nodes
    }

    /// Pings and TCP through the tunnel, in both directions.
    ///
    /// # Errors
    /// When a ping is lost after the first, or TCP does not carry all.
    pub fn carry(&self) -> Result<(), LabError> {
        let [a, b] = &self.nodes;
        transfer::first_ping(a, b.inside, FIRST_PING_PATIENCE).map_err(|error| self.told(error))?;
        for (from, to) in [(a, b), (b, a)] {
            transfer::ping(from, to.inside, PINGS).map_err(|error| self.told(error))?;
            transfer::tcp(from, to, TCP_BYTES).map_err(|error| self.told(error))?;
        }
        Ok(())
    }

    /// The link of each box, as `show` has it.
    ///
    /// # Errors
    /// When a daemon does not answer.
    pub fn links(&self) -> Result<[Link; 2], LabError> {
        let [a, b] = &self.nodes;
        Ok([a.link()?, b.link()?])
    }

    /// An error with modes and faults of both links.
    fn told(&self, error: LabError) -> LabError {
        let links = self.nodes.iter().map(|node| match node.link() {
            Ok(link) => {
                let Link { xdp_mode, socket_mode, reason, .. } = &link;
                let (sent, received) = (link.sent_packets, link.received_packets);
                let faults: Vec<_> = link.faults.iter().filter(|(_, count)| **count > 0).collect();
                format!("{xdp_mode}, {socket_mode} ({reason}), {sent} sent, {received} received, faults {faults:?}")
            }
            Err(error) => error.to_string(),
        });
        let links: Vec<String> = links.collect();
        LabError::Wrong(format!("{error}; links: {}", links.join("; ")))
    }
}

impl Node {
    fn make(case: &str, end: usize, card: &str, setup: &Setup) -> Result<Node, LabError> {
        let name = ["a", "b"][end];
        let place = |ending: &str| Path::new(SHARED).join(format!("{case}-{name}.{ending}"));
        let namespace = Namespace::create(name.into())?;
        let mut node = Node {
            namespace,
            interface: card.into(),
            inside: INSIDE[end],
            config: place("toml"),
            // Sockets need a file system of the guest's own.
            socket: PathBuf::from(format!("/run/recoded-{name}.sock")),
            log: place("log"),
            daemon: Background::default(),
        };
        process::run(Command::new("ip").args(["link", "set", card, "netns", name]))?;
        if let Some(stack) = setup.stack {
            node.interface = stack(&node.namespace, card, end)?;
        }
        let interface = &node.interface;
        node.namespace.ip(&format!("addr add {}/24 dev {interface}", OUTSIDE[end]))?;
        node.namespace.ip(&format!("link set {interface} up"))?;
        Ok(node)
    }

    fn wait_for_carrier(&self) -> Result<(), LabError> {
        let deadline = Instant::now() + CARRIER_PATIENCE;
        while !self.namespace.ip(&format!("link show {}", self.interface))?.contains("LOWER_UP") {
            if Instant::now() > deadline {
                return LabError::wrong(format!("{} has no carrier", self.interface));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Starts the daemon, without waiting.
    fn spawn(&mut self) -> Result<(), LabError> {
        let mut command = self.namespace.command(binary("recoded"));
        command.arg("--config").arg(&self.config);
        self.daemon = Background::start(&mut command, &self.log)?;
        Ok(())
    }

    fn wait_until_it_answers(&mut self) -> Result<(), LabError> {
        let deadline = Instant::now() + START_PATIENCE;
        while self.daemon.is_running() && Instant::now() < deadline {
            if self.socket.exists() && self.show().is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        LabError::wrong(format!("the daemon does not start: {}", process::tail(&log)))
    }

    /// State of the daemon.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn show(&self) -> Result<State, LabError> {
        let state = Client::connect(&self.socket).and_then(|mut client| client.state());
        state.map_err(|error| LabError::Wrong(format!("the daemon does not answer: {error}")))
    }

    /// Its only link.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub fn link(&self) -> Result<Link, LabError> {
        let link = self.show()?.links.into_iter().next();
        link.ok_or_else(|| LabError::Wrong("the daemon has no link".into()))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.daemon.terminate(STOP_PATIENCE);
        // A card returns to the namespace of the machine, everything else ends.
        let _ = process::run(Command::new("ip").args(["netns", "delete", self.namespace.name()]));
    }
}

fn config(end: usize, node: &Node, setup: &Setup) -> String {
    let backend = setup.backend.map(|name| format!("backend = \"{name}\"\n")).unwrap_or_default();
    let [source, sink] = [[1, 2], [2, 1]][end];
    let other = OUTSIDE[1 - end];
    format!(
        "[daemon]\nsocket = \"{}\"\n{}\n\
         [[link]]\nname = \"wan\"\ninterface = \"{}\"\n{backend}\n\
         [[tunnel]]\nname = \"rec0\"\naddress = \"{}/24\"\n\n\
         [[flow]]\nid = {source}\nrole = \"source\"\ntunnel = \"rec0\"\n\
         next_hops = [{{ link = \"wan\", address = \"{other}\" }}]\n\n\
         [[flow]]\nid = {sink}\nrole = \"sink\"\ntunnel = \"rec0\"\n\
         upstream = {{ link = \"wan\", address = \"{other}\" }}\n",
        node.socket.display(),
        setup.daemon,
        node.interface,
        node.inside,
    )
}
