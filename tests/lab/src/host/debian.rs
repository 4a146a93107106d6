//! The root in memory of an arm64 peer: a small Debian with systemd and the packages of Recoded.
//!
//! ```text
//!  init (busybox): modules, interfaces, management
//!    -> systemd -> lab.socket, port 7000 -> lab-script, once per script of a case
//!  /packages: recoded.deb, recoded-agent.deb, which a case installs by dpkg
//! ```
//! `scripts/package --profile dev arm64` makes the packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use recoded_netns::binary;

use super::cpio::Archive;
use super::kernel::Unpacked;
use crate::LabError;
use crate::cases::Machine;
use crate::guest::{INTERFACES, MANAGEMENT, PACKAGES, PORT};
use crate::nic::mac;

/// Modules in addition to those of the cards.
const MODULES: [&str; 4] = ["virtio_pci", "virtio_rng", "af_packet", "autofs4"];

/// Folders that no case needs. They hold half of all bytes, or cost seconds of each boot.
const LEFT_OUT: [&str; 6] = [
    "usr/share/doc",
    "usr/share/locale",
    "usr/share/man",
    "usr/lib/aarch64-linux-gnu/gconv",
    "usr/lib/systemd/system-generators",
    "var/cache",
];

/// Units that wait for terminals, rebuild caches of files, or mount unused file systems.
const MASKED: [&str; 14] = [
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "getty-static.service",
    "ldconfig.service",
    "modprobe@.service",
    "proc-sys-fs-binfmt_misc.automount",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-journal-catalog-update.service",
    "systemd-modules-load.service",
    "systemd-random-seed.service",
    "systemd-tmpfiles-clean.timer",
];

const BUSYBOX: &str = "/usr/bin/busybox";

/// Programs of busybox. All others are in packages.
const APPLETS: [&str; 7] = ["awk", "diff", "find", "grep", "ping", "sed", "wc"];

/// Accepts scripts, one per connection.
const SOCKET: &str = "[Unit]\nDescription=Scripts of the lab\n\n\
     [Socket]\nListenStream=PORT\nAccept=yes\n";

/// Runs a script. systemd ends its processes with it; daemons are units of their own.
const SERVICE: &str = "[Unit]\nDescription=A script of the lab\nCollectMode=inactive-or-failed\n\n\
     [Service]\nExecStart=/bin/sh /lab-script\nStandardInput=socket\nStandardOutput=socket\n\
     StandardError=journal\n";

/// Answers with a letter for the success of a script, and its output, as `guest::serve` does.
const SCRIPT: &str = "#!/bin/sh\n\
     export HOME=/root PATH=/usr/sbin:/usr/bin DEBIAN_FRONTEND=noninteractive\n\
     folder=$(mktemp -d)\n\
     cat >$folder/script\n\
     if sh $folder/script >$folder/output; then printf y; else printf n; fi\n\
     cat $folder/output\n\
     rm -r $folder\n";

/// Names of packages, and of the files in [`PACKAGES`].
const NAMES: [&str; 2] = ["recoded", "recoded-agent"];

/// The packages, as `scripts/package` made them.
///
/// # Errors
/// If one is missing, or older than the programs of this host.
pub(super) fn arm64_packages() -> Result<[PathBuf; 2], LabError> {
    let programs = binary("recoded");
    let target = programs.ancestors().nth(2).unwrap_or(Path::new("target"));
    let folder = target.join("debian");
    let built = modified(&programs).unwrap_or(SystemTime::UNIX_EPOCH);
    let [recoded, agent] = NAMES.map(|name| newest(&folder, name, built));
    Ok([recoded?, agent?])
}

fn modified(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).ok()?.modified().ok()
}

/// The newest package of this name for arm64, unless it is older than the programs.
fn newest(folder: &Path, name: &str, built: SystemTime) -> Result<PathBuf, LabError> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| {
        let file = entry.file_name().to_string_lossy().into_owned();
        let is_it = file.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'));
        (is_it && file.ends_with("_arm64.deb")).then(|| entry.path())
    });
    let found = entries.max_by_key(|path| modified(path));
    let fault = match &found {
        None => "missing",
        Some(path) if modified(path) < Some(built) => "older than the programs of this host",
        Some(path) => return Ok(path.clone()),
    };
    Err(LabError::Unavailable(format!(
        "the package {name} for arm64 is {fault}: scripts/package --profile dev arm64"
    )))
}

/// The root: `debian` with packages, a first program, and the units that run scripts.
pub fn root(
    debian: &Path,
    kernel: &Unpacked,
    machine: &Machine,
    packages: &[PathBuf; 2],
) -> Result<Vec<u8>, LabError> {
    let mut archive = Archive::default();
    archive.tree(debian, &LEFT_OUT).map_err(LabError::file(debian))?;
    for name in ["passwd", "group"] {
        let file = debian.join(format!("usr/share/base-passwd/{name}.master"));
        let content = fs::read(&file).map_err(LabError::file(&file))?;
        archive.plain(&format!("etc/{name}"), &content);
    }
    archive.plain("etc/machine-id", b"");
    for applet in APPLETS {
        archive.link(&format!("usr/bin/{applet}"), BUSYBOX);
    }
    let units = "etc/systemd/system";
    for unit in MASKED {
        archive.link(&format!("{units}/{unit}"), "/dev/null");
    }
    archive.folder(&format!("{units}/sockets.target.wants"));
    archive.link(&format!("{units}/sockets.target.wants/lab.socket"), "../lab.socket");
    let socket = SOCKET.replace("PORT", &PORT.to_string());
    archive.plain(&format!("{units}/lab.socket"), socket.as_bytes());
    archive.plain(&format!("{units}/lab@.service"), SERVICE.as_bytes());
    archive.plain("lab-script", SCRIPT.as_bytes());
    let folder = PACKAGES.trim_start_matches('/');
    archive.folder(folder);
    for (name, package) in NAMES.iter().zip(packages) {
        let content = fs::read(package).map_err(LabError::file(package))?;
        archive.plain(&format!("{folder}/{name}.deb"), &content);
    }
    archive.folder("modules");
    let drivers: Vec<&str> = machine.nics.iter().map(|nic| nic.driver()).collect();
    let mut order = Vec::new();
    for module in kernel.modules(&[&MODULES, &drivers[..], machine.modules].concat())? {
        archive.plain(&format!("modules/{}.ko", module.name), &module.object);
        order.push(module.name);
    }
    archive.file("init", init(&order).as_bytes());
    Ok(archive.finish())
}

/// The first program: loads modules, names the interfaces and becomes systemd.
fn init(modules: &[String]) -> String {
    let names: Vec<String> = (0..)
        .zip(INTERFACES)
        .map(|(pair, name)| {
            format!("[ $address = {} ] && $b ip link set $name name {name}\n", mac(pair, 0))
        })
        .collect();
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
         for name in $($b ls /sys/class/net); do\n\
             address=$($b cat /sys/class/net/$name/address)\n\
             {names}\
         done\n\
         $b ip addr add {management}/24 dev {interface}\n\
         $b ip link set lo up\n\
         $b ip link set {interface} up\n\
         exec /usr/lib/systemd/systemd\n",
        modules = modules.join(" "),
        names = names.concat(),
        management = MANAGEMENT[0],
        interface = INTERFACES[1],
    )
}
