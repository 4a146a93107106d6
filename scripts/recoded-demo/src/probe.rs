//! The rank probe: the share of a generation or batch that each hop keeps if every node sends
//! exactly as many packets as it has symbols, on average if relays adapt. That is the model of the
//! exact tables, so the numbers compare directly. For a stream, with its per-hop repair, it is the
//! share of symbols.

use std::net::SocketAddr;
use std::time::Duration;

use recoded_code::theory::adaptive::{Outgoing, expected_rank_adaptive};
use recoded_code::theory::burst::interleave_depth;
use recoded_code::theory::{LossModel, Recoding, rank_distributions};
use recoded_netns::traffic::send_paced;
use recoded_netns::{Bed, BedError, Daemon, LinkCounters};

use crate::options::{Code, DemoOptions};
use crate::protected::{PROBE_FLOW, PROBE_SYMBOL_BYTES, PROBE_TUNNEL, flow, tunnel_payload_bytes};

/// Generations that determine the mean rank to a tenth of a point.
const GENERATIONS: u64 = 5_200;

/// Fewest generations of a probe with large ones, whose ranks vary less.
const GENERATIONS_MIN: u64 = 1_000;

/// Approximate limit of the packets sent.
const PACKETS_MAX: u64 = 200_000;

/// Most packets per second: seven daemons on two cores handle this without dropping any.
const PACKETS_PER_SECOND_MAX: f64 = 12_000.0;

/// Probe rate as a share of the link rate.
const LOAD: f64 = 0.5;

/// Approximate bytes of a probe packet on a link: headers, coding vector, symbol.
const PACKET_BYTES: f64 = 14.0 + 20.0 + 8.0 + 20.0 + 8.0 + 13.0 + PROBE_SYMBOL_BYTES as f64;

/// Batches sent ahead, so that relays learn the losses and adapt.
const AHEAD: u64 = 1_000;

/// Time for the last generation to travel and to be closed everywhere.
const SETTLE: Duration = Duration::from_millis(1500);

/// Results of the probe.
pub struct Probe {
    /// Mean rank over generation size, by hop.
    pub rank_ratio: Vec<f64>,
    /// Generations sent.
    pub generations: u64,
    /// Counters of the links during the probe.
    pub links: Vec<LinkCounters>,
}

