//! Debian packages without installing them: apt with separate sources, lists and state.
//!
//! The mirror and the proxy come from the system's configuration. Packages are verified by the
//! signatures of Debian's archive, with the system's keyring.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use recoded_netns::process;

use crate::LabError;

/// Environment variable with the mirror, for systems whose own sources are not Debian's, such as
/// Ubuntu.
const MIRROR_ENV: &str = "RECODED_LAB_MIRROR";

/// Keys of Debian's archive, by the package debian-archive-keyring.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// One command of apt may take this long. Kernels have 100 MB: 1 Mbit/s is not enough.
const COMMAND_SECONDS: u32 = 600;

/// Where packages are, and whose signatures they have.
#[derive(Clone, Debug)]
pub struct Archive {
    mirror: String,
    keyring: PathBuf,
}

impl Archive {
    /// Debian's, from a mirror that this system uses.
    ///
    /// # Errors
    /// When no mirror is known, or the keyring is missing.
    pub fn debian() -> Result<Archive, LabError> {
        Archive::signed(mirror()?, KEYRING.into())
    }

    /// Ubuntu's, from the mirror that debootstrap prefers, which lies below `root` with the
    /// keyring.
    ///
    /// # Errors
    /// When either is missing.
    pub fn ubuntu(root: &Path) -> Result<Archive, LabError> {
        let script = root.join("usr/share/debootstrap/scripts/gutsy");
        let text = fs::read_to_string(&script).map_err(LabError::file(&script))?;
        let mirror = default_mirror(&text).ok_or_else(|| {
            LabError::Unavailable(format!("{}: no mirror of Ubuntu there", script.display()))
        })?;
        Archive::signed(mirror, root.join("usr/share/keyrings/ubuntu-archive-keyring.gpg"))
    }

    fn signed(mirror: String, keyring: PathBuf) -> Result<Archive, LabError> {
        if !keyring.exists() {
            let keyring = keyring.display();
            let reason = format!("{keyring} is missing (package debian-archive-keyring)");
            return Err(LabError::Unavailable(reason));
        }
        Ok(Archive { mirror, keyring })
    }
}

/// A release of Debian or Ubuntu, and an architecture.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// Name as in `dists/NAME`.
    pub name: &'static str,
    /// Architecture of its packages, as Debian names it.
    pub architecture: &'static str,
}

/// A separate apt for one suite.
#[derive(Debug)]
pub struct Apt {
    folder: PathBuf,
    architecture: &'static str,
}

