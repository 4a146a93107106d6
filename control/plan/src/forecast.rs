//! Forecasts the goodput of a path: plain TCP, TCP split at every relay, and the codes of Recoded.
//!
//! ```text
//!  hops measured ─┬─> forecast/tcp.rs    formulas of TCP, fitted to measurements
//!                 └─> forecast/codes.rs  packets per symbol by recoded_code::theory,
//!                                        times the share reached at such round trips
//! ```
//!
//! All values are goodputs of one TCP connection over ten seconds, on processors that keep up.
//! Effects outside the formulas were fitted to `bench line` (`bench/results/line-2026-11-22.json`,
//! which has more of each start than later runs), and the tests compare all forecasts with those
//! rows. For the measured lines, the forecast for Recoded is within 15 %, and that for TCP with
//! losses within 40 %: its rows vary by as much from run to run.

pub(crate) mod codes;
mod tcp;

use recoded_code::theory::LossModel;
use serde::Serialize;
use std::net::IpAddr;

use crate::measured::{Measured, OneWayMeasurement};

/// One hop in the direction of the forecast.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Hop {
    /// Its loss rate and burst length.
    pub loss: LossModel,
    /// Mbit/s with Ethernet headers.
    pub rate_mbit: f64,
    /// Unloaded round trip in seconds.
    pub round_trip: f64,
    /// Largest IP packet.
    pub mtu: f64,
    /// Additional bytes of its IP headers compared with IPv4.
    pub longer_header_bytes: f64,
}

/// Additional bytes of an IPv6 header.
const V6_BYTES: f64 = 20.0;

/// Direction of a forecast.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the near end to the far end.
    There,
    /// From the far end to the near end.
    Back,
}

impl Hop {
    /// One direction of a measurement.
    #[must_use]
    pub fn new(measured: &Measured, direction: Direction) -> Hop {
        let OneWayMeasurement { loss, burst_mean, rate_mbit, mtu, .. } = *match direction {
            Direction::There => &measured.there,
            Direction::Back => &measured.back,
        };
        Hop {
            loss: LossModel { loss: loss.clamp(0.0, 0.999), burst_mean: burst_mean.max(1.0) },
            rate_mbit,
            round_trip: measured.round_trip.min_ms / 1e3,
            mtu: f64::from(mtu).clamp(256.0, 9000.0),
            longer_header_bytes: match measured.to.parse::<IpAddr>() {
                Ok(IpAddr::V6(_)) => V6_BYTES,
                _ => 0.0,
            },
        }
    }

    /// Payload of a full packet behind `header_bytes` of headers over IPv4.
    fn payload(&self, header_bytes: f64) -> f64 {
        (self.mtu - header_bytes - self.longer_header_bytes).max(1.0)
    }

    /// Mean run of losses if it is longer than random, otherwise 1.
    fn burst(&self) -> f64 {
        let LossModel { loss, burst_mean } = self.loss;
        if burst_mean * (1.0 - loss) > 1.15 { burst_mean } else { 1.0 }
    }
}

/// Ways to carry a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Contender {
    /// TCP with CUBIC, the default of most hosts.
    Cubic,
    /// TCP with BBR.
    Bbr,
    /// A proxy at every relay, BBR on every hop.
    SplitBbr,
    /// Streams of Recoded.
    Stream,
    /// Generations.
    Rlnc,
    /// Batches.
    Bats,
}

impl Contender {
    /// Name for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Contender::Cubic => "TCP cubic",
            Contender::Bbr => "TCP BBR",
            Contender::SplitBbr => "split TCP, BBR on each hop",
            Contender::Stream => "Recoded (stream)",
            Contender::Rlnc => "Recoded (rlnc)",
            Contender::Bats => "Recoded (bats)",
        }
    }

    /// Whether it is a code of Recoded.
    #[must_use]
    pub fn is_ours(self) -> bool {
        !matches!(self, Contender::Cubic | Contender::Bbr | Contender::SplitBbr)
    }
}

