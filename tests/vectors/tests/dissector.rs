//! Wireshark's dissector reads every field of every vector, and reports truncated packets as
//! malformed, checked with tshark.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use recoded_vectors::Hex;
use serde_json::Value;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/wireshark/recoded.lua");

/// Output of tshark for each packet: all values of each field, in order.
fn dissect(packets: &[Vec<u8>], options: &[&str]) -> Option<Vec<BTreeMap<String, Vec<String>>>> {
    let folder = tempfile::tempdir().expect("a folder");
    let capture = folder.path().join("packets.pcap");
    std::fs::write(&capture, pcap(packets)).expect("a file");
    let output = Command::new("tshark")
        .args(["-X", &format!("lua_script:{SCRIPT}"), "-T", "json", "--no-duplicate-keys", "-r"])
        .arg(&capture)
        .args(options)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            let reason = format!("reading packets by tshark: {error}");
            assert!(
                std::env::var_os("RECODED_REQUIRE_ALL").is_none_or(|all| all != "1"),
                "{reason}"
            );
            println!("skipped: {reason}");
            return None;
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("Lua"), "{said}");
    let packets: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let fields = |packet: &Value| {
        let mut fields = BTreeMap::new();
        collect(&packet["_source"]["layers"]["recoded"], &mut fields);
        assert!(!packet.to_string().contains("Lua Error"), "{packet}");
        fields
    };
    Some(packets.iter().map(fields).collect())
}

fn collect(value: &Value, fields: &mut BTreeMap<String, Vec<String>>) {
    let Value::Object(entries) = value else { return };
    for (name, value) in entries {
        let values = match value {
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        for value in values {
            match value {
                Value::String(text) => fields.entry(name.clone()).or_default().push(text.clone()),
                nested => collect(nested, fields),
            }
        }
    }
}

/// A capture of raw IPv4 packets, each with one of `payloads` in UDP to Recoded's port.
fn pcap(payloads: &[Vec<u8>]) -> Vec<u8> {
    const LINKTYPE_RAW: u32 = 101;
    let mut file = Vec::new();
    for field in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, LINKTYPE_RAW] {
        file.extend(u32::to_le_bytes(field));
    }
    for payload in payloads {
        let bytes = 28 + payload.len() as u32;
        for field in [0, 0, bytes, bytes] {
            file.extend(u32::to_le_bytes(field));
        }
        file.extend([0x45, 0, (bytes >> 8) as u8, bytes as u8, 0, 0, 0, 0, 64, 17, 0, 0]);
        file.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        for field in [50_000, 9426, bytes as u16 - 20, 0] {
            file.extend(u16::to_be_bytes(field));
        }
        file.extend(payload);
    }
    file
}

fn vectors() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("json/wire.json");
    let text = std::fs::read_to_string(path).expect("the vectors");
    let kinds: BTreeMap<String, Vec<Value>> = serde_json::from_str(&text).expect("JSON");
    kinds.into_values().flatten().collect()
}

fn bytes(vector: &Value) -> Vec<u8> {
    let Hex(bytes) = serde_json::from_value(vector["bytes"].clone()).expect("hexadecimal");
    bytes
}

/// The fields that a vector must show: (name, values).
fn expected(vector: &Value) -> Vec<(String, Vec<String>)> {
    let mut fields = Vec::new();
    expect(vector, "", &mut fields);
    fields
}

/// Vector names that differ in the dissector.
const NAMES: [(&str, &str); 7] = [
    ("packet_type", "type"),
    ("block.number", "block"),
    ("block.full_log2", "block_full_log2"),
    ("combination.first", "first_place"),
    ("number", "report"),
    ("symbol.number", "number"),
    ("missing", "missing_place"),
];

