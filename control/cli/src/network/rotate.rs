//! `keys --rotate`: another private key for one box, and its public key at all others, at once.
//!
//! ```text
//!  1 the box makes a key, in a file next to the one in use; only the public key leaves it
//!  2 the network gets both: key and private_key of that box; drafted next to the file
//!  3 apply: all boxes switch, or none
//!  4 the draft replaces the file; the old private key is removed. Otherwise the new one is
//! ```
//!
//! A daemon has one key, so sessions with the box end: packets wait or are lost from the first
//! box that switches until the handshakes after the last one.

use super::applied::{Applied, failed};
use super::options::Fleet;
use super::ssh::Job;
use super::status::findings;
use super::{Boxes, NetworkFailure, Told, apply, read};
use crate::arguments::Applying;
use crate::atomic_file;
use recoded_api::exit;
use recoded_network::{Auth, Node, NodeKey, with_keys};
use recoded_secure::PublicKey;
use serde::Serialize;
use std::path::Path;

/// Time for all boxes to become healthy, in seconds.
const CONFIRM_SECONDS: u64 = 60;

/// The new key.
#[derive(Serialize)]
struct Rotated<'a> {
    node: &'a str,
    key: String,
    private_key: &'a str,
}

/// The result as JSON.
#[derive(Serialize)]
struct RotationReport<'a> {
    /// None if all boxes have the keys that they had.
    rotated: Option<Rotated<'a>>,
    nodes: &'a [Applied],
}

/// Changes the key of box `name`.
pub fn run(file: &Path, fleet: &Fleet, name: &str, json: bool) -> Result<Told, crate::Failure> {
    if !fleet.only.is_empty() {
        return Err(NetworkFailure::RotateOnly.into());
    }
    let boxes = Boxes::open(file, fleet, true)?;
    let Some(node) = boxes.network.nodes.iter().find(|node| node.name == name) else {
        let nodes = boxes.nodes().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(NetworkFailure::NoNode { name: name.to_owned(), nodes }.into());
    };
    if boxes.network.auth == Auth::None || node.key.is_none() {
        return Err(NetworkFailure::RotateNothing(name.to_owned()).into());
    }
    let path = next_path(&node.private_key);
    let on_box = |script: String| boxes.ssh.on_each(vec![Job::new(node, script, "")]);
    let mut answers = on_box(boxes.place(node).new_key(&path))?;
    let answer = answers.remove(0);
    let public = answer.as_ref().ok().and_then(|answer| answer.text.trim().parse().ok());
    let public: PublicKey = match (failed(answer), public) {
        (None, Some(public)) => public,
        (None, None) => return Err(NetworkFailure::RotateVersion(name.to_owned()).into()),
        (Some((code, found)), _) => {
            let text = findings(name, &[found]) + "nothing was changed on any box\n";
            return Ok(Told { code, text });
        }
    };
    let switched = switch(file, fleet, &NodeKey { node: name, public, private: Some(&path) });
    // A file that stays is no fault of the network.
    on_box(match &switched {
        Ok(outcome) if outcome.code == exit::OK => boxes.place(node).retire_key(&node.private_key),
        _ => boxes.place(node).discard_key(&path),
    })?;
    let outcome = switched?;
    let is_done = outcome.code == exit::OK;
    let text = match json {
        true => {
            let rotated = Rotated { node: name, key: public.to_string(), private_key: &path };
            let rotated = is_done.then_some(rotated);
            crate::json::pretty(&RotationReport { rotated, nodes: &outcome.nodes })?
        }
        false => apply::summary(&outcome) + &told(node, file, is_done, &path),
    };
    Ok(Told { code: outcome.code, text })
}

/// Applies the network with this key, and then writes its file.
fn switch(file: &Path, fleet: &Fleet, key: &NodeKey<'_>) -> Result<apply::Outcome, crate::Failure> {
    let (name, before) = read(file)?;
    let text = with_keys(&before, &[*key]).map_err(NetworkFailure::from)?;
    let boxes = Boxes::of_text(&name, &text, fleet, true)?;
    let not_written = |source| NetworkFailure::Write { path: file.to_owned(), source };
    let draft = atomic_file::draft(file, &text).map_err(not_written)?;
    let options = Applying { confirm: CONFIRM_SECONDS, start: false, force: false, diff: false };
    let outcome = apply::switch(&boxes, &options)?;
    if outcome.code == exit::OK {
        let is_same = read(file).is_ok_and(|(_, now)| now == before || now == text);
        let written = if is_same { draft.persist(file).is_ok() } else { false };
        if !written {
            return Err(NetworkFailure::RotateUnwritten {
                file: file.to_owned(),
                node: key.node.to_owned(),
                public: key.public,
                private: key.private.unwrap_or_default().to_owned(),
            }
            .into());
        }
    }
    Ok(outcome)
}

fn told(node: &Node, file: &Path, is_done: bool, path: &str) -> String {
    let (name, file) = (&node.name, file.display());
    match is_done {
        true => format!(
            "{name} has a new key, in {path}; the old one was removed, and {file} was written: keep \
             it\n"
        ),
        false => format!("{name} keeps its key, and {file} is as it was\n"),
    }
}

/// The file of the next key: `private.key`, `private-2.key`, `private-3.key`.
fn next_path(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let (stem, end) = match name.rsplit_once('.') {
        Some((stem, end)) if !stem.is_empty() => (stem, format!(".{end}")),
        _ => (name, String::new()),
    };
    let numbered = stem.rsplit_once('-').and_then(|(stem, number)| {
        let number: u64 = number.parse().ok()?;
        Some((stem, number.checked_add(1)?))
    });
    let (stem, number) = numbered.unwrap_or((stem, 2));
    format!("{folder}/{stem}-{number}{end}")
}

#[cfg(test)]
mod tests {
    use super::next_path;

    #[test]
    fn files_of_keys_are_numbered_and_keep_their_folder_and_end() {
        for (path, next) in [
            ("/etc/recoded/private.key", "/etc/recoded/private-2.key"),
            ("/etc/recoded/private-2.key", "/etc/recoded/private-3.key"),
            ("/etc/recoded-1/key", "/etc/recoded-1/key-2"),
            ("/etc/.key", "/etc/.key-2"),
            ("/etc/a-b.key", "/etc/a-b-2.key"),
            ("/etc/a-18446744073709551615.key", "/etc/a-18446744073709551615-2.key"),
        ] {
            assert_eq!(next_path(path), next);
        }
    }
}
