//! An unpacked kernel: the image, and modules in the order of their dependencies.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::LabError;

/// An unpacked kernel.
#[derive(Debug)]
pub struct Unpacked {
    /// The image that QEMU loads.
    pub image: PathBuf,
    modules: HashMap<String, PathBuf>,
}

/// A module, decompressed.
#[derive(Debug)]
pub struct Module {
    /// Name, with underscores.
    pub name: String,
    /// The object.
    pub object: Vec<u8>,
}

impl Unpacked {
    /// Finds image and modules below a root.
    ///
    /// # Errors
    /// When either is missing.
    pub fn find(root: &Path) -> Result<Unpacked, LabError> {
        let folders = [root.join("lib/modules"), root.join("usr/lib/modules")];
        let mut modules = HashMap::new();
        let mut images = Vec::new();
        for folder in folders.iter().chain([&root.join("boot")]) {
            walk(folder, &mut |path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if name.starts_with("vmlinuz") {
                    images.push(path.clone());
                }
                if let Some((name, _)) = name.split_once(".ko") {
                    modules.insert(name.replace('-', "_"), path);
                }
            });
        }
        let image = images.pop().ok_or_else(|| {
            LabError::Unavailable(format!("{}: no image of a kernel there", root.display()))
        })?;
        Ok(Unpacked { image, modules })
    }

    /// These modules, each after its dependencies. Names without a module are left out: the kernel
    /// has them built in, or a case reports the missing feature.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn modules(&self, names: &[&str]) -> Result<Vec<Module>, LabError> {
        let mut found = Vec::new();
        for name in names {
            self.add(&name.replace('-', "_"), &mut found)?;
        }
        Ok(found)
    }

    fn add(&self, name: &str, found: &mut Vec<Module>) -> Result<(), LabError> {
        let Some(path) = self.modules.get(name) else { return Ok(()) };
        if found.iter().any(|module| module.name == name) {
            return Ok(());
        }
        let object = read_module(path)?;
        for needed in dependencies(&object) {
            self.add(&needed, found)?;
        }
        found.push(Module { name: name.into(), object });
        Ok(())
    }
}

/// Calls `found` for each file below a folder, if the folder exists.
fn walk(folder: &Path, found: &mut impl FnMut(PathBuf)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // Links lead to the sources of the kernel.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), found),
            Ok(kind) if kind.is_file() => found(entry.path()),
            _ => {}
        }
    }
}

fn read_module(path: &Path) -> Result<Vec<u8>, LabError> {
    let program = match path.extension().and_then(|end| end.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return fs::read(path).map_err(LabError::file(path)),
    };
    let output = Command::new(program).arg("-dc").arg(path).stderr(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => {
            LabError::wrong(format!("{program} -dc {}: {}", path.display(), output.status))
        }
        Err(error) => Err(LabError::Unavailable(format!("cannot start {program}: {error}"))),
    }
}

/// Names after `depends=` in the information that each module carries.
fn dependencies(object: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(start) = object.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let list = &object[start + KEY.len()..];
    let end = list.iter().position(|byte| *byte == 0).unwrap_or(list.len());
    let list = String::from_utf8_lossy(&list[..end]);
    list.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_the_object() {
        let object = b"\x7fELF\0license=GPL\0depends=ptp,i2c-algo-bit\0retpoline=Y\0";
        assert_eq!(dependencies(object), ["ptp", "i2c_algo_bit"]);
        assert!(dependencies(b"\0depends=\0").is_empty());
        assert!(dependencies(b"nothing").is_empty());
    }
}
