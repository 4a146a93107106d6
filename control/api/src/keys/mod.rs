//! Every key of the configuration, declared once: its name, roles, values, default and meaning. The
//! checks of the daemon, the offers of `recodectl set`, the page `docs/reference/keys.md` and the
//! check of the annotated configuration follow from these rows.
//!
//! Place: off the packet path, a list without behaviour. The daemon parses; its tests compare its
//! parser with these rows.

mod daemon;
mod flow;
mod values;

pub use daemon::{DAEMON, LINK, NEIGHBOUR, TUNNEL};
pub use flow::FLOW;
pub use values::Values;

/// Every table, in the order of a file.
pub const TABLES: [Table; 5] = [DAEMON, LINK, TUNNEL, NEIGHBOUR, FLOW];

/// The keys of one section.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Table {
    /// `daemon`, `link`, `tunnel`, `neighbour` or `flow`.
    pub section: &'static str,
    /// Its keys, in the order of messages that list them.
    pub keys: &'static [Key],
}

impl Table {
    /// The key of this name.
    pub fn find(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// Keys that `recodectl set` may change while traffic runs.
    pub fn live(&self) -> impl Iterator<Item = &'static Key> + use<> {
        self.keys.iter().filter(|key| key.is_live)
    }
}

/// One key.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Key {
    /// How it is written.
    pub name: &'static str,
    /// Roles of a flow that have it; of other sections none.
    pub roles: &'static [Role],
    /// The only code that has it, for roles that configure the code.
    pub code: Option<&'static str>,
    /// Whether flows of code auto have it, too, for where that is the code.
    pub is_auto: bool,
    /// Whether `recodectl set` may change it.
    pub is_live: bool,
    /// What it takes.
    pub values: Values,
    /// What its numbers count; may be empty.
    pub unit: &'static str,
    /// What holds where it is not written.
    pub default: DefaultValue,
    /// What it does and when to change it, in sentences.
    pub meaning: &'static str,
    /// Reason why the other roles lack it, if the list of roles does not explain it.
    pub elsewhere: &'static str,
}

/// What every row begins with.
const KEY: Key = Key {
    name: "",
    roles: &[],
    code: None,
    is_auto: false,
    is_live: false,
    values: Values::Truth,
    unit: "",
    default: DefaultValue::Required,
    meaning: "",
    elsewhere: "",
};

/// What holds where a key is not written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DefaultValue {
    /// This value, as TOML.
    Is(&'static str),
    /// What the rest of the configuration makes of it, in words.
    Depends(&'static str),
    /// Nothing: the key must be written.
    Required,
}

/// The part that a host has in a flow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// Takes IP packets.
    Source,
    /// Recodes.
    Relay,
    /// Delivers IP packets.
    Sink,
}

impl Role {
    /// Every role, in the order of the path.
    pub const ALL: [Role; 3] = [Role::Source, Role::Relay, Role::Sink];

    /// Whether this role configures the code; the others learn it from the packets.
    pub fn has_code(self) -> bool {
        FLOW.find("code").is_some_and(|code| code.roles.contains(&self))
    }

    /// How it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Source => "source",
            Role::Relay => "relay",
            Role::Sink => "sink",
        }
    }
}

/// Why relays and sinks do not have most keys of a code.
const LEARNED: &str = "only a source chooses it; relays and sinks learn it from packets";

impl Key {
    /// What it takes, in words, with the unit.
    pub fn values_in_words(&self) -> String {
        format!("{} {}", self.values.in_words(), self.unit).trim_end().to_owned()
    }

    /// The roles that have it: `source and sink`, `source of code bats`; empty if all have it.
    pub fn owners(&self) -> String {
        let names: Vec<&str> = self.roles.iter().map(|role| role.name()).collect();
        let roles = if self.roles == Role::ALL { String::new() } else { names.join(" and ") };
        let auto = if self.is_auto { " or auto" } else { "" };
        self.code.map(|code| format!("{roles} of code {code}{auto}")).unwrap_or(roles)
    }

    /// Whether flows whose `code` is written so have it.
    pub fn is_of(&self, code: &str) -> bool {
        self.code.is_none_or(|own| own == code || self.is_auto && code == "auto")
    }

    /// Why a flow of this role does not have the key; `None` where it does.
    pub fn why_not(&self, role: Role) -> Option<String> {
        Some(match self.code {
            _ if self.roles.contains(&role) => return None,
            _ if !self.elsewhere.is_empty() => self.elsewhere.to_owned(),
            None => {
                let owners = self.roles.iter().map(|role| format!("{}s", role.name()));
                format!("it is for {}", owners.collect::<Vec<_>>().join(" and "))
            }
            Some(_) => LEARNED.to_owned(),
        })
    }
}
