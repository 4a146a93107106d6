//! The engine: bundles in, a few driver calls each, bundles out.
//!
//! ```text
//!  submit   a free lane: stream, device arena, staging for tables of jobs
//!    copy tables and input -> draw, invert, prepare, multiply -> copy output -> mark
//!  poll     a lane whose mark is reached gives its bundle back
//! ```
//!
//! Lanes run concurrently, so that one bundle is copied in while another is computed and a third is
//! copied out. Memory of bundles is pinned at first use.

mod measure;
mod progressive;
mod segments;

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use recoded_code::engine::{
    Arena, Bundle, Completed, Engine, Error, Job, Operation, Refused, Segment,
};

use recoded_gf::Field;

use crate::choice;
use crate::compiler::{CompileError, Compiled, Compiler, Matrix};
use crate::driver::{
    CallError, Context, DeviceInfo, DeviceMemory, Function, Module, Pinned, Stream,
};
use crate::image::Image;
use crate::job::{self, Form, Geometry, TABLES_BYTES, TECHNIQUES, Technique};
use crate::plan::LaunchPlan;
pub use measure::{Direction, LaunchCost, Timings};
pub use progressive::Progressive;
use segments::Segments;

/// Use of a card.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of the card.
    pub device: usize,
    /// The technique for all products; `None` chooses one by the shape of each.
    pub technique: Option<&'static Technique>,
    /// Concurrent bundles: both copy engines and the multiprocessors must be busy although a bundle
    /// spends most of its time waiting for one of the three. Eight of 2 MB are the amount in flight
    /// on a bus in 0.3 ms.
    pub streams: usize,
    /// The compiled kernels.
    pub image: Image,
}

impl Options {
    /// Card 0 with eight streams, techniques chosen by shape, and the installed image.
    ///
    /// # Errors
    /// [`OpenError::Image`] when there is none.
    pub fn find() -> Result<Self, OpenError> {
        Ok(Self { device: 0, technique: None, streams: 8, image: Image::find()? })
    }

    /// The same with the technique of that name; `auto` chooses by shape.
    ///
    /// # Errors
    /// [`OpenError::Technique`] when there is none of that name.
    pub fn with_technique(self, name: &str) -> Result<Self, OpenError> {
        if name == "auto" {
            return Ok(Self { technique: None, ..self });
        }
        let technique = TECHNIQUES.iter().find(|technique| technique.name == name);
        let technique = technique.ok_or_else(|| OpenError::Technique { name: name.into() })?;
        Ok(Self { technique: Some(technique), ..self })
    }
}

