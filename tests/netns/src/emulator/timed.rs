//! A link with time in it: one thread moves the packets of both directions through
//! [`super::model::Direction`].
//!
//! Waking for every packet would cost more than carrying it. While packets flow, the thread sleeps
//! from tick to tick and then moves all that has come and all that is due within half a tick; the
//! arrival times are Linux's own, so queues and delays do not depend on when it wakes. When nothing
//! flows, it waits for the next packet or command.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError};
use std::sync::mpsc::{channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::MultiHeaders;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::model::{Direction, Packet};
use super::port::{BURST, Burst, Port, send_headers};
use super::random::Random;
use crate::BedError;
use crate::config::LinkConfig;
use crate::counters::LinkCounters;
use crate::namespace::Namespace;
use crate::process;

/// Time between two looks at a link that carries packets, at no delay and at long delays. Shorter
/// ones cost a core at four links; longer ones show in the delay of a short link.
const TICK_MIN: Duration = Duration::from_micros(100);
const TICK_MAX: Duration = Duration::from_micros(250);

/// Ticks per delay.
const TICKS: u64 = 50;

/// How long a link counts as carrying packets after the last one came.
const ACTIVE: Duration = Duration::from_micros(500);

/// How often IPv6 and ARP are looked for while IPv4 flows.
const OTHERS: Duration = Duration::from_millis(1);

/// How late a timer may be, in nanoseconds, so that Linux can join it with others.
const TIMER_SLACK_NANOS: u32 = 5_000;

/// Where Linux does not run the thread before all others, it gets the most of a core.
const NICE: i32 = -20;

/// How long the thread may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the thread is asked; it answers with the counters.
enum Order {
    Report,
    Configure(Box<LinkConfig>),
    ResetSojourns,
}

/// The thread of a link. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct Timed {
    place: String,
    orders: Option<Sender<(Order, SyncSender<LinkCounters>)>>,
    /// A byte here ends the thread's wait.
    bell: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Timed {
    /// Starts to carry packets between `west` and `east` of a namespace.
    pub fn start(
        namespace: &Namespace,
        config: &LinkConfig,
        random: [Random; 2],
    ) -> Result<Timed, BedError> {
        let place = format!("west and east of {}", namespace.name());
        let system = |what: &str| BedError::system(format!("{what} of the link {place}"));
        let ports = namespace
            .inside(|| Ok([Port::open("west")?, Port::open("east")?]))?
            .map_err(system("packet sockets"))?;
        let (bell, alarm) = UnixStream::pair().map_err(system("socket pair"))?;
        alarm.set_nonblocking(true).map_err(system("socket pair"))?;
        let (orders, inbox) = channel();
        let [east, west] = random;
        let config = *config;
        let run = move || {
            let ways = [
                Way::new(Direction::new(config.eastward, east)),
                Way::new(Direction::new(config.westward, west)),
            ];
            Carrier { ports, ways, alarm, started: Instant::now(), others_at: 0 }.run(&inbox);
        };
        let builder = std::thread::Builder::new().name(namespace.name().to_owned());
        let thread = builder.spawn(run).map_err(system("thread"))?;
        let timed = Timed { place, orders: Some(orders), bell, thread: Some(thread) };
        // Its memory is there once it answers.
        timed.ask(Order::Report)?;
        Ok(timed)
    }

    pub fn set(&self, config: LinkConfig) -> Result<(), BedError> {
        self.ask(Order::Configure(Box::new(config))).map(drop)
    }

    pub fn counters(&self) -> Result<LinkCounters, BedError> {
        self.ask(Order::Report)
    }

    pub fn reset_sojourns(&self) -> Result<(), BedError> {
        self.ask(Order::ResetSojourns).map(drop)
    }

    fn ask(&self, order: Order) -> Result<LinkCounters, BedError> {
        let failed =
            |detail: &str| BedError::Emulator { place: self.place.clone(), detail: detail.into() };
        let (reply, answer) = sync_channel(1);
        let orders = self.orders.as_ref().ok_or_else(|| failed("its thread has been ended"))?;
        orders.send((order, reply)).map_err(|_| failed("its thread has ended"))?;
        self.ring();
        answer.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => failed("its thread does not answer"),
            RecvTimeoutError::Disconnected => failed("its thread has ended"),
        })
    }

    fn ring(&self) {
        // A full socket has rung already.
        let _ = std::io::Write::write(&mut &self.bell, &[1]);
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.orders = None;
        self.ring();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed, and the next order fails.
            let _ = thread.join();
        }
    }
}

/// A direction, and the packets of it that are about to be sent.
struct Way {
    direction: Direction,
    out: Vec<Packet>,
}

impl Way {
    fn new(direction: Direction) -> Way {
        Way { direction, out: Vec::with_capacity(BURST) }
    }

    /// Takes in what has come in by `port`; returns the number of packets.
    fn take(&mut self, port: &Port, burst: &mut Burst, others: bool, started: Instant) -> usize {
        let mut taken = 0;
        for other in (0..2).filter(|_| others) {
            let count = port.receive_other(other, burst);
            self.enter(burst, started);
            taken += count;
        }
        loop {
            let count = port.receive(burst);
            self.enter(burst, started);
            taken += count;
            if count < BURST {
                return taken;
            }
        }
    }

