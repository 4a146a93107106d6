//! Many receivers on one computer: servers of this crate on threads, viewers on others, and a few
//! complete clients that decode and verify what they get.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::time::ClockId;

use crate::client::{Client, ClientLimits};
use crate::error::Error;
use crate::keys::KeyPair;
use crate::manifest::{ContentId, Layout};
use crate::measure::encode::{cpu_time, example};
use crate::measure::viewer::Viewer;
use crate::node::{Buffers, ServeOptions, Serving, Socket, unpredictable};
use crate::server::{Counters, Limits, ServerKeys};

/// Longest time until all peers have sessions.
const JOIN: Duration = Duration::from_secs(15);

/// Time between the last session and the measurement.
const WARM_UP: Duration = Duration::from_secs(2);

/// Complete clients among the peers: enough to show that the content is right, few enough not to
/// measure decoding.
const CLIENTS: u32 = 4;

/// A load.
#[derive(Copy, Clone, Debug)]
pub struct LoadOptions {
    /// Receivers.
    pub peers: u32,
    /// Content for each, in kbit/s.
    pub rate_kbit: u32,
    /// Duration of the measurement.
    pub time: Duration,
    /// Threads that serve.
    pub workers: usize,
    /// Sizes of the content.
    pub layout: Layout,
    /// Segments made ahead.
    pub segments_ahead: usize,
    /// Most bytes at once for each peer.
    pub burst_bytes: u64,
}

/// The result of a load.
#[derive(Clone, Debug)]
pub struct Load {
    /// Receivers that got a session.
    pub joined: u32,
    /// Receivers that got their rate, but for one burst.
    pub sustained: u32,
    /// Bytes of content that all of them got.
    pub bytes: u64,
    /// Duration of the measurement.
    pub time: Duration,
    /// Processor time of servers and receivers together, in user and system mode.
    pub cpu: Duration,
    /// Segments that complete clients decoded and verified.
    pub verified_segments: u32,
    /// Blocks, checks and segments that they found wrong.
    pub wrong: u64,
    /// Counters of the servers.
    pub counters: Counters,
}

/// Runs a load.
///
/// # Errors
/// Sockets cannot be created.
pub fn load(options: &LoadOptions) -> Result<Load, Error> {
    let source = KeyPair::new(unpredictable()?);
    let layout = options.layout;
    let store = example(&layout, *source.public()).ok_or(Error::ContentHash)?;
    let datagram_bytes = u64::from(layout.block_bytes) + 31;
    // Headers count, and three percent are left to catch up.
    let rate = u64::from(options.rate_kbit) * datagram_bytes * 103;
    let rate_kbit = (rate / (u64::from(layout.block_bytes) * 100)) as u32 + 1;
    let serve = ServeOptions {
        listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
        workers: options.workers,
        limits: Limits {
            peers: options.peers as usize * 2,
            // All receivers have the address of the loopback interface.
            peers_per_host: usize::MAX,
            segments_ahead: options.segments_ahead,
            burst_bytes: options.burst_bytes,
            ..Limits::default()
        },
        keys: ServerKeys { source: Some(source), datagrams: None },
    };
    let serving = Serving::start(&store, &serve)?;
    let id = store.manifest().id();
    let address = serving.addresses().first().copied();
    let address = address.ok_or(Error::ContentHash)?;
    let threads = options.workers as u32;
    let shared = Shared::default();
    let receivers: Vec<Receivers> = (0..threads)
        .map(|thread| Receivers::new(options, thread, threads, Target { address, id, rate_kbit }))
        .collect::<Result<_, _>>()?;
    let mut load = std::thread::scope(|scope| {
        for receivers in receivers {
            let shared = &shared;
            scope.spawn(move || receivers.run(shared));
        }
        let joined = shared.wait_for(options.peers);
        std::thread::sleep(WARM_UP);
        let (start, before, cpu) =
            (Instant::now(), shared.bytes(), cpu_time(ClockId::ProcessCPUTime));
        std::thread::sleep(options.time);
        let cpu = cpu_time(ClockId::ProcessCPUTime).saturating_sub(cpu);
        let (time, after, counters) = (start.elapsed(), shared.bytes(), serving.counters());
        // Relaxed: the flag orders no other memory.
        shared.is_stopping.store(true, Ordering::Relaxed);
        let wanted = f64::from(options.rate_kbit) * 125.0 * time.as_secs_f64();
        let wanted = wanted - options.burst_bytes as f64;
        let gained = || after.iter().zip(&before).map(|(after, before)| after - before);
        Load {
            joined,
            sustained: gained().filter(|&bytes| bytes as f64 >= wanted).count() as u32,
            bytes: gained().sum(),
            time,
            cpu,
            verified_segments: 0,
            wrong: 0,
            counters,
        }
    });
    let clients = shared.clients.into_inner().unwrap_or_else(PoisonError::into_inner);
    (load.verified_segments, load.wrong) = (clients.verified, clients.wrong);
    Ok(load)
}

/// Results that threads publish.
#[derive(Default)]
struct Shared {
    is_stopping: AtomicBool,
    threads: Mutex<Vec<Arc<Mutex<Published>>>>,
    clients: Mutex<Clients>,
}

#[derive(Default)]
struct Published {
    bytes: Vec<u64>,
    joined: u32,
}

#[derive(Default)]
struct Clients {
    verified: u32,
    wrong: u64,
}

