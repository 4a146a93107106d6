//! C programs, compiled with the installed headers, linked with the shared and with the static
//! library, and run. `RECODED_SEED` repeats a run; the seed is printed.

mod common;

mod installed;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::seed;
use installed::{Installed, Linked, root, run};

/// Stripes and generations of a run, which takes less than a second.
const ROUNDS: usize = 100;

#[test]
fn gibraltars_example_recovers_random_losses() {
    run_linked_both_ways("gibraltar", "100 stripes recovered\n");
}

#[test]
fn stripes_anywhere_in_memory_are_recovered() {
    run_linked_both_ways("reed_solomon", "100 stripes recovered\n");
}

#[test]
fn generations_pass_two_relays_that_recode() {
    run_linked_both_ways("rlnc", "100 generations delivered\n");
}

fn run_linked_both_ways(name: &str, expected: &str) {
    let Some(installed) = Installed::new() else { return };
    let arguments = [seed().to_string(), ROUNDS.to_string()];
    for linked in [Linked::Shared, Linked::Static] {
        let program = installed.compile(&source(name), name, &installed.arguments(linked));
        assert_eq!(installed.run(&program, &arguments), expected, "{linked:?}");
    }
}

#[test]
fn program_builds_against_the_installed_folder_by_pkg_config() {
    let Some(installed) = Installed::new() else { return };
    let pkg_config = |options: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.args(options).arg("recoded");
        command.env("PKG_CONFIG_PATH", installed.prefix().join("lib/pkgconfig"));
        command
    };
    if pkg_config(&["--version"]).output().is_err() {
        println!("skipped: no pkg-config");
        return;
    }
    assert_eq!(run(&mut pkg_config(&["--modversion"])).trim(), env!("CARGO_PKG_VERSION"));
    let words = |text: String| text.split_whitespace().map(OsString::from).collect::<Vec<_>>();
    let shared = words(run(&mut pkg_config(&["--cflags", "--libs"])));
    let program = installed.compile(&source("rlnc"), "rlnc", &shared);
    assert_eq!(installed.run(&program, &[]), "1 generations delivered\n");
    // With the static library, the test of programs links the rest of the list.
    let all = run(&mut pkg_config(&["--static", "--libs"]));
    for needed in ["-lpthread", "-lm", "-ldl"] {
        assert!(all.split_whitespace().any(|word| word == needed), "{needed} in {all}");
    }
}

#[test]
fn headers_are_valid_cpp() {
    let Some(installed) = Installed::new() else { return };
    let mut command = Command::new("c++");
    if command.arg("--version").output().is_err() {
        println!("skipped: no C++ compiler");
        return;
    }
    let include = installed.prefix().join("include");
    let mut command = Command::new("c++");
    command.args(["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"]);
    run(command.arg("-I").arg(&include).arg(include.join("gibraltar.h")));
}

#[test]
fn shared_library_exports_its_own_names_only() {
    let Some(installed) = Installed::new() else { return };
    let library = installed.prefix().join("lib/librecoded.so");
    let mut nm = Command::new("nm");
    if nm.arg("--version").output().is_err() {
        println!("skipped: no nm");
        return;
    }
    let names = run(Command::new("nm").args(["-D", "--defined-only", "-P"]).arg(&library));
    let names: Vec<&str> = names.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"gib_recover") && names.contains(&"recoded_rlnc_decoder_next"));
    let foreign = names.iter().filter(|it| !it.starts_with("recoded_") && !it.starts_with("gib_"));
    assert_eq!(foreign.collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn programs_name_the_library_with_the_version_of_its_abi() {
    let Some(installed) = Installed::new() else { return };
    let arguments = installed.arguments(Linked::Shared);
    let program = installed.compile(&source("rlnc"), "rlnc", &arguments);
    let bytes = std::fs::read(program).expect("the program");
    let name = format!("librecoded.so.{}\0", recoded_c::RECODED_ABI_VERSION);
    assert!(bytes.windows(name.len()).any(|window| window == name.as_bytes()), "{name}");
}

#[test]
fn examples_of_the_documentation_compile_and_run() {
    let Some(installed) = Installed::new() else { return };
    let page = std::fs::read_to_string(root().join("docs/libraries.md")).expect("the page");
    let examples: Vec<&str> =
        page.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!examples.is_empty(), "the page has examples");
    for (number, example) in examples.into_iter().enumerate() {
        let source = installed.prefix().join(format!("example{number}.c"));
        std::fs::write(&source, example).expect("a writable folder");
        let arguments = installed.arguments(Linked::Shared);
        let program = installed.compile(&source, &format!("example{number}"), &arguments);
        installed.run(&program, &[]);
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension("c")
}
