//! Errors in a network, as messages that state the place and the fix.

use std::fmt;
use std::net::IpAddr;

/// One mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkError {
    /// Line in the file, counted from 1.
    pub line: usize,
    /// The part: `box a`, `link a - b`, `path a -> c`. Empty for the file as a whole.
    pub place: String,
    /// The fault.
    pub fault: Fault,
}

/// Kinds of faults.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// Invalid TOML.
    #[error("{message}")]
    Syntax {
        /// The message, of [`crate::syntax_fault`].
        message: String,
    },
    /// A key that does not exist.
    #[error("unknown key {key}: {hint}")]
    Unknown {
        /// The key.
        key: String,
        /// The valid keys.
        hint: String,
    },
    /// A required key is missing.
    #[error("{key} is missing: {rule}")]
    Missing {
        /// The key.
        key: &'static str,
        /// The rule for its value.
        rule: String,
    },
    /// A value that breaks a rule.
    #[error("{key} = {value} is wrong: {rule}")]
    Value {
        /// The key.
        key: String,
        /// The value as written.
        value: String,
        /// The rule.
        rule: String,
    },
    /// A node that is not in `[nodes]`.
    #[error("there is no box {name}: {hint}")]
    NoNode {
        /// Its name.
        name: String,
        /// The existing nodes.
        hint: String,
    },
    /// A link that does not join two nodes.
    #[error(
        "a link joins two boxes, this one {count}: write one line for each end, such as a = \
         \"192.0.2.1 dev eth0\""
    )]
    Ends {
        /// Number of ends written.
        count: usize,
    },
    /// Two links that join the same nodes.
    #[error(
        "these interfaces have a link in line {line}: a second path between two boxes is by another \
         interface of one of them"
    )]
    SecondLink {
        /// Line of the first one.
        line: usize,
    },
    /// A value that is already in use.
    #[error("{what} is taken by {owner} (line {line}): {rule}")]
    Taken {
        /// The value.
        what: String,
        /// Its owner.
        owner: String,
        /// Line of the owner.
        line: usize,
        /// The rule.
        rule: &'static str,
    },
    /// Addresses of different families for the two ends.
    #[error("{one} and {other} are not of one family: write two IPv4 or two IPv6 addresses")]
    Families {
        /// One address.
        one: String,
        /// The other.
        other: String,
    },
    /// A path between nodes without a link.
    #[error(
        "{from} and {to} have no link: write [[link]] with both, or name the boxes between them in \
         via"
    )]
    NoLink {
        /// A node of the path.
        from: String,
        /// The next one.
        to: String,
    },
    /// A path that visits a node twice.
    #[error("it comes to {node} twice: a path passes each box once")]
    Loop {
        /// The node.
        node: String,
    },
    /// Ways that form a loop.
    #[error("ways lead from {node} back to it, and packets would go in a circle: take one away")]
    Circle {
        /// A node of the loop.
        node: String,
    },
    /// Ways that do not combine.
    #[error("these ways do not fit together: {rule}")]
    Ways {
        /// The rule.
        rule: &'static str,
    },
    /// A node that must be authenticated, and has no key.
    #[error(
        "{node} has no key: `recodectl -f {file} keys --save` has it make one and writes the \
         public part here; auth = \"none\" does without, where no other host reaches the links"
    )]
    NoKey {
        /// The node.
        node: String,
        /// The file.
        file: String,
    },
    /// A node without a link.
    #[error("it has no link: write a [[link]] with it, or take it away")]
    Lonely,
    /// A box that no path passes.
    #[error("no path passes it: write it into via of a [[path]], or take it away")]
    NoPath,
    /// Neighbours without an address at either.
    #[error("neither {one} nor {other} has an address to find the other one: write at for one")]
    NoPlace {
        /// A box.
        one: String,
        /// The other one.
        other: String,
    },
    /// An address of a tunnel without the length of its network.
    #[error("tunnel = \"{address}\" lacks its length: write \"{address}/{length}\"")]
    NoLength {
        /// The address.
        address: IpAddr,
        /// A common length.
        length: u8,
    },
    /// An error of the daemon's parser in a key that the network has as written.
    #[error("{message}")]
    Own {
        /// Its message, without the place.
        message: String,
    },
    /// An error of the daemon's parser in the derived file of a node.
    #[error("recoded on {node} would refuse it: {message}")]
    Refused {
        /// The node.
        node: String,
        /// Its message.
        message: String,
    },
}

impl Fault {
    /// Whether `key` is written, misspelt or with a wrong value.
    fn hides(&self, key: &str) -> bool {
        match self {
            Fault::Unknown { hint, .. } => {
                let meant = hint.strip_prefix("did you mean ").unwrap_or_default();
                meant.trim_matches(['[', ']', '?']) == key
            }
            Fault::Value { key: written, .. } => written == key,
            Fault::NoLength { .. } => key == "tunnel",
            _ => false,
        }
    }
}

impl fmt::Display for NetworkError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(formatter, "{}: ", self.place)?;
        }
        self.fault.fmt(formatter)
    }
}

/// Every mistake in a file. Never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkErrors {
    file: String,
    /// The mistakes, in order of lines.
    pub errors: Vec<NetworkError>,
}

impl NetworkErrors {
    /// Collects the mistakes found in `file`, without duplicates, and without keys that are missing
    /// only because they are misspelt or wrong.
    pub fn new(file: &str, errors: Vec<NetworkError>) -> NetworkErrors {
        let is_caused = |error: &NetworkError| match &error.fault {
            Fault::Missing { key, .. } => errors.iter().any(|other| other.fault.hides(key)),
            _ => false,
        };
        let mut errors: Vec<NetworkError> =
            errors.iter().filter(|error| !is_caused(error)).cloned().collect();
        errors.sort_by_key(|error| error.line);
        errors.dedup();
        NetworkErrors { file: file.to_owned(), errors }
    }
}

impl fmt::Display for NetworkErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                writeln!(formatter)?;
            }
            write!(formatter, "{}:{}: {error}", self.file, error.line)?;
        }
        Ok(())
    }
}

impl std::error::Error for NetworkErrors {}
