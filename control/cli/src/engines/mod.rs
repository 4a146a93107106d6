//! `recodectl engines`: engines for bulk work on this machine, their speed, and why a card is not
//! used. It examines the machine, not the daemon; `recodectl show engine` shows the engine that a
//! daemon uses.

mod show;

use recoded_code::engine::{CpuEngine, Engine, Error, Job, Operation, Partition};
use recoded_fpga::{CARD_RULE, Card};
use recoded_gf::Kernel;
use recoded_offload::measure;
use serde::Serialize;
use std::thread;
use std::time::Duration;

pub use show::text;

/// The result, as serialised to JSON.
#[derive(Serialize)]
pub struct EngineComparison {
    /// Time spent measuring.
    seconds: u64,
    /// Bytes of each source and coded symbol in the measurement.
    symbol_bytes: usize,
    /// Every engine of this build.
    engines: Vec<EngineReport>,
    /// Break-even points of a card and all threads of the CPU, by size of generation.
    break_even: Vec<BreakEven>,
}

/// One engine.
#[derive(Serialize)]
struct EngineReport {
    name: &'static str,
    available: bool,
    /// Its description, or why it is not available.
    detail: String,
    /// Gigabytes of coded symbols per second, from host memory to host memory.
    rates: Vec<Rate>,
}

/// A rate for generations of one size, with as many coded as source symbols.
#[derive(Copy, Clone, Serialize)]
struct Rate {
    source_symbols: usize,
    gigabytes: f64,
}

/// Size of a job, in bytes, above which the card is faster for generations of that size.
#[derive(Copy, Clone, Serialize)]
struct BreakEven {
    source_symbols: usize,
    /// Null if the CPU is always faster.
    bytes: Option<u64>,
}

