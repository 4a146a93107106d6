//! The thread of all timed links of a bed: moves the packets of both directions of each link
//! through [`super::model::Direction`].
//!
//! Waking for every packet would cost more than carrying it, and waking for every link as much as
//! carrying its packets. While packets flow, the thread sleeps from tick to tick and then moves all
//! packets that arrived on any link, and all that are due within half a tick. Arrival times are
//! Linux's own, so queues and delays do not depend on when it wakes. Otherwise it waits for the
//! next packet or order.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use nix::sys::socket::MultiHeaders;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::model::{Direction, Packet};
use super::port::{BURST, Burst, Kind, Port, send_headers};
use super::random::Random;
use crate::config::LinkConfig;
use crate::counters::LinkCounters;
use crate::process;

/// An order for the thread, about the link with a given number. It answers with the link's
/// counters.
pub(super) enum Order {
    /// Carry another link, with the next number.
    Add(Box<Link>),
    /// Carry the packets of a further line of hosts.
    Join(usize, Box<Lane>),
    Report(usize),
    Configure(usize, Box<LinkConfig>),
    ResetSojourns(usize),
}

/// Time per active link between two polls, so that a poll finds several packets on each.
const TICK_OF_LINK: Duration = Duration::from_micros(25);

/// Bounds of the tick, for no delay and for long delays. Shorter ticks cost too much; longer ones
/// show in the delay of a short link.
const TICK_MIN: Duration = Duration::from_micros(100);
const TICK_MAX: Duration = Duration::from_micros(250);

/// Minimum pause between two polls: the hosts behind the links need the core, too.
const PAUSE: Duration = Duration::from_micros(25);

/// Ticks per delay.
const TICKS: u64 = 50;

/// How long a link counts as active after its last packet.
const ACTIVE: Duration = Duration::from_micros(500);

/// How often IPv6 and ARP are looked for while IPv4 flows.
const OTHERS: Duration = Duration::from_millis(1);

/// Allowed lateness of a timer, in nanoseconds, so that Linux can coalesce it with others.
const TIMER_SLACK_NANOS: u32 = 5_000;

/// If Linux does not grant real-time priority, the thread gets the largest share of a core.
const NICE: i32 = -20;

/// Ports of one line of hosts on a link: west and east.
pub(super) type Lane = [Port; 2];

/// A direction, with its arriving and departing packets.
struct Way {
    direction: Direction,
    /// Packets of the bursts, as (arrival time, lane, number in its burst).
    arrived: Vec<(u64, usize, usize)>,
    /// Packets about to be sent, by lane.
    leaving: Vec<Vec<Packet>>,
}

impl Way {
    fn new(direction: Direction) -> Way {
        Way { direction, arrived: Vec::new(), leaving: Vec::new() }
    }

    fn add_lane(&mut self) {
        self.arrived.reserve(BURST * (self.leaving.len() + 1));
        self.leaving.push(Vec::with_capacity(BURST));
    }

