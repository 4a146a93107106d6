//! What a counter is, and the macros that make structs and tables from one list.

/// What a counter counts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
    /// Source symbols.
    Symbols,
    /// Generations, blocks or batches.
    Generations,
    /// Repair requests.
    Requests,
    /// Jobs for an accelerator: generations, at a sink.
    Jobs,
    /// Events of any other kind.
    Events,
    /// Nanoseconds, summed.
    Nanos,
    /// Nanoseconds, the largest of all.
    NanosMax,
}

impl Unit {
    /// Name in documents and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Packets => "packets",
            Unit::Bytes => "bytes",
            Unit::Symbols => "symbols",
            Unit::Generations => "generations",
            Unit::Requests => "requests",
            Unit::Jobs => "jobs",
            Unit::Events => "events",
            Unit::Nanos => "nanoseconds",
            Unit::NanosMax => "nanoseconds, maximum",
        }
    }
}

/// One counter.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Counter {
    /// Name in the API, in JSON and in metrics. It never changes.
    pub name: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// What was counted, in sentences.
    pub meaning: &'static str,
    /// What to do when it grows; empty if that is no fault.
    pub cure: &'static str,
}

impl Counter {
    /// Whether something went wrong when it grows.
    pub const fn is_fault(&self) -> bool {
        !self.cure.is_empty()
    }
}

/// The counters of one kind of thing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// What has these counters.
    pub owner: &'static str,
    /// The counters, in parts.
    pub parts: &'static [&'static [Counter]],
}

impl Table {
    /// The counters in order.
    pub fn counters(&self) -> impl Iterator<Item = &'static Counter> + use<> {
        self.parts.iter().copied().flatten()
    }

    /// The counter of this name.
    pub fn find(&self, name: &str) -> Option<&'static Counter> {
        self.counters().find(|counter| counter.name == name)
    }
}

/// A struct of counters with its table: `/// meaning` above `name: Unit` or `name: Unit => "cure"`.
/// Then what is counted by reason, as `name: Reasons`, and fields that are no counters but are
/// summed too.
macro_rules! counters {
    (
        $(#[$attribute:meta])*
        $name:ident {
            $($(#[doc = $meaning:literal])+ $field:ident: $unit:ident $(=> $cure:literal)?,)*
        }
        $(by { $($(#[$by_attribute:meta])* $by:ident: $reason:ident,)* })?
        $(beside { $($(#[$beside_attribute:meta])* $beside:ident: $kind:ty,)* })?
    ) => {
        $(#[$attribute])*
        pub struct $name {
            $($(#[doc = $meaning])+ pub $field: u64,)*
            $($($(#[$by_attribute])* pub $by: [u64; $reason::ALL.len()],)*)?
            $($($(#[$beside_attribute])* pub $beside: $kind,)*)?
        }

        impl $name {
            /// The counters, but for those by reason.
            pub const TABLE: &'static [$crate::Counter] = &[$($crate::Counter {
                name: stringify!($field),
                unit: $crate::Unit::$unit,
                meaning: concat!($($meaning),+).trim_ascii(),
                cure: concat!($($cure)?),
            }),*];

            /// Every counter with its value, those by reason last.
            pub fn iter(
                &self,
            ) -> impl Iterator<Item = (&'static $crate::Counter, u64)> + use<> {
                Self::TABLE.iter().zip([$(self.$field),*])
                    $($(.chain($reason::TABLE.iter().zip(self.$by)))*)?
            }
        }

        impl std::ops::AddAssign<&$name> for $name {
            fn add_assign(&mut self, other: &$name) {
                use $crate::merge::Merge as _;
                $(match $crate::Unit::$unit {
                    $crate::Unit::NanosMax => self.$field = self.$field.max(other.$field),
                    _ => self.$field.merge(&other.$field),
                })*
                $($(self.$by.merge(&other.$by);)*)?
                $($(self.$beside.merge(&other.$beside);)*)?
            }
        }
    };
}

/// An enum of reasons, one counter each: `/// meaning` above `Variant = "name"`, followed by `=>
/// "cure"` for a fault.
macro_rules! reasons {
    (
        $(#[$attribute:meta])*
        $name:ident: $unit:ident {
            $($(#[doc = $meaning:literal])+ $reason:ident = $text:literal $(=> $cure:literal)?,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
        #[repr(usize)]
        pub enum $name {
            $($(#[doc = $meaning])+ $reason,)*
        }

        impl $name {
            /// Every reason, in the order of the counters.
            pub const ALL: [$name; [$($text),*].len()] = [$($name::$reason),*];

            /// The counters, in the same order.
            pub const TABLE: &'static [$crate::Counter] = &[$($crate::Counter {
                name: $text,
                unit: $crate::Unit::$unit,
                meaning: concat!($($meaning),+).trim_ascii(),
                cure: concat!($($cure)?),
            }),*];

            /// Name of the counter.
            pub const fn name(self) -> &'static str {
                Self::TABLE[self as usize].name
            }
        }
    };
}
