//! The only thread that calls a device. If a call never returns, the thread is abandoned.

use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use recoded_code::engine::{Bundle, Completed, Engine, Error, Job, Operation, Segment, check};

use crate::config::Config;
use crate::model::{CLASSES, Class};

/// Opens the device, in the thread that is going to use it; called again after the device failed.
/// It should find out first, in another process, whether opening is safe.
pub type OpenEngine = Arc<dyn Fn() -> Result<Box<dyn Engine>, Error> + Send + Sync>;

/// What the device's thread reports.
pub(crate) enum Event {
    /// The device is open, right, and measured.
    Opened(Measured),
    /// It is not to be used.
    NotOpened(Error),
    /// It did not take a bundle.
    Refused(Box<Bundle>, Error),
    /// A bundle came back.
    Completed(Box<Completed>),
}

/// What was measured when a device was opened.
pub(crate) struct Measured {
    /// Bundles that it takes at once.
    pub depth: usize,
    /// Seconds that the smallest bundle takes, and bytes per second by class; `None` when nothing
    /// was to be measured.
    pub rates: Option<(f64, [f64; CLASSES])>,
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
            let engine = open().and_then(|mut engine| {
                let measured = test(engine.as_mut(), &config)?;
                Ok((engine, measured))
            });
            match engine {
                Ok((engine, measured)) => {
                    if reporter.report(Event::Opened(measured)) {
                        serve(engine, &requested, &reporter);
                    }
                }
                Err(error) => {
                    reporter.report(Event::NotOpened(error));
                }
            }
        };
        thread::Builder::new().name("recoded-device".into()).spawn(run)?;
        Ok(Self { requests, events })
    }

    /// Gives the device a bundle, unless its thread has ended.
    pub fn submit(&self, bundle: Bundle) -> Result<(), Gone> {
        self.requests.send(Request::Do(bundle)).map_err(|_| Gone)
    }

    /// Tells the device which matrix is going to be used often.
    pub fn expect(&self, matrix: &[u8], columns: usize) {
        // A device that has gone needs to know nothing.
        let _ = self.requests.send(Request::Expect(matrix.into(), columns));
    }

    /// Has the device keep a segment, if it can.
    pub fn keep(&self, segment: Arc<Segment>) {
        // A device that has gone keeps nothing.
        let _ = self.requests.send(Request::Keep(segment));
    }

    /// The next event, waiting until `deadline` for it; `None` when there is none by then.
    pub fn wait(&self, deadline: Instant) -> Result<Option<Event>, Gone> {
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

/// What the device's thread is asked.
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
        // Nothing to poll for: waits for work. Otherwise looks for it and for results in turn.
        let next = if in_flight == 0 {
            requested.recv().map_err(|_| TryRecvError::Disconnected)
        } else {
            requested.try_recv()
        };
        let was_busy = next.is_ok();
        match next {
            Ok(Request::Expect(matrix, columns)) => engine.expect(&matrix, columns),
            // Where it cannot, bundles bring their rows along.
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
            // A sleep takes longer than many a bundle; what takes longer than that can wait.
            None if last_busy.elapsed() < AWAKE => {
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
fn test(engine: &mut dyn Engine, config: &Config) -> Result<Measured, Error> {
    let (bundle, _) = run(engine, check::sample(config.seed))?;
    if !check::agrees(&bundle) {
        let reason = "wrong results".into();
        return Err(Error::Lost { call: "self-test", code: 0, reason });
    }
    let rates = if config.measure { Some(measure(engine, config)?) } else { None };
    Ok(Measured { depth: engine.depth().max(1), rates })
}

/// The time of the smallest bundle, and the rate of full ones for every class. A slow device is
/// measured with less, so that this ends soon.
fn measure(engine: &mut dyn Engine, config: &Config) -> Result<(f64, [f64; CLASSES]), Error> {
    let mut start = f64::MAX;
    for _ in 0..REPEATS {
        let (_, taken) = run(engine, product(1, 1, 128)?)?;
        start = start.min(taken.as_secs_f64());
    }
    let mut rates = [0.0; CLASSES];
    // Products per second that were reached so far: to begin with, hardly any.
    let mut products_rate = 1e6_f64;
    for class in Class::ALL {
        let columns = class.columns();
        let products_max = (products_rate * MEASURE_SECONDS).max(1.0) as usize;
        // As many rows out as in, cut so that all fits a slot and the time.
        let row_bytes = config.slot_bytes / 2 / columns.max(8);
        let rows = columns.clamp(1, products_max.div_ceil(columns * 128));
        let row_bytes = row_bytes.min(products_max / (rows * columns)).max(128);
        let bundle = product(rows, columns, row_bytes)?;
        let (bytes, products) = (bundle.input_bytes() + bundle.output_bytes(), bundle.products());
        let (_, taken) = run(engine, bundle)?;
        let seconds = taken.as_secs_f64().max(1e-9);
        let moving = (seconds - start).max(seconds / 8.0);
        products_rate = products_rate.max(products as f64 / moving);
        rates[class_index(class)] = bytes as f64 / moving;
    }
    Ok((start, rates))
}

fn class_index(class: Class) -> usize {
    class.columns().ilog2() as usize
}

/// A product of ones, whose inputs have been written, so that its pages are there.
fn product(rows: usize, columns: usize, row_bytes: usize) -> Result<Bundle, Error> {
    let job = Job::new(Operation::Multiply, rows, columns, row_bytes);
    let mut bundle = Bundle::of(job).map_err(|_| Error::Memory { bytes: rows * row_bytes })?;
    (0..rows).for_each(|row| bundle.coefficients_mut(0, row).fill(1));
    (0..columns).for_each(|row| bundle.source_mut(0, row).fill(1));
    Ok(bundle)
}

/// Has the engine do one bundle, and says how long that took.
fn run(engine: &mut dyn Engine, bundle: Bundle) -> Result<(Bundle, Duration), Error> {
    let begun = Instant::now();
    engine.submit(bundle).map_err(|refused| refused.error)?;
    loop {
        match engine.poll() {
            Some(Completed { bundle, result }) => {
                return result.map(|()| (bundle, begun.elapsed()));
            }
            None => thread::sleep(POLL_INTERVAL),
        }
    }
}

/// How long a device is looked at without sleeping: what a full bundle takes on a fast card.
const AWAKE: Duration = Duration::from_micros(150);

/// Between two looks at a device after that. Linux adds 50 us of its own.
const POLL_INTERVAL: Duration = Duration::from_micros(10);

/// The best of these is what a start takes.
const REPEATS: usize = 5;

/// For each class.
const MEASURE_SECONDS: f64 = 2e-3;