/// Sends the probe and reads the rank histograms of the daemons.
///
/// # Errors
/// If a daemon does not answer or nothing was sent.
pub fn run(bed: &Bed, daemons: &[Daemon], options: &DemoOptions) -> Result<Probe, BedError> {
    let size = options.generation_size() as u64;
    let generations = (PACKETS_MAX / size).clamp(GENERATIONS_MIN, GENERATIONS);
    let payload = tunnel_payload_bytes(&daemons[0].show()?, &PROBE_TUNNEL)?;
    let to = SocketAddr::new(PROBE_TUNNEL.sink_address(), 9);
    let pace = (LOAD * options.rate_mbit() * 1e6 / 8.0 / PACKET_BYTES).min(PACKETS_PER_SECOND_MAX);
    let send = |generations: u64| {
        send_paced(bed.source(), to, payload, generations * size, pace)?;
        std::thread::sleep(SETTLE);
        Ok::<_, BedError>(())
    };
    if options.chosen() == Code::Bats {
        send(AHEAD)?;
    }
    let before: Vec<Ranks> = read(daemons, options)?;
    let links_before = bed.counters()?;
    send(generations)?;
    let after = read(daemons, options)?;
    let sent = after[0].sent - before[0].sent;
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

/// Expected result: the exact mean rank over generation or batch size, by hop; of a stream, every
/// symbol.
pub fn theory(options: &DemoOptions) -> Vec<f64> {
    let (size, field) = (options.generation_size(), options.field_order());
    let hop = LossModel { loss: options.loss_share(), burst_mean: options.burst };
    let hops = options.hop_count();
    match options.chosen() {
        Code::Stream | Code::Auto => vec![1.0; hops],
        Code::Bats => {
            let automatic =
                interleave_depth(options.burst, size, 0, u64::MAX, usize::from(u8::MAX));
            let hop = hop.interleaved(options.interleave.map_or(automatic, usize::from));
            if options.not_adaptive {
                return fixed(options, hop);
            }
            let outgoing = Outgoing::equal_airtime(size, field, hop, Recoding::Systematic);
            expected_rank_adaptive(&outgoing, &vec![hop; hops])
        }
        Code::Rlnc => fixed(options, hop),
    }
}

/// Expected packets per source symbol of the download. BATS: 1 over the rank behind the last hop.
/// Stream: retransmissions for the loss of one hop. None for generations, whose number of packets
/// follows from how many of them may stay incomplete.
pub fn overhead(options: &DemoOptions) -> Option<f64> {
    match options.chosen() {
        Code::Rlnc => None,
        Code::Stream | Code::Auto => Some(1.0 / (1.0 - options.loss_share())),
        Code::Bats => theory(options).last().map(|rank| 1.0 / rank),
    }
}

/// Every node sends as many packets as a generation has symbols, at any rank.
fn fixed(options: &DemoOptions, hop: LossModel) -> Vec<f64> {
    let (size, hops) = (options.generation_size(), options.hop_count());
    let (field, recoding) = (options.field_order(), Recoding::Systematic);
    let ranks = rank_distributions(size, field, &vec![size; hops], &vec![hop; hops], recoding);
    let mean = |distribution: &Vec<f64>| {
        let weighted = distribution.iter().enumerate().map(|(rank, share)| rank as f64 * share);
        weighted.sum::<f64>() / size as f64
    };
    ranks.iter().map(mean).collect()
}

struct Ranks {
    /// Packets sent, or symbols of a stream, at the source.
    sent: u64,
    /// Sum of the final ranks of full-size generations. At sinks that decode BATS blocks,
    /// innovative packets: a block that is decoded before its last batch has ended counts that
    /// batch in no histogram. For a stream, symbols.
    rank_sum: u64,
}

fn read(daemons: &[Daemon], options: &DemoOptions) -> Result<Vec<Ranks>, BedError> {
    let size = u64::from(options.batch);
    let ranks = daemons.iter().enumerate().map(|(index, daemon)| {
        let state = daemon.show()?;
        let flow = flow(&state, PROBE_FLOW)?;
        let ranks = (0..=size).zip(&flow.rank_histogram);
        let sum = ranks.map(|(rank, count)| rank * count).sum();
        Ok(Ranks {
            sent: match options.chosen() {
                Code::Stream => flow.count("source_symbols"),
                _ => flow.count("sent_systematic") + flow.count("sent_coded"),
            },
            rank_sum: match options.chosen() {
                Code::Stream => flow.count("innovative"),
                Code::Bats if index == options.hop_count() => flow.count("innovative"),
                _ => sum,
            },
        })
    });
    ranks.collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn theory_of_ten_hops_matches_the_published_table() {
        let ranks = theory(&options(&["--hops", "10", "--code", "rlnc"]));
        let table = [0.900, 0.858, 0.835, 0.819, 0.807, 0.797, 0.789, 0.782, 0.776, 0.771];
        for (found, expected) in ranks.iter().zip(table) {
            assert!((found - expected).abs() < 6e-4, "{found} {expected}");
        }
    }

    #[test]
    fn theory_of_lossless_hops_keeps_everything() {
        for code in ["rlnc", "bats", "stream", "auto"] {
            for rank in theory(&options(&["--loss", "0", "--field", "2", "--code", code])) {
                assert!((rank - 1.0).abs() < 1e-12, "{code}");
            }
        }
    }

    #[test]
    fn theory_of_a_line_that_adapts_is_above_that_of_one_that_does_not() {
        let line = ["--hops", "10", "--code", "bats"];
        let adaptive = theory(&options(&line));
        let fixed = theory(&options(&[&line[..], &["--not-adaptive"]].concat()));
        assert!((adaptive[0] - fixed[0]).abs() < 1e-9, "the source has nothing to adapt to");
        assert!(adaptive[9] > fixed[9] + 0.005, "{adaptive:?} {fixed:?}");
    }

    #[test]
    fn overhead_over_one_hop_makes_up_for_its_loss() {
        let overhead = |words: &[&str]| overhead(&options(words)).expect("a code with theory");
        assert!((overhead(&["--code", "stream", "--loss", "0"]) - 1.0).abs() < 1e-12);
        assert!((overhead(&["--code", "stream"]) - 1.0 / 0.9).abs() < 1e-12);
        assert!((overhead(&["--code", "bats", "--hops", "1"]) - 1.0 / 0.9).abs() < 1e-9);
    }

    fn options(words: &[&str]) -> DemoOptions {
        let words = ["recoded-demo"].iter().chain(words);
        DemoOptions::try_parse_from(words).expect("valid options")
    }
}
