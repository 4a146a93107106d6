//! Speed of a card: copies, launches, instructions, and each stage of a bundle without the copies.
//!
//! For benchmarks: the caller waits, and the engine must have nothing in flight. Memory used by a
//! copy or a kernel belongs to the first lane meanwhile, so that a failing or hanging card is
//! handled as usual. Times are the host's, averaged over as many repetitions as fill the requested
//! time.

use std::time::{Duration, Instant};

use recoded_code::engine::{Arena, Bundle, Error, Refused};

use super::{CudaEngine, InFlight, Unprepared, failed, is_harmless, lost};
use crate::driver::{CallError, DeviceMemory, Function, Pinned, Stream};
use crate::job::{Geometry, Job, PROBE_OPERATIONS};
use crate::limits::IssueRates;

/// Seconds that the parts of a bundle take on an idle card.
#[derive(Clone, PartialEq, Debug)]
pub struct Timings {
    /// Inputs to the card, from pinned memory.
    pub copy_in: f64,
    /// Results back.
    pub copy_out: f64,
    /// All launches, one after another.
    pub device: f64,
    /// Each launch: its kernel, without `recoded_`, and its time by itself. Launches that invert
    /// the same matrices are one, named after the first.
    pub stages: Vec<(&'static str, f64)>,
}

/// Direction of a copy.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To the card.
    In,
    /// From the card.
    Out,
    /// The same amount each way, at once; times are for both.
    Both,
}

/// Cost of a launch, in seconds.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct LaunchCost {
    /// From one launch to the next, in a sequence of many.
    pub interval: f64,
    /// From a launch until its end is visible, on an idle card.
    pub latency: f64,
}

impl CudaEngine {
    /// Runs a bundle with its usual techniques, part by part. Returns it with the results.
    ///
    /// # Errors
    /// [`Error::Busy`] when something is in flight, or the card's error. The bundle is returned
    /// only if it was not begun.
    pub fn measure(
        &mut self,
        bundle: Bundle,
        time: Duration,
    ) -> Result<(Bundle, Timings), Refused> {
        let refuse = |error, bundle| Refused { error, bundle: Box::new(bundle) };
        if let Err(error) = self.enter_idle() {
            return Err(refuse(error, bundle));
        }
        let functions = match self.prepare(0, &bundle) {
            Ok(functions) => functions,
            Err(Unprepared::Beyond(error)) => return Err(refuse(error, bundle)),
            Err(Unprepared::Call(error)) => return Err(refuse(self.ended(&error), bundle)),
        };
        self.lanes[0].in_flight = Some(InFlight { bundle, error: None });
        let timings = self.measure_parts(&functions, time);
        match (timings, self.lanes.first_mut().and_then(|lane| lane.in_flight.take())) {
            (Ok(timings), Some(in_flight)) => Ok((in_flight.bundle, timings)),
            (Err(error), Some(in_flight)) => Err(refuse(error, in_flight.bundle)),
            (Err(error), None) => Err(refuse(error, Bundle::new(0, 0, 0))),
            (Ok(_), None) => Err(refuse(Error::Memory { bytes: 0 }, Bundle::new(0, 0, 0))),
        }
    }

    fn measure_parts(&mut self, functions: &[Function], time: Duration) -> Result<Timings, Error> {
        // Once as usual: everything is then in place, and the results are there for comparison.
        self.enqueue(0, functions).map_err(|error| self.interrupted(&error))?;
        self.wait_for_lane()?;
        let launches = self.plan.launches.clone();
        let arena = self.lanes[0].memory.as_ref().map_or(0, DeviceMemory::start);
        let tables = self.tables.as_ref().map_or(0, DeviceMemory::start);
        let launch = |stream: &Stream, index: usize| {
            let (launch, function) = (&launches[index], functions[index]);
            let Geometry { threads, shared_bytes, .. } = *launch.geometry;
            let jobs = arena + (launch.jobs.start * size_of::<Job>()) as u64;
            let shape = [launch.blocks, threads, shared_bytes];
            // SAFETY: as in `enqueue`, whose plan this is.
            unsafe { stream.launch(function, shape, jobs, launch.jobs.len() as u32, tables, arena) }
        };
        let mut stages = Vec::with_capacity(launches.len());
        for (name, range) in self.plan.stages() {
            let each = |s: &Stream| range.clone().try_for_each(|index| launch(s, index));
            stages.push((name, self.timed(time, each)?));
        }
        let all = |stream: &Stream| (0..launches.len()).try_for_each(|index| launch(stream, index));
        let device = self.timed(time, all)?;
        let (input, output) = (arena + self.plan.input, arena + self.plan.output);
        let copy_in = self.timed_copies(time, Direction::In, input, output, None)?;
        let copy_out = self.timed_copies(time, Direction::Out, input, output, None)?;
        Ok(Timings { copy_in, copy_out, device, stages })
    }

