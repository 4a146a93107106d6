//! The page of error messages: those that the sources derive with `thiserror`.
//!
//! ```text
//!  /// An interface with the tunnel's name exists.                  -> meaning
//!  #[error("an interface named `{tunnel}` exists already: choose another name")]
//!           `-> message                                   `-> fix
//! ```
//!
//! Every enum and struct below [`PARTS`] counts, so a new message appears without a list.

use std::collections::BTreeSet;
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, ItemEnum, ItemStruct, Lit, LitStr, Meta};

use crate::TaskError;
use crate::repository::{Finding, read_text};

/// The page.
pub const PAGE: &str = "docs/reference/errors.md";

const BEGIN: &str = "<!-- tables: written by cargo xtask errors -->\n";

/// Parts of the page, and the folder of their sources.
const PARTS: [(&str, &str); 10] = [
    ("Network files", "control/network/src"),
    ("Daemon", "control/daemon/src"),
    ("Links, tunnels and flows of the daemon", "dataplane/runtime/src"),
    ("AF_XDP sockets", "dataplane/xsk/src"),
    ("Keys and handshakes", "dataplane/secure/src"),
    ("Settings of the host", "control/host/src"),
    ("Calls to the daemon", "control/api/src"),
    ("`recodectl`", "control/cli/src"),
    ("Measurements of a path", "control/plan/src"),
    ("`recoded-agent`", "control/agent/src"),
];

/// A message of a program.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Row {
    message: String,
    meaning: String,
    fix: String,
}

/// Writes the page.
pub fn write(root: &Path, files: &BTreeSet<String>) -> Result<String, TaskError> {
    let made = page(root, files)?;
    let path = root.join(PAGE);
    std::fs::write(&path, &made).map_err(|source| TaskError::File { path, source })?;
    Ok(format!("{PAGE}: {} lines", made.lines().count()))
}

/// Finds a page that differs from the sources.
pub fn check(root: &Path, files: &BTreeSet<String>) -> Result<Vec<Finding>, TaskError> {
    let is_current = page(root, files)? == read_text(root, PAGE)?;
    let finding = Finding::new(PAGE, None, "differs from the sources: run `cargo xtask errors`");
    Ok(if is_current { Vec::new() } else { vec![finding] })
}

/// The prose of the page as it is, and the tables of the sources.
fn page(root: &Path, files: &BTreeSet<String>) -> Result<String, TaskError> {
    let written = read_text(root, PAGE)?;
    let prose = written.split_once(BEGIN).map_or(written.as_str(), |(prose, _)| prose);
    let mut page = format!("{prose}{BEGIN}");
    for (heading, folder) in PARTS {
        let inside = |file: &&String| Path::new(file).starts_with(folder) && file.ends_with(".rs");
        let mut rows = BTreeSet::new();
        for file in files.iter().filter(inside) {
            rows.extend(rows_of(&read_text(root, file)?));
        }
        page += &table(heading, &rows);
    }
    Ok(page)
}

fn table(heading: &str, rows: &BTreeSet<Row>) -> String {
    let mut text =
        format!("\n## {heading}\n| message | meaning | fix or reason |\n|---|---|---|\n");
    for Row { message, meaning, fix } in rows {
        text += &format!("| {} | {} | {} |\n", cell(message), cell(meaning), cell(fix));
    }
    text
}

