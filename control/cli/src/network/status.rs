//! `status`, `doctor` and `show` of all boxes at once.

use super::graph::{Graph, graphs};
use super::ssh::{Answer, NoAnswer};
use super::{Boxes, Told, worse};
use crate::activity::reword;
use crate::flows::worst_loss;
use crate::part::Show;
use crate::table::{Align, percent, sentence, table};
use clap::ValueEnum;
use recoded_api::exit;
use recoded_api::v1::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

use Align::{Left, Right};

/// Observation time of `doctor` within `status`, in seconds.
pub const LOOK_SECONDS: u64 = 1;

/// A finding of `doctor` on a box.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BoxFinding {
    /// error or warning.
    pub level: String,
    /// Its subject.
    pub subject: String,
    /// The cause.
    pub cause: String,
    /// The fix; empty if the cause implies it.
    pub cure: String,
}

/// Condition of a box.
#[derive(Clone, Debug, Serialize)]
pub struct Condition {
    /// Its node.
    pub node: String,
    /// Its host for ssh.
    pub host: String,
    /// up; wrong: something there keeps packets from arriving; no daemon; no answer.
    pub state: &'static str,
    /// Version of its daemon.
    pub version: Option<String>,
    /// Flows by their states; `unreported` for sources whose next hops send no reports.
    pub flows: BTreeMap<String, usize>,
    /// Loss of the worst hop of any flow.
    pub worst_loss: Option<f64>,
    /// The findings.
    pub findings: Vec<BoxFinding>,
    /// Its daemon's state.
    #[serde(skip)]
    pub shown: Option<State>,
}

impl Condition {
    /// Subjects of errors.
    pub fn errors(&self) -> impl Iterator<Item = &BoxFinding> {
        self.findings.iter().filter(|found| found.level == "error")
    }

    /// The exit code of the program for this condition.
    pub fn exit_code(&self) -> u8 {
        match self.state {
            "up" => exit::OK,
            "wrong" => exit::UNHEALTHY,
            _ => exit::NOT_RUNNING,
        }
    }
}

/// An error of a box as a whole.
pub fn finding(cause: String, cure: String) -> BoxFinding {
    BoxFinding { level: "error".into(), subject: "box".into(), cause, cure }
}

/// Queries every box.
pub fn conditions(boxes: &Boxes, seconds: u64) -> Result<Vec<Condition>, crate::Failure> {
    let answers = boxes.ask(|place| place.status(seconds))?;
    let pairs = boxes.nodes().zip(answers);
    Ok(pairs.map(|(node, answer)| condition(&node.name, &node.host, answer)).collect())
}

fn condition(node: &str, host: &str, answer: Result<Answer, NoAnswer>) -> Condition {
    let mut condition = Condition {
        node: node.to_owned(),
        host: host.to_owned(),
        state: "no answer",
        version: None,
        flows: BTreeMap::new(),
        worst_loss: None,
        findings: Vec::new(),
        shown: None,
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(NoAnswer { cause, cure }) => {
            condition.findings.push(finding(cause, cure));
            return condition;
        }
    };
    condition.state = "no daemon";
    let mut values = values(&answer.text).into_iter();
    let state = values.next().and_then(|state| serde_json::from_value::<State>(state).ok());
    let Some(mut state) = state else {
        let (cause, cure) = refused(&answer);
        condition.findings.push(finding(cause, cure));
        return condition;
    };
    condition.state = "up";
    condition.version = Some(state.version.clone());
    reword(&mut state);
    for flow in &state.flows {
        let word = flow.state.clone().unwrap_or_else(|| "unreported".into());
        *condition.flows.entry(word).or_default() += 1;
    }
    condition.worst_loss = state.flows.iter().filter_map(worst_loss).reduce(f64::max);
    condition.shown = Some(state);
    let findings = values.next().map(|mut found| found["findings"].take());
    match findings.and_then(|found| serde_json::from_value::<Vec<BoxFinding>>(found).ok()) {
        Some(findings) => condition.findings = findings,
        None => {
            let (cause, cure) = refused(&answer);
            condition.findings.push(finding(format!("doctor did not answer: {cause}"), cure));
        }
    }
    if condition.errors().next().is_some() {
        condition.state = "wrong";
    }
    condition
}

/// The JSON values of a text, one after the other.
pub fn values(text: &str) -> Vec<Value> {
    serde_json::Deserializer::from_str(text).into_iter().map_while(Result::ok).collect()
}

/// Why recodectl on the box refused, and the fix; the fix is empty if the message contains it.
pub fn refused(answer: &Answer) -> (String, String) {
    let mut values = values(&answer.text).into_iter();
    let said = values.find_map(|value| value["error"]["message"].as_str().map(str::to_owned));
    let said = said.or_else(|| Some(answer.last_words().strip_prefix("recodectl: ")?.to_owned()));
    let words = said.clone().unwrap_or_else(|| answer.last_words()).replace('\n', "; ");
    match answer.code {
        127 => (words, "install the package recoded there".into()),
        code if said.is_some() && code == i32::from(exit::NOT_RUNNING) => {
            let cause = words.split(": ").next().unwrap_or_default().to_owned();
            (cause, "start it there: systemctl enable --now recoded".into())
        }
        _ if said.is_some() => (words, String::new()),
        _ if words.contains("sudo:") => {
            (words, "let this user run sudo there without a password".into())
        }
        _ => (words, "run the same there by hand".into()),
    }
}