    /// Receives the packets waiting at `ports`, one of each lane; returns their number.
    fn take<'a>(
        &mut self,
        ports: impl Iterator<Item = &'a Port> + Clone,
        bursts: &mut [Burst],
        others: bool,
        started: Instant,
    ) -> usize {
        let mut taken = 0;
        let kinds = if others { &[Kind::Ipv6, Kind::Arp, Kind::Ipv4][..] } else { &[Kind::Ipv4] };
        for kind in kinds {
            let mut most = BURST;
            while most == BURST {
                let received = ports.clone().zip(&mut *bursts);
                let counts = received.map(|(port, burst)| port.receive(*kind, burst));
                (taken, most) =
                    counts.fold((taken, 0), |(sum, most), count| (sum + count, most.max(count)));
                self.enter(bursts, started);
            }
        }
        taken
    }

    /// Enters the packets of all lanes in order of arrival.
    fn enter(&mut self, bursts: &mut [Burst], started: Instant) {
        let now = nanos(started.elapsed());
        self.arrived.clear();
        for (lane, burst) in bursts.iter().enumerate().take(self.leaving.len()) {
            // A change of the clock must not produce packets from long ago.
            let ages = burst.ages().map(|age| nanos(age.min(Duration::from_millis(100))));
            let packets =
                ages.enumerate().map(|(number, age)| (now.saturating_sub(age), lane, number));
            self.arrived.extend(packets);
        }
        self.arrived.sort_unstable();
        for (at, lane, number) in self.arrived.drain(..) {
            let (frame, length) = bursts[lane].packet(number);
            self.direction.enter(at, frame, length, lane);
        }
    }

    /// Sends the packets due until `now` through `ports`, one of each lane.
    fn send<'a>(
        &mut self,
        ports: impl Iterator<Item = &'a Port> + Clone,
        headers: &mut MultiHeaders<()>,
        now: u64,
    ) {
        self.direction.serve(now);
        loop {
            let mut count = 0;
            while count < BURST {
                let Some(packet) = self.direction.leave(now) else { break };
                self.leaving[packet.lane()].push(packet);
                count += 1;
            }
            if count == 0 {
                return;
            }
            for (packets, port) in self.leaving.iter_mut().zip(ports.clone()) {
                while !packets.is_empty() {
                    let sent = port.send(packets, headers);
                    // A packet that Linux refuses is lost; the ones behind it get their turn.
                    let gone = (sent + 1).min(packets.len());
                    for (number, packet) in packets.drain(..gone).enumerate() {
                        self.direction.recycle(packet, number >= sent);
                    }
                }
            }
        }
    }
}

/// The thread's state of a link.
pub(super) struct Link {
    lanes: Vec<Lane>,
    /// Eastward and westward.
    ways: [Way; 2],
}

impl Link {
    /// A link with the memory that its settings need.
    pub fn new(lane: Lane, config: &LinkConfig, random: [Random; 2]) -> Link {
        let [east, west] = random;
        let ways = [
            Way::new(Direction::new(config.eastward, east)),
            Way::new(Direction::new(config.westward, west)),
        ];
        let mut link = Link { lanes: Vec::new(), ways };
        link.join(lane);
        link
    }

    /// Carries the packets of one more line of hosts.
    fn join(&mut self, lane: Lane) {
        self.lanes.push(lane);
        self.ways.iter_mut().for_each(Way::add_lane);
    }

    fn take(&mut self, bursts: &mut [Burst], others: bool, started: Instant) -> usize {
        let [eastward, westward] = &mut self.ways;
        eastward.take(self.lanes.iter().map(|lane| &lane[0]), bursts, others, started)
            + westward.take(self.lanes.iter().map(|lane| &lane[1]), bursts, others, started)
    }

    fn send(&mut self, headers: &mut MultiHeaders<()>, until: u64) {
        let [eastward, westward] = &mut self.ways;
        eastward.send(self.lanes.iter().map(|lane| &lane[1]), headers, until);
        westward.send(self.lanes.iter().map(|lane| &lane[0]), headers, until);
    }

    fn configure(&mut self, now: u64, config: &LinkConfig) {
        self.ways[0].direction.configure(now, config.eastward);
        self.ways[1].direction.configure(now, config.westward);
    }

    fn counters(&mut self, now: u64) -> LinkCounters {
        let [eastward, westward] = self.ways.each_mut().map(|way| way.direction.counters(now));
        LinkCounters { eastward, westward }
    }
}

/// State of the thread.
pub(super) struct Carrier {
    links: Vec<Link>,
    /// One for each lane of the link that has most.
    bursts: Vec<Burst>,
    alarm: UnixStream,
    started: Instant,
    /// When to poll for IPv6 and ARP again.
    others_at: u64,
    tick: Duration,
    /// The least delay of any link.
    delay: u64,
}

impl Carrier {
    /// Without links yet; a byte from `alarm` ends its wait.
    pub fn new(alarm: UnixStream) -> Carrier {
        let (links, bursts, started) = (Vec::new(), Vec::new(), Instant::now());
        Carrier { links, bursts, alarm, started, others_at: 0, tick: TICK_MIN, delay: 0 }
    }

