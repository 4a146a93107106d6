//! QEMU processes: the command line, and the monitor of each.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::kernel::Unpacked;
use super::packages::Architecture;
use super::qmp::Monitor;
use crate::LabError;
use crate::cases::Machine;
use crate::nic::{netdev, port};

/// Image of the disk, which lives as long as the machine.
const DISK: &str = "disk";

/// Memory of a machine with a Debian in memory: 80 MiB of files are there twice while Linux unpacks
/// them.
const DEBIAN_MEMORY_MIB: u32 = 1024;

/// Most processors of a machine that run at once; more take turns in one thread of the host.
const THREADS_MAX: u32 = 2;

/// Which of two machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It has the root of the host, and runs cases.
    Main,
    /// It has box a of a machine with a peer, in a root in memory.
    Peer(Architecture),
}

impl Role {
    /// In front of names of files.
    fn prefix(self) -> &'static str {
        match self {
            Role::Main => "",
            Role::Peer(_) => "peer-",
        }
    }

    /// The ends of each pair that it has.
    fn ends(self, machine: &Machine) -> &'static [usize] {
        match (machine.peer, self) {
            (None, _) => &[0, 1],
            (Some(_), Role::Peer(_)) => &[0],
            (Some(_), Role::Main) => &[1],
        }
    }

    fn architecture(self) -> Architecture {
        match self {
            Role::Main => Architecture::Amd64,
            Role::Peer(architecture) => architecture,
        }
    }

    fn memory_mib(self, machine: &Machine) -> u32 {
        match self {
            Role::Peer(Architecture::Arm64) => DEBIAN_MEMORY_MIB,
            Role::Main | Role::Peer(Architecture::Amd64) => machine.memory_mib,
        }
    }
}

/// A QEMU that ends when this is dropped.
#[derive(Debug)]
pub struct Qemu {
    process: Child,
    /// Its monitor.
    pub monitor: Option<Monitor>,
}

impl Qemu {
    /// Starts a machine with this root. Its files are in `folder`.
    ///
    /// # Errors
    /// When QEMU does not start.
    pub fn start(
        tools: &Path,
        kernel: &Unpacked,
        machine: &Machine,
        role: Role,
        folder: &Path,
        root: &[u8],
    ) -> Result<Qemu, LabError> {
        let initramfs = folder.join(format!("{}initramfs", role.prefix()));
        fs::write(&initramfs, root).map_err(LabError::file(&initramfs))?;
        if machine.disk_mib > 0 {
            let disk = folder.join(DISK);
            let file = fs::File::create(&disk).map_err(LabError::file(&disk))?;
            // A sparse file, which uses no space until written.
            file.set_len(machine.disk_mib << 20).map_err(LabError::file(&disk))?;
        }
        let mut command = command(tools, machine, role, folder);
        command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(&initramfs);
        let output = folder.join(format!("{}qemu.log", role.prefix()));
        let log = fs::File::create(&output).map_err(LabError::file(&output))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut process = command.spawn().map_err(LabError::file(Path::new("setpriv")))?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let monitor = pipes.map(|(commands, output)| Monitor::new(commands, output));
        Ok(Qemu { process, monitor })
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // Both fail only when it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The command line of QEMU, started by the loader of the release that it is from.
fn command(tools: &Path, machine: &Machine, role: Role, folder: &Path) -> Command {
    let libraries = tools.join("usr/lib/x86_64-linux-gnu");
    // It ends with the thread that waits for it.
    let mut command = Command::new("setpriv");
    // Sockets between machines have short names in it.
    command.current_dir(folder);
    command.args(["--pdeathsig", "KILL"]).arg(libraries.join("ld-linux-x86-64.so.2"));
    // Signatures of pointers by the algorithm of the architecture take half of the time.
    let (program, model, processor, console) = match role.architecture() {
        Architecture::Amd64 => ("qemu-system-x86_64", "q35", "max", "ttyS0"),
        Architecture::Arm64 => ("qemu-system-aarch64", "virt", "max,pauth-impdef=on", "ttyAMA0"),
    };
    command.arg("--library-path").arg(&libraries).arg(tools.join("usr/bin").join(program));
    for data in ["qemu", "seabios"] {
        command.arg("-L").arg(tools.join("usr/share").join(data));
    }
    // Linux on many emulated processors that run at once ends in an oops now and then.
    let threads =
        if machine.processors > THREADS_MAX { "tcg,thread=single" } else { "tcg,thread=multi" };
    command.args(["-machine", model, "-accel", threads, "-cpu", processor]);
    let memory_mib = role.memory_mib(machine);
    command.args(["-smp", &machine.processors.to_string(), "-m", &memory_mib.to_string()]);
    command.args(["-nodefaults", "-display", "none", "-no-reboot", "-qmp", "stdio"]);
    command
        .arg("-serial")
        .arg(format!("file:{}", folder.join(format!("{}console.log", role.prefix())).display()));
    let mut options = format!("console={console} panic=-1 loglevel=5 mitigations=off");
    if !machine.behind_iommu.is_empty() {
        options.push_str(" intel_iommu=on");
        // It must precede all devices, and VFIO requires interrupt remapping.
        command.args(["-device", "intel-iommu,intremap=on"]);
    }
    command.arg("-append").arg(options);
    command.args(["-object", "rng-builtin,id=rng", "-device", "virtio-rng-pci,rng=rng"]);
    if role == Role::Main {
        add_folders(&mut command, folder);
    }
    if machine.disk_mib > 0 {
        let file = folder.join(DISK);
        command.arg("-drive").arg(format!("id=disk,if=none,format=raw,file={}", file.display()));
        command.args(["-device", "virtio-blk-pci,drive=disk"]);
    }
    for device in machine.behind_iommu {
        command.args(["-device", device]);
    }
    for (pair, nic) in machine.nics.iter().enumerate() {
        for end in role.ends(machine) {
            let (port, name) = (port(pair, *end), netdev(pair, *end));
            let chassis = 2 * pair + end + 1;
            command.arg("-device").arg(format!("pcie-root-port,id={port},chassis={chassis}"));
            let other = netdev(pair, 1 - end);
            let joined = match machine.peer {
                None => format!("hubport,id={name},hubid={pair}"),
                Some(_) => format!(
                    "dgram,id={name},local.type=unix,local.path={name},remote.type=unix,\
                     remote.path={other}"
                ),
            };
            command.arg("-netdev").arg(joined);
            command.arg("-device").arg(nic.plug(pair, *end).to_string());
        }
    }
    command
}

/// The root of the host, and the folder that is shared with it.
fn add_folders(command: &mut Command, folder: &Path) {
    let share = |path: &str, tag: &str, how: &str| {
        format!("local,path={path},mount_tag={tag},security_model=none,multidevs=remap{how}")
    };
    let shared = folder.join("shared");
    command.arg("-virtfs").arg(share("/", "host", ",readonly=on"));
    command.arg("-virtfs").arg(share(&shared.to_string_lossy(), "shared", ""));
}
