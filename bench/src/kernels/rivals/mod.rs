//! Rival libraries: availability, versions, and how each does a job. Every result that can be
//! checked is checked before timing; a rival with a wrong result is left out of the row.

pub mod gf_complete;
pub mod isal;
pub mod raptorq;
pub mod reed_solomon;
pub mod rlnc;
pub mod rlnc_simdx;

use std::path::Path;

use bench_native::{GfComplete, Isal};
use serde::{Deserialize, Serialize};

/// A rival, or why it is absent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Description {
    /// Name in the rows.
    pub name: String,
    /// The file in use, for a library in C.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Processor features in use, as far as the library reports them.
    pub uses: String,
    /// Why it is not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

/// The available rivals.
pub struct Rivals {
    /// ISA-L, in as many versions as open.
    pub isal: Vec<isal::Library>,
    /// Whether GF-Complete opens.
    pub has_gf_complete: bool,
    /// All of them.
    pub described: Vec<Description>,
}

impl Rivals {
    /// Finds the available rivals; `isal` is the path of an ISA-L other than the installed one.
    pub fn find(isal: Option<&Path>) -> Rivals {
        let mut described = Vec::new();
        let mut libraries = Vec::new();
        for path in [None, isal].into_iter().take(1 + usize::from(isal.is_some())) {
            match Isal::load(path) {
                Ok(library) => {
                    let library = isal::Library::new(library);
                    described.push(library.describe());
                    libraries.push(library);
                }
                Err(error) => described.push(absent("ISA-L", &error)),
            }
        }
        let has_gf_complete = match GfComplete::load() {
            Ok(library) => {
                described.push(gf_complete::describe(&library));
                true
            }
            Err(error) => {
                described.push(absent(gf_complete::NAME, &error));
                false
            }
        };
        described.extend([
            rlnc::describe(),
            rlnc_simdx::describe(),
            reed_solomon::describe(),
            raptorq::describe(),
        ]);
        Rivals { isal: libraries, has_gf_complete, described }
    }

    /// One line each.
    pub fn table(&self) -> String {
        let line = |rival: &Description| match (&rival.absent, &rival.file) {
            (Some(reason), _) => format!("not measured: {}: {reason}", rival.name),
            (None, Some(file)) => format!("rival: {} ({}), {file}", rival.name, rival.uses),
            (None, None) => format!("rival: {} ({})", rival.name, rival.uses),
        };
        self.described.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// A library that does not open.
pub fn absent(name: &str, error: &bench_native::LoadError) -> Description {
    let absent = Some(error.to_string());
    Description { name: name.into(), file: None, uses: String::new(), absent }
}

/// File name of a library: its folder describes the machine more than the library.
pub fn file_name(path: &Path) -> Option<String> {
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

/// A rival that is a crate, in the version that Cargo.lock names.
pub fn describe_crate(name: &str, uses: impl Into<String>) -> Description {
    let lock = include_str!("../../../../Cargo.lock");
    let version = lock
        .split("[[package]]")
        .find(|package| package.contains(&format!("\nname = \"{name}\"\n")))
        .and_then(|package| package.split("version = \"").nth(1)?.split('"').next())
        .unwrap_or("of an unknown version");
    Description { name: format!("{name} {version}"), file: None, uses: uses.into(), absent: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describe_crate_knows_the_locked_version() {
        let version = describe_crate("rlnc", "").name;
        assert!(version.starts_with("rlnc 0.8"), "{version}");
    }
}
