//! Results of a run: the saved JSON, and the criteria for `ok`.

use std::collections::BTreeMap;

use recoded_api::v1::State;
use serde::Serialize;

use crate::load::Load;
use crate::options::{Code, DemoOptions};
use crate::probe;

/// Everything a run found out. Keys are stable; they may gain siblings.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// Lossy links.
    pub hops: usize,
    /// Share of packets that each link drops, as configured.
    pub loss: f64,
    /// Mean run of lost packets, as configured; 1 is independent.
    pub burst: f64,
    /// One-way delay of each link, in milliseconds.
    pub delay_ms: f64,
    /// Additional delay per packet, up to this, in milliseconds.
    pub jitter_ms: f64,
    /// Share of packets that each link delays, so that others overtake them.
    pub reorder: f64,
    /// Rate of each link.
    pub rate_mbit: f64,
    /// Code that protects the download: rlnc, bats or stream.
    pub code: &'static str,
    /// Whether the daemon chose it.
    pub is_automatic: bool,
    /// Order of the field.
    pub field: u16,
    /// Symbols per generation, or packets per batch.
    pub batch: usize,
    /// BATS: source symbols per block.
    pub block: Option<u16>,
    /// BATS: whether relays adapt the number of packets of a batch to its rank.
    pub adaptive: Option<bool>,
    /// Linux forwarding.
    pub plain: Plain,
    /// Recoding at every relay.
    pub recoded: Recoded,
    /// Loss that the links had during the rank probe, in path order, counted by the links.
    pub links: Vec<Link>,
    /// How each daemon uses its interfaces.
    pub modes: Vec<Mode>,
    /// Packets that each daemon dropped, by reason.
    pub drops: BTreeMap<String, BTreeMap<String, u64>>,
    /// Final state of each daemon, without its configuration.
    pub hosts: BTreeMap<String, State>,
    /// Criteria, and whether they hold.
    pub criteria: Vec<Criterion>,
    /// How busy this machine was.
    pub load: Loads,
    /// The machine of the run.
    pub machine: Machine,
    /// Length of the whole run.
    pub elapsed_seconds: f64,
    /// Whether every required criterion holds.
    pub ok: bool,
}

/// Linux forwarding.
#[derive(Clone, Debug, Serialize)]
pub struct Plain {
    /// Share of UDP packets that arrived.
    pub delivered: f64,
    /// `(1 - loss)^hops`.
    pub theory: f64,
    /// UDP packets sent.
    pub packets: u64,
    /// Lost packets that found a queue or the receiving socket full.
    pub overflows: u64,
    /// Goodput of a download, over a fixed time.
    pub tcp_mbps: f64,
    /// The same with BBR at the sender, which does not treat loss up to some 20 % as congestion;
    /// none if Linux has no BBR for namespaces.
    pub tcp_bbr_mbps: Option<f64>,
    /// Bytes received.
    pub tcp_bytes: u64,
    /// Whether that was the whole file.
    pub tcp_complete: bool,
    /// How TCP reacts to loss, plain and recoded.
    pub congestion_control: String,
}

/// Recoding at every relay.
#[derive(Clone, Debug, Serialize)]
pub struct Recoded {
    /// Share of UDP packets that arrived.
    pub delivered: f64,
    /// Mean rank over generation or batch size after each hop, when every node sends exactly one
    /// packet per symbol; share of packets that arrive, where no node recodes.
    pub rank_ratio: Vec<f64>,
    /// The same, computed.
    pub rank_theory: Vec<f64>,
    /// Generations or batches of that probe.
    pub rank_generations: u64,
    /// Share of UDP packets that did not arrive, at an offered load within capacity.
    pub residual_loss: f64,
    /// UDP packets sent.
    pub packets: u64,
    /// Packets that found a full queue during the run: the tunnel's, a link's, the receiving
    /// socket's.
    pub overflows: u64,
    /// Of these, packets outside the code's protection: not yet in the tunnel, or already out of
    /// it.
    pub overflows_at_ends: u64,
    /// UDP payload offered.
    pub offered_mbit: f64,
    /// Capacity of the links for it, given the packets planned per generation.
    pub capacity_mbit: f64,
    /// Goodput of the download.
    pub tcp_mbps: f64,
    /// Bytes of the file.
    pub tcp_bytes: u64,
    /// Duration of the download.
    pub tcp_seconds: f64,
    /// Whether that was the whole file; otherwise the download timed out.
    pub tcp_complete: bool,
    /// Whether the received file equals the sent one.
    pub sha256_ok: bool,
    /// Packets that the source sent per source symbol, for UDP.
    pub overhead: f64,
    /// The same, for the download.
    pub tcp_overhead: f64,
    /// Overhead in theory. BATS: 1 over the last of `rank_theory`. Stream: retransmissions for the
    /// loss of one hop. None for generations, whose number of packets follows from how many of them
    /// may stay incomplete.
    pub overhead_theory: Option<f64>,
    /// Time from the first packet of a generation or block until it was complete, on average.
    pub decode_delay_mean_ms: Option<f64>,
    /// The maximum of this time.
    pub decode_delay_max_ms: Option<f64>,
    /// Share of a core that each daemon used during the UDP measurement, in path order.
    pub core_shares: Vec<f64>,
    /// Arithmetic in use.
    pub kernel: String,
}

