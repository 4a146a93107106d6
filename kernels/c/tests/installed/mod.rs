//! The library, installed below a temporary folder by `scripts/c-library`, and the C compiler.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Warnings are errors, in the library's headers as well.
const OPTIONS: [&str; 7] = ["-std=c99", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pedantic"];

/// What native code of Rust's standard library needs, as `recoded.pc.in` lists it.
const STATIC_NEEDS: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

/// How a program gets the library.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Linked {
    /// When it starts.
    Shared,
    /// It contains it.
    Static,
}

/// The installed library.
pub struct Installed {
    folder: TempDir,
}

impl Installed {
    /// Installs what cargo built for this test: `None`, with a line that says so, if there is no C
    /// compiler.
    pub fn new() -> Option<Self> {
        if Command::new(compiler()).arg("--version").output().is_err() {
            println!("skipped: no C compiler ({})", compiler().display());
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let test = env::current_exe().expect("the path of this test");
        let built = test.parent().expect("the folder of tests and libraries");
        let mut script = Command::new(root().join("scripts/c-library"));
        script.arg("--prefix").arg(folder.path()).arg("--built").arg(built);
        run(&mut script);
        Some(Self { folder })
    }

    /// The folder that it is installed in.
    pub fn prefix(&self) -> &Path {
        self.folder.path()
    }

    /// Compiles a program with `arguments` behind its source.
    pub fn compile(&self, source: &Path, name: &str, arguments: &[OsString]) -> PathBuf {
        let program = self.prefix().join(name);
        let mut command = Command::new(compiler());
        command.args(OPTIONS).arg("-o").arg(&program).arg(source).args(arguments);
        run(&mut command);
        program
    }

    /// Arguments of the compiler that link the library.
    pub fn arguments(&self, linked: Linked) -> Vec<OsString> {
        let (include, library) = (self.prefix().join("include"), self.prefix().join("lib"));
        let mut arguments = vec!["-I".into(), include.into()];
        match linked {
            Linked::Shared => arguments.extend(["-L".into(), library.into(), "-lrecoded".into()]),
            Linked::Static => {
                arguments.push(library.join("librecoded.a").into());
                arguments.extend(STATIC_NEEDS.map(OsString::from));
            }
        }
        arguments
    }

    /// Runs a program with the shared library in reach, and returns its output.
    pub fn run(&self, program: &Path, arguments: &[String]) -> String {
        let mut command = Command::new(program);
        command.args(arguments).env("LD_LIBRARY_PATH", self.prefix().join("lib"));
        run(&mut command)
    }
}

/// Runs a command that has to succeed, and returns its output.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The C compiler: `CC`, or `cc`.
pub fn compiler() -> OsString {
    env::var_os("CC").unwrap_or_else(|| "cc".into())
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
