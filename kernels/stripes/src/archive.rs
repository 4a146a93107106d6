//! Folders as tar archives: files, folders and symbolic links, with modes and times.
//!
//! Links are stored as links and never followed. A folder comes after its contents, so that its
//! mode and time are set last. Extraction goes to a new folder that is renamed when it is durable.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, PipeReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::thread::JoinHandle;

use rustix::fs::{AtFlags, Timespec, Timestamps};
use tar::{Archive, Builder, EntryType, HeaderMode};

use crate::disk::{open_regular, parent, stage};
use crate::error::Error;

/// Deepest folder that is packed. A path of Linux has at most 4096 bytes.
const DEPTH_MAX: usize = 2048;

/// Bytes that the packer collects before it writes to the pipe: fewer calls for small files.
const BUFFER_BYTES: usize = 256 << 10;

/// The archive of a folder, to be read. If packing fails, the end of it is an error.
#[derive(Debug)]
pub struct Packed {
    reader: PipeReader,
    packer: Option<JoinHandle<Result<(), Error>>>,
}

impl Packed {
    /// Starts to pack `folder`. `output` will be written meanwhile.
    ///
    /// # Errors
    /// The folder cannot be read, or `output` is inside.
    pub fn new(folder: &Path, output: &Path) -> Result<Self, Error> {
        let failed = |source| Error::io("read", folder.display(), source);
        let folder = folder.canonicalize().map_err(failed)?;
        let outside = parent(output).canonicalize();
        let outside = outside.map_err(|source| Error::io("create", output.display(), source))?;
        if outside.starts_with(&folder) {
            return Err(Error::InsideInput { path: output.into() });
        }
        let (reader, writer) = io::pipe().map_err(failed)?;
        let pack = move || pack(&folder, BufWriter::with_capacity(BUFFER_BYTES, writer));
        Ok(Self { reader, packer: Some(std::thread::spawn(pack)) })
    }
}

impl Read for Packed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.reader.read(buffer)?;
        if bytes == 0
            && let Some(packer) = self.packer.take()
        {
            let packed = packer.join().map_err(|_| io::Error::other("the packer panicked"))?;
            packed.map_err(io::Error::other)?;
        }
        Ok(bytes)
    }
}

fn pack(folder: &Path, output: impl Write) -> Result<(), Error> {
    let mut builder = Builder::new(output);
    builder.follow_symlinks(false);
    builder.mode(HeaderMode::Complete);
    builder.sparse(false);
    let mut packer = Packer { root: folder, builder };
    packer.pack_contents(Path::new(""), 0)?;
    let failed = |source| Error::io("archive", folder.display(), source);
    packer.builder.into_inner().and_then(|mut output| output.flush()).map_err(failed)
}

/// A file of a fixed length: bytes behind it are left out, and missing ones are an error.
struct Exact {
    file: File,
    rest: u64,
}

impl Read for Exact {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.rest.min(buffer.len() as u64) as usize;
        let bytes = self.file.read(&mut buffer[..length])?;
        if bytes == 0 && length > 0 {
            return Err(io::Error::other("it became shorter while it was read"));
        }
        self.rest -= bytes as u64;
        Ok(bytes)
    }
}

struct Packer<'a, W: Write> {
    root: &'a Path,
    builder: Builder<W>,
}

impl<W: Write> Packer<'_, W> {
    fn pack_contents(&mut self, inner: &Path, depth: usize) -> Result<(), Error> {
        let folder = self.root.join(inner);
        let failed = |source| Error::io("read", folder.display(), source);
        if depth > DEPTH_MAX {
            return Err(failed(io::ErrorKind::InvalidFilename.into()));
        }
        let entries = folder.read_dir().map_err(failed)?;
        let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
        let mut names = names.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        names.sort();
        names.iter().try_for_each(|name| self.pack_entry(&inner.join(name), depth))
    }

    fn pack_entry(&mut self, inner: &Path, depth: usize) -> Result<(), Error> {
        let path = self.root.join(inner);
        let failed = |source| Error::io("archive", path.display(), source);
        let kind = path.symlink_metadata().map_err(failed)?.file_type();
        if kind.is_dir() {
            self.pack_contents(inner, depth + 1)?;
            self.builder.append_dir(inner, &path).map_err(failed)
        } else if kind.is_symlink() {
            self.builder.append_path_with_name(&path, inner).map_err(failed)
        } else if kind.is_file() {
            self.pack_file(inner, &path).map_err(failed)
        } else {
            Err(Error::Special { path })
        }
    }

    /// Packs as many bytes as the header states, although the file may grow meanwhile.
    fn pack_file(&mut self, inner: &Path, path: &Path) -> io::Result<()> {
        let file = open_regular(path, OpenOptions::new().read(true))?;
        let metadata = file.metadata()?;
        let mut header = tar::Header::new_gnu();
        header.set_metadata(&metadata);
        let file = Exact { rest: metadata.len(), file };
        self.builder.append_data(&mut header, inner, file)
    }
}