/// Loss that a link had.
#[derive(Clone, Debug, Serialize)]
pub struct Link {
    /// Packets that entered it, from the source's side.
    pub packets: u64,
    /// Share of them that it dropped.
    pub loss: f64,
    /// Mean run of drops.
    pub burst_mean: f64,
}

/// How a daemon uses an interface.
#[derive(Clone, Debug, Serialize)]
pub struct Mode {
    /// Host.
    pub host: String,
    /// Interface.
    pub interface: String,
    /// How the XDP program is attached.
    pub xdp: String,
    /// How the AF_XDP socket is bound.
    pub socket: String,
    /// Reason for not using a better one; empty if there is none.
    pub reason: String,
}

/// How busy this machine was during the measurements that depend on it.
#[derive(Copy, Clone, Debug, Default, Serialize)]
pub struct Loads {
    /// During the UDP measurement of Linux forwarding.
    pub plain_udp: Load,
    /// During the recoded download.
    pub recoded_tcp: Load,
    /// During the recoded UDP measurement.
    pub recoded_udp: Load,
}

/// The machine of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Processor.
    pub processor: String,
    /// Logical processors.
    pub cores: usize,
    /// Version of Linux.
    pub linux: String,
    /// Seconds since 1970 at the end.
    pub unix_time: u64,
}

/// Something that should hold.
#[derive(Clone, Debug, Serialize)]
pub struct Criterion {
    /// The criterion.
    pub rule: String,
    /// The numbers found.
    pub found: String,
    /// Whether it holds.
    pub holds: bool,
    /// Whether `ok` depends on it with these options; otherwise why not.
    pub waived: Option<String>,
}

/// Maximum residual loss: TCP at a few milliseconds requires this.
const RESIDUAL_MAX: f64 = 1e-4;

/// How far the measured rank may be from theory, as a share of the generation size.
const RANK_TOLERANCE: f64 = 0.01;

/// Allowed deviation of plain delivery from theory, unless the sample is too small.
const PLAIN_TOLERANCE: f64 = 0.01;

/// Required speedup over plain TCP, where plain TCP starves.
const TCP_GAIN: f64 = 100.0;

/// Share of link rate times theory that the recoded download must reach.
const TCP_SHARE: f64 = 0.6;

/// How many times the packets of theory a download may take.
const OVERHEAD_MAX: f64 = 1.1;

/// Plain TCP starves when fewer packets than this arrive.
const STARVING: f64 = 0.7;

const DELAY: &str = "these links have delay, which rates and repairs depend on: see `bench line`";

const BURSTS: &str = "losses come in bursts, which hit whole generations: see the README";

impl Findings {
    /// Judges the numbers.
    pub fn judge(&mut self, options: &DemoOptions) {
        let timed = options.is_timed().then_some(DELAY);
        let bursty = (options.burst > 1.0).then_some(BURSTS).or(timed);
        self.criteria = vec![
            self.plain_criterion(),
            self.rank_criterion(bursty),
            self.residual_criterion(bursty),
            self.file_criterion(bursty),
            self.gain_criterion(bursty),
            self.goodput_criterion(bursty),
        ];
        self.criteria.extend(self.overhead_criterion(bursty));
        self.ok = self.criteria.iter().all(Criterion::is_met);
    }

