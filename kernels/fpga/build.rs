//! With the feature `fpga-sim`: translates `rtl` to C++ with Verilator and compiles it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The sources that name no module; the others are found by the names of their modules.
const PACKAGES: [&str; 2] = ["layout_pkg.sv", "engine_pkg.sv"];

/// Arguments for Verilator that change the engine's parameters: `-GLANES=8 -GW=8`.
const PARAMETERS: &str = "RECODED_FPGA_PARAMETERS";

fn main() {
    println!("cargo::rerun-if-changed=rtl");
    println!("cargo::rerun-if-changed=sim");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={PARAMETERS}");
    if env::var_os("CARGO_FEATURE_FPGA_SIM").is_none() {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where to build"));
    let out = out.join("verilated");
    // Files of an earlier, larger translation would be compiled, too.
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out).expect("the build folder is writable");
    let Some(root) = verilator_root() else {
        println!(
            "cargo::error=the feature fpga-sim needs verilator 5 (Debian: apt-get install verilator)"
        );
        return;
    };
    translate(&out);
    compile(&out, &root);
}

/// Where the parts of Verilator lie that every simulation needs; `None` without Verilator.
fn verilator_root() -> Option<PathBuf> {
    let output = Command::new("verilator").args(["--getenv", "VERILATOR_ROOT"]).output().ok()?;
    let root = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(root.trim()))
}

/// Warnings are errors.
fn translate(out: &Path) {
    let parameters = env::var(PARAMETERS).unwrap_or_default();
    let status = Command::new("verilator")
        .args(parameters.split_whitespace())
        .args(["--cc", "-Wall", "-O3", "--x-assign", "fast", "--x-initial", "fast"])
        .args(["--noassert", "--output-split", "8000", "--top-module", "engine", "--Mdir"])
        .arg(out)
        .args(["sim/lint.vlt", "-y", "rtl"])
        .args(PACKAGES.map(|package| format!("rtl/{package}")))
        .arg("rtl/engine.sv")
        .status()
        .expect("verilator runs, as it has just done");
    assert!(status.success(), "verilator has complaints about rtl");
}

fn compile(out: &Path, root: &Path) {
    let include = root.join("include");
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(2).warnings(false).debug(false);
    build.include(out).include(&include).include(include.join("vltstd"));
    build.file("sim/shim.cpp");
    for name in ["verilated.cpp", "verilated_threads.cpp"] {
        build.file(include.join(name));
    }
    for entry in fs::read_dir(out).expect("verilator has written it") {
        let path = entry.expect("the build folder is readable").path();
        if path.extension().is_some_and(|extension| extension == "cpp") {
            build.file(path);
        }
    }
    build.compile("recoded_fpga_engine");
}
