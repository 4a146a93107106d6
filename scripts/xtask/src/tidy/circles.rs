//! Import cycles between files of one crate, which prevent reading one file at a time.
//!
//! A file may use its own parent. Imports are paths that begin with `crate` or `super`, in `use`
//! declarations and elsewhere, outside tests.

use std::collections::BTreeMap;

use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, UseTree};

use super::Finding;

/// A source file of a crate.
pub struct Source<'a> {
    /// Relative to the root of the repository.
    pub path: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// Findings in the crate whose sources are in `folder`: one for each cycle.
pub fn check(folder: &str, sources: &[Source<'_>]) -> Vec<Finding> {
    let modules: BTreeMap<Vec<String>, usize> = sources
        .iter()
        .enumerate()
        .filter_map(|(index, source)| Some((module(folder, source.path)?, index)))
        .collect();
    let mut graph = DiGraph::<usize, ()>::new();
    let places: Vec<_> = (0..sources.len()).map(|index| graph.add_node(index)).collect();
    for (own, index) in &modules {
        for used in uses(own, sources[*index].text) {
            let longest = (0..=used.len()).rev().find_map(|length| {
                let prefix = &used[..length];
                modules.get(prefix).map(|other| (prefix, *other))
            });
            if let Some((prefix, other)) = longest
                && other != *index
                && !own.starts_with(prefix)
            {
                graph.update_edge(places[*index], places[other], ());
            }
        }
    }
    let circles = tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1);
    let finding = |circle: Vec<petgraph::graph::NodeIndex>| {
        let mut files: Vec<&str> = circle.iter().map(|at| sources[graph[*at]].path).collect();
        files.sort_unstable();
        let message = format!(
            "{} files import each other in a circle: {}; move the names that close it to a file \
             below",
            files.len(),
            files.join(", ")
        );
        Finding::new(files[0], None, message)
    };
    circles.map(finding).collect()
}

/// The path of a file as a module: `a::b` for `a/b.rs` and `a/b/mod.rs`. `None` for tests.
pub fn module(folder: &str, path: &str) -> Option<Vec<String>> {
    let inner = path.strip_prefix(folder)?.strip_prefix('/')?.strip_suffix(".rs")?;
    let mut parts: Vec<String> = inner.split('/').map(str::to_owned).collect();
    if parts.iter().any(|part| part == "tests") {
        return None;
    }
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    Some(parts)
}

/// Parts of its crate that a file uses, as paths from the root of the crate.
pub fn uses(own: &[String], text: &str) -> Vec<Vec<String>> {
    // The compiler reports more about a file that cannot be parsed.
    let Ok(file) = syn::parse_file(text) else { return Vec::new() };
    let mut found = UsePaths { paths: Vec::new() };
    file.items.iter().filter(|item| !is_test(item)).for_each(|item| found.visit_item(item));
    let resolved = |path: Vec<String>| match path.split_first() {
        Some((first, rest)) if first == "crate" => Some(rest.to_vec()),
        Some((first, rest)) if first == "super" => {
            let parent = own.split_last().map_or(&[][..], |(_, parent)| parent);
            Some([parent, rest].concat())
        }
        _ => None,
    };
    found.paths.into_iter().filter_map(resolved).collect()
}

fn is_test(item: &Item) -> bool {
    let is_marked = |attributes: &[Attribute]| {
        attributes.iter().any(|attribute| {
            let is_cfg = attribute.path().is_ident("cfg");
            is_cfg && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
        })
    };
    match item {
        Item::Mod(item) => is_marked(&item.attrs),
        Item::Use(item) => is_marked(&item.attrs),
        Item::Fn(item) => is_marked(&item.attrs),
        Item::Impl(item) => is_marked(&item.attrs),
        _ => false,
    }
}

struct UsePaths {
    paths: Vec<Vec<String>>,
}

impl UsePaths {
    fn add_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.add_tree(&with(&path.ident), &path.tree),
            UseTree::Name(name) => self.paths.push(with(&name.ident)),
            UseTree::Rename(rename) => self.paths.push(with(&rename.ident)),
            UseTree::Glob(_) => self.paths.push(before.to_vec()),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_tree(before, tree));
            }
        }
    }
}

impl<'ast> Visit<'ast> for UsePaths {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.push(path.segments.iter().map(|part| part.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<_> = files.iter().map(|(path, text)| Source { path, text }).collect();
        check("a/src", &sources).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn circle_of_two_files_is_found_however_they_name_each_other() {
        for (one, other) in [
            ("use crate::c::C;", "use crate::b::B;"),
            ("use super::c::{self, C};", "fn f() -> crate::b::B { todo() }"),
            ("use crate::{x::X, c::*};", "use crate::b as it;"),
        ] {
            let found = found(&[("a/src/lib.rs", ""), ("a/src/b.rs", one), ("a/src/c.rs", other)]);
            assert_eq!(found.len(), 1, "{one} {other}");
            assert!(
                found[0].starts_with("2 files import each other in a circle: a/src/b.rs, a/src")
            );
        }
    }

    #[test]
    fn one_way_parents_and_tests_are_no_circle() {
        for (one, other) in [
            ("use crate::c::C;", "use std::fmt;"),
            ("use crate::c::C;", "#[cfg(test)]\nmod tests { use crate::b::B; }"),
            ("use crate::c::C;", "// use crate::b::B;"),
        ] {
            assert_eq!(
                found(&[("a/src/b.rs", one), ("a/src/c.rs", other)]),
                [""; 0],
                "{one} {other}"
            );
        }
        let family = [("a/src/b/mod.rs", "use crate::b::c::C;"), ("a/src/b/c.rs", "use super::B;")];
        assert_eq!(found(&family), [""; 0]);
    }
}
