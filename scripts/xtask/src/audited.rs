//! `cargo xtask audited`: crates that programs of a release list in themselves (`cargo auditable`),
//! compared with the bill of materials.
//!
//! Reads programs and a bill, and writes nothing. A crate of a program that the bill lacks is a
//! failure; the bill may have more, as programs for routers have fewer features. Crates of build
//! scripts and macros are in no program.

use std::collections::BTreeSet;
use std::path::Path;

use auditable_info::{Limits, json_from_file};
use serde_json::Value;

use crate::{TaskError, read};

/// Bytes of a program, and of its list. Programs have 15 MB at most, lists some 50 kB.
const LIMITS: Limits = Limits { input_file_size: 256 << 20, decompressed_json_size: 4 << 20 };

/// Compares programs with a bill of materials in CycloneDX.
pub fn check(bill: &Path, programs: &[&Path]) -> Result<String, TaskError> {
    let known = purls(&parse(bill, &read(bill)?)?);
    let mut found = BTreeSet::new();
    for program in programs {
        let list = json_from_file(program, LIMITS).map_err(|error| TaskError::Audited {
            program: program.to_path_buf(),
            reason: format!("its list of crates cannot be read: {error}"),
            fix: "build it with `cargo auditable build`",
        })?;
        let crates = linked(&parse(program, list.as_bytes())?);
        if let Some(missing) = crates.difference(&known).next() {
            return Err(TaskError::Audited {
                program: program.to_path_buf(),
                reason: format!("it has {missing}, which {} lacks", bill.display()),
                fix: "make both of the same sources; xtask/src/sbom.rs writes the bill",
            });
        }
        println!("{}: {} crates, all in the bill", program.display(), crates.len());
        found.extend(crates);
    }
    Ok(format!("{} of {} crates of the bill are in these programs", found.len(), known.len()))
}

fn parse(path: &Path, text: &[u8]) -> Result<Value, TaskError> {
    serde_json::from_slice(text).map_err(|error| TaskError::Audited {
        program: path.to_path_buf(),
        reason: format!("it is no JSON: {error}"),
        fix: "make it again",
    })
}

/// Packages of a bill, by their purl.
fn purls(bill: &Value) -> BTreeSet<String> {
    let components = bill["components"].as_array().into_iter().flatten();
    components.filter_map(|it| Some(it["purl"].as_str()?.to_owned())).collect()
}

/// Packages that a program is linked of, by their purl. A `kind` is written for others only.
fn linked(list: &Value) -> BTreeSet<String> {
    let packages = list["packages"].as_array().into_iter().flatten();
    let is_linked = |it: &&Value| it["kind"].as_str().is_none_or(|kind| kind == "runtime");
    let purl = |it: &Value| {
        Some(format!("pkg:cargo/{}@{}", it["name"].as_str()?, it["version"].as_str()?))
    };
    packages.filter(is_linked).filter_map(purl).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn linked_leaves_out_crates_of_build_scripts() {
        let list = json!({ "packages": [
            { "name": "ours", "version": "0.1.0", "source": "local", "root": true },
            { "name": "theirs", "version": "2.0.0", "source": "crates.io" },
            { "name": "macros", "version": "1.0.0", "source": "crates.io", "kind": "build" },
        ] });
        let names: Vec<String> = linked(&list).into_iter().collect();
        assert_eq!(names, ["pkg:cargo/ours@0.1.0", "pkg:cargo/theirs@2.0.0"]);
    }

    #[test]
    fn check_program_without_list_is_refused() {
        let program = std::env::current_exe().expect("the test program");
        let bill = std::env::temp_dir().join(format!("recoded-bill-{}", std::process::id()));
        std::fs::write(&bill, "{}").expect("a bill");
        let outcome = check(&bill, &[&program]);
        std::fs::remove_file(&bill).expect("the bill");
        let error = outcome.expect_err("it has no list");
        assert!(error.to_string().contains("cargo auditable"), "{error}");
    }
}
