//! One card with one backend: it carries, and `show` names its modes.

use crate::LabError;
use crate::guest::{Guest, Setup, Stack};
use crate::nic::Nic;

/// One card with one backend.
pub(super) struct Trial {
    nic: Nic,
    backend: Option<&'static str>,
    /// Modes of XDP and of sockets, as `show` names them.
    modes: [&'static str; 2],
    /// A word of the reason in `show`.
    reason: &'static str,
    /// Interface stack between card and link.
    stack: Option<Stack>,
}

impl Trial {
    pub(super) fn new(nic: Nic, backend: Option<&'static str>, modes: [&'static str; 2]) -> Trial {
        Trial { nic, backend, modes, reason: "", stack: None }
    }

    pub(super) fn reason(self, reason: &'static str) -> Trial {
        Trial { reason, ..self }
    }

    pub(super) fn stack(self, stack: Stack) -> Trial {
        Trial { stack: Some(stack), ..self }
    }

    pub(super) fn run(self, guest: &Guest) -> Result<String, LabError> {
        let pair = guest.pair(self.nic)?;
        let Trial { backend, stack, .. } = self;
        let boxes = pair.start(&Setup { backend, stack, ..Setup::default() })?;
        boxes.carry()?;
        for node in boxes.nodes() {
            // A card that splits packets over frames loses them: streams adapt, datagrams do not.
            let split = node.show()?.verdicts.get("drop_truncated").copied().unwrap_or(0);
            if split > 0 {
                return LabError::wrong(format!("{split} packets arrived truncated"));
            }
        }
        let [a, _] = boxes.links()?;
        let is = [a.xdp_mode.as_str(), a.socket_mode.as_str()];
        if is != self.modes || !a.reason.contains(self.reason) {
            let [xdp, socket] = self.modes;
            return LabError::wrong(format!(
                "expected {xdp}, {socket} (reason with '{}'), show has {}, {} (reason '{}')",
                self.reason, is[0], is[1], a.reason
            ));
        }
        Ok(format!("{}, {}", is[0], is[1]))
    }
}
