//! Figures in tables and sentences.

pub(super) const COLUMNS: usize = 80;

pub(super) fn least(is_least: bool, figure: String) -> String {
    if is_least { format!("at least {figure}") } else { figure }
}

pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        0.0 => "0 %".into(),
        ..0.1 => format!("{percent:.3} %"),
        _ => format!("{percent:.2} %"),
    }
}

/// About three significant digits.
pub(super) fn decimals(figure: f64) -> String {
    match figure {
        ..0.005 => "0".into(),
        ..9.995 => format!("{figure:.2}"),
        ..99.95 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}