/// A row of a forecast.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct ForecastRow {
    /// The contender.
    pub contender: Contender,
    /// Goodput of a TCP connection.
    pub mbit: f64,
    /// The lowest and highest results of similar lines.
    pub range_mbit: (f64, f64),
    /// Packets on the busiest link for each one carried.
    pub packets_per_symbol: Option<f64>,
    /// Delay that losses add at the 99th percentile, in milliseconds, under load.
    pub added_p99_ms: Option<f64>,
}

/// Whether Recoded is worth it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Plain TCP performs as well, and almost nothing is lost.
    No,
    /// Plain TCP performs as well; other traffic loses packets.
    Datagrams,
    /// Recoded carries more.
    Yes,
    /// Split TCP carries as much.
    Split,
}

/// Forecast of a path in one direction.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Forecast {
    /// The direction.
    pub direction: Direction,
    /// Number of hops.
    pub hops: usize,
    /// End-to-end loss rate without repair.
    pub loss: f64,
    /// Round trip of the path, milliseconds.
    pub round_trip_ms: f64,
    /// Rate of the slowest hop.
    pub rate_mbit: f64,
    /// Rows, TCP first.
    pub rows: Vec<ForecastRow>,
    /// Whether Recoded is worth it.
    pub verdict: Verdict,
    /// The recommended code, if it is.
    pub code: Contender,
}

/// Loss rates below this are negligible.
const LOSS_NEGLIGIBLE: f64 = 1e-3;
const ROUND_TRIP_SHORT: f64 = 0.05;

/// Factor that Recoded must exceed TCP by to be worth it, and another code must exceed streams by.
pub(crate) const BETTER: f64 = 1.15;

impl Forecast {
    /// Forecasts the goodput over these hops, in their order. `None` without any.
    #[must_use]
    pub fn new(direction: Direction, hops: &[Hop]) -> Option<Forecast> {
        let slowest = hops.iter().map(|hop| hop.rate_mbit).min_by(f64::total_cmp)?;
        let arriving: f64 = hops.iter().map(|hop| 1.0 - hop.loss.loss).product();
        let round_trip: f64 = hops.iter().map(|hop| hop.round_trip).sum();
        let mut rows = tcp::rows(hops);
        rows.extend(codes::rows(hops));
        let loss = 1.0 - arriving;
        let (verdict, code) = verdict(&rows, loss, round_trip);
        Some(Forecast {
            direction,
            hops: hops.len(),
            loss,
            round_trip_ms: round_trip * 1e3,
            rate_mbit: slowest,
            rows,
            verdict,
            code,
        })
    }

    /// The row of a contender.
    #[must_use]
    pub fn row(&self, contender: Contender) -> Option<&ForecastRow> {
        self.rows.iter().find(|row| row.contender == contender)
    }
}

fn verdict(rows: &[ForecastRow], loss: f64, round_trip: f64) -> (Verdict, Contender) {
    let mbit =
        |contender| rows.iter().find(|row| row.contender == contender).map_or(0.0, |row| row.mbit);
    // Ties go to the code that needs no configuration.
    let best_other = rows.iter().filter(|row| row.contender.is_ours());
    let best_other = best_other.max_by(|one, other| one.mbit.total_cmp(&other.mbit));
    let stream = mbit(Contender::Stream);
    let code = match best_other {
        Some(row) if row.mbit > BETTER * stream => row.contender,
        _ => Contender::Stream,
    };
    let ours = mbit(code);
    let plain = mbit(Contender::Cubic).max(mbit(Contender::Bbr));
    let verdict = if loss < LOSS_NEGLIGIBLE && round_trip < ROUND_TRIP_SHORT {
        Verdict::No
    } else if ours <= BETTER * plain {
        if loss < LOSS_NEGLIGIBLE { Verdict::No } else { Verdict::Datagrams }
    } else if ours <= mbit(Contender::SplitBbr) {
        Verdict::Split
    } else {
        Verdict::Yes
    };
    (verdict, code)
}

#[cfg(test)]
mod tests;
