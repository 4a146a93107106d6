//! `recodectl render`: the configuration of each box, printed, written or compared.

use super::options::{Fleet, Rendering};
use super::{NetworkFailure, Told, read};
use crate::atomic_file::replace;
use recoded_api::exit;
use similar::TextDiff;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Renders a network.
pub fn run(rendering: &Rendering, fleet: &Fleet, json: bool) -> Result<Told, crate::Failure> {
    let Some(file) = rendering.file.as_ref().or(fleet.network.as_ref()) else {
        return Err(NetworkFailure::NoFile.into());
    };
    let (name, text) = read(file).map_err(crate::Failure::from)?;
    let network = recoded::network::parse(&name, &text).map_err(NetworkFailure::from)?;
    let chosen = super::chosen(&network, fleet)?;
    let texts: Vec<String> = (0..network.nodes.len()).map(|node| network.meaning(node)).collect();
    let name = |index: &usize| network.nodes[*index].name.as_str();
    let files: Vec<(&str, &str)> =
        chosen.iter().map(|index| (name(index), texts[*index].as_str())).collect();
    let text = match (&rendering.out, rendering.diff) {
        (None, true) => return Err(NetworkFailure::DiffWithoutFolder.into()),
        (Some(folder), true) => difference(folder, &files)?,
        (Some(folder), false) => write_all(folder, &files)?,
        (None, false) if json => String::new(),
        (None, false) => files.iter().map(|(_, text)| *text).collect::<Vec<_>>().join("\n"),
    };
    let text = match (json, &rendering.out) {
        (false, _) => text,
        (true, Some(_)) if rendering.diff => crate::json::object("diff", &text)?,
        (true, _) => {
            let files: BTreeMap<&str, &str> = files.into_iter().collect();
            crate::json::pretty(&BTreeMap::from([("files", files)]))?
        }
    };
    Ok(Told { code: exit::OK, text })
}

fn path(folder: &Path, node: &str) -> PathBuf {
    folder.join(format!("{node}.toml"))
}

fn difference(folder: &Path, files: &[(&str, &str)]) -> Result<String, NetworkFailure> {
    let mut text = String::new();
    for (node, file) in files {
        let path = path(folder, node);
        let before = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.map_err(|source| NetworkFailure::Read { path: path.clone(), source })?,
        };
        let shown = path.display().to_string();
        let diff = TextDiff::from_lines(before.as_str(), file);
        text += &diff.unified_diff().context_radius(1).header(&shown, &shown).to_string();
    }
    Ok(if text.is_empty() { "nothing would change\n".into() } else { text })
}

/// Replaces each file atomically.
fn write_all(folder: &Path, files: &[(&str, &str)]) -> Result<String, NetworkFailure> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| NetworkFailure::Write { path, source }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let mut told = String::new();
    for (node, text) in files {
        let path = path(folder, node);
        replace(&path, text).map_err(failed(&path))?;
        told += &format!("{}\n", path.display());
    }
    Ok(told)
}