/// Finds the engines and measures them for `seconds` in all; 0 measures nothing. `card` is the FPGA
/// card.
pub fn report(seconds: u64, card: Option<&Card>) -> EngineComparison {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut found: Vec<(&'static str, OpenedEngine)> = vec![("cpu-1", cpu(1))];
    if threads > 1 {
        found.push(("cpu", cpu(threads)));
    }
    found.push(("cuda", cuda()));
    found.push(("fpga", fpga(card)));
    let is_measured =
        |name: &str| seconds > 0 && (name != "fpga" || card.is_some_and(Card::is_real));
    let present = found.iter().filter(|(name, found)| found.is_ok() && is_measured(name));
    let present = present.count().max(1);
    let share = Duration::from_secs(seconds) / (present * SOURCE_SYMBOLS.len()) as u32;
    let mut start = None;
    let mut engines = Vec::new();
    for (name, found) in found {
        engines.push(match found {
            Ok((mut engine, detail)) => {
                let is_measured = is_measured(name);
                let rates = if is_measured { rates(engine.as_mut(), share) } else { Ok(vec![]) };
                if is_measured && CARDS.contains(&name) && start.is_none() {
                    start = start_seconds(engine.as_mut()).ok();
                }
                match rates {
                    Ok(rates) => EngineReport { name, available: true, detail, rates },
                    Err(error) => {
                        let detail = format!("{detail}: {error}");
                        EngineReport { name, available: false, detail, rates: Vec::new() }
                    }
                }
            }
            Err(detail) => EngineReport { name, available: false, detail, rates: Vec::new() },
        });
    }
    let break_even = break_even(&engines, start);
    EngineComparison { seconds, symbol_bytes: SYMBOL_BYTES, engines, break_even }
}

/// An engine and its description, or why it is not available.
type OpenedEngine = Result<(Box<dyn Engine>, String), String>;

fn cpu(threads: usize) -> OpenedEngine {
    let engine =
        CpuEngine::new(threads, Partition::FullBlock).map_err(|error| error.to_string())?;
    let plural = if threads == 1 { "" } else { "s" };
    let detail = format!("{threads} thread{plural}, {}", Kernel::best().name());
    Ok((Box::new(engine), detail))
}

/// The first CUDA card, after a child process has verified that opening it is safe.
#[cfg(feature = "cuda")]
fn cuda() -> OpenedEngine {
    use recoded_cuda::{CudaEngine, Options, probe};

    let options = Options::find();
    let options = match options {
        Ok(options) => options,
        Err(error) => return Err(error.to_string()),
    };
    let card = probe(&options, PROBE_TIMEOUT).map_err(|error| error.to_string())?;
    let engine = CudaEngine::open(&options).map_err(|error| error.to_string())?;
    let (major, minor) = (card.capability / 10, card.capability % 10);
    let memory = card.memory_bytes >> 30;
    let (driver, part) = (card.driver / 1000, card.driver % 1000 / 10);
    let detail = format!(
        "{}, capability {major}.{minor}, {} multiprocessors, {memory} GiB, driver for CUDA \
         {driver}.{part}",
        card.name, card.multiprocessors
    );
    Ok((Box::new(engine), detail))
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> OpenedEngine {
    Err("this program was built without the feature `cuda`".into())
}

/// The configured FPGA card.
fn fpga(card: Option<&Card>) -> OpenedEngine {
    let card = card.ok_or_else(|| format!("--fpga names no card; {CARD_RULE}"))?;
    let engine = card.open().map_err(|error| error.to_string())?;
    let detail = format!("{card}: {}", card.caveat());
    Ok((engine, detail))
}

fn rates(engine: &mut dyn Engine, share: Duration) -> Result<Vec<Rate>, Error> {
    let rate = |source_symbols: usize| {
        let job = Job::new(Operation::Multiply, source_symbols, source_symbols, SYMBOL_BYTES);
        // Small generations are bundled.
        let jobs = (BUNDLE_BYTES / (source_symbols * SYMBOL_BYTES)).max(1);
        let rate = measure::rate(engine, job, jobs, share)?;
        Ok(Rate { source_symbols, gigabytes: rate.bytes / 1e9 })
    };
    SOURCE_SYMBOLS.into_iter().map(rate).collect()
}

/// Seconds that the smallest bundle takes without others.
fn start_seconds(engine: &mut dyn Engine) -> Result<f64, Error> {
    let job = Job::new(Operation::Multiply, 1, 1, 128);
    let rate = measure::rate(engine, job, 1, Duration::from_millis(5))?;
    // Bundles ran concurrently.
    Ok(rate.bundle_seconds * engine.depth() as f64)
}

fn break_even(engines: &[EngineReport], start: Option<f64>) -> Vec<BreakEven> {
    let of = |name: &str| engines.iter().find(|engine| engine.name == name);
    let card = CARDS.into_iter().find_map(|name| of(name).filter(|card| !card.rates.is_empty()));
    let (Some(start), Some(card)) = (start, card) else { return Vec::new() };
    let Some(cpu) = of("cpu").or_else(|| of("cpu-1")) else { return Vec::new() };
    let pairs = cpu.rates.iter().zip(&card.rates);
    pairs
        .map(|(cpu, card)| {
            // Additional seconds per gigabyte on the CPU.
            let gain = 1.0 / cpu.gigabytes - 1.0 / card.gigabytes;
            let bytes = (gain > 0.0).then(|| (start / gain * 1e9).ceil() as u64);
            BreakEven { source_symbols: cpu.source_symbols, bytes }
        })
        .collect()
}

/// Cards; the first is compared with the CPU.
const CARDS: [&str; 2] = ["cuda", "fpga"];

/// Generation sizes: typical ones of packets, then of bulk work.
const SOURCE_SYMBOLS: [usize; 5] = [16, 64, 128, 256, 1024];

/// The block size in the papers.
const SYMBOL_BYTES: usize = 4096;

/// A bundle large enough for efficient copies.
const BUNDLE_BYTES: usize = 1 << 20;

/// Loading the driver and the kernels takes a second or two with a card.
#[cfg(feature = "cuda")]
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(name: &'static str, gigabytes: f64) -> EngineReport {
        let rates = vec![Rate { source_symbols: 128, gigabytes }];
        EngineReport { name, available: true, detail: String::new(), rates }
    }

    #[test]
    fn card_pays_from_where_its_start_is_made_up_for() {
        let engines = [engine("cpu-1", 1.0), engine("cpu", 4.0), engine("cuda", 8.0)];
        // 20 us over 1/4 - 1/8 ns a byte.
        let found = break_even(&engines, Some(20e-6));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].bytes, Some(160_000));
        let slow = [engine("cpu", 8.0), engine("cuda", 8.0)];
        assert_eq!(break_even(&slow, Some(20e-6))[0].bytes, None);
        assert!(break_even(&engines, None).is_empty());
    }
}
