//! The only thread that calls a device. If a call never returns, the thread is abandoned.

use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use recoded_code::engine::{Bundle, Completed, Engine, Error, Job, Operation, Segment, check};

use recoded_counters::engine::Fault;

use crate::config::Config;
use crate::measure;
use crate::model::{CLASSES, Class, Cost};

/// Opens the device, in the thread that will use it; called again after the device failed. It
/// should check first, in another process, whether opening is safe.
pub type OpenEngine = Arc<dyn Fn() -> Result<Box<dyn Engine>, Error> + Send + Sync>;

/// Reports of the device's thread.
pub(crate) enum Event {
    /// The device is open, verified and measured.
    Opened(Measured),
    /// It is unusable: it did not open, or hung in its self-test.
    NotOpened(Error, Fault),
    /// It refused a bundle.
    Refused(Box<Bundle>, Error),
    /// A bundle returned.
    Completed(Box<Completed>),
}

/// Measurements made when a device was opened.
pub(crate) struct Measured {
    /// Its name.
    pub name: String,
    /// Most bundles in flight.
    pub depth: usize,
    /// Costs of each class; `None` if measuring is disabled.
    pub costs: Option<Box<[Cost; CLASSES]>>,
}

/// The other end of a device's thread. Dropping it closes the channel; the thread ends when its
/// call into the device returns.
pub(crate) struct Runner {
    requests: Sender<Request>,
    events: Receiver<Event>,
}

impl Runner {
    /// Starts the thread, which opens the device; `waiter` is unparked at every event.
    pub fn start(open: OpenEngine, config: Arc<Config>, waiter: Thread) -> std::io::Result<Self> {
        let (requests, requested) = channel::unbounded();
        let (report, events) = channel::unbounded();
        let reporter = Reporter { events: report, waiter };
        let run = move || {
            let opened = open().map_err(|error| (error, Fault::Down));
            let tested = opened.and_then(|mut engine| {
                let measured = test(engine.as_mut(), &config)?;
                Ok((engine, measured))
            });
            match tested {
                Ok((engine, measured)) => {
                    if reporter.report(Event::Opened(measured)) {
                        serve(engine, &requested, &reporter);
                    }
                }
                Err((error, fault)) => {
                    reporter.report(Event::NotOpened(error, fault));
                }
            }
        };
        thread::Builder::new().name("recoded-device".into()).spawn(run)?;
        Ok(Self { requests, events })
    }

    /// Submits a bundle to the device, unless its thread has ended.
    pub fn submit(&self, bundle: Bundle) -> Result<(), Gone> {
        self.requests.send(Request::Do(bundle)).map_err(|_| Gone)
    }

    /// Announces a frequently used matrix to the device.
    pub fn expect(&self, matrix: &[u8], columns: usize) {
        // A device that is gone needs no announcement.
        let _ = self.requests.send(Request::Expect(matrix.into(), columns));
    }

    /// Makes the device keep a segment, if it can.
    pub fn keep(&self, segment: Arc<Segment>) {
        // A device that has gone keeps nothing.
        let _ = self.requests.send(Request::Keep(segment));
    }

    /// The next event, waiting until `deadline` for it; `None` when there is none by then.
    pub fn wait(&self, deadline: Instant) -> Result<Option<Event>, Gone> {
        let begun = Instant::now();
        while begun.elapsed() < AWAKE_AT_WORK {
            if let Some(event) = self.poll()? {
                return Ok(Some(event));
            }
            thread::yield_now();
        }
        match self.events.recv_deadline(deadline) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Gone),
        }
    }

    /// The next event, if there is one; an error when the thread has ended and all are taken.
    pub fn poll(&self) -> Result<Option<Event>, Gone> {
        match self.events.try_recv() {
            Ok(event) => Ok(Some(event)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Gone),
        }
    }
}

