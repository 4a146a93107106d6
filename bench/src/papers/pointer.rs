//! Pointers into documents: `/rows/[part=encode&n=128]/contenders/[who=CPU]/rate`.
//!
//! A step is a member's name (`~1` is a slash in it), or in brackets the members and values of the
//! wanted elements of a list; `[*]` wants all, and `[a/b=1]` looks into the member `a`. A number in
//! text is the one at its beginning; blanks may group its digits (`24 500`).

use serde_json::Value;

use crate::papers::error::PointerError;

/// A single number for several elements.
#[derive(Copy, Clone, Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reduce {
    /// The arithmetic mean.
    Mean,
    /// The smallest.
    Min,
    /// The share of numbers that are 1 or more.
    ShareAheadOrEqual,
}

/// The number at `at`; of several matching elements, as `reduce` states.
///
/// # Errors
/// [`PointerError`]: nothing there, several without `reduce`, or no number.
pub fn number(document: &Value, at: &str, reduce: Option<Reduce>) -> Result<f64, PointerError> {
    let numbers = select(document, at, reduce.is_some())?.into_iter().map(to_number);
    let numbers = numbers.collect::<Result<Vec<f64>, _>>()?;
    let count = numbers.len() as f64;
    Ok(match reduce {
        None | Some(Reduce::Min) => numbers.into_iter().fold(f64::INFINITY, f64::min),
        Some(Reduce::Mean) => numbers.iter().sum::<f64>() / count,
        Some(Reduce::ShareAheadOrEqual) => {
            numbers.iter().filter(|number| **number >= 1.0).count() as f64 / count
        }
    })
}

/// The text at `at`.
///
/// # Errors
/// [`PointerError`].
pub fn text(document: &Value, at: &str) -> Result<String, PointerError> {
    let found = select(document, at, false)?;
    let text = found.first().map(|value| value.as_str().map_or(value.to_string(), str::to_owned));
    text.ok_or_else(|| PointerError::Nothing(at.to_owned()))
}

/// The values at `at`, at least one.
fn select<'a>(
    document: &'a Value,
    at: &str,
    is_reduced: bool,
) -> Result<Vec<&'a Value>, PointerError> {
    let mut found = vec![document];
    for step in steps(at) {
        let next: Vec<&Value> = found.into_iter().flat_map(|value| follow(value, step)).collect();
        match next.len() {
            0 => return Err(PointerError::Nothing(step.to_owned())),
            1 => {}
            count if !is_reduced => {
                return Err(PointerError::Several { step: step.to_owned(), count });
            }
            _ => {}
        }
        found = next;
    }
    Ok(found)
}

/// Splits at slashes outside brackets.
fn steps(at: &str) -> impl Iterator<Item = &str> {
    let mut is_inside = false;
    let steps = at.split(move |symbol| {
        match symbol {
            '[' => is_inside = true,
            ']' => is_inside = false,
            _ => {}
        }
        symbol == '/' && !is_inside
    });
    steps.filter(|step| !step.is_empty())
}

fn follow<'a>(value: &'a Value, step: &str) -> Vec<&'a Value> {
    let Some(wanted) = step.strip_prefix('[').and_then(|step| step.strip_suffix(']')) else {
        return value.get(step.replace("~1", "/")).into_iter().collect();
    };
    let elements = value.as_array().map(Vec::as_slice).unwrap_or_default();
    elements.iter().filter(|element| matches(element, wanted)).collect()
}

fn matches(element: &Value, wanted: &str) -> bool {
    if wanted == ALL {
        return true;
    }
    wanted.split('&').all(|condition| {
        let (key, value) = condition.split_once('=').unwrap_or((condition, ""));
        match element.pointer(&format!("/{key}")) {
            Some(Value::String(text)) => text == value,
            Some(Value::Number(number)) => number.as_f64() == value.parse().ok(),
            Some(Value::Bool(is_true)) => is_true.to_string() == value,
            _ => false,
        }
    })
}

fn to_number(value: &Value) -> Result<f64, PointerError> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => leading(text),
        _ => None,
    };
    let number = number.filter(|number| number.is_finite());
    number.ok_or_else(|| PointerError::NotANumber(value.to_string()))
}

/// Between brackets: every element.
const ALL: &str = "*";

/// The number at the beginning of a text.
fn leading(text: &str) -> Option<f64> {
    let is_part = |symbol: &char| symbol.is_ascii_digit() || ".- ".contains(*symbol);
    let digits: String = text.chars().take_while(is_part).filter(|symbol| *symbol != ' ').collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document() -> Value {
        json!({ "rows": [
            { "n": 16, "who": "CPU, all", "rate": 2.0, "is_cold": true, "of": { "a": 1 } },
            { "n": 32, "who": "a / b", "kbit/s": "24 500 of 30 000" },
        ] })
    }

    #[test]
    fn one_element_by_all_its_conditions() {
        assert_eq!(number(&document(), "/rows/[n=16&who=CPU, all]/rate", None), Ok(2.0));
        assert_eq!(number(&document(), "/rows/[is_cold=true]/n", None), Ok(16.0));
        assert_eq!(number(&document(), "/rows/[who=a / b]/kbit~1s", None), Ok(24500.0));
        assert_eq!(number(&document(), "/rows/[of/a=1]/n", None), Ok(16.0));
        assert_eq!(text(&document(), "/rows/[n=32]/who"), Ok("a / b".to_owned()));
    }

    #[test]
    fn nothing_several_and_no_number_are_errors() {
        let at = |at| number(&document(), at, None).unwrap_err();
        assert_eq!(at("/rows/[n=64]/rate"), PointerError::Nothing("[n=64]".into()));
        assert_eq!(at("/rows/[n=16]/gone"), PointerError::Nothing("gone".into()));
        assert_eq!(at("/rows/[]/rate"), PointerError::Nothing("[]".into()));
        assert!(matches!(at("/rows/[n=16]/who"), PointerError::NotANumber(_)));
        assert!(matches!(at("/rows"), PointerError::NotANumber(_)));
        let twins = json!([{ "a": 1, "b": 1 }, { "a": 1, "b": 2 }]);
        let several = PointerError::Several { step: "[a=1]".into(), count: 2 };
        assert_eq!(number(&twins, "/[a=1]/b", None), Err(several));
    }

    #[test]
    fn several_elements_are_reduced() {
        let numbers = json!([{ "a": 1, "b": 1 }, { "a": 1, "b": 0.5 }, { "a": 2, "b": 9 }]);
        let reduced = |reduce| number(&numbers, "/[a=1]/b", Some(reduce));
        assert_eq!(number(&numbers, "/[*]/b", Some(Reduce::Mean)), Ok(3.5));
        assert_eq!(reduced(Reduce::Mean), Ok(0.75));
        assert_eq!(reduced(Reduce::Min), Ok(0.5));
        assert_eq!(reduced(Reduce::ShareAheadOrEqual), Ok(0.5));
    }
}
