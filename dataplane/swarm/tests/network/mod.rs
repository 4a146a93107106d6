//! A network in virtual time: links of 10 ms that lose packets at random, one source, one poisoner,
//! and receivers that serve each other. Nothing sleeps, so a test of minutes takes seconds.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use blake3::OutputReader;
use recoded_swarm::{
    Block, Client, ClientLimits, Coding, ContentId, DatagramKey, KeyPair, Limits, Manifest,
    Message, Outbox, Path, PeerState, Progress, Server, ServerKeys, Store, Welcome,
};

use crate::random::{random_bytes, reader};

const MILLI: u64 = 1_000_000;
const DELAY: u64 = 10 * MILLI;
const STEP: u64 = 2 * MILLI;

/// What the poisoner does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Behaviour {
    /// It changes a byte of every block.
    WrongBlocks,
    /// It sends a forged manifest.
    WrongManifest,
    /// It claims to be the source and sends forged checks.
    WrongChecks,
    /// It accepts sessions as a source and then sends nothing.
    Silent,
    /// It claims to be the source, and repeats its welcome instead of any other answer.
    Welcomes,
    /// It sends correct blocks, one every 400 ms.
    Drip,
    /// It serves correctly at 256 kbit/s.
    Slow,
}

/// Results of a run.
#[derive(Clone, Default, Debug)]
pub struct Report {
    pub present: usize,
    pub finished: usize,
    pub wrong_contents: usize,
    pub wrong_segments: u64,
    pub innocent_bans: usize,
    pub poisoner_bans: usize,
    /// Blocks that receivers got, from anyone.
    pub blocks: u64,
    /// Blocks that they got from each other.
    pub peer_blocks: u64,
    /// Blocks of partial segments.
    pub recoded_blocks: u64,
    /// Blocks of the source.
    pub source_blocks: u64,
}

struct Node {
    start: u64,
    addresses: Vec<usize>,
    key: Option<DatagramKey>,
    client: Option<Client>,
    server: Option<Server>,
    leaves: Option<(u64, bool)>,
}

struct Packet {
    from: usize,
    to: usize,
    /// Whether it goes to the server of the node, as opposed to its client.
    is_request: bool,
    bytes: Vec<u8>,
}

pub struct Network {
    now: u64,
    random: OutputReader,
    loss_percent: u8,
    content: Vec<u8>,
    id: ContentId,
    store: Arc<Store>,
    source: Option<Server>,
    poisoner: Server,
    nonce: u64,
    dripped_at: u64,
    behaviour: Behaviour,
    key: Option<[u8; 32]>,
    nodes: Vec<Node>,
    packets: BTreeMap<(u64, u64), Packet>,
    sent: u64,
    recoded_blocks: u64,
    noise: usize,
}

/// Collects datagrams of a server.
#[derive(Default)]
struct Collected(Vec<(SocketAddr, Vec<u8>)>);

impl Outbox for Collected {
    fn send(&mut self, path: &Path, bytes: &[u8], datagram_bytes: usize) {
        for datagram in bytes.chunks(datagram_bytes) {
            self.0.push((path.remote, datagram.to_vec()));
        }
    }
}

impl Network {
    /// The source, as an address of a receiver's peer.
    pub const SOURCE: usize = 1000;
    /// The poisoner.
    pub const POISONER: usize = 1001;

    pub fn new(seed: u64, content_bytes: usize, loss_percent: u8) -> Self {
        Self { loss_percent, ..Self::with_key(seed, content_bytes, None) }
    }