impl Runner {
    /// Waits until the thread has closed the device and ended, at most `patience`: a process that
    /// ends while one of its threads is inside a driver may crash there.
    pub fn end(self, patience: Duration) {
        let Self { requests, events } = self;
        drop(requests);
        let deadline = Instant::now() + patience;
        while events.recv_deadline(deadline).is_ok() {}
    }
}

/// Requests to the device's thread.
enum Request {
    Do(Bundle),
    Expect(Box<[u8]>, usize),
    Keep(Arc<Segment>),
}

/// The device's thread has ended.
pub(crate) struct Gone;

struct Reporter {
    events: Sender<Event>,
    waiter: Thread,
}

impl Reporter {
    /// False when the channel is closed.
    fn report(&self, event: Event) -> bool {
        let is_heard = self.events.send(event).is_ok();
        self.waiter.unpark();
        is_heard
    }
}

fn serve(mut engine: Box<dyn Engine>, requested: &Receiver<Request>, reporter: &Reporter) {
    let mut in_flight = 0_usize;
    let mut last_busy = Instant::now();
    loop {
        // Idle for a while already: blocks until there is work. Otherwise polls for work and
        // results in turn.
        let next = if in_flight == 0 && last_busy.elapsed() >= AWAKE {
            requested.recv().map_err(|_| TryRecvError::Disconnected)
        } else {
            requested.try_recv()
        };
        let was_busy = next.is_ok();
        match next {
            Ok(Request::Expect(matrix, columns)) => engine.expect(&matrix, columns),
            // If it cannot, bundles bring their rows along.
            Ok(Request::Keep(segment)) => drop(engine.keep(&segment)),
            Ok(Request::Do(bundle)) => match engine.submit(bundle) {
                Ok(()) => in_flight += 1,
                Err(refused) => {
                    if !reporter.report(Event::Refused(refused.bundle, refused.error)) {
                        return;
                    }
                }
            },
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return,
        }
        match engine.poll() {
            Some(completed) => {
                in_flight = in_flight.saturating_sub(1);
                if !reporter.report(Event::Completed(Box::new(completed))) {
                    return;
                }
            }
            None if was_busy => {}
            // A sleep takes longer than many bundles; work that takes longer than that can wait.
            None if last_busy.elapsed() < awake(in_flight) => {
                thread::yield_now();
                continue;
            }
            None => {
                thread::sleep(POLL_INTERVAL);
                continue;
            }
        }
        last_busy = Instant::now();
    }
}

/// Compares the device with this CPU, then measures it.
fn test(engine: &mut dyn Engine, config: &Config) -> Result<Measured, (Error, Fault)> {
    let timeout = config.open_timeout.min(TEST_TIMEOUT);
    let bundle = run(engine, check::sample(config.seed), timeout)?;
    if !check::agrees(&bundle) {
        let reason = "wrong results".into();
        return Err((Error::Lost { call: "self-test", code: 0, reason }, Fault::Wrong));
    }
    // A device that stops responding here has hung, as in the self-test.
    let costs = config.measure.then(|| measure(engine, config)).transpose();
    let costs = costs.map_err(|error| (error, Fault::Hung))?;
    Ok(Measured { name: engine.name().to_owned(), depth: engine.depth().max(1), costs })
}

