//! Two boxes in namespaces, a daemon in each, and a tunnel between them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use recoded_api::client::{Client, ClientError};
use recoded_api::v1::{Link, State};
use recoded_netns::process::{self, Background};
use recoded_netns::{Namespace, binary};

use super::{SHARED, transfer};
use crate::LabError;

/// Timeout until a daemon answers. Everything takes about ten times as long as on a real processor.
const START_PATIENCE: Duration = Duration::from_secs(180);

/// Timeout until an interface has a carrier.
const CARRIER_PATIENCE: Duration = Duration::from_secs(60);

/// Timeout of the first ping through the tunnel after both daemons have answered.
const FIRST_PING_PATIENCE: Duration = Duration::from_secs(90);

/// Pings after the first: none may be lost.
const PINGS: u32 = 5;

/// Bytes of TCP in each direction: some two hundred packets. More bytes take most of the time of a
/// case and show no more.
const TCP_BYTES: usize = 300_000;

/// Bytes of TCP in each direction that are load: enough packets to compare losses.
const LOAD_BYTES: usize = 8_000_000;

/// Timeout for the end of a daemon. A killed daemon leaves its card in a namespace that ends only
/// with its last process.
const STOP_PATIENCE: Duration = Duration::from_secs(120);

/// Differences from the defaults of a daemon.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The link's `backend`, if it is written.
    pub backend: Option<&'static str>,
    /// Further lines of `[daemon]`.
    pub daemon: &'static str,
    /// Makes the interface of the link on top of the card.
    pub stack: Option<Stack>,
    /// Whether the boxes authenticate each other and encrypt. Existing keys are reused.
    pub has_keys: bool,
    /// Whether the link has IPv6 addresses.
    pub is_ipv6: bool,
    /// Folder with state and keys of both boxes. Without it there is no saved state.
    pub folder: Option<&'static str>,
}

/// Makes an interface on top of another one and returns its name. Its arguments are the namespace,
/// the lower interface, and which of the two boxes this is.
pub type Stack = fn(&Namespace, &str, usize) -> Result<String, LabError>;

/// Two boxes. When dropped, their daemons end and the interfaces are released.
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
    end: usize,
    config: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    key: PathBuf,
    records: Option<PathBuf>,
    stack: Option<Stack>,
    is_ipv6: bool,
    daemon: Background,
}

/// Default folder of keys.
const KEYS: &str = "/run";

/// Addresses of the two boxes on the link.
pub const OUTSIDE: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
/// The same, where the link has IPv6 addresses.
const OUTSIDE_IPV6: [&str; 2] = ["fd00:c0::1", "fd00:c0::2"];
/// Addresses of the two boxes in the tunnel.
pub const INSIDE: [&str; 2] = ["10.99.0.1", "10.99.0.2"];

