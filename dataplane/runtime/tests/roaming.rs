//! Roaming neighbours: a middlebox between two nodes changes the source address of one node's
//! packets, records them, replays them and modifies them.

mod common;

use common::*;
use recoded_runtime::report::HopReport;
use recoded_runtime::secure::{Entropy, PresharedKey, PrivateKey};
use recoded_runtime::{Backend, PeerKey, Runtime, Topology};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const RIGHT: &str = "10.7.1.2:9426";

/// Addresses that the middlebox sends from, to the right: first the one that the right node knows.
const PLACES: [&str; 3] = ["10.7.1.254:9426", "10.7.1.66:40000", "10.7.1.67:9426"];

/// A namespace between the two of a bed, and a thread in it that forwards packets.
struct Middle {
    name: String,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

struct State {
    west: UdpSocket,
    east: Vec<UdpSocket>,
    /// The source place of the left node's forwarded packets.
    place: AtomicUsize,
    /// Packets of the right node, by the place to which they were sent.
    back: [AtomicU64; PLACES.len()],
    /// The last packets of the left node, and of the right one.
    seen: Mutex<[Vec<Vec<u8>>; 2]>,
    /// Holds back the next packet of the left node.
    holds: AtomicBool,
    held: Mutex<Option<Vec<u8>>>,
    ends: AtomicBool,
}

impl Middle {
    /// Puts itself between the two namespaces of a bed: 10.7.0.254 to the left, 10.7.1.254 and
    /// others to the right, which is 10.7.1.2 now.
    fn between(bed: &Bed) -> Middle {
        let name = format!("rt{}m", std::process::id());
        ip(&format!("-n {} link delete eth0", bed.left));
        ip(&format!("netns add {name}"));
        for (end, face, host, own) in [
            (&bed.left, "west", "10.7.0.1/24", "10.7.0.254/24"),
            (&bed.right, "east", "10.7.1.2/24", "10.7.1.254/24"),
        ] {
            ip(&format!("-n {end} link add eth0 type veth peer name {face} netns {name}"));
            ip(&format!("-n {end} addr add {host} dev eth0"));
            ip(&format!("-n {end} link set eth0 up"));
            ip(&format!("-n {name} addr add {own} dev {face}"));
            ip(&format!("-n {name} link set {face} up"));
        }
        for own in ["10.7.1.66/24", "10.7.1.67/24"] {
            ip(&format!("-n {name} addr add {own} dev east"));
        }
        let open = |address: &str| {
            let socket = UdpSocket::bind(address).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let (west, east) =
            inside(&name, || (open("10.7.0.254:9426"), PLACES.map(open).into_iter().collect()));
        let state = Arc::new(State {
            west,
            east,
            place: AtomicUsize::new(0),
            back: Default::default(),
            seen: Mutex::default(),
            holds: AtomicBool::new(false),
            held: Mutex::default(),
            ends: AtomicBool::new(false),
        });
        let passing = state.clone();
        let thread = Some(std::thread::spawn(move || passing.pass()));
        Middle { name, state, thread }
    }

    /// Forwards packets of the left node from another place.
    fn go_to(&self, place: usize) {
        self.state.place.store(place, Relaxed);
    }

    fn back(&self, place: usize) -> u64 {
        self.state.back[place].load(Relaxed)
    }

    /// Recorded packets: of the left node, of the right one.
    fn seen(&self) -> [Vec<Vec<u8>>; 2] {
        self.state.seen.lock().unwrap().clone()
    }

    /// Sends a packet to the right node from a place.
    fn send(&self, place: usize, packet: &[u8]) {
        self.state.east[place].send_to(packet, RIGHT).unwrap();
    }
}

impl State {
    fn pass(&self) {
        let mut buffer = [0; 2048];
        // The address of the left node.
        let mut left: Option<SocketAddr> = None;
        while !self.ends.load(Relaxed) {
            let mut is_idle = true;
            while let Ok((len, from)) = self.west.recv_from(&mut buffer) {
                (is_idle, left) = (false, Some(from));
                self.see(0, &buffer[..len]);
                if self.holds.swap(false, Relaxed) {
                    *self.held.lock().unwrap() = Some(buffer[..len].to_vec());
                    continue;
                }
                let east = &self.east[self.place.load(Relaxed)];
                let _ = east.send_to(&buffer[..len], RIGHT);
            }
            for (east, back) in self.east.iter().zip(&self.back) {
                while let Ok((len, _)) = east.recv_from(&mut buffer) {
                    is_idle = false;
                    back.fetch_add(1, Relaxed);
                    self.see(1, &buffer[..len]);
                    // Packets that precede any from the left node go to its configured address.
                    let left = left.unwrap_or_else(|| "10.7.0.1:9426".parse().unwrap());
                    let _ = self.west.send_to(&buffer[..len], left);
                }
            }
            if is_idle {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    fn see(&self, side: usize, packet: &[u8]) {
        let seen = &mut self.seen.lock().unwrap()[side];
        if seen.len() < 2000 {
            seen.push(packet.to_vec());
        }
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.state.ends.store(true, Relaxed);
        let passed = self.thread.take().map(JoinHandle::join);
        let _ = std::process::Command::new("ip").args(["netns", "delete", &self.name]).status();
        assert!(passed.is_none_or(|passed| passed.is_ok()), "the thread in between failed");
    }
}

/// A pair of keys for each side.
fn keys() -> [PrivateKey; 2] {
    [0; 2].map(|_| PrivateKey::generate(&Entropy::fresh().unwrap()))
}

/// A node of side `own`, whose neighbour roams.
fn node(keys: &[PrivateKey; 2], own: usize, addresses: (&str, &str), tunnel: &str) -> Topology {
    let mut topology = topology(addresses.0, addresses.1, tunnel);
    topology.links[0].backend = Backend::Udp;
    topology.private_key = Some(keys[own].clone());
    let public = keys[1 - own].public();
    topology.hops[0].key = Some(PeerKey { public, psk: PresharedKey::none(), one_way: false });
    topology.hops[0].roams = own == 1;
    topology
}

/// The neighbour of a node.
fn neighbour(node: &Runtime) -> HopReport {
    node.report().links[0].hops[0].clone()
}

fn wait_for_keys(nodes: &[&Runtime]) {
    let has_keys = |node: &&Runtime| {
        let sessions = node.report().sessions;
        sessions.hops[0].as_ref().is_some_and(|session| session.age_nanos.is_some())
    };
    wait_until("keys are agreed on", || nodes.iter().all(has_keys));
}

fn verdict(node: &Runtime, name: &str) -> u64 {
    node.report().verdicts.iter().find(|(known, _)| *known == name).unwrap().1
}

fn elsewhere(node: &Runtime) -> u64 {
    node.report().links[0].counters.rx_elsewhere
}

/// Packets sent now arrive, whatever was in flight when something changed.
fn assert_arrives(bed: &Bed) {
    let all = (0..3).any(|_| exchange(bed, "10.99.0.1", "10.99.0.2", 20) == 20);
    assert!(all, "packets do not arrive");
}

/// Waits until a node has looked at `count` more packets that are no neighbour's than `before`.
fn wait_for_refusals(node: &Runtime, before: u64, count: usize) {
    let wanted = before + count as u64;
    wait_until("they are refused", || verdict(node, "drop_not_neighbour") >= wanted);
}

/// The source address of packets changes, as behind a NAT that lost its mappings. Recorded,
/// reflected, delayed or modified packets do not move the neighbour.
#[test]
fn neighbour_is_followed_to_another_address_and_port_and_copies_do_not_move_it() {
    let Some(bed) = Bed::of_queues(1) else { return };
    let middle = Middle::between(&bed);
    let keys = keys();
    let left = node(&keys, 0, ("10.7.0.1", "10.7.0.254"), "10.99.0.1");
    let right = node(&keys, 1, ("10.7.1.2", "10.7.1.254"), "10.99.0.2");
    let sender = inside(&bed.left, || start(&left, vec![source(7)]).unwrap());
    let receiver = inside(&bed.right, || start(&right, vec![sink(7)]).unwrap());
    wait_for_keys(&[&sender, &receiver]);
    assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 100), 100);
    assert_eq!((neighbour(&receiver).endpoint, neighbour(&receiver).moves), (None, 0));

    let [of_left, of_right] = middle.seen();
    let is_handshake = |packet: &Vec<u8>| packet[0] & 15 == 7 && packet.len() > 60;
    let handshakes = of_left.iter().filter(|packet| is_handshake(packet)).count();
    assert!(handshakes > 0 && of_left.len() > 100 && !of_right.is_empty());
    let before = verdict(&receiver, "drop_not_neighbour");
    for packet in &of_left {
        middle.send(1, packet);
        let mut changed = packet.clone();
        changed[packet.len() / 2] ^= 1;
        middle.send(1, &changed);
    }
    of_right.iter().for_each(|packet| middle.send(1, packet));
    // The key thread refuses handshake messages, as many as are checked.
    let sent = 2 * (of_left.len() - handshakes);
    wait_for_refusals(&receiver, before, sent);
    assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 100), 100);
    assert_eq!((neighbour(&receiver).moves, elsewhere(&receiver)), (0, 0));
    assert_eq!(middle.back(1), 0, "not even an answer leaves for there");

