//! The shards of a set as they are found in a folder. Headers decide which shard a file is, names
//! do not. Lengths in headers are not trusted: files have as many stripes as they have bytes for.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::header::{Header, HeaderError};
use crate::layout::{HEADER_BYTES, Layout};
use crate::storage::{Access, Storage, StoredFile};
use crate::stripe::Stripe;
use crate::unit::{CHECKSUM_BYTES, Checksum, Place};

/// End of the names of files that are being written. They are ignored, and may be removed.
pub const PARTIAL: &str = ".partial";

/// The state of a shard.
#[derive(Debug)]
pub enum Slot<F> {
    /// Its header is valid and has the newest revision.
    Current {
        /// Name of its file.
        name: String,
        /// Its file.
        file: F,
        /// Length of its file.
        bytes: u64,
    },
    /// No file has its header or its name.
    Missing,
    /// The file of its name has no valid header.
    Headless {
        /// Name of its file.
        name: String,
    },
    /// It missed an update, as a shard from an old backup does.
    Stale {
        /// Name of its file.
        name: String,
    },
}

impl<F> Slot<F> {
    /// Name of its file, if it has one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Slot::Current { name, .. } | Slot::Headless { name } | Slot::Stale { name } => {
                Some(name)
            }
            Slot::Missing => None,
        }
    }
}

/// A set.
#[derive(Debug)]
pub struct Set<F> {
    /// Header of the newest revision, for shard 0.
    pub header: Header,
    /// All shards, by number.
    pub slots: Vec<Slot<F>>,
}

/// Units of a stripe that are read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// All of them.
    All,
    /// Data units, and in place of bad ones parity units until k are intact.
    Data,
}

/// Name of the file of a shard.
#[must_use]
pub fn shard_name(shard: usize) -> String {
    format!("shard-{shard:03}.stripes")
}

/// Shard whose name a file has.
fn shard_of_name(name: &str) -> Option<usize> {
    let digits = name.strip_prefix("shard-")?.strip_suffix(".stripes")?;
    digits.parse().ok().filter(|shard| shard_name(*shard) == name)
}

/// A file with a valid header.
struct Found<F> {
    name: String,
    file: F,
    bytes: u64,
    header: Header,
}

impl<F: StoredFile> Set<F> {
    /// Looks at all files of a folder. An interrupted update is not replayed.
    ///
    /// # Errors
    /// There is no set, or more than one, or a shard is there twice.
    pub fn scan<S: Storage<File = F>>(storage: &S) -> Result<Self, Error> {
        let mut names =
            storage.names().map_err(|source| Error::io("list", "the folder", source))?;
        names.retain(|name| !name.ends_with(PARTIAL));
        names.sort();
        let (mut found, mut headless) = (Vec::new(), BTreeMap::new());
        for name in names {
            let file = storage.open(&name, Access::Read);
            let file = file.map_err(|source| Error::io("open", &name, source))?;
            let bytes = file.bytes().map_err(|source| Error::io("read", &name, source))?;
            match read_header(&name, &file)? {
                Ok(header) => found.push(Found { name, file, bytes, header }),
                Err(HeaderError::Version(version)) => return Err(Error::Version { name, version }),
                Err(HeaderError::Foreign | HeaderError::Damaged) => {
                    headless.extend(shard_of_name(&name).map(|shard| (shard, name)));
                }
            }
        }
        Self::assemble(found, headless)
    }

    fn assemble(
        found: Vec<Found<F>>,
        mut headless: BTreeMap<usize, String>,
    ) -> Result<Self, Error> {
        let Some(first) = found.first() else { return Err(Error::NoSet) };
        for other in &found {
            check_same_set(first, other)?;
        }
        let revision = found.iter().map(|it| it.header.revision).max().unwrap_or_default();
        let header = Header { shard: 0, revision, ..first.header };
        let mut slots: Vec<Slot<F>> = (0..header.layout.shards())
            .map(|shard| {
                headless.remove(&shard).map_or(Slot::Missing, |name| Slot::Headless { name })
            })
            .collect();
        for Found { name, file, bytes, header: Header { shard, revision: found, .. } } in found {
            if let Slot::Current { name: first, .. } | Slot::Stale { name: first } = &slots[shard] {
                return Err(Error::Duplicate { shard, first: first.clone(), other: name });
            }
            slots[shard] = if found == revision {
                Slot::Current { name, file, bytes }
            } else {
                Slot::Stale { name }
            };
        }
        Ok(Self { header, slots })
    }

