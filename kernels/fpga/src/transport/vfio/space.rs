//! The access to a device, and its DMA addresses: iommufd if Linux offers it for the device,
//! otherwise the container of its group.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::calls::{Linux, Request};
use super::{VfioError, call, word, words};
use crate::transport::arenas::Access;

/// DMA addresses of one card.
pub enum Space {
    /// The group is open as long as the device.
    Container { container: OwnedFd, _group: OwnedFd },
    /// An I/O address space of iommufd, by its number.
    Iommufd { iommufd: OwnedFd, space: u32 },
}

impl Space {
    /// The device at `address` and its space. The device must be closed first.
    ///
    /// # Errors
    /// See [`VfioError`].
    pub fn open(linux: &mut impl Linux, address: &str) -> Result<(File, Self), VfioError> {
        match character_device(linux, address) {
            Some((device, iommufd)) => Self::of_iommufd(linux, device, iommufd),
            None => Self::of_container(linux, address),
        }
    }

    fn of_iommufd(
        linux: &mut impl Linux,
        device: OwnedFd,
        iommufd: OwnedFd,
    ) -> Result<(File, Self), VfioError> {
        let mut bind = words([16, 0, iommufd.as_raw_fd().cast_unsigned(), 0]);
        linux
            .call(device.as_fd(), Request::DeviceBindIommufd, &mut bind)
            .map_err(call("binding the device to iommufd (has another program opened it?)"))?;
        let mut space = words([12, 0, 0]);
        linux
            .call(iommufd.as_fd(), Request::IoasAlloc, &mut space)
            .map_err(call("an address space of iommufd"))?;
        let space = word(&space, 2);
        let mut attach = words([12, 0, space]);
        linux
            .call(device.as_fd(), Request::DeviceAttach, &mut attach)
            .map_err(call("attaching the device to its address space"))?;
        Ok((File::from(device), Self::Iommufd { iommufd, space }))
    }

    fn of_container(linux: &mut impl Linux, address: &str) -> Result<(File, Self), VfioError> {
        let group_number = group_of(linux, address)?;
        let container = linux.open(Path::new(CONTAINER)).map_err(call(CONTAINER))?;
        let mut ask =
            |request, fd: &OwnedFd, argument: &mut [u8]| linux.call(fd.as_fd(), request, argument);
        let version = ask(Request::GetApiVersion, &container, &mut []).map_err(call("version"))?;
        let has_type1 = ask(Request::CheckExtension(TYPE1V2), &container, &mut []);
        if version != API_VERSION || has_type1.map_err(call("type 1 IOMMU"))? != 1 {
            return Err(VfioError::Version { version });
        }
        let group = linux.open(&Path::new(FOLDER).join(group_number.to_string()));
        let group = group.map_err(|error| call(cause_of_no_group(&error))(error))?;
        let mut status = words([8, 0]);
        linux
            .call(group.as_fd(), Request::GroupGetStatus, &mut status)
            .map_err(call("status of the VFIO group"))?;
        if word(&status, 1) & GROUP_VIABLE == 0 {
            return Err(VfioError::NotViable { group: group_number });
        }
        let mut of_container = container.as_raw_fd().to_le_bytes();
        linux
            .call(group.as_fd(), Request::GroupSetContainer, &mut of_container)
            .map_err(call("joining the VFIO container"))?;
        linux
            .call(container.as_fd(), Request::SetIommu(TYPE1V2), &mut [])
            .map_err(call("setting the IOMMU up"))?;
        let device = linux.device(group.as_fd(), address).map_err(call("VFIO device"))?;
        Ok((File::from(device), Self::Container { container, _group: group }))
    }

    /// Lets the card read, or read and write, `bytes` of this process's memory at `here` by the
    /// address `there`.
    ///
    /// # Errors
    /// Linux's error.
    pub fn map(
        &self,
        linux: &mut impl Linux,
        here: u64,
        there: u64,
        bytes: u64,
        access: Access,
    ) -> io::Result<()> {
        let writes = access == Access::ReadWrite;
        let with = |mut argument: Vec<u8>, values: [u64; 3]| {
            argument.extend(values.into_iter().flat_map(u64::to_le_bytes));
            argument
        };
        match self {
            Self::Container { container, .. } => {
                let flags = DMA_READ | if writes { DMA_WRITE } else { 0 };
                let mut argument = with(words([32, flags]), [here, there, bytes]);
                linux.call(container.as_fd(), Request::MapDma, &mut argument)
            }
            Self::Iommufd { iommufd, space } => {
                let flags = IOAS_FIXED | IOAS_READABLE | if writes { IOAS_WRITEABLE } else { 0 };
                let mut argument = with(words([40, flags, *space, 0]), [here, bytes, there]);
                linux.call(iommufd.as_fd(), Request::IoasMap, &mut argument)
            }
        }
        .map(|_| ())
    }

    /// Ends a mapping by [`Self::map`].
    ///
    /// # Errors
    /// Linux's error.
    pub fn unmap(&self, linux: &mut impl Linux, there: u64, bytes: u64) -> io::Result<()> {
        let (fd, request, second) = match self {
            Self::Container { container, .. } => (container, Request::UnmapDma, 0),
            Self::Iommufd { iommufd, space } => (iommufd, Request::IoasUnmap, *space),
        };
        let mut argument = words([24, second]);
        argument.extend([there, bytes].into_iter().flat_map(u64::to_le_bytes));
        linux.call(fd.as_fd(), request, &mut argument).map(|_| ())
    }
}

/// The device's own file and iommufd, if both exist and may be opened.
fn character_device(linux: &mut impl Linux, address: &str) -> Option<(OwnedFd, OwnedFd)> {
    let folder = PathBuf::from(format!("/sys/bus/pci/devices/{address}/vfio-dev"));
    let name = linux.entry(&folder).ok()?;
    let device = linux.open(&Path::new(DEVICES).join(name)).ok()?;
    Some((device, linux.open(Path::new(IOMMUFD)).ok()?))
}

/// The reason why a group cannot be opened: Linux lets one program have it at a time.
fn cause_of_no_group(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ResourceBusy => "VFIO group (has another program opened it?)",
        _ => "VFIO group (is the device bound to vfio-pci?)",
    }
}

fn group_of(linux: &mut impl Linux, address: &str) -> Result<u32, VfioError> {
    let link = PathBuf::from(format!("/sys/bus/pci/devices/{address}/iommu_group"));
    let group = linux.read_link(&link).ok();
    let name = group.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    let number = name.and_then(|name| name.parse().ok());
    number.ok_or_else(|| VfioError::NoGroup { address: address.into() })
}

const FOLDER: &str = "/dev/vfio";
const CONTAINER: &str = "/dev/vfio/vfio";
const DEVICES: &str = "/dev/vfio/devices";
const IOMMUFD: &str = "/dev/iommu";

// From linux/vfio.h.
const API_VERSION: i32 = 0;
const TYPE1V2: u32 = 3;
const GROUP_VIABLE: u32 = 1;
const DMA_READ: u32 = 1;
const DMA_WRITE: u32 = 2;

// From linux/iommufd.h.
const IOAS_FIXED: u32 = 1;
const IOAS_WRITEABLE: u32 = 2;
const IOAS_READABLE: u32 = 4;
