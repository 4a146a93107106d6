//! Levels of the field kernels compared with the paper's library at the same level.
//!
//! Rates of the library were recorded once and are in `kernels::anchors`, not in a result file.

use serde_json::{Value, json};

use crate::kernels::anchors;

/// Ending of a source that compares the rows of a `kernels.json`.
pub const SUFFIX: &str = "#levels";

/// Each level, field and size that both have: `level`, `field`, `k` in bytes, and `ratio`, the rate
/// of Recoded over the library's.
pub fn compare(kernels: &Value) -> Value {
    let rows = kernels["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let compared = rows.iter().filter(|row| row["section"] == "paper").filter_map(|row| {
        let level = row["level"].as_str()?;
        let bytes = usize::try_from(row["k"].as_u64()?).ok()?;
        let of = |field: &&recoded_gf::Field| row["field"] == field.to_string().as_str();
        let field = anchors::PAPER_FIELDS.iter().find(of)?;
        let library = anchors::same_level(level, *field, bytes)?;
        let ratio = row["median"].as_f64()? / library.median;
        Some(json!({ "level": level, "field": field.to_string(), "k": bytes, "ratio": ratio }))
    });
    json!({ "machine": kernels["machine"], "rows": compared.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_levels_that_both_have_are_compared() {
        let row = |level: &str, k: u32, section: &str| json!({ "section": section, "level": level, "field": "gf4-7", "k": k, "median": 9.2 });
        let rows = [
            row("avx2-shuffle", 128, "paper"),
            row("naive", 128, "paper"),
            row("avx2-shuffle", 100, "paper"),
            row("avx2-shuffle", 128, "encode"),
        ];
        let compared = compare(&json!({ "rows": rows }));
        let expected = json!([
            { "level": "avx2-shuffle", "field": "gf4-7", "k": 128, "ratio": 1.0 }
        ]);
        assert_eq!(compared["rows"], expected);
        assert_eq!(compare(&json!(null))["rows"], json!([]));
    }
}
