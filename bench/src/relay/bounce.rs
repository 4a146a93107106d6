//! A bare AF_XDP bounce through the relay's own socket module: receives on one interface, rewrites
//! the Ethernet addresses, transmits on the other. This is the cost of a relay that does nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use recoded_wire::frames::{Frames, Span};
use recoded_xsk::{ModePreference, Received, Socket, Umem, XdpMode};

use crate::cores::pin;
use crate::error::BenchError;
use crate::relay::bed::{Bed, IN, OUT, SINK};
use crate::relay::recoder::FRAMES;
use crate::relay::xdp::Steering;

/// A running bounce.
pub struct Bounce {
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    thread: JoinHandle<()>,
    /// Last, because programs go after the sockets they feed.
    _steering: [Steering; 2],
}

impl Bounce {
    /// Starts it in the middle of the row, on `core`.
    ///
    /// # Errors
    /// [`BenchError`] when a socket or a program is refused.
    pub fn start(bed: &Bed, core: usize) -> Result<Bounce, BenchError> {
        let (mut worker, steering) = bed.r.inside(|| {
            let mut steering = [Steering::attach(&IN)?, Steering::attach(&OUT)?];
            let mut umem = Umem::new(FRAMES)?;
            let mut open = |name| {
                let mode = ModePreference::Auto;
                Socket::open(&mut umem, name, 0, mode, XdpMode::Native).map(|opened| opened.0)
            };
            let (input, output) = (open(IN.name)?, open(OUT.name)?);
            steering[0].enter(&input)?;
            steering[1].enter(&output)?;
            let received = Vec::with_capacity(BURST_PACKETS);
            Ok((Worker { umem, input, output, received }, steering))
        })?;
        let (stop, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (stop.clone(), received.clone());
        let thread = thread::Builder::new()
            .name("bounce".into())
            .spawn(move || {
                // Unpinned it would still be right, only slower: no reason to fail.
                let _ = pin(core);
                while !stopped.load(Ordering::Relaxed) {
                    let moved = worker.round();
                    // One writer, read after the thread has ended: relaxed.
                    count.fetch_add(moved as u64, Ordering::Relaxed);
                }
                worker.drain();
            })
            .map_err(BenchError::os("starting the bounce's thread"))?;
        Ok(Bounce { stop, received, thread, _steering: steering })
    }

    /// Stops it and returns how many packets it received.
    ///
    /// # Errors
    /// [`BenchError::Thread`].
    pub fn stop(self) -> Result<u64, BenchError> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| BenchError::Thread("bounce"))?;
        Ok(self.received.load(Ordering::Relaxed))
    }
}

struct Worker {
    umem: Umem,
    input: Socket,
    output: Socket,
    received: Vec<Received>,
}

impl Worker {
    fn round(&mut self) -> usize {
        self.output.complete(&mut self.umem);
        let count = self.input.receive(&mut self.umem, &mut self.received);
        for packet in self.received.drain(..) {
            let Received { frame, offset, len } = packet;
            let header = self.umem.bytes_mut(Span { frame, offset, len: 12 });
            header[..6].copy_from_slice(&SINK.mac);
            header[6..].copy_from_slice(&OUT.mac);
            self.output.transmit(&mut self.umem, frame, offset, len);
        }
        if self.output.pending() > 0 {
            self.output.flush();
        }
        count
    }

    fn drain(&mut self) {
        let start = Instant::now();
        while self.output.pending() > 0 && start.elapsed() < Duration::from_millis(500) {
            self.output.flush();
            self.output.complete(&mut self.umem);
        }
    }
}

/// As the relay's workers take them.
const BURST_PACKETS: usize = 64;
