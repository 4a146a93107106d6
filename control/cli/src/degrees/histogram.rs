//! A rank histogram from a file, stdin or the JSON of `recodectl show`.

use serde_json::Value;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Why a file is not a rank histogram.
#[derive(Debug, thiserror::Error)]
pub enum HistogramError {
    #[error(
        "cannot read the rank histogram {}: {source}: name a file with the counts of each rank",
        path.display()
    )]
    Read { path: PathBuf, source: io::Error },
    #[error("the rank histogram is larger than {BYTES_MAX} bytes")]
    TooLarge,
    #[error(
        "line {line} of the rank histogram, `{text}`, is no count: write one whole number per \
             line, the first for rank 0"
    )]
    Line { line: usize, text: String },
    #[error(
        "the rank histogram is not valid JSON ({0}): write the output of recodectl --json show flows"
    )]
    Json(#[from] serde_json::Error),
    #[error(
        "the JSON holds no list of counts: expected is one, or an object with \
             `rank_histogram`, or what `recodectl --json show` prints"
    )]
    Shape,
    #[error(
        "flow {id} is not in this JSON, or has counted no ranks: flows that have: {}",
        list(there)
    )]
    Flow { id: u64, there: Vec<u64> },
    #[error("choose one of the flows that have counted ranks with --flow: {}", list(there))]
    ChooseFlow { there: Vec<u64> },
    #[error(
        "--flow {id} says nothing about a plain list of counts: it chooses from the JSON of \
             `recodectl show`"
    )]
    NoFlows { id: u64 },
    #[error(
        "the histogram counts rank {rank}, which batches of {batch_size} symbols (--batch-size) \
             cannot have"
    )]
    BatchSize { rank: usize, batch_size: usize },
}

fn list(ids: &[u64]) -> String {
    if ids.is_empty() {
        return "none".to_owned();
    }
    let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
    ids.join(", ")
}

/// The counts of ranks 0, 1, .. from `path`, where `-` is stdin. With `batch_size`, zeros are
/// appended up to `batch_size` and one entries.
pub fn read(
    path: &Path,
    flow: Option<u64>,
    batch_size: Option<usize>,
) -> Result<Vec<u64>, HistogramError> {
    let text = content(path)?;
    let counts = match text.trim_start().chars().next() {
        Some('{' | '[') => from_json(&serde_json::from_str(&text)?, flow)?,
        _ => match flow {
            Some(id) => return Err(HistogramError::NoFlows { id }),
            None => from_lines(&text)?,
        },
    };
    fit(counts, batch_size)
}

fn content(path: &Path) -> Result<String, HistogramError> {
    let failed = |source| HistogramError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let from: &mut dyn Read = if path == Path::new("-") {
        &mut io::stdin().lock()
    } else {
        &mut File::open(path).map_err(failed)?
    };
    from.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > BYTES_MAX { Err(HistogramError::TooLarge) } else { Ok(text) }
}

/// Ignores empty lines and those that start with `#`.
fn from_lines(text: &str) -> Result<Vec<u64>, HistogramError> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let counts = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let parsed = counts.map(|(line, text)| {
        text.parse().map_err(|_| {
            let text = text.chars().take(SHOWN_CHARS).collect();
            HistogramError::Line { line, text }
        })
    });
    parsed.collect()
}

fn from_json(value: &Value, flow: Option<u64>) -> Result<Vec<u64>, HistogramError> {
    if let Some(flows) = value["flows"].as_array() {
        return from_flows(flows, flow);
    }
    if let Some(id) = flow {
        return Err(HistogramError::NoFlows { id });
    }
    let list = if value.is_array() { value } else { &value["rank_histogram"] };
    counts(list).ok_or(HistogramError::Shape)
}

/// Uses the requested flow, or the only one that has counted ranks: its own ranks, or those
/// reported by its sink.
fn from_flows(flows: &[Value], flow: Option<u64>) -> Result<Vec<u64>, HistogramError> {
    let mut counted: Vec<(u64, Vec<u64>)> = Vec::new();
    for flow in flows {
        let lists = [&flow["rank_histogram"], &flow["remote"]["rank_histogram"]];
        let found = lists.into_iter().filter_map(counts).find(|list| list.iter().any(|&n| n > 0));
        if let (Some(id), Some(list)) = (flow["id"].as_u64(), found) {
            counted.push((id, list));
        }
    }
    let there = counted.iter().map(|&(id, _)| id).collect();
    let chosen = match flow {
        Some(id) => counted.into_iter().find(|&(other, _)| other == id),
        None if counted.len() == 1 => counted.pop(),
        None => return Err(HistogramError::ChooseFlow { there }),
    };
    match (chosen, flow) {
        (Some((_, list)), _) => Ok(list),
        (None, id) => Err(HistogramError::Flow { id: id.unwrap_or_default(), there }),
    }
}

fn counts(list: &Value) -> Option<Vec<u64>> {
    list.as_array()?.iter().map(Value::as_u64).collect()
}

fn fit(mut counts: Vec<u64>, batch_size: Option<usize>) -> Result<Vec<u64>, HistogramError> {
    if let Some(batch_size) = batch_size {
        let highest = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
        if highest > batch_size {
            return Err(HistogramError::BatchSize { rank: highest, batch_size });
        }
        counts.resize(batch_size + 1, 0);
    }
    Ok(counts)
}

/// Largest input; a daemon's whole state is a fraction of this.
const BYTES_MAX: u64 = 16 << 20;

/// Characters shown of an invalid line.
const SHOWN_CHARS: usize = 40;
