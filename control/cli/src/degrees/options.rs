//! The command line of `recodectl degrees`.

use clap::Args;
use clap::builder::TypedValueParser;
use recoded_gf::FieldOrder;
use std::path::PathBuf;

/// What degrees are wanted for.
#[derive(Args)]
pub struct DegreeOptions {
    /// How many batches arrived with rank 0, 1, 2, ..: one count per line, or JSON; `-` is stdin
    #[arg(long, value_name = "FILE")]
    pub rank_histogram: PathBuf,
    /// The flow to take from the JSON of `recodectl show`, where several have counted ranks
    #[arg(long, value_name = "ID")]
    pub flow: Option<u64>,
    /// Symbols per batch, where the histogram does not reach up to it
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..=128).map(usize_of))]
    pub batch_size: Option<usize>,
    /// Field of the outer code's generators: 2, 4, 16 or 256; not that of the recoding
    #[arg(long, value_name = "Q", default_value = "256")]
    pub field: FieldOrder,
    /// Share of the symbols that may stay undecoded, 0.001 to 0.5: for a precode
    #[arg(long, value_name = "SHARE", default_value_t = 0.01)]
    pub eta: f64,
    /// Largest degree, such as the symbols of a block; without it M / eta
    #[arg(long, value_name = "D")]
    pub max_degree: Option<usize>,
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Text added to `--help`.
pub const EXAMPLES: &str = "\
Examples:
  recodectl --json show | recodectl degrees --rank-histogram -          a running flow, at its sink
  recodectl degrees --rank-histogram ranks.txt --max-degree 256         a block has 256 symbols
  recodectl degrees --rank-histogram ranks.txt --eta 0.05               a precode does the last 5 %
  printf '%s\\n' 0 1 8 31 60 | recodectl degrees --rank-histogram -     batches of 4 symbols

Where the file is text, empty lines and lines that start with # are skipped.

Reading the result: theta is how many symbols each batch recovers as their number grows, efficiency
how much of the received rank that is. 0.99 and above is usual; much less means that --max-degree is
too small for --eta: the last symbols are reached by large degrees only. The mean degree is the
number of symbols that the source combines per coded symbol. A distribution for worse lines than the
flow's wastes some of the rank; one for better lines may not decode at all. No key of the
configuration takes degrees: sources have them for their batch_size, made for ten hops that lose
10 % each. This command shows whether other degrees suit a line better.";
