//! Chores of the repository that need more than a shell script: `cargo xtask ebpf`, `cargo xtask
//! tidy`, `cargo xtask sbom`, `cargo xtask audited`, `cargo xtask book`, `cargo xtask
//! errors`.
//!
//! Not on the path of any packet, and no crate depends on it. Reads and builds files below the
//! repository's root, and writes only the objects in `ebpf`, a folder for the book, the pages of
//! command lines and errors, and a bill of materials.

#![forbid(unsafe_code)]

mod audited;

mod book;

mod ebpf;

mod errors;

mod repository;

mod sbom;

mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use thiserror::Error;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = root();
    let outcome = match words[..] {
        ["ebpf"] => ebpf::install(&root),
        ["ebpf", "--check"] => ebpf::check(&root),
        ["tidy"] => tidy::run(&root),
        ["errors"] => repository::list_files(&root).and_then(|it| errors::write(&root, &it)),
        ["sbom", file] => sbom::write(&root, Path::new(file)),
        ["audited", bill, ref programs @ ..] if !programs.is_empty() => {
            let programs: Vec<&Path> = programs.iter().map(Path::new).collect();
            audited::check(&root, Path::new(bill), &programs)
        }
        ["book", "stage", folder] => book::stage(&root, Path::new(folder)),
        ["book", "links", folder] => book::check_html(Path::new(folder)),
        ["book", "shown", folder] => book::check_shown(&root, Path::new(folder), false),
        ["book", "shown", folder, "--write"] => book::check_shown(&root, Path::new(folder), true),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(message) => {
            println!("{message}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Reason for the failure of a chore, as displayed to the user.
#[derive(Debug, Error)]
enum TaskError {
    /// A program could not be started.
    #[error("cannot run {program}: {source}")]
    Start { program: String, source: std::io::Error },
    /// A program ran and failed.
    #[error("{program} failed ({status})")]
    Failed { program: String, status: std::process::ExitStatus },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// Unexpected output of a tool.
    #[error("{program} printed something unexpected: {reason}")]
    Output { program: &'static str, reason: String },
    /// A tool the eBPF build needs is absent or of another version.
    #[error("building the eBPF objects needs {what}; install it with\n    {install}")]
    Missing { what: String, install: &'static str },
    /// A committed object does not match its source.
    #[error(
        "{object} is not what its source builds to: {difference}.\n\
         Run `cargo xtask ebpf` and commit the object together with the source."
    )]
    Stale { object: String, difference: String },
    /// A program of a release and the bill of materials do not fit.
    #[error("{}: {reason}\nfix: {fix}", program.display())]
    Audited { program: PathBuf, reason: String, fix: &'static str },
    /// The repository breaks its own rules.
    #[error("{report}\ntidy: {count} finding(s); the rules are in scripts/xtask/README.md")]
    Untidy { report: String, count: usize },
}

/// The repository's root: this crate is two folders below it.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

fn read(path: &Path) -> Result<Vec<u8>, TaskError> {
    std::fs::read(path).map_err(|source| TaskError::File { path: path.to_path_buf(), source })
}

/// Runs a command and returns its standard output.
fn output(command: &mut std::process::Command) -> Result<String, TaskError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|source| TaskError::Start { program: program.clone(), source })?;
    if !output.status.success() {
        return Err(TaskError::Failed { program, status: output.status });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

const USAGE: &str = "\
usage: cargo xtask <task>

  ebpf          rebuild ebpf/recoded.bpf.o and ebpf/link.bpf.o from their sources
  ebpf --check  rebuild them elsewhere and fail when the committed ones differ
  tidy          check the rules of the repository that the compiler does not
  errors        write docs/reference/errors.md from the error messages of the sources
  sbom FILE     write the crates in the released programs as a CycloneDX bill of materials
  audited BILL PROGRAM...  compare the lists of crates in programs with Cargo.lock
  book stage DIR      copy the pages of the book into DIR, for mdBook (scripts/book)
  book links DIR      check the links of the built book in DIR
  book shown DIR      check commands and configurations in pages with the programs in DIR;
                      --write rewrites docs/reference/cli.md
";
