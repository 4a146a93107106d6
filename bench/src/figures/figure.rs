//! A figure: panels of series of points, and their reference values.
//!
//! One structure yields drawing, CSV and JSON, so they cannot differ. A point that has a reference
//! (printed in a paper, computed by an independent program or by this project's theory) gets a
//! verdict (`verdict.rs`); the others are only drawn.

use serde::Serialize;

use crate::figures::work::Estimate;

/// A figure with its numbers.
pub struct Figure {
    /// File name without ending, and name on the command line.
    pub name: &'static str,
    /// Title, one line.
    pub title: String,
    /// Source of the references.
    pub source: &'static str,
    /// Subject of the computation, and its number of runs.
    pub about: String,
    /// One chart each.
    pub panels: Vec<Panel>,
}

/// One chart.
pub struct Panel {
    /// Its heading; within a figure no two are the same.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Series to draw. The same name in two panels has the same colour.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone)]
pub struct Axis {
    /// Quantity, with its unit.
    pub label: &'static str,
    /// How values become places.
    pub scale: Scale,
    /// Marked values.
    pub ticks: Vec<f64>,
    /// Labels of the marks; the numbers themselves if empty.
    pub names: Vec<String>,
}

/// How values become places.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By their logarithm.
    Log,
}

impl Axis {
    /// An even one from the first tick to the last.
    pub fn linear(label: &'static str, ticks: &[f64]) -> Axis {
        Axis { label, scale: Scale::Linear, ticks: ticks.to_vec(), names: Vec::new() }
    }

    /// A logarithmic one from the first tick to the last.
    pub fn log(label: &'static str, ticks: &[f64]) -> Axis {
        Axis { scale: Scale::Log, ..Axis::linear(label, ticks) }
    }

    /// A share from 0 to 1.
    pub fn share(label: &'static str) -> Axis {
        Axis::linear(label, &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    }

    /// Names side by side, at 0, 1, 2 and so on.
    pub fn names(label: &'static str, names: &[&str]) -> Axis {
        let ticks: Vec<f64> = (0..names.len()).map(|index| index as f64).collect();
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Axis { names, ..Axis::linear(label, &ticks) }
    }
}

/// Points that belong together.
pub struct Series {
    /// Display name.
    pub name: String,
    /// How it is drawn.
    pub style: Style,
    /// Its points, by ascending x.
    pub points: Vec<Point>,
}

impl Series {
    /// Name in a table, which must also mark Monte Carlo series.
    pub fn label(&self) -> String {
        match self.style {
            Style::Crosses => format!("{}, Monte Carlo", self.name),
            _ => self.name.clone(),
        }
    }
}

/// How a series is drawn. References are rings in its colour.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Style {
    /// A line; with dots where its points are estimates.
    Line,
    /// Crosses: Monte Carlo results in the colour of the line with the same name.
    Crosses,
    /// Grey and dashed: for orientation.
    Context,
    /// Columns, with their values on top.
    Bars,
}

/// One number.
#[derive(Clone)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// How much.
    pub ours: f64,
    /// Standard error of the number; 0 if exact.
    pub standard_error: f64,
    /// Values to compare it with.
    pub references: Vec<Reference>,
}

impl Point {
    /// A number without error.
    pub fn exact(x: f64, ours: f64) -> Point {
        Point { x, ours, standard_error: 0.0, references: Vec::new() }
    }

    /// A Monte Carlo estimate.
    pub fn estimate(x: f64, ours: Estimate) -> Point {
        let Estimate { value, standard_error } = ours;
        Point { x, ours: value, standard_error, references: Vec::new() }
    }

    /// The same, held against `reference`.
    pub fn against(mut self, reference: Reference) -> Point {
        self.references.push(reference);
        self
    }

    /// The same, compared with `reference` if there is one.
    pub fn against_any(mut self, reference: Option<Reference>) -> Point {
        self.references.extend(reference);
        self
    }
}

/// A number to compare the result with.
#[derive(Clone)]
pub struct Reference {
    /// Whose.
    pub from: From,
    /// How much.
    pub value: f64,
    /// Its own standard error, where it is an estimate itself.
    pub standard_error: f64,
    /// Expected relation of the result to it.
    pub relation: Relation,
    /// Allowed deviation regardless of the errors.
    pub margin: f64,
}

impl Reference {
    /// Printed in the paper that the figure is named after.
    pub fn paper(value: f64) -> Reference {
        Reference::of(From::Paper, value)
    }

    /// Computed by an independent program.
    pub fn oracle(value: f64) -> Reference {
        Reference::of(From::Oracle, value)
    }

    /// Computed by this project's theory.
    pub fn theory(value: f64) -> Reference {
        Reference::of(From::Theory, value)
    }

    /// A target of this project, to be met within its errors.
    pub fn target(value: f64) -> Reference {
        Reference::of(From::Target, value).with_margin(0.0)
    }

    /// Another series of the same figure.
    pub fn other_series(other: Estimate) -> Reference {
        Reference::of(From::Series, other.value).with_error(other.standard_error)
    }

    fn of(from: From, value: f64) -> Reference {
        let (standard_error, margin) = (0.0, POINT);
        Reference { from, value, standard_error, relation: Relation::Equal, margin }
    }

    /// The same with a separate standard error.
    pub fn with_error(self, standard_error: f64) -> Reference {
        Reference { standard_error, ..self }
    }

    /// The same with another margin than one point.
    pub fn with_margin(self, margin: f64) -> Reference {
        Reference { margin, ..self }
    }

    /// A lower bound on the result.
    pub fn at_least(self) -> Reference {
        Reference { relation: Relation::AtLeast, ..self }
    }

    /// Allowed deviation: one percentage point, or `errors` standard errors of both.
    pub fn tolerance(&self, point: &Point, errors: f64) -> f64 {
        self.margin.max(errors * self.standard_error.hypot(point.standard_error))
    }

    pub fn is_met(&self, point: &Point, errors: f64) -> bool {
        let difference = point.ours - self.value;
        let off = if self.relation == Relation::AtLeast { -difference } else { difference.abs() };
        // Values printed to three digits sometimes lie exactly at the edge.
        off <= self.tolerance(point, errors) + 1e-12
    }
}

/// Whose number a reference is.
#[derive(Copy, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum From {
    /// Printed in the paper.
    Paper,
    /// An independent program.
    Oracle,
    /// A closed form of this repository.
    Theory,
    /// Another series.
    Series,
    /// A target of this project.
    Target,
}

/// Expected relation of a result to a reference.
#[derive(Copy, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// Within the tolerance.
    Equal,
    /// Not below it by more than the tolerance.
    AtLeast,
}

/// One percentage point: the trusted precision of tables.
pub const POINT: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_allows_one_point_or_three_standard_errors() {
        let exact = Point::exact(1.0, 0.5);
        assert!(Reference::oracle(0.51).is_met(&exact, 3.0));
        assert!(!Reference::oracle(0.511).is_met(&exact, 3.0));
        assert!(Reference::oracle(0.52).with_error(0.01).is_met(&exact, 3.0));
        assert!(!Reference::oracle(0.54).with_error(0.01).is_met(&exact, 3.0));
        assert!(Reference::oracle(0.1).at_least().is_met(&exact, 3.0));
        assert!(!Reference::oracle(0.6).at_least().is_met(&exact, 3.0));
        let estimate = Estimate { value: 0.5, standard_error: 0.04 };
        assert!(Reference::oracle(0.6).is_met(&Point::estimate(1.0, estimate), 3.0));
    }
}
