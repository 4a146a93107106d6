//! The page: sources, counts of verdicts, and a table for each paper.

use std::fmt::Write as _;
use std::path::Path;

use crate::papers::document;
use crate::papers::error::{PapersError, PointerError};
use crate::papers::levels;
use crate::papers::pointer;
use crate::papers::table::{Evidence, NO_MACHINE, Row, Source, Sources};
use crate::papers::verdict::{Class, Judged, Verdict};

/// The page as Markdown.
///
/// # Errors
/// [`PapersError`]: a source whose machine cannot be read.
pub fn write(root: &Path, sources: &Sources, judged: &[Judged<'_>]) -> Result<String, PapersError> {
    let mut text = format!("{HEAD}{}", counts(judged));
    text.push_str("\n## Sources of Recoded's numbers\n| name | machine | file |\n|---|---|---|\n");
    for source in sources.values() {
        let Source { short, file, .. } = source;
        let file = file.strip_suffix(levels::SUFFIX).unwrap_or(file);
        let _ = writeln!(text, "| {short} | {} | `{file}` |", machine(root, source)?);
    }
    for judged in judged {
        section(&mut text, sources, judged);
    }
    Ok(text)
}

const HEAD: &str = "# papers: the five papers' numbers and Recoded's

Every figure, table and headline number of the five papers that Recoded builds on. The page is generated: Recoded's numbers are
read from committed result files, and a unit test fails if the page, a file or an item of a paper is out of step.

```
cargo run -p bench -- papers            # writes this page from bench/papers and the results; measures nothing
cargo run -p bench -- papers --check
```

**Meaning.** Ratio: Recoded's number over the paper's, or the reverse where less is better, so above 1 Recoded is ahead. Nearly
all ratios compare different hardware, named in the column `hardware`: the paper's, then Recoded's. They show that the paper's result is
reached today, and not whose code is better; ratios within one machine, such as shares of a limit, do.

- **met**, **not met**: by the ratio; numbers that should be equal may differ by a hundredth. Each row that is not met has a reason.
- **not comparable**: Recoded has a number, but the paper prints none, or the two count different things.
- **works**: a function without a number; the named test shows it.
- **not measured**: no number, and the reason.
- **nothing to measure**: a drawing, or a property of the paper's own machine.

";

fn counts(judged: &[Judged<'_>]) -> String {
    let names: Vec<&str> = Class::ALL.into_iter().map(Class::name).collect();
    let mut text = format!("| paper | {} | rows |\n|---|", names.join(" | "));
    text.push_str(&"---:|".repeat(Class::ALL.len() + 1));
    text.push('\n');
    let mut line = |name: &str, verdicts: &[&Verdict]| {
        let _ = write!(text, "| {name} |");
        for class in Class::ALL {
            let count = verdicts.iter().filter(|verdict| verdict.class == class).count();
            let _ = write!(text, " {count} |");
        }
        let _ = writeln!(text, " {} |", verdicts.len());
    };
    for judged in judged {
        line(&judged.paper.title, &judged.verdicts.iter().collect::<Vec<_>>());
    }
    let all: Vec<&Verdict> = judged.iter().flat_map(|judged| &judged.verdicts).collect();
    line("all", &all);
    text
}

/// The machine of a source, with pointers replaced.
fn machine(root: &Path, source: &Source) -> Result<String, PapersError> {
    let file = source.machine_file.as_ref().unwrap_or(&source.file);
    let mut text = String::new();
    let mut rest = source.machine.as_str();
    while let Some((before, pointer_on)) = rest.split_once('{') {
        let (at, after) = pointer_on.split_once('}').unwrap_or((pointer_on, ""));
        let document = document::read(root, file)?;
        let value =
            pointer::text(&document, at).map_err(|problem| error(source, file, at, problem))?;
        // A date is enough of a time.
        let value =
            value.split_once('T').filter(|_| at.ends_with(DATE)).map_or(&*value, |(d, _)| d);
        let _ = write!(text, "{before}{value}");
        rest = after;
    }
    Ok(text + rest)
}

/// Ending of pointers to times.
const DATE: &str = "/date";

fn error(source: &Source, file: &str, at: &str, problem: PointerError) -> PapersError {
    PapersError::Pointer {
        row: format!("sources, {}", source.short),
        at: at.to_owned(),
        file: file.into(),
        problem,
    }
}

fn section(text: &mut String, sources: &Sources, judged: &Judged<'_>) {
    let paper = judged.paper;
    let _ = writeln!(text, "\n## {}\n{}\n", paper.title, paper.about);
    for (name, description) in &paper.machines {
        let _ = writeln!(text, "- {name}: {description}");
    }
    text.push_str(COLUMNS);
    for (row, verdict) in paper.rows.iter().zip(&judged.verdicts) {
        line(text, sources, row, verdict);
    }
    for (name, footnote) in &paper.footnotes {
        let _ = write!(text, "\n[^{name}]: {footnote}\n");
    }
}

const COLUMNS: &str = "
| item | quantity or function | paper | Recoded | ratio | hardware | verdict |
|---|---|---:|---:|---:|---|---|
";

fn line(text: &mut String, sources: &Sources, row: &Row, verdict: &Verdict) {
    let Row { item, what, .. } = row;
    let (mut paper, mut ours, mut hardware) = (String::new(), String::new(), String::new());
    if let Evidence::Number(measurement) = &row.evidence {
        let with_unit = |number: String| format!("{number} {}", measurement.unit);
        // As printed.
        paper = measurement.paper.map_or("none".into(), |paper| with_unit(paper.to_string()));
        ours = verdict.ours.map(number).map_or(String::new(), with_unit);
        let here = sources.get(&measurement.from).map_or("", |source| source.short.as_str());
        hardware = match measurement.machine.as_str() {
            NO_MACHINE => format!("counted; {here}"),
            machine => format!("{machine}; {here}"),
        };
    }
    let ratio = verdict.ratio.map(number).unwrap_or_default();
    let cells = [item, what, paper.trim(), ours.trim(), &ratio, &hardware];
    let _ = writeln!(text, "| {} | {} |", cells.join(" | "), explanation(row, verdict));
}

/// The verdict in words.
fn explanation(row: &Row, verdict: &Verdict) -> String {
    let class = verdict.class.name();
    let text = match verdict.class {
        Class::NotMet | Class::Unmeasured => format!("**{class}**"),
        _ => class.to_owned(),
    };
    let reasons = match &row.evidence {
        Evidence::Number(measurement) => vec![measurement.incomparable.clone()],
        Evidence::Test(test) => vec![Some(format!("`{test}`"))],
        Evidence::Gap { reason, test } => {
            let test = test.as_ref().map(|test| format!("the function is there: `{test}`"));
            vec![Some(reason.clone()), test]
        }
        Evidence::Nothing(reason) => vec![Some(reason.clone())],
    };
    let reasons = reasons.into_iter().chain([row.note.clone()]);
    let reasons: Vec<String> = reasons.flatten().collect();
    match reasons.is_empty() {
        true => text,
        false => format!("{text}: {}", reasons.join("; ")),
    }
}

/// A number with three digits, or all before the point, grouped by blanks from 10 000 on.
fn number(value: f64) -> String {
    let before_point = value.abs().log10().floor().max(-6.0);
    // At least 1e-6 in size, so the exponent is small.
    let digits = if value == 0.0 { 0.0 } else { (2.0 - before_point).max(0.0) };
    let digits = digits as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    if text.len() < 5 {
        return text;
    }
    let groups = text.as_bytes().rchunks(3).rev();
    let groups: Vec<&str> = groups.filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_groups() {
        let shown = [0.0, 0.0712, 0.5, 1.0, 1.149, 46.31, 525.78, 3050.0, 555_312.4].map(number);
        let expected = ["0", "0.0712", "0.5", "1", "1.15", "46.3", "526", "3050", "555 312"];
        assert_eq!(shown, expected);
    }
}