/// Costs of every class on bundles whose memory the device has seen before, with as many of them in
/// flight as it accepts. A slow device is measured with less, so that this ends soon.
fn measure(engine: &mut dyn Engine, config: &Config) -> Result<Box<[Cost; CLASSES]>, Error> {
    let start = measure::latency(engine, Job::new(Operation::Multiply, 1, 1, 128))?;
    let mut costs = Box::new([Cost { start, bytes: 0.0 }; CLASSES]);
    // Products per second reached so far: initially hardly any.
    let mut products_rate = 1e6_f64;
    for class in Class::ALL {
        let products_max = (products_rate * MEASURE_SECONDS).max(1.0) as usize;
        let (job, jobs) = sample(class, products_max, config);
        if class.inverts() && class.columns() > 1 {
            let is_slow = job.products() > INVERSE_PRODUCTS_MIN.max(products_max as u64);
            if is_slow || class.columns() > INVERTED_MAX {
                // Twice the columns are eight times the work, on four times the coefficients.
                let Cost { start, bytes } = costs[class.index() - 1];
                costs[class.index()] = Cost { start: 8.0 * start, bytes: bytes / 2.0 };
                continue;
            }
        }
        let cost = &mut costs[class.index()];
        if class.inverts() {
            cost.start = measure::latency(engine, Job { row_bytes: 128, ..job })?;
        }
        let rate = measure::rate(engine, job, jobs, Duration::from_secs_f64(MEASURE_SECONDS))?;
        // One after another, each has a start of its own.
        let start = if engine.depth() > 1 { 0.0 } else { cost.start };
        let moving = (rate.bundle_seconds - start).max(rate.bundle_seconds / 8.0);
        cost.bytes = (jobs * (job.input_bytes() + job.output_bytes())) as f64 / moving.max(1e-9);
        products_rate = products_rate.max(rate.products);
    }
    Ok(costs)
}

/// The sample for measuring a class: a job, and its number in a bundle.
fn sample(class: Class, products_max: usize, config: &Config) -> (Job, usize) {
    let columns = class.columns();
    if class.inverts() {
        let job = Job::new(Operation::Solve, columns, columns, INVERSE_ROW_BYTES);
        let fitting = config.slot_bytes / job.input_bytes().max(job.output_bytes());
        let quick = products_max / job.products().max(1) as usize;
        return (job, fitting.min(quick).clamp(1, config.slot_jobs.max(1)));
    }
    // As many rows out as in, cut so that all fits a slot and the time.
    let row_bytes = config.slot_bytes / 2 / columns.max(8);
    let rows = columns.clamp(1, products_max.div_ceil(columns * 128));
    let row_bytes = row_bytes.min(products_max / (rows * columns)).max(128);
    (Job::new(Operation::Multiply, rows, columns, row_bytes), 1)
}

/// Makes the engine do one bundle.
fn run(
    engine: &mut dyn Engine,
    bundle: Bundle,
    timeout: Duration,
) -> Result<Bundle, (Error, Fault)> {
    let begun = Instant::now();
    engine.submit(bundle).map_err(|refused| (refused.error, Fault::Refused))?;
    loop {
        match engine.poll() {
            Some(Completed { bundle, result }) => {
                return result.map(|()| bundle).map_err(|error| (error, Fault::Failed));
            }
            None if begun.elapsed() > timeout => {
                let reason = "no answer in time".into();
                return Err((Error::Lost { call: "self-test", code: 0, reason }, Fault::Hung));
            }
            None => thread::yield_now(),
        }
    }
}

/// How long a device is polled without sleeping.
const fn awake(in_flight: usize) -> Duration {
    if in_flight == 0 { AWAKE } else { AWAKE_AT_WORK }
}

/// The same for new work, and for results: the time of a full bundle on a fast card, and that of a
/// large one. Sleeping and waking takes 0.1 ms, as long as many bundles.
const AWAKE: Duration = Duration::from_micros(400);
const AWAKE_AT_WORK: Duration = Duration::from_millis(2);

/// Interval between polls of a device after that. Linux adds 50 us of its own.
const POLL_INTERVAL: Duration = Duration::from_micros(10);

/// Measuring time of each class.
const MEASURE_SECONDS: f64 = 2e-3;

/// Rows of the systems in the measurement of inversion: a payload of one packet.
const INVERSE_ROW_BYTES: usize = 1024;

/// Inverses of more columns than this are extrapolated until the first of them has been done.
const INVERTED_MAX: usize = 256;

/// So are those that take a slow device too long; not those of fewer products than this.
const INVERSE_PRODUCTS_MIN: u64 = 1 << 16;

/// Longest self-test: far more than on any device, loading its code included.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);