    /// Seconds that a copy of `bytes` bytes takes, with pinned or unpinned memory.
    ///
    /// # Errors
    /// [`Error::Busy`] when something is in flight, or the card's error.
    pub fn copy_seconds(
        &mut self,
        direction: Direction,
        bytes: usize,
        is_pinned: bool,
        time: Duration,
    ) -> Result<f64, Error> {
        self.enter_idle()?;
        let mut bundle = Bundle::new(bytes, bytes, 0);
        bundle.output_mut().fill(1); // pages that exist
        if is_pinned {
            for arena in [bundle.input(), bundle.output()] {
                if self.context.pin(arena) != Pinned::Here {
                    let reason = "the driver does not pin the memory".into();
                    return Err(Error::Failed { call: "pin", code: 0, reason });
                }
            }
        }
        let to = self.reserve(2 * bytes as u64)?;
        self.lanes[0].in_flight = Some(InFlight { bundle, error: None });
        let from = to + bytes as u64;
        let seconds = self.timed_copies(time, direction, to, from, Some(bytes));
        self.lanes.iter_mut().for_each(|lane| lane.in_flight = None);
        seconds
    }

    /// Cost of launching an empty kernel.
    ///
    /// # Errors
    /// [`Error::Busy`] when something is in flight, or the card's error.
    pub fn launch_cost(&mut self, time: Duration) -> Result<LaunchCost, Error> {
        let probe = self.place_probe("probe_logic", 1, 0)?;
        let interval = self.timed(time, |stream| probe.launch(stream))?;
        let latency = (0..LATENCIES).map(|_| self.timed(Duration::ZERO, |s| probe.launch(s)));
        let latency = latency.collect::<Result<Vec<_>, _>>()?.into_iter().fold(f64::MAX, f64::min);
        Ok(LaunchCost { interval, latency })
    }

    /// Issue rates of the card for the instructions of techniques; `rounds` rounds a thread are
    /// long enough when they take much more than a launch.
    ///
    /// # Errors
    /// [`Error::Busy`] when something is in flight, or the card's error.
    pub fn issue_rates(&mut self, rounds: u32, time: Duration) -> Result<IssueRates, Error> {
        let instructions = self.issue_rate("probe_permute", rounds, time)?;
        let instructions = instructions.min(self.issue_rate("probe_logic", rounds, time)?);
        let accesses = 2.0 * self.issue_rate("probe_shared", rounds, time)?;
        let has_products = BMMA_CAPABILITIES.contains(&self.info.capability);
        let products =
            if has_products { self.issue_rate("probe_bmma", rounds, time)? } else { 0.0 };
        let is_hopper = WGMMA_CAPABILITY == self.info.capability;
        let wide_products = if is_hopper {
            self.issue_rate("probe_wgmma", rounds, time)? / WARPS_OF_WIDE
        } else {
            0.0
        };
        Ok(IssueRates { instructions, accesses, products, wide_products })
    }
}

/// A launch of a kernel that measures the card.
struct Probe {
    function: Function,
    shape: [u32; 3],
    arena: u64,
    tables: u64,
}

impl Probe {
    fn launch(&self, stream: &Stream) -> Result<(), CallError> {
        // SAFETY: `place_probe` has put the job there and made room for its destinations.
        unsafe { stream.launch(self.function, self.shape, self.arena, 1, self.tables, self.arena) }
    }
}

impl CudaEngine {
    /// Instructions of a warp that a full card issues per second.
    fn issue_rate(
        &mut self,
        kernel: &'static str,
        rounds: u32,
        time: Duration,
    ) -> Result<f64, Error> {
        let blocks = self.info.multiprocessors * BLOCKS_OF_PROBE;
        // The difference of two lengths, which excludes the cost of a launch.
        let mut seconds = [0.0; 2];
        for (seconds, rounds) in seconds.iter_mut().zip([rounds, 2 * rounds]) {
            let probe = self.place_probe(kernel, blocks, rounds)?;
            *seconds = self.timed(time, |stream| probe.launch(stream))?;
        }
        let warps = f64::from(blocks) * f64::from(THREADS_OF_PROBE / WARP);
        let instructions = warps * f64::from(rounds) * f64::from(PROBE_OPERATIONS);
        // A disturbance of the clock must not make it infinite.
        Ok(instructions / (seconds[1] - seconds[0]).max(seconds[1] / 8.0))
    }

