//! Command line of the demo.

use std::path::PathBuf;

use clap::Parser;
use recoded_gf::FieldOrder;

/// Sends real traffic over a line of lossy links, once forwarded by Linux and once recoded at every
/// relay, and prints both beside theory. Everything runs in network namespaces of this machine and
/// is removed at the end. Needs root.
#[derive(Clone, Debug, Parser)]
#[command(name = "recoded-demo", version)]
pub struct Options {
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
    /// Rate of each link in Mbit/s, counted with Ethernet headers
    #[arg(long, default_value_t = 300.0, value_name = "MBIT", value_parser = rate)]
    pub rate: f64,
    /// Length of each timed measurement in seconds
    #[arg(long, default_value_t = 10, value_name = "S",
          value_parser = clap::value_parser!(u64).range(2..=600))]
    pub seconds: u64,
    /// Order of the field that coding coefficients come from: 2, 4, 16 or 256
    #[arg(long, default_value = "16", value_name = "Q")]
    pub field: FieldOrder,
    /// Symbols per generation, 1 to 256
    #[arg(long, default_value_t = 16, value_name = "M",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub batch: u16,
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

impl Options {
    /// Loss of a link as a share.
    pub fn loss_share(&self) -> f64 {
        self.loss / 100.0
    }

    /// Number of lossy links.
    pub fn hop_count(&self) -> usize {
        usize::from(self.hops)
    }

    /// Symbols per generation.
    pub fn generation_size(&self) -> usize {
        usize::from(self.batch)
    }

    /// Where the plot goes.
    pub fn plot_path(&self) -> PathBuf {
        self.plot.clone().unwrap_or_else(|| self.json.with_extension("svg"))
    }
}

fn percent(text: &str) -> Result<f64, String> {
    within(text, 0.0, 50.0)
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
    use super::*;

    #[test]
    fn options_refuse_what_no_run_can_do() {
        let parse =
            |words: &[&str]| Options::try_parse_from(["recoded-demo"].iter().chain(words)).is_ok();
        assert!(parse(&[]));
        assert!(parse(&["--hops", "10", "--loss", "20", "--field", "2", "--burst", "8"]));
        assert!(!parse(&["--hops", "0"]));
        assert!(!parse(&["--hops", "11"]));
        assert!(!parse(&["--loss", "-1"]));
        assert!(!parse(&["--loss", "nan"]));
        assert!(!parse(&["--field", "3"]));
        assert!(!parse(&["--batch", "257"]));
    }
}
