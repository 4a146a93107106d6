//! Builds the eBPF objects, or checks that the committed ones match their sources.
//!
//! The build uses the pinned stable compiler with one unstable switch enabled (RUSTC_BOOTSTRAP=1,
//! to build `core` for a target without one) and bpf-linker, which uses that compiler's own LLVM.
//! Without debug information the result depends on these two and on the sources, not on the folder,
//! so a comparison of bytes is enough.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{TaskError, output, read};

/// Rebuilds the objects in place.
pub fn install(root: &Path) -> Result<String, TaskError> {
    let built = build(root)?;
    let mut lines = Vec::new();
    for (binary, name) in OBJECTS {
        let bytes = read(&built.join(binary))?;
        let path = root.join("ebpf").join(name);
        std::fs::write(&path, &bytes)
            .map_err(|source| TaskError::File { path: path.clone(), source })?;
        lines.push(format!("ebpf/{name}: {} bytes", bytes.len()));
    }
    Ok(lines.join("\n"))
}

/// Rebuilds the objects in the build directory and compares them with the committed ones.
pub fn check(root: &Path) -> Result<String, TaskError> {
    let built = build(root)?;
    for (binary, name) in OBJECTS {
        let fresh = read(&built.join(binary))?;
        let committed = read(&root.join("ebpf").join(name))?;
        if let Some(difference) = difference(&committed, &fresh) {
            return Err(TaskError::Stale { object: format!("ebpf/{name}"), difference });
        }
    }
    Ok("ebpf: the committed objects are what their sources give".into())
}

/// Builds all programs; the folder that holds the results.
fn build(root: &Path) -> Result<PathBuf, TaskError> {
    let ebpf = root.join("ebpf");
    let path = search_path();
    check_tools(&ebpf, &path)?;
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |folder| root.join(folder))
        .join("ebpf");
    let mut cargo = Command::new("cargo");
    // Settings of the caller for host builds must not reach this one: the bytes would differ.
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if name.starts_with("CARGO_PROFILE_")
            || name.ends_with("RUSTFLAGS")
            || name == "CARGO_BUILD_TARGET"
        {
            cargo.env_remove(&variable);
        }
    }
    cargo
        .args(["build", "--quiet", "--release", "--locked", "-Z", "build-std=core"])
        .args(["--target", TARGET, "--target-dir"])
        .arg(&target)
        .current_dir(&ebpf)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("PATH", path);
    output(&mut cargo)?;
    Ok(target.join(TARGET).join("release"))
}

fn check_tools(ebpf: &Path, path: &OsString) -> Result<(), TaskError> {
    let missing = |what: String| TaskError::Missing { what, install: INSTALL_LINKER };
    let version = Command::new("bpf-linker").arg("--version").env("PATH", path).output();
    let found = match version {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_string(),
        Err(_) => return Err(missing(format!("bpf-linker {LINKER_VERSION}"))),
    };
    if found.split_whitespace().last() != Some(LINKER_VERSION) {
        return Err(missing(format!("bpf-linker {LINKER_VERSION}, not `{found}`")));
    }
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]).current_dir(ebpf))?;
    let core = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/Cargo.toml");
    if !core.is_file() {
        let what = "the sources of `core` for the pinned compiler".into();
        return Err(TaskError::Missing { what, install: INSTALL_SOURCES });
    }
    Ok(())
}

/// PATH, with cargo's own binary folder behind it: `cargo install` puts bpf-linker there.
fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    if let Some(home) = home {
        path.push(":");
        path.push(home.join("bin"));
    }
    path
}

/// How two objects differ, in words.
fn difference(committed: &[u8], fresh: &[u8]) -> Option<String> {
    if committed == fresh {
        return None;
    }
    let equal = committed.iter().zip(fresh).take_while(|(old, new)| old == new).count();
    Some(format!(
        "{} bytes committed, {} bytes built, first difference at byte {equal}",
        committed.len(),
        fresh.len()
    ))
}

const TARGET: &str = "bpfel-unknown-none";
/// Binary of the ebpf workspace, object in the tree.
const OBJECTS: [(&str, &str); 3] =
    [("recoded", "recoded.bpf.o"), ("link", "link.bpf.o"), ("load", "load.bpf.o")];
/// The newest bpf-linker that loads the LLVM of the pinned compiler. Other versions produce other
/// bytes.
const LINKER_VERSION: &str = "0.10.3";
const INSTALL_LINKER: &str = "cargo install bpf-linker@0.10.3 --locked";
const INSTALL_SOURCES: &str = "rustup component add rust-src";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_equal_objects_none() {
        assert_eq!(difference(b"same", b"same"), None);
    }

    #[test]
    fn difference_changed_byte_and_length_named() {
        let text = difference(b"abcd", b"abXde").expect("a difference");
        assert_eq!(text, "4 bytes committed, 5 bytes built, first difference at byte 2");
    }

    #[test]
    fn install_hint_names_the_pinned_linker() {
        assert!(INSTALL_LINKER.contains(LINKER_VERSION));
    }
}
