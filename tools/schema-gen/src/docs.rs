//! The documentation of messages and their fields, from the comments of k8s-pb's structs. It has what
//! k8s-openapi lacks: the lists of each kind, and the options that requests take as query parameters.
//!
//! Entry point: [`Docs::read`].

use crate::source;
use crate::tags::key;
use std::collections::BTreeMap;
use std::path::Path;

/// Documentation by message and field; a message's own is under the empty field. Names are normalised by
/// [`key`].
pub struct Docs(BTreeMap<String, BTreeMap<String, String>>);

impl Docs {
    /// Reads every message under `root`, the crate's `src`.
    pub fn read(root: &Path) -> Self {
        let mut messages = BTreeMap::new();
        for (module, text) in source::modules(root) {
            read_module(&module, &text, &mut messages);
        }
        Self(messages)
    }

    /// The text about a message (without `io.k8s.`), or about one of its fields.
    pub fn find(&self, message: &str, field: &str) -> Option<&str> {
        let text = self.0.get(&key(message))?.get(&key(field))?;
        Some(text.as_str()).filter(|text| !text.is_empty())
    }

    /// The texts about the fields of a message, by normalised name.
    pub fn fields(&self, message: &str) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.0.get(&key(message)).into_iter().flatten();
        fields.filter_map(|(name, text)| (!name.is_empty()).then_some((name.as_str(), text.as_str())))
    }
}

fn read_module(module: &str, text: &str, messages: &mut BTreeMap<String, BTreeMap<String, String>>) {
    let (mut message, mut comment) = (String::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            comment.push(text.strip_prefix(' ').unwrap_or(text));
            continue;
        }
        if line.starts_with("#[") {
            continue;
        }
        if let Some(name) = line.strip_prefix("pub struct ") {
            message = key(&format!("{module}{}", name.trim_end_matches([' ', '{', '}'])));
            messages
                .entry(message.clone())
                .or_default()
                .insert(String::new(), plain(&comment));
        } else if let Some(field) = line.strip_prefix("pub ") {
            let name = field.split(':').next().unwrap_or_default().trim_start_matches("r#");
            let fields = messages.entry(message.clone()).or_default();
            fields.insert(key(name), plain(&comment));
        }
        comment.clear();
    }
}

/// A comment as OpenAPI documents have it: lines are joined, paragraphs are kept, markers (`+optional`) are
/// not, and what prost escapes for rustdoc is undone.
fn plain(comment: &[&str]) -> String {
    let mut out = String::new();
    let mut ended = false;
    for line in comment {
        let line = line.trim();
        if line.starts_with('+') || line.starts_with("TODO") {
            continue;
        }
        if line.is_empty() {
            ended = !out.is_empty();
            continue;
        }
        match (out.is_empty(), ended) {
            (true, _) => {}
            (false, true) => out.push_str("\n\n"),
            (false, false) => out.push(' '),
        }
        ended = false;
        let line = line
            .replace("<http", "http")
            .replace("\\[", "[")
            .replace("\\]", "]")
            .replace("\\_", "_");
        out.push_str(&without_closing_brackets(&line));
    }
    out
}

/// Removes the `>` that closed a URL.
fn without_closing_brackets(line: &str) -> String {
    let mut out = String::new();
    for (i, word) in line.split(' ').enumerate() {
        if i > 0 {
            out.push(' ');
        }
        match word.split_once("http") {
            Some(_) => out.push_str(&word.replacen('>', "", 1)),
            None => out.push_str(word),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_become_descriptions() {
        let lines = [
            "A selector.",
            "See <https://k8s.io/a#b> for",
            "details.",
            "",
            "Defaults to \\[\\]",
            "+optional",
        ];
        assert_eq!(
            plain(&lines),
            "A selector. See https://k8s.io/a#b for details.\n\nDefaults to []"
        );
        assert_eq!(plain(&["+optional"]), "");
    }

    #[test]
    fn messages_and_fields_have_their_own() {
        let text = "/// A thing.\n#[derive(Clone)]\npub struct Thing {\n    /// Its name.\n    #[prost(tag = \"1\")]\n    pub r#type: String,\n}\n";
        let mut messages = BTreeMap::new();
        read_module("api", text, &mut messages);
        let docs = Docs(messages);
        assert_eq!(docs.find("api.Thing", ""), Some("A thing."));
        assert_eq!(docs.find("api.Thing", "type"), Some("Its name."));
        assert_eq!(docs.find("api.Thing", "other"), None);
        assert_eq!(docs.fields("api.Thing").count(), 1);
    }
}
