//! Command line of the demo.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use recoded_gf::FieldOrder;
use recoded_netns::{BedError, CodePlan, DirectionConfig, LinkConfig, Loss};

/// Delay of a packet that others overtake (`--reorder`).
const REORDER_BY: Duration = Duration::from_millis(3);

/// Rate of each link in Mbit/s, if the machine carries it: two cores do, with five daemons.
const RATE_MBIT: f64 = 300.0;

/// Sends real traffic over a line of lossy links, once forwarded by Linux and once recoded at every
/// relay, and compares both with theory. Everything runs in network namespaces of this machine and
/// is removed at the end. Needs root.
#[derive(Clone, Debug, Parser)]
#[command(name = "recoded-demo", version)]
pub struct DemoOptions {
    /// The network: a line; two paths between the same hosts; a tree of eight receivers; the
    /// butterfly. Those but the line have links of their own, and of these options only --seconds
    /// and --json besides
    #[arg(long, value_enum, default_value_t = DemoTopology::Line)]
    pub topology: DemoTopology,
    /// Lossy links between source and sink, 1 to 10; there is a relay between each two
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u8).range(1..=10))]
    pub hops: u8,
    /// Packets that each link drops, in percent, 0 to 50
    #[arg(long, default_value_t = 10.0, value_name = "PERCENT", value_parser = percent)]
    pub loss: f64,
    /// Mean length of a run of lost packets; 1 means independent losses
    #[arg(long, default_value_t = 1.0, value_name = "MEAN", value_parser = burst)]
    pub burst: f64,
    /// Rate of each link in Mbit/s, counted with Ethernet headers; 300 unless given, or less where
    /// this machine carries less at the moment
    #[arg(long, value_name = "MBIT", value_parser = rate)]
    pub rate: Option<f64>,
    /// One-way delay of each link in milliseconds, 0 to 600
    #[arg(long, default_value_t = 0.0, value_name = "MS", value_parser = millis)]
    pub delay: f64,
    /// Random extra delay of up to this many milliseconds, without reordering, 0 to 600
    #[arg(long, default_value_t = 0.0, value_name = "MS", value_parser = millis)]
    pub jitter: f64,
    /// Packets that each link delivers 3 ms late, so that others overtake them, in percent, 0 to 50
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT", value_parser = percent)]
    pub reorder: f64,
    /// Length of each timed measurement in seconds
    #[arg(long, default_value_t = 10, value_name = "S",
          value_parser = clap::value_parser!(u64).range(2..=600))]
    pub seconds: u64,
    /// What protects the download: what the daemon chooses, which is a stream on such a line,
    /// generations, BATS, or a stream that every hop keeps whole. Acknowledgements come back in
    /// generations, or a stream
    #[arg(long, value_enum, default_value_t = Code::Auto)]
    pub code: Code,
    /// Order of the field that coding coefficients come from: 2, 4, 16 or 256; 16 unless given; a
    /// stream is over 256
    #[arg(long, value_name = "Q")]
    pub field: Option<FieldOrder>,
    /// Symbols per generation, 1 to 256; BATS: packets per batch, 1 to 128
    #[arg(long, default_value_t = 16, value_name = "M",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub batch: u16,
    /// BATS: source symbols per block, 1 to 4096
    #[arg(long, default_value_t = 256, value_name = "K",
          value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub block: u16,
    /// BATS: batches that take turns, 1 to 255; chosen by the bursts that are seen unless given
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u8).range(1..))]
    pub interleave: Option<u8>,
    /// BATS: relays send the same number of packets for every batch, whatever arrived of it
    #[arg(long)]
    pub not_adaptive: bool,
    /// What is authenticated: every packet of a hop, and from source to sink every IP packet, which
    /// is encrypted; only the former; nothing
    #[arg(long, value_enum, default_value_t = Auth::Full)]
    pub auth: Auth,
    /// Where to save the results
    #[arg(long, default_value = "results/demo.json", value_name = "FILE")]
    pub json: PathBuf,
    /// Where to save the plot (default: the results' path with the ending .svg)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Leave namespaces, daemons and web server up at the end
    #[arg(long)]
    pub keep: bool,
    /// Only remove what earlier runs left up, and end
    #[arg(long)]
    pub clean: bool,
}