    /// Overflowing queues on a busy machine are excused; all other losses are judged.
    fn plain_criterion(&self) -> Criterion {
        let plain = &self.plain;
        // Losses in runs of B have about 2B - 1 times the variance of independent ones.
        let variance = plain.theory * (1.0 - plain.theory) * (2.0 * self.burst - 1.0);
        let deviations = 3.0 * (variance / plain.packets.max(1) as f64).sqrt();
        let tolerance = PLAIN_TOLERANCE.max(deviations);
        let misses = plain.theory - plain.delivered;
        let overflowed = plain.overflows as f64 / plain.packets.max(1) as f64;
        let is_of_machine = misses > 0.0 && misses - overflowed <= tolerance;
        let busy = self.load.plain_udp.excuse().filter(|_| is_of_machine);
        Criterion {
            rule: format!("plain UDP delivery is at most {} points off theory", points(tolerance)),
            found: format!("{:.4}, theory {:.4}", plain.delivered, plain.theory),
            holds: misses.abs() <= tolerance,
            waived: busy,
        }
    }

    fn rank_criterion(&self, bursty: Option<&'static str>) -> Criterion {
        let recoded = &self.recoded;
        let generations = recoded.rank_generations;
        let (what, sample) = match self.code {
            "bats" => ("rank", format!("{generations} batches")),
            "stream" => {
                ("share of symbols", format!("{} symbols", generations * self.batch as u64))
            }
            _ => ("rank", format!("{generations} generations")),
        };
        let differences = recoded.rank_ratio.iter().zip(&recoded.rank_theory);
        let worst = differences.map(|(found, theory)| (found - theory).abs()).fold(0.0, f64::max);
        Criterion {
            rule: format!(
                "the {what} after every hop is at most {} points off theory",
                points(RANK_TOLERANCE)
            ),
            found: format!("{} points off, over {sample}", points(worst)),
            holds: worst <= RANK_TOLERANCE,
            waived: bursty.map(str::to_owned),
        }
    }

    /// Overflowing queues in front of the tunnel and behind it are excused on a busy machine; all
    /// other losses are judged.
    fn residual_criterion(&self, bursty: Option<&'static str>) -> Criterion {
        let recoded = &self.recoded;
        let full = match recoded.overflows {
            0 => String::new(),
            packets => format!(" ({packets} found a full queue)"),
        };
        let at_ends = recoded.overflows_at_ends as f64 / recoded.packets.max(1) as f64;
        let is_of_machine = recoded.residual_loss - at_ends <= RESIDUAL_MAX;
        let busy = self.load.recoded_udp.excuse().filter(|_| is_of_machine);
        Criterion {
            rule: format!("recoded UDP loses at most {RESIDUAL_MAX:.0e} of its packets"),
            found: format!("{:.1e} of {}{full}", recoded.residual_loss, recoded.packets),
            holds: recoded.residual_loss <= RESIDUAL_MAX,
            waived: bursty.map(str::to_owned).or(busy),
        }
    }

    fn file_criterion(&self, bursty: Option<&'static str>) -> Criterion {
        let recoded = &self.recoded;
        let end = if recoded.tcp_complete { "SHA-256 compared" } else { "then patience ran out" };
        Criterion {
            rule: "the downloaded file is the file served".into(),
            found: format!("{} bytes, {end}", recoded.tcp_bytes),
            holds: recoded.sha256_ok,
            waived: bursty.filter(|_| !recoded.tcp_complete).map(str::to_owned),
        }
    }

    fn gain_criterion(&self, bursty: Option<&'static str>) -> Criterion {
        let (plain, recoded) = (self.plain.tcp_mbps, self.recoded.tcp_mbps);
        let starving = self.plain.theory <= STARVING;
        let waived = bursty.or((!starving).then_some("this loss does not starve plain TCP"));
        Criterion {
            rule: format!("recoded TCP is at least {TCP_GAIN:.0} times as fast as plain TCP"),
            found: format!("{recoded:.1} against {plain:.3} Mbit/s"),
            holds: recoded > 0.0 && recoded >= TCP_GAIN * plain,
            waived: waived.map(str::to_owned).or(self.load.recoded_tcp.excuse()),
        }
    }

    fn goodput_criterion(&self, bursty: Option<&'static str>) -> Criterion {
        let is_stream = self.code == "stream";
        let rank = self.recoded.rank_theory.last().copied().unwrap_or(0.0);
        let (theory, what) = match self.recoded.overhead_theory {
            Some(overhead) if is_stream => (1.0 / overhead, "/ packets per symbol"),
            _ => (rank, "x rank"),
        };
        let wanted = TCP_SHARE * self.rate_mbit * theory;
        let small = (!is_stream && (self.batch < 16 || self.field < 16))
            .then_some("small generations and small fields need more redundancy");
        Criterion {
            rule: format!("recoded TCP reaches {TCP_SHARE} x link rate {what} in theory"),
            found: format!("{:.1} Mbit/s, required {wanted:.1}", self.recoded.tcp_mbps),
            holds: self.recoded.tcp_mbps >= wanted,
            waived: bursty.or(small).map(str::to_owned).or(self.load.recoded_tcp.excuse()),
        }
    }

