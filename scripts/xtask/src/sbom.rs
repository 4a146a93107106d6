//! `cargo xtask sbom`: the crates in the programs of a release, as a bill of materials in CycloneDX
//! 1.5 (JSON).
//!
//! Reads `cargo metadata`, `cargo tree` and `Cargo.lock`, and writes one file. Lists crates that
//! the programs are linked of on Linux, with their default features; no crates for tests, build
//! scripts or macros. The same sources and the same `SOURCE_DATE_EPOCH` give the same bytes.
//! `audited` reads it together with the programs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::{TaskError, output, read};

/// Packages whose programs are released, as scripts/package and scripts/package-static build them.
const PROGRAMS: [&str; 4] = ["recoded", "recodectl", "recoded-agent", "recoded-split"];

/// Static programs have fewer crates: none that these platforms lack.
const PLATFORMS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// Writes the bill of materials into a file.
pub fn write(root: &Path, file: &Path) -> Result<String, TaskError> {
    let mut cargo = Command::new("cargo");
    let arguments = ["metadata", "--format-version", "1", "--locked", "--quiet"];
    cargo.args(arguments).current_dir(root);
    cargo.args(PLATFORMS.iter().flat_map(|platform| ["--filter-platform", platform]));
    let unexpected = |reason: String| TaskError::Output { program: "cargo metadata", reason };
    let metadata: Value = serde_json::from_str(&output(&mut cargo)?)
        .map_err(|error| unexpected(error.to_string()))?;
    let lock = String::from_utf8_lossy(&read(&root.join("Cargo.lock"))?).into_owned();
    let seconds = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
    let bill = bill(&metadata, &built(root)?, &checksums(&lock), seconds.unwrap_or(0))
        .ok_or_else(|| unexpected("a field is missing".into()))?;
    let count = bill["components"].as_array().map_or(0, Vec::len);
    std::fs::write(file, format!("{bill:#}\n"))
        .map_err(|source| TaskError::File { path: file.to_path_buf(), source })?;
    Ok(format!("{}: {count} crates", file.display()))
}

/// Crates that a build of the programs links, as `name@version`. Metadata have more: crates of the
/// features that any crate of the workspace enables, such as benchmarks.
fn built(root: &Path) -> Result<BTreeSet<String>, TaskError> {
    let mut crates = BTreeSet::new();
    for platform in PLATFORMS {
        let mut cargo = Command::new("cargo");
        cargo.args(["tree", "--locked", "--quiet", "--target", platform]).current_dir(root);
        cargo.args(["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]);
        cargo.args(PROGRAMS.iter().flat_map(|program| ["--package", program]));
        crates.extend(output(&mut cargo)?.lines().filter_map(name_and_version));
    }
    Ok(crates)
}

/// Of a line of `cargo tree`: `name v1.2.3 (folder)`.
fn name_and_version(line: &str) -> Option<String> {
    let mut words = line.split(' ');
    Some(format!("{}@{}", words.next()?, words.next()?.strip_prefix('v')?))
}

/// SHA-256 of the archives of crates, by name and version, from a lock file.
pub fn checksums(lock: &str) -> BTreeMap<String, String> {
    let parts = lock.split("\n[[package]]\n").filter_map(|part| {
        let value = |key: &str| {
            part.lines()
                .find_map(|it| it.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
        };
        Some((format!("{}@{}", value("name")?, value("version")?), value("checksum")?.to_owned()))
    });
    parts.collect()
}

/// The document; `None` if the metadata lack a field.
fn bill(
    metadata: &Value,
    built: &BTreeSet<String>,
    checksums: &BTreeMap<String, String>,
    seconds: u64,
) -> Option<Value> {
    let nodes: BTreeMap<&str, &Value> =
        metadata["resolve"]["nodes"].as_array()?.iter().filter_map(by_id).collect();
    let is_built = |(_, it): &(&str, &Value)| {
        let (name, version) = (it["name"].as_str(), it["version"].as_str());
        built.contains(&format!("{}@{}", name.unwrap_or(""), version.unwrap_or("")))
    };
    let packages: BTreeMap<&str, &Value> =
        metadata["packages"].as_array()?.iter().filter_map(by_id).filter(is_built).collect();
    let is_program = |it: &&Value| PROGRAMS.iter().any(|name| it["name"] == *name);
    let programs: Vec<&Value> = packages.values().copied().filter(is_program).collect();
    let mut reached = reached(&nodes, programs.iter().filter_map(|it| it["id"].as_str()))?;
    reached.retain(|id| packages.contains_key(id));
    let components: Option<Vec<Value>> =
        reached.iter().map(|id| component(packages.get(id)?, checksums)).collect();
    let dependencies: Option<Vec<Value>> =
        reached.iter().map(|id| dependency(nodes.get(id)?, &packages)).collect();
    let version = programs.first()?["version"].as_str()?;
    let name = format!("recoded@{version}");
    let roots: Option<Vec<String>> = programs.iter().map(|it| reference(it)).collect();
    let mut dependencies = dependencies?;
    dependencies.insert(0, json!({ "ref": name, "dependsOn": roots? }));
    Some(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": timestamp(seconds),
            "component": {
                "type": "application",
                "bom-ref": name,
                "name": "recoded",
                "version": version,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            },
        },
        "components": components?,
        "dependencies": dependencies,
    }))
}