/// `status`: a line for each box, the findings, and the paths.
pub fn run(boxes: &Boxes, json: bool) -> Result<Told, crate::Failure> {
    let conditions = conditions(boxes, LOOK_SECONDS)?;
    let code = conditions.iter().map(Condition::exit_code).fold(exit::OK, worse);
    let mut states = vec![None; boxes.network.nodes.len()];
    for (node, condition) in boxes.chosen.iter().zip(&conditions) {
        states[*node] = condition.shown.as_ref();
    }
    let paths = graphs(&boxes.network, &states);
    let text = match json {
        true => crate::json::pretty(&StatusReport { nodes: &conditions, paths: &paths })?,
        false => summary(&conditions) + &paths.iter().map(Graph::text).collect::<String>(),
    };
    Ok(Told { code, text })
}

/// `status` as JSON.
#[derive(Serialize)]
struct StatusReport<'a> {
    nodes: &'a [Condition],
    paths: &'a [Graph],
}

/// Formats a summary as text.
pub fn summary(conditions: &[Condition]) -> String {
    let head = [
        ("box", Left),
        ("state", Left),
        ("version", Left),
        ("flows", Left),
        ("max loss", Right),
        ("wrong", Right),
    ];
    let rows = conditions.iter().map(|it| {
        let flows = it.flows.iter().map(|(state, count)| format!("{count} {state}"));
        let flows = flows.collect::<Vec<_>>().join(", ");
        [
            it.node.clone(),
            it.state.to_owned(),
            it.version.clone().unwrap_or_else(|| "-".into()),
            if flows.is_empty() { "-".into() } else { flows },
            it.worst_loss.map_or("-".into(), percent),
            it.findings.len().to_string(),
        ]
    });
    let mut text = table(head, &rows.collect::<Vec<_>>());
    for it in conditions {
        text += &findings(&it.node, &it.findings);
    }
    text
}

/// Findings of a box, errors first.
pub fn findings(node: &str, findings: &[BoxFinding]) -> String {
    let mut ordered: Vec<&BoxFinding> = findings.iter().collect();
    ordered.sort_by_key(|found| found.level != "error");
    let lines = ordered.into_iter().map(|found| {
        let label = if found.level == "error" { "FAIL" } else { "warn" };
        let subject =
            if found.subject == "box" { String::new() } else { format!("{}: ", found.subject) };
        let cure = if found.cure.is_empty() { "" } else { ": " };
        let BoxFinding { cause, cure: words, .. } = found;
        sentence(&format!("{label} {node}"), &format!("{subject}{cause}{cure}{words}"))
    });
    lines.collect()
}

/// `doctor`: findings of each box within `seconds` seconds.
pub fn doctor(boxes: &Boxes, seconds: u64, json: bool) -> Result<Told, crate::Failure> {
    let conditions = conditions(boxes, seconds)?;
    let code = conditions.iter().map(Condition::exit_code).fold(exit::OK, worse);
    if json {
        let findings = conditions.iter().map(|it| (it.node.as_str(), &it.findings));
        let nodes: BTreeMap<&str, _> = findings.collect();
        return Ok(Told { code, text: crate::json::pretty(&BTreeMap::from([("nodes", nodes)]))? });
    }
    let text: String = conditions.iter().map(|it| findings(&it.node, &it.findings)).collect();
    let errors: usize = conditions.iter().map(|it| it.errors().count()).sum();
    let warnings = conditions.iter().map(|it| it.findings.len()).sum::<usize>() - errors;
    let boxes = conditions.len();
    Ok(Told {
        code,
        text: text + &format!("boxes {boxes}, errors {errors}, warnings {warnings}\n"),
    })
}

/// `show`: output of each box.
pub fn show(boxes: &Boxes, what: Option<Show>, json: bool) -> Result<Told, crate::Failure> {
    let part = what.and_then(|part| Some(part.to_possible_value()?.get_name().to_owned()));
    let command = format!("show {}", part.unwrap_or_default());
    let answers = boxes.ask(|place| place.ask(json, command.trim()))?;
    let (mut code, mut text, mut shown) = (exit::OK, String::new(), BTreeMap::new());
    for (node, answer) in boxes.nodes().zip(answers) {
        let failed = match answer {
            Ok(answer) if answer.code == 0 => {
                text += &format!("--- {}\n{}\n", node.name, answer.text);
                shown.insert(&node.name, values(&answer.text).into_iter().next());
                continue;
            }
            Ok(answer) => refused(&answer),
            Err(NoAnswer { cause, cure }) => (cause, cure),
        };
        code = worse(code, exit::NOT_RUNNING);
        let found = finding(failed.0, failed.1);
        text +=
            &format!("--- {}\n{}\n", node.name, findings(&node.name, std::slice::from_ref(&found)));
        shown.insert(&node.name, Some(serde_json::json!({ "error": found })));
    }
    if json {
        text = crate::json::pretty(&BTreeMap::from([("nodes", shown)]))?;
    }
    Ok(Told { code, text })
}
