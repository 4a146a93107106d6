//! Words: one word has one meaning, and some words are forbidden.
//!
//! `docs/glossary.md` holds the glossary as a table; [`GLOSSARY`] names the words it must define.
//! `words.txt` lists words that are forbidden in texts for humans, with their replacements. Whole
//! lines are searched, so an identifier that equals such a word is found as well. A phrase that
//! continues on the next line is not found.

use super::Finding;

/// Terms that the table in `docs/glossary.md` defines: those of RFC 8406 and RFC 9426, and the
/// project's own.
const GLOSSARY: [&str; 22] = [
    "source symbol",
    "coded symbol",
    "generation",
    "batch",
    "block",
    "window",
    "unit",
    "rank",
    "innovative",
    "recode",
    "NACK",
    "block acknowledgement",
    "burst",
    "field",
    "frame",
    "kernel",
    "peer",
    "shard",
    "degree",
    "coding vector",
    "source",
    "sink",
];

/// First cell of the glossary's heading.
const HEADING: &str = "word";

/// The list as text: the forms, separated by commas, a bar, and the replacement.
const FORBIDDEN: &str = include_str!("words.txt");

/// A forbidden word or phrase in lower case, and its replacement.
struct Forbidden {
    form: &'static str,
    instead: &'static str,
}

fn forbidden() -> impl Iterator<Item = Forbidden> {
    let entries = FORBIDDEN.lines().filter(|line| !line.starts_with('#'));
    entries.filter_map(|line| line.split_once('|')).flat_map(|(forms, instead)| {
        forms.split(',').map(|form| Forbidden { form: form.trim(), instead: instead.trim() })
    })
}

/// Findings for forbidden words in the text of a file.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.to_lowercase();
        for Forbidden { form, instead } in forbidden().filter(|word| has_word(&line, word.form)) {
            let message = format!("`{form}` is not used here; write instead: {instead}");
            findings.push(Finding::new(path, Some(index + 1), message));
        }
    }
    findings
}

/// Whether `line` has `word` with no letter, digit or underscore before or after it.
fn has_word(line: &str, word: &str) -> bool {
    let is_inner = |symbol: char| symbol.is_alphanumeric() || symbol == '_';
    line.match_indices(word).any(|(start, _)| {
        let (before, after) = (&line[..start], &line[start + word.len()..]);
        !before.ends_with(is_inner) && !after.starts_with(is_inner)
    })
}

/// Findings for words that the glossary lacks, defines twice or should not contain.
pub fn check_glossary(path: &str, text: &str) -> Vec<Finding> {
    let rows = glossary_rows(text);
    let mut findings = Vec::new();
    for word in GLOSSARY {
        let count = rows.iter().filter(|(_, known, _)| *known == word).count();
        if count != 1 {
            let message = format!("the glossary defines `{word}` {count} times, not once");
            findings.push(Finding::new(path, None, message));
        }
    }
    for (line, word, meaning) in rows {
        if !GLOSSARY.contains(&word) {
            let message = format!("`{word}` is missing in GLOSSARY of scripts/xtask");
            findings.push(Finding::new(path, Some(line), message));
        }
        if meaning.is_empty() {
            let message = format!("the glossary gives no meaning for `{word}`");
            findings.push(Finding::new(path, Some(line), message));
        }
    }
    findings
}

/// Rows of the glossary: line, word and meaning.
fn glossary_rows(text: &str) -> Vec<(usize, &str, &str)> {
    let cells = |line: &'_ str| -> Option<(usize, usize)> {
        let word = line.strip_prefix('|')?.find('|')? + 1;
        Some((word, line.rfind('|')?))
    };
    let rows = text.lines().enumerate().map(|(index, line)| {
        let row = cells(line).filter(|(word, end)| word < end);
        row.map(|(word, end)| (index + 1, line[1..word].trim(), line[word + 1..end].trim()))
    });
    let table = rows.skip_while(|row| row.is_none_or(|(_, word, _)| word != HEADING));
    table.skip(2).map_while(|row| row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first() -> Forbidden {
        forbidden().next().expect("the list is not empty")
    }

    #[test]
    fn list_has_forms_in_lower_case_and_an_alternative_for_each() {
        for Forbidden { form, instead } in forbidden() {
            assert!(!form.is_empty() && !instead.is_empty(), "`{form}`: `{instead}`");
            assert_eq!(form, form.to_lowercase());
        }
        let entries = FORBIDDEN.lines().filter(|line| !line.starts_with('#'));
        assert!(entries.clone().all(|line| line.matches('|').count() == 1));
        assert!(forbidden().count() >= entries.count());
    }

    #[test]
    fn check_forbidden_word_found_with_line_and_alternative() {
        for Forbidden { form, instead } in forbidden() {
            let text = format!("fine\n// It {}, then.\n", form.to_uppercase());
            let findings = check("a.rs", &text);
            let found = findings.iter().find(|finding| finding.message.contains(form));
            let found = found.expect("the word is there");
            assert_eq!(found.line, Some(2));
            assert!(found.message.contains(instead));
        }
    }

    #[test]
    fn check_part_of_a_longer_word_no_finding() {
        let Forbidden { form, .. } = first();
        assert_eq!(check("a.rs", &format!("x{form} {form}x {form}_x x_{form} {form}1")), []);
        assert_eq!(check("a.rs", &format!("({form})")).len(), 1);
    }

    fn readme(rows: &[&str]) -> String {
        let rows: String = rows.iter().map(|word| format!("| {word} | a meaning |\n")).collect();
        format!(
            "| folder | what |\n|---|---|\n| `x` | y |\n\n| word | meaning |\n|---|---|\n{rows}\nend\n"
        )
    }

    #[test]
    fn glossary_complete_no_finding() {
        assert_eq!(check_glossary("README.md", &readme(&GLOSSARY)), []);
    }

    #[test]
    fn glossary_missing_and_repeated_words_found() {
        let mut words = GLOSSARY.to_vec();
        words[0] = words[1];
        let findings = check_glossary("README.md", &readme(&words));
        let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(messages.len(), 2);
        assert!(messages[0].contains(GLOSSARY[0]) && messages[0].contains("0 times"));
        assert!(messages[1].contains(GLOSSARY[1]) && messages[1].contains("2 times"));
        assert_eq!(check_glossary("README.md", "no table").len(), GLOSSARY.len());
    }

    #[test]
    fn glossary_unknown_word_and_empty_meaning_found() {
        let text = readme(&GLOSSARY).replace("\nend", "| a guest |  |\n");
        let findings = check_glossary("README.md", &text);
        assert_eq!(findings.len(), 2);
        assert!(findings.iter().all(|finding| finding.line == Some(7 + GLOSSARY.len())));
    }
}
