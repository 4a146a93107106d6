//! Verdicts: Recoded's number is read, and compared with the paper's.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::papers::document;
use crate::papers::error::PapersError;
use crate::papers::pointer;
use crate::papers::table::{Better, Evidence, Measurement, Paper, Row, Sources};

/// A paper with a verdict for each row, in the order of its rows.
pub struct Judged<'a> {
    /// The paper.
    pub paper: &'a Paper,
    /// Number and verdict of each row.
    pub verdicts: Vec<Verdict>,
}

/// How a row went.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Verdict {
    /// The class.
    pub class: Class,
    /// Recoded's number.
    pub ours: Option<f64>,
    /// Recoded's number over the paper's, or the reverse where less is better.
    pub ratio: Option<f64>,
}

/// Class of a verdict.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// As good as the paper or better.
    Met,
    /// Worse than the paper.
    NotMet,
    /// Both have a number, or only Recoded has one, and they cannot be compared.
    Incomparable,
    /// A function without a number, which a test shows.
    Works,
    /// No measurement.
    Unmeasured,
    /// Nothing to measure or to build.
    Nothing,
}

impl Class {
    /// All classes in the order of the page.
    pub const ALL: [Class; 6] = [
        Class::Met,
        Class::NotMet,
        Class::Incomparable,
        Class::Works,
        Class::Unmeasured,
        Class::Nothing,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Class::Met => "met",
            Class::NotMet => "not met",
            Class::Incomparable => "not comparable",
            Class::Works => "works",
            Class::Unmeasured => "not measured",
            Class::Nothing => "nothing to measure",
        }
    }
}

/// Judges all rows of a paper by the files in `root`.
///
/// # Errors
/// [`PapersError`]: a missing file, a pointer without a number, a missing test, or a number that is
/// not met and not explained.
pub fn judge<'a>(
    root: &Path,
    paper: &'a Paper,
    sources: &Sources,
) -> Result<Judged<'a>, PapersError> {
    let mut bench = Bench { root, paper, sources, documents: BTreeMap::new() };
    let verdicts = paper.rows.iter().map(|row| bench.verdict(row));
    Ok(Judged { paper, verdicts: verdicts.collect::<Result<_, _>>()? })
}

/// The files of one paper.
struct Bench<'a> {
    root: &'a Path,
    paper: &'a Paper,
    sources: &'a Sources,
    documents: BTreeMap<&'a str, Value>,
}

impl<'a> Bench<'a> {
    fn verdict(&mut self, row: &'a Row) -> Result<Verdict, PapersError> {
        let class = match &row.evidence {
            Evidence::Number(measurement) => {
                let ours = self.ours(row, measurement)?;
                if !ours.is_finite() {
                    return Err(self.error(row, "a division by 0; correct `over` or `per`"));
                }
                let verdict = compare(measurement, ours);
                if verdict.class == Class::NotMet && row.note.is_none() {
                    return Err(self.error(row, "not met: explain it in `note`"));
                }
                return Ok(verdict);
            }
            Evidence::Test(test) => {
                self.require(row, test)?;
                Class::Works
            }
            Evidence::Gap { test, .. } => {
                test.iter().try_for_each(|test| self.require(row, test))?;
                Class::Unmeasured
            }
            Evidence::Nothing(_) => Class::Nothing,
        };
        Ok(Verdict { class, ours: None, ratio: None })
    }

    fn ours(&mut self, row: &Row, measurement: &'a Measurement) -> Result<f64, PapersError> {
        let unknown = "its `from` is not in sources.toml; add it";
        let source = self.sources.get(&measurement.from);
        let file = source.ok_or_else(|| self.error(row, unknown))?.file.as_str();
        if !self.documents.contains_key(file) {
            self.documents.insert(file, document::read(self.root, file)?);
        }
        let read = |at: &str| {
            let number = pointer::number(&self.documents[file], at, measurement.reduce);
            number.map_err(|problem| PapersError::Pointer {
                row: format!("{}, {}", self.paper.name, row.item),
                at: at.to_owned(),
                file: file.into(),
                problem,
            })
        };
        let over = measurement.over.as_deref().map_or(Ok(1.0), read)?;
        let value = read(&measurement.at)? / over / measurement.divide;
        Ok(measurement.per.map_or(value, |per| per / value))
    }

    /// Checks that a test exists.
    fn require(&self, row: &Row, test: &str) -> Result<(), PapersError> {
        let found = test.split_once("::").is_some_and(|(file, function)| {
            let text = fs::read_to_string(self.root.join(file)).unwrap_or_default();
            let definitions = [format!("fn {function}("), format!("def {function}(")];
            definitions.iter().any(|definition| text.contains(definition))
        });
        let (paper, item) = (self.paper.name.clone(), row.item.clone());
        found.then_some(()).ok_or_else(|| PapersError::Test { paper, item, test: test.to_owned() })
    }

