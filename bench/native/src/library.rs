//! A shared library, opened when it is wanted, and which file that was.

use std::fs;
use std::path::{Path, PathBuf};

use libloading::Library;

/// Why a library cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It is not there, or is not a library.
    #[error("{file} does not open; `apt install {package}` installs one")]
    Absent {
        /// The name it was looked up by.
        file: String,
        /// Debian's package.
        package: &'static str,
        /// Error of the loader.
        #[source]
        source: libloading::Error,
    },
    /// It is another library, or another version.
    #[error("{file} has no function `{symbol}`: it is another library or version")]
    Symbol {
        /// The file.
        file: String,
        /// The function.
        symbol: &'static str,
        /// Error of the loader.
        #[source]
        source: libloading::Error,
    },
    /// It refused to start.
    #[error("{file} does not start")]
    Start {
        /// The file.
        file: String,
    },
}

/// An open library.
pub(crate) struct Open {
    library: Library,
    file: String,
}

impl Open {
    /// Opens `file`, a path or a name for the loader to find.
    ///
    /// # Safety
    /// The library's initialisation must be sound: C libraries that only select routines for the
    /// processor.
    pub(crate) unsafe fn new(file: &Path, package: &'static str) -> Result<Open, LoadError> {
        let name = file.display().to_string();
        // SAFETY: the caller's promise.
        let library = unsafe { Library::new(file) };
        match library {
            Ok(library) => Ok(Open { library, file: name }),
            Err(source) => Err(LoadError::Absent { file: name, package, source }),
        }
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `F` must be a function pointer of the type that the library's header declares, and must not
    /// be called after the library was closed.
    pub(crate) unsafe fn function<F: Copy>(&self, symbol: &'static str) -> Result<F, LoadError> {
        // SAFETY: the caller's promise.
        let found = unsafe { self.library.get::<F>(symbol) };
        match found {
            Ok(function) => Ok(*function),
            Err(source) => Err(LoadError::Symbol { file: self.file.clone(), symbol, source }),
        }
    }

    /// The file that the loader opened, with links resolved and the version in its name. Falls back
    /// to the requested name if Linux does not report the file.
    pub(crate) fn path(&self, symbol_address: usize) -> PathBuf {
        mapped_file(symbol_address).unwrap_or_else(|| self.file.clone().into())
    }

    /// File name for error messages.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }
}

/// The file that is mapped at an address of this process.
fn mapped_file(address: usize) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        let path = rest.find('/').map(|at| PathBuf::from(&rest[at..]))?;
        (start..end).contains(&address).then_some(path)
    })
}

/// Says that a test cannot run, where it may be so.
#[cfg(test)]
pub(crate) fn skip(error: &LoadError) {
    let required = std::env::var_os("RECODED_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(!required, "skipped: {error}");
    println!("skipped: {error}");
}
