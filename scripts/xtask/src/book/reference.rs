//! The page of all command lines: the output of the programs for `--help`.

use super::commands::{self, PROGRAMS, Programs};
use crate::TaskError;

/// The page.
pub const PAGE: &str = "docs/reference/cli.md";

const HEAD: &str = "\
# Command lines

What the programs print with `--help`. This page is generated: `scripts/book --write` rewrites it.

Options that all commands of a program have are listed once, under the program's name.
";

/// Sections of the help of a command that are equal for all commands.
const COMMON: [&str; 1] = ["Networks:"];

/// The page, as the programs of this version have it.
pub fn page(programs: &mut Programs) -> Result<String, TaskError> {
    let mut text = HEAD.to_owned();
    for program in PROGRAMS {
        let general = programs.help(program, &[])?;
        let common = options(&general);
        add(&mut text, &format!("## {program}"), &general);
        let mut left: Vec<Vec<String>> = below(&[], &general);
        while let Some(command) = left.pop() {
            let help = programs.help(program, &command)?;
            let heading = format!("### {program} {}", command.join(" "));
            add(&mut text, &heading, &shortened(&help, &common));
            left.extend(below(&command, &help));
        }
    }
    Ok(text)
}

/// The commands below a command, the first one last.
fn below(command: &[String], help: &str) -> Vec<Vec<String>> {
    let names = commands::commands(help).into_iter().filter(|name| name != "help");
    names.collect::<Vec<_>>().into_iter().rev().map(|name| [command, &[name]].concat()).collect()
}

fn add(text: &mut String, heading: &str, help: &str) {
    text.push_str(&format!("\n{heading}\n```text\n"));
    for line in help.trim_end().lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push_str("```\n");
}

/// The long name of an option in the line of a help that begins its description.
fn option(line: &str) -> Option<&str> {
    let line = Some(line.trim_start()).filter(|line| line.starts_with('-'))?;
    let start = line.find("--").map_or(1, |start| start + 2);
    line[start..].split([' ', '=', '[', '<', ',']).next()
}

fn options(help: &str) -> Vec<&str> {
    help.lines().filter_map(option).collect()
}

/// A help without the options of all commands, and without headings that this leaves empty.
fn shortened(help: &str, common: &[&str]) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let (mut is_common_section, mut is_common_option) = (false, false);
    for line in help.lines() {
        if !line.is_empty() && !line.starts_with(' ') {
            is_common_section = COMMON.contains(&line);
            is_common_option = false;
        } else if let Some(name) = option(line) {
            is_common_option = common.contains(&name);
        }
        let is_doubled = line.is_empty() && kept.last().is_some_and(|last| last.is_empty());
        if !is_common_section && !is_common_option && !is_doubled {
            kept.push(line);
        }
    }
    let mut text = String::new();
    for (index, line) in kept.iter().enumerate() {
        let next = kept[index + 1..].iter().find(|next| !next.is_empty());
        let is_empty_section =
            *line == "Options:" && next.is_none_or(|next| !next.starts_with(' '));
        if !is_empty_section {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_all_commands_are_left_out() {
        let help = "Show\n\nUsage: p show\n\nOptions:\n      --socket <PATH>\n          Socket\n\n          \
                    [default: x]\n\n  -v, --verbose\n          More\n\n  -h, --help\n          Help\n\n\
                    Networks:\n      --only <NODES>\n          These\n\nExamples:\n  p show\n";
        let expected = "Show\n\nUsage: p show\n\nOptions:\n  -v, --verbose\n          More\n\nExamples:\n  p show\n";
        assert_eq!(shortened(help, &["socket", "help"]), expected);
        let help = "Show\n\nOptions:\n  -h, --help\n          Help\n\nExamples:\n";
        assert_eq!(shortened(help, &["help"]), "Show\n\nExamples:\n");
        assert_eq!(options("  -w, --watch[=<S>]\n  -h\n x --y"), ["watch", "h"]);
    }
}
