//! Bundles in, descriptors to the card, bundles out.
//!
//! ```text
//!  submit   a free lane: the card is given the addresses of sources and destinations, and
//!           coefficients in the card's order; descriptors wait their turn, as many in the ring as
//!           it takes
//!  poll     completions come in the order of the descriptors; a lane that waits for none gives its
//!           bundle back
//! ```
//!
//! If the card does not reach a bundle's memory (`Transport::share`), sources are copied to memory
//! that it does reach, and destinations from there; segments that the card keeps (`segments`) are
//! then copied only once, not with each bundle over them. Destinations that are sums of several
//! products are always copied, as they are added up here.
//!
//! A card that hangs or answers out of order is lost. It is stopped, and cut off from all memory of
//! bundles, before the first of these is returned; the caller reopens it, which resets it.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use recoded_code::engine::{Bundle, Completed, Engine, Error, Job, Refused, Segment};
use recoded_gf::Kernel;

use crate::driver::{Driver, DriverError, DriverOptions, SubmitError};
use crate::layout::{Completion, Descriptor, status};
use crate::plan::{BundleAddresses, DescriptorPlan, Sum};
use crate::transport::{MemoryError, Transport};
use segments::Segments;

mod segments;

/// Use of a card by an engine.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct EngineOptions {
    /// The rings.
    pub driver: DriverOptions,
    /// Concurrent bundles: while one is computed, the next is copied.
    pub lanes: usize,
    /// Most bytes of a bundle, each for sources and for destinations that are copied, and for
    /// coefficients in tile order. All of it is allocated when the engine is opened.
    pub lane_bytes: usize,
    /// Bytes of the segments that are copied for the card to keep, also allocated at that time.
    pub kept_bytes: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            driver: DriverOptions::default(),
            lanes: 2,
            lane_bytes: 4 << 20,
            kept_bytes: 4 << 20,
        }
    }
}

/// Bytes of rows copied because the card did not reach them, or to be added up.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    /// Sources, segments included.
    pub sources: u64,
    /// Destinations.
    pub destinations: u64,
}

/// One card as an engine.
pub struct FpgaEngine<T> {
    driver: Driver<T>,
    name: String,
    lanes: Vec<Lane>,
    lane_bytes: usize,
    segments: Segments,
    /// Descriptors waiting for room in the ring, with their lanes.
    waiting: VecDeque<(usize, Descriptor)>,
    /// The lanes of the descriptors in the ring, in their order.
    in_ring: VecDeque<usize>,
    /// The reason why the card is unusable.
    lost: Option<Error>,
    /// Whether the card was cut off from all bundles when it was lost.
    is_stopped: bool,
    copied: Copied,
    /// Buffer for adding up rows of a product's parts.
    scratch: Vec<u8>,
}

/// Memory that the card reaches, for one bundle.
struct Lane {
    place: BundleAddresses,
    in_flight: Option<InFlight>,
}

struct InFlight {
    bundle: Bundle,
    /// Whether the card writes directly to the bundle.
    is_shared: bool,
    sums: Vec<Sum>,
    /// Descriptors without completion.
    pending: usize,
    error: Option<Error>,
}

impl<T: Transport> FpgaEngine<T> {
    /// Resets a card and prepares it for use.
    ///
    /// # Errors
    /// See [`DriverError`].
    pub fn open(transport: T, options: EngineOptions) -> Result<Self, DriverError> {
        let mut driver = Driver::open(transport, options.driver)?;
        let lane_bytes = options.lane_bytes;
        let lanes = (0..options.lanes.max(1)).map(|_| {
            let memory = driver.transport();
            let place = BundleAddresses {
                sources: memory.allocate(lane_bytes)?,
                tiles: memory.allocate(lane_bytes)?,
                destinations: memory.allocate(lane_bytes)?,
                output: None,
            };
            Ok(Lane { place, in_flight: None })
        });
        let lanes = lanes.collect::<Result<_, MemoryError>>()?;
        let kept = driver.transport().allocate(options.kept_bytes)?;
        let name = format!("fpga, {}", driver.transport().describe());
        Ok(Self {
            driver,
            name,
            lanes,
            lane_bytes,
            segments: Segments::new(kept, options.kept_bytes),
            waiting: VecDeque::new(),
            in_ring: VecDeque::new(),
            lost: None,
            is_stopped: false,
            copied: Copied::default(),
            scratch: Vec::new(),
        })
    }

