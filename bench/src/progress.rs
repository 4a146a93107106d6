//! Progress of long work, shown only on terminals.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar with `steps` steps and the label `message`.
pub fn bar(message: &'static str, steps: usize) -> ProgressBar {
    let template = "{msg:20} [{bar:40}] {pos}/{len}, {eta} left";
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(steps as u64).with_message(message).with_style(style)
}
