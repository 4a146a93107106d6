//! The basic blocks, each by itself: every input in every state, compared with a reference
//! (`sim/blocks`). Injected faults must be found.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Runs a block compiled with its bench: returns the output, and whether block and reference agree.
/// The block is named by its path below `rtl`.
fn explore(path: &str, fault: Option<(&str, &str)>) -> (bool, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let block = path.rsplit('/').next().expect("a path has a last part");
    let name = format!("{block}-{}", if fault.is_some() { "faulty" } else { "right" });
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("blocks").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the build folder is writable");
    let source = fs::read_to_string(root.join(format!("rtl/{path}.sv"))).expect("the block");
    let source = fault.map_or(source.clone(), |(right, wrong)| {
        assert_eq!(source.matches(right).count(), 1, "{block}: what is to be changed: {right}");
        source.replace(right, wrong)
    });
    fs::write(folder.join(format!("{block}.sv")), source).expect("the build folder is writable");

    let top = format!("{block}_bench");
    let mut verilator = Command::new("verilator");
    verilator.args(["--cc", "-Wno-fatal", "-O3", "--no-timing", "--top-module", &top, "--Mdir"]);
    verilator.arg(&folder).arg("-y").arg(&folder).args(["-y", "rtl", "-y", "rtl/vendor"]);
    verilator.arg("-DVENDOR_CELLS");
    verilator.args(["rtl/layout_pkg.sv", "rtl/engine_pkg.sv"]);
    verilator.arg(format!("sim/blocks/{top}.sv")).current_dir(root);
    run(&mut verilator);
    let program = folder.join("bench");
    let mut compiler = compiler();
    compiler.arg("-I").arg(&folder).arg("-I").arg(root.join("sim/blocks"));
    compiler.arg(all_sources(&folder, &root.join(format!("sim/blocks/{block}.cpp"))));
    run(compiler.arg(library()).arg("-o").arg(&program));
    let output = Command::new(&program).output().expect("it was just built");
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    println!("{block}: {said}");
    (output.status.success(), said)
}

/// Verilator's own part, compiled once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join("verilated.o");
        let sources = ["verilated.cpp", "verilated_threads.cpp"];
        let sources = sources.map(|source| include().join(source));
        run(compiler().args(["-r", "-nostdlib"]).args(sources).arg("-o").arg(&object));
        object
    })
}

fn include() -> PathBuf {
    let mut verilator = Command::new("verilator");
    let output = verilator.args(["--getenv", "VERILATOR_ROOT"]).output().expect("it is installed");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).join("include")
}

fn compiler() -> Command {
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O1", "-pthread", "-I"]).arg(include());
    compiler.arg("-I").arg(include().join("vltstd"));
    compiler
}

/// A file that includes Verilator's output and the bench: one start of the compiler for all.
fn all_sources(folder: &Path, bench: &Path) -> PathBuf {
    let entries = fs::read_dir(folder).expect("verilator has written it");
    let paths = entries.map(|entry| entry.expect("it is readable").path());
    let made = paths.filter(|path| path.extension().is_some_and(|extension| extension == "cpp"));
    let lines = made.chain([bench.to_owned()]).map(|path| format!("#include {path:?}\n"));
    let text: String = lines.collect();
    let all = folder.join("all.cpp");
    fs::write(&all, text).expect("the build folder is writable");
    all
}

fn run(command: &mut Command) {
    let output = command.output().expect("it is installed, as the engine was built with it");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// It agrees with its reference in `states` states, and fails with each fault.
fn block_is_right(block: &str, states: &str, faults: &[(&str, &str)]) {
    let (is_right, said) = explore(block, None);
    assert!(is_right, "{said}");
    assert!(said.starts_with(states), "as many as were counted by hand: {said}");
    for fault in faults {
        let (is_right, said) = explore(block, Some(*fault));
        assert!(!is_right && said.starts_with("differs"), "{fault:?} is not noticed: {said}");
    }
}

/// Eight places of the first entry, 31 contents.
#[test]
fn fifo_is_right_in_every_state() {
    let faults = [("head <= head + (BITS+1)'(pop);", "head <= head + (BITS+1)'(pop && !push);")];
    block_is_right("fifo", "248 states", &faults);
}

/// Two places, 45 fillings, 3 lengths, 4 places with phases, 3 lengths.
#[test]
fn rings_are_right_in_every_state() {
    let faults = [
        ("32'(reserved) < DEPTH", "32'(reserved) <= DEPTH"),
        ("((completed >> completion_log2) & 32'd1) == 0", "((completed >> 2) & 32'd1) == 0"),
    ];
    block_is_right("rings", "3240 states", &faults);
}

/// The last owner, if any, and whether it still holds the bus.
#[test]
fn arbiter_is_right_in_every_state() {
    let faults = [
        ("behind <= ~(next | (next - 1))", "behind <= ~(next - 1)"),
        ("else if (release_grant) grant <= 0;", "else if (release_grant) grant <= next;"),
    ];
    block_is_right("seed/arbiter", "9 states", &faults);
}

/// Of every width; a polynomial and a chain that are wrong in one bit are found.
#[test]
fn multiplier_is_right_for_every_pair() {
    let faults = [
        ("logic [7:0] POLYNOMIAL = 8'h1D", "logic [7:0] POLYNOMIAL = 8'h1C"),
        ("i < BITS;", "i < BITS - 1;"),
    ];
    block_is_right("seed/multiplier", "65536 pairs", &faults);
}

/// Tables and products of every field, in the cells that synthesis uses: the simulation of the
/// engine has other memories in their place.
#[test]
fn tile_of_the_cards_cells_is_right() {
    let faults = [("sixth[a][3] = middle[1];", "sixth[a][3] = middle[2];")];
    block_is_right("tile", "128000 bytes", &faults);
}

/// The reader's accesses, their timing and order.
#[test]
fn reader_is_right_in_every_state() {
    let faults = [
        ("for (int i = 3; i >= 0; i--)", "for (int i = 0; i <= 3; i++)"),
        ("7'(chosen.beats) > to_boundary;", "7'(chosen.beats) > to_boundary + 7'd1;"),
    ];
    block_is_right("reader", "552 states", &faults);
}
