//! What a path would carry: TCP as it is, TCP split at every relay, and the codes of Recoded.
//!
//! ```text
//!  hops measured ─┬─> forecast/tcp.rs    formulas of TCP, fitted to what was measured
//!                 └─> forecast/codes.rs  packets per symbol by recoded_code::theory,
//!                                        times what of that was reached at such round trips
//! ```
//!
//! All are goodputs of one TCP connection over ten seconds, on processors that keep up. What the
//! formulas leave out was fitted to `bench line` (`bench/results/line-2026-11-22.json`, which has
//! more of each start than later runs), and the tests hold all of it against those rows. Where
//! lines were measured, ours are right within 15 %, TCP that loses packets within 40 %: its rows
//! scatter by as much from run to run.

pub(crate) mod codes;
mod tcp;

use recoded_code::theory::LossModel;
use serde::Serialize;
use std::net::IpAddr;

use crate::measured::{Measured, Way};

/// One hop in the direction of the forecast.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Hop {
    /// What it loses, and in which bursts.
    pub loss: LossModel,
    /// Mbit/s with Ethernet headers.
    pub rate_mbit: f64,
    /// Seconds there and back, without load.
    pub round_trip: f64,
    /// Largest IP packet.
    pub mtu: f64,
    /// What its IP headers take more than those of IPv4.
    pub longer_header_bytes: f64,
}

/// How much longer headers of IPv6 are.
const V6_BYTES: f64 = 20.0;

/// Which direction of hops is looked at.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the near end to the far end.
    There,
    /// From the far end to the near end.
    Back,
}

impl Hop {
    /// One direction of what was measured.
    #[must_use]
    pub fn new(measured: &Measured, direction: Direction) -> Hop {
        let Way { loss, burst_mean, rate_mbit, mtu, .. } = *match direction {
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

    /// What a full packet carries behind so many bytes of headers over IPv4.
    fn payload(&self, header_bytes: f64) -> f64 {
        (self.mtu - header_bytes - self.longer_header_bytes).max(1.0)
    }

    /// Mean run of losses where it is longer than by chance, else 1.
    fn burst(&self) -> f64 {
        let LossModel { loss, burst_mean } = self.loss;
        if burst_mean * (1.0 - loss) > 1.15 { burst_mean } else { 1.0 }
    }
}

/// Who carries a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Contender {
    /// TCP with cubic, as most hosts have it.
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
    /// Sliding windows from end to end.
    Window,
}

impl Contender {
    /// For tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Contender::Cubic => "TCP cubic",
            Contender::Bbr => "TCP BBR",
            Contender::SplitBbr => "split TCP, BBR on each hop",
            Contender::Stream => "Recoded (stream)",
            Contender::Rlnc => "Recoded (rlnc)",
            Contender::Bats => "Recoded (bats)",
            Contender::Window => "Recoded (window)",
        }
    }

    /// Whether it is ours.
    #[must_use]
    pub fn is_ours(self) -> bool {
        !matches!(self, Contender::Cubic | Contender::Bbr | Contender::SplitBbr)
    }
}

/// A row of a forecast.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Who.
    pub contender: Contender,
    /// Goodput of a TCP connection.
    pub mbit: f64,
    /// The least and the most that lines like this one gave.
    pub range_mbit: (f64, f64),
    /// Packets on the busiest link for each one carried.
    pub packets_per_symbol: Option<f64>,
    /// What losses add to the way of one packet in a hundred, milliseconds, under load.
    pub added_p99_ms: Option<f64>,
}

/// Whether it is worth it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Plain TCP does as well, and next to nothing is lost.
    No,
    /// Plain TCP does as well; what is not TCP loses packets.
    Datagrams,
    /// It carries more.
    Yes,
    /// Split TCP carries as much.
    Split,
}

/// What a path would carry in one direction.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Forecast {
    /// Which.
    pub direction: Direction,
    /// Hops.
    pub hops: usize,
    /// Share lost from end to end without anything.
    pub loss: f64,
    /// Round trip of the path, milliseconds.
    pub round_trip_ms: f64,
    /// The slowest hop.
    pub rate_mbit: f64,
    /// Rows, TCP first.
    pub rows: Vec<Row>,
    /// Whether it is worth it.
    pub verdict: Verdict,
    /// The code to take where it is.
    pub code: Contender,
}

/// Losses below these are not noticed.
const LOSS_NEGLIGIBLE: f64 = 1e-3;
const ROUND_TRIP_SHORT: f64 = 0.05;

/// Ours has to be better by so much to be worth it, and another code than streams, too.
pub(crate) const BETTER: f64 = 1.15;

impl Forecast {
    /// What these hops would carry, in their order. `None` without any.
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
    pub fn row(&self, contender: Contender) -> Option<&Row> {
        self.rows.iter().find(|row| row.contender == contender)
    }
}

fn verdict(rows: &[Row], loss: f64, round_trip: f64) -> (Verdict, Contender) {
    let mbit =
        |contender| rows.iter().find(|row| row.contender == contender).map_or(0.0, |row| row.mbit);
    // Ties go to the code that needs to be told nothing.
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
