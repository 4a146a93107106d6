//! Names the shared library by the version of its ABI, so that programs keep the one they were
//! linked with.

#[path = "src/abi_version.rs"]
mod abi_version;

fn main() {
    println!("cargo::rerun-if-changed=src/abi_version.rs");
    let version = abi_version::RECODED_ABI_VERSION;
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librecoded.so.{version}");
}
