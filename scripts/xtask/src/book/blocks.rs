//! Configurations in a page: `recoded --check --offline` accepts each one that is complete.
//!
//! An ellipsis instead of a key becomes a new key, and boxes without a key get one.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{TaskError, output};

/// A complete configuration.
pub struct Block {
    /// Line of its fence, counted from 1.
    pub line: usize,
    pub text: String,
    /// Whether it is a file for all boxes.
    is_network: bool,
}

/// Complete configurations of a page.
pub fn of(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match open.as_mut() {
            None if line == "```toml" => {
                open = Some(Block { line: index + 1, text: String::new(), is_network: false });
            }
            None => {}
            Some(_) if line == "```" => blocks.extend(open.take()),
            Some(block) => {
                block.is_network |= line == "[boxes]";
                block.text.push_str(line);
                block.text.push('\n');
            }
        }
    }
    blocks.retain(|block| block.is_network || is_box(&block.text));
    blocks
}

/// Whether a text is the configuration of one box, and no part of one.
fn is_box(text: &str) -> bool {
    let has = |key: &str| text.lines().any(|line| line.starts_with(key));
    (has("[[link]]") || has("link = [")) && (has("[[flow]]") || has("flow = ["))
}

/// What the programs of a folder refuse.
pub fn check(block: &Block, programs: &Path) -> Result<Option<String>, TaskError> {
    let mut text = block.text.clone();
    if block.is_network {
        text = with_keys(&text, || new_key(programs))?;
    }
    let name = format!("recoded-book-{}.toml", std::process::id());
    let path = std::env::temp_dir().join(name);
    let failed = |source| TaskError::File { path: path.clone(), source };
    std::fs::write(&path, text).map_err(failed)?;
    let mut checks = vec![Command::new(programs.join("recoded"))];
    checks[0].args(["--check", "--offline", "--config"]).arg(&path);
    if block.is_network {
        checks.push(Command::new(programs.join("recodectl")));
        checks[1].arg("render").arg(&path);
    }
    let mut problem = None;
    for mut check in checks {
        let result = check.output().map_err(failed)?;
        if !result.status.success() {
            problem = Some(String::from_utf8_lossy(&result.stderr).trim().to_owned());
            break;
        }
    }
    std::fs::remove_file(&path).map_err(failed)?;
    Ok(problem)
}

/// A public key, of a private one that is dropped.
fn new_key(programs: &Path) -> Result<String, TaskError> {
    let program = programs.join("recodectl");
    let private = output(Command::new(&program).arg("genkey"))?;
    let failed = |source| TaskError::File { path: program.clone(), source };
    let mut child = Command::new(&program)
        .arg("pubkey")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(private.as_bytes()).map_err(failed)?;
    }
    let public = child.wait_with_output().map_err(failed)?;
    Ok(String::from_utf8_lossy(&public.stdout).trim().to_owned())
}

/// A network with a key for each box.
fn with_keys(
    text: &str,
    mut key: impl FnMut() -> Result<String, TaskError>,
) -> Result<String, TaskError> {
    let mut result = String::new();
    let mut is_boxes = false;
    for line in text.lines() {
        if line.starts_with('[') {
            is_boxes = line == "[boxes]";
        }
        let mut line = line.to_owned();
        if is_boxes && line.contains("= {") {
            if !line.contains(" key = ") {
                line = line.replacen("= {", "= { key = \"...\",", 1);
            }
            if line.contains("\"...\"") {
                line = line.replacen("\"...\"", &format!("\"{}\"", key()?), 1);
            }
        }
        result.push_str(&line);
        result.push('\n');
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_configurations_are_taken_and_parts_are_not() {
        let page = "```toml\n# net\n[boxes]\na = 1\n```\n```toml\n[[link]]\n[[flow]]\n```\n\
                    ```toml\n[daemon]\n```\n```sh\n[boxes]\n```\n";
        let lines: Vec<(usize, bool)> =
            of(page).iter().map(|block| (block.line, block.is_network)).collect();
        assert_eq!(lines, [(1, true), (6, false)]);
    }

    #[test]
    fn boxes_get_keys() {
        let text =
            "[boxes]\na = { key = \"...\", x = 1 }\nb = { x = 1 }\n[[path]]\nc = { x = 1 }\n";
        let expected = "[boxes]\na = { key = \"K\", x = 1 }\nb = { key = \"K\", x = 1 }\n\
                        [[path]]\nc = { x = 1 }\n";
        assert_eq!(with_keys(text, || Ok("K".to_owned())).unwrap(), expected);
    }
}
