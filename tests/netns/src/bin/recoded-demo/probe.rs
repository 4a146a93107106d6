//! The rank probe: how much of a generation each hop keeps when every node sends exactly as many
//! packets as the generation has symbols. That is the model of the exact tables, so the numbers
//! compare directly.

use std::net::SocketAddr;
use std::time::Duration;

use recoded_code::theory::{Hop, Recoding, rank_distributions};
use recoded_gf::FieldOrder;
use recoded_netns::traffic::send_paced;
use recoded_netns::{Bed, BedError, Daemon, LinkCounters, Loss};

use crate::options::Options;
use crate::protected::{PROBE_FLOW, PROBE_SYMBOL_BYTES, PROBE_TUNNEL, flow, tunnel_payload_bytes};

/// Generations that make the mean rank certain to a tenth of a point.
const GENERATIONS: u64 = 5_200;

/// Fewest generations of a probe with large ones, whose ranks vary less.
const GENERATIONS_MIN: u64 = 1_000;

/// About so many packets at most.
const PACKETS_MAX: u64 = 200_000;

/// Most packets a second: seven daemons on two cores manage this without losing any themselves.
const PACKETS_PER_SECOND_MAX: f64 = 12_000.0;

/// Share of the link rate that the probe takes.
const LOAD: f64 = 0.5;

/// Bytes of a probe packet on a link, about: headers, coding vector, symbol.
const PACKET_BYTES: f64 = 14.0 + 20.0 + 8.0 + 20.0 + 8.0 + PROBE_SYMBOL_BYTES as f64;

/// Time for the last generation to travel and to be closed everywhere.
const SETTLE: Duration = Duration::from_millis(1500);

/// What the probe found.
pub struct Probe {
    /// Mean rank over generation size, by hop.
    pub rank_ratio: Vec<f64>,
    /// Generations sent.
    pub generations: u64,
    /// What the links did meanwhile.
    pub links: Vec<LinkCounters>,
}

/// Sends the probe and reads the rank histograms of the daemons.
///
/// # Errors
/// When a daemon does not answer or nothing was sent.
pub fn run(bed: &Bed, daemons: &[Daemon], options: &Options) -> Result<Probe, BedError> {
    let size = options.generation_size() as u64;
    let generations = (PACKETS_MAX / size).clamp(GENERATIONS_MIN, GENERATIONS);
    let before: Vec<Ranks> = read(daemons, size)?;
    let links_before = bed.counters()?;
    let payload = tunnel_payload_bytes(&daemons[0].show()?, &PROBE_TUNNEL)?;
    let to = SocketAddr::new(PROBE_TUNNEL.sink_address(), 9);
    let pace = (LOAD * options.rate * 1e6 / 8.0 / PACKET_BYTES).min(PACKETS_PER_SECOND_MAX);
    send_paced(bed.source(), to, payload, generations * size, pace)?;
    std::thread::sleep(SETTLE);
    let after = read(daemons, size)?;
    let sent = after[0].sent_symbols - before[0].sent_symbols;
    if sent == 0 {
        return Err(BedError::Output {
            program: "the probe".into(),
            detail: "the source sent nothing".into(),
        });
    }
    let hops = before.iter().zip(&after).skip(1);
    let links = bed.counters()?.into_iter().zip(links_before);
    Ok(Probe {
        rank_ratio: hops.map(|(b, a)| (a.rank_sum - b.rank_sum) as f64 / sent as f64).collect(),
        generations: sent / size,
        links: links
            .map(|(after, before)| LinkCounters {
                eastward: after.eastward.since(&before.eastward),
                westward: after.westward.since(&before.westward),
            })
            .collect(),
    })
}

/// What the probe should find: the exact mean rank over generation size, by hop.
pub fn theory(size: usize, field: FieldOrder, loss: Loss, hops: usize) -> Vec<f64> {
    let hop = Hop { loss: loss.share, burst_mean: loss.burst_mean };
    let ranks =
        rank_distributions(size, field, &vec![size; hops], &vec![hop; hops], Recoding::Systematic);
    let mean = |distribution: &Vec<f64>| {
        let weighted = distribution.iter().enumerate().map(|(rank, share)| rank as f64 * share);
        weighted.sum::<f64>() / size as f64
    };
    ranks.iter().map(mean).collect()
}

struct Ranks {
    /// Source symbols sent, at the source.
    sent_symbols: u64,
    /// Sum of the ranks with which full-size generations closed, elsewhere.
    rank_sum: u64,
}

fn read(daemons: &[Daemon], size: u64) -> Result<Vec<Ranks>, BedError> {
    let ranks = daemons.iter().map(|daemon| {
        let state = daemon.show()?;
        let flow = flow(&state, PROBE_FLOW)?;
        let ranks = (0..=size).zip(&flow.rank_histogram);
        Ok(Ranks {
            sent_symbols: flow.counters.sent_systematic,
            rank_sum: ranks.map(|(rank, count)| rank * count).sum(),
        })
    });
    ranks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn theory_of_ten_hops_matches_the_published_table() {
        let ranks = theory(16, FieldOrder::Sixteen, Loss::independent(0.1), 10);
        let table = [0.900, 0.858, 0.835, 0.819, 0.807, 0.797, 0.789, 0.782, 0.776, 0.771];
        for (found, expected) in ranks.iter().zip(table) {
            assert!((found - expected).abs() < 6e-4, "{found} {expected}");
        }
    }

    #[test]
    fn theory_of_lossless_hops_keeps_everything() {
        for rank in theory(16, FieldOrder::Two, Loss::independent(0.0), 10) {
            assert!((rank - 1.0).abs() < 1e-12);
        }
    }
}
