//! Comments have the width limit of code. rustfmt wraps code but not long comments.

use std::path::Path;

use super::Finding;

/// Columns of a line, as `max_width` in rustfmt.toml.
const COLUMNS_MAX: usize = 100;

/// How a language marks comments.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Language {
    /// `//`: Rust.
    Rust,
    /// `//` and blocks: C, CUDA and SystemVerilog.
    C,
    /// `#`: shell and TOML.
    Hash,
}

impl Language {
    /// By the name of the file, or, if it has no extension, by its interpreter.
    pub fn of(path: &str, text: &str) -> Option<Language> {
        match Path::new(path).extension().and_then(|extension| extension.to_str()) {
            Some("rs") => Some(Language::Rust),
            Some("c" | "h" | "cu" | "cuh" | "cpp" | "sv" | "svh") => Some(Language::C),
            Some("sh" | "toml") => Some(Language::Hash),
            None if text.starts_with("#!") => Some(Language::Hash),
            _ => None,
        }
    }

    /// Text of the comment on a line, if there is one. A mark after code counts only with spaces on
    /// both sides and outside strings, so that neither `https://` nor `$#` matches.
    fn comment(self, line: &str) -> Option<&str> {
        let (mark, later) = match self {
            Language::Rust | Language::C => ("//", " // "),
            Language::Hash => ("#", " # "),
        };
        let trimmed = line.trim_start();
        let starts_in_block = self == Language::C && trimmed.starts_with(['*', '/']);
        if starts_in_block {
            return Some(trimmed.trim_start_matches(['/', '*']));
        }
        let after_code = || line.split_once(later).filter(|(code, _)| !is_in_string(code));
        let text = trimmed.strip_prefix(mark).or_else(|| after_code().map(|(_, text)| text))?;
        Some(text.trim_start_matches(['/', '!', '#']))
    }
}

/// Whether a string that begins in `code` has not ended.
fn is_in_string(code: &str) -> bool {
    code.matches('"').count() % 2 == 1
}

/// Findings for comments that are too wide. A single word, such as a URL, may exceed the width,
/// because it cannot be broken.
pub fn check(path: &str, text: &str, language: Language) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns <= COLUMNS_MAX {
            continue;
        }
        if language.comment(line).is_some_and(|comment| comment.trim().contains(' ')) {
            let message = format!("a comment of {columns} columns: wrap it at {COLUMNS_MAX}");
            findings.push(Finding::new(path, Some(index + 1), message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text of `columns` columns after `start`, in words.
    fn wide(start: &str, columns: usize) -> String {
        let filler = "é ".repeat(columns);
        let text: String = start.chars().chain(filler.chars()).take(columns - 1).collect();
        format!("{text}x\n")
    }

    #[test]
    fn check_comment_width_is_inclusive_and_counts_characters() {
        for (start, language) in [
            ("/// ", Language::Rust),
            ("    //! ", Language::Rust),
            ("let a = 1; // ", Language::Rust),
            (" * ", Language::C),
            ("/* ", Language::C),
            ("# ", Language::Hash),
            ("run it # ", Language::Hash),
        ] {
            assert_eq!(check("a", &wide(start, COLUMNS_MAX), language), [], "{start}");
            let findings = check("a", &wide(start, COLUMNS_MAX + 1), language);
            assert_eq!(findings.len(), 1, "{start}");
            assert_eq!(findings[0].line, Some(1));
        }
    }

    #[test]
    fn check_code_and_single_words_no_finding() {
        let url = format!("// https://example.org/{}\n", "a".repeat(COLUMNS_MAX));
        assert_eq!(check("a.rs", &url, Language::Rust), []);
        let text = format!("let a = \"{}\";\n", "https://a b // c ".repeat(20));
        assert_eq!(check("a.rs", &text, Language::Rust), []);
        assert_eq!(check("a.sh", &wide("[ $# -gt 0 ] ", COLUMNS_MAX + 1), Language::Hash), []);
    }

    #[test]
    fn language_by_extension_and_interpreter() {
        assert_eq!(Language::of("a/b.rs", ""), Some(Language::Rust));
        assert_eq!(Language::of("a/b.cuh", ""), Some(Language::C));
        assert_eq!(Language::of("a/b.sv", ""), Some(Language::C));
        assert_eq!(Language::of("a/b.toml", ""), Some(Language::Hash));
        assert_eq!(Language::of("scripts/demo", "#!/usr/bin/env bash\n"), Some(Language::Hash));
        assert_eq!(Language::of("LICENSE", "Text"), None);
        assert_eq!(Language::of("README.md", "# Title"), None);
    }
}
