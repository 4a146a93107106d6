//! Serves a store from threads: each has sockets, peers and buffers of its own, and no lock but
//! those of segments.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::Error;
use crate::node::socket::{Buffers, Socket};
use crate::node::unpredictable;
use crate::server::{Counters, Limits, Server, ServerKeys};
use crate::store::Store;

/// Interval between rounds that serve all peers. At half, threads wake up twice as often; at
/// twice, a burst of 16 KiB limits a peer to 32 Mbit/s.
const TICK: Duration = Duration::from_millis(2);

/// How often counters are published.
const PUBLISH: Duration = Duration::from_millis(100);

/// How a store is served.
#[derive(Clone)]
pub struct ServeOptions {
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Threads for each address.
    pub workers: usize,
    /// Limits; peers are those of all threads of an address.
    pub limits: Limits,
    /// Keys.
    pub keys: ServerKeys,
}

/// Threads that serve. They end when this is dropped.
pub struct Serving {
    addresses: Vec<SocketAddr>,
    is_stopping: Arc<AtomicBool>,
    counters: Vec<Arc<Mutex<Counters>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Serving {
    /// Binds the addresses and starts the threads.
    ///
    /// # Errors
    /// An address is in use or not of this host.
    pub fn start(store: &Arc<Store>, options: &ServeOptions) -> Result<Self, Error> {
        let mut serving = Self {
            addresses: Vec::new(),
            is_stopping: Arc::new(AtomicBool::new(false)),
            counters: Vec::new(),
            threads: Vec::new(),
        };
        let workers = options.workers.max(1);
        // Linux spreads peers by a hash of addresses, which is not even.
        let share = |count: usize| {
            let share = count.div_ceil(workers);
            if workers > 1 { share + share / 4 } else { share }
        };
        let limits = Limits {
            peers: share(options.limits.peers),
            peers_per_host: share(options.limits.peers_per_host),
            ..options.limits
        };
        let mut unsupported = None;
        for &address in &options.listen {
            // Fails if another program listens there, which sharing among threads would hide.
            match Socket::bind(address, false) {
                Err(error) if is_family_missing(address, &error) => {
                    unsupported = Some(error);
                    continue;
                }
                result => drop(result?),
            }
            // A port of 0 is chosen once.
            let mut bound = address;
            for _ in 0..workers {
                let socket = Socket::bind(bound, true)?;
                bound = socket.io.local_addr().map_err(|e| Error::io("listen on", bound, e))?;
                let seed = unpredictable()?;
                let keys = options.keys.clone();
                let server = Server::new(Arc::clone(store), keys, limits, &seed, 0);
                serving.spawn(socket, server);
            }
            serving.addresses.push(bound);
        }
        // Unspecified addresses name all interfaces, so one family without any is no fault.
        match unsupported {
            Some(error) if serving.addresses.is_empty() => Err(error),
            _ => Ok(serving),
        }
    }

    fn spawn(&mut self, socket: Socket, server: Server) {
        let counters = Arc::new(Mutex::new(Counters::default()));
        let worker = Worker {
            socket,
            server,
            counters: Arc::clone(&counters),
            is_stopping: Arc::clone(&self.is_stopping),
        };
        self.counters.push(counters);
        self.threads.push(std::thread::spawn(move || worker.run()));
    }

    /// The bound addresses.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Sum of the counters of all threads, at most 100 ms old.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for counters in &self.counters {
            sum.add(&counters.lock().unwrap_or_else(PoisonError::into_inner));
        }
        sum
    }
}

impl std::ops::Drop for Serving {
    fn drop(&mut self) {
        // Relaxed: the flag orders no other memory; joining does.
        self.is_stopping.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Worker {
    socket: Socket,
    server: Server,
    counters: Arc<Mutex<Counters>>,
    is_stopping: Arc<AtomicBool>,
}

impl Worker {
    fn run(mut self) {
        let start = Instant::now();
        let mut buffers = Buffers::new();
        let (mut served_at, mut published_at) = (start, start);
        while !self.is_stopping.load(Ordering::Relaxed) {
            let is_idle = self.server.counters().peers == 0;
            wait(&self.socket, if is_idle { PUBLISH } else { TICK });
            let now = start.elapsed().as_nanos() as u64;
            let Self { server, socket, .. } = &mut self;
            socket.receive(&mut buffers, |path, datagram| {
                server.handle(now, path, datagram, &mut &*socket);
            });
            if served_at.elapsed() >= TICK {
                served_at = Instant::now();
                let now = start.elapsed().as_nanos() as u64;
                self.server.poll(now, &mut &self.socket);
            }
            if published_at.elapsed() >= PUBLISH {
                published_at = Instant::now();
                let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
                *counters = *self.server.counters();
                counters.unsent = self.socket.unsent();
            }
        }
    }
}

/// Whether the address names all interfaces of a family that this system does not have.
fn is_family_missing(address: SocketAddr, error: &Error) -> bool {
    let Error::Io { source, .. } = error else { return false };
    let is_unsupported = source.kind() == ErrorKind::AddrNotAvailable
        || source.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error());
    address.ip().is_unspecified() && is_unsupported
}

/// Waits until something arrives.
pub(crate) fn wait(socket: &Socket, time: Duration) {
    let mut descriptors = [PollFd::from_borrowed_fd(socket.io.as_fd(), PollFlags::IN)];
    wait_for(&mut descriptors, time);
}

/// Waits until something arrives at one of several sockets.
pub(crate) fn wait_for(descriptors: &mut [PollFd<'_>], time: Duration) {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    // A signal or an error ends the wait early, which is harmless.
    let _ = poll(descriptors, Some(&time));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system without IPv6 must serve over IPv4.
    #[test]
    fn missing_family_is_skipped_among_unspecified_addresses_only() {
        let missing = |code| Error::io("listen on", "it", std::io::Error::from_raw_os_error(code));
        let any = SocketAddr::from(([0; 16], 7800));
        // EAFNOSUPPORT, EADDRNOTAVAIL, EADDRINUSE
        assert!(is_family_missing(any, &missing(97)));
        assert!(is_family_missing(any, &missing(99)));
        assert!(!is_family_missing(any, &missing(98)));
        assert!(!is_family_missing(SocketAddr::from(([192, 0, 2, 1], 7800)), &missing(99)));
    }
}