    /// The card's driver.
    pub const fn driver(&mut self) -> &mut Driver<T> {
        &mut self.driver
    }

    /// Bytes of the segments copied for the card to keep.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.segments.bytes()
    }

    /// Bytes copied since the engine was opened.
    #[must_use]
    pub const fn copied(&self) -> Copied {
        self.copied
    }

    /// The card's addresses of sources and output of a bundle, if it reaches them without a copy.
    fn reached(&mut self, bundle: &mut Bundle) -> (Option<u64>, Option<u64>) {
        let memory = self.driver.transport();
        let kept = bundle.segment().and_then(|segment| self.segments.find(segment));
        let sources = kept.or_else(|| memory.share(bundle.sources()));
        (sources, memory.share_mut(bundle.output_mut()))
    }

    /// Provides the card with its inputs, by address or as a copy.
    fn begin(
        &mut self,
        lane: usize,
        mut bundle: Bundle,
        reached: Option<u64>,
        output: Option<u64>,
    ) -> Result<(), Refused> {
        let place = self.lanes[lane].place;
        let place = BundleAddresses { sources: reached.unwrap_or(place.sources), output, ..place };
        let plan = DescriptorPlan::make(&mut bundle, self.driver.shape(), place);
        let bytes = bundle.segment().map_or(bundle.input_bytes(), |segment| segment.bytes());
        let memory = self.driver.transport();
        let mut copied = memory.write(place.tiles, &plan.tiles);
        if reached.is_none() {
            self.copied.sources += bytes as u64;
            let sources = &bundle.sources()[..bytes];
            copied = copied.and_then(|()| memory.write(place.sources, sources));
        }
        if let Err(error) = copied {
            self.lose("copy", &error.to_string());
            return refuse(lost("copy", &error.to_string()), bundle);
        }
        let pending = plan.descriptors.len();
        self.waiting.extend(plan.descriptors.into_iter().map(|descriptor| (lane, descriptor)));
        let is_shared = output.is_some();
        let in_flight = InFlight { bundle, is_shared, sums: plan.sums, pending, error: None };
        self.lanes[lane].in_flight = Some(in_flight);
        self.fill_ring();
        Ok(())
    }

    fn fill_ring(&mut self) {
        while let Some((lane, descriptor)) = self.waiting.front() {
            match self.driver.submit(*descriptor) {
                Ok(_) => {}
                Err(SubmitError::Full { .. }) => break,
                Err(SubmitError::Memory(error)) => return self.lose("submit", &error.to_string()),
            }
            self.in_ring.push_back(*lane);
            self.waiting.pop_front();
        }
        self.driver.announce();
    }

    /// Takes completions until there are none.
    fn take_completions(&mut self) -> Result<(), DriverError> {
        while let Some(completion) = self.driver.poll()? {
            let lane = self.in_ring.pop_front().and_then(|lane| self.lanes.get_mut(lane));
            if let Some(InFlight { pending, error, .. }) =
                lane.and_then(|lane| lane.in_flight.as_mut())
            {
                *pending -= 1;
                if completion.status != status::OK {
                    error.get_or_insert_with(|| failed(completion));
                }
            }
        }
        self.fill_ring();
        Ok(())
    }

    /// A bundle without pending descriptors, with its destinations.
    fn finish(&mut self, lane: usize) -> Option<Completed> {
        let Lane { place, in_flight } = &mut self.lanes[lane];
        let InFlight { mut bundle, sums, error, .. } = in_flight.take()?;
        let place = *place;
        let result = match error {
            Some(error) => Err(error),
            None => sums
                .iter()
                .try_for_each(|sum| self.copy_out(place, *sum, &mut bundle))
                .map_err(|error| lost("copy", &error.to_string())),
        };
        Some(Completed { bundle, result })
    }

    fn copy_out(
        &mut self,
        place: BundleAddresses,
        sum: Sum,
        bundle: &mut Bundle,
    ) -> Result<(), MemoryError> {
        let placed = bundle.jobs()[sum.job];
        let Job { rows, row_bytes, .. } = placed.job;
        self.copied.destinations += (sum.parts * rows * row_bytes) as u64;
        self.scratch.resize(row_bytes, 0);
        for row in 0..rows {
            let offset = row * placed.job.stride();
            let made = &mut bundle.output_mut()[placed.destinations + offset..][..row_bytes];
            for part in 0..sum.parts {
                let start = sum.start + part * placed.job.output_bytes() + offset;
                let memory = self.driver.transport();
                let address = place.destinations + start as u64;
                if part == 0 {
                    memory.read(address, made)?;
                } else {
                    memory.read(address, &mut self.scratch)?;
                    Kernel::best().add(made, &self.scratch);
                }
            }
        }
        Ok(())
    }

    /// Stops using the card, and takes the bundles back from it.
    fn lose(&mut self, call: &'static str, reason: &str) {
        self.lost = Some(lost(call, reason));
        self.is_stopped = self.driver.stop();
        self.waiting.clear();
        self.in_ring.clear();
    }

    /// A bundle that was in flight when the card was lost. One that the card may still write to is
    /// never returned: the caller has its inputs (`Bundle::retain`).
    fn give_back(&mut self) -> Option<Bundle> {
        while let Some(InFlight { bundle, is_shared, .. }) =
            self.lanes.iter_mut().find_map(|lane| mem::take(&mut lane.in_flight))
        {
            if self.is_stopped || !is_shared {
                return Some(bundle);
            }
            mem::forget(bundle);
        }
        None
    }

    /// The reason why the card has no room for a bundle, given whether it reaches sources and
    /// output.
    fn refusal(&self, bundle: &Bundle, reached: Option<u64>, output: Option<u64>) -> Option<Error> {
        let shape = self.driver.shape();
        let [mut sources, tiles, destinations] =
            DescriptorPlan::bytes(bundle, shape, output.is_some());
        if reached.is_some() {
            sources = 0;
        }
        let bytes = sources.max(tiles).max(destinations);
        (bytes > self.lane_bytes).then_some(Error::Memory { bytes })
    }
}

