//! A card without an engine: memory, and kernels launched one at a time. For tests of single
//! kernels on a card, and for the measurements of a first run; nothing else uses it.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use recoded_code::engine::Arena;
use recoded_gf::Field;

use crate::driver::{
    self, CallError, Context, DeviceInfo, DeviceMemory, Function, Module, Pinned, Stream,
};
use crate::engine::{OpenError, Options};
use crate::job::{Geometry, Job, KERNELS, TABLES_BYTES};

/// A context with one arena, and the tables of all fields in it.
pub struct BareCard {
    /// `None` once it hangs: none of it may then be released.
    parts: Option<Parts>,
    info: DeviceInfo,
    context: Arc<Context>,
}

struct Parts {
    arena: DeviceMemory,
    tables: DeviceMemory,
    jobs: DeviceMemory,
    functions: HashMap<String, Function>,
    stream: Stream,
    module: Module,
}

/// One-time costs of a card, in seconds.
#[derive(Clone, PartialEq, Debug)]
pub struct FirstUse {
    /// The card.
    pub info: DeviceInfo,
    /// Loading libcuda and `cuInit`.
    pub init: f64,
    /// The first context.
    pub context: f64,
    /// Loading the image.
    pub module: f64,
    /// The first launch until its end, and the second one.
    pub launches: [f64; 2],
    /// Bytes pinned, and the time for that: with untouched pages, and with touched ones.
    pub pinning: Vec<(usize, f64, f64)>,
}

