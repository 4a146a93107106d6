//! Builds `libcuda.so.1` of `driver.cpp` and the kernels of the shim.

use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=driver.cpp");
    println!("cargo::rerun-if-changed=nvrtc.cpp");
    println!("cargo::rerun-if-changed=../job.h");
    println!("cargo::rerun-if-changed=../shim/fiber.h");
    let out = env::var("OUT_DIR").expect("cargo says where to build");
    let kernels = env::var("DEP_RECODED_CUDA_SHIM_FOLDER").expect("the shim says where it is");
    let folder = Path::new(&out).join("lib");
    fs::create_dir_all(&folder).expect("the build folder is writable");
    let library = folder.join("libcuda.so.1");
    let compiler =
        cc::Build::new().cpp(true).std("c++17").opt_level(2).warnings(true).get_compiler();
    let status = compiler
        .to_command()
        .args(["-shared", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Wl,-Bsymbolic", "-o"])
        .arg(&library)
        .arg("driver.cpp")
        .arg(format!("-L{kernels}"))
        .arg("-lrecoded_cuda_shim")
        .status()
        .expect("there is a C++ compiler");
    assert!(status.success(), "the stand-in driver does not compile");
    // The name that is looked for first.
    fs::copy(&library, folder.join("libcuda.so")).expect("the build folder is writable");
    println!("cargo::rustc-env=RECODED_STANDIN_FOLDER={}", folder.display());

    // Next to it, so that NVIDIA's own can replace it.
    let folder = Path::new(&out).join("nvrtc");
    fs::create_dir_all(&folder).expect("the build folder is writable");
    let status = compiler
        .to_command()
        .args(["-shared", "-fPIC", "-Wall", "-Wextra", "nvrtc.cpp", "-o"])
        .arg(folder.join("libnvrtc.so"))
        .status()
        .expect("there is a C++ compiler");
    assert!(status.success(), "the stand-in for NVRTC does not compile");
    println!("cargo::rustc-env=RECODED_NVRTC_FOLDER={}", folder.display());

    // A library of the same name that has none of the functions, as some containers have.
    let folder = Path::new(&out).join("stub");
    fs::create_dir_all(&folder).expect("the build folder is writable");
    let status = compiler
        .to_command()
        .args(["-shared", "-fPIC", "-x", "c++", "/dev/null", "-o"])
        .arg(folder.join("libcuda.so"))
        .status()
        .expect("there is a C++ compiler");
    assert!(status.success(), "nothing does not compile");
    println!("cargo::rustc-env=RECODED_STUB_FOLDER={}", folder.display());
}
