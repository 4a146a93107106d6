//! The `bpf_link` of a program that this process attached.
//!
//! aya does not expose its own descriptor, so a further one is found ([`find`]).

use crate::bpf_link::find;
use aya::programs::links::FdLink;
use std::io;
use std::os::fd::OwnedFd;

/// The link that holds a program.
pub(crate) enum BpfLink {
    /// A descriptor that can be shared.
    Open(OwnedFd),
    /// Only aya has a descriptor, as Linux gave no other: the program ends with this process.
    Alone {
        /// Open while this is.
        _link: FdLink,
    },
}

impl BpfLink {
    pub(crate) fn new(link: FdLink, interface: &str) -> BpfLink {
        let id = link.info().map_err(io::Error::other).map(|info| info.id());
        let found = id.and_then(|id| {
            let mut found = find(|facts| facts.id == id)?;
            found.pop().ok_or_else(|| io::ErrorKind::NotFound.into())
        });
        match found {
            Ok((_, link)) => BpfLink::Open(link),
            Err(error) => {
                tracing::warn!(
                    %error,
                    interface,
                    "packets of this interface will not flow on without the supervisor"
                );
                BpfLink::Alone { _link: link }
            }
        }
    }

    /// A further descriptor, if there can be one.
    pub(crate) fn share(&self) -> Option<OwnedFd> {
        let BpfLink::Open(link) = self else { return None };
        link.try_clone().ok()
    }
}
