//! Rows of a figure: every point, and every comparison with its verdict and the reason for it.

use serde::Serialize;

use crate::figures::explain;
use crate::figures::figure::{Figure, From, Panel, Point, Reference, Relation, Series};

/// One comparison, as JSON and CSV have it.
#[derive(Serialize)]
pub struct JudgedPoint {
    /// Title of the panel.
    pub panel: String,
    /// Name of the series.
    pub series: String,
    /// Where.
    pub x: f64,
    /// Computed value.
    pub ours: f64,
    /// Its standard error; 0 if exact.
    pub standard_error: f64,
    /// Reference value; none for points that are only drawn.
    pub reference: Option<f64>,
    /// Its standard error; 0 if exact or unknown.
    pub reference_standard_error: Option<f64>,
    /// Whose that is.
    pub from: Option<From>,
    /// Expected relation to the reference.
    pub relation: Option<Relation>,
    /// Allowed deviation.
    pub tolerance: Option<f64>,
    /// Whether the deviation is within the tolerance.
    pub within: Option<bool>,
    /// Reason for a deviation, if known, or another remark.
    pub note: Option<&'static str>,
}

impl Figure {
    /// Every point, and every comparison with a reference; `errors` is the tolerance in standard
    /// errors.
    pub fn rows(&self, errors: f64) -> Vec<JudgedPoint> {
        let mut rows = Vec::new();
        for panel in &self.panels {
            for series in &panel.series {
                for point in &series.points {
                    let row = self.bare_row(panel, series, point);
                    let references = point.references.iter();
                    rows.extend(
                        references.map(|r| self.judged_row(panel, series, point, r, errors)),
                    );
                    rows.extend(point.references.is_empty().then_some(row));
                }
            }
        }
        rows
    }

    fn bare_row(&self, panel: &Panel, series: &Series, point: &Point) -> JudgedPoint {
        JudgedPoint {
            panel: panel.title.clone(),
            series: series.label(),
            x: rounded(point.x),
            ours: rounded(point.ours),
            standard_error: rounded(point.standard_error),
            reference: None,
            reference_standard_error: None,
            from: None,
            relation: None,
            tolerance: None,
            within: None,
            note: None,
        }
    }

    fn judged_row(
        &self,
        panel: &Panel,
        series: &Series,
        point: &Point,
        r: &Reference,
        errors: f64,
    ) -> JudgedPoint {
        let within = r.is_met(point, errors);
        let label = series.label();
        let place = explain::SeriesPath { figure: self.name, panel: &panel.title, series: &label };
        let note = explain::note(&place, point, r, within);
        JudgedPoint {
            reference: Some(rounded(r.value)),
            reference_standard_error: Some(rounded(r.standard_error)),
            from: Some(r.from),
            relation: Some(r.relation),
            tolerance: Some(rounded(r.tolerance(point, errors))),
            within: Some(within),
            note,
            ..self.bare_row(panel, series, point)
        }
    }
}

/// Six digits are enough, and keep files and their differences small.
fn rounded(value: f64) -> f64 {
    format!("{value:.6e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_keeps_six_digits() {
        assert_eq!(rounded(0.123_456_789), 0.123_456_8);
        assert_eq!(rounded(0.0), 0.0);
    }
}