impl Boxes {
    /// Starts both.
    ///
    /// # Errors
    /// When an interface has no carrier, or a daemon does not start.
    pub fn start(case: &str, interfaces: &[String; 2], setup: &Setup) -> Result<Boxes, LabError> {
        let first = Node::make(case, 0, &interfaces[0], setup)?;
        let second = Node::make(case, 1, &interfaces[1], setup)?;
        let mut boxes = Boxes { nodes: [first, second] };
        let keys = match setup.has_keys {
            true => Some([boxes.nodes[0].public_key()?, boxes.nodes[1].public_key()?]),
            false => None,
        };
        for (end, node) in boxes.nodes.iter().enumerate() {
            let peer_key = keys.as_ref().map(|keys| keys[1 - end].as_str());
            node.configure(setup, peer_key)?;
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

    /// The two boxes, for restarting their daemons or moving them to other cards.
    pub fn nodes_mut(&mut self) -> &mut [Node; 2] {
        &mut self.nodes
    }

    /// Pings and TCP through the tunnel, in both directions.
    ///
    /// # Errors
    /// When a ping is lost after the first, or TCP does not carry all.
    pub fn carry(&self) -> Result<(), LabError> {
        let [a, b] = &self.nodes;
        transfer::first_ping(&a.namespace, b.inside, FIRST_PING_PATIENCE)
            .map_err(|error| self.told(error))?;
        for (from, to) in [(a, b), (b, a)] {
            transfer::ping(&from.namespace, to.inside, PINGS).map_err(|error| self.told(error))?;
        }
        self.exchange(TCP_BYTES)
    }

    /// TCP through the tunnel, this many bytes in each direction.
    ///
    /// # Errors
    /// When it does not carry all.
    pub fn exchange(&self, bytes: usize) -> Result<(), LabError> {
        let [a, b] = &self.nodes;
        for (from, to) in [(a, b), (b, a)] {
            from.send(to, bytes).map_err(|error| self.told(error))?;
        }
        Ok(())
    }

    /// Sends TCP in both directions, whether or not it arrives.
    pub fn load(&self) {
        let [a, b] = &self.nodes;
        for (from, to) in [(a, b), (b, a)] {
            let _ = from.send(to, LOAD_BYTES);
        }
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
    /// Sends bytes over TCP through the tunnel, and compares all.
    fn send(&self, to: &Node, bytes: usize) -> Result<Duration, LabError> {
        transfer::tcp(&self.namespace, &to.namespace, to.inside, bytes)
    }

    pub(super) fn make(
        case: &str,
        end: usize,
        card: &str,
        setup: &Setup,
    ) -> Result<Node, LabError> {
        let name = ["a", "b"][end];
        let place = |ending: &str| Path::new(SHARED).join(format!("{case}-{name}.{ending}"));
        let folder = Path::new(setup.folder.unwrap_or(KEYS));
        let mut node = Node {
            namespace: Namespace::create(name.into())?,
            interface: card.into(),
            inside: INSIDE[end],
            end,
            config: place("toml"),
            // Sockets need a file system of the guest's own.
            socket: PathBuf::from(format!("/run/recoded-{name}.sock")),
            log: place("log"),
            key: folder.join(format!("{name}.key")),
            records: setup.folder.map(|folder| Path::new(folder).join(name)),
            stack: setup.stack,
            is_ipv6: setup.is_ipv6,
            daemon: Background::default(),
        };
        // A TCP socket whose last packet is not answered would hold the namespace, and with it the
        // card, for two minutes.
        node.namespace.sysctl("net.ipv4.tcp_orphan_retries", "1")?;
        node.plug(card)?;
        Ok(node)
    }

    /// Gives it a card.
    ///
    /// # Errors
    /// When the card is not there.
    pub fn plug(&mut self, card: &str) -> Result<(), LabError> {
        let name = self.namespace.name();
        process::run(Command::new("ip").args(["link", "set", card, "netns", name]))?;
        if self.stack.is_some() {
            return self.stack_on(card);
        } else if self.interface != card {
            self.namespace.ip(&format!("link set {card} name {}", self.interface))?;
        }
        self.bring_up()
    }

    /// Creates the interface of the link on top of a card of the box, and sets it up.
    ///
    /// # Errors
    /// If there is no such interface.
    pub fn stack_on(&mut self, card: &str) -> Result<(), LabError> {
        if let Some(stack) = self.stack {
            self.interface = stack(&self.namespace, card, self.end)?;
        }
        self.bring_up()
    }

    /// Gives the interface of the link its address and sets it up.
    fn bring_up(&self) -> Result<(), LabError> {
        let interface = &self.interface;
        let addresses = outside(self.is_ipv6);
        let (own, other) = (addresses[self.end], addresses[1 - self.end]);
        let shown = self.namespace.ip(&format!("link show {interface}"))?;
        let is_point_to_point = shown.contains("POINTOPOINT");
        // PPP assigns itself such an address, too.
        let address = match (is_point_to_point, self.is_ipv6) {
            (true, true) => format!("{own} peer {other}/128"),
            (true, false) => format!("{own} peer {other}/32"),
            (false, true) => format!("{own}/64"),
            (false, false) => format!("{own}/24"),
        };
        // Linux creates the IPv6 route to the other end only if the interface is up.
        self.namespace.ip(&format!("link set {interface} up"))?;
        self.namespace.ip(&format!("addr replace {address} dev {interface}"))?;
        Ok(())
    }

    /// Its public key. The private key is created if it does not exist.
    pub(super) fn public_key(&self) -> Result<String, LabError> {
        let (recodectl, key) = (binary("recodectl"), self.key.display());
        let (recodectl, made) = (recodectl.display(), !self.key.exists());
        let mut shell = Command::new("sh");
        // As an administrator's, a key was there long before a fault.
        let make = format!("umask 077 && {recodectl} genkey > {key} && sync {key} &&");
        let make = if made { make.as_str() } else { "" };
        shell.args(["-c", &format!("{make} {recodectl} pubkey < {key}")]);
        Ok(process::run(&mut shell)?.trim().to_owned())
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

    /// Writes its configuration, once its interface has a carrier.
    pub(super) fn configure(&self, setup: &Setup, peer_key: Option<&str>) -> Result<(), LabError> {
        self.wait_for_carrier()?;
        let side = Side {
            end: self.end,
            interface: &self.interface,
            socket: &self.socket,
            key: &self.key,
            peer_key,
        };
        fs::write(&self.config, config(&side, setup)).map_err(LabError::file(&self.config))
    }

    /// Starts the daemon, without waiting.
    pub(super) fn spawn(&mut self) -> Result<(), LabError> {
        let mut command = self.namespace.command(binary("recoded"));
        command.arg("--config").arg(&self.config);
        if let Some(records) = &self.records {
            command.arg("--state").arg(records);
        }
        self.daemon = Background::start(&mut command, &self.log)?;
        Ok(())
    }

    /// Ends its daemon and starts another one.
    ///
    /// # Errors
    /// When it does not end in order, or does not start.
    pub fn restart(&mut self) -> Result<(), LabError> {
        if !self.daemon.terminate(STOP_PATIENCE) {
            return LabError::wrong("the daemon did not end in order");
        }
        self.spawn()?;
        self.wait_until_it_answers()
    }

    /// Log of its daemons so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Memory of all processes of its daemon, excluding files.
    ///
    /// # Errors
    /// If one has exited.
    pub fn own_memory_kib(&self) -> Result<u64, LabError> {
        let read = |path: String| fs::read_to_string(&path).map_err(LabError::file(path.as_ref()));
        let supervisor = self.daemon.pid();
        let children = read(format!("/proc/{supervisor}/task/{supervisor}/children"))?;
        let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        let mut sum = 0;
        for pid in std::iter::once(supervisor).chain(children) {
            let parts = read(format!("/proc/{pid}/smaps_rollup"))?;
            let own = parts.lines().filter_map(|line| {
                let parts = ["Pss_Anon:", "Pss_Shmem:"];
                let kib = parts.iter().find_map(|part| line.strip_prefix(part))?;
                kib.split_whitespace().next()?.parse::<u64>().ok()
            });
            sum += own.sum::<u64>();
        }
        Ok(sum)
    }

    pub(super) fn wait_until_it_answers(&mut self) -> Result<(), LabError> {
        let deadline = Instant::now() + START_PATIENCE;
        while self.daemon.is_running() && Instant::now() < deadline {
            if self.socket.exists() && self.show().is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        LabError::wrong(format!("the daemon does not start: {}", process::tail(&self.log())))
    }

    /// State of the daemon.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn show(&self) -> Result<State, LabError> {
        self.ask(Client::state)
    }

    /// Sends a request to the daemon over its control socket.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    pub fn ask<T>(
        &self,
        question: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, LabError> {
        let answer = Client::connect(&self.socket).and_then(|mut client| question(&mut client));
        answer.map_err(|error| LabError::Wrong(format!("the daemon does not answer: {error}")))
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
        // Those of PPP.
        let end = format!("kill $(ip netns pids {})", self.namespace.name());
        let _ = process::output(Command::new("sh").args(["-c", &end]));
        // A card returns to the namespace of the machine; all other interfaces are removed.
        let _ = process::run(Command::new("ip").args(["netns", "delete", self.namespace.name()]));
    }
}

/// Differences between the configurations of two boxes.
pub(super) struct Side<'a> {
    /// 0 or 1.
    pub(super) end: usize,
    pub(super) interface: &'a str,
    pub(super) socket: &'a Path,
    pub(super) key: &'a Path,
    /// Public key of the other box, where there are keys.
    pub(super) peer_key: Option<&'a str>,
}

/// Addresses of both boxes on the link.
fn outside(is_ipv6: bool) -> [&'static str; 2] {
    if is_ipv6 { OUTSIDE_IPV6 } else { OUTSIDE }
}

pub(super) fn config(side: &Side<'_>, setup: &Setup) -> String {
    let backend = setup.backend.map(|name| format!("backend = \"{name}\"\n")).unwrap_or_default();
    let [source, sink] = [[1, 2], [2, 1]][side.end];
    let other = outside(setup.is_ipv6)[1 - side.end];
    let mut daemon = format!("socket = \"{}\"\n{}\n", side.socket.display(), setup.daemon);
    let (mut neighbour, mut edge) = (String::new(), String::new());
    if let Some(key) = side.peer_key {
        daemon.push_str(&format!("private_key = \"{}\"\n", side.key.display()));
        neighbour = format!(
            "[[neighbour]]\nlink = \"wan\"\naddress = \"{other}\"\npublic_key = \"{key}\"\n\n"
        );
        edge = format!("edge_key = \"{key}\"\n");
    }
    format!(
        "[daemon]\n{daemon}\n\
         [[link]]\nname = \"wan\"\ninterface = \"{}\"\n{backend}\n\
         {neighbour}\
         [[tunnel]]\nname = \"rec0\"\naddress = \"{}/24\"\n\n\
         [[flow]]\nid = {source}\nrole = \"source\"\ntunnel = \"rec0\"\n{edge}\
         next_hops = [{{ link = \"wan\", address = \"{other}\" }}]\n\n\
         [[flow]]\nid = {sink}\nrole = \"sink\"\ntunnel = \"rec0\"\n{edge}\
         upstream = {{ link = \"wan\", address = \"{other}\" }}\n",
        side.interface, INSIDE[side.end],
    )
}
