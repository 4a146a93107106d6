//! The tables: `bench/papers/sources.toml` and one file for each paper.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::papers::error::PapersError;
use crate::papers::pointer::Reduce;

/// A file with Recoded's numbers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The file, from the root of the repository.
    pub file: String,
    /// The file with machine and date, if that is another one.
    pub machine_file: Option<String>,
    /// The machine: text with pointers in braces.
    pub machine: String,
    /// A short name for the column of hardware.
    pub short: String,
}

/// All sources by name.
pub type Sources = BTreeMap<String, Source>;

/// A paper.
pub struct Paper {
    /// Name of its table.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its subject and origin, in sentences.
    pub about: String,
    /// Its machines by their short names.
    pub machines: BTreeMap<String, String>,
    /// Explanations that several rows refer to as `[^name]`.
    pub footnotes: BTreeMap<String, String>,
    /// Its items.
    pub rows: Vec<Row>,
}

/// A row: one item, or a part of it.
pub struct Row {
    /// `Fig. 5(a)`, `Table II`, `Sec. V-D`.
    pub item: String,
    /// The quantity or function, with its shape.
    pub what: String,
    /// Number, test, or the reason for neither.
    pub evidence: Evidence,
    /// An explanation of the verdict.
    pub note: Option<String>,
}

/// What backs a row.
pub enum Evidence {
    /// Numbers.
    Number(Measurement),
    /// A function, which this test shows: `FILE::FUNCTION`.
    Test(String),
    /// No measurement.
    Gap {
        /// Why.
        reason: String,
        /// A test that shows that the function exists.
        test: Option<String>,
    },
    /// Nothing to measure or to build, and why.
    Nothing(String),
}

/// The paper's number, and pointers to Recoded's.
pub struct Measurement {
    /// The paper's number; none where its text prints none.
    pub paper: Option<f64>,
    /// Unit of both; empty for ratios.
    pub unit: String,
    /// Machine of the paper, a key of [`Paper::machines`], or [`NO_MACHINE`].
    pub machine: String,
    /// Which numbers are better.
    pub better: Better,
    /// The source of Recoded's number.
    pub from: String,
    /// Pointer to Recoded's number.
    pub at: String,
    /// Pointer to a divisor, for ratios.
    pub over: Option<String>,
    /// One number for several elements.
    pub reduce: Option<Reduce>,
    /// A dividend: the number is this divided by the value. Turns rates into times.
    pub per: Option<f64>,
    /// A divisor, for units.
    pub divide: f64,
    /// Why the numbers cannot be compared.
    pub incomparable: Option<String>,
}

/// Which numbers are better.
#[derive(Copy, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Larger ones.
    #[default]
    More,
    /// Smaller ones.
    Less,
    /// Those within a hundredth of the paper's.
    Equal,
}

/// The machine of counted numbers.
pub const NO_MACHINE: &str = "none";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPaper {
    title: String,
    about: String,
    figures: usize,
    tables: usize,
    #[serde(default)]
    others: Vec<String>,
    machines: BTreeMap<String, String>,
    #[serde(default)]
    footnotes: BTreeMap<String, String>,
    row: Vec<RawRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    item: String,
    what: String,
    paper: Option<f64>,
    #[serde(default)]
    unit: String,
    machine: Option<String>,
    #[serde(default)]
    better: Better,
    from: Option<String>,
    at: Option<String>,
    over: Option<String>,
    reduce: Option<Reduce>,
    per: Option<f64>,
    divide: Option<f64>,
    incomparable: Option<String>,
    test: Option<String>,
    gap: Option<String>,
    nothing: Option<String>,
    note: Option<String>,
}

/// Reads the sources in `root`.
///
/// # Errors
/// [`PapersError::Read`] and [`PapersError::Parse`].
pub fn sources(root: &Path) -> Result<Sources, PapersError> {
    read(root, "sources")
}

/// Reads the table `name` in `root`.
///
/// # Errors
/// [`PapersError::Read`], [`PapersError::Parse`], [`PapersError::Row`], [`PapersError::Missing`].
pub fn paper(root: &Path, name: &str) -> Result<Paper, PapersError> {
    parse(name, read(root, name)?)
}

fn read<T: DeserializeOwned>(root: &Path, name: &str) -> Result<T, PapersError> {
    let path = root.join(format!("bench/papers/{name}.toml"));
    let text = fs::read_to_string(&path).map_err(PapersError::read(&path))?;
    toml::from_str(&text).map_err(PapersError::parse(&path))
}

