//! The report: tables for humans, JSON for everything else.

use serde_json::{Value, json};

use crate::line::case::{Case, OMITTED, OMITTED_ROUND_TRIPS, QUEUE};
use crate::line::contender::Contender;
use crate::line::sample::{Datagrams, Sample, StreamSample};
use crate::machine::Machine;
use crate::median::median;

/// A whole run.
pub struct LineReport {
    /// Where.
    pub machine: Machine,
    /// Cores that everything shared.
    pub cores: Vec<usize>,
    /// Seconds of a stream that count.
    pub seconds: u64,
    /// Samples of each contender on each line.
    pub runs: u16,
    /// Total duration, in seconds.
    pub elapsed_seconds: f64,
    /// Results by line, then by contender.
    pub lines: Vec<Line>,
}

/// One line.
pub struct Line {
    /// Which.
    pub case: &'static Case,
    /// Results by contender.
    pub series: Vec<Series>,
}

/// All samples of a contender on a line.
pub struct Series {
    /// The contender.
    pub contender: &'static Contender,
    /// One per run.
    pub samples: Vec<Sample>,
    /// Why there are none, or fewer.
    pub failed: Option<String>,
}

impl Series {
    /// Streams with this congestion control.
    fn streams(&self, control: &str) -> impl Iterator<Item = &StreamSample> + Clone {
        self.samples
            .iter()
            .flat_map(|sample| &sample.streams)
            .filter(move |stream| stream.control == control)
    }

    /// Median goodput with its better congestion control, as a share of the line's capacity.
    pub fn best_of_limit(&self) -> f64 {
        let controls = self.contender.controls().iter();
        let medians = controls.map(|control| median(self.streams(control).map(|s| s.of_limit)));
        medians.fold(0.0, f64::max)
    }

    /// Median goodput with its better congestion control, in Mbit/s.
    pub fn best_mbit(&self) -> f64 {
        let controls = self.contender.controls().iter();
        controls.map(|control| median(self.streams(control).map(|s| s.mbit))).fold(0.0, f64::max)
    }

    /// Least, median and most goodput with a congestion control, in Mbit/s.
    fn spread_mbit(&self, control: &str) -> [f64; 3] {
        let values = self.streams(control).map(|stream| stream.mbit);
        let least = values.clone().fold(f64::INFINITY, f64::min);
        [least, median(values.clone()), values.fold(0.0, f64::max)]
    }

    /// The same as text: the median, and the extremes if there are several runs.
    fn goodput(&self, control: &str) -> String {
        let [least, median, most] = self.spread_mbit(control);
        match self.streams(control).count() {
            0 | 1 => format!("{median:.1}"),
            _ => format!("{median:.1} ({least:.0} to {most:.0})"),
        }
    }

    fn stream_rows(&self) -> Vec<String> {
        let name = self.contender.name;
        if self.samples.is_empty() {
            let reason = self.failed.as_deref().unwrap_or("not measured");
            return vec![format!("| {name} | {reason} | | | | | |")];
        }
        let controls = self.contender.controls().iter();
        controls.map(|control| self.stream_row(control)).collect()
    }

    fn stream_row(&self, control: &'static str) -> String {
        let of = |value: &dyn Fn(&StreamSample) -> f64| median(self.streams(control).map(value));
        let extreme = |pick: fn(f64, f64) -> f64, start: f64| {
            of(&|stream| stream.packets_per_symbol.iter().copied().fold(start, pick))
        };
        let name = match self.contender.is_tunnel() {
            true => format!("{}, {control} inside", self.contender.name),
            false => self.contender.name.to_owned(),
        };
        let packets = match of(&|stream| stream.mbit) {
            // With hardly any symbols received, packets per symbol mean nothing.
            mbit if mbit < 1.0 => String::new(),
            _ => {
                let (least, most) = (extreme(f64::min, f64::MAX), extreme(f64::max, 0.0));
                format!("{least:.2} - {most:.2}")
            }
        };
        let lost = of(&|s| s.probe.lost as f64 / s.probe.sent.max(1) as f64);
        let mut row = format!(
            "| {name} | {} | {:.2} | {packets} | {:.0} / {:.0} / {:.0} | {} | {:.2} / {:.2} |",
            self.goodput(control),
            of(&|s| s.of_limit),
            of(&|s| s.probe.p50_ms),
            of(&|s| s.probe.p99_ms),
            of(&|s| s.probe.max_ms),
            percent(lost),
            of(&|s| s.cores),
            of(&|s| s.cores_links),
        );
        if self.streams(control).any(|stream| stream.beside_mbit.is_some()) {
            row += &format!(" {:.1} |", of(&|s| s.beside_mbit.unwrap_or(f64::NAN)));
        }
        if self.streams(control).any(|stream| stream.jain.is_some()) {
            row += &format!(" {:.2} |", of(&|s| s.jain.unwrap_or(f64::NAN)));
        }
        row += &format!(" {:.0} |", of(&|s| s.probe.gap_max_ms));
        let step = |index: usize| of(&|s| s.steps_of_limit.map_or(f64::NAN, |steps| steps[index]));
        if self.streams(control).any(|stream| stream.steps_of_limit.is_some()) {
            row += &format!(" {:.2} / {:.2} / {:.2} |", step(0), step(1), step(2));
            row += &format!(" {:.1} |", of(&|s| s.standing_queue_ms.unwrap_or(f64::NAN)));
        }
        row
    }