    for (place, moves) in [(1, 1), (2, 2)] {
        middle.go_to(place);
        let arrived = exchange(&bed, "10.99.0.1", "10.99.0.2", 200);
        assert_eq!(arrived, 200, "{:#?}", receiver.report().links[0]);
        let HopReport { endpoint, moves: moved, .. } = neighbour(&receiver);
        assert_eq!((endpoint, moved), (Some(PLACES[place].parse().unwrap()), moves));
        wait_until("answers go there", || middle.back(place) > 0);
        assert!(elsewhere(&receiver) > 0, "it was recognised by its tags");
    }

    // An overtaken packet is authentic, but does not show the neighbour's place.
    let before = elsewhere(&receiver);
    middle.state.holds.store(true, Relaxed);
    exchange(&bed, "10.99.0.1", "10.99.0.2", 50);
    let held = middle.state.held.lock().unwrap().take().expect("a packet was held back");
    middle.send(0, &held);
    wait_until("it is recognised", || elsewhere(&receiver) == before + 1);
    middle.send(0, &held);
    assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 50), 50);
    let HopReport { endpoint, moves, .. } = neighbour(&receiver);
    assert_eq!((endpoint, moves), (Some(PLACES[2].parse().unwrap()), 2));
    assert!(receiver.is_healthy() && sender.is_healthy());
    [sender, receiver].into_iter().for_each(|node| drop(node.stop()));
}

