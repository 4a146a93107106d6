//! Reed-Solomon stripes for stored files: k + m shard files; any k of them hold the content.
//!
//! The codes are those of [`recoded_code::reed_solomon`], after Gibraltar (Curry, Skjellum, Ward,
//! Brightwell, 2011), which left updates of a part of a stripe open. This crate adds a format with
//! checksums, verification, repair and such updates, all of them safe against a power cut.
//!
//! ```text
//!  layout, header, unit   the format: offsets, the first bytes of a shard, checksums
//!  storage, disk          operations on files; the same on a file system
//!  set, stripe, workers   shards found in a folder; memory and arithmetic; threads
//!  encode, verify, recover, journal, update    one file for each command
//!  archive                folders, as tar
//!  reliability            how long a set lasts on disks that fail
//! ```
//!
//! Everything from a file is untrusted: lengths are checked before memory is allocated, and loops
//! end where the files end. Checksums have no key: they find accidental damage, not forgery.

#![forbid(unsafe_code)]

mod error;
mod layout;

mod header;
mod unit;

mod storage;

mod disk;

mod stripe;
mod workers;

mod set;

mod encode;
mod verify;

mod recover;

mod journal;
mod update;

mod archive;

mod reliability;

pub use archive::{Packed, extract_folder};
pub use disk::{Disk, StagedDisk};
pub use encode::{Options, Progress, encode};
pub use error::Error;
pub use header::{Content, Header, HeaderError, VERSION};
pub use journal::{JOURNAL, is_pending, replay};
pub use layout::{HEADER_BYTES, Layout, LayoutError, UNIT_BYTES_DEFAULT};
pub use recover::{extract, repair};
pub use reliability::{Disks, YEAR_HOURS};
pub use set::{PARTIAL, Set, Slot, shard_name};
pub use storage::{Access, FILES_MAX, Staging, Storage, StoredFile};
pub use unit::{CHECKSUM_BYTES, Checksum, Place, SetId};
pub use update::update;
pub use verify::{Condition, Report, STRIPES_LISTED, ShardReport, Stripes, Verdict, verify};