/// Text that Markdown shows as it is, but for code in backticks.
fn cell(text: &str) -> String {
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    let parts = one_line.split('`').enumerate().map(|(index, part)| match index % 2 {
        0 => part.replace('<', "&lt;"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// The messages of one source file.
fn rows_of(text: &str) -> Vec<Row> {
    // The compiler reports more about a file that cannot be parsed.
    let Ok(file) = syn::parse_file(text) else { return Vec::new() };
    let mut found = Found::default();
    found.visit_file(&file);
    found.rows
}

#[derive(Default)]
struct Found {
    rows: Vec<Row>,
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.rows.extend(item.variants.iter().filter_map(|variant| row(&variant.attrs)));
        visit::visit_item_enum(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.rows.extend(row(&item.attrs));
        visit::visit_item_struct(self, item);
    }
}

/// The row of a variant; none if it shows another error or only its values.
fn row(attributes: &[Attribute]) -> Option<Row> {
    let error = attributes.iter().find(|attribute| attribute.path().is_ident("error"))?;
    let literal = |input: syn::parse::ParseStream<'_>| {
        let literal: LitStr = input.parse()?;
        input.parse::<proc_macro2::TokenStream>().map(|_| literal.value())
    };
    let format = error.parse_args_with(literal).ok().filter(|format| has_words(format))?;
    let (message, fix) = parts(&format);
    let (message, fix) = (with_names(message), with_names(fix));
    Some(Row { message, meaning: first_paragraph(attributes), fix })
}

/// The message before its first colon, and the rest; the whole if either has no words of its own.
/// Colons in brackets, quotes and code do not count.
fn parts(format: &str) -> (&str, &str) {
    let (mut depth, mut quote) = (0_usize, None);
    for (index, symbol) in format.char_indices() {
        match (symbol, quote) {
            (_, Some(open)) if symbol == open => quote = None,
            (_, Some(_)) => {}
            ('"' | '`', None) => quote = Some(symbol),
            ('(' | '{', None) => depth += 1,
            (')' | '}', None) => depth = depth.saturating_sub(1),
            (':', None) if depth == 0 && format[index + 1..].starts_with(char::is_whitespace) => {
                let (message, fix) = (&format[..index], format[index + 1..].trim_start());
                if has_words(message) && has_words(fix) {
                    return (message, fix);
                }
            }
            _ => {}
        }
    }
    (format, "")
}

/// Whether a format has words of its own besides values.
fn has_words(format: &str) -> bool {
    let mut depth = 0_usize;
    format.chars().any(|symbol| {
        match symbol {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && symbol.is_alphabetic()
    })
}

/// Values as their names in capitals; those without a name as an ellipsis.
fn with_names(format: &str) -> String {
    let mut text = String::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('{') {
        text += &before.replace("}}", "}");
        // A brace that is written twice stands for itself.
        if let Some(after) = after.strip_prefix('{') {
            text.push('{');
            rest = after;
            continue;
        }
        let (value, after) = after.split_once('}').unwrap_or((after, ""));
        let name = value.split(':').next().unwrap_or_default();
        match name.starts_with(|first: char| first.is_alphabetic()) {
            true => text += &name.to_uppercase(),
            false => text.push('…'),
        }
        rest = after;
    }
    text + &rest.replace("}}", "}")
}

/// The first paragraph of the documentation.
fn first_paragraph(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) => Some(line.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    });
    // Links of rustdoc lead nowhere on a page.
    let text = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    text.replace("[`", "`").replace("`]", "`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Row {
        let rows = rows_of(text);
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows[0].clone()
    }

    #[test]
    fn message_meaning_and_fix_of_a_variant_are_apart() {
        let text = "enum E {\n/// The name\n/// is taken.\n///\n/// More.\n\
                    #[error(\"`{tunnel}` exists (line {0:?}: \\\"a: b\\\"): take {} away\", x.y())]\nA { tunnel: u8 } }";
        let Row { message, meaning, fix } = only(text);
        assert_eq!(message, "`TUNNEL` exists (line …: \"a: b\")");
        assert_eq!(meaning, "The name is taken.");
        assert_eq!(fix, "take … away");
        assert_eq!(with_names("{{ {a} }}, {{b}}"), "{ A }, {b}");
    }

    #[test]
    fn first_colon_between_words_begins_the_fix() {
        assert_eq!(parts("{}: a is b: c: do d"), ("{}: a is b", "c: do d"));
        assert_eq!(parts("cannot read {path}: {source}"), ("cannot read {path}: {source}", ""));
        assert_eq!(parts("{}: a"), ("{}: a", ""));
        assert_eq!(parts("see `a: b` and a:b"), ("see `a: b` and a:b", ""));
    }

    #[test]
    fn errors_without_words_of_their_own_have_no_row() {
        let text = "enum E { #[error(transparent)] A(B), #[error(\"{0}\")] C(D), E }\n\
                    mod m { #[error(\"struct\")] struct S; }";
        assert_eq!(only(text).message, "struct");
    }

    #[test]
    fn cells_keep_the_table_whole() {
        assert_eq!(cell("a\n | <b> `<c>`"), "a \\| &lt;b> `<c>`");
    }
}
