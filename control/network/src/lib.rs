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

mod reader;

mod model;

mod nodes;

mod links;

mod paths;

mod boxes;

mod check;

mod parse;

mod capacity;

mod render;

mod keys;

pub use capacity::Cut;
pub use error::{Fault, NetworkError, NetworkErrors};
pub use keys::{KeepError, with_keys};
pub use model::{Auth, End, Extra, FILE_BYTES_MAX, Link, Network, Node, NodeAddress, Path};

impl Network {
    /// The configuration of every node, in the order of nodes.
    pub fn files(&self) -> Vec<String> {
        (0..self.nodes.len()).map(|node| render::render(self, node)).collect()
    }
}