impl BareCard {
    /// Opens a card with `arena_bytes` bytes of memory for jobs. [`crate::probe`] checks beforehand
    /// whether that is safe at all.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(options: &Options, arena_bytes: u64) -> Result<Self, OpenError> {
        if !driver::is_present() {
            return Err(OpenError::NoLibrary);
        }
        let context = Context::new(options.device)?;
        Self::within(context, options, arena_bytes)
    }

    fn within(
        context: Arc<Context>,
        options: &Options,
        arena_bytes: u64,
    ) -> Result<Self, OpenError> {
        let info = context.info()?;
        let parts = Parts {
            arena: DeviceMemory::new(arena_bytes.max(1))?,
            tables: DeviceMemory::new(TABLES_BYTES as u64)?,
            jobs: DeviceMemory::new((JOBS_MAX * size_of::<Job>()) as u64)?,
            functions: HashMap::new(),
            stream: Stream::new()?,
            module: Module::load(options.image.bytes())?,
        };
        Ok(Self { parts: Some(parts), info, context })
    }

    /// Properties of the card.
    #[must_use]
    pub const fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Bytes of its arena.
    #[must_use]
    pub fn arena_bytes(&self) -> u64 {
        self.parts.as_ref().map_or(0, |parts| parts.arena.bytes())
    }

    /// Writes to the arena.
    ///
    /// # Errors
    /// The driver's error, or the bytes do not fit.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), CallError> {
        self.context.enter()?;
        let parts = self.parts.as_ref().ok_or_else(hung)?;
        let to = place(&parts.arena, offset, bytes.len())?;
        // SAFETY: the place is within the arena; the bytes stay until the stream is idle, or, as
        // the memory is not pinned, the driver has its own copy of them.
        unsafe { parts.stream.copy_to(to, bytes) }?;
        self.wait(COPY_TIMEOUT)
    }

    /// Reads from the arena.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn read(&mut self, offset: u64, bytes: usize) -> Result<Vec<u8>, CallError> {
        let parts = self.parts.as_ref().ok_or_else(hung)?;
        let from = place(&parts.arena, offset, bytes)?;
        self.copy_back(from, bytes)
    }

    /// The constant tables of all fields, as filled by `field_tables`.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn tables(&mut self) -> Result<Vec<u8>, CallError> {
        let from = self.parts.as_ref().ok_or_else(hung)?.tables.start();
        self.copy_back(from, TABLES_BYTES)
    }

    fn copy_back(&mut self, from: u64, bytes: usize) -> Result<Vec<u8>, CallError> {
        self.context.enter()?;
        let parts = self.parts.as_ref().ok_or_else(hung)?;
        let mut to = vec![0; bytes];
        // SAFETY: a copy to memory that is not pinned is over when the call returns; the caller has
        // checked the place.
        unsafe { parts.stream.copy_from(&mut to, from) }?;
        self.wait(COPY_TIMEOUT)?;
        Ok(to)
    }

    /// Fills the tables of all fields, which all other kernels read.
    ///
    /// # Errors
    /// As [`Self::launch`].
    pub fn fill_tables(&mut self) -> Result<(), CallError> {
        let geometry = Geometry::of("field_tables").unwrap_or(&KERNELS[0]);
        // SAFETY: this kernel has no jobs and writes the tables only.
        unsafe { self.launch(geometry.name, geometry, Field::ALL.len() as u32, &[], COPY_TIMEOUT) }
    }

    /// Launches a kernel over jobs and waits for its end, at most `timeout`. After that the card
    /// counts as hung: all of its objects are leaked, and all later calls fail.
    ///
    /// # Errors
    /// The driver's error, or a timeout.
    ///
    /// # Safety
    /// The jobs must name places within the arena only, and fit the kernel and the grid; unless
    /// nothing of the context is used afterwards.
    pub unsafe fn launch(
        &mut self,
        kernel: &str,
        geometry: &Geometry,
        grid: u32,
        jobs: &[Job],
        timeout: Duration,
    ) -> Result<(), CallError> {
        self.context.enter()?;
        let parts = self.parts.as_mut().ok_or_else(hung)?;
        let table: Vec<u8> = jobs.iter().flat_map(|job| job.to_bytes()).collect();
        let to = place(&parts.jobs, 0, table.len())?;
        let function = match parts.functions.get(kernel) {
            Some(&function) => function,
            None => parts.module.function(&format!("recoded_{kernel}"), geometry.shared_bytes)?,
        };
        parts.functions.insert(kernel.into(), function);
        let shape = [grid, geometry.threads, geometry.shared_bytes];
        let (tables, arena) = (parts.tables.start(), parts.arena.start());
        // SAFETY: the table fits and is pageable memory, which the driver copies before the call
        // returns; the jobs in it are by contract.
        unsafe {
            if !table.is_empty() {
                parts.stream.copy_to(to, &table)?;
            }
            parts.stream.launch(function, shape, to, jobs.len() as u32, tables, arena)?;
        }
        self.wait(timeout)
    }

    /// Waits until the stream is idle.
    fn wait(&mut self, timeout: Duration) -> Result<(), CallError> {
        let stream = &self.parts.as_ref().ok_or_else(hung)?.stream;
        stream.mark()?;
        let begun = Instant::now();
        while !stream.is_done()? {
            if begun.elapsed() > timeout {
                self.context.give_up();
                mem::forget(Arc::clone(&self.context));
                mem::forget(self.parts.take());
                return Err(hung());
            }
            thread::yield_now();
        }
        Ok(())
    }

    /// Measures one-time costs: must be called first in a process.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn first_use(options: &Options) -> Result<FirstUse, OpenError> {
        let mut last = Instant::now();
        let mut lap = || mem::replace(&mut last, Instant::now()).elapsed().as_secs_f64();
        if !driver::is_present() {
            return Err(OpenError::NoLibrary);
        }
        driver::device_count()?;
        let init = lap();
        let context = Context::new(options.device)?;
        let context_seconds = lap();
        let mut card = Self::within(context, options, 1 << 20)?;
        let module = lap();
        card.fill_tables()?;
        let first = lap();
        card.fill_tables()?;
        let second = lap();
        let pinning = PINNED_BYTES.map(|bytes| {
            let fresh = Arena::new(bytes);
            let mut touched = Arena::new(bytes);
            touched.fill(1);
            lap();
            // No time is reported for memory that the driver does not pin.
            let mut timed = |arena| (card.context.pin(arena) == Pinned::Here).then(&mut lap);
            let (fresh, touched) = (timed(&fresh), timed(&touched));
            (bytes, fresh.unwrap_or(f64::NAN), touched.unwrap_or(f64::NAN))
        });
        let (launches, pinning) = ([first, second], pinning.to_vec());
        let info = card.info.clone();
        Ok(FirstUse { info, init, context: context_seconds, module, launches, pinning })
    }
}

impl Drop for BareCard {
    fn drop(&mut self) {
        // Its parts are released in their context; an error means that they are gone already.
        if self.context.enter().is_ok() {
            self.parts = None;
        }
        mem::forget(self.parts.take());
    }
}

/// The address of `bytes` bytes at `offset`, if they exist.
fn place(memory: &DeviceMemory, offset: u64, bytes: usize) -> Result<u64, CallError> {
    let end = offset.checked_add(bytes as u64);
    if end.is_none_or(|end| end > memory.bytes()) {
        return Err(CallError::out_of_memory("copy"));
    }
    Ok(memory.start() + offset)
}

fn hung() -> CallError {
    CallError { call: "wait", code: 0, name: "the card hangs".into() }
}

/// Jobs of a launch.
const JOBS_MAX: usize = 4096;

/// Far more than a copy or a small kernel takes.
const COPY_TIMEOUT: Duration = Duration::from_secs(60);

/// A page, a slot of the queue, the largest range of a product by CPU and card together, a UMEM.
const PINNED_BYTES: [usize; 4] = [4 << 10, 2 << 20, 8 << 20, 64 << 20];
