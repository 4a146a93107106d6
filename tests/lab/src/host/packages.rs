//! The cache of unpacked packages: QEMU with its libraries, and kernels.
//!
//! ```text
//!  $RECODED_LAB_CACHE, or ~/.cache/recoded/lab
//!    lock            held while packages are fetched
//!    apt/SUITE-ARCH  lists and state of apt
//!    tools-PACKAGES  QEMU and other programs of one release of Debian, with all libraries
//!    linux-SERIES    a kernel and its modules
//! ```
//! A folder has its name once it is complete. `scripts/lab --fetch` replaces all.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use recoded_netns::process;

use super::apt::{Apt, Suite};
use crate::LabError;

/// Names the folder of the cache.
const CACHE_ENV: &str = "RECODED_LAB_CACHE";

/// QEMU 10. QEMU 7.2 crashes kernels newer than 6.1 where it emulates the processor.
const TOOLS: Suite = Suite { name: "trixie", architecture: "amd64" };

/// QEMU, and programs for guests that many hosts lack.
const TOOLS_PACKAGES: [&str; 4] = ["qemu-system-x86", "busybox-static", "wireguard-tools", "ppp"];

/// A series of kernels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kernel {
    /// The oldest that a supported Debian has had.
    V5_10,
    /// Debian 12.
    V6_1,
    /// Debian 13.
    V6_12,
    /// The newest backport for Debian 13.
    Newest,
}

impl Kernel {
    /// Every series.
    pub const ALL: [Kernel; 4] = [Kernel::V5_10, Kernel::V6_1, Kernel::V6_12, Kernel::Newest];

    /// The series, as in file names and messages.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::V5_10 => "5.10",
            Kernel::V6_1 => "6.1",
            Kernel::V6_12 => "6.12",
            Kernel::Newest => "newest",
        }
    }

    fn suite(self) -> Suite {
        let name = match self {
            Kernel::V5_10 => "bullseye",
            Kernel::V6_1 => "bookworm",
            Kernel::V6_12 => "trixie",
            Kernel::Newest => "trixie-backports",
        };
        Suite { name, architecture: "amd64" }
    }
}

/// The cache.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Opens the cache, and creates its folder.
    ///
    /// # Errors
    /// If this is another architecture, or the folder cannot be created.
    pub fn open() -> Result<Cache, LabError> {
        if std::env::consts::ARCH != "x86_64" {
            let reason = "the machines run programs of this host and are x86-64".into();
            return Err(LabError::Unavailable(reason));
        }
        let folder = match (std::env::var_os(CACHE_ENV), std::env::var_os("XDG_CACHE_HOME")) {
            (Some(folder), _) => PathBuf::from(folder),
            (None, Some(folder)) => PathBuf::from(folder).join("recoded/lab"),
            (None, None) => {
                let home = std::env::home_dir().unwrap_or_else(std::env::temp_dir);
                home.join(".cache/recoded/lab")
            }
        };
        fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
        Ok(Cache { folder })
    }

    /// Deletes downloaded files, so that they are downloaded again.
    ///
    /// # Errors
    /// When a folder cannot be deleted.
    pub fn clear(&self) -> Result<(), LabError> {
        let _lock = self.lock()?;
        let kernels = Kernel::ALL.map(|kernel| self.kernel_folder(kernel));
        for folder in kernels.iter().chain([&self.tools_folder()]) {
            if folder.exists() {
                fs::remove_dir_all(folder).map_err(LabError::file(folder))?;
            }
        }
        Ok(())
    }

    /// The root of a system with QEMU and busybox, fetched where it is missing.
    ///
    /// # Errors
    /// When it cannot be fetched.
    pub fn tools(&self) -> Result<PathBuf, LabError> {
        self.set(&self.tools_folder(), TOOLS, |apt, folder| {
            apt.download_all(&TOOLS_PACKAGES, folder)
        })
    }

    /// The root below which a kernel and its modules lie, fetched where it is missing.
    ///
    /// # Errors
    /// When it cannot be fetched.
    pub fn kernel(&self, kernel: Kernel) -> Result<PathBuf, LabError> {
        self.set(&self.kernel_folder(kernel), kernel.suite(), |apt, folder| {
            apt.download(&kernel_packages(apt, kernel)?, folder)
        })
    }

    /// Other packages, another folder.
    fn tools_folder(&self) -> PathBuf {
        self.folder.join(format!("tools-{}", TOOLS_PACKAGES.join("-")))
    }

    fn kernel_folder(&self, kernel: Kernel) -> PathBuf {
        self.folder.join(format!("linux-{}", kernel.name()))
    }

    /// A folder of unpacked packages, which `download` puts into a folder.
    fn set(
        &self,
        folder: &Path,
        suite: Suite,
        download: impl FnOnce(&Apt, &Path) -> Result<(), LabError>,
    ) -> Result<PathBuf, LabError> {
        let _lock = self.lock()?;
        if folder.exists() {
            return Ok(folder.to_owned());
        }
        let part = PathBuf::from(format!("{}.part", folder.display()));
        if part.exists() {
            fs::remove_dir_all(&part).map_err(LabError::file(&part))?;
        }
        let packages = part.join("packages");
        fs::create_dir_all(&packages).map_err(LabError::file(&packages))?;
        download(&Apt::update(&self.folder.join("apt"), suite)?, &packages)?;
        let root = part.join("root");
        for entry in fs::read_dir(&packages).map_err(LabError::file(&packages))?.flatten() {
            let package = entry.path();
            if package.extension().is_some_and(|end| end == "deb") {
                process::run(Command::new("dpkg-deb").arg("-x").arg(package).arg(&root))?;
            }
        }
        fs::rename(&root, folder).map_err(LabError::file(folder))?;
        fs::remove_dir_all(&part).map_err(LabError::file(&part))?;
        Ok(folder.to_owned())
    }

    fn lock(&self) -> Result<File, LabError> {
        let path = self.folder.join("lock");
        let file = File::create(&path).map_err(LabError::file(&path))?;
        file.lock().map_err(LabError::file(&path))?;
        Ok(file)
    }
}

/// The packages behind the name `linux-image-amd64`: an image, or, in later releases, an empty one
/// that depends on a binary and modules.
fn kernel_packages(apt: &Apt, kernel: Kernel) -> Result<Vec<String>, LabError> {
    let missing = |what: &str| {
        LabError::Unavailable(format!("the mirror has no {what} for Linux {}", kernel.name()))
    };
    let meta = "linux-image-amd64";
    let images = apt.dependencies(meta)?.ok_or_else(|| missing(meta))?;
    let mut names: Vec<String> = Vec::new();
    for image in images.into_iter().filter(|name| name.starts_with("linux-image-")) {
        let depends = apt.dependencies(&image)?.ok_or_else(|| missing(&image))?;
        names.push(image);
        let parts = depends.into_iter().filter(|name| {
            ["linux-binary-", "linux-modules-"].iter().any(|part| name.starts_with(part))
        });
        names.extend(parts);
    }
    if names.is_empty() {
        return Err(missing("image"));
    }
    Ok(names)
}
