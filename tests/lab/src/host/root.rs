//! Roots that machines boot from: modules and busybox, and either a script that enters the root of
//! the host, or all programs of a peer. A peer uses no folder of the host, because a snapshot
//! cannot contain it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use recoded_netns::{binary, process};

use super::cpio::Archive;
use super::kernel::Unpacked;
use crate::LabError;
use crate::cases::Machine;
use crate::guest::{SHARED, TOOLS_ENV};

/// Modules behind the shared folders and the root.
const MODULES: [&str; 5] = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "af_packet"];

/// Modules behind a disk.
const DISK_MODULES: [&str; 2] = ["virtio_blk", "ext4"];

/// Its place in the first root.
const BUSYBOX: &str = "/bin/busybox";

/// Programs of a peer.
const PROGRAMS: [&str; 3] = ["recoded", "recodectl", "recoded-lab"];

/// The first root: busybox, modules, and a script that enters the root of the host.
pub fn first_root(
    tools: &Path,
    kernel: &Unpacked,
    machine: &Machine,
    cases: &[&str],
) -> Result<Vec<u8>, LabError> {
    let disk = if machine.disk_mib > 0 { &DISK_MODULES[..] } else { &[] };
    let folders = ["bin", "proc", "sys", "dev", "modules", "host", "memory", "new"];
    let (mut archive, order) = base(tools, kernel, machine, &folders, &[&MODULES, disk].concat())?;
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

/// A root in memory with the programs of a peer.
pub fn peer_root(
    tools: &Path,
    kernel: &Unpacked,
    machine: &Machine,
    folder: &Path,
) -> Result<Vec<u8>, LabError> {
    let folders = ["bin", "proc", "sys", "dev", "tmp", "run", "modules"];
    let modules = ["virtio_pci", "af_packet"];
    let (mut archive, order) = base(tools, kernel, machine, &folders, &modules)?;
    let mut libraries = Vec::new();
    for name in PROGRAMS {
        let stripped = folder.join(name);
        let strip = process::run(Command::new("strip").arg("-o").arg(&stripped).arg(binary(name)));
        strip.map_err(|error| LabError::Unavailable(error.to_string()))?;
        add_program(&mut archive, &mut libraries, name, &stripped)?;
    }
    let ip = process::run(Command::new("sh").args(["-c", "command -v ip"]))?;
    add_program(&mut archive, &mut libraries, "ip", Path::new(ip.trim()))?;
    archive.file("init", peer_script(&order, machine).as_bytes());
    Ok(archive.finish())
}

/// Adds a program, with all libraries that are not there yet.
fn add_program(
    archive: &mut Archive,
    libraries: &mut Vec<PathBuf>,
    name: &str,
    program: &Path,
) -> Result<(), LabError> {
    let content = fs::read(program).map_err(LabError::file(program))?;
    archive.file(&format!("bin/{name}"), &content);
    let needed = process::run(Command::new("ldd").arg(program))?;
    let paths = needed.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
    for path in paths {
        if libraries.contains(&path) {
            continue;
        }
        let content = fs::read(&path).map_err(LabError::file(&path))?;
        let parents: Vec<&Path> = path.ancestors().skip(1).collect();
        for parent in parents.iter().rev().filter(|parent| parent.parent().is_some()) {
            archive.folder(parent.to_string_lossy().trim_start_matches('/'));
        }
        archive.file(path.to_string_lossy().trim_start_matches('/'), &content);
        libraries.push(path);
    }
    Ok(())
}

/// An archive with folders, busybox and modules, and the load order of the modules.
fn base(
    tools: &Path,
    kernel: &Unpacked,
    machine: &Machine,
    folders: &[&str],
    modules: &[&str],
) -> Result<(Archive, Vec<String>), LabError> {
    let mut archive = Archive::default();
    for folder in folders {
        archive.folder(folder);
    }
    let busybox = tools.join("usr/bin/busybox");
    let program = fs::read(&busybox).map_err(LabError::file(&busybox))?;
    archive.file(BUSYBOX.trim_start_matches('/'), &program);
    let drivers: Vec<&str> = machine.nics.iter().map(|nic| nic.driver()).collect();
    let mut order = Vec::new();
    for module in kernel.modules(&[modules, &drivers, machine.modules].concat())? {
        archive.file(&format!("modules/{}.ko", module.name), &module.object);
        order.push(module.name);
    }
    Ok((archive, order))
}

fn peer_script(modules: &[String], machine: &Machine) -> String {
    format!(
        "#!{BUSYBOX} sh\n\
         b={BUSYBOX}\n\
         $b mount -t proc proc /proc\n\
         $b mount -t sysfs sysfs /sys\n\
         $b mount -t devtmpfs dev /dev\n\
         $b mount -t tmpfs run /run\n\
         $b mount -t bpf bpf /sys/fs/bpf\n\
         for module in {modules}; do\n\
             $b insmod /modules/$module.ko || echo \"lab: cannot load $module\"\n\
         done\n\
         $b rm -r /modules\n\
         $b --install -s /bin\n\
         export PATH=/bin RECODED_BIN_DIR=/bin HOME=/\n\
         ulimit -l unlimited\n\
         exec recoded-lab peer {machine}\n",
        modules = modules.join(" "),
        machine = machine.name,
    )
}
