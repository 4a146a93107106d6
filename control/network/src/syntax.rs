//! Mistakes in TOML that have a plainer message than the parser's.

use std::ops::Range;
use toml_edit::Value;

/// The message for text that is not TOML: `message` and `span` are the parser's.
pub fn syntax_fault(text: &str, message: &str, span: Option<Range<usize>>) -> String {
    let known = span.and_then(|span| match message.contains("duplicate key") {
        true => twice(text, span),
        false => unquoted(text, span.start),
    });
    known.unwrap_or_else(|| format!("this is not valid TOML: {}", message.replace('\n', ", ")))
}

/// A key or section that appears twice.
fn twice(text: &str, span: Range<usize>) -> Option<String> {
    let line = line(text, span.start)?;
    let key = text.get(span)?;
    let is_section = line.trim_start().starts_with('[');
    let shown = if is_section { format!("[{key}]") } else { key.to_owned() };
    Some(format!("{shown} appears twice"))
}

/// A text without its quotes, such as an address.
fn unquoted(text: &str, at: usize) -> Option<String> {
    let line = line(text, at)?;
    let begins = line.as_ptr() as usize - text.as_ptr() as usize;
    // The parser may point at a later part of the value, but never past its line.
    let before = line.get(..at.checked_sub(begins)?.saturating_add(1).min(line.len()))?;
    let equals = before.rfind('=')?;
    let is_key = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    let head = line[..equals].trim_end();
    let key = head.rsplit(|it| !is_key(it)).next()?;
    let rest = line[equals + 1..].trim_start();
    let is_text = |it: char| it.is_ascii_alphanumeric() || "._:/@+-".contains(it);
    let value = &rest[..rest.find(|it| !is_text(it)).unwrap_or(rest.len())];
    let ends = rest[value.len()..].trim_start();
    let is_whole = ends.is_empty() || ends.starts_with([',', '}', '#']);
    let is_toml = value.parse::<Value>().is_ok();
    (!key.is_empty() && !value.is_empty() && is_whole && !is_toml)
        .then(|| format!("put the value of {key} in quotes: \"{value}\""))
}

/// The line around a byte.
fn line(text: &str, at: usize) -> Option<&str> {
    let begins = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    text[begins..].lines().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml::de::DeTable;

    fn fault(text: &str) -> String {
        let error = DeTable::parse(text).expect_err("a mistake");
        syntax_fault(text, error.message(), error.span())
    }

    #[test]
    fn missing_quotes_and_repeated_sections_are_named() {
        for (text, expected) in [
            ("at = 192.0.2.1\n", "put the value of at in quotes: \"192.0.2.1\""),
            (
                "[boxes]\na = { at = 192.0.2.1, key = \"k\" }",
                "put the value of at in quotes: \"192.0.2.1\"",
            ),
            ("code = rlnc # fast\n", "put the value of code in quotes: \"rlnc\""),
            ("at = 2001:db8::1", "put the value of at in quotes: \"2001:db8::1\""),
            ("tunnel = 10.99.0.1/24\n", "put the value of tunnel in quotes: \"10.99.0.1/24\""),
            ("[boxes]\na = {}\n[boxes]\n", "[boxes] appears twice"),
            ("auth = \"full\"\nauth = \"hop\"\n", "auth appears twice"),
        ] {
            assert_eq!(fault(text), expected, "{text}");
        }
    }

    #[test]
    fn other_mistakes_keep_the_words_of_the_parser() {
        for text in ["[boxes\n", "a = [1, 2\n", "a = \"x\n", "a = = 1", "=", "a = é", "a"] {
            assert!(fault(text).starts_with("this is not valid TOML: "), "{}", fault(text));
        }
    }
}
