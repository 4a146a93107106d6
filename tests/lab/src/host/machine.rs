//! One boot: the machine and its peer, and lines that the guest writes into the shared folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::debian;
use super::kernel::Unpacked;
use super::packages::{Architecture, Cache};
use super::qemu::{Qemu, Role};
use super::root;
use crate::LabError;
use crate::cases::Machine;
use crate::guest::{Line, RESULTS, Request};

/// Multiple of the time that a machine takes on an idle host: in `scripts/test` it gets only the
/// CPU time that other tests leave.
const BUSY: u32 = 3;

/// A machine that is running, with its peer, if it has one.
#[derive(Debug)]
pub struct Running {
    qemu: Qemu,
    peer: Option<Qemu>,
    shared: PathBuf,
    began: Instant,
    patience: Duration,
}

impl Running {
    /// Starts a machine that will run these cases. Its files are in `folder`, which is empty.
    ///
    /// # Errors
    /// When packages cannot be fetched, or QEMU does not start.
    pub fn start(
        cache: &Cache,
        machine: &Machine,
        cases: &[&str],
        folder: &Path,
    ) -> Result<Running, LabError> {
        let tools = cache.tools()?;
        let kernel_of = |architecture| Unpacked::find(&cache.kernel(machine.kernel, architecture)?);
        let kernel = kernel_of(Architecture::Amd64)?;
        let shared = folder.join("shared");
        fs::create_dir_all(&shared).map_err(LabError::file(&shared))?;
        let start = |kernel: &Unpacked, role, root: &[u8]| {
            Qemu::start(&tools, kernel, machine, role, folder, root)
        };
        let peer = match machine.peer {
            None => None,
            Some(Architecture::Amd64) => {
                let root = root::peer_root(&tools, &kernel, machine, folder)?;
                Some(start(&kernel, Role::Peer(Architecture::Amd64), &root)?)
            }
            Some(Architecture::Arm64) => {
                let packages = debian::arm64_packages()?;
                let kernel = kernel_of(Architecture::Arm64)?;
                let root = debian::root(&cache.debian()?, &kernel, machine, &packages)?;
                Some(start(&kernel, Role::Peer(Architecture::Arm64), &root)?)
            }
        };
        let qemu = start(&kernel, Role::Main, &root::first_root(&tools, &kernel, machine, cases)?)?;
        let patience = BUSY * Duration::from_secs(machine.seconds);
        Ok(Running { qemu, peer, shared, began: Instant::now(), patience })
    }

    /// Lines that the guest has written so far.
    pub fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.shared.join(RESULTS)).unwrap_or_default();
        // The last one may be incomplete.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Has QEMU execute the commands of a request, and returns the answers to the guest.
    pub fn obey(&mut self, request: &Request) {
        std::thread::sleep(Duration::from_millis(request.delay_millis));
        let qemu = if request.to_peer { self.peer.as_mut() } else { Some(&mut self.qemu) };
        let Some(monitor) = qemu.and_then(|qemu| qemu.monitor.as_mut()) else { return };
        let answers = request.commands.iter().map(|command| monitor.execute(command));
        let answers = Value::Array(answers.collect());
        let draft = self.shared.join("answer.new");
        let written = fs::write(&draft, answers.to_string());
        // A guest that gets no answer reports that itself.
        let _ = written.and_then(|()| fs::rename(&draft, self.shared.join(request.answer())));
    }

    /// Whether QEMU still runs and has time left.
    pub fn is_running(&mut self) -> bool {
        self.qemu.is_running() && self.began.elapsed() < self.patience
    }

    /// Time since the start.
    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }
}
