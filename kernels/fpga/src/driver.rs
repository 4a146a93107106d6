//! Rings, doorbells and completions: the part common to every transport. No call waits
//! indefinitely.

use std::time::Duration;

use crate::layout::{
    COMPLETION_BYTES, Completion, DESCRIPTOR_BYTES, Descriptor, MAGIC_VALUE, VERSION_VALUE,
    control, counter, register, state,
};
use crate::transport::{MemoryError, Transport};

/// How a card is driven.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DriverOptions {
    /// Logarithm of the entries of both rings, 1 to 15.
    pub ring_log2: u32,
    /// A card with jobs in flight that completes none for this long hangs. The longest job (256 x
    /// 256, 9,216 bytes) takes 2 ms at 300 MHz.
    pub hang_timeout: Duration,
    /// Longest reset: transactions in flight on the bus end first.
    pub reset_timeout: Duration,
}

impl Default for DriverOptions {
    fn default() -> Self {
        let hang_timeout = Duration::from_millis(10);
        Self { ring_log2: 8, hang_timeout, reset_timeout: Duration::from_millis(1) }
    }
}

/// The reason why a card is or becomes unusable.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DriverError {
    /// Another device answers, or none.
    #[error("no engine behind these registers: magic {magic:#010x}")]
    Magic {
        /// The value read.
        magic: u32,
    },
    /// Host and card do not agree on descriptors.
    #[error("the card speaks version {version}, not {VERSION_VALUE}")]
    Version {
        /// The value read.
        version: u32,
    },
    /// The reported shape is impossible.
    #[error("the card says that it has an impossible shape: {shape:?}")]
    Shape {
        /// The shape read.
        shape: Shape,
    },
    /// The size of the ring is unsupported.
    #[error("rings of 2^{log2} entries; 1 to 15 are possible")]
    Ring {
        /// Logarithm of the entries.
        log2: u32,
    },
    /// No memory for the rings.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A reset has not ended.
    #[error("the card does not end its reset: memory does not answer it")]
    Reset,
    /// No completion in [`DriverOptions::hang_timeout`].
    #[error(
        "the card completes nothing: {in_flight} jobs in flight, status {status:#x}, errors {errors:#x}"
    )]
    Hang {
        /// Jobs without completion.
        in_flight: u32,
        /// Its register.
        status: u32,
        /// Its register.
        errors: u32,
    },
    /// A completion that belongs to no job, or not to the next.
    #[error("a completion of job {tag:#x}, not {expected:#x}")]
    Stray {
        /// Tag of the job whose turn it was.
        expected: u32,
        /// The card's tag.
        tag: u32,
    },
}

/// A descriptor that the ring rejected.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmitError {
    /// There was no room for it.
    #[error("{entries} jobs are in flight already")]
    Full {
        /// Entries of the ring.
        entries: u32,
    },
    /// It could not be written: the card is unusable.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Properties of a card, from its registers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Bytes of each row that are computed in one clock.
    pub lanes: usize,
    /// Sources of the tile.
    pub tile_sources: usize,
    /// Destinations of the tile.
    pub tile_destinations: usize,
    /// Sources whose tables are made at once.
    pub columns_at_once: usize,
    /// The most sources, and the most destinations, of a job.
    pub rows_max: usize,
    /// The most bytes of a row.
    pub row_bytes_max: usize,
    /// Clock of the card.
    pub clock_khz: u32,
}

/// The card's counters since it was configured, in the order of [`counter`].
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters(pub [u64; counter::ALL.len()]);

/// One card: its rings, and its jobs in flight.
pub struct Driver<T> {
    transport: T,
    options: DriverOptions,
    shape: Shape,
    submissions: u64,
    completions: u64,
    submitted: u32,
    announced: u32,
    completed: u32,
    /// When something last began or ended.
    progress: Duration,
}

