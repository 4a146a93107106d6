//! The report: a table for humans, JSON for everything else.

use serde_json::{Value, json};

use crate::machine::Machine;
use crate::median::median;
use crate::relay::case::Case;
use crate::relay::packets::{FIELD, GENERATION_SIZE, LOSS};
use crate::relay::placement::Cores;
use crate::relay::sample::Sample;

/// All samples of one case at one packet size.
pub struct Series {
    /// The case.
    pub case: Case,
    /// Workers of the relay, and shards of the load.
    pub workers: usize,
    /// Bytes of its largest IP packets.
    pub packet_bytes: usize,
    /// Its samples, one per round.
    pub samples: Vec<Sample>,
    /// Samples without proof that were repeated, and the reason.
    pub void: Vec<String>,
}

/// A whole run.
pub struct RelayReport {
    /// Where.
    pub machine: Machine,
    /// Cores, by number of workers.
    pub cores: Vec<Cores>,
    /// Whether Linux preferred this process to others.
    pub priority: bool,
    /// Seconds per sample.
    pub seconds: f64,
    /// Samples per series.
    pub rounds: usize,
    /// Seed of the losses.
    pub seed: u64,
    /// Results by case.
    pub series: Vec<Series>,
}

impl Series {
    /// Name in tables.
    pub fn name(&self) -> String {
        match self.workers {
            1 => self.case.name().into(),
            workers => format!("{}, {workers} workers", self.case.name()),
        }
    }

    /// Median over the samples of one of their values.
    fn median(&self, value: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(value))
    }

    fn best(&self, value: impl Fn(&Sample) -> f64) -> f64 {
        self.sorted(value).last().copied().unwrap_or(f64::NAN)
    }

    fn worst(&self, value: impl Fn(&Sample) -> f64) -> f64 {
        self.sorted(value).first().copied().unwrap_or(f64::NAN)
    }

    fn sorted(&self, value: impl Fn(&Sample) -> f64) -> Vec<f64> {
        let mut values: Vec<f64> = self.samples.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values
    }
}

impl RelayReport {
    /// The ratio of a value of `series` to the same value of `to` in the same round: a disturbance
    /// of a shared machine affects adjacent samples alike.
    fn ratio(&self, series: &Series, to: Case, value: fn(&Sample) -> f64) -> Option<f64> {
        let other = self
            .series
            .iter()
            .find(|other| other.case == to && other.packet_bytes == series.packet_bytes)?;
        let pairs = series.samples.iter().zip(&other.samples);
        let ratio = median(pairs.map(|(sample, other)| value(sample) / value(other)));
        (!ratio.is_nan()).then_some(ratio)
    }

    /// The table, in Markdown.
    pub fn table(&self) -> String {
        let mut lines = vec![
            self.heading(),
            String::new(),
            "| IP bytes | case | offered | received | output | worst - best | output / bounce \
             | received / bounce | load waited | relay core: user, Linux, idle |"
                .into(),
            "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|".into(),
        ];
        lines.extend(self.series.iter().map(|series| self.row(series)));
        lines.push(String::new());
        lines.extend(self.series.iter().filter_map(|series| self.evidence(series)));
        let void: usize = self.series.iter().map(|series| series.void.len()).sum();
        lines.push(format!("Samples taken again because they came without proof: {void}."));
        lines.push(NOTE.into());
        lines.join("\n")
    }

    fn heading(&self) -> String {
        let (machine, rounds, seconds) = (self.machine.heading(), self.rounds, self.seconds);
        let cores = self.cores.iter().map(|Cores { load, relay }| {
            format!("load on cores {load:?}, relay and bounce on cores {relay:?}; ")
        });
        let cores: String = cores.collect();
        format!(
            "{machine}\nmedian of {rounds} samples of {seconds} s each, in turns; {cores}seed {:#x}",
            self.seed
        )
    }