/// A host that moved and restarted has no keys: its handshake comes from an address that no node
/// expects, and is answered there.
#[test]
fn neighbour_that_starts_again_elsewhere_is_heard() {
    let Some(bed) = Bed::of_queues(1) else { return };
    let middle = Middle::between(&bed);
    let keys = keys();
    let left = node(&keys, 0, ("10.7.0.1", "10.7.0.254"), "10.99.0.1");
    let right = node(&keys, 1, ("10.7.1.2", "10.7.1.254"), "10.99.0.2");
    let receiver = inside(&bed.right, || start(&right, vec![sink(7)]).unwrap());
    // No packets return to the place that the right node knows.
    for (place, name) in PLACES.iter().enumerate().skip(1) {
        middle.go_to(place);
        let sender = inside(&bed.left, || start(&left, vec![source(7)]).unwrap());
        let expected = Some(name.parse().unwrap());
        wait_for_keys(&[&sender]);
        wait_until("it is found", || neighbour(&receiver).endpoint == expected);
        assert_arrives(&bed);
        sender.stop();
    }
    // Another host, whose key is not known, gets no reply.
    let other = [self::keys()[0].clone(), keys[1].clone()];
    let unknown = node(&other, 0, ("10.7.0.1", "10.7.0.254"), "10.99.0.1");
    middle.go_to(1);
    let before = middle.back(1);
    let sender = inside(&bed.left, || start(&unknown, vec![source(7)]).unwrap());
    let handshakes = receiver.report().links[0].counters.rx_handshakes;
    wait_until("its handshakes come", || {
        receiver.report().links[0].counters.rx_handshakes > handshakes + 2
    });
    assert_eq!(middle.back(1), before, "no answer");
    assert_eq!(neighbour(&receiver).endpoint, Some(PLACES[2].parse().unwrap()));
    [sender, receiver].into_iter().for_each(|node| drop(node.stop()));
}

/// A host whose own address changes, and whose configuration has none.
#[test]
fn host_without_an_address_of_its_own_moves_and_goes_on() {
    let Some(bed) = Bed::of_queues(1) else { return };
    for (any, [first, second], right_address) in [
        ("0.0.0.0", ["10.7.0.1/24", "10.7.0.9/24"], "10.7.0.2"),
        ("::", ["fd07::1/64", "fd07::9/64"], "fd07::2"),
    ] {
        let keys = keys();
        let known = first.split('/').next().unwrap();
        let left = node(&keys, 0, (any, right_address), "10.99.0.1");
        let right = node(&keys, 1, (right_address, known), "10.99.0.2");
        let sender = inside(&bed.left, || start(&left, vec![source(7)]).unwrap());
        let receiver = inside(&bed.right, || start(&right, vec![sink(7)]).unwrap());
        wait_for_keys(&[&sender, &receiver]);
        assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 50), 50);
        assert_eq!(neighbour(&receiver).moves, 0);
        let nodad = if any == "::" { " nodad" } else { "" };
        ip(&format!("-n {} addr del {first} dev eth0", bed.left));
        ip(&format!("-n {} addr add {second} dev eth0{nodad}", bed.left));
        assert_arrives(&bed);
        let moved = neighbour(&receiver).endpoint.expect("it moved");
        let expected = second.split('/').next().unwrap();
        assert_eq!(moved, SocketAddr::new(expected.parse().unwrap(), 9426));
        [sender, receiver].into_iter().for_each(|node| drop(node.stop()));
    }
}
