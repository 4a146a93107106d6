//! Command lines of [`PROGRAMS`] in a page: the command exists, and so do its options.
//!
//! Values are not checked: many are placeholders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{TaskError, output};

/// Programs that pages show.
pub const PROGRAMS: [&str; 6] =
    ["recodectl", "recoded", "recoded-agent", "recoded-split", "recoded-stripes", "recoded-swarm"];

/// A line of a block of commands, or a command in backticks.
pub struct Shown {
    /// Line, counted from 1.
    pub line: usize,
    pub text: String,
}

/// All command lines of a page that may call one of [`PROGRAMS`].
pub fn of(text: &str) -> Vec<Shown> {
    let mut shown = Vec::new();
    let mut block = None;
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        let fence = line.trim_start().strip_prefix("```");
        match (fence, block) {
            (Some(language), None) => block = Some(language.trim()),
            (Some(_), Some(_)) => block = None,
            (None, Some("sh")) => shown.push(Shown { line: line_number, text: line.to_owned() }),
            (None, Some(_)) => {}
            (None, None) => {
                let code = line.split('`').skip(1).step_by(2).filter(|code| code.contains(' '));
                shown.extend(code.map(|code| Shown { line: line_number, text: code.to_owned() }));
            }
        }
    }
    shown.retain(|shown| !calls(&shown.text).is_empty());
    shown
}

/// A call of one of [`PROGRAMS`].
#[derive(PartialEq, Eq, Debug)]
pub struct Call {
    pub program: String,
    pub arguments: Vec<String>,
}

/// The calls of [`PROGRAMS`] in a line of shell.
pub fn calls(line: &str) -> Vec<Call> {
    let ours = simple_commands(line).into_iter().filter_map(|words| {
        let is_before = |word: &&String| *word == "sudo" || word.contains('=');
        let start = words.iter().take_while(is_before).count();
        let program = words.get(start)?.rsplit('/').next()?.to_owned();
        let arguments = words[start + 1..].to_vec();
        PROGRAMS.contains(&program.as_str()).then_some(Call { program, arguments })
    });
    ours.collect()
}

/// Words of each simple command of a line: between `;`, `|`, `&`, redirections and substitutions.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word = String::new();
    let mut quote = None;
    let end = |word: &mut String, commands: &mut Vec<Vec<String>>| {
        let word = std::mem::take(word);
        if let Some(last) = commands.last_mut().filter(|_| !word.is_empty()) {
            last.push(word);
        }
    };
    for symbol in line.chars() {
        match (symbol, quote) {
            (_, Some(open)) if symbol == open => quote = None,
            (_, Some(_)) => word.push(symbol),
            ('\'' | '"', None) => quote = Some(symbol),
            ('#', None) if word.is_empty() => break,
            (' ' | '\t', None) => end(&mut word, &mut commands),
            (';' | '|' | '&' | '(' | ')' | '>' | '<', None) => {
                end(&mut word, &mut commands);
                commands.push(Vec::new());
            }
            _ => word.push(symbol),
        }
    }
    end(&mut word, &mut commands);
    commands
}

/// Built programs, and the help texts that they print.
pub struct Programs {
    folder: PathBuf,
    helps: BTreeMap<String, String>,
}