/// The network.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum DemoTopology {
    /// Relays between two ends
    Line,
    /// Two paths between two ends, whose rates add up
    Paths,
    /// Two relays, eight receivers
    Tree,
    /// Two branches that share a link
    Butterfly,
}

/// What is authenticated.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum Auth {
    /// Hops, and encryption from source to sink
    Full,
    /// Hops
    Hop,
    /// Nothing
    None,
}

impl Auth {
    /// Its word on the command line and in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Auth::Full => "full",
            Auth::Hop => "hop",
            Auth::None => "none",
        }
    }
}

/// What protects the download.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum Code {
    /// The default of daemons
    Auto,
    /// Generations, recoded at every relay
    Rlnc,
    /// Blocks of batches, recoded at every relay
    Bats,
    /// A stream; every hop repairs its own losses, at the rate that it measures
    Stream,
}

impl Code {
    /// Its word on the command line and in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Code::Auto => "auto",
            Code::Rlnc => "rlnc",
            Code::Bats => "bats",
            Code::Stream => "stream",
        }
    }
}

impl DemoOptions {
    /// Refuses options that the code does not support.
    ///
    /// # Errors
    /// [`BedError::Parameter`] names the option.
    pub fn check(&self) -> Result<(), BedError> {
        let refuse = |what, value, rule| Err(BedError::Parameter { what, value, rule });
        let usual = DemoOptions::parse_from(["recoded-demo"]);
        if self.topology != DemoTopology::Line && self.of_lines() != usual.of_lines() {
            let rule =
                "a line's options are for --topology line; the others take --seconds, --json";
            return refuse("--topology", format!("{:?}", self.topology).to_lowercase(), rule);
        }
        if self.keep && self.is_timed() {
            let rule = "links with delay, jitter or reordering end with the demo";
            return refuse("--keep", "given".into(), rule);
        }
        match (self.chosen(), self.field_order()) {
            (Code::Stream, field) if field != FieldOrder::TwoFiftySix => refuse(
                "--field",
                field.order().to_string(),
                "a stream is over field 256; other codes: --code",
            ),
            (Code::Bats, _) if self.batch > 128 => {
                refuse("--batch", self.batch.to_string(), "a batch has 1 to 128 packets")
            }
            _ => Ok(()),
        }
    }

    /// All options that apply only to lines.
    fn of_lines(&self) -> String {
        let of_links = (self.hops, self.loss, self.burst, self.rate, self.delay, self.jitter);
        let of_code = (self.code, self.field, self.batch, self.block, self.interleave);
        let others = (self.reorder, self.not_adaptive, self.auth, self.keep);
        format!("{of_links:?} {of_code:?} {others:?} {:?}", self.plot)
    }

    /// The code that protects the download: here there is one next hop, and a return path.
    pub fn chosen(&self) -> Code {
        if self.code == Code::Auto { Code::Stream } else { self.code }
    }

    /// The field of coding coefficients.
    pub fn field_order(&self) -> FieldOrder {
        let default = match self.chosen() {
            Code::Rlnc | Code::Bats => FieldOrder::Sixteen,
            _ => FieldOrder::TwoFiftySix,
        };
        self.field.unwrap_or(default)
    }

    /// A code with its parameters.
    pub fn plan_of(&self, code: Code) -> CodePlan {
        match code {
            Code::Auto => CodePlan::Auto,
            Code::Rlnc => CodePlan::Rlnc,
            Code::Bats => CodePlan::Bats {
                block_symbols: self.block.into(),
                interleave: self.interleave,
                adaptive: !self.not_adaptive,
            },
            Code::Stream => CodePlan::Stream,
        }
    }

    /// Rate of each link in Mbit/s.
    pub fn rate_mbit(&self) -> f64 {
        self.rate.unwrap_or(RATE_MBIT)
    }

    /// Loss of a link as a share.
    pub fn loss_share(&self) -> f64 {
        self.loss / 100.0
    }

    /// Whether the links have time in them.
    pub fn is_timed(&self) -> bool {
        self.link().is_timed()
    }