    pub fn with_key(seed: u64, content_bytes: usize, key: Option<[u8; 32]>) -> Self {
        let content = random_bytes(seed, content_bytes);
        let pair = KeyPair::new([9; 32]);
        let manifest = Manifest::describe(&content, 32, 1024, *pair.public()).expect("valid");
        let id = manifest.id();
        let store = Arc::new(Store::complete(manifest, &content));
        let datagrams = key.map(|key| DatagramKey::new(&key));
        let keys = ServerKeys { source: Some(pair), datagrams: datagrams.clone() };
        let limits = Limits { peers: 100, ..Limits::default() };
        let seed_of = |part: u8| [part; 32];
        let poisoner_keys = ServerKeys { source: None, datagrams };
        Self {
            now: 0,
            random: reader(seed ^ 1),
            loss_percent: 0,
            source: Some(Server::new(Arc::clone(&store), keys, limits, &seed_of(1), 0)),
            poisoner: Server::new(Arc::clone(&store), poisoner_keys, limits, &seed_of(2), 0),
            store,
            nonce: 0,
            dripped_at: 0,
            behaviour: Behaviour::WrongBlocks,
            content,
            id,
            key,
            nodes: Vec::new(),
            packets: BTreeMap::new(),
            sent: 0,
            recoded_blocks: 0,
            noise: 0,
        }
    }

    pub fn set_poisoner(&mut self, behaviour: Behaviour) {
        self.behaviour = behaviour;
        if behaviour == Behaviour::Slow {
            let limits = Limits { peers: 100, rate_bytes: 32_000, ..Limits::default() };
            let store = Arc::clone(&self.store);
            self.poisoner = Server::new(store, ServerKeys::default(), limits, &[2; 32], 0);
        }
    }

    /// Replaces the source by one without sessions.
    pub fn restart_source(&mut self) {
        let keys = ServerKeys { source: Some(KeyPair::new([9; 32])), datagrams: None };
        let limits = Limits { peers: 100, ..Limits::default() };
        let store = Arc::clone(&self.store);
        self.source = Some(Server::new(store, keys, limits, &[3; 32], self.now));
    }

    /// Milliseconds since the start.
    pub fn millis(&self) -> u64 {
        self.now / MILLI
    }

    pub fn progress(&self, number: usize) -> Progress {
        let client = self.nodes[number].client.as_ref();
        client.map_or(Progress::default(), |client| *client.progress())
    }

    pub fn stop_source(&mut self) {
        self.source = None;
    }

    /// Sends this many random datagrams to everyone in each step.
    pub fn inject_noise(&mut self, count: usize) {
        self.noise = count;
    }

    /// Adds a receiver, and returns its number.
    pub fn join(&mut self, start_millis: u64, addresses: &[usize]) -> usize {
        self.join_with_key(start_millis, addresses, self.key)
    }

    pub fn join_with_key(
        &mut self,
        start_millis: u64,
        addresses: &[usize],
        key: Option<[u8; 32]>,
    ) -> usize {
        self.nodes.push(Node {
            start: start_millis * MILLI,
            addresses: addresses.to_vec(),
            key: key.map(|key| DatagramKey::new(&key)),
            client: None,
            server: None,
            leaves: None,
        });
        self.nodes.len() - 1
    }

    /// Makes a receiver vanish, and perhaps return with nothing two seconds later.
    pub fn leave_at(&mut self, number: usize, millis: u64, is_to_return: bool) {
        self.nodes[number].leaves = Some((millis * MILLI, is_to_return));
    }

    pub fn is_finished(&self, number: usize) -> bool {
        self.nodes[number].client.as_ref().is_some_and(Client::is_finished)
    }

    pub fn are_all_finished(&self) -> bool {
        let is_gone = |node: &Node| node.start == u64::MAX;
        let mut numbers = 0..self.nodes.len();
        numbers.all(|number| {
            let node = &self.nodes[number];
            is_gone(node) || self.is_finished(number) && node.leaves.is_none()
        })
    }

    pub fn states(&self, number: usize) -> Vec<PeerState> {
        let client = self.nodes[number].client.as_ref();
        client.map_or(Vec::new(), |client| client.peers().map(|(state, _)| state).collect())
    }

