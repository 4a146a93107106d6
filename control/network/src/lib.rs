//! A network in one file: derives the configuration of every node from nodes, links and paths.
//!
//! Place: off the packet path, on an operator's machine; no daemon needs it. No I/O: it takes a
//! text and returns the files, or every mistake.
//!
//! ```text
//!  net.toml -> model (nodes, links, paths) -> boxes: what one node needs -> render -> recoded.toml
//!                 `-> every mistake, by line      `-> the daemon's parser: what it would refuse
//! ```

#![forbid(unsafe_code)]

mod error;

mod host_name;

mod reader;

mod model;

mod subnets;

mod nodes;

mod links;

mod paths;

mod adjacency;

mod boxes;

mod check;

mod parse;

mod capacity;

mod own;

mod render;

mod keys;

mod entry;

mod spoke;

mod syntax;

pub use capacity::Cut;
pub use check::{Parsed, Parser, Refusal, Stream};
pub use entry::{BoxEntry, EntryError, box_with_key, free_tunnel, with_boxes};
pub use error::{Fault, NetworkError, NetworkErrors};
pub use host_name::is_host_name;
pub use keys::{KeepError, NodeKey, with_keys};
pub use model::{
    Auth, End, Extra, FILE_BYTES_MAX, Link, Network, Node, NodeAddress, Path, Uplink, Uplinks,
};
pub use own::{Found, Ways};
pub use reader::is_name as is_box_name;
pub use spoke::{Ends, Spoke, free_ends, with_spoke};
pub use syntax::syntax_fault;

impl Network {
    /// The file for the daemon of every node, in the order of nodes: with `[boxes]` this file,
    /// otherwise the configuration of the node.
    pub fn files(&self) -> Vec<String> {
        let file = |node| self.shared.clone().unwrap_or_else(|| self.meaning(node));
        (0..self.nodes.len()).map(file).collect()
    }

    /// The configuration of a node.
    pub fn meaning(&self, node: usize) -> String {
        render::render(self, node)
    }

    /// Whether every daemon reads this file itself.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }
}