    /// Every link, both directions.
    pub fn link(&self) -> LinkConfig {
        let loss = Loss { share: self.loss_share(), burst_mean: self.burst };
        LinkConfig::both(DirectionConfig {
            delay: Duration::from_secs_f64(self.delay / 1e3),
            jitter: Duration::from_secs_f64(self.jitter / 1e3),
            reorder: self.reorder / 100.0,
            reorder_by: if self.reorder > 0.0 { REORDER_BY } else { Duration::ZERO },
            ..DirectionConfig::new(loss, self.rate_mbit())
        })
    }

    /// Number of lossy links.
    pub fn hop_count(&self) -> usize {
        usize::from(self.hops)
    }

    /// Symbols per generation.
    pub fn generation_size(&self) -> usize {
        usize::from(self.batch)
    }

    /// Path of the plot.
    pub fn plot_path(&self) -> PathBuf {
        self.plot.clone().unwrap_or_else(|| self.json.with_extension("svg"))
    }
}

fn percent(text: &str) -> Result<f64, String> {
    within(text, 0.0, 50.0)
}

fn millis(text: &str) -> Result<f64, String> {
    within(text, 0.0, 600.0)
}

fn burst(text: &str) -> Result<f64, String> {
    within(text, 1.0, 100.0)
}

fn rate(text: &str) -> Result<f64, String> {
    within(text, 2.0, 2000.0)
}

fn within(text: &str, low: f64, high: f64) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (low..=high).contains(&value) => Ok(value),
        _ => Err(format!("not a number from {low} to {high}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// `scripts/demo --help` prints this file without a build.
    #[test]
    fn help_that_is_printed_without_a_build_is_the_help_of_the_program() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/help.txt");
        let mut command = DemoOptions::command().bin_name("scripts/demo").term_width(0);
        let help = command.render_long_help().to_string();
        if std::env::var_os("RECODED_BLESS").is_some() {
            std::fs::write(path, &help).expect("write");
        }
        let printed = std::fs::read_to_string(path).expect("the file");
        assert_eq!(printed, help, "to write it: RECODED_BLESS=1 cargo test -p recoded-demo");
    }

    #[test]
    fn options_refuse_what_no_run_can_do() {
        let parse = |words: &[&str]| {
            DemoOptions::try_parse_from(["recoded-demo"].iter().chain(words)).is_ok()
        };
        assert!(parse(&[]));
        assert!(parse(&["--hops", "10", "--loss", "20", "--field", "2", "--burst", "8"]));
        assert!(!parse(&["--hops", "0"]));
        assert!(!parse(&["--hops", "11"]));
        assert!(!parse(&["--loss", "-1"]));
        assert!(!parse(&["--loss", "nan"]));
        assert!(parse(&["--delay", "600", "--jitter", "2.5", "--reorder", "5"]));
        assert!(!parse(&["--delay", "601"]));
        assert!(!parse(&["--jitter", "-1"]));
        assert!(!parse(&["--field", "3"]));
        assert!(!parse(&["--batch", "257"]));
        assert!(!parse(&["--code", "raptor"]) && !parse(&["--code", "window"]));
        assert!(!parse(&["--interleave", "0"]));
        let check = |words: &[&str]| {
            let words = ["recoded-demo"].iter().chain(words);
            DemoOptions::try_parse_from(words).expect("the words are known").check().is_ok()
        };
        assert!(check(&["--code", "bats", "--batch", "128"]));
        assert!(!check(&["--code", "bats", "--batch", "129"]));
        assert!(check(&["--code", "rlnc", "--field", "2"]));
        assert!(check(&["--code", "stream"]));
        assert!(!check(&["--code", "stream", "--field", "16"]));
        assert!(check(&["--field", "256"]) && !check(&["--field", "16"]), "auto is a stream");
        assert!(check(&["--keep", "--burst", "8"]));
        assert!(!check(&["--keep", "--delay", "1"]));
        assert!(check(&["--topology", "tree", "--seconds", "2"]));
        assert!(!check(&["--topology", "tree", "--loss", "5"]));
        assert!(!check(&["--topology", "paths", "--keep"]));
    }
}