    fn datagram_row(&self) -> Option<String> {
        let of = |pick: fn(&Sample) -> Option<Datagrams>, value: fn(&Datagrams) -> f64| {
            median(self.samples.iter().filter_map(pick).map(|found| value(&found)))
        };
        self.samples.iter().find(|sample| sample.idle.is_some())?;
        let cell = |pick: fn(&Sample) -> Option<Datagrams>| {
            let lost = of(pick, |found| found.lost as f64 / found.sent.max(1) as f64);
            let [p50, p99, max] =
                [of(pick, |d| d.p50_ms), of(pick, |d| d.p99_ms), of(pick, |d| d.max_ms)];
            let ratio = of(pick, |found| found.bytes_ratio.unwrap_or(f64::NAN));
            let ratio = if ratio.is_nan() { String::new() } else { format!(", {ratio:.1} x") };
            format!("{p50:.1} / {p99:.1} / {max:.1}, {}{ratio}", percent(lost))
        };
        let name = if self.contender.is_tunnel() { self.contender.name } else { "Linux" };
        let in_order = of(|s| s.load, |found| found.in_order_p99_ms);
        let in_order = format!("{in_order:.1}");
        let cells = [cell(|s| s.idle), cell(|s| s.voice), cell(|s| s.load), in_order];
        Some(format!("| {name} | {} |", cells.join(" | ")))
    }
}

/// A share in percent, with enough digits to distinguish one in ten thousand from zero.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0".into(),
        percent if percent < 1.0 => format!("{percent:.2} %"),
        percent => format!("{percent:.1} %"),
    }
}

impl Line {
    /// The automatic choice of the daemons, and the best configured code, by goodput.
    fn chosen(&self) -> Option<(&Series, &Series)> {
        let measured = self.series.iter().filter(|series| !series.samples.is_empty());
        let auto = measured.clone().find(|series| series.contender.is_automatic())?;
        let told = measured.filter(|s| s.contender.is_tunnel() && !s.contender.is_automatic());
        Some((auto, told.max_by(|a, b| a.best_mbit().total_cmp(&b.best_mbit()))?))
    }

    /// The best tunnel and the best other contender, by goodput. None for twins, which share a
    /// line.
    fn winners(&self) -> Option<(&Series, &Series)> {
        if self.case.twins {
            return None;
        }
        let best = |is_tunnel: bool| {
            let series = self.series.iter();
            series
                .filter(|series| series.contender.is_tunnel() == is_tunnel)
                .filter(|series| !series.samples.is_empty())
                .max_by(|a, b| a.best_mbit().total_cmp(&b.best_mbit()))
        };
        Some((best(true)?, best(false)?))
    }

    /// Its tables, in Markdown.
    fn tables(&self) -> Vec<String> {
        let case = self.case;
        let mut lines =
            vec![String::new(), format!("**{}**: {}", case.name, describe(case)), String::new()];
        let (mut names, mut rule) = (
            "| contender | TCP Mbit/s | of limit | packets per symbol, by link | probe at the same time, \
             p50 / p99 / max ms | lost | cores: own, \
             of the links |"
                .to_owned(),
            "|---|---:|---:|---|---|---|---:|".to_owned(),
        );
        if case.beside.is_some() {
            names += " of the others |";
            rule += "---:|";
        }
        if case.twins {
            names += " of the twin | Jain's index |";
            rule += "---:|---:|";
        }
        names += " longest gap, ms |";
        rule += "---:|";
        if case.rate_falls_to.is_some() {
            names += " of limit before / after the fall / after the rise | queue when low, ms |";
            rule += "---|---:|";
        }
        lines.extend([names, rule]);
        lines.extend(self.series.iter().flat_map(Series::stream_rows));
        if let Some((ours, other)) = self.winners() {
            let (mbit, rival) = (ours.best_mbit(), other.best_mbit());
            let verdict = if mbit >= rival { "ahead of" } else { "behind" };
            lines.extend([
                String::new(),
                format!(
                    "{} at {mbit:.1} Mbit/s is {verdict} {} at {rival:.1} Mbit/s.",
                    ours.contender.name, other.contender.name
                ),
            ]);
        }
        if let Some((auto, code)) = self.chosen() {
            let (mbit, best) = (auto.best_mbit(), code.best_mbit());
            let (share, name) = (mbit / best, code.contender.name);
            let text = format!("auto reaches {share:.2} of {name}, the best code that was named.");
            lines.extend([String::new(), text]);
        }
        let datagrams: Vec<String> = self.series.iter().filter_map(Series::datagram_row).collect();
        if !datagrams.is_empty() {
            lines.extend([
                String::new(),
                "| datagrams alone: p50 / p99 / max ms, lost, bytes | 250/s of 200 B | voice, \
                 50/s of 200 B | 100 Mbit/s of 1300 B, default socket buffer | its p99 in order, \
                 ms |"
                    .into(),
                "|---|---|---|---|---:|".into(),
            ]);
            lines.extend(datagrams);
        }
        lines
    }
}