    fn enter(&mut self, burst: &mut Burst, started: Instant) {
        let now = nanos(started.elapsed());
        for (frame, length, age) in burst.packets() {
            // A clock that was set must not bring packets from long ago.
            let age = nanos(age.min(Duration::from_millis(100)));
            self.direction.enter(now.saturating_sub(age), frame, length);
        }
    }

    /// Sends by `port` what is due until `now`.
    fn send(&mut self, port: &Port, headers: &mut MultiHeaders<()>, now: u64) {
        self.direction.serve(now);
        loop {
            while self.out.len() < BURST {
                let Some(packet) = self.direction.leave(now) else { break };
                self.out.push(packet);
            }
            if self.out.is_empty() {
                return;
            }
            let sent = port.send(&self.out, headers);
            // What Linux refuses is lost; what is behind it gets its turn.
            let gone = (sent + 1).min(self.out.len());
            for (number, packet) in self.out.drain(..gone).enumerate() {
                self.direction.recycle(packet, number >= sent);
            }
        }
    }
}

/// What the thread works with.
struct Carrier {
    /// West and east.
    ports: [Port; 2],
    /// Eastward and westward.
    ways: [Way; 2],
    alarm: UnixStream,
    started: Instant,
    /// When to look for IPv6 and ARP again.
    others_at: u64,
}

impl Carrier {
    fn run(mut self, inbox: &Receiver<(Order, SyncSender<LinkCounters>)>) {
        be_prompt();
        let mut burst = Burst::new();
        let mut headers = send_headers();
        let mut active_until = 0;
        loop {
            match inbox.try_recv() {
                Ok((order, reply)) => self.obey(order, &reply),
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {}
            }
            let tick = self.tick();
            let now = self.now();
            if self.carry(&mut burst, &mut headers, now, nanos(tick) / 2) > 0 {
                active_until = now + nanos(ACTIVE);
            }
            let now = self.now();
            let due = self.ways.iter().filter_map(|way| way.direction.next_due()).min();
            if now < active_until {
                // Looking is late by at most a tick, but need not be before a packet can be due.
                let delay = self.ways.iter().map(|way| way.direction.delay()).min().unwrap_or(0);
                let look = now + (delay / 2).min(nanos(2 * TICK_MAX));
                let until = due.unwrap_or(look).min(look).max(now + nanos(tick));
                std::thread::sleep(Duration::from_nanos(until - now));
            } else {
                self.wait(due.map(|due| Duration::from_nanos(due.saturating_sub(now))));
            }
        }
    }

    fn now(&self) -> u64 {
        nanos(self.started.elapsed())
    }

    fn tick(&self) -> Duration {
        let delay = self.ways.iter().map(|way| way.direction.delay()).min().unwrap_or(0);
        Duration::from_nanos(delay / TICKS).clamp(TICK_MIN, TICK_MAX)
    }

    fn obey(&mut self, order: Order, reply: &SyncSender<LinkCounters>) {
        let now = self.now();
        let [eastward, westward] = &mut self.ways;
        let (eastward, westward) = (&mut eastward.direction, &mut westward.direction);
        match order {
            Order::Report => {}
            Order::Configure(config) => {
                eastward.configure(now, config.eastward);
                westward.configure(now, config.westward);
            }
            Order::ResetSojourns => {
                eastward.reset_sojourn();
                westward.reset_sojourn();
            }
        }
        let (eastward, westward) = (*eastward.counters(), *westward.counters());
        // An order that is no longer waited for has failed already.
        let _ = reply.try_send(LinkCounters { eastward, westward });
    }

    /// Moves what has come and what is due until `early` from now; returns the number that came.
    fn carry(
        &mut self,
        burst: &mut Burst,
        headers: &mut MultiHeaders<()>,
        now: u64,
        early: u64,
    ) -> usize {
        let others = now >= self.others_at;
        if others {
            self.others_at = now + nanos(OTHERS);
        }
        let mut taken = 0;
        for (way, port) in self.ways.iter_mut().zip(&self.ports) {
            taken += way.take(port, burst, others, self.started);
        }
        let until = self.now() + early;
        for (way, port) in self.ways.iter_mut().zip(self.ports.iter().rev()) {
            way.send(port, headers, until);
        }
        taken
    }

    /// Waits for a packet or an order, at most `limit`.
    fn wait(&mut self, limit: Option<Duration>) {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let [west, east] = &self.ports;
        let sockets = west.sockets().chain(east.sockets()).chain([self.alarm.as_fd()]);
        let mut sockets: Vec<PollFd<'_>> =
            sockets.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)).collect();
        // An interruption is as good as a timeout.
        let _ = poll(&mut sockets, limit.as_ref());
        self.others_at = 0;
        // Only how it wakes matters.
        let _ = std::io::Read::read(&mut &self.alarm, &mut [0; 64]);
    }
}

/// Lets the calling thread wake in time and run at once, as the packet path inside Linux does: a
/// link is not slow because programs keep the cores busy. Linux limits such threads to 95 % of a
/// core. What cannot be had makes the link less precise on a busy machine, and no more.
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