    pub fn run_until(&mut self, millis: u64, is_done: impl Fn(&Self) -> bool) {
        while self.now < millis * MILLI && !is_done(self) {
            self.now += STEP;
            self.change_membership();
            self.deliver();
            self.poll();
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes);
        u64::from_be_bytes(bytes) % below
    }

    fn change_membership(&mut self) {
        for number in 0..self.nodes.len() {
            let now = self.now;
            let node = &mut self.nodes[number];
            if let Some((_, is_to_return)) = node.leaves.filter(|&(at, _)| at <= now) {
                (node.client, node.server, node.leaves) = (None, None, None);
                node.start = if is_to_return { now + 2000 * MILLI } else { u64::MAX };
            }
            if node.client.is_none() && node.start <= now {
                let limits = ClientLimits { rate_kbit: 20_000, window: 4, is_sharing: true };
                let (count, key) = (node.addresses.len(), node.key.clone());
                let mut seed = [0; 32];
                self.random.fill(&mut seed);
                self.nodes[number].client = Some(Client::new(self.id, key, limits, count, &seed));
            }
        }
    }

    fn deliver(&mut self) {
        let later = self.packets.split_off(&(self.now + 1, 0));
        let due = std::mem::replace(&mut self.packets, later);
        for packet in due.into_values() {
            if self.random(100) < u64::from(self.loss_percent) {
                continue;
            }
            let Packet { from, to, is_request, bytes } = packet;
            if is_request {
                self.serve(from, to, &bytes);
            } else if let Some(node) = self.nodes.get_mut(to)
                && let Some(client) = &mut node.client
                && let Some(peer) = node.addresses.iter().position(|&address| address == from)
            {
                client.handle(self.now, peer, &bytes);
            }
        }
    }

    /// Gives a datagram to the server of a node.
    fn serve(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let path = Path { remote: address(from), local: None };
        let (now, mut collected) = (self.now, Collected::default());
        if to == Self::POISONER && self.lie(from, bytes) {
            return;
        }
        let server = match to {
            Self::SOURCE => self.source.as_mut(),
            Self::POISONER => Some(&mut self.poisoner),
            _ => self.nodes.get_mut(to).and_then(|node| node.server.as_mut()),
        };
        if let Some(server) = server {
            server.handle(now, path, bytes, &mut collected);
        }
        self.send_all(to, collected);
    }

    /// Answers of a poisoner that claims to be the source or has a forged manifest.
    fn lie(&mut self, to: usize, bytes: &[u8]) -> bool {
        let message = Message::parse(bytes);
        if let Ok(Message::Hello(hello)) = message {
            self.nonce = hello.nonce;
        }
        let answer = match (self.behaviour, message) {
            (Behaviour::WrongBlocks | Behaviour::Drip | Behaviour::Slow, _) => return false,
            (behaviour, Ok(Message::Hello(hello))) => Message::Welcome(Welcome {
                nonce: hello.nonce,
                session: 7,
                manifest_bytes: 1024,
                is_source: behaviour != Behaviour::WrongManifest,
            }),
            (Behaviour::WrongManifest, Ok(Message::ManifestRequest { session, offset })) => {
                Message::ManifestPart { session, offset, bytes: &[5; 1024] }
            }
            (Behaviour::WrongChecks, Ok(Message::ChecksRequest { session, segment, part })) => {
                Message::Checks { session, segment, part, sealed: &[5; 32 * 8 + 16] }
            }
            (Behaviour::Welcomes, _) => Message::Welcome(Welcome {
                nonce: self.nonce,
                session: 7,
                manifest_bytes: 1024,
                is_source: true,
            }),
            _ => return true,
        };
        let mut out = Vec::new();
        answer.write(&mut out);
        self.push(Self::POISONER, to, false, out);
        true
    }

