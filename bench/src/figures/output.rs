//! Output of a figure: SVG, CSV, JSON, and an index of all figures.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use serde::Serialize;
use serde_json::json;

use crate::error::BenchError;
use crate::figures::chart;
use crate::figures::figure::Figure;
use crate::figures::verdict::JudgedPoint;
use crate::figures::work::Work;
use crate::machine::Machine;
use crate::results::{self, write_json};

/// How a figure went.
#[derive(Clone, Serialize)]
pub struct Summary {
    /// Name of the figure.
    pub name: &'static str,
    /// Its title.
    pub title: String,
    /// Source of the references.
    pub source: &'static str,
    /// Comparisons.
    pub rows: usize,
    /// Comparisons within their tolerance.
    pub within: usize,
    /// Comparisons outside it with a known reason.
    pub explained: usize,
    /// Duration.
    pub seconds: f64,
}

impl Summary {
    /// Number of comparisons outside their tolerance without a known reason.
    pub fn unexplained(&self) -> usize {
        self.rows - self.within - self.explained
    }
}

/// Writes a figure's three files into `folder`: the chart, its points and comparisons as CSV, and
/// how they were made as JSON.
///
/// # Errors
/// [`BenchError::Os`].
pub fn write(
    folder: &Path,
    figure: &Figure,
    work: Work,
    machine: &Machine,
    seconds: f64,
) -> Result<Summary, BenchError> {
    let rows = figure.rows(work.errors_allowed());
    let judged: Vec<&JudgedPoint> = rows.iter().filter(|row| row.within.is_some()).collect();
    let within = judged.iter().filter(|row| row.within == Some(true)).count();
    let outside = judged.iter().filter(|row| row.within == Some(false));
    let explained = outside.filter(|row| row.note.is_some()).count();
    let summary = Summary {
        name: figure.name,
        title: figure.title.clone(),
        source: figure.source,
        rows: judged.len(),
        within,
        explained,
        seconds,
    };
    let head = json!({
        "figure": figure.name,
        "title": figure.title,
        "about": figure.about,
        "source": figure.source,
        "machine": machine,
        "seed": work.seed,
        "share_of_runs": work.share,
        "standard_errors_allowed": work.errors_allowed(),
        "seconds": seconds,
        "summary": { "rows": judged.len(), "within": within, "explained": explained },
    });
    results::write(&folder.join(format!("{}.svg", figure.name)), chart::draw(figure))?;
    write_json(&folder.join(format!("{}.json", figure.name)), &head)?;
    results::write(&folder.join(format!("{}.csv", figure.name)), csv(&rows)?)?;
    Ok(summary)
}

/// Writes the index of a run that drew every figure.
///
/// # Errors
/// [`BenchError::Os`].
pub fn write_index(
    folder: &Path,
    summaries: &[Summary],
    work: Work,
    machine: &Machine,
) -> Result<(), BenchError> {
    let figures: Vec<_> = summaries
        .iter()
        .map(|summary| {
            let files = ["svg", "csv", "json"].map(|ending| format!("{}.{ending}", summary.name));
            json!({ "summary": summary, "files": files })
        })
        .collect();
    let document = json!({
        "benchmark": "figures",
        "machine": machine,
        "seed": work.seed,
        "share_of_runs": work.share,
        "figures": figures,
    });
    write_json(&folder.join("figures.json"), &document)?;
    results::write(&folder.join("README.md"), readme(summaries, work, machine))
}

/// The index for readers.
fn readme(summaries: &[Summary], work: Work, machine: &Machine) -> String {
    let mut text = format!(
        "# figures\n\nWritten by `cargo run --release -p bench -- figures all`; \
         `docs/measurements/figures.md` explains them.\n{}; seed {}, {} of the runs of a \
         published figure.\n\n\
         | figure | held against | comparisons | within | explained | files |\n\
         |---|---|---:|---:|---:|---|\n",
        machine.heading(),
        work.seed,
        work.share
    );
    for summary in summaries {
        let Summary { name, title, source, rows, within, explained, .. } = summary;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| [{title}]({name}.svg) | {source} | {rows} | {within} | {explained} | \
             [SVG]({name}.svg), [CSV]({name}.csv), [JSON]({name}.json) |"
        );
    }
    for summary in summaries {
        let _ = write!(text, "\n![{}]({}.svg)\n", summary.title, summary.name);
    }
    text
}

fn csv(rows: &[JudgedPoint]) -> Result<Vec<u8>, BenchError> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let written = rows.iter().try_for_each(|row| writer.serialize(row)).map_err(io::Error::other);
    written.map_err(BenchError::os("forming CSV"))?;
    writer
        .into_inner()
        .map_err(|error| BenchError::os("forming CSV")(io::Error::other(error.to_string())))
}