impl<T: Transport> Engine for FpgaEngine<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn depth(&self) -> usize {
        self.lanes.len()
    }

    fn submit(&mut self, mut bundle: Bundle) -> Result<(), Refused> {
        if let Some(error) = &self.lost {
            return refuse(error.clone(), bundle);
        }
        let (reached, output) = self.reached(&mut bundle);
        if let Some(error) = self.refusal(&bundle, reached, output) {
            return refuse(error, bundle);
        }
        let Some(lane) = self.lanes.iter().position(|lane| lane.in_flight.is_none()) else {
            return refuse(Error::Busy { depth: self.lanes.len() }, bundle);
        };
        self.begin(lane, bundle, reached, output)
    }

    fn keep(&mut self, segment: &Arc<Segment>) -> Result<(), Error> {
        if let Some(error) = &self.lost {
            return Err(error.clone());
        }
        let (bytes, memory) = (segment.bytes(), self.driver.transport());
        let is_there = self.segments.find(segment).is_some();
        // Memory that the card reads in place needs no second copy.
        if !is_there && memory.share(segment.arena()).is_some() {
            return Ok(());
        }
        match self.segments.keep(segment, memory) {
            Ok(true) => {
                self.copied.sources += if is_there { 0 } else { bytes as u64 };
                Ok(())
            }
            Ok(false) => Err(Error::Memory { bytes }),
            Err(error) => {
                self.lose("keep", &error.to_string());
                Err(lost("keep", &error.to_string()))
            }
        }
    }

    fn poll(&mut self) -> Option<Completed> {
        if self.lost.is_none()
            && let Err(error) = self.take_completions()
        {
            self.lose("poll", &error.to_string());
        }
        if let Some(error) = self.lost.clone() {
            let bundle = self.give_back()?;
            return Some(Completed { bundle, result: Err(error) });
        }
        let is_done = |lane: &Lane| lane.in_flight.as_ref().is_some_and(|one| one.pending == 0);
        let lane = self.lanes.iter().position(is_done)?;
        self.finish(lane)
    }
}

fn refuse(error: Error, bundle: Bundle) -> Result<(), Refused> {
    Err(Refused { error, bundle: Box::new(bundle) })
}

fn failed(completion: Completion) -> Error {
    let name = status::ALL.iter().find(|(_, code)| *code == completion.status);
    let reason = name.map_or("an unknown status", |(name, _)| *name);
    Error::Failed { call: "multiply", code: completion.status.into(), reason: reason.into() }
}

fn lost(call: &'static str, reason: &str) -> Error {
    Error::Lost { call, code: 0, reason: reason.into() }
}
