//! Runs the `recodectl init` commands of a page, section by section, as if on several boxes.
//!
//! `'LINE OF A'` or `'LINE OF THE A'` stands for the line that init printed on box a. A command
//! without `--name` runs on the first box of its section. The boxes of a configuration in the same
//! section must be those that init wrote, with their addresses in the tunnel.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::commands::{Call, calls};
use crate::TaskError;

/// A section of a page.
struct Section<'a> {
    /// Line of its heading, counted from 1.
    line: usize,
    /// Its command lines.
    commands: Vec<&'a str>,
    /// Lines of boxes in its configurations.
    boxes: Vec<&'a str>,
}

/// A problem, at a line of the page.
pub struct Problem {
    pub line: usize,
    pub text: String,
}

/// Runs all commands; returns their number, and adds problems.
pub fn run(text: &str, programs: &Path, found: &mut Vec<Problem>) -> Result<usize, TaskError> {
    let mut count = 0;
    for section in sections(text) {
        let commands = section.commands.iter().flat_map(|line| calls(line));
        let is_init = |call: &Call| call.program == "recodectl" && call.arguments[..1] == ["init"];
        let commands: Vec<Call> = commands.filter(is_init).collect();
        if commands.is_empty() {
            continue;
        }
        count += commands.len();
        let problem = run_section(&section, commands, programs)?;
        found.extend(problem.map(|text| Problem { line: section.line, text }));
    }
    Ok(count)
}

fn sections(text: &str) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut language = None;
    for (index, line) in text.lines().enumerate() {
        if let Some(name) = line.strip_prefix("```") {
            language = if language.is_some() { None } else { Some(name) };
        } else if language.is_none() && line.starts_with('#') {
            sections.push(Section { line: index + 1, commands: Vec::new(), boxes: Vec::new() });
        } else if let Some(section) = sections.last_mut() {
            match language {
                Some("sh") => section.commands.push(line),
                Some("toml") if line.contains("= {") => section.boxes.push(line),
                _ => {}
            }
        }
    }
    sections
}

fn run_section(
    section: &Section<'_>,
    commands: Vec<Call>,
    programs: &Path,
) -> Result<Option<String>, TaskError> {
    let folder = std::env::temp_dir().join(format!("recoded-init-{}", std::process::id()));
    let failed = |source| TaskError::File { path: folder.clone(), source };
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let problem = run_in(section, commands, programs, &folder);
    std::fs::remove_dir_all(&folder).map_err(failed)?;
    problem
}

fn run_in(
    section: &Section<'_>,
    commands: Vec<Call>,
    programs: &Path,
    folder: &Path,
) -> Result<Option<String>, TaskError> {
    let mut lines = BTreeMap::new();
    let mut first = None;
    let mut written = String::new();
    for Call { arguments, .. } in commands {
        let named = arguments.iter().skip_while(|word| *word != "--name").nth(1);
        let Some(name) = named.or(first.as_ref()).cloned() else {
            return Ok(Some("the first init has no --name".to_owned()));
        };
        let arguments = arguments.iter().map(|word| match placeholder(word) {
            Some(of) => lines.get(&of).cloned().unwrap_or_default(),
            None => word.clone(),
        });
        let file = folder.join(format!("{name}.toml"));
        let mut process = Command::new(programs.join("recodectl"));
        process.arg("--json").args(arguments).arg("--config").arg(&file);
        process.arg("--key").arg(folder.join(format!("{name}.key")));
        let failed = |source| TaskError::File { path: programs.to_path_buf(), source };
        let output = process.output().map_err(failed)?;
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let reply: serde_json::Value = serde_json::from_str(&shown).unwrap_or_default();
        let Some(line) = reply["line"].as_str().filter(|_| output.status.success()) else {
            return Ok(Some(format!("init of {name} failed: {shown}")));
        };
        lines.insert(name.to_lowercase(), line.to_owned());
        first.get_or_insert(name);
        written = std::fs::read_to_string(&file).unwrap_or_default();
    }
    let missing = section.boxes.iter().find(|shown| !is_written(shown, &written));
    Ok(missing.map(|shown| format!("init wrote no box like `{shown}`, but:\n{written}")))
}

/// The box in capitals, or not, whose line a word stands for.
fn placeholder(word: &str) -> Option<String> {
    let name = word.to_lowercase();
    let name = name.strip_prefix("line of ")?;
    Some(name.strip_prefix("the ").unwrap_or(name).to_owned())
}

/// Whether a box with this name is in the text, and has its address in the tunnel if it shows one.
fn is_written(shown: &str, written: &str) -> bool {
    let name = shown.split_whitespace().next().unwrap_or_default();
    let tunnel = shown.find("tunnel = ").map(|start| {
        let value = &shown[start..];
        value.split(['}', ',']).next().unwrap_or(value).trim()
    });
    let mut boxes = written.lines().filter(|line| line.starts_with(&format!("{name} = ")));
    boxes.any(|line| tunnel.is_none_or(|tunnel| line.contains(tunnel)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_commands_and_boxes() {
        let page =
            "# A\n```sh\nrecodectl init\n# no heading\n```\n## B\n```toml\na = { x = 1 }\n```\n";
        let found = sections(page);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].line, found[0].commands.len(), found[1].boxes.len()), (1, 2, 1));
    }

    #[test]
    fn boxes_are_compared_by_name_and_tunnel() {
        let written = "a = { at = \"192.0.2.1\", key = \"K\", tunnel = \"10.99.0.1/24\" }\n";
        assert!(is_written("a = { key = \"...\", tunnel = \"10.99.0.1/24\" } # x", written));
        assert!(is_written("a = { at = \"192.0.2.9\" }", written));
        assert!(!is_written("a = { key = \"...\", tunnel = \"10.99.0.2/24\" }", written));
        assert!(!is_written("b = { key = \"...\" }", written));
        assert_eq!(placeholder("LINE OF THE SERVER").as_deref(), Some("server"));
        assert_eq!(placeholder("LINE OF a").as_deref(), Some("a"));
        assert_eq!(placeholder("server"), None);
    }
}
