//! `bench stripes`: Reed-Solomon codes of stored stripes compared with libraries that programs may
//! choose from, and whole programs on a file.
//!
//! ```text
//!  codes   a library each, checked row by row  \
//!  grid    k, m = 2 to 16, two sizes, in turns   > document: JSON  ->  page
//!  files   recoded-stripes, par2, memory, disk /
//! ```

mod bed;
mod codes;
mod files;
mod grid;
mod page;

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::cores;
use crate::error::BenchError;
use crate::kernels::rivals::Description;
use crate::kernels::{choose_core, millis};
use crate::machine::Machine;
use crate::progress;
use crate::results::{write, write_json};
use codes::Libraries;
use files::Files;
use grid::{BUFFERS, Effort, Row, Small};

/// Measure Reed-Solomon codes of stored stripes against ISA-L, Jerasure, reed-solomon-simd and par2
///
/// The grid: for 2 to 16 data and 2 to 16 parity buffers, of 1 MiB and as many bytes in packed
/// stripes of 32 KiB buffers, every library encodes, and recovers as many lost data buffers as it
/// can, in turns, on one core, by the thread's own processor time. Before that, every library
/// recovers a data buffer by each parity buffer alone, and all bytes are compared.
///
/// Files: recoded-stripes and par2 encode a file with 10 + 4, and recover it after the loss of four
/// parts, by all cores, until results are durable; in each round the copy rate of memory and the
/// write rate of the disk are measured, too.
///
/// Rivals in C are used when they are installed: apt install libisal2 libjerasure2 par2.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  cargo build --release -p recoded-stripes && cargo run --release -p bench -- stripes --quick
  cargo run --release -p bench -- stripes --parts grid --data 10 --parity 4
  cargo run --release -p bench -- stripes --parts files --file-mib 10240 --folder /srv
  cargo run --release -p bench -- stripes --json bench/results/stripes.json \\
      --page docs/measurements/stripes.md
  cargo run -p bench -- stripes --from bench/results/stripes.json --page docs/measurements/stripes.md")]
pub struct StripesOptions {
    /// Also write everything, each sample included, to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write the page of this benchmark
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Measure nothing: read the JSON of an earlier run
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Few codes, short samples and a small file: enough to see that it works
    #[arg(long, conflicts_with_all = ["rounds", "millis", "data", "parity", "file_mib"])]
    quick: bool,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Section::Grid, Section::Files])]
    parts: Vec<Section>,
    /// Samples of each library, and runs of each program
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Milliseconds that each sample of the grid lasts at least
    #[arg(long, default_value_t = 2.0, value_parser = millis)]
    millis: f64,
    /// Only codes with these numbers of data buffers [default: 2 to 16]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(2..=16))]
    data: Vec<u16>,
    /// Only codes with these numbers of parity buffers [default: 2 to 16]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(2..=16))]
    parity: Vec<u16>,
    /// Length of the file in MiB. The folder needs four times as much
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    file_mib: u32,
    /// Folder for files, on the disk to measure
    #[arg(long, value_name = "FOLDER", default_value = "/var/tmp")]
    folder: PathBuf,
    /// The program recoded-stripes [default: next to this program]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Measure this ISA-L instead of the installed one
    #[arg(long, value_name = "FILE")]
    isal: Option<PathBuf>,
    /// State in the results that other programs used the machine meanwhile
    #[arg(long)]
    shared: bool,
    /// Core of the grid [default: the last that may be used]
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Seed of the data
    #[arg(long, default_value_t = 0x5eed)]
    seed: u64,
}

/// A part of the benchmark.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
enum Section {
    Grid,
    Files,
}

/// A run, as its JSON has it.
#[derive(Debug, Serialize, Deserialize)]
struct Document {
    benchmark: String,
    /// Whether other programs used the machine.
    is_shared: bool,
    machine: Machine,
    kernel: String,
    rounds: usize,
    sample_seconds: f64,
    seed: u64,
    rivals: Vec<Description>,
    grid: Vec<Row>,
    small: Vec<Small>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Files>,
}

/// Runs the benchmark or reads a run; prints the page, and writes JSON and page.
///
/// # Errors
/// [`BenchError`]: one sentence, with the fix if there is one.
pub fn run(options: &StripesOptions) -> Result<(), BenchError> {
    let document = match &options.from {
        Some(path) => read(path)?,
        None => measure(options)?,
    };
    let page = page::page(&document);
    println!("{page}");
    if let Some(path) = &options.json {
        write_json(path, &document)?;
    }
    match &options.page {
        Some(path) => write(path, page),
        None => Ok(()),
    }
}

fn read(path: &Path) -> Result<Document, BenchError> {
    let action = || format!("reading {}", path.display());
    let text = fs::read_to_string(path).map_err(BenchError::os(action()))?;
    serde_json::from_str(&text).map_err(BenchError::os(action()))
}

fn measure(options: &StripesOptions) -> Result<Document, BenchError> {
    let machine = Machine::describe();
    // Before the process is pinned, because programs inherit that.
    let is_wanted = |section| options.parts.contains(&section);
    let files = is_wanted(Section::Files).then(|| measure_files(options)).transpose()?;
    let libraries = Libraries::open(options.isal.as_deref());
    let effort = match options.quick {
        true => Effort { rounds: 3, seconds: 0.2e-3, seed: options.seed },
        false => Effort {
            rounds: options.rounds.into(),
            seconds: options.millis / 1e3,
            seed: options.seed,
        },
    };
    let grid = match is_wanted(Section::Grid) {
        true => measure_grid(options, &libraries, effort)?,
        false => Vec::new(),
    };
    Ok(Document {
        benchmark: "stripes".into(),
        is_shared: options.shared,
        machine,
        kernel: recoded_gf::Kernel::best().name().into(),
        rounds: effort.rounds,
        sample_seconds: effort.seconds,
        seed: options.seed,
        rivals: libraries.described,
        small: grid::small_over_large(&grid),
        grid,
        files,
    })
}

fn measure_grid(
    options: &StripesOptions,
    libraries: &Libraries,
    effort: Effort,
) -> Result<Vec<Row>, BenchError> {
    cores::pin(choose_core(options.core)?)?;
    let chosen = |given: &[u16], quick: &[usize]| match given {
        [] if options.quick => quick.to_vec(),
        [] => BUFFERS.collect(),
        given => given.iter().copied().map(usize::from).collect(),
    };
    let (data, parity) = (chosen(&options.data, &[4, 10]), chosen(&options.parity, &[2, 4]));
    let codes = data.iter().flat_map(|k| parity.iter().map(move |m| grid::shapes(*k, *m)));
    let shapes: Vec<_> = codes.flatten().collect();
    let mut rows = Vec::new();
    for shape in progress::bar("codes", shapes.len()).wrap_iter(shapes.into_iter()) {
        rows.extend(grid::measure(libraries, shape, effort).map_err(BenchError::StripeCode)?);
    }
    Ok(rows)
}

fn measure_files(options: &StripesOptions) -> Result<Files, BenchError> {
    let own = std::env::current_exe().map_err(BenchError::os("finding this program"))?;
    let program = options.program.clone().unwrap_or_else(|| own.with_file_name("recoded-stripes"));
    if !program.is_file() {
        return Err(BenchError::NoStripes { program });
    }
    let mib = if options.quick { 16 } else { u64::from(options.file_mib) };
    files::measure(&files::Setting {
        folder: &options.folder,
        program: &program,
        bytes: mib << 20,
        rounds: if options.quick { 1 } else { options.rounds.into() },
        seed: options.seed,
    })
}
