//! What a key takes.

/// The values of a key.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Values {
    /// One of these words.
    Words(&'static [&'static str]),
    /// One of these numbers.
    Numbers(&'static [u64]),
    /// A whole number from the first to the second.
    Whole(u64, u64),
    /// A number from the first to the second.
    Number(f64, f64),
    /// Microseconds from the first to the second: a whole number, or a text with a unit.
    Micros(u64, u64),
    /// Mbit/s from the first to the second: a number, or a text with a unit.
    Mbit(f64, f64),
    /// The word `auto`, or one of these.
    Auto(&'static Values),
    /// `true` or `false`.
    Truth,
    /// Something else: what, and an example as TOML.
    Other(&'static str, &'static str),
}

impl Values {
    /// The values as a sentence has them, words in quotes.
    pub fn in_words(&self) -> String {
        match self {
            Values::Words(words) => listed(words.iter().map(|word| format!("\"{word}\""))),
            Values::Numbers(_) | Values::Truth => listed(self.choices().into_iter()),
            Values::Whole(least, most) => format!("{least} to {most}"),
            Values::Number(least, most) => format!("{} to {}", number(*least), number(*most)),
            Values::Micros(least, most) => {
                format!("{least} to {most} microseconds, or with a unit, such as \"20 ms\"")
            }
            Values::Mbit(least, most) => {
                let (least, most) = (number(*least), number(*most));
                format!("{least} to {most} Mbit/s, or with a unit, such as \"50 Mbit/s\"")
            }
            Values::Auto(others) => format!("\"auto\" or {}", others.in_words()),
            Values::Other(what, _) => (*what).to_owned(),
        }
    }

    /// The values that can be listed, as `recodectl set` takes them.
    pub fn choices(&self) -> Vec<String> {
        match self {
            Values::Words(words) => words.iter().map(|word| (*word).to_owned()).collect(),
            Values::Numbers(numbers) => numbers.iter().map(u64::to_string).collect(),
            Values::Auto(others) => [vec!["auto".to_owned()], others.choices()].concat(),
            Values::Truth => vec!["true".to_owned(), "false".to_owned()],
            Values::Whole(..)
            | Values::Number(..)
            | Values::Micros(..)
            | Values::Mbit(..)
            | Values::Other(..) => Vec::new(),
        }
    }

    /// Whether it accepts more values than can be listed.
    pub fn is_open(&self) -> bool {
        match self {
            Values::Words(_) | Values::Numbers(_) | Values::Truth => false,
            Values::Auto(others) => others.is_open(),
            Values::Whole(..)
            | Values::Number(..)
            | Values::Micros(..)
            | Values::Mbit(..)
            | Values::Other(..) => true,
        }
    }
}

/// `a, b or c`.
fn listed(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    match items.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => items.concat(),
    }
}

/// Tiny numbers as powers of ten.
fn number(value: f64) -> String {
    if value < 1e-4 { format!("{value:e}") } else { value.to_string() }
}
