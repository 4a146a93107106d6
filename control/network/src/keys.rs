//! Writes public keys into the text of a network, preserving comments and formatting.

use recoded_secure::PublicKey;
use toml_edit::{DocumentMut, InlineTable, Item, Value};

/// Why keys cannot be written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeepError {
    /// It is not TOML.
    #[error("the file is not valid TOML ({0}): correct it first")]
    Syntax(String),
    /// The node is not in it.
    #[error("box {0} is no longer in the file: run this again")]
    NoNode(String),
}

/// A key of a node.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NodeKey<'a> {
    /// The node.
    pub node: &'a str,
    /// Its public key.
    pub public: PublicKey,
    /// The path of its private key on the box, if that changes, too.
    pub private: Option<&'a str>,
}

/// Returns `text` with these keys of nodes.
///
/// # Errors
/// [`KeepError`]: the text has no such node.
pub fn with_keys(text: &str, keys: &[NodeKey<'_>]) -> Result<String, KeepError> {
    let parsed = text.parse::<DocumentMut>();
    let mut document = parsed.map_err(|error| {
        KeepError::Syntax(error.message().lines().collect::<Vec<_>>().join(", "))
    })?;
    for NodeKey { node: name, public, private } in keys {
        let form = if document.contains_key("boxes") { "boxes" } else { "nodes" };
        let node = document.get_mut(form).and_then(|nodes| nodes.get_mut(name));
        let node = node.ok_or_else(|| KeepError::NoNode((*name).to_owned()))?;
        if let Item::Value(Value::String(host)) = node {
            let mut table = InlineTable::new();
            table.insert("ssh", host.value().as_str().into());
            let mut value = Value::from(table);
            *value.decor_mut() = host.decor().clone();
            *node = Item::Value(value);
        }
        let table =
            node.as_table_like_mut().ok_or_else(|| KeepError::NoNode((*name).to_owned()))?;
        table.insert("key", toml_edit::value(public.to_string()));
        if let Some(path) = private {
            table.insert("private_key", toml_edit::value(*path));
        }
        if let Item::Value(Value::InlineTable(table)) = node {
            table.fmt();
        }
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";

    #[test]
    fn keys_are_written_beside_what_was_there() {
        let text =
            "[nodes]\na = \"root@a\" # first\nb = { sudo = true }\n\n[nodes.c]\nssh = \"c\"\n";
        let key: PublicKey = KEY.parse().unwrap();
        let of = |node| NodeKey { node, public: key, private: None };
        let kept = with_keys(text, &[of("a"), of("b"), of("c")]).unwrap();
        let expected = format!(
            "[nodes]\na = {{ ssh = \"root@a\", key = \"{KEY}\" }} # first\n\
             b = {{ sudo = true, key = \"{KEY}\" }}\n\n[nodes.c]\nssh = \"c\"\n\
             key = \"{KEY}\"\n"
        );
        assert_eq!(kept, expected);
        assert_eq!(with_keys(&kept, &[of("a")]).unwrap(), kept);
        let moved = NodeKey { private: Some("/etc/recoded/private-2.key"), ..of("b") };
        let moved = with_keys(text, &[moved]).unwrap();
        let line = format!(
            "b = {{ sudo = true, key = \"{KEY}\", private_key = \"/etc/recoded/private-2.key\" }}"
        );
        assert_eq!(moved, text.replace("b = { sudo = true }", &line));
        assert_eq!(with_keys(text, &[of("d")]), Err(KeepError::NoNode("d".into())));
        assert!(matches!(with_keys("[nodes", &[]), Err(KeepError::Syntax(_))));
    }
}
