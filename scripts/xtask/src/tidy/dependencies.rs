//! Direction of dependencies: the packet path never imports anything outside it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::Finding;
use crate::{TaskError, output};

/// Data about a crate of the workspace that the checks need.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Package {
    /// Name of the package.
    pub name: String,
    /// Its folder, relative to the root.
    pub folder: String,
    /// Source files of its libraries and binaries, relative to the root.
    pub root_files: Vec<String>,
    /// Crates of the workspace it depends on, for any purpose.
    pub imports: Vec<String>,
}

/// Workspace crates that a crate may depend on.
enum Allowed {
    Only(&'static [&'static str]),
    Everything,
}

/// The direction of the path: ebpf -> xsk, pipeline, runtime -> kernels; control is outside.
const DIRECTIONS: [(&str, Allowed); 40] = [
    // Names and meanings of counters, for the programs that count and those that display. The
    // verdicts of the XDP program are in a crate that it can depend on.
    ("recoded-counters", Allowed::Only(&["recoded-wire"])),
    ("recoded-wire", Allowed::Only(&[])),
    ("recoded-gf", Allowed::Only(&[])),
    ("recoded-api", Allowed::Only(&[])),
    // Small, because it runs next to every daemon. The daemon's program interprets the
    // configuration. A test of it is a benchmark.
    ("recoded-agent", Allowed::Only(&["recoded-api", "recoded-secure", "bench-json"])),
    // Carries bytes of sockets over a tunnel; it meets no coded packet.
    ("recoded-split", Allowed::Only(&["recoded-counters", "recoded-syscalls"])),
    // Which system calls two programs keep.
    ("recoded-syscalls", Allowed::Only(&[])),
    // A program of its own: segments of files over UDP, without the tunnel.
    ("recoded-swarm", Allowed::Only(&["recoded-gf", "recoded-code"])),
    ("recoded-host", Allowed::Only(&[])),
    // Measures paths by itself; of the codes it needs only the theory.
    ("recoded-plan", Allowed::Only(&["recoded-code", "recoded-gf"])),
    ("recoded-code", Allowed::Only(&["recoded-gf"])),
    // Knows engines, not devices: the owner of a queue selects its engine.
    ("recoded-offload", Allowed::Only(&["recoded-gf", "recoded-code", "recoded-counters"])),
    // Codes with their payloads, and the bindings that call them.
    ("recoded-library", Allowed::Only(&["recoded-gf", "recoded-code"])),
    ("recoded-c", Allowed::Only(&["recoded-code", "recoded-library"])),
    ("recoded-python", Allowed::Only(&["recoded-code", "recoded-library"])),
    (
        "recoded-cuda",
        Allowed::Only(&[
            "recoded-gf",
            "recoded-code",
            "recoded-offload",
            "recoded-cuda-shim",
            "recoded-cuda-standin",
        ]),
    ),
    // For the tests of the previous crate; its build generates Reed-Solomon kernels.
    ("recoded-cuda-shim", Allowed::Only(&["recoded-code"])),
    ("recoded-cuda-standin", Allowed::Only(&["recoded-cuda-shim"])),
    ("recoded-fpga", Allowed::Only(&["recoded-gf", "recoded-code", "recoded-offload"])),
    // Not on the path, because it brings a solver. The dataplane must not depend on it.
    ("recoded-degrees", Allowed::Only(&["recoded-gf", "recoded-code"])),
    // Stored files, not packets.
    ("recoded-stripes", Allowed::Only(&["recoded-gf", "recoded-code"])),
    ("recoded-xsk", Allowed::Only(&["recoded-counters", "recoded-wire"])),
    // Keys and tags of packets.
    ("recoded-secure", Allowed::Only(&["recoded-gf", "recoded-wire"])),
    (
        "recoded-pipeline",
        Allowed::Only(&["recoded-counters", "recoded-wire", "recoded-code", "recoded-gf"]),
    ),
    (
        "recoded-runtime",
        Allowed::Only(&[
            "recoded-counters",
            "recoded-xsk",
            "recoded-pipeline",
            "recoded-wire",
            "recoded-offload",
            "recoded-code",
            "recoded-secure",
        ]),
    ),
    (
        "recoded",
        Allowed::Only(&[
            "recoded-counters",
            "recoded-runtime",
            "recoded-syscalls",
            "recoded-cuda",
            "recoded-fpga",
            "recoded-api",
            "recoded-network",
            "recoded-host",
            "recoded-pipeline",
            "recoded-gf",
            "recoded-code",
            "recoded-wire",
        ]),
    ),
    // Its tests have files read by the daemon's parser.
    ("recoded-network", Allowed::Only(&["recoded", "recoded-api", "recoded-secure"])),
    // The CLI measures the kernels and engines of the machine it runs on, and optimises degrees.
    (
        "recodectl",
        Allowed::Only(&[
            "recoded",
            "recoded-api",
            "recoded-host",
            "recoded-network",
            "recoded-plan",
            "recoded-counters",
            "recoded-gf",
            "recoded-secure",
            "recoded-degrees",
            "recoded-code",
            "recoded-offload",
            "recoded-cuda",
            "recoded-fpga",
        ]),
    ),
    ("xtask", Allowed::Only(&[])),
    ("recoded-demo", Allowed::Everything),
    (
        "recoded-lab",
        Allowed::Only(&["recoded-api", "recoded-code", "recoded-fpga", "recoded-netns"]),
    ),
    ("recoded-netns", Allowed::Everything),
    ("recoded-xdp-tests", Allowed::Everything),
    ("recoded-sim", Allowed::Everything),
    (
        "recoded-vectors",
        Allowed::Only(&["recoded-wire", "recoded-code", "recoded-gf", "recoded-secure"]),
    ),
    (
        "recoded-fuzz",
        Allowed::Only(&[
            "recoded-wire",
            "recoded-code",
            "recoded-pipeline",
            "recoded-gf",
            "recoded-plan",
            "recoded-secure",
            "recoded-runtime",
            "recoded-api",
            "recoded",
        ]),
    ),
    ("bench", Allowed::Everything),
    ("bench-json", Allowed::Only(&[])),
    ("bench-native", Allowed::Only(&[])),
    ("bench-svg", Allowed::Only(&[])),
];

