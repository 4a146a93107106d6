//! The protection of a flow: its code, and the keys specific to that code.
//!
//! Sources choose. Relays and sinks learn code and sizes from the packets and have none of these
//! keys.

use super::document::Section;
use super::reader::Reader;
use recoded_api::keys::FLOW;
use recoded_gf::FieldOrder;
use recoded_pipeline::open::SIZE_MIN;
use recoded_pipeline::params::{FlowCode, StreamParams, StreamProfile, WindowParams};

/// Default number of symbols in a generation.
const GENERATION_SIZE: usize = 16;

/// Default number of symbols that nodes of a stream keep: 187 ms at 1 Gbit/s, for round trips of a
/// hop of up to half as long.
pub const STREAM_SYMBOLS: usize = 32_768;

/// Words of `code`.
pub const CODES: [(&str, Word); 5] = [
    ("auto", Word::Auto),
    ("stream", Word::Stream),
    ("rlnc", Word::Rlnc),
    ("bats", Word::Bats),
    ("window", Word::Window),
];

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
    /// RFC 8681.
    Window,
    /// A sliding window with per-hop retransmission.
    Stream,
}

impl Word {
    /// The word of a code.
    pub fn of(code: &FlowCode) -> Word {
        match code {
            FlowCode::Rlnc => Word::Rlnc,
            #[cfg(feature = "bats")]
            FlowCode::Bats(_) => Word::Bats,
            FlowCode::Window(_) => Word::Window,
            FlowCode::Stream(_) => Word::Stream,
        }
    }

    /// Orders of the fields that may be combined with it.
    fn fields(self) -> &'static [u16] {
        match self {
            Word::Auto => &[],
            Word::Window => &[2, 256],
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
        match self {
            Word::Auto => "auto",
            Word::Rlnc => "rlnc",
            Word::Bats => "bats",
            Word::Window => "window",
            Word::Stream => "stream",
        }
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
        let rule = "it is \"auto\", \"stream\", \"rlnc\", \"bats\" or \"window\"";
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
            Word::Window => FlowCode::Window(window(reader, field)),
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
            FlowCode::Window(window) => ("window_symbols", window.window_symbols),
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

fn window(reader: &mut Reader<'_>, field: FieldOrder) -> WindowParams {
    let rule = "a window has 1 to 4095 symbols";
    let window_symbols = reader.whole("window_symbols", 1..=4095, rule, 64);
    let rule = "it is 0 to 15: density + 1 of 16 coefficients are not zero";
    let is_binary = field == FieldOrder::Two;
    let density = reader.whole("density", 0..=15, rule, if is_binary { 7 } else { 15 });
    if is_binary && density == 15 {
        let rule = "over field 2 no other coefficient than 1 is left, which makes all repair packets of a \
                    window equal: 7 is best";
        reader.refuse("density", "does not fit", rule);
    }
    WindowParams { window_symbols, density: u8::try_from(density).unwrap_or(15) }
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
        Word::Window => (FieldOrder::TwoFiftySix, "RFC 8681 has fields 2 and 256"),
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
    use super::*;

    #[test]
    fn window_flows_are_over_256_unless_2_is_written() {
        let keys = "code = \"window\"\nwindow_symbols = 100\ndensity = 3\n";
        let config = |more| parse(&format!("{HEAD}{SOURCE}{keys}{more}")).expect("valid");
        let expected = WindowParams { window_symbols: 100, density: 3 };
        for (more, field) in [("", FieldOrder::TwoFiftySix), ("field = 2\n", FieldOrder::Two)] {
            let params = config(more).flows.remove(0).params;
            assert_eq!((params.code, params.field), (FlowCode::Window(expected), field));
        }
    }

    #[test]
    fn repair_packets_of_a_binary_window_are_not_all_equal() {
        let binary = format!("{HEAD}{SOURCE}code = \"window\"\nfield = 2\n");
        let params = parse(&binary).expect("valid").flows.remove(0).params;
        assert!(matches!(params.code, FlowCode::Window(window) if window.density == 7));
        assert!(parse(&format!("{binary}density = 14\n")).is_ok());
        let said = "flow 1: density = 15 does not fit: over field 2 no other coefficient than 1 is left, \
                    which makes all repair packets of a window equal: 7 is best";
        assert!(errors(&format!("{binary}density = 15\n")).ends_with(said));
    }

    #[test]
    fn keys_that_are_out_of_range_or_without_effect_are_refused() {
        let (bats, window) = ("code = \"bats\"\n", "code = \"window\"\n");
        let range = "is out of range";
        let none = "does not apply";
        let field = "is not a supported field";
        let turns = "it is \"auto\" or 1 to 255 batches that take turns";
        let learned = "only a source chooses it; relays and sinks learn it from packets";
        let stream = "code = \"stream\"\n";
        let width = "it is 1, 2, 3, 4 or 8";
        let rfc = "RFC 8681 has fields 2 and 256";
        let room = "eth1 carries 1500-byte packets, which leave 1436 bytes for a symbol to \
                    10.0.2.2 with batch_size 16 and field 16";
        let cases = [
            (
                SOURCE,
                "",
                "code = \"raptor\"",
                "is not a choice",
                "it is \"auto\", \"stream\", \"rlnc\", \"bats\" or \"window\"",
            ),
            (SOURCE, "", "block_symbols = 256", none, "it is for code = \"bats\""),
            (SOURCE, "", "density = 3", none, "it is for code = \"window\""),
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
            (SOURCE, window, "field = 16", field, rfc),
            (
                SOURCE,
                window,
                "density = 16",
                range,
                "it is 0 to 15: density + 1 of 16 coefficients are not zero",
            ),
            (SOURCE, window, "window_symbols = 0", range, "a window has 1 to 4095 symbols"),
            (SOURCE, stream, "stream_symbols = 32", range, "a node keeps 64 to 32768 packets"),
            (SOURCE, stream, "field = 16", field, "a stream is over field 256"),
            (
                SOURCE,
                stream,
                "stream_profile = \"fast\"",
                "is not a choice",
                "it is \"balanced\" or \"interactive\"",
            ),
            (SOURCE, window, "stream_profile = \"balanced\"", none, "it is for code = \"stream\""),
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
