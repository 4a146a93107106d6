//! Wrong command lines in two lines: the problem, and its fix.

use clap::error::ErrorKind;
use std::error::Error as _;

/// A wrong command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageError {
    /// What is wrong.
    pub problem: String,
    /// What to write instead; empty where only the help knows.
    pub fix: String,
    /// The command whose help knows more, if the parser named it.
    pub command: Option<String>,
}

impl UsageError {
    /// From the error of the parser; none if that is help or a version, which is printed as it is.
    pub fn of(error: &clap::Error) -> Option<UsageError> {
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            return None;
        }
        let text = error.to_string();
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let problem = lines.next().unwrap_or_default().trim_start_matches("error: ");
        let mut problem = problem.trim_end_matches(':').to_owned();
        let mut fixes = Vec::new();
        let mut missing = Vec::new();
        let mut usage = None;
        for line in lines.take_while(|line| !line.starts_with("For more information")) {
            if let Some(words) = line.strip_prefix("Usage: ") {
                usage = Some(words);
            } else if let Some(words) = line.strip_prefix("tip: ") {
                // No argument here begins with a dash, so this tip misleads.
                fixes
                    .extend(Some(words).filter(|it| !it.starts_with("to pass")).map(str::to_owned));
            } else if let Some((what, words)) = listed(line) {
                fixes.push(format!("write one of the {what}: {words}"));
            } else {
                missing.push(line);
            }
        }
        if !missing.is_empty() {
            problem = format!("{problem}: {}", missing.join(" "));
        }
        // The rule of a value ends the line.
        if let Some(rule) = error.source().map(ToString::to_string) {
            let cut = problem.strip_suffix(&rule).map(|problem| problem.trim_end_matches(": "));
            problem = cut.map_or(problem.clone(), str::to_owned);
            fixes.insert(0, rule);
        }
        let is_unknown =
            matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand);
        if fixes.is_empty() && !is_unknown {
            fixes.extend(usage.map(|usage| format!("write {usage}")));
        }
        Some(UsageError { problem, fix: fixes.join("; "), command: usage.map(command) })
    }

    /// Both lines, for a terminal.
    pub fn lines(&self, program: &str) -> String {
        let command = self.command.as_deref().unwrap_or(program);
        let fix = if self.fix.is_empty() { &format!("see {command} --help") } else { &self.fix };
        format!("{program}: {}\nfix: {fix}", self.problem)
    }
}

/// The command of a usage such as `it part [OPTIONS] <FILE>`.
fn command(usage: &str) -> String {
    let is_name = |word: &&str| word.starts_with(|first: char| first.is_ascii_lowercase());
    usage.split(' ').take_while(is_name).collect::<Vec<_>>().join(" ")
}

/// The parts of `[possible values: a, b]`.
fn listed(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix('[')?.strip_suffix(']')?.split_once(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command};

    fn said(words: &[&str]) -> String {
        let mode = Arg::new("mode").long("mode").value_parser(["fast", "slow"]);
        let rule = |text: &str| text.parse::<u8>().map_err(|_| "write 0 to 255".to_owned());
        let number = Arg::new("number").long("number").value_parser(rule);
        let alone = Arg::new("alone").long("alone").conflicts_with("mode").num_args(0);
        let file = Arg::new("file").required(true);
        let command = Command::new("it").arg(mode).arg(number).arg(alone).arg(file);
        let error = command.try_get_matches_from(words).expect_err("it is wrong");
        UsageError::of(&error).map_or_else(String::new, |error| error.lines("it"))
    }

    #[test]
    fn every_wrong_command_line_is_a_problem_and_a_fix() {
        let cases = [
            (
                vec!["it", "f", "--number", "300"],
                "it: invalid value '300' for '--number <number>'\nfix: write 0 to 255",
            ),
            (
                vec!["it", "f", "--mode", "odd"],
                "it: invalid value 'odd' for '--mode <mode>'\nfix: write one of the possible \
                 values: fast, slow",
            ),
            (
                vec!["it"],
                "it: the following required arguments were not provided: <file>\nfix: write it \
                 <file>",
            ),
            (
                vec!["it", "f", "--nubmer", "3"],
                "it: unexpected argument '--nubmer' found\nfix: a similar argument exists: \
                 '--number'",
            ),
            (
                vec!["it", "f", "--unlike"],
                "it: unexpected argument '--unlike' found\nfix: see it --help",
            ),
        ];
        for (words, expected) in cases {
            assert_eq!(said(&words), expected);
        }
        let both = said(&["it", "f", "--alone", "--mode", "fast"]);
        assert!(both.starts_with("it: the argument '--alone' cannot be used with"), "{both}");
        assert!(both.lines().count() == 2 && both.contains("\nfix: "), "{both}");
        assert_eq!(said(&["it", "--help"]), "", "no error");
        assert_eq!(command("it part [OPTIONS] <FILE>"), "it part");
    }
}
