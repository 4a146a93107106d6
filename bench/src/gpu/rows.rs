//! Measurements: one structure holds every number; tables, figures and JSON are made from it.

use serde::Serialize;

use crate::median::median;

/// One contestant at one shape.
#[derive(Clone, Debug)]
pub struct Row {
    /// The shape.
    pub key: RowKey,
    /// Name of the contestant.
    pub who: String,
    /// Bytes of results a second; of `stripes`, of data.
    pub rate: f64,
    /// The fastest sample.
    pub best: f64,
    /// All of them.
    pub samples: Vec<f64>,
    /// A share from 0 to 1: of the card in joint work of CPU and card, or of inversions in
    /// decoding.
    pub share: Option<f64>,
}

/// Kind of measurement.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// As many coded symbols of segments as they have source symbols.
    Encode,
    /// Segments, of as many received symbols as they have source symbols.
    Decode,
    /// Coded symbols of one segment, for many peers.
    Streaming,
    /// One large product.
    Large,
    /// Parity of stripes.
    Generate,
    /// Lost buffers of stripes.
    Recover,
    /// One job at a time.
    Single,
}

/// All rows of a run.
#[derive(Default, Debug)]
pub struct Rows(pub Vec<Row>);

/// Shape of a measurement.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RowKey {
    /// Kind of measurement.
    pub part: Part,
    /// Source symbols, or data buffers.
    pub n: usize,
    /// Bytes of a symbol, of a buffer, or of a segment.
    pub bytes: usize,
    /// Parity buffers, cores or segments, if that varies too; otherwise 0.
    pub of: usize,
}

impl Rows {
    /// Adds one sample, in bytes a second.
    pub fn sample(&mut self, place: RowKey, who: &str, rate: f64) {
        self.sample_with(place, who, rate, None);
    }

    /// Adds one sample with its share.
    pub fn sample_with(&mut self, key: RowKey, who: &str, rate: f64, share: Option<f64>) {
        let is_same = |row: &&mut Row| row.key == key && row.who == who;
        // Rows of one shape follow each other.
        if let Some(row) = self.0.iter_mut().rev().take(RECENT).find(is_same) {
            row.samples.push(rate);
            row.rate = median(row.samples.clone());
            row.best = row.best.max(rate);
            row.share = share;
            return;
        }
        let samples = vec![rate];
        let who = who.to_owned();
        self.0.push(Row { key, who, rate, best: rate, samples, share });
    }

    /// Rows of one contestant.
    pub fn of<'a, 'b>(
        &'a self,
        part: Part,
        who: &'b str,
    ) -> impl Iterator<Item = &'a Row> + use<'a, 'b> {
        self.0.iter().filter(move |row| row.key.part == part && row.who == who)
    }

    /// The row at a place, if that was measured.
    pub fn at(&self, place: RowKey, who: &str) -> Option<&Row> {
        self.0.iter().find(|row| row.key == place && row.who == who)
    }

    /// All contestants, in the order of their first rows.
    pub fn who(&self, part: Part) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for row in self.0.iter().filter(|row| row.key.part == part) {
            if !names.contains(&row.who.as_str()) {
                names.push(&row.who);
            }
        }
        names
    }
}

/// More than the contestants of one shape.
const RECENT: usize = 64;