    fn error(&self, row: &Row, problem: &'static str) -> PapersError {
        PapersError::Row { paper: self.paper.name.clone(), item: row.item.clone(), problem }
    }
}

fn compare(measurement: &Measurement, ours: f64) -> Verdict {
    let paper = measurement.paper.filter(|_| measurement.incomparable.is_none());
    let Some(paper) = paper else {
        return Verdict { class: Class::Incomparable, ours: Some(ours), ratio: None };
    };
    let ratio = match measurement.better {
        Better::More | Better::Equal => ours / paper,
        Better::Less => paper / ours,
    };
    let is_met = match measurement.better {
        Better::More | Better::Less => ratio >= 1.0,
        Better::Equal => (ratio - 1.0).abs() <= EQUAL,
    };
    let class = if is_met { Class::Met } else { Class::NotMet };
    Verdict { class, ours: Some(ours), ratio: Some(ratio) }
}

/// Largest deviation of equal numbers, as a share.
const EQUAL: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::error::PointerError;
    use crate::papers::table::{NO_MACHINE, Source};

    fn measurement(better: Better, paper: Option<f64>) -> Measurement {
        Measurement {
            paper,
            unit: String::new(),
            machine: NO_MACHINE.into(),
            better,
            from: "s".into(),
            at: "/a".into(),
            over: None,
            reduce: None,
            per: None,
            divide: 1.0,
            incomparable: None,
        }
    }

    /// Verdict of one row over the document `{"a": 4, "b": 2}`.
    fn judged(evidence: Evidence, note: Option<&str>) -> Result<Verdict, PapersError> {
        let folder = tempfile::tempdir().expect("a folder");
        let test = "#[test]\nfn it_works() {}";
        fs::write(folder.path().join("t.rs"), test).expect("writable");
        fs::write(folder.path().join("s.json"), r#"{"a": 4, "b": 2}"#).expect("writable");
        let source = Source {
            file: "s.json".into(),
            machine_file: None,
            machine: String::new(),
            short: String::new(),
        };
        let note = note.map(str::to_owned);
        let paper = Paper {
            name: "p".into(),
            title: String::new(),
            about: String::new(),
            machines: BTreeMap::new(),
            footnotes: BTreeMap::new(),
            rows: vec![Row { item: "Fig. 1".into(), what: String::new(), evidence, note }],
        };
        let sources = Sources::from([("s".to_owned(), source)]);
        judge(folder.path(), &paper, &sources).map(|judged| judged.verdicts[0])
    }

    #[test]
    fn direction_and_tolerance_decide() {
        let class = |better, paper| compare(&measurement(better, Some(paper)), 4.0).class;
        assert_eq!(class(Better::More, 4.0), Class::Met);
        assert_eq!(class(Better::More, 4.1), Class::NotMet);
        assert_eq!(class(Better::Less, 4.1), Class::Met);
        assert_eq!(class(Better::Less, 3.9), Class::NotMet);
        assert_eq!(class(Better::Equal, 4.03), Class::Met);
        assert_eq!(class(Better::Equal, 4.1), Class::NotMet);
        assert_eq!(compare(&measurement(Better::More, None), 4.0).class, Class::Incomparable);
    }

    #[test]
    fn numbers_are_read_divided_and_turned_over() {
        let mut ratio = measurement(Better::More, Some(1.0));
        ratio.over = Some("/b".into());
        ratio.per = Some(10.0);
        assert_eq!(judged(Evidence::Number(ratio), None).expect("a number").ours, Some(5.0));
    }

    #[test]
    fn division_by_zero_is_an_error() {
        let mut zero = measurement(Better::More, Some(1.0));
        zero.divide = 0.0;
        assert!(matches!(judged(Evidence::Number(zero), None), Err(PapersError::Row { .. })));
    }

    #[test]
    fn pointer_that_finds_nothing_is_an_error() {
        let mut gone = measurement(Better::More, Some(1.0));
        gone.at = "/gone".into();
        let error = judged(Evidence::Number(gone), None).unwrap_err();
        let expected = PointerError::Nothing("gone".into());
        assert!(matches!(error, PapersError::Pointer { problem, .. } if problem == expected));
    }

    #[test]
    fn lost_number_needs_a_reason() {
        let lost = || Evidence::Number(measurement(Better::More, Some(5.0)));
        assert!(matches!(judged(lost(), None), Err(PapersError::Row { .. })));
        assert_eq!(judged(lost(), Some("slower")).expect("explained").class, Class::NotMet);
    }

    #[test]
    fn test_must_exist() {
        let of = |test: &str| judged(Evidence::Test(test.into()), None);
        assert_eq!(of("t.rs::it_works").expect("there").class, Class::Works);
        for gone in ["t.rs::it_wor", "u.rs::it_works", "t.rs"] {
            assert!(matches!(of(gone), Err(PapersError::Test { .. })), "{gone}");
        }
    }
}
