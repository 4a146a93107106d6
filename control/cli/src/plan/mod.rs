//! `recodectl plan`: measures a path without a daemon at either end, and predicts Recoded's
//! benefit. `control/plan` measures and forecasts; this module parses the command line and files of
//! hops, and prints.

mod figures;
mod show;
mod ways;

pub use show::text;

use clap::Args;
use recoded::log_limit::{Limit, suppressed};
use recoded_plan::error::MeasureError;
use recoded_plan::forecast::{Direction, Forecast, Hop};
use recoded_plan::listen::{Event, Limits, Listener, Served};
use recoded_plan::measure::{self, measure};
use recoded_plan::measured::{Measured, RangeError};
use recoded_plan::packet::PORT;
use serde::{Deserialize, Serialize};
use std::io::{self, IsTerminal, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Most hops of a path; below, most bytes of a hop's file.
const HOPS_MAX: usize = 64;
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Options of `plan`.
#[derive(Args)]
pub struct PlanOptions {
    /// The far end, where `recodectl plan --listen` runs
    #[arg(value_name = "HOST[:PORT]", required_unless_present_any = ["listen", "hops", "ways"])]
    host: Option<String>,
    /// Be the far end: answer one client at a time, at this address and port
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "any",
          value_parser = local, conflicts_with_all = ["host", "hops", "seconds"])]
    listen: Option<SocketAddr>,
    /// Forecast a path of several hops: what `plan --json` printed for each, from the near end on
    #[arg(long, value_name = "FILE", num_args = 1..,
          conflicts_with_all = ["host", "seconds", "rate_max"])]
    hops: Vec<PathBuf>,
    /// Say which network to build: for each way the files of its links, from the near end on, and
    /// before them a name where ways lead to several receivers
    #[arg(long, value_name = "[NAME=]FILE,...", num_args = 1..,
          conflicts_with_all = ["host", "listen", "hops", "seconds", "rate_max", "length"])]
    ways: Vec<String>,
    /// How long to measure losses, both directions together
    #[arg(long, default_value = "10",
          value_parser = |text: &str| crate::durations::seconds(text, 2..=120))]
    seconds: u64,
    /// Never send faster than this, in either direction
    #[arg(long, value_name = "MBIT", default_value = "1000", value_parser = rate)]
    rate_max: f64,
    /// With --listen: end after this time, 1s to 24h
    #[arg(long = "for", value_name = "TIME", default_value = "10m",
          value_parser = crate::durations::confirm_seconds, conflicts_with_all = ["host", "hops"])]
    length: u64,
}

/// Explains the command.
pub const HELP: &str = "\
Examples:
  recodectl plan --listen                          on the far end, first
  recodectl plan 192.0.2.2                         on the near end
  recodectl plan 192.0.2.2 --rate-max 50           never faster than 50 Mbit/s
  recodectl --json plan 192.0.2.2 > a.json         to keep, or to join with others
  recodectl plan --hops a.json b.json c.json       the path over all of these
  recodectl plan --ways dsl.json lte1.json,lte2.json        one uplink, or both?
  recodectl plan --ways x=up.json,x.json y=up.json,y.json   two receivers

It needs UDP port 9428 of the far end, no privileges and no daemon. It takes about
15 s, more over long round trips, and loads the path by up to 60 % of its rate, for
a tenth of a second by half more than its rate. Other traffic counts as part of the
path: measure when it is as it usually is.

Losses are counted in full packets at the rate shown, and bursts in packets of that
rate. The rate is the fastest sending at which no queue grows, with Ethernet, IP and
UDP headers. Forecasts are goodputs of one TCP connection over ten seconds.

--ways compares a single way, the sum of all, one in reserve, copies on each, and for
several receivers a tree and a flow to each. A file that is in several ways is a link
that they share. What was not measured is not known: two uplinks behind one slow box
look like two fast ones.";

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The path was not measured.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The address is unavailable.
    #[error(
        "cannot listen at {0} ({1}): take an address of this host and a free port, such as \
         --listen 0.0.0.0:9429"
    )]
    Listen(SocketAddr, io::Error),
    /// No such file.
    #[error("cannot read {0} ({1}): write the files that `recodectl --json plan` made")]
    File(PathBuf, io::Error),
    /// Not a plan.
    #[error("{0} is no result of `recodectl --json plan` ({1}): measure that hop again")]
    Parse(PathBuf, serde_json::Error),
    /// A figure out of range.
    #[error("{0}: {1}: measure that hop again")]
    Range(PathBuf, RangeError),
    /// Ways that lead nowhere.
    #[error(transparent)]
    Ways(#[from] recoded_plan::advice::WaysError),
    /// A way that names no file.
    #[error("--ways {0}: write files with commas between them, such as far=a.json,b.json")]
    Way(String),
    /// Too many files.
    #[error("{0} hops are too many: name {HOPS_MAX} files at most")]
    Hops(usize),
}

