//! Pages of the book in the terminal: `recodectl help TOPIC`.

use std::fmt::Write;
use textwrap::{Options, WordSplitter};

/// Columns of a paragraph.
const WIDTH: usize = 80;

/// A page of the book.
struct Topic {
    name: &'static str,
    about: &'static str,
    page: &'static str,
}

macro_rules! topic {
    ($name:literal, $about:literal, $path:literal) => {
        Topic { name: $name, about: $about, page: include_str!(concat!("../../../", $path)) }
    };
}

const TOPICS: [Topic; 11] = [
    topic!("quickstart", "two boxes and a tunnel, in five minutes", "docs/quickstart.md"),
    topic!(
        "concepts",
        "words of the configuration, and how they belong together",
        "docs/concepts.md"
    ),
    topic!("choosing", "whether to use it, which code and which mode", "docs/choosing.md"),
    topic!("operate", "day to day: changes, upgrades, keys, monitoring", "docs/operate.md"),
    topic!("troubleshooting", "messages and symptoms, with cures", "TROUBLESHOOTING.md"),
    topic!("security", "the protection that keys give, and its limits", "SECURITY.md"),
    topic!("limits", "what does not work, or not yet", "docs/limits.md"),
    topic!("split", "TCP connections that end at the edges", "docs/split.md"),
    topic!("static", "programs without libraries, and containers", "docs/static.md"),
    topic!("openwrt", "routers with OpenWrt", "docs/openwrt.md"),
    topic!("glossary", "terms, with their source", "docs/glossary.md"),
];

/// The page of this name, for a terminal.
pub fn page(name: &str) -> Option<String> {
    TOPICS.iter().find(|topic| topic.name == name).map(|topic| for_terminal(topic.page))
}

/// Every page with its subject.
pub fn list() -> String {
    let mut text = String::new();
    for topic in &TOPICS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<15}  {}", topic.name, topic.about);
    }
    text
}

/// Markdown with paragraphs of 80 columns and without targets of links to other pages. Tables and
/// examples stay as they are.
fn for_terminal(markdown: &str) -> String {
    let (mut text, mut paragraph, mut is_example) = (String::new(), String::new(), false);
    for line in without_targets(markdown).lines() {
        let is_fence = line.trim_start().starts_with("```");
        if is_fence || is_example || stands_alone(line) {
            end_paragraph(&mut text, &mut paragraph);
            text.push_str(line);
            text.push('\n');
            is_example ^= is_fence;
        } else if begins_item(line) || paragraph.is_empty() {
            end_paragraph(&mut text, &mut paragraph);
            paragraph.push_str(line);
        } else {
            paragraph.push(' ');
            paragraph.push_str(line.trim_start());
        }
    }
    end_paragraph(&mut text, &mut paragraph);
    text
}

/// A line that is no part of a paragraph: an empty one, a heading, a row of a table.
fn stands_alone(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with(['#', '|'])
}

/// Columns before the words of an item of a list.
fn item_indent(line: &str) -> Option<usize> {
    let words = line.trim_start();
    let digits = words.len() - words.trim_start_matches(|it: char| it.is_ascii_digit()).len();
    let mark = if words.starts_with("- ") {
        2
    } else if digits > 0 && words[digits..].starts_with(". ") {
        digits + 2
    } else {
        return None;
    };
    Some(line.len() - words.len() + mark)
}

fn begins_item(line: &str) -> bool {
    item_indent(line).is_some()
}

fn end_paragraph(text: &mut String, paragraph: &mut String) {
    if paragraph.is_empty() {
        return;
    }
    let leading = paragraph.len() - paragraph.trim_start().len();
    let indent = " ".repeat(item_indent(paragraph).unwrap_or(leading));
    // Paths, options and addresses stay whole.
    let options = Options::new(WIDTH).break_words(false).word_splitter(WordSplitter::NoHyphenation);
    text.push_str(&textwrap::fill(paragraph, options.subsequent_indent(&indent)));
    text.push('\n');
    paragraph.clear();
}

/// `[words](page.md)` becomes `words`; addresses of other sites stay.
fn without_targets(markdown: &str) -> String {
    let (mut text, mut rest) = (String::new(), markdown);
    while let Some((before, after)) = rest.split_once("](") {
        let target = after.split_once(')').filter(|(target, _)| !target.starts_with("http"));
        let link = before.rsplit_once('[').zip(target);
        let Some(((before, words), (_, after))) = link else {
            text.push_str(before);
            text.push_str("](");
            rest = after;
            continue;
        };
        text.push_str(before);
        text.push_str(words);
        rest = after;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_words_and_paragraphs_that_fit() {
        for topic in &TOPICS {
            let page = page(topic.name).expect("a page");
            assert!(page.starts_with("# "), "{}", topic.name);
            assert!(!page.contains(".md)"), "{}: a link to a page", topic.name);
            assert_eq!(words(&page), words(&without_targets(topic.page)), "{}", topic.name);
        }
        assert_eq!(page("nonsense"), None);
    }

    fn words(text: &str) -> Vec<&str> {
        text.split_whitespace().collect()
    }

    #[test]
    fn paragraphs_wrap_and_tables_and_examples_do_not() {
        let long = "word ".repeat(30);
        let page = for_terminal(&format!(
            "# Title\n{long}\n{long}\n\n1. {long}\n   {long}\n```sh\n{long}\n```\n| {long} |\n"
        ));
        let (mut is_example, mut wrapped) = (false, 0);
        for line in page.lines() {
            is_example ^= line.starts_with("```");
            if !is_example && !line.starts_with('|') {
                assert!(line.chars().count() <= WIDTH, "{line}");
                wrapped += 1;
            }
        }
        assert!(wrapped > 8, "{page}");
        assert!(page.contains(&format!("```sh\n{long}\n```")), "{page}");
        assert!(page.contains("\n   word"), "items keep their indent: {page}");
    }

    #[test]
    fn links_to_pages_become_words_and_others_stay() {
        let text = without_targets("see [concepts](concepts.md#a), [x](https://x.test), a](b [c");
        assert_eq!(text, "see concepts, [x](https://x.test), a](b [c");
    }
}
