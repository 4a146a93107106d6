//! The protection of a flow: its code, and the keys specific to that code.
//!
//! Sources choose. Relays and sinks learn code and sizes from the packets and have none of these
//! keys.

use super::document::Section;
use super::reader::Reader;
use recoded_api::keys::FLOW;
use recoded_gf::FieldOrder;
use recoded_pipeline::open::SIZE_MIN;
use recoded_pipeline::params::{FlowCode, StreamParams, StreamProfile};

/// Default number of symbols in a generation.
const GENERATION_SIZE: usize = 16;

/// Default number of symbols that nodes of a stream keep: 187 ms at 1 Gbit/s, for round trips of a
/// hop of up to half as long.
pub const STREAM_SYMBOLS: usize = 32_768;

/// Words of `code`.
pub const CODES: [(&str, Word); 4] =
    [("auto", Word::Auto), ("stream", Word::Stream), ("rlnc", Word::Rlnc), ("bats", Word::Bats)];

/// Words of `stream_profile`.
const STREAM_PROFILES: [(&str, StreamProfile); 2] = [
    (StreamProfile::Balanced.name(), StreamProfile::Balanced),
    (StreamProfile::Interactive.name(), StreamProfile::Interactive),
];

/// A code as written, without its parameters.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Word {
    /// Chosen by [`super::auto`].
    Auto,
    /// Generations.
    Rlnc,
    /// Blocks of batches.
    Bats,
    /// A sliding window with per-hop retransmission.
    Stream,
}

impl Word {
    /// Orders of the fields that may be combined with it.
    fn fields(self) -> &'static [u16] {
        match self {
            Word::Auto => &[],
            Word::Stream => &[256],
            Word::Rlnc | Word::Bats => &[2, 4, 16, 256],
        }
    }

    fn has_field(self, value: &toml::Value) -> bool {
        let order = value.as_integer().and_then(|order| u16::try_from(order).ok());
        order.is_some_and(|order| self.fields().contains(&order))
    }

    /// The word as written.
    pub fn name(self) -> &'static str {
        CODES.iter().find(|(_, word)| *word == self).map_or("auto", |(name, _)| name)
    }
}

/// The protection of a flow.
#[derive(Copy, Clone)]
pub struct CodeSettings {
    /// The code.
    pub code: FlowCode,
    /// Field of the coding coefficients.
    pub field: FieldOrder,
    /// Symbols per generation, or batch size.
    pub generation_size: usize,
}

impl CodeSettings {
    /// Initial settings of a relay or sink, until packets announce others.
    pub const LEARNED: CodeSettings = CodeSettings {
        code: FlowCode::Rlnc,
        field: FieldOrder::Sixteen,
        generation_size: SIZE_MIN,
    };

    /// Generations, with the defaults of all keys.
    pub const RLNC: CodeSettings = CodeSettings {
        code: FlowCode::Rlnc,
        field: FieldOrder::Sixteen,
        generation_size: GENERATION_SIZE,
    };

    /// A stream, with the defaults of all keys.
    pub const STREAM: CodeSettings = CodeSettings {
        code: FlowCode::Stream(StreamParams::new(STREAM_SYMBOLS)),
        field: FieldOrder::TwoFiftySix,
        generation_size: 1,
    };

    /// Reads the code of a source, and refuses keys of other codes. `None` means automatic.
    pub fn read(reader: &mut Reader<'_>) -> Option<CodeSettings> {
        let rule = code_rule(reader);
        let word = reader.choice("code", &CODES, rule).unwrap_or(Word::Auto);
        refuse_others(reader, word);
        if word == Word::Auto {
            reader.unsuitable("field", "code = \"auto\" chooses it");
            return None;
        }
        Some(CodeSettings::of(reader, word))
    }

    /// Reads the parameters of a code.
    fn of(reader: &mut Reader<'_>, word: Word) -> CodeSettings {
        let generation_size = match word {
            Word::Rlnc => reader.whole(
                "generation_size",
                1..=256,
                "a generation has 1 to 256 symbols",
                GENERATION_SIZE,
            ),
            Word::Bats => reader.whole("batch_size", 1..=128, "a batch has 1 to 128 packets", 16),
            // Without generations each symbol is independent.
            _ => 1,
        };
        let field = field(reader, word);
        let code = match word {
            Word::Rlnc => FlowCode::Rlnc,
            #[cfg(feature = "bats")]
            Word::Bats => FlowCode::Bats(super::bats::read(reader)),
            #[cfg(not(feature = "bats"))]
            Word::Bats => {
                let rule = "this recoded was built without the cargo feature bats";
                reader.refuse("code", "is not built in", rule);
                FlowCode::Rlnc
            }
            _ => FlowCode::Stream(stream(reader, STREAM_SYMBOLS)),
        };
        CodeSettings { code, field, generation_size }
    }