fn parse(name: &str, raw: RawPaper) -> Result<Paper, PapersError> {
    let figures = (1..=raw.figures).map(|number| format!("Fig. {number}"));
    let tables = ROMAN.into_iter().take(raw.tables).map(|number| format!("Table {number}"));
    let items: Vec<String> = figures.chain(tables).chain(raw.others).collect();
    let missing = items.iter().filter(|item| !raw.row.iter().any(|row| row.is_of(item)));
    let missing: Vec<String> = missing.cloned().collect();
    if !missing.is_empty() {
        return Err(PapersError::Missing { paper: name.to_owned(), items: missing });
    }
    let rows = raw.row.into_iter().map(|row| {
        let item = row.item.clone();
        let is_known = !row.is_numbered() || items.iter().any(|item| row.is_of(item));
        let row = match is_known {
            true => row.parse(&raw.machines),
            false => Err("the paper has no such figure or table; correct the item"),
        };
        row.map_err(|problem| PapersError::Row { paper: name.to_owned(), item, problem })
    });
    Ok(Paper {
        name: name.to_owned(),
        title: raw.title,
        about: raw.about,
        rows: rows.collect::<Result<_, _>>()?,
        machines: raw.machines,
        footnotes: raw.footnotes,
    })
}

const ROMAN: [&str; 5] = ["I", "II", "III", "IV", "V"];

impl RawRow {
    /// Whether this row is about `item` or a part of it.
    fn is_of(&self, item: &str) -> bool {
        let rest = self.item.strip_prefix(item);
        rest.is_some_and(|rest| !rest.starts_with(|symbol: char| symbol.is_alphanumeric()))
    }

    fn is_numbered(&self) -> bool {
        ["Fig.", "Table"].iter().any(|kind| self.item.starts_with(kind))
    }

    fn parse(self, machines: &BTreeMap<String, String>) -> Result<Row, &'static str> {
        let evidence = match (self.at, self.test, self.gap, self.nothing) {
            (Some(at), None, None, None) => {
                let machine = self.machine.ok_or("name the machine of the paper, or \"none\"")?;
                if self.paper.is_some_and(|paper| paper <= 0.0) {
                    return Err("the paper's number must be above 0");
                }
                if machine != NO_MACHINE && !machines.contains_key(&machine) {
                    return Err("describe the machine in [machines]");
                }
                Evidence::Number(Measurement {
                    paper: self.paper,
                    unit: self.unit,
                    machine,
                    better: self.better,
                    from: self.from.ok_or("name the source of the number in `from`")?,
                    at,
                    over: self.over,
                    reduce: self.reduce,
                    per: self.per,
                    divide: self.divide.unwrap_or(1.0),
                    incomparable: self.incomparable,
                })
            }
            (None, Some(test), None, None) => Evidence::Test(test),
            (None, test, Some(reason), None) => Evidence::Gap { reason, test },
            (None, None, None, Some(reason)) => Evidence::Nothing(reason),
            _ => return Err("give one of `at`, `test`, `gap` (perhaps with a test), `nothing`"),
        };
        Ok(Row { item: self.item, what: self.what, evidence, note: self.note })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &str) -> Result<Paper, PapersError> {
        let head =
            "title = 't'\nabout = 'a'\nfigures = 2\ntables = 1\nothers = ['Eq. 1']\n[machines]\n";
        parse("t", toml::from_str(&format!("{head}{rows}")).expect("TOML"))
    }

    fn row(item: &str, rest: &str) -> String {
        format!("[[row]]\nitem = '{item}'\nwhat = 'w'\n{rest}\n")
    }

    fn others() -> String {
        ["Fig. 1", "Table I", "Eq. 1"].map(|item| row(item, "nothing = 'a drawing'")).concat()
    }

    #[test]
    fn items_without_a_row_are_named() {
        let error = table(&(others() + &row("Fig. 20", "gap = 'g'"))).err().expect("an error");
        assert!(matches!(error, PapersError::Missing { items, .. } if items == ["Fig. 2"]));
        assert_eq!(
            table(&(others() + &row("Fig. 2(a)", "gap = 'g'"))).expect("valid").rows.len(),
            4
        );
    }

    #[test]
    fn rows_that_contradict_themselves_are_refused() {
        for rest in [
            "",
            "gap = 'g'\nnothing = 'n'",
            "at = '/a'\nfrom = 's'",
            "at = '/a'\nfrom = 's'\nmachine = 'unknown'",
            "at = '/a'\nmachine = 'none'",
            "at = '/a'\nfrom = 's'\nmachine = 'none'\npaper = 0.0",
        ] {
            let error = table(&(others() + &row("Fig. 2", rest))).err();
            assert!(matches!(error, Some(PapersError::Row { .. })), "{rest}");
        }
        let unknown = others() + &row("Fig. 2", "gap = 'g'") + &row("Fig. 3", "gap = 'g'");
        assert!(matches!(table(&unknown), Err(PapersError::Row { item, .. }) if item == "Fig. 3"));
    }
}
