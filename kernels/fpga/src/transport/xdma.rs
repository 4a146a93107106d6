//! A card behind AMD's XDMA driver: registers through `/dev/xdmaN_user`, memory of the card through
//! `/dev/xdmaN_h2c_0` and `/dev/xdmaN_c2h_0`, interrupts through `/dev/xdmaN_events_0`.
//!
//! The engine's AXI master reads and writes memory on the card; the host copies. Nothing here has
//! run on a card: the tests put files, a pipe and a model of the card behind it.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::window::Window;
use super::{MemoryError, Transport};

/// The devices of one card.
#[derive(Debug)]
pub struct XdmaFiles {
    /// Registers.
    pub user: File,
    /// From the host to the card.
    pub to_card: File,
    /// From the card to the host.
    pub from_card: File,
    /// Interrupts; without it the card is polled.
    pub events: Option<File>,
}

/// One card.
pub struct Xdma {
    files: XdmaFiles,
    window: Window,
    name: String,
    begun: Instant,
}

impl Xdma {
    /// Opens the devices of card `number`, whose engine may use `memory`, addresses of its AXI
    /// master. No other program may then use the card.
    ///
    /// # Errors
    /// A device is missing, inaccessible, or in use.
    pub fn open(number: u8, memory: Range<u64>) -> io::Result<Self> {
        let device = |part: &str| format!("/dev/xdma{number}_{part}");
        let user = OpenOptions::new().read(true).write(true).open(device("user"))?;
        user.try_lock().map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
        let files = XdmaFiles {
            user,
            to_card: OpenOptions::new().write(true).open(device("h2c_0"))?,
            from_card: File::open(device("c2h_0"))?,
            events: File::open(device("events_0")).ok(),
        };
        Ok(Self::over(files, memory, format!("xdma:{number}")))
    }

    /// The same with arbitrary files.
    #[must_use]
    pub fn over(files: XdmaFiles, memory: Range<u64>, name: String) -> Self {
        Self { files, window: Window::new(memory), name, begun: Instant::now() }
    }
}

impl Transport for Xdma {
    fn read32(&mut self, offset: u32) -> u32 {
        let mut bytes = [0; 4];
        let read = self.files.user.read_exact_at(&mut bytes, offset.into());
        read.map_or(u32::MAX, |()| u32::from_le_bytes(bytes))
    }

    /// A card that cannot be written to ignores requests, which the driver detects.
    fn write32(&mut self, offset: u32, value: u32) {
        let _ = self.files.user.write_all_at(&value.to_le_bytes(), offset.into());
    }

    fn allocate(&mut self, bytes: usize) -> Result<u64, MemoryError> {
        let address = self.window.allocate(bytes, PAGE_BYTES)?;
        let zeros = vec![0; bytes.min(COPY_BYTES_MAX)];
        for start in (0..bytes).step_by(COPY_BYTES_MAX) {
            let part = &zeros[..(bytes - start).min(COPY_BYTES_MAX)];
            self.write(address + start as u64, part)?;
        }
        Ok(address)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        self.window.check(address, bytes.len())?;
        for (part, place) in bytes.chunks(COPY_BYTES_MAX).zip((address..).step_by(COPY_BYTES_MAX)) {
            let written = self.files.to_card.write_all_at(part, place);
            written.map_err(|error| failed(place, part.len(), &error))?;
        }
        Ok(())
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryError> {
        self.window.check(address, bytes.len())?;
        let places = (address..).step_by(COPY_BYTES_MAX);
        for (part, place) in bytes.chunks_mut(COPY_BYTES_MAX).zip(places) {
            let read = self.files.from_card.read_exact_at(part, place);
            read.map_err(|error| failed(place, part.len(), &error))?;
        }
        Ok(())
    }

    fn describe(&self) -> String {
        self.name.clone()
    }

    fn wait(&mut self, timeout: Duration) {
        let Some(events) = &mut self.files.events else {
            return std::thread::sleep(timeout.min(POLL_INTERVAL));
        };
        wait_readable(events, &mut [0; EVENT_BYTES], timeout);
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}

/// Waits until `events` can be read and reads as many bytes as `count` has.
pub(super) fn wait_readable(events: &mut File, count: &mut [u8], timeout: Duration) {
    let limit = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let mut waited = [PollFd::new(events, PollFlags::IN)];
    let is_ready = poll(&mut waited, Some(&limit)).is_ok_and(|ready| ready > 0);
    if is_ready && waited[0].revents().contains(PollFlags::IN) {
        // The number of interrupts does not matter: the ring shows completed jobs.
        let _ = io::Read::read(events, count);
    } else if is_ready {
        // It hung up, and would report that immediately, indefinitely.
        std::thread::sleep(timeout.min(POLL_INTERVAL));
    }
}

fn failed(address: u64, bytes: usize, error: &io::Error) -> MemoryError {
    MemoryError::Device { address, bytes, kind: error.kind() }
}

/// The driver counts interrupts in 32 bits, and refuses reads of any other size.
const EVENT_BYTES: usize = 4;

const PAGE_BYTES: u64 = 4096;

/// Users of the driver report hangs of larger transfers.
const COPY_BYTES_MAX: usize = 1 << 20;

/// Interval between polls of a card that does not interrupt.
const POLL_INTERVAL: Duration = Duration::from_micros(20);
