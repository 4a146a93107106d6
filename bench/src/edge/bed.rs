//! Two hosts joined by one cable, in network namespaces of this process.
//!
//! ```text
//!   left  east 10.77.1.1 ---- west 10.77.1.2  right
//! ```

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::BenchError;
use crate::namespace::{Namespace, run};

/// Destination of the traffic if there is no tunnel.
pub const RIGHT: &str = "10.77.1.2";

/// The two hosts, and a folder for files of their programs.
pub struct Bed {
    /// The sending host.
    pub left: Namespace,
    /// The receiving host.
    pub right: Namespace,
    folder: PathBuf,
}

impl Bed {
    /// Sets up namespaces, a cable with this MTU, and addresses.
    ///
    /// # Errors
    /// [`BenchError::Command`] or [`BenchError::Os`] when Linux refuses one of them.
    pub fn build(mtu_bytes: u32) -> Result<Bed, BenchError> {
        let folder = std::env::temp_dir().join(format!("bench-edge-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(BenchError::os("making a folder"))?;
        let bed = Bed { left: Namespace::new()?, right: Namespace::new()?, folder };
        let (left, right) = (bed.left.pid(), bed.right.pid());
        run(Command::new("ip").args(
            format!("link add east netns {left} type veth peer name west netns {right}").split(' '),
        ))?;
        for (host, name, address) in [(&bed.left, "east", "10.77.1.1"), (&bed.right, "west", RIGHT)]
        {
            // Router solicitations would disturb the measurement.
            host.sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
            host.ip("link set lo up")?;
            host.ip(&format!("address add {address}/24 dev {name}"))?;
            host.ip(&format!("link set {name} mtu {mtu_bytes} up"))?;
        }
        Ok(bed)
    }

    /// A file of this bed.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A folder for sockets and keys.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Files left there do no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A command in a namespace that ends with this process, even after a crash.
pub fn mortal(host: &Namespace, program: impl AsRef<OsStr>) -> Command {
    let mut command = host.command("setpriv");
    command.args(["--pdeathsig", "TERM"]).arg(program);
    command
}
