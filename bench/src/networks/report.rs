//! The report: a table for each network, the targets, and everything as JSON.

use serde::Serialize;

use crate::line::report::percent;
use crate::machine::Machine;

/// A whole run.
#[derive(Serialize)]
pub struct NetworkReport {
    /// Where.
    pub machine: Machine,
    /// Cores that everything shared.
    pub cores: Vec<usize>,
    /// Seconds of a measurement that count.
    pub seconds: u64,
    /// Seed of the losses.
    pub seed: u64,
    /// Total duration, in seconds.
    pub elapsed_seconds: f64,
    /// Results by network.
    pub networks: Vec<Network>,
}

/// A network under some traffic.
#[derive(Serialize)]
pub struct Network {
    /// Its name on the command line.
    pub name: &'static str,
    /// It in words.
    pub what: String,
    /// Results by contender.
    pub rows: Vec<ContenderRow>,
    /// Targets.
    pub aims: Vec<Aim>,
}

/// A contender.
#[derive(Serialize)]
pub struct ContenderRow {
    /// Name of the contender.
    pub contender: String,
    /// Measured figures, in the order of the columns.
    pub figures: Vec<Figure>,
    /// Reason for missing figures.
    pub failed: Option<String>,
}

/// A number.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figure {
    /// Name of the figure.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// The number.
    pub value: f64,
}

/// How a number is written.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Mbit/s.
    Mbit,
    /// Milliseconds.
    Millis,
    /// A ratio.
    Ratio,
    /// A share that is shown in percent.
    Share,
    /// A number of packets.
    Count,
}

/// Something that should hold of one figure of one contender.
#[derive(Serialize)]
pub struct Aim {
    /// In words.
    pub what: &'static str,
    /// The limit.
    pub wanted: f64,
    /// Whether it is the least, or the most.
    pub is_least: bool,
    /// The number; none where it was not measured.
    pub found: Option<f64>,
}

/// A figure.
pub fn figure(name: &'static str, unit: Unit, value: f64) -> Figure {
    Figure { name, unit, value }
}

impl Figure {
    fn text(&self) -> String {
        match self.unit {
            _ if self.value.is_nan() => String::new(),
            _ if self.value.is_infinite() => "never".into(),
            Unit::Mbit | Unit::Millis => format!("{:.1}", self.value),
            Unit::Ratio => format!("{:.3}", self.value),
            Unit::Share => percent(self.value),
            Unit::Count => format!("{:.0}", self.value),
        }
    }
}

impl ContenderRow {
    /// For progress.
    pub fn line(&self) -> String {
        let figures = self.figures.iter().map(|it| format!("{} {}", it.name, it.text()));
        let text = self.failed.clone().unwrap_or_else(|| figures.collect::<Vec<_>>().join(", "));
        format!("{:<24} {text}", self.contender)
    }

    fn find(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }
}

impl Network {
    /// Something that should hold of a figure of a contender.
    pub fn aim(
        &mut self,
        what: &'static str,
        contender: &str,
        figure: &str,
        is_least: bool,
        wanted: f64,
    ) {
        let found = Some(self.figure(contender, figure)).filter(|found| !found.is_nan());
        self.aims.push(Aim { what, wanted, is_least, found });
    }

    /// A figure of a contender; none is no number.
    pub fn figure(&self, contender: &str, name: &str) -> f64 {
        let row = self.rows.iter().find(|row| row.contender == contender);
        row.and_then(|row| row.find(name)).map_or(f64::NAN, |figure| figure.value)
    }

    /// Columns in the contenders' order.
    fn columns(&self) -> Vec<(&'static str, Unit)> {
        let figures = self.rows.iter().flat_map(|row| &row.figures);
        figures.fold(Vec::new(), |mut columns, figure| {
            if !columns.iter().any(|(name, _)| *name == figure.name) {
                columns.push((figure.name, figure.unit));
            }
            columns
        })
    }

