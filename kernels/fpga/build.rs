//! With the feature `fpga-sim`: translates `rtl` to C++ with Verilator and compiles it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Arguments for Verilator that change the engine's parameters: `-GLANES=8 -GW=8`.
const PARAMETERS: &str = "RECODED_FPGA_PARAMETERS";

/// Widths of coefficients and compute units of the paper's units in the simulation
/// (`sim/seed.cpp`). One of all experiments, the others for the widths alone.
const SEEDS: [(u8, u8); 4] = [(2, 8), (3, 1), (4, 1), (8, 1)];

fn main() {
    println!("cargo::rerun-if-changed=rtl");
    for file in ["shim.cpp", "seed.cpp", "schedule.cpp", "schedule.sv", "lint.vlt"] {
        println!("cargo::rerun-if-changed=sim/{file}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={PARAMETERS}");
    if env::var_os("CARGO_FEATURE_FPGA_SIM").is_none() {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where to build"));
    let out = out.join("verilated");
    // Files of an earlier, larger translation would be compiled, too.
    let _ = fs::remove_dir_all(&out);
    let Some(root) = verilator_root() else {
        println!(
            "cargo::error=the feature fpga-sim needs verilator 5 (Debian: apt-get install verilator)"
        );
        return;
    };
    let parameters = env::var(PARAMETERS).unwrap_or_default();
    let engine = Model {
        top: "rtl/engine.sv",
        prefix: "Vengine".into(),
        folder: "rtl",
        packages: ["layout_pkg.sv", "engine_pkg.sv"],
        parameters: parameters.split_whitespace().map(str::to_owned).collect(),
    };
    let mut seeds = Vec::from(SEEDS.map(|(bits, units)| Model {
        top: "rtl/seed/unit.sv",
        prefix: format!("Vseed{bits}"),
        folder: "rtl/seed",
        packages: ["seed_pkg.sv", "rom_pkg.sv"],
        parameters: vec![format!("-GBITS={bits}"), format!("-GCUS={units}")],
    }));
    seeds.push(Model {
        top: "sim/schedule.sv",
        prefix: "Vschedule".into(),
        folder: "rtl/seed",
        packages: ["seed_pkg.sv", "rom_pkg.sv"],
        parameters: Vec::new(),
    });
    let seeds: Vec<PathBuf> = seeds.iter().map(|seed| seed.translate(&out)).collect();
    compile(&engine.translate(&out), &seeds, &root);
}

/// A module to simulate, with those that it is made of.
struct Model {
    /// Its source, which has its name.
    top: &'static str,
    /// Of the names of its C++ files and classes.
    prefix: String,
    folder: &'static str,
    /// The sources that name no module; the others are found by the names of their modules.
    packages: [&'static str; 2],
    parameters: Vec<String>,
}

impl Model {
    /// Makes C++ of it. Warnings are errors.
    fn translate(&self, out: &Path) -> PathBuf {
        let Self { top, prefix, folder, packages, parameters } = self;
        let made = out.join(prefix);
        fs::create_dir_all(&made).expect("the build folder is writable");
        let name = Path::new(top).file_stem().expect("it is a file");
        let status = Command::new("verilator")
            .args(parameters)
            .args(["--cc", "-Wall", "-O3", "--x-assign", "fast", "--x-initial", "fast"])
            .args(["--noassert", "--output-split", "8000", "--prefix", prefix, "--Mdir"])
            .arg(&made)
            .arg("--top-module")
            .arg(name)
            .args(["sim/lint.vlt", "-y", folder])
            .args(packages.map(|package| format!("{folder}/{package}")))
            .arg(top)
            .status()
            .expect("verilator runs, as it has just done");
        assert!(status.success(), "verilator has complaints about {folder}");
        made
    }
}

/// Where the parts of Verilator lie that every simulation needs; `None` without Verilator.
fn verilator_root() -> Option<PathBuf> {
    let output = Command::new("verilator").args(["--getenv", "VERILATOR_ROOT"]).output().ok()?;
    let root = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(root.trim()))
}

fn compile(engine: &Path, seeds: &[PathBuf], root: &Path) {
    let include = root.join("include");
    let compiler = || {
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").opt_level(2).warnings(false).debug(false);
        build.include(&include).include(include.join("vltstd"));
        build
    };
    // Much code for few clocks: the compiler takes longer than the clocks.
    let mut build = compiler();
    build.opt_level(1).includes(seeds).files(["sim/seed.cpp", "sim/schedule.cpp"]);
    build.files(seeds.iter().flat_map(|folder| sources(folder))).compile("recoded_fpga_seed");
    let mut build = compiler();
    build.include(engine).file("sim/shim.cpp").files(sources(engine));
    let verilators = ["verilated.cpp", "verilated_threads.cpp"].map(|name| include.join(name));
    build.files(verilators).compile("recoded_fpga_engine");
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("verilator has written it");
    let paths = entries.map(|entry| entry.expect("the build folder is readable").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "cpp")).collect()
}