fn expect(value: &Value, path: &str, fields: &mut Vec<(String, Vec<String>)>) {
    let text = |value: &Value, name: &str| match value {
        Value::String(digits) => {
            let pairs = digits.as_bytes().chunks(2);
            let pairs: Vec<_> =
                pairs.map(|pair| String::from_utf8_lossy(pair).into_owned()).collect();
            pairs.join(":")
        }
        Value::Number(number) if ["flags", "node"].contains(&name) => {
            let width = if name == "flags" { 4 } else { 10 };
            format!("{:#0width$x}", number.as_u64().expect("an integer"))
        }
        other => other.to_string(),
    };
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                let is_outer = path.is_empty() || path == "header";
                let below = if is_outer { name.clone() } else { format!("{path}.{name}") };
                expect(value, &below, fields);
            }
        }
        Value::Array(values) if values.iter().any(Value::is_object) => {
            values.iter().for_each(|value| expect(value, path, fields));
        }
        Value::Null => {}
        _ if path == "bytes" => {}
        _ => {
            let values = match value {
                Value::Array(bits) if bits.first().is_some_and(Value::is_boolean) => {
                    vec![Value::from(bitmap(bits))]
                }
                Value::Array(values) => values.clone(),
                one => vec![one.clone()],
            };
            let name = name_of(path);
            let values = values.iter().map(|value| text(value, &name)).filter(|it| !it.is_empty());
            let values: Vec<String> = values.collect();
            match fields.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => known.extend(values),
                None if values.is_empty() => {}
                None => fields.push((name, values)),
            }
        }
    }
}

/// The bytes that hold these bits, as hexadecimal digits, the most significant bit first.
fn bitmap(bits: &[Value]) -> String {
    let byte = |bits: &[Value]| {
        bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(bit.as_bool() == Some(true)))
    };
    bits.chunks(8).map(|bits| format!("{:02x}", byte(bits))).collect()
}

fn name_of(path: &str) -> String {
    let renamed = NAMES.iter().find(|(from, _)| *from == path).map(|(_, to)| (*to).to_owned());
    renamed.unwrap_or_else(|| match path.split_once('.') {
        Some(("items", rest)) => {
            let (kind, name) = rest.split_once('.').unwrap_or(("", rest));
            match (kind, name) {
                ("ranks", "counts") => "item.rank_count".to_owned(),
                ("size", "bytes") => "item.size".to_owned(),
                _ => format!("item.{name}"),
            }
        }
        Some(("gaps", rest)) => format!("gap.{rest}"),
        Some(("entries", rest)) => format!("entry.{rest}"),
        Some((_, rest)) => rest.to_owned(),
        None => path.to_owned(),
    })
}

#[test]
fn every_field_of_every_vector_is_read() {
    let vectors = vectors();
    let packets: Vec<_> = vectors.iter().map(bytes).collect();
    let Some(read) = dissect(&packets, &[]) else { return };
    assert_eq!(read.len(), vectors.len());
    let mut checked = 0;
    for (vector, read) in vectors.iter().zip(&read) {
        for (name, values) in expected(vector) {
            let key = format!("recoded.{name}");
            assert_eq!(read.get(&key), Some(&values), "{key} of {vector}\n{read:#?}");
            checked += 1;
        }
        assert!(!read.contains_key("recoded.malformed"), "{vector}");
    }
    println!("{checked} fields of {} packets", vectors.len());
    assert!(checked > 500);
}

#[test]
fn cut_packets_never_stop_the_dissector() {
    let whole: Vec<_> = vectors().iter().map(bytes).collect();
    let cut = whole.iter().flat_map(|packet| {
        let lengths = (16..packet.len()).step_by(if packet.len() > 120 { 37 } else { 3 });
        lengths.map(|len| packet[..len].to_vec())
    });
    let cut: Vec<_> = cut.collect();
    let Some(read) = dissect(&cut, &[]) else { return };
    assert_eq!(read.len(), cut.len());
    for (packet, read) in cut.iter().zip(&read) {
        assert!(read.contains_key("recoded.flow"), "{packet:02x?}");
    }
}

#[test]
fn tags_are_read_where_the_hop_has_keys() {
    let tag = [7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    let vectors = vectors();
    let packets: Vec<_> = vectors.iter().map(|it| [&bytes(it)[..], &tag].concat()).collect();
    let Some(read) = dissect(&packets, &["-o", "recoded.tags:TRUE"]) else { return };
    for (vector, read) in vectors.iter().zip(&read) {
        // Messages between neighbours have none.
        let is_message = vector["header"]["packet_type"] == 7
            && vector["header"]["flags"] == 0
            && vector["message"] != "";
        let key = read.get("recoded.tag.key").map(|keys| keys[0].as_str());
        assert_eq!(key, (!is_message).then_some("7"), "{vector}");
        if let Some(symbol) = vector["symbol"].as_str() {
            assert_eq!(read["recoded.symbol"][0].replace(':', ""), symbol);
        }
    }
}