    /// Largest number of bytes in front of a packet's symbol.
    pub fn header_bytes(&self) -> usize {
        self.code.header_bytes(self.generation_size, self.field)
    }

    /// The key that makes coding vectors and batches longer, and its value.
    pub fn size(&self) -> (&'static str, usize) {
        match self.code {
            FlowCode::Rlnc => ("generation_size", self.generation_size),
            #[cfg(feature = "bats")]
            FlowCode::Bats(_) => ("batch_size", self.generation_size),
            FlowCode::Stream(stream) => ("stream_symbols", stream.window_symbols),
        }
    }
}

/// Removes keys of codes other than the one that a live change selects, and a field that it does
/// not support, so that a change of code need not list keys to remove. Keys in the change, as
/// `changed` reports, stay.
pub fn forget_other_codes(section: &mut Section, changed: impl Fn(&str) -> bool) {
    let code = section.get("code").and_then(|entry| entry.value.as_str());
    let word = CODES.iter().find(|(name, _)| Some(*name) == code).map(|(_, word)| *word);
    section.entries.retain(|entry| {
        let owned = FLOW.find(&entry.key).filter(|key| key.code.is_some());
        let has_effect = match owned {
            Some(key) => word.is_some_and(|word| key.is_of(word.name())),
            // `field` is common to all codes, but not every value suits every code.
            None => entry.key != "field" || word.is_none_or(|word| word.has_field(&entry.value)),
        };
        changed(&entry.key) || has_effect
    });
}

/// Keys of another code mislead readers of the file, so they are refused.
fn refuse_others(reader: &mut Reader<'_>, word: Word) {
    for key in FLOW.keys {
        if let Some(owner) = key.code.filter(|_| !key.is_of(word.name())) {
            reader.unsuitable(key.name, &format!("it is for code = \"{owner}\""));
        }
    }
}

