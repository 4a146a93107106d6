//! The compiled kernels, found when the program runs.
//!
//! Building them needs NVIDIA's compiler, which `scripts/cuda` fetches; everything else
//! builds and runs without it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names the image file and disables the search.
pub const IMAGE_VARIABLE: &str = "RECODED_CUDA_IMAGE";

/// The file's name.
pub const IMAGE_NAME: &str = "recoded.fatbin";

/// Compiled kernels: a fatbin with code for several generations of cards.
#[derive(Clone, Debug)]
pub struct Image {
    bytes: Arc<[u8]>,
    path: PathBuf,
}

/// No compiled kernels.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ImageError {
    /// Nowhere.
    #[error(
        "no CUDA kernels ({IMAGE_NAME}) next to the program or in its lib/recoded; `scripts/cuda` \
         builds them, and {IMAGE_VARIABLE} names them elsewhere"
    )]
    Missing,
    /// Unreadable.
    #[error("cannot read CUDA kernels from {path}: {reason}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

impl Image {
    /// The file that `RECODED_CUDA_IMAGE` names; otherwise `recoded.fatbin` in the program's
    /// folder, in `../lib/recoded`, or in `cuda/` of one of the parent folders, where a build puts
    /// it.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn find() -> Result<Self, ImageError> {
        match env::var_os(IMAGE_VARIABLE).filter(|path| !path.is_empty()) {
            Some(path) => Self::read(Path::new(&path)),
            None => Self::read(&installed().ok_or(ImageError::Missing)?),
        }
    }

    /// The image in a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> Result<Self, ImageError> {
        let unreadable = |error: std::io::Error| ImageError::Unreadable {
            path: path.into(),
            reason: error.to_string(),
        };
        let bytes = fs::read(path).map_err(unreadable)?;
        Ok(Self { bytes: bytes.into(), path: path.into() })
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn installed() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let folders: Vec<&Path> = program.ancestors().skip(1).take(BUILD_DEPTH).collect();
    let beside = folders.first().map(|folder| folder.join(IMAGE_NAME));
    let library = folders.get(1).map(|prefix| prefix.join("lib/recoded").join(IMAGE_NAME));
    let built = folders.iter().map(|folder| folder.join("cuda").join(IMAGE_NAME));
    beside.into_iter().chain(library).chain(built).find(|path| path.is_file())
}

/// Programs are built at most as deep as `target/debug/deps`.
const BUILD_DEPTH: usize = 3;
