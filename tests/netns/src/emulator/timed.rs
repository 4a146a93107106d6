//! Timed links: handles of the links that the thread of [`super::carrier`] carries.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::{Pid, gettid};

use super::carrier::{Carrier, Lane, Link, Order};
use super::port::Port;
use super::random::Random;
use crate::BedError;
use crate::config::LinkConfig;
use crate::counters::LinkCounters;
use crate::namespace::Namespace;
use crate::process;

/// Timeout for an answer of the thread.
const PATIENCE: Duration = Duration::from_secs(5);

/// The timed links of a bed, and the thread that they share.
#[derive(Debug, Default)]
pub(crate) struct TimedLinks {
    thread: Option<Arc<Thread>>,
    count: usize,
}

/// A timed link. The thread ends when all of them and [`TimedLinks`] are dropped.
#[derive(Debug)]
pub(crate) struct Timed {
    place: String,
    number: usize,
    thread: Arc<Thread>,
}

/// The thread.
#[derive(Debug)]
struct Thread {
    orders: Option<Sender<(Order, SyncSender<LinkCounters>)>>,
    /// A byte here ends the thread's wait.
    bell: UnixStream,
    tid: Pid,
    thread: Option<JoinHandle<()>>,
}

impl TimedLinks {
    /// Starts to carry packets between `west` and `east` of a namespace.
    pub fn add(
        &mut self,
        namespace: &Namespace,
        config: &LinkConfig,
        random: [Random; 2],
    ) -> Result<Timed, BedError> {
        let lane = open_lane(namespace)?;
        let thread = match &self.thread {
            Some(thread) => Arc::clone(thread),
            None => Arc::new(Thread::start().map_err(BedError::system("thread of the links"))?),
        };
        self.thread = Some(Arc::clone(&thread));
        let timed = Timed { place: place(namespace), number: self.count, thread };
        timed.ask(Order::Add(Box::new(Link::new(lane, config, random))))?;
        self.count += 1;
        Ok(timed)
    }

    /// Processor time of the thread; none if there is no timed link.
    pub fn processor_time(&self) -> Result<Duration, BedError> {
        let thread = self.thread.as_ref();
        thread.map_or(Ok(Duration::ZERO), |thread| process::processor_time_of_thread(thread.tid))
    }
}

impl Timed {
    /// Carries packets between `west` and `east` of another namespace over the same link.
    pub fn join(&self, namespace: &Namespace) -> Result<Timed, BedError> {
        let (number, thread) = (self.number, Arc::clone(&self.thread));
        let timed = Timed { place: place(namespace), number, thread };
        timed.ask(Order::Join(number, Box::new(open_lane(namespace)?)))?;
        Ok(timed)
    }

    pub fn set(&self, config: LinkConfig) -> Result<(), BedError> {
        self.ask(Order::Configure(self.number, Box::new(config))).map(drop)
    }

    pub fn counters(&self) -> Result<LinkCounters, BedError> {
        self.ask(Order::Report(self.number))
    }

    pub fn reset_sojourns(&self) -> Result<(), BedError> {
        self.ask(Order::ResetSojourns(self.number)).map(drop)
    }

    fn ask(&self, order: Order) -> Result<LinkCounters, BedError> {
        let failed =
            |detail: &str| BedError::Emulator { place: self.place.clone(), detail: detail.into() };
        let (reply, answer) = sync_channel(1);
        let orders = self.thread.orders.as_ref();
        let orders = orders.ok_or_else(|| failed("its thread has been ended"))?;
        orders.send((order, reply)).map_err(|_| failed("its thread has ended"))?;
        self.thread.ring();
        answer.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => failed("its thread does not answer"),
            RecvTimeoutError::Disconnected => failed("its thread has ended"),
        })
    }
}

fn place(namespace: &Namespace) -> String {
    format!("west and east of {}", namespace.name())
}

fn open_lane(namespace: &Namespace) -> Result<Lane, BedError> {
    let opened = namespace.inside(|| Ok([Port::open("west")?, Port::open("east")?]))?;
    opened.map_err(BedError::system(format!("packet sockets of {}", place(namespace))))
}

impl Thread {
    fn start() -> std::io::Result<Thread> {
        let (bell, alarm) = UnixStream::pair()?;
        alarm.set_nonblocking(true)?;
        let (orders, inbox) = channel();
        let builder = std::thread::Builder::new().name("links".into());
        let (own, tid) = sync_channel(1);
        let run = move || {
            // It is waited for.
            let _ = own.send(gettid());
            Carrier::new(alarm).run(&inbox);
        };
        let thread = builder.spawn(run)?;
        let tid = tid.recv().map_err(std::io::Error::other)?;
        Ok(Thread { orders: Some(orders), bell, tid, thread: Some(thread) })
    }

    fn ring(&self) {
        // A full socket has rung already.
        let _ = std::io::Write::write(&mut &self.bell, &[1]);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.orders = None;
        self.ring();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed, and the next order fails.
            let _ = thread.join();
        }
    }
}
