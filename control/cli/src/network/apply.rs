//! `apply`: all boxes switch to their files, or none does.
//!
//! ```text
//!  1 status   what is wrong before; does a daemon run
//!  2 stage    file next to the one in use, `recoded --check`  one refuses: taken away everywhere
//!  3 commit   rename, `recodectl reload --confirm`            one refuses: all go back
//!  4 settle   `doctor`, until none finds an error that was not there before
//!  5 confirm  all                                             one does not: all go back
//! ```
//!
//! If no daemon runs on any box, step 3 only replaces the file, and `start` may follow.
//!
//! A box that is lost after step 3 rolls back configuration and file by itself when its time is
//! over.

use super::applied::{Applied, PAUSE, failed};
use super::script::BoxPaths;
use super::ssh::{Answer, NoAnswer};
use super::status::{BoxFinding, Condition, LOOK_SECONDS, conditions, finding, findings, values};
use super::{Boxes, Told, check, start, worse};
use crate::arguments::Applying;
use crate::table::{Align, table};
use recoded_api::exit;
use recoded_api::v1::Reloaded;
use recoded_network::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use Align::Left;

/// Fraction of the confirmation time that is reserved for confirming.
const CONFIRM_PART: u32 = 3;

/// What became of all boxes.
pub struct Outcome {
    /// The exit code.
    pub code: u8,
    /// Each box.
    pub(super) nodes: Vec<Applied>,
}

/// Switches all boxes to their files, and reports it.
pub fn run(boxes: &Boxes, options: &Applying, json: bool) -> Result<Told, crate::Failure> {
    let outcome = switch(boxes, options)?;
    let text = match json {
        true => crate::json::pretty(&BTreeMap::from([("nodes", &outcome.nodes)]))?,
        false => summary(&outcome),
    };
    Ok(Told { code: outcome.code, text })
}

/// Switches all boxes to their files.
pub fn switch(boxes: &Boxes, options: &Applying) -> Result<Outcome, crate::Failure> {
    let before = conditions(boxes, LOOK_SECONDS)?;
    let mut all: Vec<Applied> = boxes.nodes().map(applied).collect();
    let code = match stage(boxes, options.force, &before, &mut all)? {
        exit::OK => commit_all(boxes, options, &before, &mut all)?,
        code => {
            boxes.ask(BoxPaths::unstage)?;
            code
        }
    };
    Ok(Outcome { code, nodes: all })
}

fn applied(node: &Node) -> Applied {
    Applied {
        node: node.name.clone(),
        file: "-",
        cost: "-".into(),
        state: "unchanged",
        findings: Vec::new(),
        waits: false,
        committed: false,
    }
}

/// Uploads files next to the active ones, and checks all of them.
fn stage(
    boxes: &Boxes,
    force: bool,
    before: &[Condition],
    all: &mut [Applied],
) -> Result<u8, crate::Failure> {
    for (it, before) in all.iter_mut().zip(before) {
        if before.state == "no answer" {
            it.findings.extend(before.findings.clone());
        }
    }
    if all.iter().any(|it| !it.findings.is_empty()) {
        return Ok(exit::NOT_RUNNING);
    }
    let checked = check::all(boxes, boxes.send(BoxPaths::stage)?);
    let mut code = check::code(&checked);
    for ((it, checked), node) in all.iter_mut().zip(checked).zip(boxes.nodes()) {
        it.file = checked.file;
        it.findings = checked.findings;
        if it.file == check::CHANGED && !force {
            code = worse(code, exit::REFUSED);
            it.findings.push(check::changed(node, "error"));
        }
    }
    // If only some daemons run, the other boxes would be unreachable.
    let running = before.iter().filter(|it| it.state != "no daemon").count();
    if code == exit::OK && running > 0 {
        for (it, before) in all.iter_mut().zip(before) {
            if before.state == "no daemon" {
                let cause = "no daemon runs there, while others do".to_owned();
                let cure = format!("start it; `apply --only {}` writes its file first", it.node);
                it.findings.push(finding(cause, cure));
            }
        }
        if running < all.len() {
            return Ok(exit::NOT_RUNNING);
        }
    }
    Ok(code)
}

