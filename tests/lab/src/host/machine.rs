//! One boot: an initramfs, QEMU, and the lines that the guest writes into the shared folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use recoded_netns::binary;
use serde_json::Value;

use super::cpio::Archive;
use super::kernel::Unpacked;
use super::packages::Cache;
use super::qmp::Monitor;
use crate::LabError;
use crate::cases::{Machine, netdev, port};
use crate::guest::{Line, RESULTS, Request, SHARED, TOOLS_ENV};

/// Modules behind the shared folders and the root.
const MODULES: [&str; 5] = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "af_packet"];

/// Modules behind a disk.
const DISK_MODULES: [&str; 2] = ["virtio_blk", "ext4"];

/// Image of the disk, which lives as long as the machine.
const DISK: &str = "disk";

/// Its place in the first root.
const BUSYBOX: &str = "/bin/busybox";

/// A machine that is running.
#[derive(Debug)]
pub struct Running {
    qemu: Child,
    monitor: Option<Monitor>,
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
        let kernel = Unpacked::find(&cache.kernel(machine.kernel)?)?;
        let shared = folder.join("shared");
        fs::create_dir_all(&shared).map_err(LabError::file(&shared))?;
        let initramfs = folder.join("initramfs");
        let content = first_root(&tools, &kernel, machine, cases)?;
        fs::write(&initramfs, content).map_err(LabError::file(&initramfs))?;
        if machine.disk_mib > 0 {
            let disk = folder.join(DISK);
            let file = fs::File::create(&disk).map_err(LabError::file(&disk))?;
            // It takes no room until it is written.
            file.set_len(machine.disk_mib << 20).map_err(LabError::file(&disk))?;
        }
        let mut command = qemu(&tools, machine, folder)?;
        command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(&initramfs);
        let output = folder.join("qemu.log");
        let log = fs::File::create(&output).map_err(LabError::file(&output))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut qemu = command.spawn().map_err(LabError::file(Path::new("setpriv")))?;
        let pipes = qemu.stdin.take().zip(qemu.stdout.take());
        let monitor = pipes.map(|(commands, output)| Monitor::new(commands, output));
        let patience = Duration::from_secs(machine.seconds);
        Ok(Running { qemu, monitor, shared, began: Instant::now(), patience })
    }

    /// Lines that the guest has written so far.
    pub fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.shared.join(RESULTS)).unwrap_or_default();
        // The last one may be incomplete.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Has QEMU execute the commands of a request, and leaves the answers to the guest.
    pub fn obey(&mut self, request: &Request) {
        std::thread::sleep(Duration::from_millis(request.delay_millis));
        let Some(monitor) = &mut self.monitor else { return };
        let answers = request.commands.iter().map(|command| monitor.execute(command));
        let answers = Value::Array(answers.collect());
        let draft = self.shared.join("answer.new");
        let written = fs::write(&draft, answers.to_string());
        // A guest that finds no answer says so.
        let _ = written.and_then(|()| fs::rename(&draft, self.shared.join(request.answer())));
    }

    /// Whether QEMU still runs and has time left.
    pub fn is_running(&mut self) -> bool {
        matches!(self.qemu.try_wait(), Ok(None)) && self.began.elapsed() < self.patience
    }

    /// Time since the start.
    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it has ended.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// The command line of QEMU, started by the loader of the release that it is from.
fn qemu(tools: &Path, machine: &Machine, folder: &Path) -> Result<Command, LabError> {
    let libraries = tools.join("usr/lib/x86_64-linux-gnu");
    // It ends with the thread that waits for it.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(libraries.join("ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(&libraries).arg(tools.join("usr/bin/qemu-system-x86_64"));
    for data in ["qemu", "seabios"] {
        command.arg("-L").arg(tools.join("usr/share").join(data));
    }
    command.args(["-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max"]);
    command.args(["-smp", &machine.processors.to_string(), "-m", &machine.memory_mib.to_string()]);
    command.args(["-nodefaults", "-display", "none", "-no-reboot", "-qmp", "stdio"]);
    command.arg("-serial").arg(format!("file:{}", folder.join("console.log").display()));
    command.args(["-append", "console=ttyS0 panic=-1 loglevel=5 mitigations=off"]);
    command.args(["-object", "rng-builtin,id=rng", "-device", "virtio-rng-pci,rng=rng"]);
    let share = |path: &str, tag: &str, how: &str| {
        format!("local,path={path},mount_tag={tag},security_model=none,multidevs=remap{how}")
    };
    let shared = folder.join("shared");
    command.arg("-virtfs").arg(share("/", "host", ",readonly=on"));
    command.arg("-virtfs").arg(share(&shared.to_string_lossy(), "shared", ""));
    if machine.disk_mib > 0 {
        let file = folder.join(DISK);
        command.arg("-drive").arg(format!("id=disk,if=none,format=raw,file={}", file.display()));
        command.args(["-device", "virtio-blk-pci,drive=disk"]);
    }
    for (pair, nic) in machine.nics.iter().enumerate() {
        for end in 0..2 {
            let port = port(pair, end);
            command
                .arg("-device")
                .arg(format!("pcie-root-port,id={port},chassis={}", 2 * pair + end + 1));
            command.arg("-netdev").arg(format!("hubport,id={},hubid={pair}", netdev(pair, end)));
            command.arg("-device").arg(nic.plug(pair, end).to_string());
        }
    }
    Ok(command)
}