/// The rule of `code`. A file with the removed code `window` gets its replacement as well.
fn code_rule(reader: &Reader<'_>) -> &'static str {
    match reader.value("code").and_then(toml::Value::as_str) {
        Some("window") => {
            "it is \"auto\", \"stream\", \"rlnc\" or \"bats\"; code window was removed, use \
             \"stream\", and without a return path \"stream\" with redundancy = 1.25"
        }
        _ => "it is \"auto\", \"stream\", \"rlnc\" or \"bats\"",
    }
}

/// Reads the parameters of a stream; `symbols` is its default window.
pub fn stream(reader: &mut Reader<'_>, symbols: usize) -> StreamParams {
    let rule = "a node keeps 64 to 32768 packets";
    let window_symbols = reader.whole("stream_symbols", 64..=32_768, rule, symbols);
    StreamParams { window_symbols, profile: stream_profile(reader) }
}

/// Reads the profile of a stream.
fn stream_profile(reader: &mut Reader<'_>) -> StreamProfile {
    let rule = "it is \"balanced\" or \"interactive\"";
    reader.choice("stream_profile", &STREAM_PROFILES, rule).unwrap_or_default()
}

fn field(reader: &mut Reader<'_>, word: Word) -> FieldOrder {
    let (default, rule) = match word {
        Word::Stream => (FieldOrder::TwoFiftySix, "a stream is over field 256"),
        _ => (FieldOrder::Sixteen, "it is 2, 4, 16 or 256"),
    };
    let Some(order) = reader.integer("field", 0..=u64::MAX, rule) else { return default };
    let order = u16::try_from(order).ok().filter(|order| word.fields().contains(order));
    let field = order.and_then(FieldOrder::from_order);
    if field.is_none() {
        reader.refuse("field", "is not a supported field", rule);
    }
    field.unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{HEAD, RELAY, SINK, SOURCE, errors, parse};
    use recoded_pipeline::params::Redundancy;

    #[test]
    fn code_window_is_refused_with_its_replacement_and_its_keys_are_unknown() {
        let window = format!("{HEAD}{SOURCE}code = \"window\"\n");
        let said = "relay.toml:17: flow 1: code = \"window\" is not a choice: it is \"auto\", \
                    \"stream\", \"rlnc\" or \"bats\"; code window was removed, use \"stream\", \
                    and without a return path \"stream\" with redundancy = 1.25";
        assert_eq!(errors(&window), said);
        let replaced = format!("{HEAD}{SOURCE}code = \"stream\"\nredundancy = 1.25\n");
        let params = parse(&replaced).expect("valid").flows.remove(0).params;
        assert_eq!((params.code.name(), params.redundancy), ("stream", Redundancy::Fixed(1.25)));
        for key in ["window_symbols", "density"] {
            let said = errors(&format!("{HEAD}{SOURCE}{key} = 15\n"));
            assert!(said.contains(&format!("unknown key {key}")), "{said}");
        }
    }

    #[test]
    fn keys_that_are_out_of_range_or_without_effect_are_refused() {
        let bats = "code = \"bats\"\n";
        let range = "is out of range";
        let none = "does not apply";
        let field = "is not a supported field";
        let turns = "it is \"auto\" or 1 to 255 batches that take turns";
        let learned = "only a source chooses it; relays and sinks learn it from packets";
        let (stream, rlnc) = ("code = \"stream\"\n", "code = \"rlnc\"\n");
        let width = "it is 1, 2, 3, 4 or 8";
        let room = "eth1 carries 1500-byte packets, which leave 1436 bytes for a symbol to \
                    10.0.2.2 with batch_size 16 and field 16";
        let cases = [
            (
                SOURCE,
                "",
                "code = \"raptor\"",
                "is not a choice",
                "it is \"auto\", \"stream\", \"rlnc\" or \"bats\"",
            ),
            (SOURCE, "", "block_symbols = 256", none, "it is for code = \"bats\""),
            (SOURCE, bats, "generation_size = 16", none, "it is for code = \"rlnc\""),
            (SOURCE, bats, "block_symbols = 4097", range, "a block has 1 to 4096 source symbols"),
            (SOURCE, bats, "batch_size = 129", range, "a batch has 1 to 128 packets"),
            (SOURCE, bats, "generator_bits = 5", "is not a supported width", width),
            (SOURCE, bats, "generator_bits = 9", range, width),
            (SOURCE, bats, "interleave = 0", range, turns),
            (SOURCE, bats, "interleave = \"some\"", "is not a whole number", turns),
            (SOURCE, bats, "field = 8", field, "it is 2, 4, 16 or 256"),
            (SOURCE, bats, "symbol_bytes = 1437", "is too large", room),
            (SOURCE, bats, "adaptive = true", none, "it is for relays"),
            (SOURCE, stream, "stream_symbols = 32", range, "a node keeps 64 to 32768 packets"),
            (SOURCE, stream, "field = 16", field, "a stream is over field 256"),
            (
                SOURCE,
                stream,
                "stream_profile = \"fast\"",
                "is not a choice",
                "it is \"balanced\" or \"interactive\"",
            ),
            (SOURCE, rlnc, "stream_profile = \"balanced\"", none, "it is for code = \"stream\""),
            (RELAY, "", "stream_profile = \"interactive\"", none, learned),
            (SINK, "", "block_symbols = 256", none, learned),
            (SINK, "", "profile = \"baseline\"", none, learned),
            (SINK, "", "code = \"bats\"", none, learned),
            (RELAY, "", "code = \"bats\"", none, learned),
            (RELAY, "", "interleave = \"auto\"", none, learned),
            (RELAY, "", "shards = 2", none, learned),
            (RELAY, "", "adaptive = 1", "is neither", "it is true or false"),
        ];
        for (role, code, line, verdict, rule) in cases {
            if !cfg!(feature = "bats") && code == bats {
                continue;
            }
            let number = if code.is_empty() { 17 } else { 18 };
            let expected = format!("relay.toml:{number}: flow 1: {line} {verdict}: {rule}");
            assert_eq!(errors(&format!("{HEAD}{role}{code}{line}\n")), expected);
        }
    }

    #[cfg(not(feature = "bats"))]
    #[test]
    fn bats_is_refused_where_it_is_not_built_in() {
        let said = "relay.toml:17: flow 1: code = \"bats\" is not built in: this recoded was built \
                    without the cargo feature bats";
        assert_eq!(errors(&format!("{HEAD}{SOURCE}code = \"bats\"\n")), said);
    }
}