fn commit_all(
    boxes: &Boxes,
    options: &Applying,
    before: &[Condition],
    all: &mut [Applied],
) -> Result<u8, crate::Failure> {
    let seconds = options.confirm;
    if before.iter().all(|it| it.state == "no daemon") {
        return match written(boxes, all)? {
            exit::OK if options.start => start::all(boxes, seconds, all),
            code => Ok(code),
        };
    }
    let begun = Instant::now();
    let mut code = exit::OK;
    for (it, answer) in all.iter_mut().zip(boxes.ask(|place| place.commit(seconds))?) {
        code = worse(code, committed(it, answer));
    }
    if code == exit::OK {
        let time = Duration::from_secs(seconds);
        let deadline = begun + time - time / CONFIRM_PART;
        code = settle(boxes, before, all, deadline)?;
    }
    if code == exit::OK {
        code = confirm(boxes, all)?;
    }
    if code == exit::OK {
        // A failure leaves only a spare file.
        boxes.ask(BoxPaths::finish)?;
        all.iter_mut().for_each(|it| it.state = "applied");
        return Ok(exit::OK);
    }
    go_back(boxes, all)?;
    Ok(code)
}

/// Files of boxes whose daemons will read them at their start.
fn written(boxes: &Boxes, all: &mut [Applied]) -> Result<u8, crate::Failure> {
    let mut code = exit::OK;
    for (it, answer) in all.iter_mut().zip(boxes.ask(BoxPaths::place)?) {
        match failed(answer) {
            None => it.state = "written",
            Some((failure, found)) => {
                code = worse(code, failure);
                it.findings.push(found);
            }
        }
    }
    Ok(code)
}

/// Records the outcome on one box.
fn committed(it: &mut Applied, answer: Result<Answer, NoAnswer>) -> u8 {
    let text = answer.as_ref().map(|answer| answer.text.clone()).unwrap_or_default();
    if let Some((code, found)) = failed(answer) {
        // A box that refused has its old file; the state of a lost box is unknown.
        it.committed = code == exit::NOT_RUNNING;
        it.waits = it.committed;
        it.findings.push(found);
        return code;
    }
    it.committed = true;
    let reloaded = values(&text).into_iter().next();
    let reloaded = reloaded.and_then(|value| serde_json::from_value::<Reloaded>(value).ok());
    let Some(reloaded) = reloaded else {
        it.waits = true;
        let cause = "recodectl there answers in a way this one does not understand".to_owned();
        it.findings.push(finding(cause, "install the same version on both".into()));
        return exit::FAILED;
    };
    it.waits = reloaded.confirm_seconds.is_some();
    let costs = ["stop", "restart", "gap", "flow", "live"];
    let worst = costs.iter().find(|cost| reloaded.changes.iter().any(|it| it.cost == **cost));
    it.cost = worst.map_or("-", |cost| *cost).to_owned();
    if ["differs", check::CHANGED].contains(&it.file) && reloaded.changes.is_empty() {
        it.findings.push(BoxFinding {
            level: "warning".into(),
            subject: "box".into(),
            cause: "its file is another one now, and its daemon saw no change".into(),
            cure: "nothing, if only comments changed; else see that it runs with --config and \
                   this file"
                .into(),
        });
    }
    exit::OK
}