    fn poll(&mut self) {
        let now = self.now;
        if let Some(source) = &mut self.source {
            let mut collected = Collected::default();
            source.poll(now, &mut collected);
            self.send_all(Self::SOURCE, collected);
        }
        let mut collected = Collected::default();
        self.poisoner.poll(now, &mut collected);
        self.send_all(Self::POISONER, collected);
        for number in 0..self.nodes.len() {
            let mut requests = Vec::new();
            let mut collected = Collected::default();
            let node = &mut self.nodes[number];
            if let Some(client) = &mut node.client {
                client.poll(now, |peer, bytes| requests.push((peer, bytes.to_vec())));
                if let (None, Some(store)) = (&node.server, client.store()) {
                    let keys = ServerKeys { source: None, datagrams: node.key.clone() };
                    let limits = Limits { peers: 60, segments_ahead: 0, ..Limits::default() };
                    let store = Arc::clone(store);
                    node.server = Some(Server::new(store, keys, limits, &[number as u8; 32], now));
                }
            }
            if let Some(server) = &mut node.server {
                server.poll(now, &mut collected);
            }
            for (peer, bytes) in requests {
                let to = self.nodes[number].addresses[peer];
                self.push(number, to, true, bytes);
            }
            self.send_all(number, collected);
        }
        self.send_noise();
    }

    fn send_noise(&mut self) {
        for _ in 0..self.noise {
            let mut bytes = vec![0; self.random(1500) as usize];
            self.random.fill(&mut bytes);
            if bytes.len() > 4 {
                bytes[..3].copy_from_slice(b"SW\x01");
                bytes[3] %= 14;
            }
            self.push(0, Self::SOURCE, true, bytes.clone());
            self.push(Self::SOURCE, 0, false, bytes);
        }
    }

    fn send_all(&mut self, from: usize, collected: Collected) {
        for (to, mut bytes) in collected.0 {
            if let Ok(Message::Block(Block { coding: Coding::Vector(_), .. })) =
                Message::parse(&bytes)
            {
                self.recoded_blocks += 1;
            }
            let is_block = matches!(Message::parse(&bytes), Ok(Message::Block(_)));
            if from == Self::POISONER && is_block && self.behaviour == Behaviour::Drip {
                if self.now < self.dripped_at + 400 * MILLI {
                    continue;
                }
                self.dripped_at = self.now;
            }
            if from == Self::POISONER && is_block && self.behaviour == Behaviour::WrongBlocks {
                let last = bytes.len() - 1;
                bytes[last] ^= 1;
            }
            self.push(from, usize::from(to.port()), false, bytes);
        }
    }

    fn push(&mut self, from: usize, to: usize, is_request: bool, bytes: Vec<u8>) {
        self.sent += 1;
        let key = (self.now + DELAY, self.sent);
        self.packets.insert(key, Packet { from, to, is_request, bytes });
    }

    pub fn report(&self) -> Report {
        let mut report = Report { recoded_blocks: self.recoded_blocks, ..Report::default() };
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(client) = &node.client else { continue };
            report.present += 1;
            report.wrong_segments += client.progress().wrong_segments;
            for (&address, (state, blocks)) in node.addresses.iter().zip(client.peers()) {
                let is_banned = usize::from(state == PeerState::Banned);
                report.blocks += blocks;
                match address {
                    Self::POISONER => report.poisoner_bans += is_banned,
                    Self::SOURCE => {
                        report.source_blocks += blocks;
                        report.innocent_bans += is_banned;
                    }
                    _ => {
                        report.peer_blocks += blocks;
                        report.innocent_bans += is_banned;
                    }
                }
            }
            if self.is_finished(number) {
                report.finished += 1;
                let segments = self.content.len().div_ceil(32 << 10) as u32;
                let content: Vec<u8> =
                    (0..segments).filter_map(|n| client.take(n)).flatten().collect();
                report.wrong_contents += usize::from(content != self.content);
            }
        }
        report
    }
}

fn address(number: usize) -> SocketAddr {
    SocketAddr::new(Ipv6Addr::LOCALHOST.into(), number as u16)
}
