//! `apply --diff`: the changes that `apply` would make on every box, without any.

use super::ssh::{Answer, NoAnswer};
use super::status::{BoxFinding, finding, findings, refused, values};
use super::{Boxes, Told, check, worse};
use crate::reload;
use recoded_api::exit;
use recoded_api::v1::Reloaded;
use recoded_network::Node;
use serde::Serialize;
use std::collections::BTreeMap;

/// The changes of one box.
#[derive(Debug, Serialize)]
struct Difference {
    node: String,
    /// same, differs, changed, absent; -.
    file: &'static str,
    /// As `reload --diff` prints them; none if no daemon runs there.
    reload: Option<Reloaded>,
    findings: Vec<BoxFinding>,
    #[serde(skip)]
    code: u8,
}

/// Compares the files of all boxes with their active configurations.
pub fn run(boxes: &Boxes, json: bool) -> Result<Told, crate::Failure> {
    let answers = boxes.send(|place| place.compare())?;
    let mut all: Vec<Difference> =
        boxes.nodes().zip(answers).map(|(node, answer)| difference(node, answer)).collect();
    // Like apply: all daemons run, or none.
    let is_idle = |it: &&mut Difference| it.code == exit::OK && it.reload.is_none();
    if all.iter().any(|it| it.reload.is_some()) {
        for it in all.iter_mut().filter(is_idle) {
            it.code = exit::NOT_RUNNING;
            let cure = format!("start it; `apply --only {}` writes its file first", it.node);
            it.findings.push(finding("no daemon runs there, while others do".into(), cure));
        }
    }
    let code = all.iter().map(|it| it.code).fold(exit::OK, worse);
    let text = match json {
        true => crate::json::pretty(&BTreeMap::from([("nodes", &all)]))?,
        false => all.iter().map(text).collect::<String>() + "nothing was changed on any box\n",
    };
    Ok(Told { code, text })
}

fn difference(node: &Node, answer: Result<Answer, NoAnswer>) -> Difference {
    let name = node.name.clone();
    let mut it =
        Difference { node: name, file: "-", reload: None, findings: Vec::new(), code: exit::OK };
    let answer = match answer {
        Ok(answer) => answer,
        Err(NoAnswer { cause, cure }) => {
            it.findings.push(finding(cause, cure));
            it.code = exit::NOT_RUNNING;
            return it;
        }
    };
    let (first, rest) = answer.text.split_once('\n').unwrap_or((&answer.text, ""));
    it.file = check::compared(Some(first)).unwrap_or("-");
    if it.file == check::CHANGED {
        it.findings.push(check::changed(node, "warning"));
    }
    let no_daemon = answer.code == i32::from(exit::NOT_RUNNING);
    if answer.code == 0 {
        let value = values(rest).into_iter().next();
        it.reload = value.and_then(|value| serde_json::from_value(value).ok());
    }
    if it.file == "-" || it.reload.is_none() && !no_daemon {
        let (cause, cure) = match answer.code {
            0 => (
                "recodectl there answers in a way this one does not understand".to_owned(),
                "install the same version on both".to_owned(),
            ),
            _ => refused(&Answer { text: rest.to_owned(), ..answer }),
        };
        it.findings.push(finding(cause, cure));
        it.code = exit::REFUSED;
    }
    it
}

fn text(it: &Difference) -> String {
    let mut text = format!("--- {} (file: {})\n", it.node, it.file);
    match &it.reload {
        Some(reload) => text += &reload::changes(reload),
        None if it.code == exit::OK && it.file == "same" => {
            text += "no daemon runs there; it has the file already\n";
        }
        None if it.code == exit::OK => text += "no daemon runs there: apply writes the file\n",
        None => {}
    }
    text + &findings(&it.node, &it.findings) + "\n"
}