/// Waits until no box has a new error.
fn settle(
    boxes: &Boxes,
    before: &[Condition],
    all: &mut [Applied],
    deadline: Instant,
) -> Result<u8, crate::Failure> {
    loop {
        let now = conditions(boxes, LOOK_SECONDS)?;
        let news: Vec<Vec<BoxFinding>> =
            before.iter().zip(&now).map(|(old, new)| news(old, new)).collect();
        if news.iter().all(Vec::is_empty) {
            return Ok(exit::OK);
        }
        if Instant::now() + Duration::from_secs(LOOK_SECONDS) >= deadline {
            let away = now.iter().any(|it| ["no answer", "no daemon"].contains(&it.state));
            all.iter_mut().zip(news).for_each(|(it, news)| it.findings.extend(news));
            return Ok(if away { exit::NOT_RUNNING } else { exit::UNHEALTHY });
        }
        std::thread::sleep(PAUSE);
    }
}

/// Errors of a box that it did not have before, by subject.
fn news(before: &Condition, now: &Condition) -> Vec<BoxFinding> {
    let known: BTreeSet<&str> = before.errors().map(|found| found.subject.as_str()).collect();
    now.errors().filter(|found| !known.contains(found.subject.as_str())).cloned().collect()
}

fn confirm(boxes: &Boxes, all: &mut [Applied]) -> Result<u8, crate::Failure> {
    let mut waits = all.iter().map(|it| it.waits).collect::<Vec<_>>().into_iter();
    let jobs = boxes.nodes().map(|node| {
        let script = boxes.place(node).confirm(waits.next().unwrap_or(true));
        super::Job::new(node, script, "")
    });
    let answers = boxes.ssh.on_each(jobs.collect())?;
    let mut code = exit::OK;
    for (it, answer) in all.iter_mut().zip(answers) {
        if let Some((failure, found)) = failed(answer) {
            code = worse(code, failure);
            it.findings.push(found);
        }
    }
    Ok(code)
}

/// Rolls every box back.
fn go_back(boxes: &Boxes, all: &mut [Applied]) -> Result<(), crate::Failure> {
    let mut changed = all.iter().map(|it| it.waits).collect::<Vec<_>>().into_iter();
    let jobs = boxes.nodes().map(|node| {
        let script = boxes.place(node).go_back(changed.next().unwrap_or(true));
        super::Job::new(node, script, "")
    });
    let answers = boxes.ssh.on_each(jobs.collect())?;
    for (it, answer) in all.iter_mut().zip(answers) {
        let committed = it.committed;
        match failed(answer) {
            None => it.state = if committed { "back" } else { "unchanged" },
            Some((_, found)) if committed => {
                it.state = "lost";
                it.findings.push(found);
            }
            Some(_) => it.state = "unchanged",
        }
    }
    Ok(())
}

/// The outcome as text.
pub fn summary(outcome: &Outcome) -> String {
    let Outcome { code, nodes: all } = outcome;
    let head = [("box", Left), ("file", Left), ("cost", Left), ("state", Left)];
    let rows =
        all.iter().map(|it| [it.node.clone(), it.file.into(), it.cost.clone(), it.state.into()]);
    let mut text = table(head, &rows.collect::<Vec<_>>());
    for it in all {
        text += &findings(&it.node, &it.findings);
    }
    let is = |state: &str| all.iter().any(|it| it.state == state);
    text += match *code {
        exit::OK if is("written") => {
            "written; no daemon runs: `apply --start` starts all of them, `systemctl enable --now \
             recoded` one\n"
        }
        exit::OK if is("started") => "started on all boxes, and well\n",
        exit::OK => "confirmed on all boxes\n",
        _ if is("lost") => {
            "not confirmed: the others are back; a box that is lost goes back by itself\n"
        }
        _ if is("back") => "not confirmed: all boxes are as they were before\n",
        exit::UNHEALTHY | exit::NOT_RUNNING if is("started") => {
            "started, and not yet well: files stay; recodectl -f FILE doctor looks again\n"
        }
        _ if is("started") => "not all are started; files stay\n",
        _ if is("written") => "not all files are written\n",
        _ => "nothing was changed on any box\n",
    };
    text
}
