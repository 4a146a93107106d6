//! The operator's side: signs configurations of nodes as bundles, into a folder or an etcd.

use crate::bundle::{BUNDLE_BYTES_MAX, Bundle, BundleError, CONFIGURATION_BYTES_MAX};
use crate::files;
use crate::key::{Signer, Verifier};
use crate::source::{Etcd, HttpError};
use crate::status::now;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Destination of bundles.
pub enum Target {
    /// A folder with `NODE.bundle`, which an HTTPS server may serve.
    Directory(PathBuf),
    /// Keys of an etcd: prefix and node.
    Etcd {
        /// Its client.
        etcd: Etcd,
        /// Prefix of the node.
        prefix: String,
    },
}

/// A bundle that was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signed {
    /// The node.
    pub node: String,
    /// Its version.
    pub version: u64,
    /// False if the same configuration was already there.
    pub is_new: bool,
}

/// Why signing failed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// No configurations.
    #[error("{0} holds no NODE.toml: recodectl render net.toml --out DIR writes them")]
    None(PathBuf),
    /// A file.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error from Linux.
        source: io::Error,
    },
    /// A configuration or its node name.
    #[error("{path}: {source}")]
    Bundle {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: BundleError,
    },
    /// The etcd.
    #[error(transparent)]
    Etcd(#[from] HttpError),
}

impl Target {
    fn read(&mut self, node: &str) -> Result<Option<Vec<u8>>, SignError> {
        match self {
            Target::Directory(folder) => {
                let path = folder.join(format!("{node}.bundle"));
                let read = files::read_if_there(&path, BUNDLE_BYTES_MAX);
                read.map_err(|source| SignError::File { path, source })
            }
            Target::Etcd { etcd, prefix } => Ok(etcd.get(&format!("{prefix}{node}"))?),
        }
    }

    fn write(&mut self, node: &str, text: &str) -> Result<(), SignError> {
        match self {
            Target::Directory(folder) => {
                let path = folder.join(format!("{node}.bundle"));
                let written = files::replace(&path, text.as_bytes(), 0o644);
                written.map_err(|source| SignError::File { path, source })
            }
            Target::Etcd { etcd, prefix } => {
                Ok(etcd.put(&format!("{prefix}{node}"), text.as_bytes())?)
            }
        }
    }
}

/// Signs every `NODE.toml` of a folder. All are read before the first one is written. Bundles with
/// an unchanged configuration stay, so that only boxes whose configuration changed need to act.
///
/// A version is the time in seconds, or one more than that of the target, so that it increases even
/// if the target lost its bundles. `version` overrides it.
///
/// # Errors
///
/// [`SignError`]. Bundles before the one that failed are written.
pub fn sign(
    folder: &Path,
    signer: &Signer,
    version: Option<u64>,
    target: &mut Target,
) -> Result<Vec<Signed>, SignError> {
    let configurations = configurations(folder)?;
    if let Target::Directory(folder) = target {
        let made = fs::create_dir_all(&*folder);
        made.map_err(|source| SignError::File { path: folder.clone(), source })?;
    }
    let verifier = signer.verifier();
    let sign_one = |(node, text): (String, String)| {
        let present = present(target.read(&node)?, &node, &verifier);
        if let Some(present) = &present
            && present.configuration() == text
            && version.is_none()
        {
            return Ok(Signed { node, version: present.version(), is_new: false });
        }
        let next = present.map_or(0, |present| present.version().saturating_add(1));
        let version = version.unwrap_or(next.max(now()));
        let bundle = Bundle::new(&node, version, &text);
        let bundle = bundle.map_err(|source| {
            let path = folder.join(format!("{node}.toml"));
            SignError::Bundle { path, source }
        })?;
        target.write(&node, &bundle.sign(signer))?;
        Ok(Signed { node, version, is_new: true })
    };
    configurations.into_iter().map(sign_one).collect()
}

/// The existing bundle, if this key signed it.
fn present(bytes: Option<Vec<u8>>, node: &str, verifier: &Verifier) -> Option<Bundle> {
    Bundle::open(&bytes?, node, verifier).ok()
}

/// Names of nodes and their configurations, in order of names.
fn configurations(folder: &Path) -> Result<Vec<(String, String)>, SignError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| SignError::File { path, source }
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        if path.extension() != Some(OsStr::new("toml")) {
            continue;
        }
        let wrong = |source| SignError::Bundle { path: path.clone(), source };
        let node = path.file_stem().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        let bytes = files::read(&path, CONFIGURATION_BYTES_MAX).map_err(failed(&path))?;
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| wrong(BundleError::Form("not UTF-8")))?;
        Bundle::new(&node, 0, &text).map_err(wrong)?;
        found.push((node, text));
    }
    found.sort();
    if found.is_empty() { Err(SignError::None(folder.into())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_signed_whole_and_only_what_changed_gets_a_new_version() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir(&from).unwrap();
        let signer = Signer::from_seed(&[1; 32]);
        let mut target = Target::Directory(to.clone());
        let refused = sign(&from, &signer, None, &mut target);
        assert!(matches!(refused, Err(SignError::None(_))));
        fs::write(from.join("a.toml"), "one").unwrap();
        fs::write(from.join("b.toml"), "two").unwrap();
        fs::write(from.join("README"), "no configuration").unwrap();
        let first = sign(&from, &signer, None, &mut target).unwrap();
        assert_eq!(first.iter().map(|it| it.node.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(first.iter().all(|it| it.is_new));
        fs::write(from.join("b.toml"), "three").unwrap();
        let second = sign(&from, &signer, None, &mut target).unwrap();
        assert_eq!(second[0], Signed { is_new: false, ..first[0].clone() });
        assert!(second[1].is_new && second[1].version > first[1].version);
        let bytes = fs::read(to.join("b.bundle")).unwrap();
        let bundle = Bundle::open(&bytes, "b", &signer.verifier()).unwrap();
        assert_eq!((bundle.version(), bundle.configuration()), (second[1].version, "three"));
        fs::write(from.join("a b.toml"), "").unwrap();
        let refused = sign(&from, &signer, None, &mut target).unwrap_err().to_string();
        assert!(refused.contains("the name of the node"), "{refused}");
    }
}
