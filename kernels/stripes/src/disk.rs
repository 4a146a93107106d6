//! [`Storage`] on a file system.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, OFlags};
use tempfile::TempDir;

use crate::error::Error;
use crate::storage::{Access, FILES_MAX, Staging, Storage, StoredFile};

/// Most bytes of one write. For longer ones Linux allocates the largest pages it has, which a
/// virtual machine may first have to get from its host: `recover` to a file then took twice as
/// long. Half of it costs more system calls.
const WRITE_BYTES_MAX: usize = 128 << 10;

/// A folder, locked against other processes of this program for as long as this value lives.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    /// The open folder, which carries the lock.
    folder: File,
}

/// A new folder that is not visible under its name yet. If it is not published it is removed.
#[derive(Debug)]
pub struct StagedDisk {
    disk: Disk,
    target: PathBuf,
    /// Removes the folder, unless it has been renamed.
    _staged: TempDir,
}

impl Disk {
    /// Opens a folder and locks it: [`Access::Write`] excludes all others, [`Access::Read`]
    /// excludes writers.
    ///
    /// # Errors
    /// There is no such folder, or another process uses it.
    pub fn open(path: &Path, access: Access) -> Result<Self, Error> {
        let failed = |source| Error::io("open the folder", path.display(), source);
        let folder = File::open(path).map_err(failed)?;
        if !folder.metadata().map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        let locked = match access {
            Access::Read => folder.try_lock_shared(),
            Access::Write => folder.try_lock(),
        };
        match locked {
            Ok(()) => Ok(Self { path: path.into(), folder }),
            Err(TryLockError::WouldBlock) => Err(Error::Busy { path: path.into() }),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

/// Opens a regular file. No link is followed, and no pipe waited for.
pub(crate) fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = options.custom_flags(flags as i32).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

impl StagedDisk {
    /// A folder that will have the path `target`, which does not exist or is an empty folder. It
    /// is no more accessible than content with the permissions `mode`.
    ///
    /// # Errors
    /// `target` exists, or the folder of it cannot be written.
    pub fn new(target: &Path, mode: u16) -> Result<Self, Error> {
        // To read a file in a folder, one must be allowed to enter the folder.
        let staged = stage(target, mode | (mode & 0o444) >> 2)?;
        let disk = Disk::open(staged.path(), Access::Write)?;
        Ok(Self { disk, target: target.into(), _staged: staged })
    }
}

/// Creates a folder to be renamed to `target`, with permissions that the umask reduces.
pub(crate) fn stage(target: &Path, mode: u16) -> Result<TempDir, Error> {
    let failed = |source| Error::io("create", target.display(), source);
    match target.read_dir().map(|entries| entries.take(1).count()) {
        Ok(0) => {}
        Ok(_) => return Err(Error::Exists { path: target.into() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(Error::Exists { path: target.into() });
        }
        Err(error) => return Err(failed(error)),
    }
    let name = target.file_name().ok_or_else(|| Error::Exists { path: target.into() })?;
    tempfile::Builder::new()
        .prefix(&format!(".{}.partial-", name.to_string_lossy()))
        .permissions(std::fs::Permissions::from_mode(u32::from(mode) | 0o700))
        .tempdir_in(parent(target))
        .map_err(failed)
}

/// The folder that contains a path.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Storage for Disk {
    type File = File;

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in self.path.read_dir()? {
            let entry = entry?;
            if names.len() == FILES_MAX {
                let text = format!("it has more than {FILES_MAX} files");
                return Err(io::Error::other(text));
            }
            if entry.file_type()?.is_file() {
                // A shard has a name in UTF-8, or was renamed.
                names.extend(entry.file_name().into_string());
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str, access: Access) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::Write);
        open_regular(&self.path.join(name), &mut options)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        open_regular(&self.path.join(name), &mut options)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.folder.sync_all()
    }
}

impl Storage for StagedDisk {
    type File = File;

    fn names(&self) -> io::Result<Vec<String>> {
        self.disk.names()
    }

    fn open(&self, name: &str, access: Access) -> io::Result<File> {
        Storage::open(&self.disk, name, access)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        self.disk.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }
}

impl Staging for StagedDisk {
    fn publish(&self) -> io::Result<()> {
        std::fs::rename(&self.disk.path, &self.target)?;
        File::open(parent(&self.target))?.sync_all()
    }
}

impl StoredFile for File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match FileExt::read_at(self, &mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut offset = offset;
        for chunk in bytes.chunks(WRITE_BYTES_MAX) {
            self.write_all_at(chunk, offset)?;
            offset += chunk.len() as u64;
        }
        Ok(())
    }

    fn begin_sync(&self, offset: u64, bytes: u64) {
        // A hint: Linux begins to write dirty pages, and drops only clean ones from its cache.
        let _ = rustix::fs::fadvise(self, offset, NonZeroU64::new(bytes), Advice::DontNeed);
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}
