//! The cache of unpacked packages: QEMU with its libraries, and kernels.
//!
//! ```text
//!  $RECODED_LAB_CACHE, or ~/.cache/recoded/lab
//!    lock            held while packages are fetched
//!    apt/SUITE-ARCH  lists and state of apt
//!    tools-PACKAGES  QEMU and other programs of one release of Debian, with all libraries
//!    ubuntu          address and keys of Ubuntu's archive, as Debian has them
//!    linux-SERIES    a kernel for amd64 and its modules; for another one, linux-SERIES-ARCH
//!    debian-ARCH-PACKAGES
//!                    a small Debian, whose dpkg knows the packages in it
//! ```
//! A folder has its name once it is complete. `scripts/lab --fetch` replaces all.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use recoded_netns::process;

use super::apt::{Apt, Archive, Suite};
use crate::LabError;

/// Names the folder of the cache.
const CACHE_ENV: &str = "RECODED_LAB_CACHE";

/// QEMU 10. QEMU 7.2 crashes kernels newer than 6.1 where it emulates the processor.
const TOOLS: Suite = Suite { name: "trixie", architecture: "amd64" };

/// QEMU, and programs for guests that many hosts lack.
const TOOLS_PACKAGES: [&str; 5] =
    ["qemu-system-x86", "qemu-system-arm", "busybox-static", "wireguard-tools", "ppp"];

/// Address and keys of Ubuntu's archive.
const UBUNTU_PACKAGES: [&str; 2] = ["debootstrap", "ubuntu-keyring"];

/// A system where dpkg installs packages and systemd starts services: dependencies of `recoded`,
/// and programs that its scripts use.
const DEBIAN_PACKAGES: [&str; 15] = [
    "base-files",
    "base-passwd",
    "busybox-static",
    "coreutils",
    "dash",
    "dpkg",
    "init-system-helpers",
    "iproute2",
    "libc-bin",
    "libelf1t64",
    "passwd",
    "perl-base",
    "systemd-sysv",
    "tar",
    "zlib1g",
];

/// Release of that system.
const DEBIAN: Suite = Suite { name: "trixie", architecture: "arm64" };

/// The processor of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Architecture {
    /// 64-bit x86, as this host.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Architecture {
    /// Every architecture.
    const ALL: [Architecture; 2] = [Architecture::Amd64, Architecture::Arm64];

    /// The name that Debian uses.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Amd64 => "amd64",
            Architecture::Arm64 => "arm64",
        }
    }
}

