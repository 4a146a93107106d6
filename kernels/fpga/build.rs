//! With the feature `fpga-sim`: translates `rtl` to C++ with Verilator and compiles it, once for
//! all builds of a profile: programs with other features, tests and lints have build scripts of
//! their own, which would all make the same.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::{env, fs};

/// Arguments for Verilator that change the engine's parameters: `-GLANES=8`.
const PARAMETERS: &str = "RECODED_FPGA_PARAMETERS";

/// Widths of coefficients and compute units of the paper's units in the simulation
/// (`sim/seed.cpp`). One of all experiments, the others for the widths alone.
const SEEDS: [(u8, u8); 4] = [(2, 8), (3, 1), (4, 1), (8, 1)];

/// In link order: Verilator's parts, which both need, are in the second.
const LIBRARIES: [&str; 2] = [SEED, ENGINE];
const SEED: &str = "recoded_fpga_seed";
const ENGINE: &str = "recoded_fpga_engine";

fn main() {
    println!("cargo::rerun-if-changed=rtl");
    println!("cargo::rerun-if-changed=sim");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={PARAMETERS}");
    if env::var_os("CARGO_FEATURE_FPGA_SIM").is_none() {
        return;
    }
    let Some((root, version)) = verilator() else {
        println!(
            "cargo::error=the feature fpga-sim needs verilator 5 (Debian: apt-get install verilator)"
        );
        return;
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where to build"));
    // target/debug/build/recoded-fpga-*/out
    let profile = out.ancestors().nth(3).expect("cargo's folders").join("recoded-fpga-sim");
    let made = profile.join(format!("{:016x}", fingerprint(&version)));
    if !made.exists() {
        let unfinished = profile.join(format!("unfinished-{}", process::id()));
        fs::create_dir_all(&unfinished).expect("the build folder is writable");
        make(&unfinished, &root);
        // Another build may have made the same meanwhile.
        let is_first = fs::rename(&unfinished, &made).is_ok();
        assert!(is_first || made.exists(), "{made:?} cannot be made");
        let _ = fs::remove_dir_all(&unfinished);
    }
    // So that it is made again when it is gone.
    println!("cargo::rerun-if-changed={}", made.display());
    println!("cargo::rustc-link-search=native={}", made.display());
    for library in LIBRARIES {
        println!("cargo::rustc-link-lib=static={library}");
    }
    println!("cargo::rustc-link-lib=stdc++");
}

/// Of everything that the libraries are made of.
fn fingerprint(verilator: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let variables = [PARAMETERS, "TARGET", "CXX", "CXXFLAGS"].map(env::var_os);
    (verilator, variables).hash(&mut hasher);
    let mut folders = vec![PathBuf::from("rtl"), PathBuf::from("sim")];
    let mut files = vec![PathBuf::from("build.rs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the sources are readable") {
            let path = entry.expect("the sources are readable").path();
            // Benches of blocks are compiled by the tests.
            if path.is_dir() && path != Path::new("sim/blocks") {
                folders.push(path);
            } else if path.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    for path in files {
        (fs::read(&path).expect("the sources are readable"), path).hash(&mut hasher);
    }
    hasher.finish()
}

/// Translates and compiles everything into `out`.
fn make(out: &Path, root: &Path) {
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
    let folder = out.join("verilated");
    let seeds: Vec<PathBuf> = seeds.iter().map(|seed| seed.translate(&folder)).collect();
    compile(&engine.translate(&folder), &seeds, root, out);
    fs::remove_dir_all(&folder).expect("it was just made");
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

/// Where the parts of Verilator lie that every simulation needs, and which version it is; `None`
/// without Verilator.
fn verilator() -> Option<(PathBuf, String)> {
    let ask = |arguments: &[&str]| {
        let output = Command::new("verilator").args(arguments).output().ok()?;
        let said = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| said.trim().to_owned())
    };
    Some((PathBuf::from(ask(&["--getenv", "VERILATOR_ROOT"])?), ask(&["--version"])?))
}

fn compile(engine: &Path, seeds: &[PathBuf], root: &Path, out: &Path) {
    let include = root.join("include");
    let compiler = || {
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").opt_level(2).warnings(false).debug(false);
        build.cargo_metadata(false).out_dir(out);
        build.include(&include).include(include.join("vltstd"));
        build
    };
    // Much code for few clocks: the compiler takes longer than the clocks.
    let mut build = compiler();
    build.opt_level(1).includes(seeds).files(["sim/seed.cpp", "sim/schedule.cpp"]);
    build.files(seeds.iter().flat_map(|folder| sources(folder))).compile(SEED);
    let mut build = compiler();
    build.include(engine).file("sim/shim.cpp").files(sources(engine));
    let verilators = ["verilated.cpp", "verilated_threads.cpp"].map(|name| include.join(name));
    build.files(verilators).compile(ENGINE);
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("verilator has written it");
    let paths = entries.map(|entry| entry.expect("the build folder is readable").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "cpp")).collect()
}
