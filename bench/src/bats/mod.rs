//! `bench bats`: encodes and decodes blocks of BATS codes, compared with the core's limit and with
//! RaptorQ, in turns.
//!
//! ```text
//!  encode   code: indices and generator of a batch, one product per batch     | ceiling, raptorq
//!  decode   packets as four recoding hops leave them: insert, advance, done   | raptorq
//! ```

mod block;

mod decode;
mod encode;

mod report;
mod rows;

use std::path::PathBuf;

use recoded_gf::Kernel;

use crate::cores;
use crate::error::BenchError;
use crate::kernels::limits::CoreLimits;
use crate::kernels::{choose_core, millis};
use crate::machine::Machine;
use crate::progress;
use crate::results::write_json;
use block::BlockShape;
use rows::BatsContest;

/// Measure encoding and decoding of BATS blocks against the core's limit and RaptorQ
///
/// Blocks of several shapes, on one core, by the thread's own processor time. Encoding forms every
/// batch from the start (choice of symbols and coefficients) and multiplies; rates are of coded
/// symbols. The ceiling is the rate of the core's product instruction for the products of the code.
/// Decoding takes packets as they come after four hops that lose 10 % and recode, redundant ones
/// included, from the first to the last symbol; rates are of source symbols. The crate raptorq
/// encodes as many repair symbols, and decodes what the same loss leaves it: source symbols and
/// repair symbols, or repair symbols alone. Every block is checked before anything is timed.
///
/// With 256 symbols of 1428 bytes in batches of 16, the default code should encode at 0.8 of its
/// ceiling and above 27 Gbit/s (the paper's FPGA), and decode at 10 Gbit/s and twice as fast as
/// RaptorQ.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  cargo run --release -p bench -- bats --quick
  cargo run --release -p bench -- bats --symbols 512 --bytes 1000
  cargo run --release -p bench -- bats --json bench/results/bats.json")]
pub struct BatsOptions {
    /// Also write everything, each sample included, to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Few and short samples: enough to see that it works
    #[arg(long, conflicts_with_all = ["rounds", "millis"])]
    quick: bool,
    /// Samples of each; the report has their median and the best
    #[arg(long, default_value_t = 61, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    rounds: u16,
    /// Milliseconds that each sample lasts at least
    #[arg(long, default_value_t = 4.0, value_parser = millis)]
    millis: f64,
    /// Only blocks of this many source symbols [default: a table of block shapes]
    #[arg(long, value_parser = clap::value_parser!(u16).range(16..=4096))]
    symbols: Option<u16>,
    /// Only batches of this many coded symbols
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=128))]
    batch_size: Option<u16>,
    /// Only symbols of this many bytes
    #[arg(long, value_parser = clap::value_parser!(u16).range(64..=9000))]
    bytes: Option<u16>,
    /// Core to run on [default: the last that may be used]
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Seed of symbols, losses and recoding
    #[arg(long, default_value_t = 0x5eed)]
    seed: u64,
}

/// Runs the benchmark, prints the tables and writes the JSON.
///
/// # Errors
/// [`BenchError`]: one sentence, with the fix if there is one.
pub fn run(options: &BatsOptions) -> Result<(), BenchError> {
    let (rounds, seconds) = match options.quick {
        true => (9, 0.5e-3),
        false => (usize::from(options.rounds), options.millis / 1e3),
    };
    let core = choose_core(options.core)?;
    cores::pin(core)?;
    let machine = Machine::describe();
    let products = CoreLimits::measure(rounds.min(LIMIT_ROUNDS_MAX), seconds).products();
    let shapes = shapes(options);
    let bar = progress::bar("making blocks", shapes.len());
    let mut rows: Vec<BatsContest> = Vec::new();
    for shape in bar.wrap_iter(shapes.into_iter()) {
        rows.extend(rows::build(shape, options.seed, products)?);
    }
    for round in progress::bar("rounds", rounds).wrap_iter(0..rounds) {
        rows.iter_mut().for_each(|row| row.round(round, seconds));
    }
    let rows: Vec<_> = rows.into_iter().map(BatsContest::measured).collect();
    println!("{}, kernel {}\n", machine.heading(), Kernel::best().name());
    println!("{}", report::tables(&rows));
    if let Some(path) = &options.json {
        let value = serde_json::json!({
            "benchmark": "bats",
            "machine": machine,
            "kernel": Kernel::best().name(),
            "core": core,
            "rounds": rounds,
            "sample_seconds": seconds,
            "seed": options.seed,
            "hops": decode::HOPS,
            "loss": decode::LOSS,
            "rows": rows,
        });
        write_json(path, &value)?;
    }
    Ok(())
}

/// The requested shape, or the shapes of the published table.
fn shapes(options: &BatsOptions) -> Vec<BlockShape> {
    let &BatsOptions { symbols, batch_size, bytes, .. } = options;
    if symbols.is_none() && batch_size.is_none() && bytes.is_none() {
        return BlockShape::published();
    }
    let or = |asked: Option<u16>, usual| asked.map_or(usual, usize::from);
    vec![BlockShape {
        symbols: or(symbols, BlockShape::TARGET.symbols),
        batch_size: or(batch_size, BlockShape::TARGET.batch_size),
        bytes: or(bytes, BlockShape::TARGET.bytes),
    }]
}

/// Cap on the initial rounds for the core's limits: every round of the rows measures them again.
const LIMIT_ROUNDS_MAX: usize = 31;
