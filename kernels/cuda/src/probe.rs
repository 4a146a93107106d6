//! Checks for a working card in a child process, so that a driver fault cannot end this one.
//!
//! A missing libcuda makes cudarc panic, a stub of it lacks symbols, a broken one crashes or hangs;
//! all of that ends only the child. The child is this very program, started once more with an
//! environment variable that [`CHILD`] reads before `main` begins: programs need no code for it,
//! and one that lacks this crate merely ends without a reply.

use std::env;
use std::io::Read;
use std::panic;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use recoded_code::engine::{Completed, Engine, Error, check};

use crate::driver::{self, CallError, DeviceInfo};
use crate::engine::{CudaEngine, OpenError, Options};
use crate::image::{IMAGE_VARIABLE, Image, ImageError};

/// The reason why no card is usable.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unusable {
    /// No compiled kernels.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// libcuda cannot be loaded.
    #[error("libcuda is not installed")]
    NoLibrary,
    /// The driver is older than the calls used here.
    #[error("the driver serves CUDA {driver}, {DRIVER_MIN} is needed")]
    TooOld {
        /// Its version, for example 11080 for 11.8.
        driver: u32,
    },
    /// No card, or not that one.
    #[error("card {device} of {cards}")]
    NoDevice {
        /// The requested card.
        device: usize,
        /// Existing cards.
        cards: usize,
    },
    /// The card has another user that does not share it.
    #[error("the compute mode of the card gives it to another process, or to none")]
    Taken,
    /// The driver or the card failed the test.
    #[error("{reason}")]
    Failed {
        /// Its error.
        reason: String,
    },
    /// The probe died.
    #[error("the driver crashed the probe ({status})")]
    Crashed {
        /// Its exit status.
        status: String,
    },
    /// The probe did not end.
    #[error("the driver did not answer within {seconds} s")]
    Silent {
        /// The time limit.
        seconds: u64,
    },
    /// The probe could not be started.
    #[error("cannot start the probe: {reason}")]
    NotStarted {
        /// The reason.
        reason: String,
    },
}

/// Opens the card in a child process and compares its results with this CPU; waits for at most
/// `timeout`.
///
/// # Errors
/// The reason why the card is unusable.
pub fn probe(options: &Options, timeout: Duration) -> Result<DeviceInfo, Unusable> {
    // Keeps the linker from dropping the hook together with unused parts of this module.
    std::hint::black_box(&CHILD);
    let not_started = |error: std::io::Error| Unusable::NotStarted { reason: error.to_string() };
    let technique = options.technique.map_or("auto", |technique| technique.name);
    let mut command = Command::new("/proc/self/exe");
    command
        .env(CHILD_VARIABLE, format!("{} {technique}", options.device))
        .env(IMAGE_VARIABLE, options.image.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().map_err(not_started)?;
    let status = wait(&mut child, timeout).map_err(not_started)?;
    let Some(status) = status else {
        return Err(Unusable::Silent { seconds: timeout.as_secs() });
    };
    let mut text = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut text).map_err(not_started)?;
    }
    let answer = text.lines().find_map(|line| line.strip_prefix(ANSWER));
    let crashed = || Unusable::Crashed { status: status.to_string() };
    parse(answer.ok_or_else(crashed)?).ok_or_else(crashed)?
}

/// Opens the card for a queue, at every attempt: the probe first, then the card. The probe is
/// skipped if this process has exclusive use of the card; its driver has then proved itself.
///
/// A driver that refuses a new context with the error that ended the last one will not serve this
/// process any more: [`Error::RestartNeeded`].
pub fn opener(
    options: Options,
    timeout: Duration,
) -> impl Fn() -> Result<Box<dyn Engine>, Error> + Send + Sync + 'static {
    move || {
        let absent = |reason| Error::Absent { reason };
        if !driver::is_exclusively_ours(options.device) {
            probe(&options, timeout).map_err(|error| absent(error.to_string()))?;
        }
        match CudaEngine::open(&options) {
            Ok(engine) => Ok(Box::new(engine)),
            Err(OpenError::Call(error)) if error.outlives_context() => {
                let CallError { call, code, name } = error;
                Err(Error::RestartNeeded { call, code, reason: name })
            }
            Err(OpenError::Call(CallError { call, code, name })) => {
                Err(Error::Lost { call, code, reason: name })
            }
            Err(error) => Err(absent(error.to_string())),
        }
    }
}