    fn place_probe(
        &mut self,
        kernel: &'static str,
        blocks: u32,
        rounds: u32,
    ) -> Result<Probe, Error> {
        let geometry = Geometry::of(kernel).ok_or(Error::Memory { bytes: 0 })?;
        let symbol_bytes = geometry.unit_bytes;
        let job = Job {
            destinations: RESERVED_FOR_JOBS,
            destination_stride: symbol_bytes,
            symbol_bytes,
            rows: blocks,
            depth: rounds,
            ..Job::default()
        };
        self.enter_idle()?;
        let arena = self.reserve(RESERVED_FOR_JOBS + u64::from(blocks * symbol_bytes))?;
        self.write_jobs(arena, &[job])?;
        let function = self.function(kernel, geometry).map_err(|error| self.ended(&error))?;
        let tables = self.tables.as_ref().map_or(0, DeviceMemory::start);
        let shape = [blocks, geometry.threads, geometry.shared_bytes];
        Ok(Probe { function, shape, arena, tables })
    }

    /// Whether a measurement is possible now; makes the context current.
    pub(super) fn enter_idle(&mut self) -> Result<(), Error> {
        if let Some(error) = &self.lost {
            return Err(error.clone());
        }
        if self.lanes.iter().any(|lane| lane.in_flight.is_some()) {
            return Err(Error::Busy { depth: self.lanes.len() });
        }
        self.context.enter().map_err(|error| self.ended(&error))
    }