    /// Carries packets and executes orders until the other end of `inbox` is dropped.
    pub fn run(mut self, inbox: &Receiver<(Order, SyncSender<LinkCounters>)>) {
        be_prompt();
        let mut headers = send_headers();
        let mut active_until = 0;
        loop {
            loop {
                match inbox.try_recv() {
                    Ok((order, reply)) => self.obey(order, &reply),
                    Err(TryRecvError::Disconnected) => return,
                    Err(TryRecvError::Empty) => break,
                }
            }
            let began = self.now();
            if self.carry(&mut headers, began) > 0 {
                active_until = began + nanos(ACTIVE);
            }
            let now = self.now();
            let due = self.ways().filter_map(|way| way.direction.next_due()).min();
            if now < active_until {
                // Polls at most a tick late, but not before a packet can be due.
                let look = now + (self.delay / 2).min(nanos(2 * TICK_MAX));
                let next = (began + nanos(self.tick)).max(now + nanos(PAUSE));
                let until = due.unwrap_or(look).min(look).max(next);
                std::thread::sleep(Duration::from_nanos(until - now));
            } else {
                self.wait(due.map(|due| Duration::from_nanos(due.saturating_sub(now))));
            }
        }
    }

    fn now(&self) -> u64 {
        nanos(self.started.elapsed())
    }

    fn ways(&self) -> impl Iterator<Item = &Way> {
        self.links.iter().flat_map(|link| &link.ways)
    }

    fn obey(&mut self, order: Order, reply: &SyncSender<LinkCounters>) {
        let now = self.now();
        let number = match order {
            Order::Add(link) => {
                self.links.push(*link);
                self.links.len() - 1
            }
            Order::Join(number, lane) => {
                self.links[number].join(*lane);
                number
            }
            Order::Report(number) => number,
            Order::Configure(number, config) => {
                self.links[number].configure(now, &config);
                number
            }
            Order::ResetSojourns(number) => {
                let ways = &mut self.links[number].ways;
                ways.iter_mut().for_each(|way| way.direction.reset_sojourn());
                number
            }
        };
        self.delay = self.ways().map(|way| way.direction.delay()).min().unwrap_or(0);
        let tick = Duration::from_nanos(self.delay / TICKS);
        self.tick = tick.max(TICK_OF_LINK * self.links.len() as u32).clamp(TICK_MIN, TICK_MAX);
        let lanes = self.links.iter().map(|link| link.lanes.len()).max().unwrap_or(0);
        self.bursts.resize_with(lanes, Burst::new);
        // An order that is no longer waited for has failed already.
        let _ = reply.try_send(self.links[number].counters(now));
    }

    /// Moves arrived packets, and packets due within half a tick; returns the number of arrived
    /// ones.
    fn carry(&mut self, headers: &mut MultiHeaders<()>, now: u64) -> usize {
        let others = now >= self.others_at;
        if others {
            self.others_at = now + nanos(OTHERS);
        }
        let links = self.links.iter_mut();
        let taken = links.map(|link| link.take(&mut self.bursts, others, self.started)).sum();
        let until = self.now() + nanos(self.tick) / 2;
        self.links.iter_mut().for_each(|link| link.send(headers, until));
        taken
    }

    /// Waits for a packet or an order, at most `limit`.
    fn wait(&mut self, limit: Option<Duration>) {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let sockets =
            self.links.iter().flat_map(|link| link.lanes.iter().flatten()).flat_map(Port::sockets);
        let mut sockets: Vec<PollFd<'_>> = sockets
            .chain([self.alarm.as_fd()])
            .map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN))
            .collect();
        // An interruption is as good as a timeout.
        let _ = poll(&mut sockets, limit.as_ref());
        self.others_at = 0;
        // Only how it wakes matters.
        let _ = std::io::Read::read(&mut &self.alarm, &mut [0; 64]);
    }
}

/// Lets the calling thread wake in time and run at once, as the packet path inside Linux does: a
/// link must not slow down because programs keep the cores busy. Linux limits such threads to 95 %
/// of a core. Without the privilege the link is only less precise on a busy machine.
fn be_prompt() {
    let _ = nix::sys::prctl::set_timerslack(TIMER_SLACK_NANOS.into());
    let thread = rustix::thread::gettid();
    let _ = rustix::process::setpriority_process(Some(thread), NICE);
    let number = thread.as_raw_nonzero().to_string();
    let _ = process::output(Command::new("chrt").args(["--fifo", "--pid", "10", &number]));
}

fn nanos(time: Duration) -> u64 {
    // Enough for 584 years.
    time.as_nanos() as u64
}