    /// Overhead of blocks and their ends, or of a stream, beyond theory.
    fn overhead_criterion(&self, bursty: Option<&'static str>) -> Option<Criterion> {
        let (found, theory) = (self.recoded.tcp_overhead, self.recoded.overhead_theory?);
        let times = found / theory;
        Some(Criterion {
            rule: format!(
                "the download takes at most {OVERHEAD_MAX} times the packets per symbol of theory"
            ),
            found: format!("overhead {found:.2}, theory {theory:.2}: {times:.2} x"),
            holds: times <= OVERHEAD_MAX,
            waived: bursty.map(str::to_owned),
        })
    }
}

/// Target goodput of a download in Mbit/s over links of the options' rate.
pub fn goodput_wanted(options: &DemoOptions) -> f64 {
    let share = match options.chosen() {
        Code::Stream => 1.0 / probe::overhead(options).unwrap_or(1.0),
        _ => probe::theory(options).last().copied().unwrap_or(0.0),
    };
    TCP_SHARE * options.rate_mbit() * share
}

impl Criterion {
    /// Whether it holds, or need not.
    pub fn is_met(&self) -> bool {
        self.holds || self.waived.is_some()
    }
}

/// A share in points (hundredths), without needless digits.
pub fn points(share: f64) -> String {
    let rounded = (share * 1e4).round() / 100.0;
    rounded.to_string()
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;

    use super::*;

    /// A run as it should be.
    pub(crate) fn example() -> Findings {
        let theory = vec![0.9, 0.858, 0.835, 0.819];
        Findings {
            hops: 4,
            loss: 0.1,
            burst: 1.0,
            delay_ms: 0.0,
            jitter_ms: 0.0,
            reorder: 0.0,
            rate_mbit: 300.0,
            code: "rlnc",
            is_automatic: false,
            field: 16,
            batch: 16,
            block: None,
            adaptive: None,
            plain: Plain {
                delivered: 0.655,
                theory: 0.6561,
                packets: 100_000,
                overflows: 0,
                tcp_mbps: 0.024,
                tcp_bbr_mbps: Some(0.1),
                tcp_bytes: 30_000,
                tcp_complete: false,
                congestion_control: "cubic".into(),
            },
            recoded: Recoded {
                delivered: 1.0,
                rank_ratio: theory.iter().map(|rank| rank - 0.001).collect(),
                rank_theory: theory,
                rank_generations: 5200,
                residual_loss: 0.0,
                packets: 90_000,
                overflows: 0,
                overflows_at_ends: 0,
                offered_mbit: 90.0,
                capacity_mbit: 150.0,
                tcp_mbps: 155.0,
                tcp_bytes: 200_000_000,
                tcp_seconds: 10.3,
                tcp_complete: true,
                sha256_ok: true,
                overhead: 1.7,
                tcp_overhead: 1.6,
                overhead_theory: None,
                decode_delay_mean_ms: Some(1.0),
                decode_delay_max_ms: Some(20.0),
                core_shares: vec![0.1; 5],
                kernel: "avx2".into(),
            },
            links: Vec::new(),
            modes: Vec::new(),
            drops: BTreeMap::new(),
            hosts: BTreeMap::new(),
            criteria: Vec::new(),
            load: Loads::default(),
            machine: Machine {
                processor: "some".into(),
                cores: 2,
                linux: "6.1".into(),
                unix_time: 0,
            },
            elapsed_seconds: 60.0,
            ok: false,
        }
    }

    fn judged(mut findings: Findings, words: &[&str]) -> Findings {
        let words = ["recoded-demo"].iter().chain(words);
        let options = DemoOptions::try_parse_from(words).expect("valid options");
        findings.judge(&options);
        findings
    }

    #[test]
    fn judge_accepts_a_run_as_it_should_be() {
        let findings = judged(example(), &[]);
        assert!(findings.ok, "{:?}", findings.criteria);
    }

    #[test]
    fn judge_refuses_each_fault_by_itself() {
        type Fault = fn(&mut Findings);
        let faults: [Fault; 6] = [
            |run| run.plain.delivered = 0.64,
            |run| run.recoded.rank_ratio[2] -= 0.011,
            |run| run.recoded.residual_loss = 2e-4,
            |run| run.recoded.sha256_ok = false,
            |run| run.plain.tcp_mbps = 2.0,
            |run| run.recoded.tcp_mbps = 140.0,
        ];
        for (number, fault) in faults.iter().enumerate() {
            let mut findings = example();
            fault(&mut findings);
            let findings = judged(findings, &[]);
            assert!(!findings.ok, "fault {number}");
            let broken = findings.criteria.iter().filter(|criterion| !criterion.holds).count();
            assert_eq!(broken, 1, "fault {number}");
        }
    }

    /// With the same faults, a busy machine excuses the speed and nothing more.
    #[test]
    fn judge_forgives_a_busy_machine_its_speed_and_nothing_else() {
        type Fault = fn(&mut Findings);
        let faults: [(Fault, bool); 10] = [
            (|run| run.plain.delivered = 0.64, false),
            (|run| run.plain.delivered = 0.67, false),
            (|run| (run.plain.delivered, run.plain.overflows) = (0.64, 900), true),
            (|run| run.recoded.rank_ratio[2] -= 0.011, false),
            (|run| run.recoded.residual_loss = 2e-4, false),
            (|run| (run.recoded.residual_loss, run.recoded.overflows_at_ends) = (3e-4, 20), true),
            (|run| run.recoded.sha256_ok = false, false),
            (|run| run.plain.tcp_mbps = 2.0, true),
            (|run| run.recoded.tcp_mbps = 140.0, true),
            (
                |run| {
                    (run.recoded.tcp_overhead, run.recoded.overhead_theory) = (1.44, Some(1.3));
                },
                false,
            ),
        ];
        let busy = Load { others: 0.5, ..Load::default() };
        let busy = Loads { plain_udp: busy, recoded_tcp: busy, recoded_udp: busy };
        for (number, (fault, is_forgiven)) in faults.into_iter().enumerate() {
            let mut findings = example();
            fault(&mut findings);
            assert!(!judged(findings.clone(), &[]).ok, "fault {number} on an idle machine");
            findings.load = busy;
            let findings = judged(findings, &[]);
            assert_eq!(findings.ok, is_forgiven, "fault {number}");
            let reason = "this machine was busy: other programs used 50 % of its cores";
            let broken = findings.criteria.iter().filter(|criterion| !criterion.holds);
            let reasons: Vec<_> = broken.map(|criterion| criterion.waived.as_deref()).collect();
            assert_eq!(reasons, [is_forgiven.then_some(reason)], "fault {number}");
        }
    }

    #[test]
    fn judge_waives_what_bursts_break_but_never_the_hash() {
        let mut findings = example();
        findings.recoded.rank_ratio[2] -= 0.2;
        findings.recoded.residual_loss = 2e-2;
        assert!(judged(findings.clone(), &["--burst", "8"]).ok);
        findings.recoded.sha256_ok = false;
        assert!(!judged(findings, &["--burst", "8"]).ok);
    }

    #[test]
    fn judge_compares_the_overhead_of_blocks_with_theory() {
        let mut findings = example();
        findings.code = "bats";
        findings.recoded.overhead_theory = Some(1.3);
        findings.recoded.tcp_overhead = 1.42;
        assert!(judged(findings.clone(), &["--code", "bats"]).ok);
        findings.recoded.tcp_overhead = 1.44;
        let judged = judged(findings, &["--code", "bats"]);
        assert!(!judged.ok);
        let last = judged.criteria.last().expect("there are some");
        assert_eq!(last.found, "overhead 1.44, theory 1.30: 1.11 x");
    }

    #[test]
    fn json_has_the_promised_keys() {
        let json = serde_json::to_value(example()).expect("serialisable");
        let top = ["hops", "loss", "burst", "rate_mbit", "field", "batch", "plain", "recoded"];
        for key in top.into_iter().chain(["code", "block", "adaptive", "modes", "drops", "ok"]) {
            assert!(json.get(key).is_some(), "{key}");
        }
        for key in ["delivered", "theory", "tcp_mbps"] {
            assert!(json["plain"].get(key).is_some(), "{key}");
        }
        let recoded = ["delivered", "rank_ratio", "rank_theory", "residual_loss", "tcp_mbps"];
        for key in
            recoded.into_iter().chain(["sha256_ok", "overhead", "tcp_overhead", "overhead_theory"])
        {
            assert!(json["recoded"].get(key).is_some(), "{key}");
        }
    }
}
