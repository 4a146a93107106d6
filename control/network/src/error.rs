//! What is wrong with a network, in words that say where and how to cure it.

use std::fmt;

/// One mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkError {
    /// Line in the file, 1 the first.
    pub line: usize,
    /// The part: `node a`, `link a - b`, `path a -> c`. Empty for the file as a whole.
    pub place: String,
    /// What is wrong there.
    pub fault: Fault,
}

/// What can be wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// Not TOML at all.
    #[error("this is not valid TOML: {message}")]
    Syntax {
        /// The parser's words.
        message: String,
    },
    /// A key that does not exist.
    #[error("unknown key {key}: {hint}")]
    Unknown {
        /// The key.
        key: String,
        /// What there is.
        hint: String,
    },
    /// A key that must be there and is not.
    #[error("{key} is missing: {rule}")]
    Missing {
        /// The key.
        key: &'static str,
        /// What it must be.
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
    #[error("there is no node {name}: {hint}")]
    NoNode {
        /// Its name.
        name: String,
        /// The nodes there are.
        hint: String,
    },
    /// A link that does not join two nodes.
    #[error(
        "a link joins two nodes, this one {count}: write one line for each end, such as a = \
         \"192.0.2.1 dev eth0\""
    )]
    Ends {
        /// Ends that were written.
        count: usize,
    },
    /// Two links that join the same nodes.
    #[error(
        "these interfaces have a link in line {line}: a second path between two nodes is by another \
         interface of one of them"
    )]
    SecondLink {
        /// Line of the first one.
        line: usize,
    },
    /// Something that belongs to somebody else already.
    #[error("{what} is taken by {owner} (line {line}): {rule}")]
    Taken {
        /// What it is.
        what: String,
        /// Whose it is.
        owner: String,
        /// Where that is written.
        line: usize,
        /// The rule.
        rule: &'static str,
    },
    /// Addresses of two families that have to talk to each other.
    #[error("{one} and {other} are not of one family: write two IPv4 or two IPv6 addresses")]
    Families {
        /// One address.
        one: String,
        /// The other.
        other: String,
    },
    /// A path over nodes without a link.
    #[error(
        "{from} and {to} have no link: write [[link]] with both, or name the nodes between them in \
         via"
    )]
    NoLink {
        /// A node of the path.
        from: String,
        /// The next one.
        to: String,
    },
    /// A path that comes to a node twice.
    #[error("it comes to {node} twice: a path passes each node once")]
    Loop {
        /// The node.
        node: String,
    },
    /// Ways that lead back to where they were.
    #[error("ways lead from {node} back to it, and packets would go in a circle: take one away")]
    Circle {
        /// A node of the circle.
        node: String,
    },
    /// Ways that do not fit together.
    #[error("these ways do not fit together: {rule}")]
    Ways {
        /// What they must be.
        rule: &'static str,
    },
    /// A node that must prove who it is, and cannot.
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
    /// A node that nothing leads to.
    #[error("it has no link: write a [[link]] with it, or take it away")]
    Lonely,
    /// What the daemon's own parser says about the file of a node.
    #[error("recoded on {node} would refuse it: {message}")]
    Refused {
        /// The node.
        node: String,
        /// What it says.
        message: String,
    },
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
    /// Collects the mistakes found in `file`; what was found twice is said once.
    pub fn new(file: &str, mut errors: Vec<NetworkError>) -> NetworkErrors {
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