impl Apt {
    /// Writes the configuration for a suite below `folder` and fetches the lists.
    ///
    /// # Errors
    /// When the mirror does not answer.
    pub fn update(folder: &Path, suite: Suite, archive: &Archive) -> Result<Apt, LabError> {
        let folder = folder.join(format!("{}-{}", suite.name, suite.architecture));
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = folder.join(part);
            fs::create_dir_all(&part).map_err(LabError::file(&part))?;
        }
        let Suite { name, architecture } = suite;
        let (mirror, keyring) = (&archive.mirror, archive.keyring.display());
        let source =
            format!("deb [arch={architecture} signed-by={keyring}] {mirror} {name} main\n");
        for (file, text) in [("sources.list", source.as_str()), ("status", "")] {
            let file = folder.join(file);
            fs::write(&file, text).map_err(LabError::file(&file))?;
        }
        let apt = Apt { folder, architecture };
        apt.run("apt-get", &["update", "-qq"])?;
        Ok(apt)
    }

    /// Names of the dependencies of the newest package with this name, without versions, if there
    /// is such a package.
    ///
    /// # Errors
    /// When apt cannot be started.
    pub fn dependencies(&self, name: &str) -> Result<Option<Vec<String>>, LabError> {
        let shown = process::output(&mut self.command("apt-cache", &["show", name]))?;
        let first = shown.stdout.split("\n\n").next().unwrap_or_default();
        if first.is_empty() {
            return Ok(None);
        }
        let depends = first.lines().find_map(|line| line.strip_prefix("Depends: "));
        let words = depends.unwrap_or_default().split([',', '|']);
        Ok(Some(words.filter_map(|one| one.split_whitespace().next()).map(Into::into).collect()))
    }

    /// Downloads packages with all their dependencies into an empty folder.
    ///
    /// # Errors
    /// When a package does not exist or the mirror does not answer.
    pub fn download_all(&self, names: &[&str], folder: &Path) -> Result<(), LabError> {
        let partial = folder.join("partial");
        fs::create_dir_all(&partial).map_err(LabError::file(&partial))?;
        let archives = format!("Dir::Cache::archives={}", folder.display());
        let mut arguments = vec!["-o", &archives, "install", "-qq", "-y", "--download-only"];
        arguments.push("--no-install-recommends");
        arguments.extend(names);
        self.run("apt-get", &arguments)
    }

    /// Downloads these packages without dependencies into a folder.
    ///
    /// # Errors
    /// As [`Apt::download_all`].
    pub fn download(&self, names: &[String], folder: &Path) -> Result<(), LabError> {
        let mut arguments = vec!["download", "-qq"];
        arguments.extend(names.iter().map(String::as_str));
        let mut command = self.command("apt-get", &arguments);
        process::run(command.current_dir(folder)).map_err(unavailable)?;
        Ok(())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<(), LabError> {
        process::run(&mut self.command(program, arguments)).map_err(unavailable)?;
        Ok(())
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg(COMMAND_SECONDS.to_string()).arg(program);
        let own = |key: &str, file: &str| format!("{key}={}", self.folder.join(file).display());
        let options = [
            own("Dir::State", ""),
            own("Dir::State::lists", "lists"),
            own("Dir::State::status", "status"),
            own("Dir::Cache", "cache"),
            own("Dir::Etc::sourcelist", "sources.list"),
            "Dir::Etc::sourceparts=-".into(),
            "Dir::Etc::preferences=-".into(),
            "Dir::Etc::preferencesparts=-".into(),
            format!("APT::Architecture={}", self.architecture),
            format!("APT::Architectures={}", self.architecture),
            // Its user for downloads cannot enter a cache in a user's home.
            "APT::Sandbox::User=".into(),
            "Acquire::Languages=none".into(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
            // Releases that are no longer supported are signed and do not change.
            "Acquire::Check-Valid-Until=false".into(),
            "Acquire::http::Timeout=30".into(),
            "Acquire::Retries=2".into(),
            "Debug::NoLocking=true".into(),
        ];
        command.args(options.iter().flat_map(|option| ["-o", option.as_str()]));
        command.args(arguments).env("LC_ALL", "C");
        command
    }
}

fn unavailable(error: recoded_netns::BedError) -> LabError {
    LabError::Unavailable(format!("cannot fetch packages: {error}"))
}

/// Address of Debian's archive, from the system's own package sources.
fn mirror() -> Result<String, LabError> {
    if let Ok(mirror) = std::env::var(MIRROR_ENV) {
        return Ok(mirror);
    }
    let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = parts.map(|entry| entry.path()).collect();
    files.sort();
    files.insert(0, "/etc/apt/sources.list".into());
    let texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    texts.into_iter().find_map(|text| mirror_in(&text)).ok_or_else(|| {
        LabError::Unavailable(format!(
            "the apt sources of this system have no mirror of Debian; {MIRROR_ENV} may name one"
        ))
    })
}

/// The first address of Debian's archive in a list of sources of either format.
fn mirror_in(text: &str) -> Option<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut words = lines.flat_map(str::split_whitespace);
    let is_archive = |word: &str| {
        (word.starts_with("http://") || word.starts_with("https://"))
            && word.trim_end_matches('/').ends_with("/debian")
    };
    words.find(|word| is_archive(word)).map(Into::into)
}

/// The mirror for amd64 in a script of debootstrap.
fn default_mirror(script: &str) -> Option<String> {
    let mut others = script.lines().skip_while(|line| !line.contains("amd64"));
    others.find_map(|line| line.trim().strip_prefix("default_mirror ").map(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_is_found_in_both_formats_and_others_are_passed_over() {
        let old = "# deb http://one.test/debian a main\ndeb http://two.test/debian-security a main\n\
                   deb [arch=amd64] https://three.test/debian/ a main\n";
        assert_eq!(mirror_in(old).as_deref(), Some("https://three.test/debian/"));
        let new = "Types: deb\nURIs: http://four.test/debian\nSuites: a\n";
        assert_eq!(mirror_in(new).as_deref(), Some("http://four.test/debian"));
        assert_eq!(mirror_in("deb http://five.test/ubuntu a main\n"), None);
    }

    #[test]
    fn mirror_of_ubuntu_is_that_of_its_architecture() {
        let script = "if $new; then\n\tcase \"$ARCH\" in\n\t\tarm64)\n\
                      \t\t\tdefault_mirror http://one.test/ports\n\t\t;;\n\t\tamd64|i386)\n\
                      \t\t\tdefault_mirror http://two.test/ubuntu\n\t\t;;\n\tesac\n";
        assert_eq!(default_mirror(script).as_deref(), Some("http://two.test/ubuntu"));
        assert_eq!(default_mirror("mirror_style release\n"), None);
    }
}
