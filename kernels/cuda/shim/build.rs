//! Compiles the device code for the CPU: the files of `../device`, and kernels of some Reed-Solomon
//! codes, which are written here as they are at run time for a card.

use std::path::Path;
use std::{env, fs};

use recoded_code::reed_solomon::ReedSolomon;

#[allow(dead_code)]
#[path = "../src/reed_solomon_source.rs"]
mod reed_solomon_source;

/// Codes k+m whose kernels the tests run.
const CODES: [(usize, usize); 7] = [(1, 1), (4, 2), (4, 3), (4, 4), (10, 4), (13, 5), (32, 16)];

fn main() {
    println!("cargo::rerun-if-changed=..");
    let out = env::var("OUT_DIR").expect("cargo says where to build");
    let list = Path::new(&out).join("reed_solomon.inc");
    fs::write(&list, kernels()).expect("the build folder is writable");
    let build = || {
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").opt_level(2).include(&out).include(".").warnings(true);
        // Its checked longjmp takes a switch of fibers for an error.
        build.flag("-U_FORTIFY_SOURCE");
        build
    };
    let kernels = build()
        .flag("-include")
        .flag("cuda.h")
        // All kernels have the same parameters.
        .flag("-Wno-unused-parameter")
        .flag("-Wno-unknown-pragmas")
        // Calls race.cpp at each access to memory; the sanitizer itself is not linked.
        .flag("-fsanitize=thread")
        .file("kernels.cpp")
        .compile_intermediates();
    build().file("fiber.cpp").file("race.cpp").objects(kernels).compile("recoded_cuda_shim");
    // For the stand-in driver, which has the same kernels.
    println!("cargo::metadata=FOLDER={out}");
}

fn kernels() -> String {
    let mut text = String::new();
    let mut names = Vec::new();
    for (data, parity) in CODES {
        let code = ReedSolomon::new(data, parity).expect("a small code");
        let name = format!("reed_solomon_{data}_{parity}");
        text += &reed_solomon_source::source(&name, code.generator(), data);
        names.push(format!("X({name})"));
    }
    text + "#define REED_SOLOMON_KERNELS(X) " + &names.join(" ") + "\n"
}
