//! The operations on files that the library performs. `Disk` implements them; tests implement them
//! in memory and cut the power at every one.

use std::io;

/// Most files of a folder that are looked at. A set has at most 256.
pub const FILES_MAX: usize = 4096;

/// The use of an opened file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Access {
    /// It is only read.
    Read,
    /// It is written as well.
    Write,
}

/// One folder.
pub trait Storage: Sync {
    /// A file of it.
    type File: StoredFile;

    /// Names of its regular files, in any order, at most [`FILES_MAX`].
    ///
    /// # Errors
    /// The folder cannot be read or has more files.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Opens a regular file.
    ///
    /// # Errors
    /// `NotFound`, or any other error of the system.
    fn open(&self, name: &str, access: Access) -> io::Result<Self::File>;

    /// Creates a file, or empties it.
    ///
    /// # Errors
    /// Any error of the system.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Gives a file another name, replacing the file that has it.
    ///
    /// # Errors
    /// Any error of the system.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Any error of the system.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes names durable: created, renamed and removed files.
    ///
    /// # Errors
    /// Any error of the system.
    fn sync(&self) -> io::Result<()>;
}

/// A folder that is not visible under its name yet.
pub trait Staging: Storage {
    /// Makes the folder visible under its name, durably and at once.
    ///
    /// # Errors
    /// Any error of the system.
    fn publish(&self) -> io::Result<()>;
}

/// An open file.
pub trait StoredFile: Send + Sync {
    /// Its bytes.
    ///
    /// # Errors
    /// Any error of the system.
    fn bytes(&self) -> io::Result<u64>;

    /// Reads until `buffer` is full or the file ends; returns the number of bytes.
    ///
    /// # Errors
    /// Any error of the system.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all bytes. They are durable after [`StoredFile::sync`] only.
    ///
    /// # Errors
    /// Any error of the system.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Suggests to write these bytes to the disk soon, so that a later sync waits for less.
    fn begin_sync(&self, _offset: u64, _bytes: u64) {}

    /// Makes its bytes durable.
    ///
    /// # Errors
    /// Any error of the system.
    fn sync(&self) -> io::Result<()>;
}
