//! Options of commands for a network.

use clap::Args;
use std::path::PathBuf;

/// Which network, and how its boxes are reached.
#[derive(Args, Debug)]
#[command(next_help_heading = "Networks")]
pub struct Fleet {
    /// All boxes of this network, over SSH, instead of this host
    #[arg(short = 'f', long, global = true, value_name = "FILE")]
    pub network: Option<PathBuf>,

    /// With -f: only these boxes, separated by commas
    #[arg(long, global = true, value_name = "BOXES", value_delimiter = ',')]
    pub only: Vec<String>,

    /// With -f: the SSH program and arguments for it; keys, jump hosts and ports are those of its
    /// configuration
    #[arg(long, global = true, value_name = "COMMAND", env = "RECODED_SSH", default_value = "ssh")]
    pub ssh: String,

    /// With -f: seconds that each box may take to answer
    #[arg(long, global = true, value_name = "SECONDS", default_value = "30",
          value_parser = |text: &str| crate::durations::seconds(text, 1..=600))]
    pub patience: u64,
}

/// What `render` does with the files.
#[derive(Args, Debug)]
pub struct Rendering {
    /// The network, such as net.toml
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Write BOX.toml for each box into this folder, and print the files' names
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print how the files in that folder would change, and write nothing
    #[arg(long)]
    pub diff: bool,
}

/// Explains network files.
pub const NETWORK_HELP: &str = "\
A network of three boxes in a line, a - b - c, and a tunnel from a to c; the same file on each box:

  [boxes]                        # ssh = \"root@b.example\" where ssh finds it elsewhere
  a = { at = \"192.0.2.1\", key = \"...\", tunnel = \"10.99.0.1/24\" }
  b = { at = [\"192.0.2.2\", \"198.51.100.1\"], key = \"...\" }
  c = { at = \"198.51.100.2\", key = \"...\", tunnel = \"10.99.0.2/24\" }

  [[path]]                       # may be left out between two boxes
  via = [\"a\", \"b\", \"c\"]

A box without at roams; uplinks = [\"eth0\", \"wwan0\"] has several paths, and mode = \"bond\",
\"failover\" or \"duplicate\" in [[path]] says how they share. Each box finds its interfaces, which
render shows as auto0; at = \"192.0.2.1 dev eth0\" fixes one.

With interfaces and links written instead, [nodes]; then apply writes each box its own file:

  [nodes]                        # where ssh finds each; b = \"root@192.0.2.2\" without a key
  a = { ssh = \"root@192.0.2.1\", key = \"...\" }
  b = { ssh = \"root@192.0.2.2\", key = \"...\" }

  [[link]]                       # each end: address and interface
  a = \"192.0.2.1 dev eth0\"
  b = \"192.0.2.2 dev eth0\"
  rate_mbit = 100

  [[path]]
  from = \"a\"
  to = \"b\"
  tunnel = [\"10.99.0.1/24\", \"10.99.0.2/24\"]

recodectl -f net.toml keys --save has every box make its private key, which never leaves it, and
writes the public ones. A path is two flows, one in each direction. Instead of via it
may have ways = [[\"a\", \"b\", \"d\"], [\"a\", \"c\", \"d\"]]: several to one receiver, whose rates
add up, or to several, which is one flow. It may have keys of flows, such as
code = \"rlnc\", which go to the roles that have them, and name, mtu and kill_switch of its
tunnel. tcp = \"split\" ends TCP connections at both edges of the path (docs/split.md);
routes = [\"0.0.0.0/0\"] sends everything of its first box to its last one (docs/operate.md).
Above [boxes] or [nodes] may stand auth = \"full\", \"hop\" or \"none\", and config, private_key (paths
on boxes) and sudo = true; below [daemon] what all boxes have, in daemon = { .. } of a box what it
has alone.";
