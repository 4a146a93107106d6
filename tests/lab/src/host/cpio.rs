//! Archives of the format `newc`, which Linux unpacks as its first root.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::{fs, io};

/// An archive that grows in memory.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const PLAIN: u32 = 0o100_644;
const LINK: u32 = 0o120_777;

/// Bits of a mode that a file keeps, and the kinds of files.
const MODE_BITS: u32 = 0o7_777;
const FOLDER_KIND: u32 = 0o040_000;
const FILE_KIND: u32 = 0o100_000;

impl Archive {
    /// Adds a folder, named from the root without a slash in front.
    pub fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER, &[]);
    }

    /// Adds a file that may be executed.
    pub fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, PROGRAM, content);
    }

    /// Adds a file that is no program.
    pub fn plain(&mut self, name: &str, content: &[u8]) {
        self.entry(name, PLAIN, content);
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, name: &str, target: &str) {
        self.entry(name, LINK, target.as_bytes());
    }

    /// Adds everything below a folder of this host as root's, except these parts of it.
    ///
    /// # Errors
    /// When something cannot be read.
    pub fn tree(&mut self, root: &Path, left_out: &[&str]) -> io::Result<()> {
        self.branch(root, "", left_out)
    }

    fn branch(&mut self, root: &Path, name: &str, left_out: &[&str]) -> io::Result<()> {
        for entry in fs::read_dir(root.join(name))? {
            let entry = entry?;
            let own = entry.file_name();
            let own = own.to_string_lossy();
            let name = if name.is_empty() { own.into_owned() } else { format!("{name}/{own}") };
            if left_out.contains(&name.as_str()) {
                continue;
            }
            let path = entry.path();
            let found = fs::symlink_metadata(&path)?;
            let mode = found.permissions().mode() & MODE_BITS;
            if found.is_dir() {
                self.entry(&name, FOLDER_KIND | mode, &[]);
                self.branch(root, &name, left_out)?;
            } else if found.is_symlink() {
                self.entry(&name, LINK, fs::read_link(&path)?.as_os_str().as_bytes());
            } else if found.is_file() {
                self.entry(&name, FILE_KIND | mode, &fs::read(&path)?);
            }
        }
        Ok(())
    }

    /// The finished archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        // Number, mode, user, group, links, time, size, four numbers of devices, size of the name,
        // checksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