/// The reason why a card cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// libcuda cannot be loaded.
    #[error("libcuda is not installed")]
    NoLibrary,
    /// No compiled kernels.
    #[error(transparent)]
    Image(#[from] crate::image::ImageError),
    /// No technique of that name.
    #[error("no technique `{name}`; there are: auto, {}", names())]
    Technique {
        /// The requested name.
        name: String,
    },
    /// The card cannot run the technique.
    #[error("technique {name} is not for compute capability {capability}")]
    Capability {
        /// The technique.
        name: &'static str,
        /// The card's compute capability times ten.
        capability: u32,
    },
    /// The driver refused something.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The card failed a test.
    #[error(transparent)]
    Failed(#[from] Error),
    /// The card's results differ from this CPU's.
    #[error("the card gives wrong results")]
    Wrong,
    /// The card did not finish the self-test in time.
    #[error("the card has not finished a test within {seconds} s")]
    Silent {
        /// The time limit.
        seconds: u64,
    },
}

fn names() -> String {
    TECHNIQUES.iter().map(|technique| technique.name).collect::<Vec<_>>().join(", ")
}

/// One CUDA card.
pub struct CudaEngine {
    info: DeviceInfo,
    technique: Option<&'static Technique>,
    lanes: Vec<Lane>,
    functions: HashMap<&'static str, Function>,
    module: Option<Module>,
    compiler: Compiler,
    /// Matrices with code of their own.
    special: Vec<Special>,
    /// The compile error of the last one without code.
    not_compiled: Option<CompileError>,
    tables: Option<DeviceMemory>,
    /// Rows kept on the card.
    segments: Segments,
    context: Arc<Context>,
    /// The reason why it is unusable.
    lost: Option<Error>,
    plan: LaunchPlan,
    /// Bundles that were in flight when the card was lost.
    orphans: Vec<Bundle>,
}

/// A matrix with code of its own.
struct Special {
    matrix: Matrix,
    technique: Technique,
    /// The module with the code; the function is among the engine's.
    module: Module,
}

/// A stream and what belongs to it.
struct Lane {
    stream: Stream,
    memory: Option<DeviceMemory>,
    /// Tables of jobs, and small inputs behind them, as the source of the copy to the card.
    staging: Arena,
    in_flight: Option<InFlight>,
}

struct InFlight {
    bundle: Bundle,
    /// An error after work had begun that cannot be undone.
    error: Option<Error>,
}

/// The reason why a bundle was not begun.
enum Unprepared {
    /// The card cannot do such a bundle.
    Beyond(Error),
    /// A call failed.
    Call(CallError),
}

impl From<Error> for Unprepared {
    fn from(error: Error) -> Self {
        Self::Beyond(error)
    }
}

impl From<CallError> for Unprepared {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl CudaEngine {
    /// Opens a card. [`crate::probe`] checks beforehand whether that is safe at all.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(options: &Options) -> Result<Self, OpenError> {
        if !crate::driver::is_present() {
            return Err(OpenError::NoLibrary);
        }
        let context = Context::new(options.device)?;
        let info = context.info()?;
        if let Some(Technique { name, capability: (from, to), .. }) = options.technique
            && !(*from..=*to).contains(&info.capability)
        {
            return Err(OpenError::Capability { name, capability: info.capability });
        }
        let module = Module::load(options.image.bytes())?;
        let lane = || -> Result<Lane, CallError> {
            let (stream, staging) = (Stream::new()?, Arena::new(0));
            Ok(Lane { stream, memory: None, staging, in_flight: None })
        };
        let lanes = (0..options.streams.max(1)).map(|_| lane()).collect::<Result<_, _>>()?;
        let mut engine = Self {
            compiler: Compiler::new(info.capability),
            special: Vec::new(),
            segments: Segments::within(info.memory_bytes / KEPT_PART),
            not_compiled: None,
            info,
            technique: options.technique,
            lanes,
            functions: HashMap::new(),
            module: Some(module),
            tables: Some(DeviceMemory::new(TABLES_BYTES as u64)?),
            context,
            lost: None,
            plan: LaunchPlan::default(),
            orphans: Vec::new(),
        };
        engine.fill_tables()?;
        Ok(engine)
    }

    /// Properties of the card.
    #[must_use]
    pub const fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The technique for products of that shape by a matrix without code of its own.
    #[must_use]
    pub fn technique(&self, job: &Job) -> &'static Technique {
        let DeviceInfo { capability, multiprocessors, .. } = self.info;
        self.technique.unwrap_or_else(|| choice::technique([job], capability, multiprocessors))
    }

    /// Matrices that have code of their own by now; see [`Engine::expect`].
    #[must_use]
    pub fn special_matrices(&self) -> usize {
        self.special.len()
    }

    /// The reason why an expected matrix has no code of its own; `None` if there is no such matrix.
    #[must_use]
    pub const fn why_not_special(&self) -> Option<&CompileError> {
        self.not_compiled.as_ref()
    }

    /// Changes the technique for all products from now on; `None` chooses by shape.
    pub const fn set_technique(&mut self, technique: Option<&'static Technique>) {
        self.technique = technique;
    }

    /// Fills the tables of all fields, and thereby tests that the card computes at all.
    fn fill_tables(&mut self) -> Result<(), OpenError> {
        let geometry = Geometry::of("field_tables").ok_or(OpenError::Wrong)?;
        let function = self.function(geometry.name, geometry)?;
        let tables = self.tables.as_ref().map_or(0, DeviceMemory::start);
        let stream = &self.lanes[0].stream;
        let shape = [Field::ALL.len() as u32, geometry.threads, geometry.shared_bytes];
        // SAFETY: this kernel has no jobs and writes only the tables, whose length is as it
        // expects.
        unsafe { stream.launch(function, shape, tables, 0, tables, tables) }?;
        stream.mark()?;
        let begun = Instant::now();
        while !self.lanes[0].stream.is_done()? {
            if begun.elapsed() > OPEN_TIMEOUT {
                self.give_up();
                return Err(OpenError::Silent { seconds: OPEN_TIMEOUT.as_secs() });
            }
            thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }

    fn function(
        &mut self,
        kernel: &'static str,
        geometry: &'static Geometry,
    ) -> Result<Function, CallError> {
        if let Some(&function) = self.functions.get(kernel) {
            return Ok(function);
        }
        let missing = || CallError { call: "module", code: 0, name: "not loaded".into() };
        let module = self.module.as_ref().ok_or_else(missing)?;
        let function = module.function(&format!("recoded_{kernel}"), geometry.shared_bytes)?;
        self.functions.insert(kernel, function);
        Ok(function)
    }

    /// Loads newly compiled code. Code that the card rejects is not used.
    fn load_compiled(&mut self) {
        while let Some(compiled) = self.compiler.poll() {
            let Compiled { matrix, cubin } = match compiled {
                Ok(compiled) => compiled,
                Err(error) => {
                    self.not_compiled = Some(error);
                    continue;
                }
            };
            let Ok(module) = Module::load(&cubin) else { continue };
            let Ok(function) = module.function(&format!("recoded_{}", matrix.kernel()), 0) else {
                continue;
            };
            // As many as the compiler creates, for the lifetime of the process: other matrices of
            // the same shape need another name.
            let kernel = format!("{}_{}", matrix.kernel(), self.special.len()).leak();
            let technique = Technique {
                name: "reed-solomon",
                kernel,
                coefficients: Form::Plain,
                sources: Form::Plain,
                packed: false,
                capability: (0, u32::MAX),
            };
            self.functions.insert(kernel, function);
            self.special.push(Special { matrix, technique, module });
        }
    }

    /// Does all checks that may refuse the bundle before the card has begun anything.
    fn prepare(&mut self, lane: usize, bundle: &Bundle) -> Result<Vec<Function>, Unprepared> {
        self.load_compiled();
        let (special, jobs) = (&self.special, bundle.jobs().iter().map(|placed| &placed.job));
        let DeviceInfo { capability, multiprocessors, .. } = self.info;
        let chosen = choice::technique(jobs, capability, multiprocessors);
        let technique = self.technique;
        self.plan.make(bundle, self.info.multiprocessors, |number, _| match technique {
            Some(technique) => *technique,
            None => special_for(special, bundle, number).unwrap_or(*chosen),
        })?;
        let kernels: Vec<_> =
            self.plan.launches.iter().map(|launch| (launch.kernel, launch.geometry)).collect();
        let functions =
            kernels.into_iter().map(|(kernel, geometry)| self.function(kernel, geometry));
        let functions: Vec<_> = functions.collect::<Result<_, _>>()?;
        let (context, lane) = (&self.context, &mut self.lanes[lane]);
        let bytes = self.plan.bytes;
        if lane.memory.as_ref().is_none_or(|memory| memory.bytes() < bytes) {
            lane.memory = None; // first, as both may be too much
            let memory =
                DeviceMemory::new(bytes.next_power_of_two()).or_else(|_| DeviceMemory::new(bytes));
            lane.memory = Some(memory?);
        }
        let staged_bytes = self.plan.staged_bytes(bundle.input_bytes());
        if lane.staging.len() < staged_bytes {
            lane.staging = Arena::new(staged_bytes.next_power_of_two());
        }
        for (bytes, job) in
            lane.staging.chunks_exact_mut(size_of::<job::Job>()).zip(&self.plan.table)
        {
            bytes.copy_from_slice(&job.to_bytes());
        }
        if let Some(input) = lane.staging[..staged_bytes].get_mut(self.plan.input as usize..) {
            input.copy_from_slice(&bundle.input()[..input.len()]);
        }
        let kept = bundle.segment().filter(|segment| !self.segments.keeps(segment));
        let rows = kept.map(|segment| segment.arena());
        let arenas = [&lane.staging, bundle.input(), bundle.output()].into_iter().chain(rows);
        let mut pinned = arenas.map(|arena| context.pin(arena));
        if pinned.any(|pinned| pinned == Pinned::Elsewhere) {
            let reason = "another engine of this process has pinned the memory".into();
            return Err(Error::Failed { call: "pin", code: 712, reason }.into());
        }
        Ok(functions)
    }

    /// Puts all work of a bundle into the lane's stream.
    fn enqueue(&mut self, lane: usize, functions: &[Function]) -> Result<(), CallError> {
        let (plan, lane) = (&self.plan, &mut self.lanes[lane]);
        let Some(InFlight { bundle, .. }) = &mut lane.in_flight else { return Ok(()) };
        let arena = lane.memory.as_ref().map_or(0, DeviceMemory::start);
        let tables = self.tables.as_ref().map_or(0, DeviceMemory::start);
        let staged_bytes = plan.staged_bytes(bundle.input_bytes());
        // SAFETY: the device arena has the bytes of the plan, which keeps everything within them.
        // Staging and bundle stay in the lane until the stream is idle, and are leaked if it never
        // is.
        unsafe {
            lane.stream.copy_to(arena, &lane.staging[..staged_bytes])?;
            if staged_bytes as u64 <= plan.input {
                lane.stream.copy_to(arena + plan.input, &bundle.input()[..bundle.input_bytes()])?;
            }
            if let Some(segment) = bundle.segment() {
                self.segments.bring(&lane.stream, segment, arena + plan.sources)?;
            }
            for (launch, &function) in plan.launches.iter().zip(functions) {
                let geometry = launch.geometry;
                let shape = [launch.blocks, geometry.threads, geometry.shared_bytes];
                let jobs = arena + (launch.jobs.start * size_of::<job::Job>()) as u64;
                let count = launch.jobs.len() as u32;
                lane.stream.launch(function, shape, jobs, count, tables, arena)?;
            }
            let bytes = bundle.output_bytes();
            lane.stream.copy_from(&mut bundle.output_mut()[..bytes], arena + plan.output)?;
        }
        lane.stream.mark()
    }

    /// The card is unusable: its context is destroyed, including any running work.
    fn lose(&mut self, error: &CallError) {
        self.lost = Some(lost(error));
        self.orphans.extend(
            self.lanes.iter_mut().filter_map(|lane| lane.in_flight.take()).map(|l| l.bundle),
        );
        self.forget();
        self.context.destroy();
    }

    /// The card does not respond: everything that it may still use is leaked.
    fn give_up(&mut self) {
        self.context.give_up();
        // So that guards of memory pinned in it find it, and leak their memory.
        mem::forget(Arc::clone(&self.context));
        self.lost = Some(Error::Lost { call: "wait", code: 0, reason: "the card hangs".into() });
        self.lanes.iter_mut().for_each(|lane| mem::forget(lane.in_flight.take()));
        self.forget();
    }

    /// Drops no object of a context that must not be called again.
    fn forget(&mut self) {
        for Lane { stream, memory, staging, in_flight: _ } in self.lanes.drain(..) {
            mem::forget((stream, memory));
            // Frees itself or leaks, as its guard decides.
            drop(staging);
        }
        let special = mem::take(&mut self.special).into_iter().map(|special| special.module);
        mem::forget((self.module.take(), self.tables.take(), special.collect::<Vec<_>>()));
        self.segments.forget();
    }
}

impl Engine for CudaEngine {
    fn name(&self) -> &str {
        "cuda"
    }

    fn depth(&self) -> usize {
        self.lanes.len().max(1)
    }

    fn expect(&mut self, matrix: &[u8], columns: usize) {
        self.compiler.want(matrix, columns);
    }

    fn keep(&mut self, segment: &Arc<Segment>) -> Result<(), Error> {
        self.keep_segment(segment)
    }

    fn submit(&mut self, bundle: Bundle) -> Result<(), Refused> {
        let refuse = |error, bundle| Err(Refused { error, bundle: Box::new(bundle) });
        if let Some(error) = &self.lost {
            return refuse(error.clone(), bundle);
        }
        let Some(lane) = self.lanes.iter().position(|lane| lane.in_flight.is_none()) else {
            return refuse(Error::Busy { depth: self.lanes.len() }, bundle);
        };
        if let Err(error) = self.context.enter() {
            self.lose(&error);
            return refuse(lost(&error), bundle);
        }
        let functions = match self.prepare(lane, &bundle) {
            Ok(functions) => functions,
            Err(Unprepared::Beyond(error)) => return refuse(error, bundle),
            Err(Unprepared::Call(error)) if error.is_out_of_memory() => {
                return refuse(Error::Memory { bytes: self.plan.bytes as usize }, bundle);
            }
            Err(Unprepared::Call(error)) if is_harmless(&error) => {
                return refuse(failed(&error), bundle);
            }
            Err(Unprepared::Call(error)) => {
                self.lose(&error);
                return refuse(lost(&error), bundle);
            }
        };
        self.lanes[lane].in_flight = Some(InFlight { bundle, error: None });
        if let Err(error) = self.enqueue(lane, &functions) {
            // The stream already uses the bundle: it is returned when the stream is idle.
            let is_marked = self.lanes[lane].stream.mark().is_ok();
            if is_marked && is_harmless(&error) {
                if let Some(in_flight) = &mut self.lanes[lane].in_flight {
                    in_flight.error = Some(failed(&error));
                }
            } else {
                self.lose(&error);
            }
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<Completed> {
        if let Some(bundle) = self.orphans.pop() {
            return Some(Completed { bundle, result: self.lost.clone().map_or(Ok(()), Err) });
        }
        if self.lanes.iter().all(|lane| lane.in_flight.is_none()) {
            return None;
        }
        let entered = self.context.enter();
        for index in 0..self.lanes.len() {
            let lane = &mut self.lanes[index];
            if lane.in_flight.is_none() {
                continue;
            }
            match entered.clone().and_then(|()| lane.stream.is_done()) {
                Ok(false) => {}
                Ok(true) => {
                    let InFlight { bundle, error } = lane.in_flight.take()?;
                    return Some(Completed { bundle, result: error.map_or(Ok(()), Err) });
                }
                Err(error) => {
                    self.lose(&error);
                    return self.poll();
                }
            }
        }
        None
    }
}

impl Drop for CudaEngine {
    fn drop(&mut self) {
        let begun = Instant::now();
        while self.lanes.iter().any(|lane| lane.in_flight.is_some()) {
            if self.poll().is_none() && begun.elapsed() > DROP_TIMEOUT {
                return self.give_up();
            }
            thread::sleep(Duration::from_micros(50));
        }
        if self.lost.is_none() && self.context.enter().is_ok() {
            self.lanes.clear();
            self.tables = None;
            self.segments.clear();
            self.special.clear();
            self.module = None;
            self.context.destroy();
        } else {
            self.forget();
        }
    }
}

/// The technique for one matrix only, if a job multiplies by that matrix.
fn special_for(special: &[Special], bundle: &Bundle, number: usize) -> Option<Technique> {
    let Job { operation, rows, columns, .. } = bundle.jobs()[number].job;
    if operation != Operation::Multiply {
        return None;
    }
    let is_same = |special: &&Special| {
        let matrix = &special.matrix;
        let mut pairs = matrix.coefficients.chunks_exact(matrix.columns).enumerate();
        matrix.columns == columns
            && matrix.rows() == rows
            && pairs.all(|(row, coefficients)| bundle.coefficients(number, row) == coefficients)
    };
    special.iter().find(is_same).map(|special| special.technique)
}

fn failed(error: &CallError) -> Error {
    Error::Failed { call: error.call, code: error.code, reason: error.name.clone() }
}

fn lost(error: &CallError) -> Error {
    Error::Lost { call: error.call, code: error.code, reason: error.name.clone() }
}

/// Whether the context survives an error: invalid arguments, no memory, no such kernel, no
/// resources for a launch.
const fn is_harmless(error: &CallError) -> bool {
    matches!(error.code, 1 | 2 | 500 | 701)
}

/// Segments take at most this part of a card's memory: the rest is for bundles.
const KEPT_PART: u64 = 2;

/// The first launch also loads the code, and JIT-compiles it if there is only PTX for the card.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Work in flight when an engine is dropped takes milliseconds, or does not end.
const DROP_TIMEOUT: Duration = Duration::from_millis(500);