    /// Makes the first lane's arena at least that large, and returns its address.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<u64, Error> {
        let lane = &mut self.lanes[0];
        if lane.memory.as_ref().is_none_or(|memory| memory.bytes() < bytes) {
            lane.memory = None;
            match DeviceMemory::new(bytes) {
                Ok(memory) => lane.memory = Some(memory),
                Err(error) => return Err(self.ended(&error)),
            }
        }
        Ok(self.lanes[0].memory.as_ref().map_or(0, DeviceMemory::start))
    }

    /// Copies jobs to `to` and waits until they are there.
    pub(super) fn write_jobs(&mut self, to: u64, jobs: &[Job]) -> Result<(), Error> {
        let bytes: Vec<u8> = jobs.iter().flat_map(|job| job.to_bytes()).collect();
        self.write(to, &bytes)
    }

    /// Copies bytes to `to` and waits until they are there.
    pub(super) fn write(&mut self, to: u64, bytes: &[u8]) -> Result<(), Error> {
        let lane = &mut self.lanes[0];
        if lane.staging.len() < bytes.len() {
            lane.staging = Arena::new(bytes.len().next_power_of_two());
        }
        lane.staging[..bytes.len()].copy_from_slice(bytes);
        // SAFETY: the caller's place is within the lane's memory; staging stays in the lane.
        let copied = unsafe { lane.stream.copy_to(to, &lane.staging[..bytes.len()]) };
        copied.and_then(|()| lane.stream.mark()).map_err(|error| self.ended(&error))?;
        self.wait_for_lane()
    }

    /// Seconds of `work` in the first lane's stream, averaged over repetitions that fill `time`.
    pub(super) fn timed(
        &mut self,
        time: Duration,
        work: impl Fn(&Stream) -> Result<(), CallError>,
    ) -> Result<f64, Error> {
        // The first one warms up.
        let mut seconds = self.run_once(1, &work)?.min(self.run_once(1, &work)?);
        let mut count = 1;
        while seconds < time.as_secs_f64() && count < REPETITIONS_MAX {
            let wanted = time.as_secs_f64() / seconds.max(1e-9) * count as f64 * 1.1;
            count = (wanted as usize).max(count + 1).min(16 * count).min(REPETITIONS_MAX);
            seconds = self.run_once(count, &work)?;
        }
        Ok(seconds / count as f64)
    }

    fn run_once(
        &mut self,
        count: usize,
        work: &impl Fn(&Stream) -> Result<(), CallError>,
    ) -> Result<f64, Error> {
        let (begun, stream) = (Instant::now(), &self.lanes[0].stream);
        let enqueued = (0..count).try_for_each(|_| work(stream)).and_then(|()| stream.mark());
        if let Err(error) = enqueued {
            return Err(self.interrupted(&error));
        }
        self.wait_for_lane()?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Copies of the bundle in flight: to and from these addresses, all of it or `bytes` each way.
    fn timed_copies(
        &mut self,
        time: Duration,
        direction: Direction,
        to: u64,
        from: u64,
        bytes: Option<usize>,
    ) -> Result<f64, Error> {
        let Some(InFlight { bundle, .. }) = &mut self.lanes[0].in_flight else {
            return Err(Error::Memory { bytes: 0 });
        };
        let in_bytes = bytes.unwrap_or(bundle.input_bytes());
        let out_bytes = bytes.unwrap_or(bundle.output_bytes());
        let input: *const u8 = bundle.input()[..in_bytes].as_ptr();
        let output: *mut u8 = bundle.output_mut()[..out_bytes].as_mut_ptr();
        // SAFETY: the bundle stays in the lane, and its arenas stay in place, until the streams are
        // idle, and they are not read before; both places are within the lane's memory.
        let copy_in =
            |s: &Stream| unsafe { s.copy_to(to, std::slice::from_raw_parts(input, in_bytes)) };
        // SAFETY: as above.
        let copy_out = |s: &Stream| unsafe {
            s.copy_from(std::slice::from_raw_parts_mut(output, out_bytes), from)
        };
        match direction {
            Direction::In => self.timed(time, copy_in),
            Direction::Out => self.timed(time, copy_out),
            Direction::Both => {
                // Both streams have the same amount each way, so that they end together.
                let other = Stream::new().map_err(|error| self.ended(&error))?;
                let both = |stream: &Stream| {
                    copy_in(stream)?;
                    copy_out(&other)?;
                    copy_out(stream)?;
                    copy_in(&other)
                };
                let seconds = self.timed(time, both);
                let rest = other.mark().map_err(|error| self.interrupted(&error));
                let rest = rest.and_then(|()| self.wait_for(|_| other.is_done()));
                if self.lost.is_some() {
                    std::mem::forget(other);
                }
                rest.and(seconds).map(|seconds| seconds / 2.0)
            }
        }
    }

    /// Waits until the first lane's stream has passed its mark.
    pub(super) fn wait_for_lane(&mut self) -> Result<(), Error> {
        self.wait_for(|engine| match engine.lanes.first() {
            Some(lane) => lane.stream.is_done(),
            None => Ok(true),
        })
    }

    fn wait_for(
        &mut self,
        is_done: impl Fn(&Self) -> Result<bool, CallError>,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            match is_done(self) {
                Ok(true) => return Ok(()),
                Ok(false) if begun.elapsed() > TIMEOUT => {
                    self.give_up();
                    return Err(self.lost.clone().unwrap_or(Error::Memory { bytes: 0 }));
                }
                // The driver, or a stand-in, may need this processor.
                Ok(false) => std::thread::yield_now(),
                Err(error) => return Err(self.ended(&error)),
            }
        }
    }

    /// Handles an error when some of the work may be in the stream already: waits for that.
    fn interrupted(&mut self, error: &CallError) -> Error {
        let error = self.ended(error);
        if self.lost.is_none() {
            match self.lanes[0].stream.mark() {
                Ok(()) => drop(self.wait_for_lane()),
                Err(unmarked) => self.lose(&unmarked),
            }
        }
        error
    }

    /// Handles an error of a measurement; the card may be lost by it.
    pub(super) fn ended(&mut self, error: &CallError) -> Error {
        if error.is_out_of_memory() {
            return Error::Memory { bytes: self.plan.bytes as usize };
        }
        if is_harmless(error) {
            return failed(error);
        }
        self.lose(error);
        // A measurement has no caller to return the work to.
        self.orphans.clear();
        lost(error)
    }
}

/// Blocks per multiprocessor that fill it in a probe: 2048 threads.
const BLOCKS_OF_PROBE: u32 = 8;
const THREADS_OF_PROBE: u32 = 256;
const WARP: u32 = 32;

/// Cards with the binary matrix product in hardware.
const BMMA_CAPABILITIES: std::ops::RangeInclusive<u32> = 80..=99;

/// Cards with the binary matrix product of four warps.
const WGMMA_CAPABILITY: u32 = 90;
const WARPS_OF_WIDE: f64 = 4.0;

/// Repetitions; the shortest is the latency of a launch.
const LATENCIES: usize = 100;

/// Room for the job of a probe, at the start of the arena.
const RESERVED_FOR_JOBS: u64 = 256;

/// A stream takes about a thousand launches before a call blocks.
const REPETITIONS_MAX: usize = 1000;

/// Longer than any measurement, even on the stand-in of a card, which shares slow processors with
/// other programs.
const TIMEOUT: Duration = Duration::from_secs(60);
