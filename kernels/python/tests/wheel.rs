//! The wheel, built by `scripts/python-wheel`, installed by pip into an environment of its own, and
//! used there by `round_trips.py` and by the examples of the documentation.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// The first whose stable ABI has buffers.
const MINOR_MIN: u32 = 11;

#[test]
fn installed_wheel_passes_its_tests_in_python() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(python) = installed(&folder) else { return };
    let numpy = output(pip(&python).args(["--only-binary", ":all:", "numpy"]));
    if !numpy.status.success() {
        println!("skipped: arrays, as NumPy cannot be installed");
    }
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/round_trips.py");
    println!("{}", run(Command::new(&python).arg(tests)));

    let page = std::fs::read_to_string(root().join("docs/libraries.md")).expect("the page");
    let examples = page.split("```python\n").skip(1).filter_map(|rest| rest.split("```").next());
    let examples: Vec<&str> = examples.collect();
    assert!(!examples.is_empty(), "the page has examples");
    for example in examples {
        run(Command::new(&python).args(["-c", example]));
    }
}

/// An environment with the wheel: its Python. `None`, with a line that says why, where something of
/// Python is missing.
fn installed(folder: &TempDir) -> Option<PathBuf> {
    let version = "import sys; print(sys.version_info[1] if sys.version_info[0] == 3 else 0)";
    let found = Command::new("python3").args(["-c", version]).output();
    let minor = found.ok().and_then(|it| String::from_utf8(it.stdout).ok()?.trim().parse().ok());
    if minor.is_none_or(|minor: u32| minor < MINOR_MIN) {
        println!("skipped: no Python 3.{MINOR_MIN} or later");
        return None;
    }
    let environment = folder.path().join("environment");
    if !output(Command::new("python3").args(["-m", "venv"]).arg(&environment)).status.success() {
        println!("skipped: python3 cannot make an environment (python3-venv)");
        return None;
    }
    let wheels = folder.path().join("wheels");
    let mut script = Command::new(root().join("scripts/python-wheel"));
    let built = output(script.args(["--profile", "dev", "--out"]).arg(&wheels));
    let errors = String::from_utf8_lossy(&built.stderr);
    if errors.contains("maturin could not be fetched") {
        println!("skipped: maturin could not be fetched");
        return None;
    }
    assert!(built.status.success(), "{errors}");
    let wheel = String::from_utf8(built.stdout).expect("a path").trim().to_owned();
    assert!(wheel.contains("-cp311-abi3-"), "{wheel} is for later versions as well");
    let python = environment.join("bin/python");
    run(pip(&python).args(["--no-index", &wheel]));
    Some(python)
}

fn pip(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Runs a command that has to succeed, and returns its output.
fn run(command: &mut Command) -> String {
    let output = output(command);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