    /// Its tables, in Markdown.
    fn tables(&self) -> Vec<String> {
        let columns = self.columns();
        let mut lines = vec![String::new(), format!("**{}**: {}", self.name, self.what)];
        let head = columns.iter().map(|(name, unit)| match unit {
            Unit::Mbit => format!(" {name}, Mbit/s |"),
            Unit::Millis => format!(" {name}, ms |"),
            _ => format!(" {name} |"),
        });
        lines.push(String::new());
        lines.push(format!("| contender |{}", head.collect::<String>()));
        lines.push(format!("|---|{}", "---:|".repeat(columns.len())));
        for row in &self.rows {
            let cells = columns.iter().map(|(name, _)| {
                let text = row.find(name).map_or(String::new(), Figure::text);
                format!(" {text} |")
            });
            let cells = match &row.failed {
                Some(reason) => format!(" {reason} |{}", " |".repeat(columns.len().max(1) - 1)),
                None => cells.collect(),
            };
            lines.push(format!("| {} |{cells}", row.contender));
        }
        lines.push(String::new());
        lines.extend(self.aims.iter().map(Aim::line));
        lines
    }
}

impl Aim {
    fn holds(&self) -> Option<bool> {
        let found = self.found?;
        Some(if self.is_least { found >= self.wanted } else { found <= self.wanted })
    }

    fn line(&self) -> String {
        let limit = if self.is_least { "at least" } else { "at most" };
        let verdict = match self.holds() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        let found = self.found.map_or(String::new(), |found| format!("{}: ", short(found)));
        format!("- {}, {limit} {}: {found}{verdict}", self.what, short(self.wanted))
    }
}

/// A number with few digits; small numbers keep their significant ones.
fn short(value: f64) -> String {
    match value {
        value if value == 0.0 || value.abs() >= 10.0 => format!("{value:.0}"),
        value if value.abs() >= 0.01 => format!("{value:.3}"),
        value => format!("{value:.1e}"),
    }
}

impl NetworkReport {
    /// The tables, in Markdown.
    pub fn table(&self) -> String {
        let mut lines = vec![
            self.machine.heading(),
            format!(
                "one run, {} s each after the start; everything on cores {:?}; {:.0} s in all",
                self.seconds, self.cores, self.elapsed_seconds
            ),
        ];
        lines.extend(self.networks.iter().flat_map(Network::tables));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_a_column_for_each_figure_and_says_what_was_missed() {
        let row = |contender: &str, figures: Vec<Figure>| ContenderRow {
            contender: contender.into(),
            figures,
            failed: None,
        };
        let figures = vec![
            figure("TCP", Unit::Mbit, 120.04),
            figure("of the sum", Unit::Ratio, 0.9312),
            figure("lost", Unit::Share, 0.0001),
        ];
        let failed = ContenderRow { failed: Some("no MPTCP".into()), ..row("mptcp", Vec::new()) };
        let rows = vec![row("bbr", vec![figure("TCP", Unit::Mbit, 80.0)]), failed];
        let rows = rows.into_iter().chain([row("stream", figures)]).collect();
        let mut network = Network { name: "x", what: "y".into(), rows, aims: Vec::new() };
        network.aim("the sum", "stream", "of the sum", true, 0.93);
        network.aim("lost", "stream", "lost", false, 1e-5);
        network.aim("rate", "mptcp", "TCP", true, 1.0);
        let lines = network.tables();
        assert_eq!(
            &lines[3..],
            [
                "| contender | TCP, Mbit/s | of the sum | lost |",
                "|---|---:|---:|---:|",
                "| bbr | 80.0 |  |  |",
                "| mptcp | no MPTCP | | |",
                "| stream | 120.0 | 0.931 | 0.01 % |",
                "",
                "- the sum, at least 0.930: 0.931: met",
                "- lost, at most 1.0e-5: 1.0e-4: missed",
                "- rate, at least 1.000: not measured",
            ]
        );
    }
}
