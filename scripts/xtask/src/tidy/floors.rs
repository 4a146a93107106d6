//! Floors: in some crates, a file imports only from folders below its own. Folders on one floor do
//! not import each other.

use super::Finding;
use super::circles::{Source, module, uses};

/// A folder of sources, and its floors from bottom to top: the modules at the root of the crate.
/// A module that is not listed is on the top floor, as the root itself is.
const FLOORS: [(&str, &[&[&str]]); 1] = [(
    "dataplane/pipeline/src",
    &[
        &["base"],
        &["config"],
        &["plan"],
        &["env"],
        &["packet"],
        &["edge"],
        &["hop"],
        &["unit"],
        &["stream", "rlnc", "bats"],
        &["budget", "stage"],
    ],
)];

/// Findings in the crate whose sources are in `folder`: one for each import from a floor above, or
/// from another folder on the same floor.
pub fn check(folder: &str, sources: &[Source<'_>]) -> Vec<Finding> {
    let floors = FLOORS.iter().find(|(of, _)| *of == folder).map(|(_, floors)| *floors);
    floors.map_or(Vec::new(), |floors| check_floors(folder, floors, sources))
}

fn check_floors(folder: &str, floors: &[&[&str]], sources: &[Source<'_>]) -> Vec<Finding> {
    let floor_of = |name: &str| floors.iter().position(|names| names.contains(&name));
    let mut findings = Vec::new();
    for source in sources {
        let Some(own) = module(folder, source.path) else { continue };
        let Some(name) = own.first() else { continue };
        let Some(floor) = floor_of(name) else { continue };
        let mut above: Vec<String> = uses(&own, source.text)
            .into_iter()
            .filter_map(|used| used.into_iter().next())
            .filter(|other| other != name)
            .filter(|other| floor_of(other).is_some_and(|other| other >= floor))
            .collect();
        above.sort_unstable();
        above.dedup();
        for other in above {
            let message = format!(
                "`{name}` imports `{other}`, which is not on a floor below: move the names down, or \
                 this file up (scripts/xtask/src/tidy/floors.rs)"
            );
            findings.push(Finding::new(source.path, None, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let floors: &[&[&str]] = &[&["low"], &["left", "right"], &["top"]];
        let findings = check_floors("a/src", floors, &[Source { path, text }]);
        findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn imports_from_above_and_from_the_side_are_found() {
        for (path, text) in [
            ("a/src/low/x.rs", "use crate::left::Left;"),
            ("a/src/low.rs", "fn f() -> crate::top::Top { todo() }"),
            ("a/src/left/mod.rs", "use crate::{low::Low, right::Right};"),
            ("a/src/right/x.rs", "use crate::top;"),
        ] {
            assert_eq!(found(path, text).len(), 1, "{path}: {text}");
        }
    }

    #[test]
    fn imports_from_below_from_inside_and_from_elsewhere_are_right() {
        for (path, text) in [
            ("a/src/top.rs", "use crate::left::Left; use crate::low::Low;"),
            ("a/src/left/x.rs", "use crate::left::y::Y; use super::z::Z;"),
            ("a/src/low/x.rs", "use std::fmt; use other::top::Top;"),
            ("a/src/lib.rs", "use crate::low::Low;"),
            ("a/src/shards.rs", "use crate::top::Top;"),
            ("a/src/low/x.rs", "#[cfg(test)]\nmod tests { use crate::top::Top; }"),
        ] {
            assert_eq!(found(path, text), [""; 0], "{path}: {text}");
        }
    }
}
