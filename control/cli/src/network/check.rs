//! `check`: whether every box could run its file, without any change.

use super::ssh::{Answer, NoAnswer};
use super::status::{BoxFinding, finding, findings, refused};
use super::{Boxes, Told, worse};
use crate::table::{Align, table};
use recoded_api::exit;
use recoded_network::Node;
use serde::Serialize;
use std::collections::BTreeMap;

use Align::Left;

/// The check of a box's file.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// Its node.
    pub node: String,
    /// Compared with the file on the box: same, differs, absent; changed: differs, and was changed
    /// there since the last apply; - if unknown.
    pub file: &'static str,
    /// right; refused; no answer.
    pub check: &'static str,
    /// The findings.
    pub findings: Vec<BoxFinding>,
}

impl Checked {
    fn exit_code(&self) -> u8 {
        match self.check {
            "right" => exit::OK,
            "refused" => exit::REFUSED,
            _ => exit::NOT_RUNNING,
        }
    }
}

/// Checks on every box, changing nothing.
pub fn run(boxes: &Boxes, json: bool) -> Result<Told, crate::Failure> {
    let answers = boxes.send(|place| place.check())?;
    let mut checked = all(boxes, answers);
    for (it, node) in checked.iter_mut().zip(boxes.nodes()).filter(|(it, _)| it.file == CHANGED) {
        it.findings.push(changed(node, "warning"));
    }
    let code = code(&checked);
    let text = match json {
        true => crate::json::pretty(&BTreeMap::from([("nodes", &checked)]))?,
        false => summary(&checked),
    };
    Ok(Told { code, text })
}

/// Checks from the replies of boxes, in their order.
pub fn all(boxes: &Boxes, answers: Vec<Result<Answer, NoAnswer>>) -> Vec<Checked> {
    boxes.nodes().zip(answers).map(|(node, answer)| checked(node, answer)).collect()
}

/// Exit code for all of them.
pub fn code(checked: &[Checked]) -> u8 {
    checked.iter().map(Checked::exit_code).fold(exit::OK, worse)
}

/// The file was changed on the box since the last apply.
pub const CHANGED: &str = "changed";

/// The first line of a script that compares files.
pub fn compared(line: Option<&str>) -> Option<&'static str> {
    ["same", "differs", CHANGED, "absent"].into_iter().find(|word| line == Some(word))
}

/// The finding about a file that was changed on its box.
pub fn changed(node: &Node, level: &str) -> BoxFinding {
    let (config, applied) = (&node.config, super::script::applied(node));
    BoxFinding {
        level: level.into(),
        subject: "box".into(),
        cause: format!("{config} was changed there since the last apply"),
        cure: format!(
            "take the change into the network (`diff {applied} {config}` there shows it), or \
             overwrite it with apply --force"
        ),
    }
}

fn checked(node: &Node, answer: Result<Answer, NoAnswer>) -> Checked {
    let name = node.name.clone();
    let answer = match answer {
        Ok(answer) => answer,
        Err(NoAnswer { cause, cure }) => {
            let findings = vec![finding(cause, cure)];
            return Checked { node: name, file: "-", check: "no answer", findings };
        }
    };
    let mut lines = answer.text.lines();
    let file = match compared(lines.next()) {
        Some(file) => file,
        None => {
            let (cause, cure) = refused(&answer);
            let findings = vec![finding(cause, cure)];
            return Checked { node: name, file: "-", check: "refused", findings };
        }
    };
    let mut findings = Vec::new();
    let public = lines.next().unwrap_or("-").trim();
    if let Some(key) = node.key.as_ref().filter(|key| public != "-" && public != key.to_string()) {
        let cause = format!("its public key is {public}, not {key}");
        let cure = "write that one into the file, if you know why it is another".to_owned();
        findings.push(finding(cause, cure));
    }
    if answer.code == 127 {
        let (cause, cure) = refused(&answer);
        findings.push(finding(cause, cure));
    } else {
        let said = lines.filter_map(|line| said(line, answer.code != 0));
        findings.extend(said);
        if answer.code != 0 && findings.iter().all(|found| found.level != "error") {
            let (cause, cure) = refused(&answer);
            findings.push(finding(cause, cure));
        }
    }
    let is_wrong = findings.iter().any(|found| found.level == "error");
    Checked { node: name, file, check: if is_wrong { "refused" } else { "right" }, findings }
}

/// Parses a line of `recoded --check` that reports a fault: `error: link west: cause: cure`, or,
/// without a level, the reason why the file cannot be read.
fn said(line: &str, failed: bool) -> Option<BoxFinding> {
    let line = line.trim();
    for level in ["error", "warning"] {
        let Some(rest) = line.strip_prefix(level).and_then(|rest| rest.strip_prefix(": ")) else {
            continue;
        };
        let mut parts = rest.splitn(3, ": ");
        let (subject, cause, cure) = (parts.next()?, parts.next()?, parts.next().unwrap_or("-"));
        let [subject, cause, cure] = [subject, cause, cure].map(str::to_owned);
        return Some(BoxFinding { level: level.into(), subject, cause, cure });
    }
    let is_summary = line.contains(": valid: ") || line.starts_with("this host ");
    let is_wrong = failed && !line.is_empty() && !is_summary;
    is_wrong.then(|| finding(line.to_owned(), "correct it there, or in the file".into()))
}

fn summary(checked: &[Checked]) -> String {
    let head = [("box", Left), ("file", Left), ("check", Left)];
    let rows = checked.iter().map(|it| [it.node.clone(), it.file.into(), it.check.into()]);
    let text = table(head, &rows.collect::<Vec<_>>());
    text + &checked.iter().map(|it| findings(&it.node, &it.findings)).collect::<String>()
}