    fn row(&self, series: &Series) -> String {
        let mega = |value: f64| format!("{:.3}", value / 1e6);
        let percent = |value: f64| format!("{:.0} %", value * 100.0);
        let ratio = |value| match self.ratio(series, Case::Bounce, value) {
            Some(ratio) => format!("{ratio:.2}"),
            None => "-".into(),
        };
        let output = |sample: &Sample| sample.output_pps;
        let core = match series.case.has_core() {
            true => [
                percent(series.median(|sample| sample.relay_core.user)),
                percent(series.median(|sample| sample.relay_core.linux())),
                percent(series.median(|sample| sample.relay_core.idle)),
            ]
            .join(", "),
            false => "on the load's core".into(),
        };
        format!(
            "| {} | {} | {} | {} | {} | {} - {} | {} | {} | {} | {core} |",
            series.packet_bytes,
            series.name(),
            mega(series.median(|sample| sample.offered_pps)),
            mega(series.median(|sample| sample.received_pps)),
            mega(series.median(output)),
            mega(series.worst(output)),
            mega(series.best(output)),
            ratio(|sample| sample.output_pps),
            ratio(|sample| sample.received_pps),
            percent(series.median(|sample| sample.load_waited)),
        )
    }

    /// The relay's work over all samples of a series; `None` for other cases.
    fn evidence(&self, series: &Series) -> Option<String> {
        let proofs = series
            .samples
            .iter()
            .filter_map(|sample| Some((&sample.proof, sample.proof.relay.as_ref()?)));
        let (mut generations, mut arrived, mut recoded, mut ranks) = (0, 0, 0, 0.0);
        let (mut sent, mut received, mut losses) = (0, 0, 0.0);
        let mut modes = None;
        for (proof, relay) in proofs {
            generations += proof.generations;
            arrived += proof.arrived;
            recoded += proof.arrived_recoded;
            ranks += relay.rank_ratio * proof.generations as f64;
            losses += relay.loss * proof.generations as f64;
            sent += proof.sent;
            received += relay.received;
            modes = Some((&relay.xdp_mode, &relay.socket_mode));
        }
        let (xdp, socket) = modes?;
        let per_generation = |count: u64| count as f64 / generations as f64;
        Some(format!(
            "Done at {} bytes by the {}: {generations} generations, of each {:.3} packets arrived, \
             {:.3} of them recoded; mean rank {:.4} of the size; loss of the link as measured {:.4}; \
             {} of {sent} packets not received; XDP {xdp}, socket {socket}.",
            series.packet_bytes,
            series.name(),
            per_generation(arrived),
            per_generation(recoded),
            ranks / generations as f64,
            losses / generations as f64,
            sent.saturating_sub(received),
        ))
    }

    /// Everything.
    pub fn json(&self) -> Value {
        json!({
            "benchmark": "relay",
            "machine": self.machine,
            "cores": self.cores,
            "priority": self.priority,
            "seconds": self.seconds,
            "rounds": self.rounds,
            "seed": self.seed,
            "generation_size": GENERATION_SIZE,
            "field": FIELD.order(),
            "loss": LOSS,
            "series": self.series.iter().map(|series| self.series_json(series)).collect::<Vec<_>>(),
        })
    }

    fn series_json(&self, series: &Series) -> Value {
        let ratios: serde_json::Map<String, Value> =
            [Case::Relay, Case::Bounce, Case::IpForward, Case::XdpRedirect]
                .into_iter()
                .filter(|to| *to != series.case)
                .filter_map(|to| {
                    let output = self.ratio(series, to, |sample| sample.output_pps)?;
                    let received = self.ratio(series, to, |sample| sample.received_pps)?;
                    let ratio = json!({ "output": output, "received": received });
                    Some((to.key().to_owned(), ratio))
                })
                .collect();
        json!({
            "case": series.case.key(),
            "workers": series.workers,
            "packet_bytes": series.packet_bytes,
            "offered_pps": series.median(|sample| sample.offered_pps),
            "received_pps": series.median(|sample| sample.received_pps),
            "output_pps": series.median(|sample| sample.output_pps),
            "output_pps_best": series.best(|sample| sample.output_pps),
            "output_pps_worst": series.worst(|sample| sample.output_pps),
            "ratio_to": ratios,
            "void": series.void,
            "samples": series.samples,
        })
    }
}

/// Explanation of the columns.
const NOTE: &str = "
Million packets per second. A relay sends 16 packets for the 14.4 that it receives, the others one
for one: hence two ratios to the bounce, each the median of the ratios within a round. `load waited`
is the share of time that the load held back because the case could not take more; near 0 % the
load was the limit. ip_forward and XDP redirect run on the core that makes the load and share it;
relay and bounce have a core of their own, which also carries Linux's share of sending and the
counter at the end of the row. With several workers each core's shares are means over the cores.";
