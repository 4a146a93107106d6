//! Memory of frames that is registered with Linux.

use std::num::NonZeroU32;
use std::ptr::{self, NonNull};

use xsk_rs::{
    FrameDesc,
    config::{FrameSize as ChunkSize, QueueSize, UmemConfig},
};

use crate::{
    error::{XskError, os_error},
    umem::{FrameSize, RING_ENTRIES},
};

/// Memory that AF_XDP sockets share, mapped and registered by xsk-rs.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) xsk: xsk_rs::Umem,
    /// First byte.
    pub(crate) base: NonNull<u8>,
}

impl Shared {
    /// Maps, locks and registers `frames` frames of a size.
    pub(crate) fn map(frames: NonZeroU32, size: FrameSize) -> Result<Shared, XskError> {
        let (xsk, descs) = xsk_rs::Umem::new(config(size)?, frames, false)
            .map_err(|error| XskError::from_umem(os_error(&error), frames.get(), size.bytes()))?;
        let first = descs.first().ok_or(XskError::UnknownDescriptor)?;
        let base = base(&xsk, first);
        Ok(Shared { xsk, base })
    }
}

fn config(size: FrameSize) -> Result<UmemConfig, XskError> {
    let refused = |_| XskError::UnknownDescriptor;
    let entries = QueueSize::new(RING_ENTRIES).map_err(|_| XskError::UnknownDescriptor)?;
    let bytes = u32::try_from(size.bytes()).map_err(|_| XskError::FrameSize(size.bytes()))?;
    UmemConfig::builder()
        .frame_size(ChunkSize::new(bytes).map_err(|_| XskError::UnknownDescriptor)?)
        .fill_queue_size(entries)
        .comp_queue_size(entries)
        .build()
        .map_err(refused)
}

/// First byte of the UMEM; xsk-rs only shows the part that `first` describes.
fn base(xsk: &xsk_rs::Umem, first: &FrameDesc) -> NonNull<u8> {
    // SAFETY: `first` was made by this UMEM, no socket exists yet, and the view is empty.
    let view = unsafe { xsk.data(first) };
    let address = view.contents().as_ptr().addr() - first.addr();
    // The mapping came from C and its address was passed to C: its provenance is exposed. A pointer
    // derived from the (empty) view would give no access to the bytes around it.
    let base = ptr::with_exposed_provenance_mut::<u8>(address);
    NonNull::new(base).expect("a mapping does not start at address zero")
}