/// Output of `plan`.
#[derive(Serialize)]
#[serde(untagged)]
pub enum PlanReport {
    /// A path was measured, or several hops were joined.
    Plan(Box<PathForecast>),
    /// Several ways were compared.
    Ways(Box<ways::Network>),
    /// Other hosts measured against this listener.
    Served(Served),
}

/// Measurements, and the forecast from them.
#[derive(Serialize)]
pub struct PathForecast {
    /// A single hop.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Measured>,
    /// Several hops, from the near end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hops: Vec<Measured>,
    /// Outbound and return.
    forecasts: Vec<Forecast>,
}

impl PathForecast {
    fn all(&self) -> &[Measured] {
        self.measured.as_ref().map_or(&self.hops, std::slice::from_ref)
    }
}

/// Measures, listens or joins.
///
/// # Errors
/// No listener answers, a file is invalid, or the address is unavailable.
pub fn report(options: &PlanOptions) -> Result<PlanReport, PlanError> {
    if let Some(local) = options.listen {
        return listen(local, options).map(PlanReport::Served);
    }
    if !options.ways.is_empty() {
        return ways::compare(&options.ways).map(|network| PlanReport::Ways(Box::new(network)));
    }
    if !options.hops.is_empty() {
        if options.hops.len() > HOPS_MAX {
            return Err(PlanError::Hops(options.hops.len()));
        }
        let hops = options.hops.iter().map(|path| read(path));
        let hops = hops.collect::<Result<Vec<Measured>, PlanError>>()?;
        let forecasts = forecasts(&hops);
        return Ok(PlanReport::Plan(Box::new(PathForecast { measured: None, hops, forecasts })));
    }
    let host = options.host.as_deref().unwrap_or_default();
    let is_seen = io::stderr().is_terminal();
    let asked = measure::MeasurementOptions {
        seconds: options.seconds as f64,
        rate_max_mbit: options.rate_max,
    };
    let measured = measure(host, &asked, |what| {
        if is_seen {
            eprintln!("measuring: {what}");
        }
    })?;
    let forecasts = forecasts(std::slice::from_ref(&measured));
    Ok(PlanReport::Plan(Box::new(PathForecast {
        measured: Some(measured),
        hops: Vec::new(),
        forecasts,
    })))
}

fn forecasts(hops: &[Measured]) -> Vec<Forecast> {
    let there: Vec<Hop> = hops.iter().map(|hop| Hop::new(hop, Direction::There)).collect();
    let back = hops.iter().rev().map(|hop| Hop::new(hop, Direction::Back));
    let back: Vec<Hop> = back.collect();
    let there = Forecast::new(Direction::There, &there);
    there.into_iter().chain(Forecast::new(Direction::Back, &back)).collect()
}

fn listen(local: SocketAddr, options: &PlanOptions) -> Result<Served, PlanError> {
    let length = Duration::from_secs(options.length);
    let limits = Limits { rate_max_mbit: options.rate_max, length };
    let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), local.port());
    let bound = match Listener::bind(local, limits) {
        // A host without IPv6.
        Err(_) if local.ip() == Ipv6Addr::UNSPECIFIED => Listener::bind(v4, limits),
        bound => bound,
    };
    let mut listener = bound.map_err(|error| PlanError::Listen(local, error))?;
    let at = listener.local().unwrap_or(local);
    eprintln!("listening at UDP {at} for {} s; Ctrl-C ends it", options.length);
    let mut limit = Limit::new(Instant::now());
    let served = listener.run(|event| {
        // Anyone who can reach the port causes them.
        match limit.take(Instant::now()) {
            Some(0) => {}
            Some(before) => eprintln!("{}", suppressed(before)),
            None => return,
        }
        match event {
            Event::Opened(client) => eprintln!("{client} measures"),
            Event::Ended(client) => eprintln!("{client} is done"),
            Event::Version(client, version) => {
                eprintln!("{client} has version {version} of these measurements: refused");
            }
        }
    });
    served.map_err(|error| PlanError::Listen(at, error))
}

fn read(path: &Path) -> Result<Measured, PlanError> {
    #[derive(Deserialize)]
    struct File {
        measured: Measured,
    }
    let failed = |error| PlanError::File(path.to_owned(), error);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
    let parsed = serde_json::from_slice(&text);
    let File { measured } = parsed.map_err(|error| PlanError::Parse(path.to_owned(), error))?;
    measured.check().map_err(|error| PlanError::Range(path.to_owned(), error))?;
    Ok(measured)
}

/// Parses an address, a port, or both.
fn local(text: &str) -> Result<SocketAddr, String> {
    if text == "any" {
        return Ok(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), PORT));
    }
    let port = || text.parse().map(|port| SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port));
    let address = || text.parse().map(|address: IpAddr| SocketAddr::new(address, PORT));
    let found = text.parse().or_else(|_| port().map_err(drop)).or_else(|()| address());
    found.map_err(|_| "write an address, a port or both, such as 192.0.2.2:9428".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|rate| (0.5..=100_000.0).contains(rate));
    found.ok_or_else(|| "write a rate of 0.5 to 100000 Mbit/s".to_owned())
}
