//! The report: a table for humans, JSON for everything else.

use serde_json::{Value, json};

use crate::edge::contender::Contender;
use crate::edge::sample::Sample;
use crate::machine::Machine;

/// All samples of one contender.
pub struct Series {
    /// The contender.
    pub contender: Contender,
    /// Its samples, one per round.
    pub samples: Vec<Sample>,
    /// Why there are none.
    pub skipped: Option<String>,
}

/// A whole run.
pub struct EdgeReport {
    /// Where.
    pub machine: Machine,
    /// Cores that everything shared.
    pub cores: Vec<usize>,
    /// Whether Linux preferred this process to others.
    pub priority: bool,
    /// Seconds per sample.
    pub seconds: u64,
    /// Samples per contender.
    pub rounds: u16,
    /// Measurements.
    pub series: Vec<Series>,
}

impl Series {
    /// None yet.
    pub fn new(contender: Contender) -> Series {
        Series { contender, samples: Vec::new(), skipped: None }
    }

    /// Worst, median and best of one value.
    fn spread(&self, value: impl Fn(&Sample) -> f64) -> Option<[f64; 3]> {
        let mut values: Vec<f64> = self.samples.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        Some([*values.first()?, values[values.len() / 2], *values.last()?])
    }

    fn row(&self, linux: Option<f64>) -> String {
        let name = self.contender.name();
        let Some([worst, median, best]) = self.spread(|sample| sample.gbit) else {
            let reason = self.skipped.as_deref().unwrap_or("not measured");
            return format!("| {name} | skipped: {reason} | | | |");
        };
        let busy = self.spread(|sample| sample.cores_busy).map_or(f64::NAN, |[_, busy, _]| busy);
        let share = linux.map_or(String::new(), |linux| format!("{:.2}", median / linux));
        format!("| {name} | {median:.2} | {worst:.2} - {best:.2} | {share} | {busy:.2} |")
    }
}

impl EdgeReport {
    /// The table, in Markdown.
    pub fn table(&self) -> String {
        let mut lines = vec![
            self.machine.heading(),
            format!(
                "median of {} samples of {} s each, in turns, one TCP stream; everything on cores \
                 {:?}{}",
                self.rounds,
                self.seconds,
                self.cores,
                if self.priority { ", preferred to other programs" } else { "" }
            ),
            String::new(),
            "| contender | Gbit/s | worst - best | of Linux without offloads | cores busy |".into(),
            "|---|---:|---:|---:|---:|".into(),
        ];
        let linux = self.median(Contender::LinuxNoOffload);
        lines.extend(self.series.iter().map(|series| series.row(linux)));
        lines.join("\n")
    }

    fn median(&self, contender: Contender) -> Option<f64> {
        let series = self.series.iter().find(|series| series.contender == contender)?;
        series.spread(|sample| sample.gbit).map(|[_, median, _]| median)
    }

    /// Everything.
    pub fn json(&self) -> Value {
        let series = self.series.iter().map(|series| {
            json!({
                "contender": series.contender,
                "gbit_median": series.spread(|sample| sample.gbit).map(|[_, median, _]| median),
                "skipped": series.skipped,
                "samples": series.samples,
            })
        });
        json!({
            "bench": "edge",
            "machine": self.machine,
            "cores": self.cores,
            "priority": self.priority,
            "seconds": self.seconds,
            "rounds": self.rounds,
            "series": series.collect::<Vec<_>>(),
        })
    }
}