impl<T: Transport> Driver<T> {
    /// Resets the card and sets up its rings.
    ///
    /// # Errors
    /// See [`DriverError`].
    pub fn open(mut transport: T, options: DriverOptions) -> Result<Self, DriverError> {
        if !(1..=RING_LOG2_MAX).contains(&options.ring_log2) {
            return Err(DriverError::Ring { log2: options.ring_log2 });
        }
        let magic = transport.read32(register::MAGIC);
        if magic != MAGIC_VALUE {
            return Err(DriverError::Magic { magic });
        }
        let version = transport.read32(register::VERSION);
        if version != VERSION_VALUE {
            return Err(DriverError::Version { version });
        }
        let shape = Shape::read(&mut transport);
        if !shape.is_possible() {
            return Err(DriverError::Shape { shape });
        }
        let submissions = transport.allocate(DESCRIPTOR_BYTES << options.ring_log2)?;
        let completions = transport.allocate(COMPLETION_BYTES << options.ring_log2)?;
        let mut driver = Self {
            transport,
            options,
            shape,
            submissions,
            completions,
            submitted: 0,
            announced: 0,
            completed: 0,
            progress: Duration::ZERO,
        };
        driver.reset()?;
        Ok(driver)
    }

    /// Drops all jobs and restarts the card. Jobs in flight have no completion.
    ///
    /// # Errors
    /// [`DriverError::Reset`] if the card does not recover.
    pub fn reset(&mut self) -> Result<(), DriverError> {
        self.halt()?;
        let log2 = self.options.ring_log2;
        // A stale phase bit would be mistaken for a completion.
        self.transport.write(self.completions, &vec![0; COMPLETION_BYTES << log2])?;
        let [submissions, completions] = [self.submissions, self.completions];
        for (offset, value) in [
            (register::ERROR, u32::MAX),
            (register::SUBMISSION_BASE_LOW, submissions as u32),
            (register::SUBMISSION_BASE_HIGH, (submissions >> 32) as u32),
            (register::SUBMISSION_LOG2, log2),
            (register::COMPLETION_BASE_LOW, completions as u32),
            (register::COMPLETION_BASE_HIGH, (completions >> 32) as u32),
            (register::COMPLETION_LOG2, log2),
            (register::CONTROL, 1 << control::RUN),
        ] {
            self.transport.write32(offset, value);
        }
        (self.submitted, self.announced, self.completed) = (0, 0, 0);
        self.progress = self.transport.now();
        Ok(())
    }

    /// Drops all jobs permanently. Returns whether the card is cut off from all memory of bundles:
    /// false if it may still write to it. Takes up to the length of a reset.
    pub fn stop(&mut self) -> bool {
        // The IOMMU cuts off a card that does not end its reset.
        let _ = self.halt();
        self.transport.unshare()
    }

    /// Makes the card drop all jobs and finish its transactions on the bus.
    fn halt(&mut self) -> Result<(), DriverError> {
        self.transport.write32(register::CONTROL, 1 << control::RESET);
        let begun = self.transport.now();
        while self.transport.read32(register::STATUS) >> state::RESETTING & 1 == 1 {
            if self.transport.now() - begun > self.options.reset_timeout {
                return Err(DriverError::Reset);
            }
            self.transport.wait(RESET_INTERVAL);
        }
        Ok(())
    }

