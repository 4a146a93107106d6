//! Sentences of Markdown have at most [`WORDS_MAX`] words. Tables and code are not checked.

use super::Finding;

/// Longer sentences hold several ideas.
const WORDS_MAX: usize = 30;

/// Findings for long sentences in a Markdown text; the line is that of the sentence's last word.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut is_code, mut count) = (false, 0);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence || line.is_empty() || line.starts_with(['|', '#']) {
            count = 0;
            continue;
        }
        if is_item(line) {
            count = 0;
        }
        for word in line.split_whitespace() {
            count += 1;
            if word.trim_end_matches('*').ends_with(['.', ':', ';', '!', '?']) {
                if count > WORDS_MAX {
                    let message =
                        format!("a sentence of {count} words, at most {WORDS_MAX}: make it two");
                    findings.push(Finding::new(path, Some(index + 1), message));
                }
                count = 0;
            }
        }
    }
    findings
}

/// Whether a line begins an item of a list.
fn is_item(line: &str) -> bool {
    let numbered = |(number, _): (&str, &str)| number.bytes().all(|it| it.is_ascii_digit());
    line.starts_with("- ") || line.split_once(". ").is_some_and(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> String {
        "word ".repeat(count)
    }

    #[test]
    fn sentence_of_thirty_words_no_finding() {
        let longest = format!("{}last.", words(29));
        let text = format!("{longest} {longest}\n\n- {longest}\n1. {longest}\n");
        assert_eq!(check("a.md", &text.replace("- word", "-").replace("1. word", "1.")), []);
        assert_eq!(check("a.md", &format!("| {} |\n```\n{}.\n```\n", words(40), words(40))), []);
    }

    #[test]
    fn longer_sentence_over_several_lines_found_at_its_end() {
        let text = format!("Short one. {}\n{}end **here.**\n", words(20), words(20));
        let findings = check("a.md", &text);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, Some(2));
        assert!(findings[0].message.contains("42 words"));
    }
}