/// Reads the workspace's packages from cargo.
pub fn packages(root: &Path) -> Result<Vec<Package>, TaskError> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--format-version", "1", "--no-deps", "--quiet"]).current_dir(root);
    let text = output(&mut cargo)?;
    let unexpected = |reason: String| TaskError::Output { program: "cargo metadata", reason };
    let metadata: Value =
        serde_json::from_str(&text).map_err(|error| unexpected(error.to_string()))?;
    parse(&metadata, root).ok_or_else(|| unexpected("a field is missing".into()))
}

fn parse(metadata: &Value, root: &Path) -> Option<Vec<Package>> {
    let packages = metadata["packages"].as_array()?;
    let names: Vec<&str> =
        packages.iter().map(|package| package["name"].as_str()).collect::<Option<_>>()?;
    packages.iter().map(|package| parse_package(package, &names, root)).collect()
}

fn parse_package(package: &Value, ours: &[&str], root: &Path) -> Option<Package> {
    let relative = |path: &str| {
        let path = Path::new(path).strip_prefix(root).ok()?;
        Some(path.to_str()?.to_string())
    };
    let manifest = relative(package["manifest_path"].as_str()?)?;
    let folder = Path::new(&manifest).parent()?.to_str()?.to_string();
    let mut root_files = Vec::new();
    for target in package["targets"].as_array()? {
        let kinds = target["kind"].as_array()?;
        if kinds.iter().any(|kind| kind == "lib" || kind == "bin") {
            root_files.push(relative(target["src_path"].as_str()?)?);
        }
    }
    let mut imports = Vec::new();
    for dependency in package["dependencies"].as_array()? {
        let name = dependency["name"].as_str()?;
        let is_for_tests =
            dependency["kind"] == "dev" && FOR_TESTS.contains(&(package["name"].as_str()?, name));
        if ours.contains(&name) && !is_for_tests {
            imports.push(name.to_string());
        }
    }
    Some(Package { name: package["name"].as_str()?.into(), folder, root_files, imports })
}

/// Third-party crates that a workspace crate must not depend on, even indirectly.
const WITHOUT: [(&str, &str); 4] = [
    ("recoded-wire", "rayon"),
    ("recoded-gf", "rayon"),
    ("recoded-pipeline", "rayon"),
    // Keys are behind its outputs.
    ("recoded-pipeline", "recoded-secure"),
];

/// Imports of a crate's tests against the direction.
const FOR_TESTS: [(&str, &str); 1] = [("recoded-pipeline", "recoded-secure")];