/// The first root: busybox, modules, and a script that enters the root of the host.
fn first_root(
    tools: &Path,
    kernel: &Unpacked,
    machine: &Machine,
    cases: &[&str],
) -> Result<Vec<u8>, LabError> {
    let drivers = machine.nics.iter().map(|nic| nic.driver());
    let disk = if machine.disk_mib > 0 { &DISK_MODULES[..] } else { &[] };
    let names: Vec<&str> = MODULES.into_iter().chain(drivers).chain(disk.iter().copied()).collect();
    let mut archive = Archive::default();
    for folder in ["bin", "proc", "sys", "dev", "modules", "host", "memory", "new"] {
        archive.folder(folder);
    }
    let busybox = tools.join("usr/bin/busybox");
    let program = fs::read(&busybox).map_err(LabError::file(&busybox))?;
    archive.file(BUSYBOX.trim_start_matches('/'), &program);
    let mut order = Vec::new();
    for module in kernel.modules(&[&names, machine.modules].concat())? {
        archive.file(&format!("modules/{}.ko", module.name), &module.object);
        order.push(module.name);
    }
    let lab = binary("recoded-lab");
    let folder = lab.parent().unwrap_or(Path::new("/"));
    for name in ["recoded", "recodectl"] {
        if !folder.join(name).is_file() {
            return Err(LabError::Unavailable(format!(
                "{} is not built: cargo build --workspace --bins",
                folder.join(name).display()
            )));
        }
    }
    archive.file("init", script(&order, &lab, tools, machine, cases).as_bytes());
    Ok(archive.finish())
}

fn script(
    modules: &[String],
    lab: &Path,
    tools: &Path,
    machine: &Machine,
    cases: &[&str],
) -> String {
    let (lab_folder, lab) = (lab.parent().unwrap_or(Path::new("/")).display(), lab.display());
    format!(
        "#!{BUSYBOX} sh\n\
         b={BUSYBOX}\n\
         $b mount -t proc proc /proc\n\
         $b mount -t sysfs sysfs /sys\n\
         $b mount -t devtmpfs dev /dev\n\
         for module in {modules}; do\n\
             $b insmod /modules/$module.ko || echo \"lab: cannot load $module\"\n\
         done\n\
         $b rm -r /modules\n\
         options=trans=virtio,version=9p2000.L,msize=262144\n\
         $b mount -t 9p -o $options,ro,cache=loose host /host\n\
         $b mount -t tmpfs memory /memory\n\
         $b mkdir /memory/upper /memory/work\n\
         $b mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work o /new\n\
         for folder in proc sys dev; do\n\
             $b mkdir -p /new/$folder\n\
             $b mount --move /$folder /new/$folder\n\
         done\n\
         $b mount -t tmpfs run /new/run\n\
         $b mount -t tmpfs tmp /new/tmp\n\
         $b mkdir -p /new{SHARED}\n\
         $b mount -t 9p -o $options,cache=none shared /new{SHARED}\n\
         $b mount -t bpf bpf /new/sys/fs/bpf\n\
         export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n\
         export RECODED_BIN_DIR={lab_folder} {TOOLS_ENV}={tools} HOME=/root\n\
         ulimit -l unlimited\n\
         exec $b chroot /new {lab} guest {machine} {cases}\n",
        modules = modules.join(" "),
        tools = tools.display(),
        machine = machine.name,
        cases = cases.join(" "),
    )
}
