//! Keys of the sources of BATS flows, read and rendered.

use super::reader::Reader;
use super::writer::{key, whole};
use recoded_pipeline::params::{BatsParams, FlowParams, Interleave, Profile};

/// Words of `profile`.
const PROFILES: [(&str, Profile); 3] = [
    (Profile::CyclicShift.name(), Profile::CyclicShift),
    (Profile::Precoded.name(), Profile::Precoded),
    (Profile::Baseline.name(), Profile::Baseline),
];

/// Reads the keys of a BATS flow.
pub fn read(reader: &mut Reader<'_>) -> BatsParams {
    let rule = "a block has 1 to 4096 source symbols";
    let source_symbols = reader.whole("block_symbols", 1..=4096, rule, 256);
    let rule = "it is \"cyclic-shift\", \"precoded\" or \"baseline\"";
    let profile = reader.choice("profile", &PROFILES, rule).unwrap_or_default();
    let rule = "it is 1, 2, 3, 4 or 8";
    let bits = reader.whole("generator_bits", 1..=8, rule, 8);
    if (5..8).contains(&bits) {
        reader.refuse("generator_bits", "is not a supported width", rule);
    }
    let generator_bits = u8::try_from(bits).unwrap_or(8);
    BatsParams { source_symbols, profile, generator_bits, interleave: interleave(reader) }
}

fn interleave(reader: &mut Reader<'_>) -> Interleave {
    if reader.value("interleave").and_then(toml::Value::as_str) == Some("auto") {
        return Interleave::Auto;
    }
    let rule = "it is \"auto\" or 1 to 255 batches that take turns";
    let depth = reader.integer("interleave", 1..=255, rule);
    depth.and_then(|depth| u8::try_from(depth).ok()).map_or(Interleave::Auto, Interleave::Fixed)
}

/// Writes the keys of a source.
pub fn render_source(text: &mut String, params: &FlowParams, bats: &BatsParams) {
    let interleave: toml::Value = match bats.interleave {
        Interleave::Auto => "auto".into(),
        Interleave::Fixed(depth) => i64::from(depth).into(),
    };
    key(text, "block_symbols", whole(bats.source_symbols));
    key(text, "batch_size", whole(params.generation_size));
    key(text, "profile", bats.profile.name());
    key(text, "generator_bits", i64::from(bats.generator_bits));
    key(text, "interleave", interleave);
}

#[cfg(test)]
mod tests {
    use super::super::tests::{HEAD, SOURCE, parse};
    use super::*;
    use recoded_gf::FieldOrder;
    use recoded_pipeline::params::FlowCode;

    #[test]
    fn bats_source_gets_what_is_written() {
        let keys = "code = \"bats\"\nblock_symbols = 1024\nbatch_size = 32\nprofile = \"precoded\"\n\
                    generator_bits = 2\ninterleave = 5\nfield = 2\n";
        let params = parse(&format!("{HEAD}{SOURCE}{keys}")).expect("valid").flows.remove(0).params;
        let expected = BatsParams {
            source_symbols: 1024,
            profile: Profile::Precoded,
            generator_bits: 2,
            interleave: Interleave::Fixed(5),
        };
        assert_eq!(params.code, FlowCode::Bats(expected));
        assert_eq!((params.generation_size, params.field), (32, FieldOrder::Two));
        assert_eq!(params.symbol_bytes, 1424, "the block word takes eight bytes");
    }
}
