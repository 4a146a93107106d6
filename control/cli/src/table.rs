//! Plain tables, and wrapped lines that fit 80 columns.

use std::fmt::Write;

/// Maximum width of a line, as far as words allow.
pub const COLUMNS: usize = 80;

/// How a column is aligned.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// Lays out `rows` under `head`, two spaces between columns.
pub fn table<const N: usize>(head: [(&str, Align); N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(|(name, _)| name.chars().count());
    let rows: Vec<[String; N]> =
        rows.iter().map(|row| row.each_ref().map(|cell| clean(cell))).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = line(&head.map(|(name, _)| name.to_owned()), &head, &widths);
    for row in &rows {
        text.push_str(&line(row, &head, &widths));
    }
    text
}

fn line<const N: usize>(
    cells: &[String; N],
    head: &[(&str, Align); N],
    widths: &[usize; N],
) -> String {
    let mut text = String::new();
    for ((cell, (_, align)), width) in cells.iter().zip(head).zip(widths) {
        let gap = if text.is_empty() { "" } else { "  " };
        // Writing to a String cannot fail.
        let _ = match align {
            Align::Left => write!(text, "{gap}{cell:<width$}"),
            Align::Right => write!(text, "{gap}{cell:>width$}"),
        };
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// Writes `items` after a label, separated by commas, as many per line as fit.
pub fn wrapped(label: &str, items: &[String]) -> String {
    let last = items.len().saturating_sub(1);
    let comma = |index| if index < last { "," } else { "" };
    fill(label, items.iter().enumerate().map(|(index, item)| clean(item) + comma(index)))
}

/// Writes a sentence after a label, as many words per line as fit.
pub fn sentence(label: &str, text: &str) -> String {
    fill(label, text.split_whitespace().map(clean))
}

fn fill(label: &str, items: impl Iterator<Item = String>) -> String {
    const INDENT: usize = 16;
    let mut text = format!("  {label:<13} ");
    let mut column = text.chars().count();
    let mut starts = true;
    for item in items {
        let width = item.chars().count();
        if !starts && column + 1 + width > COLUMNS {
            text.push('\n');
            text.push_str(&" ".repeat(INDENT));
            column = INDENT;
            starts = true;
        }
        if !starts {
            text.push(' ');
            column += 1;
        }
        text.push_str(&item);
        column += width;
        starts = false;
    }
    text.push('\n');
    text
}

/// A text of at most `columns` columns; the end of a longer one is replaced by `~`.
pub fn clipped(text: &str, columns: usize) -> String {
    match text.chars().nth(columns) {
        None => text.to_owned(),
        Some(_) => text.chars().take(columns - 1).chain(['~']).collect(),
    }
}

/// A count: exact up to seven digits, then three significant ones.
pub fn count(number: u64) -> String {
    let scaled = |scale: f64, unit: &str| {
        let value = number as f64 / scale;
        let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
        format!("{value:.decimals$}{unit}")
    };
    match number {
        0..10_000_000 => number.to_string(),
        10_000_000..1_000_000_000 => scaled(1e6, "M"),
        1_000_000_000..1_000_000_000_000 => scaled(1e9, "G"),
        _ => scaled(1e12, "T"),
    }
}

/// A number with `decimals` decimals, or `-` if it is unknown.
pub fn known(number: Option<f64>, decimals: usize) -> String {
    number.map_or("-".to_owned(), |number| format!("{number:.decimals$}"))
}

/// Microseconds as milliseconds with one decimal, or `-` if unknown.
pub fn millis(micros: Option<f64>) -> String {
    known(micros.map(|micros| micros / 1e3), 1)
}

/// A share in percent.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A small share in percent with two significant digits: residual losses.
pub fn residual(share: f64) -> String {
    let percent = share * 100.0;
    if percent <= 0.0 {
        return "0 %".to_owned();
    }
    // 0.001 % has three decimals, and one more for the second digit.
    let decimals = (1.0 - percent.log10().floor()).clamp(1.0, 9.0) as usize;
    format!("{percent:.decimals$} %")
}

/// Formats a duration.
pub fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// A paragraph of as many words per line as fit.
pub fn paragraph(text: &str, columns: usize) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        let gap = match column {
            0 => "",
            _ if column + 1 + width > columns => "\n",
            _ => " ",
        };
        column = if gap == " " { column + 1 + width } else { width };
        lines.push_str(gap);
        lines.push_str(word);
    }
    lines.push('\n');
    lines
}

/// Remote text must not move the cursor.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_while_short_and_rounded_when_long() {
        let shown = [0, 9_999_999, 10_000_000, 123_456_789, 1_234_567_890, u64::MAX].map(count);
        assert_eq!(shown, ["0", "9999999", "10.0M", "123M", "1.23G", "18446744T"]);
    }

    #[test]
    fn residual_shares_keep_two_digits_and_nothing_is_only_zero() {
        let shown = [0.0, 1e-9, 1.04e-5, 0.000_25, 0.0099, 0.345, 1.0].map(residual);
        let expected =
            ["0 %", "0.00000010 %", "0.0010 %", "0.025 %", "0.99 %", "34.5 %", "100.0 %"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn durations_name_their_two_largest_units() {
        let shown = [0, 59, 60, 3_599, 3_600, 90_000].map(duration);
        assert_eq!(shown, ["0 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "1 d 1 h"]);
    }

    #[test]
    fn wrapped_items_fit_the_columns_and_control_characters_do_nothing() {
        let items: Vec<String> = (0..60).map(|number| format!("item\x1b{number}")).collect();
        let text = wrapped("many", &items);
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert!(text.lines().count() > 2 && !text.contains('\x1b'));
        assert_eq!(wrapped("none", &[]), "  none          \n");
    }
}