fn by_id(value: &Value) -> Option<(&str, &Value)> {
    Some((value["id"].as_str()?, value))
}

/// Ids of all packages that are linked, in their order.
fn reached<'a>(
    nodes: &BTreeMap<&'a str, &'a Value>,
    roots: impl Iterator<Item = &'a str>,
) -> Option<BTreeSet<&'a str>> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = roots.collect();
    while let Some(id) = next.pop() {
        if reached.insert(id) {
            next.extend(linked(nodes.get(id)?)?);
        }
    }
    Some(reached)
}

/// Normal dependencies, without those of tests and build scripts.
fn linked(node: &Value) -> Option<Vec<&str>> {
    let is_normal = |it: &&Value| {
        it["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|it| it["kind"].is_null()))
    };
    node["deps"].as_array()?.iter().filter(is_normal).map(|it| it["pkg"].as_str()).collect()
}

/// The purl of a package, which names it throughout the document.
fn reference(package: &Value) -> Option<String> {
    Some(format!("pkg:cargo/{}@{}", package["name"].as_str()?, package["version"].as_str()?))
}

fn component(package: &Value, checksums: &BTreeMap<String, String>) -> Option<Value> {
    let (name, version) = (package["name"].as_str()?, package["version"].as_str()?);
    let purl = reference(package)?;
    let mut component = json!({
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "scope": "required",
        "purl": purl,
    });
    // Some crates have the older form with a slash.
    if let Some(license) = package["license"].as_str() {
        let expression = license.replace(" / ", "/").replace('/', " OR ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    if let Some(checksum) = checksums.get(&format!("{name}@{version}")) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    Some(component)
}

fn dependency(node: &Value, packages: &BTreeMap<&str, &Value>) -> Option<Value> {
    let of = |id: &&str| reference(packages.get(*id)?);
    let on: BTreeSet<String> = linked(node)?.iter().filter_map(of).collect();
    Some(json!({ "ref": of(&node["id"].as_str()?)?, "dependsOn": on }))
}

/// A time in UTC, as ISO 8601 has it. Source of the calendar: Howard Hinnant, "chrono-compatible
/// low-level date algorithms", `civil_from_days`.
fn timestamp(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(lines: &[&str]) -> BTreeSet<String> {
        lines.iter().filter_map(|line| name_and_version(line)).collect()
    }

    fn metadata() -> Value {
        let dep = |id: &str, kind: Value| json!({ "pkg": id, "dep_kinds": [{ "kind": kind }] });
        json!({
            "packages": [
                { "id": "a", "name": "recoded", "version": "0.1.0", "license": "MIT OR Apache-2.0" },
                { "id": "b", "name": "theirs", "version": "2.0.0", "license": "MIT/Apache-2.0" },
                { "id": "c", "name": "tests", "version": "1.0.0", "license": "MIT" },
                { "id": "d", "name": "deeper", "version": "1.0.0", "license": null },
            ],
            "resolve": { "nodes": [
                { "id": "a", "deps": [dep("b", Value::Null), dep("c", json!("dev"))] },
                { "id": "b", "deps": [dep("d", Value::Null), dep("c", json!("build"))] },
                { "id": "c", "deps": [] },
                { "id": "d", "deps": [] },
            ] },
        })
    }

    #[test]
    fn bill_lists_linked_crates_with_licences_and_checksums() {
        let lock = "version = 4\n\n[[package]]\nname = \"theirs\"\nversion = \"2.0.0\"\n\
                    source = \"registry\"\nchecksum = \"0f\"\n";
        let built = built(&["recoded v0.1.0 (/ours)", "theirs v2.0.0", "deeper v1.0.0"]);
        let bill = bill(&metadata(), &built, &checksums(lock), 0).expect("complete metadata");
        let names: Vec<&str> = bill["components"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|it| it["purl"].as_str())
            .collect();
        let expected =
            ["pkg:cargo/recoded@0.1.0", "pkg:cargo/theirs@2.0.0", "pkg:cargo/deeper@1.0.0"];
        assert_eq!(names, expected);
        assert_eq!(bill["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["components"][1]["hashes"][0]["content"], "0f");
        assert!(bill["components"][2].get("licenses").is_none());
        let of_theirs = json!({ "ref": expected[1], "dependsOn": [expected[2]] });
        assert!(bill["dependencies"].as_array().expect("a list").contains(&of_theirs));
    }

    #[test]
    fn bill_leaves_out_crates_that_no_program_has() {
        // `theirs` has `deeper` by a feature that only another crate of the workspace enables.
        let built = built(&["recoded v0.1.0 (/ours)", "theirs v2.0.0"]);
        let bill = bill(&metadata(), &built, &BTreeMap::new(), 0).expect("complete metadata");
        assert_eq!(bill["components"].as_array().map(Vec::len), Some(2));
        assert!(!bill.to_string().contains("deeper"), "{bill:#}");
    }

    #[test]
    fn bill_of_incomplete_metadata_is_none() {
        let metadata = json!({ "packages": [] });
        assert!(bill(&metadata, &BTreeSet::new(), &BTreeMap::new(), 0).is_none());
    }

    #[test]
    fn timestamp_has_leap_days() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(timestamp(1_735_689_599), "2024-12-31T23:59:59Z");
    }
}