/// A series of kernels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kernel {
    /// Ubuntu 20.04.
    V5_4,
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
    pub const ALL: [Kernel; 5] =
        [Kernel::V5_4, Kernel::V5_10, Kernel::V6_1, Kernel::V6_12, Kernel::Newest];

    /// The series, as in file names and messages.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::V5_4 => "5.4",
            Kernel::V5_10 => "5.10",
            Kernel::V6_1 => "6.1",
            Kernel::V6_12 => "6.12",
            Kernel::Newest => "newest",
        }
    }

    /// The package that depends on its parts.
    fn package(self, architecture: Architecture) -> String {
        match self {
            Kernel::V5_4 => "linux-image-generic".into(),
            _ => format!("linux-image-{}", architecture.name()),
        }
    }

    fn suite(self, architecture: Architecture) -> Suite {
        let name = match self {
            Kernel::V5_4 => "focal",
            Kernel::V5_10 => "bullseye",
            Kernel::V6_1 => "bookworm",
            Kernel::V6_12 => "trixie",
            Kernel::Newest => "trixie-backports",
        };
        Suite { name, architecture: architecture.name() }
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
        let mut folders = vec![self.tools_folder(), self.debian_folder(), self.ubuntu_folder()];
        for architecture in Architecture::ALL {
            folders.extend(Kernel::ALL.map(|kernel| self.kernel_folder(kernel, architecture)));
        }
        for folder in &folders {
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
        self.set(&self.tools_folder(), TOOLS, Archive::debian, |apt, folder| {
            apt.download_all(&TOOLS_PACKAGES, folder)
        })
    }

    /// The root below which a kernel and its modules lie, fetched where it is missing.
    ///
    /// # Errors
    /// When it cannot be fetched.
    pub fn kernel(&self, kernel: Kernel, architecture: Architecture) -> Result<PathBuf, LabError> {
        let folder = self.kernel_folder(kernel, architecture);
        let ubuntu = match kernel {
            Kernel::V5_4 => Some(self.ubuntu()?),
            _ => None,
        };
        let archive = || ubuntu.as_deref().map_or_else(Archive::debian, Archive::ubuntu);
        self.set(&folder, kernel.suite(architecture), archive, |apt, folder| {
            apt.download(&kernel_packages(apt, kernel, architecture)?, folder)
        })
    }

    /// The root of a small Debian for arm64, fetched where it is missing. No script of its packages
    /// has run.
    ///
    /// # Errors
    /// When it cannot be fetched.
    pub fn debian(&self) -> Result<PathBuf, LabError> {
        self.set(&self.debian_folder(), DEBIAN, Archive::debian, |apt, folder| {
            apt.download_all(&DEBIAN_PACKAGES, folder)
        })
    }

    /// The root below which address and keys of Ubuntu's archive lie.
    fn ubuntu(&self) -> Result<PathBuf, LabError> {
        let names = UBUNTU_PACKAGES.map(String::from);
        self.set(&self.ubuntu_folder(), TOOLS, Archive::debian, |apt, folder| {
            apt.download(&names, folder)
        })
    }

    fn ubuntu_folder(&self) -> PathBuf {
        self.folder.join("ubuntu")
    }

    /// Other packages, another folder.
    fn tools_folder(&self) -> PathBuf {
        self.folder.join(format!("tools-{}", TOOLS_PACKAGES.join("-")))
    }

    fn kernel_folder(&self, kernel: Kernel, architecture: Architecture) -> PathBuf {
        let series = kernel.name();
        self.folder.join(match architecture {
            Architecture::Amd64 => format!("linux-{series}"),
            Architecture::Arm64 => format!("linux-{series}-{}", architecture.name()),
        })
    }

    /// Other packages, another folder.
    fn debian_folder(&self) -> PathBuf {
        let names = DEBIAN_PACKAGES.join("-");
        self.folder.join(format!("debian-{}-{names}", DEBIAN.architecture))
    }

    /// A folder of unpacked packages, which `download` puts into a folder.
    fn set(
        &self,
        folder: &Path,
        suite: Suite,
        archive: impl FnOnce() -> Result<Archive, LabError>,
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
        download(&Apt::update(&self.folder.join("apt"), suite, &archive()?)?, &packages)?;
        let root = part.join("root");
        let mut controls = Vec::new();
        for entry in fs::read_dir(&packages).map_err(LabError::file(&packages))?.flatten() {
            let package = entry.path();
            if package.extension().is_some_and(|end| end == "deb") {
                process::run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&root))?;
                controls.push(process::run(Command::new("dpkg-deb").arg("-f").arg(&package))?);
            }
        }
        write_database(&root, &controls)?;
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

/// Writes the database of dpkg in a root, where packages with these control files are installed.
/// Their files are not listed.
fn write_database(root: &Path, controls: &[String]) -> Result<(), LabError> {
    let folder = root.join("var/lib/dpkg");
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, text).map_err(LabError::file(&file))
    };
    let lists = folder.join("info");
    fs::create_dir_all(&lists).map_err(LabError::file(&lists))?;
    let mut status = String::new();
    for control in controls {
        let field = |key: &str| {
            let line = control.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_default().trim()
        };
        let (name, architecture) = (field("Package:"), field("Architecture:"));
        match field("Multi-Arch:") {
            "same" => write(&format!("info/{name}:{architecture}.list"), "/.\n")?,
            _ => write(&format!("info/{name}.list"), "/.\n")?,
        }
        status.push_str(&format!("{}\nStatus: install ok installed\n\n", control.trim_end()));
    }
    write("status", &status)
}

/// The packages behind the name of a series: an image, or, in later releases, an empty one that
/// depends on a binary and modules. Ubuntu has more modules in an additional package.
fn kernel_packages(
    apt: &Apt,
    kernel: Kernel,
    architecture: Architecture,
) -> Result<Vec<String>, LabError> {
    let missing = |what: &str| {
        LabError::Unavailable(format!("the mirror has no {what} for Linux {}", kernel.name()))
    };
    let is_part = |name: &String| {
        ["linux-binary-", "linux-modules-"].iter().any(|part| name.starts_with(part))
    };
    let series = kernel.package(architecture);
    let found = apt.dependencies(&series)?.ok_or_else(|| missing(&series))?;
    let (parts, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_part);
    let mut names = Vec::new();
    for image in others.into_iter().filter(|name| name.starts_with("linux-image-")) {
        let depends = apt.dependencies(&image)?.ok_or_else(|| missing(&image))?;
        names.push(image);
        names.extend(depends.into_iter().filter(is_part));
    }
    if names.is_empty() {
        return Err(missing("image"));
    }
    names.extend(parts);
    Ok(names)
}