impl Programs {
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), helps: BTreeMap::new() }
    }

    /// The help of a program, or of a command of it, or of a command of that.
    pub fn help(&mut self, program: &str, command: &[String]) -> Result<String, TaskError> {
        let key = format!("{program} {}", command.join(" "));
        if let Some(help) = self.helps.get(&key) {
            return Ok(help.clone());
        }
        let mut process = Command::new(self.folder.join(program));
        // Defaults from the environment would be part of it.
        let mut help = output(process.env_clear().args(command).arg("--help"))?;
        if program == "recodectl" && command.is_empty() {
            // Its help has the commands in groups, several a line.
            let mut list = Command::new(self.folder.join(program));
            let list = output(list.env_clear().args(["help", "commands"]))?;
            help = format!("{help}\nCommands:\n{list}\n");
        }
        self.helps.insert(key, help.clone());
        Ok(help)
    }

    /// Problems of the calls in a line.
    pub fn check(&mut self, line: &str) -> Result<Option<String>, TaskError> {
        for Call { program, arguments } in calls(line) {
            let mut help = self.help(&program, &[])?;
            let mut command = Vec::new();
            loop {
                match command_of(&help, &arguments, command.len()) {
                    Ok(None) => break,
                    Ok(Some(word)) => command.push(word),
                    Err(word) => {
                        let before = command.join(" ");
                        return Ok(Some(format!("{program} {before} has no command `{word}`")));
                    }
                }
                // Options of the program are options of its commands; commands of commands are not.
                help = format!("{}{}", self.help(&program, &command)?, without_commands(&help));
            }
            let options = arguments.iter().filter(|word| word.starts_with('-') && word.len() > 1);
            for option in options.filter(|word| word.as_str() != "--") {
                let name = option.split('=').next().unwrap_or(option);
                if find_option(&help, name).is_none() {
                    let command = command.join(" ");
                    return Ok(Some(format!("{program} {command} has no option `{name}`")));
                }
            }
        }
        Ok(None)
    }
}

/// A help without its list of commands.
fn without_commands(help: &str) -> String {
    help.replace("Commands:", "Options:")
}

/// The command among the arguments after `count` others, if there are commands; an unknown one is
/// an error.
fn command_of(help: &str, arguments: &[String], count: usize) -> Result<Option<String>, String> {
    let known = commands(help);
    let (mut is_value, mut before) = (false, 0);
    for word in arguments {
        if std::mem::take(&mut is_value) {
            continue;
        }
        if word.starts_with('-') {
            is_value = !word.contains('=') && find_option(help, word) == Some(true);
        } else if before < count {
            before += 1;
        } else if known.is_empty() {
            return Ok(None);
        } else {
            return if known.contains(word) { Ok(Some(word.clone())) } else { Err(word.clone()) };
        }
    }
    Ok(None)
}

/// Names of the commands that a help lists.
pub fn commands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    lines.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

/// Whether an option of a help requires a value as the next word; `None` if there is none.
fn find_option(help: &str, name: &str) -> Option<bool> {
    help.lines().map(str::trim_start).filter(|line| line.starts_with('-')).find_map(|line| {
        let head = line.split("  ").next()?;
        let mut names = head.split([',', ';', ' ', '=', '[', '<']);
        names.any(|known| known == name).then(|| head.contains('<') && !head.contains('['))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "Usage: p\n\nCommands:\n  show  Show\n  set   Set\n\nOptions:\n      \
                        --socket <PATH>  Socket\n  -w, --watch[=<SECONDS>]\n          Repeat\n\n";

    #[test]
    fn calls_are_found_behind_other_commands_and_comments_are_not() {
        let line = "umask 077; sudo A=b target/debug/recoded --check 'x y' && recodectl a|recodectl b # recodectl c";
        let found = calls(line);
        let call = |program: &str, arguments: &[&str]| Call {
            program: program.to_owned(),
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
        };
        let expected = [
            call("recoded", &["--check", "x y"]),
            call("recodectl", &["a"]),
            call("recodectl", &["b"]),
        ];
        assert_eq!(found, expected);
        let page = "`recodectl` and `recodectl show`\n```sh\nls\nrecoded --check\n```\n```text\nrecoded\n```\n";
        let lines: Vec<usize> = of(page).iter().map(|shown| shown.line).collect();
        assert_eq!(lines, [1, 4]);
    }

    #[test]
    fn commands_and_options_are_those_of_the_help() {
        let words = |line: &str| -> Vec<String> { line.split(' ').map(String::from).collect() };
        assert_eq!(command_of(HELP, &words("--socket x show y"), 0), Ok(Some("show".to_owned())));
        assert_eq!(command_of(HELP, &words("--watch set"), 0), Ok(Some("set".to_owned())));
        assert_eq!(command_of(HELP, &words("shew"), 0), Err("shew".to_owned()));
        assert_eq!(command_of(HELP, &words("a set"), 1), Ok(Some("set".to_owned())));
        assert_eq!(find_option(HELP, "--socket"), Some(true));
        assert_eq!(find_option(HELP, "-w"), Some(false));
        assert_eq!(find_option(HELP, "--sock"), None);
    }
}