/// Findings for crates that depend on a crate they must do [`WITHOUT`], with default features.
pub fn check_without(root: &Path) -> Result<Vec<Finding>, TaskError> {
    let mut findings = Vec::new();
    for (name, without) in WITHOUT {
        let mut cargo = Command::new("cargo");
        cargo.args(["tree", "--quiet", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
        cargo.args(["--package", name]).current_dir(root);
        findings.extend(find_without(name, without, &output(&mut cargo)?));
    }
    Ok(findings)
}

fn find_without(name: &str, without: &str, tree: &str) -> Option<Finding> {
    let found = tree.lines().find(|line| line.split(' ').next() == Some(without))?;
    let message =
        format!("`{name}` reaches `{found}`; `cargo tree -p {name} -i {without}` says how");
    Some(Finding::new("Cargo.lock", None, message))
}

/// Findings for every import against the direction, and for crates missing from the table.
pub fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let manifest = format!("{}/Cargo.toml", package.folder);
        let Some((_, allowed)) = DIRECTIONS.iter().find(|(name, _)| *name == package.name) else {
            let message = format!(
                "crate `{}` has no place in DIRECTIONS of scripts/xtask/src/tidy/dependencies.rs",
                package.name
            );
            findings.push(Finding::new(&manifest, None, message));
            continue;
        };
        let Allowed::Only(allowed) = allowed else {
            continue;
        };
        for import in package.imports.iter().filter(|name| !allowed.contains(&name.as_str())) {
            let message = format!(
                "`{}` must not depend on `{import}`; it may depend on: {}",
                package.name,
                if allowed.is_empty() {
                    "no crate of the workspace".into()
                } else {
                    allowed.join(", ")
                }
            );
            findings.push(Finding::new(&manifest, None, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, imports: &[&str]) -> Package {
        Package {
            name: name.into(),
            folder: "somewhere".into(),
            root_files: Vec::new(),
            imports: imports.iter().map(|name| (*name).into()).collect(),
        }
    }

    #[test]
    fn check_allowed_imports_no_finding() {
        let packages = [
            package("recoded-wire", &[]),
            package("recoded-pipeline", &["recoded-wire", "recoded-gf"]),
            package("bench", &["recoded", "recoded-api"]),
        ];
        assert_eq!(check(&packages), []);
    }

    #[test]
    fn check_pipeline_importing_control_found() {
        let findings = check(&[package("recoded-pipeline", &["recoded-api"])]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("must not depend on `recoded-api`"));
    }

    #[test]
    fn check_unknown_crate_found() {
        let findings = check(&[package("recoded-surprise", &[])]);
        assert!(findings[0].message.contains("has no place"));
    }

    #[test]
    fn find_without_names_a_crate_that_is_reached() {
        let tree = "recoded-pipeline v0.1.0 (/r/dataplane/pipeline)\nrayon-core v1.13.0\n";
        assert_eq!(find_without("recoded-pipeline", "rayon", tree), None);
        let tree = format!("{tree}rayon v1.12.0\n");
        let found = find_without("recoded-pipeline", "rayon", &tree).expect("it is there");
        assert!(found.message.contains("`recoded-pipeline` reaches `rayon v1.12.0`"));
    }

    #[test]
    fn parse_metadata_keeps_our_imports_and_root_files() {
        let metadata = json!({"packages": [
            {
                "name": "recoded-code",
                "manifest_path": "/r/kernels/code/Cargo.toml",
                "targets": [
                    {"kind": ["lib"], "src_path": "/r/kernels/code/src/lib.rs"},
                    {"kind": ["test"], "src_path": "/r/kernels/code/tests/theory.rs"},
                ],
                "dependencies": [
                    {"name": "recoded-gf", "kind": null},
                    {"name": "proptest", "kind": "dev"},
                ],
            },
            {
                "name": "recoded-gf",
                "manifest_path": "/r/kernels/gf/Cargo.toml",
                "targets": [],
                "dependencies": [],
            },
        ]});
        let packages = parse(&metadata, Path::new("/r")).expect("complete metadata");
        assert_eq!(packages[0].folder, "kernels/code");
        assert_eq!(packages[0].root_files, ["kernels/code/src/lib.rs"]);
        assert_eq!(packages[0].imports, ["recoded-gf"]);
        assert_eq!(parse(&json!({"packages": [{}]}), Path::new("/r")), None);
    }
}
