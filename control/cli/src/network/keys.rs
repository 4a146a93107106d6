//! `keys`: every box generates its private key, and reports the public one.
//!
//! A private key never leaves its box. Public keys are written into the file, where a change is
//! visible. Keys fetched by every command would be those of any host that answers.

use super::ssh::{Answer, NoAnswer};
use super::status::{BoxFinding, finding, findings, refused};
use super::{Boxes, NetworkFailure, Told, read, worse};
use crate::atomic_file::replace;
use crate::table::{Align, table};
use recoded_api::exit;
use recoded_network::{Node, NodeKey, with_keys};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

use Align::Left;

/// The key of a box.
#[derive(Debug, Serialize)]
struct BoxKey {
    node: String,
    key: Option<String>,
    /// made; found; -.
    private: &'static str,
    /// same, new, differs; -.
    file: &'static str,
    findings: Vec<BoxFinding>,
}

/// Queries every box, and writes new keys into `file` if requested.
pub fn run(boxes: &Boxes, file: &Path, save: bool, json: bool) -> Result<Told, crate::Failure> {
    let answers = boxes.ask(|place| place.key())?;
    let (mut code, mut told, mut new) = (exit::OK, Vec::new(), Vec::new());
    for (node, answer) in boxes.nodes().zip(answers) {
        let (mut it, failed) = key(node, answer);
        code = worse(code, failed);
        let public = it.key.as_ref().and_then(|key| key.parse().ok());
        if let Some(public) = public {
            it.file = match &node.key {
                Some(known) if *known == public => "same",
                Some(_) => "differs",
                None => "new",
            };
            if it.file == "new" {
                new.push(NodeKey { node: node.name.as_str(), public, private: None });
            }
        }
        if it.file == "differs" {
            code = worse(code, exit::REFUSED);
            let cause = "its public key is not the one in the file".to_owned();
            let cure = "find out why; if the box was reinstalled, remove key from its line and \
                        run this again";
            it.findings.push(finding(cause, cure.into()));
        }
        told.push(it);
    }
    if save && !new.is_empty() {
        let (_, text) = read(file)?;
        let text = with_keys(&text, &new).map_err(NetworkFailure::from)?;
        let path = file.to_owned();
        replace(file, &text).map_err(|source| NetworkFailure::Write { path, source })?;
    }
    let text = match json {
        true => crate::json::pretty(&BTreeMap::from([("nodes", &told)]))?,
        false => summary(&told, new.len(), save, file),
    };
    Ok(Told { code, text })
}

fn key(node: &Node, answer: Result<Answer, NoAnswer>) -> (BoxKey, u8) {
    let node = node.name.clone();
    let mut told = BoxKey { node, key: None, private: "-", file: "-", findings: Vec::new() };
    let (code, (cause, cure)) = match answer {
        Ok(answer) => {
            let lines: Vec<&str> = answer.text.lines().collect();
            if let (0, [how @ ("made" | "found"), key]) = (answer.code, &lines[..]) {
                told.private = if *how == "made" { "made" } else { "found" };
                told.key = Some((*key).to_owned());
                return (told, exit::OK);
            }
            (exit::REFUSED, refused(&answer))
        }
        Err(NoAnswer { cause, cure }) => (exit::NOT_RUNNING, (cause, cure)),
    };
    told.findings.push(finding(cause, cure));
    (told, code)
}

fn summary(told: &[BoxKey], new: usize, save: bool, file: &Path) -> String {
    let head = [("box", Left), ("public key", Left), ("private", Left), ("file", Left)];
    let rows = told.iter().map(|it| {
        let key = it.key.clone().unwrap_or_else(|| "-".into());
        [it.node.clone(), key, it.private.into(), it.file.into()]
    });
    let mut text = table(head, &rows.collect::<Vec<_>>());
    for it in told {
        text += &findings(&it.node, &it.findings);
    }
    match (new, save) {
        (0, _) => text,
        (new, true) => text + &format!("{new} written into {}\n", file.display()),
        (new, false) => text + &format!("{new} not in the file: --save writes them there\n"),
    }
}