impl Shared {
    fn threads(&self) -> Vec<Arc<Mutex<Published>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn bytes(&self) -> Vec<u64> {
        let bytes = |thread: &Arc<Mutex<Published>>| {
            thread.lock().unwrap_or_else(PoisonError::into_inner).bytes.clone()
        };
        self.threads().iter().flat_map(bytes).collect()
    }

    fn wait_for(&self, peers: u32) -> u32 {
        let start = Instant::now();
        loop {
            let joined = |thread: &Arc<Mutex<Published>>| {
                thread.lock().unwrap_or_else(PoisonError::into_inner).joined
            };
            let joined = self.threads().iter().map(joined).sum();
            if joined >= peers || start.elapsed() > JOIN {
                return joined;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What receivers fetch.
#[derive(Copy, Clone)]
struct Target {
    address: SocketAddr,
    id: ContentId,
    rate_kbit: u32,
}

enum Receiver {
    Viewer(Viewer),
    Client(Box<Client>),
}

/// The receivers of one thread.
struct Receivers {
    sockets: Vec<Socket>,
    receivers: Vec<Receiver>,
}

impl Receivers {
    fn new(
        options: &LoadOptions,
        thread: u32,
        threads: u32,
        target: Target,
    ) -> Result<Self, Error> {
        let Target { address, id, rate_kbit } = target;
        let numbers = (0..options.peers).filter(|number| number % threads == thread);
        let mut receivers = Self { sockets: Vec::new(), receivers: Vec::new() };
        for number in numbers {
            receivers.sockets.push(Socket::connect(address)?);
            receivers.receivers.push(if number < CLIENTS {
                let limits = ClientLimits { rate_kbit, window: 4, is_sharing: false };
                Receiver::Client(Box::new(Client::new(id, None, limits, 1, &unpredictable()?)))
            } else {
                Receiver::Viewer(Viewer::new(id, options.layout, number, rate_kbit))
            });
        }
        Ok(receivers)
    }

    fn run(mut self, shared: &Shared) {
        let published = Arc::new(Mutex::new(Published::default()));
        let threads = &shared.threads;
        threads.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&published));
        let Ok(poller) = epoll::create(epoll::CreateFlags::CLOEXEC) else { return };
        for (number, socket) in self.sockets.iter().enumerate() {
            let data = epoll::EventData::new_u64(number as u64);
            if epoll::add(&poller, &socket.io, data, epoll::EventFlags::IN).is_err() {
                return;
            }
        }
        let (start, mut buffers) = (Instant::now(), Buffers::new());
        let (mut events, mut polled_at) = (Vec::with_capacity(1024), None::<Instant>);
        while !shared.is_stopping.load(Ordering::Relaxed) {
            events.clear();
            let time = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
            let _ = epoll::wait(&poller, spare_capacity(&mut events), Some(&time));
            let now = start.elapsed().as_nanos() as u64;
            for event in &events {
                let number = event.data.u64() as usize;
                self.receive(now, number, &mut buffers);
                self.poll(now, number);
            }
            if polled_at.is_none_or(|at| at.elapsed() > Duration::from_millis(5)) {
                polled_at = Some(Instant::now());
                (0..self.sockets.len()).for_each(|number| self.poll(now, number));
                self.publish(&published);
            }
        }
        self.finish(shared);
    }

    fn receive(&mut self, now: u64, number: usize, buffers: &mut Buffers) {
        let receiver = &mut self.receivers[number];
        self.sockets[number].receive(buffers, |_, datagram| match receiver {
            Receiver::Viewer(viewer) => viewer.handle(datagram),
            Receiver::Client(client) => client.handle(now, 0, datagram),
        });
    }

    fn poll(&mut self, now: u64, number: usize) {
        let socket = &self.sockets[number].io;
        match &mut self.receivers[number] {
            Receiver::Viewer(viewer) => {
                if let Some(message) = viewer.poll(now) {
                    let mut bytes = Vec::with_capacity(128);
                    message.write(&mut bytes);
                    let _ = socket.send(&bytes);
                }
            }
            Receiver::Client(client) => client.poll(now, |_, bytes| drop(socket.send(bytes))),
        }
    }

    fn publish(&self, published: &Mutex<Published>) {
        let mut published = published.lock().unwrap_or_else(PoisonError::into_inner);
        published.joined =
            self.receivers.iter().filter(|receiver| receiver.is_open()).count() as u32;
        published.bytes.clear();
        published.bytes.extend(self.receivers.iter().map(Receiver::bytes));
    }

    fn finish(self, shared: &Shared) {
        let mut clients = shared.clients.lock().unwrap_or_else(PoisonError::into_inner);
        for receiver in &self.receivers {
            if let Receiver::Client(client) = receiver {
                let progress = client.progress();
                clients.verified += progress.segments;
                clients.wrong += progress.forged + progress.wrong_segments;
            }
        }
    }
}

impl Receiver {
    fn is_open(&self) -> bool {
        match self {
            Self::Viewer(viewer) => viewer.is_open(),
            Self::Client(client) => client.store().is_some(),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Viewer(viewer) => viewer.bytes,
            // Clients receive what they asked for; blocks of the content, as for viewers.
            Self::Client(client) => client.store().map_or(0, |store| {
                client.progress().innovative * u64::from(store.layout().block_bytes)
            }),
        }
    }
}
