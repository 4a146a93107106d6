//! `cargo xtask audited`: crates that programs of a release list in themselves (`cargo auditable`),
//! compared with `Cargo.lock` and the bill of materials.
//!
//! Reads programs, a bill and the lock file, and writes nothing. A crate of a program that the
//! lock file lacks is a failure: the program was built of other sources. `cargo auditable` asks
//! cargo for the crates of the whole workspace, so lists may name crates of features that a program
//! lacks; the bill does not. The last line has the number of crates of the bill that these programs
//! list.

use std::collections::BTreeSet;
use std::path::Path;

use auditable_info::{Limits, json_from_file};
use serde_json::Value;

use crate::{TaskError, read, sbom};

/// Bytes of a program, and of its list. Programs have 15 MB at most, lists some 50 kB.
const LIMITS: Limits = Limits { input_file_size: 256 << 20, decompressed_json_size: 4 << 20 };

/// Compares programs with the lock file, and with a bill of materials in CycloneDX.
pub fn check(root: &Path, bill: &Path, programs: &[&Path]) -> Result<String, TaskError> {
    let lock = String::from_utf8_lossy(&read(&root.join("Cargo.lock"))?).into_owned();
    let known: BTreeSet<String> = sbom::checksums(&lock).into_keys().collect();
    let bill = third_party(&parse(bill, &read(bill)?)?);
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
                reason: format!("it has {missing}, which Cargo.lock lacks"),
                fix: "build it of these sources, without --no-build",
            });
        }
        println!("{}: {} crates of others, all in Cargo.lock", program.display(), crates.len());
        found.extend(crates);
    }
    let both = bill.intersection(&found).count();
    Ok(format!("{both} of {} crates of others in the bill are in these programs", bill.len()))
}

fn parse(path: &Path, text: &[u8]) -> Result<Value, TaskError> {
    serde_json::from_slice(text).map_err(|error| TaskError::Audited {
        program: path.to_path_buf(),
        reason: format!("it is no JSON: {error}"),
        fix: "make it again",
    })
}

/// Packages of others in a bill, as `name@version`: they have a checksum.
fn third_party(bill: &Value) -> BTreeSet<String> {
    let components = bill["components"].as_array().into_iter().flatten();
    let of_others = components.filter(|it| it["hashes"].is_array());
    of_others
        .filter_map(|it| Some(it["purl"].as_str()?.strip_prefix("pkg:cargo/")?.to_owned()))
        .collect()
}

/// Packages of others that a program is linked of, as `name@version`. A `kind` is written for build
/// scripts and macros only.
fn linked(list: &Value) -> BTreeSet<String> {
    let packages = list["packages"].as_array().into_iter().flatten();
    let is_linked = |it: &&Value| it["kind"].as_str().is_none_or(|kind| kind == "runtime");
    let name = |it: &Value| Some(format!("{}@{}", it["name"].as_str()?, it["version"].as_str()?));
    packages.filter(is_linked).filter(|it| it["source"] != "local").filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn linked_leaves_out_ours_and_build_scripts() {
        let list = json!({ "packages": [
            { "name": "ours", "version": "0.1.0", "source": "local", "root": true },
            { "name": "theirs", "version": "2.0.0", "source": "crates.io" },
            { "name": "macros", "version": "1.0.0", "source": "crates.io", "kind": "build" },
        ] });
        let names: Vec<String> = linked(&list).into_iter().collect();
        assert_eq!(names, ["theirs@2.0.0"]);
    }

    #[test]
    fn check_program_without_list_is_refused() {
        let program = std::env::current_exe().expect("the test program");
        let bill = std::env::temp_dir().join(format!("recoded-bill-{}", std::process::id()));
        std::fs::write(&bill, "{}").expect("a bill");
        let outcome = check(&crate::root(), &bill, &[&program]);
        std::fs::remove_file(&bill).expect("the bill");
        let error = outcome.expect_err("it has no list");
        assert!(error.to_string().contains("cargo auditable"), "{error}");
    }
}