/// Extracts an archive to a new folder `target`, which appears when everything in it is durable. It
/// has the permissions `mode`, reduced by the umask.
/// `write` writes the archive to the pipe it is given.
///
/// # Errors
/// `target` exists, `write` fails, or an entry would leave the folder or has another kind than
/// file, folder and symbolic link.
pub fn extract_folder(
    target: &Path,
    mode: u16,
    write: impl FnOnce(io::PipeWriter) -> Result<(), Error> + Send,
) -> Result<(), Error> {
    let staged = stage(target, mode)?;
    let failed = |source| Error::io("extract to", target.display(), source);
    let extracted = io::pipe().map_err(failed).and_then(|(reader, writer)| {
        let (written, unpacked) = std::thread::scope(|scope| {
            let written = scope.spawn(|| write(writer));
            // The reader is dropped at the end, so that the writer does not wait for it.
            let unpacked = unpack(reader, staged.path());
            let panicked = |_| Err(failed(io::ErrorKind::Other.into()));
            (written.join().unwrap_or_else(panicked), unpacked)
        });
        first_cause(written, unpacked)
    });
    let published = extracted.and_then(|()| publish(staged.path(), target).map_err(failed));
    if published.is_err() {
        make_removable(staged.path());
    }
    published
}

/// The error that caused the other one: an archive that ends early is a consequence of an error of
/// its writer, and a closed pipe is a consequence of an error of its reader.
fn first_cause(written: Result<(), Error>, unpacked: Result<(), Error>) -> Result<(), Error> {
    match (written, unpacked) {
        (Err(Error::Io { source, .. }), Err(error))
            if source.kind() == io::ErrorKind::BrokenPipe =>
        {
            Err(error)
        }
        (written, unpacked) => written.and(unpacked),
    }
}

/// Makes folders writable again, so that they can be removed with their contents. Errors
/// are ignored here: the removal then meets the same folder.
fn make_removable(folder: &Path) {
    let _ = std::fs::set_permissions(folder, Permissions::from_mode(0o700));
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        // Not the kind behind a link.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_removable(&entry.path());
        }
    }
}

fn publish(staged: &Path, target: &Path) -> io::Result<()> {
    // All files at once.
    rustix::fs::syncfs(File::open(staged)?)?;
    std::fs::rename(staged, target)?;
    File::open(parent(target))?.sync_all()
}

fn unpack(mut reader: impl Read, folder: &Path) -> Result<(), Error> {
    let failed = |source| Error::io("extract to", folder.display(), source);
    let mut archive = Archive::new(&mut reader);
    for entry in archive.entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        let path: PathBuf = entry.path().map_err(failed)?.into();
        let refused = |reason| Error::Archive { entry: path.display().to_string(), reason };
        // Sparse files are not written by `pack`, and can be longer than their archive.
        let kind = entry.header().entry_type();
        if !matches!(kind, EntryType::Regular | EntryType::Directory | EntryType::Symlink) {
            return Err(refused("is no file, folder or symbolic link"));
        }
        // Without setuid: the file may belong to another user than before.
        entry.set_preserve_permissions(false);
        if !entry.unpack_in(folder).map_err(failed)? {
            return Err(refused("would leave the folder"));
        }
        if kind == EntryType::Directory {
            set_time(&inside(folder, &path), entry.header()).map_err(failed)?;
        }
    }
    // The writer fills the last block with zeros; the archive may end before.
    io::copy(&mut reader, &mut io::sink()).map(drop).map_err(failed)
}

/// Path of an extracted entry.
fn inside(folder: &Path, path: &Path) -> PathBuf {
    let names = path.components().filter(|part| matches!(part, Component::Normal(_)));
    folder.join(names.collect::<PathBuf>())
}

/// Sets the time of a folder, which the crate `tar` does for files only. A link is not followed.
fn set_time(path: &Path, header: &tar::Header) -> io::Result<()> {
    let tv_sec = i64::try_from(header.mtime()?).unwrap_or_default();
    let time = Timespec { tv_sec, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (path, kind, link) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o755);
            header.set_size(0);
            // By hand: the safe methods refuse such names.
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
            header.set_cksum();
            builder.append(&header, &[][..]).expect("memory has room");
        }
        builder.into_inner().expect("memory has room")
    }

    fn extract(bytes: &[u8]) -> (tempfile::TempDir, Result<(), Error>) {
        let folder = tempfile::tempdir().expect("there is room");
        let result = extract_folder(&folder.path().join("out"), 0o777, |mut pipe| {
            pipe.write_all(bytes).map_err(|source| Error::io("write", "the pipe", source))
        });
        (folder, result)
    }

    #[test]
    fn entries_that_would_leave_the_folder_are_refused() {
        for entries in [
            &[("../evil", EntryType::Regular, "")][..],
            &[("a/../../evil", EntryType::Regular, "")],
            &[("link", EntryType::Symlink, ".."), ("link/evil", EntryType::Regular, "")],
            &[("evil", EntryType::Link, "/etc/passwd")],
            &[("evil", EntryType::Char, "")],
            &[("evil", EntryType::Fifo, "")],
            &[("evil", EntryType::GNUSparse, "")],
        ] {
            let (folder, result) = extract(&archive(entries));
            assert!(result.is_err(), "{entries:?}");
            assert!(!folder.path().join("out").exists(), "{entries:?}");
            assert!(!folder.path().join("evil").exists(), "{entries:?}");
        }
    }

    #[test]
    fn absolute_names_stay_inside() {
        let (folder, result) = extract(&archive(&[("/inside", EntryType::Regular, "")]));
        result.expect("the leading slash is dropped");
        assert!(folder.path().join("out/inside").exists());
    }

    #[test]
    fn archive_that_is_no_archive_is_an_error() {
        let (folder, result) = extract(&[7; 2048]);
        assert!(result.is_err());
        assert!(!folder.path().join("out").exists());
    }
}