/// Waits for the end of the child; kills it after the timeout.
fn wait(child: &mut Child, timeout: Duration) -> std::io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() > timeout {
            child.kill()?;
            // A child in an uninterruptible call of the driver is left to Linux.
            child.try_wait()?;
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn parse(answer: &str) -> Option<Result<DeviceInfo, Unusable>> {
    let mut words = answer.split('\t');
    let kind = words.next()?;
    let mut number = || words.next()?.parse().ok();
    Some(match kind {
        "usable" => Ok(DeviceInfo {
            capability: number()? as u32,
            multiprocessors: number()? as u32,
            memory_bytes: number()?,
            driver: number()? as u32,
            name: words.next()?.into(),
        }),
        "no-library" => Err(Unusable::NoLibrary),
        "too-old" => Err(Unusable::TooOld { driver: number()? as u32 }),
        "no-device" => {
            Err(Unusable::NoDevice { device: number()? as usize, cards: number()? as usize })
        }
        "taken" => Err(Unusable::Taken),
        "failed" => Err(Unusable::Failed { reason: words.next()?.into() }),
        _ => return None,
    })
}

/// Called by Linux's loader before `main`.
#[used]
// SAFETY: functions in this section are called once, in the main thread, before `main`. This one
// needs no part of the runtime that is set up in between, and returns unless the variable is set.
#[unsafe(link_section = ".init_array")]
static CHILD: extern "C" fn() = child;

extern "C" fn child() {
    let Some(request) = env::var_os(CHILD_VARIABLE) else { return };
    let request = request.to_string_lossy().into_owned();
    // An unwinding panic must not cross into C; the parent sees a missing reply.
    let answer = panic::catch_unwind(|| answer(&request));
    let Ok(answer) = answer else { std::process::exit(1) };
    println!("{ANSWER}{}", answer.replace('\n', " "));
    std::process::exit(0);
}

fn answer(request: &str) -> String {
    let (device, technique) = request.split_once(' ').unwrap_or(("0", "auto"));
    let device = device.parse().unwrap_or(0);
    match examine(device, technique) {
        Ok(DeviceInfo { name, capability, multiprocessors, memory_bytes, driver }) => {
            format!("usable\t{capability}\t{multiprocessors}\t{memory_bytes}\t{driver}\t{name}")
        }
        Err(Unusable::NoLibrary) => "no-library".into(),
        Err(Unusable::Taken) => "taken".into(),
        Err(Unusable::TooOld { driver }) => format!("too-old\t{driver}"),
        Err(Unusable::NoDevice { device, cards }) => format!("no-device\t{device}\t{cards}"),
        Err(error) => format!("failed\t{error}"),
    }
}

fn examine(device: usize, technique: &str) -> Result<DeviceInfo, Unusable> {
    let failed = |error: &dyn std::error::Error| Unusable::Failed { reason: error.to_string() };
    if !driver::is_present() {
        return Err(Unusable::NoLibrary);
    }
    let version = driver::version().map_err(|error| failed(&error))?;
    if version < DRIVER_MIN {
        return Err(Unusable::TooOld { driver: version });
    }
    let cards = driver::device_count().or_else(|error| match error.code {
        NO_DEVICE => Ok(0),
        _ => Err(failed(&error)),
    })?;
    if device >= cards {
        return Err(Unusable::NoDevice { device, cards });
    }
    let options = Options { device, technique: None, streams: 1, image: Image::find()? };
    let options = options.with_technique(technique).map_err(|error| failed(&error))?;
    let mut engine = CudaEngine::open(&options).map_err(|error| match error {
        OpenError::Call(call) if call.is_unavailable() => Unusable::Taken,
        error => failed(&error),
    })?;
    self_test(&mut engine, SELF_TEST_TIMEOUT).map_err(|error| failed(&error))?;
    let info = engine.info().clone();
    // This process is about to end: no need to release anything.
    std::mem::forget(engine);
    Ok(info)
}

/// Runs one job of each kind on the engine and compares every byte with this CPU.
///
/// # Errors
/// It fails, differs or takes longer than `timeout`.
pub fn self_test(engine: &mut impl Engine, timeout: Duration) -> Result<(), OpenError> {
    let begun = Instant::now();
    engine.submit(check::sample(SAMPLE_SEED)).map_err(|refused| refused.error)?;
    loop {
        match engine.poll() {
            Some(Completed { bundle, result: Ok(()) }) if check::agrees(&bundle) => return Ok(()),
            Some(Completed { result: Err(error), .. }) => return Err(error.into()),
            Some(_) => return Err(OpenError::Wrong),
            None if begun.elapsed() > timeout => {
                return Err(OpenError::Silent { seconds: timeout.as_secs() });
            }
            None => thread::sleep(Duration::from_micros(50)),
        }
    }
}

/// Requests a reply to a probe from a child program: card number and technique.
const CHILD_VARIABLE: &str = "RECODED_CUDA_PROBE";

/// Prefix of the child's reply, since drivers may print anything.
const ANSWER: &str = "recoded-cuda-probe: ";

/// CUDA 13.0, whose compiler builds the image (toolchain.txt); the calls made through cudarc are
/// older.
const DRIVER_MIN: u32 = 13000;

/// CUDA_ERROR_NO_DEVICE.
const NO_DEVICE: u32 = 100;

const SAMPLE_SEED: u64 = 1;
const SELF_TEST_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
