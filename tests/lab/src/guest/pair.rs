//! Two interfaces that a hub joins.

use std::fs;
use std::time::{Duration, Instant};

use super::boxes::{Boxes, Setup};
use crate::LabError;
use crate::nic::mac;

/// Timeout until interfaces appear, at boot or when returned from a namespace.
const PATIENCE: Duration = Duration::from_secs(120);

/// Names of two interfaces that a hub joins.
#[derive(Clone, Debug)]
pub struct Pair {
    case: &'static str,
    interfaces: [String; 2],
}

impl Pair {
    /// The interfaces of the pair with this number in the machine.
    pub(super) fn find(number: usize, case: &'static str) -> Result<Pair, LabError> {
        let interfaces = [named(&mac(number, 0))?, named(&mac(number, 1))?];
        Ok(Pair { case, interfaces })
    }

    /// Moves each interface into a namespace, with an address, and starts a daemon there.
    ///
    /// # Errors
    /// When a daemon does not start.
    pub fn start(&self, setup: &Setup) -> Result<Boxes, LabError> {
        Boxes::start(self.case, &self.interfaces, setup)
    }
}

/// The interface with a MAC address.
pub(super) fn named(mac: &str) -> Result<String, LabError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for entry in fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
            let address = fs::read_to_string(entry.path().join("address")).unwrap_or_default();
            // A VLAN or a bridge may have the address of the card below.
            if address.trim() == mac && entry.path().join("device").exists() {
                return Ok(entry.file_name().to_string_lossy().into_owned());
            }
        }
        if Instant::now() > deadline {
            return LabError::wrong(format!("no interface with address {mac}: see the console"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