    /// Code and lengths.
    pub const fn layout(&self) -> &Layout {
        &self.header.layout
    }

    /// Stripes with a part in any shard: no more than files have bytes for, whatever the
    /// headers state.
    pub fn stripes_found(&self) -> u64 {
        let stripes = self.slots.iter().map(|slot| match slot {
            Slot::Current { bytes, .. } => self.layout().stripes_within(*bytes),
            _ => 0,
        });
        stripes.max().unwrap_or_default()
    }

    /// Fails if there is a stripe that no shard holds any part of.
    pub(crate) fn check_length(&self) -> Result<(), Error> {
        let (stripe, needed) = (self.stripes_found(), self.layout().data());
        if stripe == self.layout().stripes() {
            return Ok(());
        }
        Err(Error::Lost { stripe, intact: 0, needed })
    }

    /// Reads units of a stripe, which is less than the layout's `stripes`, and checks them.
    pub(crate) fn load(
        &self,
        number: u64,
        wanted: Wanted,
        stripe: &mut Stripe,
    ) -> Result<(), Error> {
        stripe.reset(self.layout().unit_bytes_of(number));
        for shard in 0..self.slots.len() {
            if wanted == Wanted::Data && stripe.intact() == self.layout().data() {
                break;
            }
            self.load_unit(number, shard, stripe)?;
        }
        Ok(())
    }

    /// Reads and checks one unit. It is not intact if its file is missing, short or unreadable.
    pub(crate) fn load_unit(
        &self,
        number: u64,
        shard: usize,
        stripe: &mut Stripe,
    ) -> Result<(), Error> {
        let Slot::Current { file, name, .. } = &self.slots[shard] else { return Ok(()) };
        let offset = self.layout().unit_offset(number);
        let mut sum: Checksum = [0; CHECKSUM_BYTES];
        let unit = stripe.unit_mut(shard);
        let end = offset + unit.len() as u64;
        let read = file.read_at(offset, unit).and_then(|unit_bytes| {
            Ok(unit_bytes == unit.len() && file.read_at(end, &mut sum)? == sum.len())
        });
        let is_whole = match read {
            Ok(is_whole) => is_whole,
            Err(error) if is_bad_sector(&error) => false,
            Err(source) => return Err(Error::io("read", name, source)),
        };
        let place = Place { set: self.header.set, shard, stripe: number };
        if is_whole && place.checksum(unit) == sum {
            stripe.set_intact(shard);
        }
        Ok(())
    }
}

/// EIO: the disk cannot read its sector. The unit is lost, and others may not be.
fn is_bad_sector(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

fn read_header(name: &str, file: &impl StoredFile) -> Result<Result<Header, HeaderError>, Error> {
    let mut bytes = [0; HEADER_BYTES];
    match file.read_at(0, &mut bytes) {
        Ok(length) => Ok(Header::parse(&bytes[..length])),
        Err(error) if is_bad_sector(&error) => Ok(Err(HeaderError::Damaged)),
        Err(source) => Err(Error::io("read", name, source)),
    }
}

fn check_same_set<F>(first: &Found<F>, other: &Found<F>) -> Result<(), Error> {
    let names = || (first.name.clone(), other.name.clone());
    if first.header.set != other.header.set {
        let (first_set, other_set) = (first.header.set, other.header.set);
        let (first, other) = names();
        return Err(Error::Mixed { first, first_set, other, other_set });
    }
    if !first.header.agrees(&other.header) {
        let (first, other) = names();
        return Err(Error::Contradiction { first, other });
    }
    Ok(())
}

/// Writes a unit and its checksum to its place in the file of its shard.
pub(crate) fn write_unit<F: StoredFile>(
    file: &F,
    layout: &Layout,
    place: Place,
    unit: &[u8],
) -> std::io::Result<()> {
    let offset = layout.unit_offset(place.stripe);
    file.write_at(offset, unit)?;
    file.write_at(offset + unit.len() as u64, &place.checksum(unit))
}
