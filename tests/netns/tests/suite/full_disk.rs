//! A full disk under the control socket: running processes stay known, and no operator is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common;
use crate::processes::wait_for_another;
use recoded_netns::process::{self, run};
use recoded_netns::{Bed, Daemon, LinePlan, Loss};
use rustix::process::Signal;

/// A disk of some pages: a record, its draft, the lock, and one more.
struct Disk {
    folder: PathBuf,
}

impl Disk {
    fn mount(bed: &Bed) -> Disk {
        let folder = bed.directory().join("disk");
        fs::create_dir(&folder).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=32k,mode=755", "none"]).arg(&folder);
        run(&mut mount).unwrap();
        Disk { folder }
    }

    fn fill(&self) {
        let mut bytes = 64 << 10;
        while bytes > 0 {
            let file = self.folder.join(format!("filler-{bytes}"));
            if fs::write(&file, vec![1; bytes]).is_err() {
                bytes /= 2;
            }
        }
        assert!(fs::write(self.folder.join("more"), [1; 1]).is_err(), "it is not full");
    }

    fn clear(&self) {
        for file in fs::read_dir(&self.folder).unwrap().map(Result::unwrap) {
            let name = file.file_name();
            if name.to_string_lossy().starts_with("filler") || name == "more" {
                fs::remove_file(file.path()).unwrap();
            }
        }
    }

    /// The process that handles packets, by the record.
    fn recorded(&self) -> Option<u64> {
        let text = fs::read_to_string(self.folder.join("h0.sock.state")).ok()?;
        let json: serde_json::Value = serde_json::from_str(&text).ok()?;
        json["dataplane"]["pid"].as_u64()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).status();
    }
}

/// A daemon whose control socket is on the small disk.
fn start(bed: &Bed, disk: &Disk) -> Daemon {
    let plan = LinePlan::protected(1);
    let socket = disk.folder.join("h0.sock");
    std::os::unix::fs::symlink(&socket, bed.directory().join("h0.sock")).unwrap();
    Daemon::start_with(bed, 0, |_| plan.config(0, &socket.to_string_lossy())).unwrap()
}

fn pid(daemon: &Daemon) -> u32 {
    daemon.dataplane_pid().unwrap()
}

/// The dataplane process is replaced while the disk is full, and later the supervisor dies. Guards
/// against failing starts after that, because an unknown process had the XDP programs.
#[test]
fn supervisor_that_dies_after_a_full_disk_is_followed_by_one_that_takes_over() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    let disk = Disk::mount(&bed);
    let mut daemon = start(&bed, &disk);
    let first = pid(&daemon);
    assert_eq!(disk.recorded(), Some(first.into()));
    disk.fill();
    daemon.signal_dataplane(Signal::KILL).unwrap();
    wait_for_another(&mut daemon, first);
    let second = pid(&daemon);
    assert_eq!(disk.recorded(), Some(first.into()), "the record was written to a full disk");
    // It continues as soon as there is room.
    disk.clear();
    common::wait_for("the record", &daemon, || disk.recorded() == Some(second.into()));
    assert!(daemon.log().contains("what runs is on record again"), "{}", daemon.log());

    disk.fill();
    daemon.signal_dataplane(Signal::KILL).unwrap();
    wait_for_another(&mut daemon, second);
    let third = pid(&daemon);
    assert_eq!(disk.recorded(), Some(second.into()), "the record was written to a full disk");
    daemon.kill_supervisor();
    daemon.start_supervisor().unwrap();
    // The process that was left answers until it is replaced.
    common::wait_for("a process of the new supervisor", &daemon, || {
        daemon.dataplane_pid().is_ok_and(|pid| pid != third) && !process::runs(third)
    });
    daemon.wait_until_it_answers().unwrap();
}

/// No record of the remaining process exists: it has the control socket, and its XDP programs block
/// the new one. The printed command ends it.
#[test]
fn printed_cure_of_a_program_that_is_in_the_way_works() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    let disk = Disk::mount(&bed);
    let mut daemon = start(&bed, &disk);
    let left = pid(&daemon);
    daemon.kill_supervisor();
    let cure = format!("kill {left}");
    for (lost, cause) in [
        (&["h0.sock.lock", "h0.sock.state"][..], "the control socket"),
        (&["h0.sock.lock", "h0.sock"], "another XDP program"),
    ] {
        for name in lost {
            fs::remove_file(disk.folder.join(name)).unwrap();
        }
        daemon.start_supervisor().unwrap();
        let said = wait_for_end(&bed, cause);
        assert!(said.contains(&format!("`{cure}`")), "{said}");
    }
    run(Command::new("sh").args(["-c", &cure])).unwrap();
    common::wait_for("the end of the process", &daemon, || !process::runs(left));
    // Its tunnel outlives it, as it should where a supervisor follows.
    daemon.start_supervisor().unwrap();
    let said = wait_for_end(&bed, "an interface named `rec0`");
    assert!(said.contains("(`ip link delete rec0`)"), "{said}");
    bed.source().ip("link delete rec0").unwrap();
    daemon.start_supervisor().unwrap();
    daemon.wait_until_it_answers().unwrap();
}

fn log(bed: &Bed) -> PathBuf {
    Path::new(bed.directory()).join("h0.log")
}

/// The line of its end, for this cause.
fn wait_for_end(bed: &Bed, cause: &str) -> String {
    for _ in 0..300 {
        let text = fs::read_to_string(log(bed)).unwrap();
        if let Some(line) = text.lines().find(|line| line.starts_with(cause)) {
            return line.to_owned();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{}", fs::read_to_string(log(bed)).unwrap())
}
