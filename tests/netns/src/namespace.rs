//! One network namespace: commands and sockets in it.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::BedError;
use crate::process;

/// Time from the fork of a child process until it has closed the sockets of this one.
const FORK: Duration = Duration::from_secs(2);

/// A network namespace. A [`crate::Bed`] removes its own; others belong to the caller.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a namespace without reverse path filtering and without IPv6.
    ///
    /// # Errors
    /// If the name exists, or privileges are missing.
    pub fn create(name: String) -> Result<Namespace, BedError> {
        process::run(Command::new("ip").args(["netns", "add", &name]))?;
        let namespace = Namespace { name };
        namespace.ip("link set lo up")?;
        // Answers must leave by the interface that routes select, whichever interface received the
        // request.
        namespace.sysctl("net.ipv4.conf.all.rp_filter", "0")?;
        namespace.sysctl("net.ipv4.conf.default.rp_filter", "0")?;
        // Router solicitations and duplicate address detection would add to the counted packets.
        namespace.sysctl("net.ipv6.conf.all.disable_ipv6", "1")?;
        namespace.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
        Ok(namespace)
    }

    /// Name, as in `ip netns exec NAME`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that will run in this namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs `ip` in this namespace with arguments split at spaces.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn ip(&self, arguments: &str) -> Result<String, BedError> {
        process::run(Command::new("ip").args(["-n", &self.name]).args(arguments.split(' ')))
    }

    /// Runs `program` in this namespace with arguments split at spaces.
    ///
    /// # Errors
    /// When it cannot be started or fails.
    pub fn run(&self, program: &str, arguments: &str) -> Result<String, BedError> {
        process::run(self.command(program).args(arguments.split(' ')))
    }

    /// Sets a kernel parameter of this namespace.
    ///
    /// # Errors
    /// When Linux refuses the name or the value.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<(), BedError> {
        let path = sysctl_path(name);
        self.inside(|| std::fs::write(&path, value).map_err(BedError::file(&path)))?
    }

    /// A kernel parameter of this namespace.
    ///
    /// # Errors
    /// If there is no such parameter.
    pub fn read_sysctl(&self, name: &str) -> Result<String, BedError> {
        let path = sysctl_path(name);
        let text =
            self.inside(|| std::fs::read_to_string(&path).map_err(BedError::file(&path)))??;
        Ok(text.trim().to_owned())
    }

    /// A UDP socket of this namespace, usable from any thread. A closed socket of the same address
    /// may live on for a moment in a child process that another test has forked.
    ///
    /// # Errors
    /// If the namespace is gone or the address cannot be bound.
    pub fn udp_socket(&self, local: SocketAddr) -> Result<UdpSocket, BedError> {
        let failed = BedError::system(format!("UDP socket {local} in {}", self.name));
        let began = Instant::now();
        let bound = self.inside(|| {
            loop {
                match UdpSocket::bind(local) {
                    Err(error)
                        if error.kind() == ErrorKind::AddrInUse && began.elapsed() < FORK =>
                    {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    bound => break bound,
                }
            }
        })?;
        bound.map_err(failed)
    }

    /// Runs `work` on a new thread inside this namespace. A separate thread, because a thread might
    /// not return to its namespace if `work` panics.
    ///
    /// # Errors
    /// When the namespace cannot be entered.
    pub fn inside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R, BedError> {
        let path = PathBuf::from("/run/netns").join(&self.name);
        let file = File::open(&path).map_err(BedError::file(&path))?;
        let entered = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok::<R, rustix::io::Errno>(work())
            });
            thread.join()
        });
        match entered {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(errno)) => Err(BedError::File { path, source: io::Error::from(errno) }),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn sysctl_path(name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/sys/{}", name.replace('.', "/")))
}