/// A line in words.
fn describe(case: &Case) -> String {
    let Case { hops, rate_mbit, loss, .. } = case;
    let mut text = format!("{hops} link(s) of {rate_mbit} Mbit/s, {:.0} % loss each", loss * 100.0);
    if case.burst > 1.0 {
        text += &format!(" in bursts of {}", case.burst);
    }
    if let Some(loss) = case.bad_loss {
        text += &format!(", one of {:.0} %", loss * 100.0);
    }
    if case.delay_ms > 0 {
        text += &format!(", {} ms of delay each", case.delay_ms);
    }
    if case.reorder > 0.0 {
        let (late, twice) = (case.reorder * 100.0, case.duplicate * 100.0);
        text += &format!(", {late:.0} % of the packets 3 ms late, {twice:.0} % twice");
    }
    if let Some(rate) = case.rate_falls_to {
        text += &format!(", the first link at {rate} Mbit/s for the second third of the time");
    }
    if let Some(control) = case.beside {
        text += &format!(", with a competing plain TCP stream ({control})");
    }
    if case.twins {
        text += ", shared by two lines of hosts with a stream each";
    }
    if case.relay_killed {
        text += ", a relay killed and started again after half of the time";
    }
    if let Some(mtu) = case.middle_mtu {
        text += &format!(", MTU {mtu} in the middle");
    }
    if case.needs_buffers() {
        text += ", TCP buffers of up to 64 MiB";
    }
    format!(
        "{text}. Limit {:.0} Mbit/s of TCP payload by itself, {:.0} through a tunnel.",
        case.limit_mbit(false),
        case.limit_mbit(true)
    )
}

impl LineReport {
    /// The tables, in Markdown.
    pub fn table(&self) -> String {
        let mut lines = vec![
            self.machine.heading(),
            format!(
                "links with queues of {} ms; median of {} run(s), streams of {} s after {} s (or \
                 {OMITTED_ROUND_TRIPS} round trips); everything on cores {:?}; {:.0} s in all",
                QUEUE.as_millis(),
                self.runs,
                self.seconds,
                OMITTED.as_secs(),
                self.cores,
                self.elapsed_seconds
            ),
        ];
        lines.extend(self.lines.iter().flat_map(Line::tables));
        lines.join("\n")
    }

    /// Everything.
    pub fn json(&self) -> Value {
        let lines = self.lines.iter().map(|line| {
            let series = line.series.iter().map(|series| {
                let controls = series
                    .contender
                    .controls()
                    .iter()
                    .filter(|control| series.streams(control).next().is_some());
                let goodput = controls.map(|control| {
                    let [least, median, most] = series.spread_mbit(control);
                    json!({ "control": control, "least": least, "median": median, "most": most })
                });
                json!({
                    "contender": series.contender.name,
                    "goodput_mbit": goodput.collect::<Vec<_>>(),
                    "best_mbit": series.best_mbit(),
                    "best_of_limit": series.best_of_limit(),
                    "failed": series.failed,
                    "samples": series.samples,
                })
            });
            json!({
                "line": line.case,
                "limit_mbit": line.case.limit_mbit(false),
                "limit_tunnel_mbit": line.case.limit_mbit(true),
                "series": series.collect::<Vec<_>>(),
            })
        });
        json!({
            "bench": "line",
            "machine": self.machine,
            "cores": self.cores,
            "queue_ms": QUEUE.as_millis() as u64,
            "seconds": self.seconds,
            "runs": self.runs,
            "elapsed_seconds": self.elapsed_seconds,
            "lines": lines.collect::<Vec<_>>(),
        })
    }
}