    /// Properties of the card.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Jobs without completion.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.submitted.wrapping_sub(self.completed)
    }

    /// The transport of the card.
    pub const fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Jobs that can be submitted now.
    #[must_use]
    pub const fn room(&self) -> u32 {
        (1 << self.options.ring_log2) - self.in_flight()
    }

    /// Puts a job into the ring. [`Driver::announce`] notifies the card. The tag is chosen here and
    /// returned: jobs are completed in the order of their tags.
    ///
    /// # Errors
    /// See [`SubmitError`]; nothing has changed.
    pub fn submit(&mut self, descriptor: Descriptor) -> Result<u32, SubmitError> {
        let entries = 1 << self.options.ring_log2;
        if self.in_flight() == entries {
            return Err(SubmitError::Full { entries });
        }
        let tag = self.submitted;
        let place = self.submissions + u64::from(tag & (entries - 1)) * DESCRIPTOR_BYTES as u64;
        let bytes = Descriptor { tag, ..descriptor }.to_bytes();
        self.transport.write(place, &bytes)?;
        if self.in_flight() == 0 {
            self.progress = self.transport.now();
        }
        self.submitted = self.submitted.wrapping_add(1);
        Ok(tag)
    }

    /// Rings the doorbell for all jobs submitted so far.
    pub fn announce(&mut self) {
        if self.announced != self.submitted {
            self.announced = self.submitted;
            self.transport.write32(register::SUBMISSION_TAIL, self.submitted);
        }
    }

    /// The next completion, if there is one. Never blocks.
    ///
    /// # Errors
    /// [`DriverError::Hang`] or [`DriverError::Stray`]: the card must be reset.
    pub fn poll(&mut self) -> Result<Option<Completion>, DriverError> {
        if self.in_flight() == 0 {
            return Ok(None);
        }
        self.transport.advance();
        let log2 = self.options.ring_log2;
        let place = self.completed & ((1 << log2) - 1);
        let mut bytes = [0; COMPLETION_BYTES];
        let address = self.completions + u64::from(place) * bytes.len() as u64;
        self.transport.read(address, &mut bytes)?;
        let now = self.transport.now();
        if Completion::from_bytes(&bytes).phase != (self.completed >> log2 & 1 == 0) {
            if now.saturating_sub(self.progress) > self.options.hang_timeout {
                return Err(self.hang());
            }
            return Ok(None);
        }
        // The card may have written during the read: bytes before the phase may be stale.
        self.transport.read(address, &mut bytes)?;
        let completion = Completion::from_bytes(&bytes);
        // An unreadable descriptor has no tag.
        if completion.tag != self.completed && completion.tag != u32::MAX {
            return Err(DriverError::Stray { expected: self.completed, tag: completion.tag });
        }
        self.progress = now;
        let completion = Completion { tag: self.completed, ..completion };
        self.completed = self.completed.wrapping_add(1);
        self.transport.write32(register::COMPLETION_HEAD, self.completed);
        Ok(Some(completion))
    }

    /// The next completion; waits for it unless the card hangs; `None` when nothing is in flight.
    ///
    /// # Errors
    /// As [`Driver::poll`].
    pub fn wait(&mut self) -> Result<Option<Completion>, DriverError> {
        self.announce();
        while self.in_flight() > 0 {
            if let Some(completion) = self.poll()? {
                return Ok(Some(completion));
            }
            self.transport.wait(self.options.hang_timeout / WAITS_PER_HANG);
        }
        Ok(None)
    }

    /// The card's counters.
    #[must_use]
    pub fn counters(&mut self) -> Counters {
        let mut counters = Counters::default();
        for (value, (_, number)) in counters.0.iter_mut().zip(counter::ALL) {
            let offset = register::COUNTER_FIRST + 8 * number;
            let low = self.transport.read32(offset);
            *value = u64::from(self.transport.read32(offset + 4)) << 32 | u64::from(low);
        }
        counters
    }

    /// Bits of [`error`](crate::layout::error) since the last reset.
    #[must_use]
    pub fn errors(&mut self) -> u32 {
        self.transport.read32(register::ERROR)
    }

    fn hang(&mut self) -> DriverError {
        let status = self.transport.read32(register::STATUS);
        DriverError::Hang { in_flight: self.in_flight(), status, errors: self.errors() }
    }
}

impl Shape {
    /// Destinations and sources of the tile, as [`append_tiles`](crate::append_tiles) expects them.
    #[must_use]
    pub const fn tile(&self) -> (usize, usize) {
        (self.tile_destinations, self.tile_sources)
    }

    /// Whether jobs can be planned for such a card.
    fn is_possible(&self) -> bool {
        let sides = [self.lanes, self.tile_sources, self.tile_destinations, self.columns_at_once];
        let tile_fits = self.tile_sources.max(self.tile_destinations) <= self.rows_max;
        sides.iter().all(|side| *side > 0) && tile_fits && self.row_bytes_max > 0
    }

    fn read(transport: &mut impl Transport) -> Self {
        let [lanes, sources, destinations, columns] =
            transport.read32(register::SHAPE).to_le_bytes().map(usize::from);
        let limits = transport.read32(register::LIMITS) as usize;
        Self {
            lanes,
            tile_sources: sources,
            tile_destinations: destinations,
            columns_at_once: columns,
            rows_max: limits & 0xFFFF,
            row_bytes_max: limits >> 16,
            clock_khz: transport.read32(register::CLOCK),
        }
    }
}

impl Counters {
    /// The counter with that number: see [`counter`].
    #[must_use]
    pub const fn get(&self, number: u32) -> u64 {
        self.0[number as usize]
    }
}

/// The largest value of four bits.
const RING_LOG2_MAX: u32 = 15;

/// Polls of a card without interrupts before it counts as hung.
const WAITS_PER_HANG: u32 = 8;

/// Interval between polls of a card that is resetting.
const RESET_INTERVAL: Duration = Duration::from_micros(1);
