//! Manual pages: of the commands, and two generated from tables: the meaning and cure of every
//! counter, and every key of the configuration.

use crate::Failure;
use crate::help;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};
use recoded_api::keys::{self, DefaultValue};

/// The manual page of recodectl, of one of its commands, or one of the generated pages.
///
/// # Errors
///
/// There is no such page.
pub fn page(name: Option<&str>) -> Result<Vec<u8>, Failure> {
    let page = match name {
        Some("counters") => counters(),
        Some("recoded.toml") => configuration(),
        name => return command(name),
    };
    Ok(page.render().into_bytes())
}

fn command(name: Option<&str>) -> Result<Vec<u8>, Failure> {
    let mut root = help::command();
    root.build();
    let found = match name {
        None => root,
        Some(name) => {
            let found = root.find_subcommand(name).cloned();
            found.ok_or_else(|| Failure::UnknownCommand(name.to_owned()))?
        }
    };
    let mut page = Vec::new();
    Man::new(found).manual("Recoded").render(&mut page)?;
    if name.is_none() {
        see_also(&["recoded(8)", "recoded.toml(5)", "recoded-counters(7)"]).to_writer(&mut page)?;
    }
    Ok(page)
}

/// Every counter of every table; those of faults with a cure.
fn counters() -> Roff {
    let mut page = begin("recoded-counters", "7", "what recoded counts, and what to do about it");
    page.control("SH", ["DESCRIPTION"]);
    page.text([
        roman("A packet that is dropped has a reason, and each reason is one counter. "),
        bold("recodectl show drops"),
        roman(" prints those that are not zero; "),
        bold("recodectl doctor"),
        roman(" names those that matter. Counters start from zero when the process that sees "),
        roman("packets does. Of a counter without a cure nothing is wrong when it grows."),
    ]);
    for table in recoded_counters::TABLES {
        let title = format!("Counters of {}", table.owner);
        page.control("SH", [title.to_uppercase().as_str()]);
        for counter in table.counters() {
            page.control("TP", []);
            page.text([bold(counter.name), roman(" ("), italic(counter.unit.name()), roman(")")]);
            page.text([roman(sentence(counter.meaning))]);
            if counter.is_fault() {
                page.control("IP", []);
                page.text([italic("Cure: "), roman(sentence(counter.cure))]);
            }
        }
    }
    page.extend([see_also(&["recoded(8)", "recodectl(1)", "recoded.toml(5)"])]);
    page
}

/// Every key of the configuration.
fn configuration() -> Roff {
    let mut page = begin("recoded.toml", "5", "configuration of recoded");
    page.control("SH", ["DESCRIPTION"]);
    page.text([
        roman("One TOML file for each host. A key that does not exist, or has no effect where it "),
        roman("stands, is an error. "),
        bold("recoded --config FILE --check"),
        roman(" says all that is wrong with a file and with the host, and changes nothing. An "),
        roman("annotated file with every key is "),
        italic("/usr/share/doc/recoded/recoded.toml"),
        roman("."),
    ]);
    for table in keys::TABLES {
        let is_one = table.section == "daemon";
        let title = if is_one { "[daemon]".into() } else { format!("[[{}]]", table.section) };
        page.control("SH", [title.as_str()]);
        for key in table.keys {
            page.control("TP", []);
            let owners = match key.owners() {
                owners if owners.is_empty() => owners,
                owners => format!(" ({owners})"),
            };
            page.text([bold(key.name), roman(owners)]);
            page.text([roman(key.meaning)]);
            page.control("IP", []);
            let default = match key.default {
                DefaultValue::Is(value) => format!(" Default: {value}."),
                DefaultValue::Depends(words) => format!(" Without it: {words}."),
                DefaultValue::Required => " It must be written.".to_owned(),
            };
            let live = if key.is_live { " recodectl set changes it live." } else { "" };
            let values = key.values_in_words();
            page.text([italic("Values: "), roman(format!("{values}.{default}{live}"))]);
        }
    }
    page.extend([see_also(&["recoded(8)", "recodectl(1)", "recoded-counters(7)"])]);
    page
}

fn begin(name: &str, section: &str, what: &str) -> Roff {
    let version = format!("recoded {}", env!("CARGO_PKG_VERSION"));
    let mut page = Roff::new();
    page.control("TH", [name, section, "", version.as_str(), "Recoded"]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{name} - {what}"))]);
    page
}

fn see_also(pages: &[&str]) -> Roff {
    let mut section = Roff::new();
    section.control("SH", ["SEE ALSO"]);
    section.text([roman(pages.join(", "))]);
    section
}

/// Text of a table, whose lines begin with a blank where they are joined.
fn sentence(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str) -> String {
        let page = String::from_utf8(page(Some(name)).expect("a page")).expect("UTF-8");
        // As `man` shows it: hyphens are escaped, as are lines that begin with a dot.
        page.replace("\\*(Aq", "'").replace("\\-", "-").replace("\\&", "").replace("\\\\", "\\")
    }

    #[test]
    fn page_of_counters_has_every_reason_with_its_cure() {
        let page = text("counters");
        for counter in recoded_counters::TABLES.iter().flat_map(|table| table.counters()) {
            assert!(page.contains(counter.name), "{}", counter.name);
            assert!(page.contains(&sentence(counter.meaning)), "{}", counter.name);
            assert!(page.contains(&sentence(counter.cure)), "{}", counter.name);
        }
    }

    #[test]
    fn page_of_the_configuration_has_every_key() {
        let page = text("recoded.toml");
        for key in keys::TABLES.iter().flat_map(|table| table.keys) {
            assert!(page.contains(&format!("\\fB{}\\fR", key.name)), "{}", key.name);
            assert!(page.contains(key.meaning), "{}", key.name);
        }
    }

    #[test]
    fn command_that_does_not_exist_has_no_page() {
        assert!(matches!(page(Some("shwo")), Err(Failure::UnknownCommand(_))));
    }
}
