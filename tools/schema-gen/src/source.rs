//! Parses the source text of k8s-openapi. For each definition it reads the JSON schema literal, group, version
//! and kind, and the list strategies of the DeepMerge impl.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The modules of k8s-pb under `root`, the crate's `src`: the name of each without separators, and the text
/// of its `mod.rs`.
pub fn modules(root: &Path) -> Vec<(String, String)> {
    let mut modules = Vec::new();
    let mut dirs = vec![(root.to_owned(), String::new())];
    while let Some((dir, module)) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).expect("the crate's sources are readable") {
            let entry = entry.expect("a directory entry");
            let path = entry.path();
            if path.is_dir() {
                dirs.push((path, format!("{module}{}", entry.file_name().to_string_lossy())));
            } else if path.file_name().is_some_and(|n| n == "mod.rs") {
                modules.push((module.clone(), std::fs::read_to_string(&path).expect("a source file")));
            }
        }
    }
    modules
}

/// A node of a `json_schema!` literal.
#[derive(Debug, Clone)]
pub enum Node {
    Object(Vec<(String, Node)>),
    Array(Vec<Node>),
    Str(String),
    Bool,
    /// `subschema_for::<path>()`, with the description set on it.
    Ref(String, Option<String>),
}

impl Node {
    pub fn get(&self, key: &str) -> Option<&Node> {
        match self {
            Node::Object(pairs) => pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }
    pub fn str(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Node::Str(s)) => Some(s),
            _ => None,
        }
    }
}

/// How DeepMerge merges a list; keys are Rust field names.
#[derive(Debug, Clone)]
pub enum Merge {
    Atomic,
    Set,
    Map(Vec<String>),
}

/// One definition of the crate.
pub struct Source {
    pub name: String,
    pub schema: Node,
    pub gvk: Option<(String, String, String)>,
    pub list_kind: Option<String>,
    /// By Rust field name.
    pub lists: BTreeMap<String, Merge>,
    /// JSON name to Rust field name.
    pub rust_names: BTreeMap<String, String>,
}

/// The directory into which cargo has unpacked a crate.
pub fn locate(krate: &str) -> PathBuf {
    let out = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(
        out.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    let meta: serde_json::Value = serde_json::from_slice(&out.stdout).expect("cargo metadata prints JSON");
    let package = meta["packages"]
        .as_array()
        .expect("packages")
        .iter()
        .find(|p| p["name"] == krate);
    let manifest = package
        .and_then(|p| p["manifest_path"].as_str())
        .expect("the crate is a dependency");
    Path::new(manifest)
        .parent()
        .expect("a manifest has a directory")
        .join("src")
}

/// Every definition under `root`, and the definition name of each Rust path.
pub fn read(root: &Path) -> (Vec<Source>, BTreeMap<String, String>) {
    let mut defs = Vec::new();
    let mut paths = BTreeMap::new();
    let mut dirs = vec![(root.to_owned(), String::from("crate"))];
    while let Some((dir, module)) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).expect("the crate's sources are readable") {
            let entry = entry.expect("a directory entry");
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() {
                dirs.push((path, format!("{module}::{name}")));
            } else if name.ends_with(".rs") {
                let text = std::fs::read_to_string(&path).expect("a source file");
                if let Some(def) = definition(&text) {
                    let last = def.name.rsplit('.').next().unwrap_or_default();
                    paths.insert(format!("{module}::{last}"), def.name.clone());
                    defs.push(def);
                }
            }
        }
    }
    (defs, paths)
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let rest = &text[text.find(start)? + start.len()..];
    Some(&rest[..rest.find(end)?])
}

fn definition(text: &str) -> Option<Source> {
    let body = between(text, "fn schema_name()", "fn json_schema")?;
    let name = between(body, "\"", "\".into()")?.to_owned();
    let literal = text.find("json_schema!(").map(|i| &text[i + "json_schema!(".len()..])?;
    let schema = Parser { text: literal, at: 0 }.value();
    let constant = |k: &str| between(text, &format!("const {k}: &'static str = \""), "\"").map(str::to_owned);
    let gvk = constant("GROUP")
        .zip(constant("VERSION"))
        .zip(constant("KIND"))
        .map(|((g, v), k)| (g, v, k));
    let mut lists = BTreeMap::new();
    for call in text.split("crate::merge_strategies::list::").skip(1) {
        let Some(field) = between(call, "self.", ",") else {
            continue;
        };
        let merge = match call.split('(').next() {
            Some("atomic") => Merge::Atomic,
            Some("set") => Merge::Set,
            _ => {
                let keys = between(call, "&[", "],").unwrap_or_default();
                let key = |k: &str| between(k, "lhs.", " ==").unwrap_or_default().to_owned();
                Merge::Map(keys.split("|lhs, rhs|").skip(1).map(key).collect())
            }
        };
        lists.insert(field.to_owned(), merge);
    }
    let mut rust_names = BTreeMap::new();
    for line in text.lines() {
        if let Some((json, rust)) = line.trim().split_once("\" => Field::Key_") {
            rust_names.insert(
                json.trim_start_matches('"').to_owned(),
                rust.trim_end_matches(',').to_owned(),
            );
        }
    }
    Some(Source {
        name,
        schema,
        gvk,
        list_kind: constant("LIST_KIND"),
        lists,
        rust_names,
    })
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }
    fn skip(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }
    fn eat(&mut self, s: &str) -> bool {
        self.skip();
        let found = self.rest().starts_with(s);
        if found {
            self.at += s.len();
        }
        found
    }
    fn expect(&mut self, s: &str) {
        assert!(self.eat(s), "expected {s:?} at {:.80?}", self.rest());
    }

    fn value(&mut self) -> Node {
        if self.eat("({") {
            return self.block();
        }
        if self.eat("(") {
            let v = self.value();
            self.expect(")");
            return v;
        }
        if self.eat("{") {
            let mut pairs = Vec::new();
            while !self.eat("}") {
                let key = self.string();
                self.expect(":");
                pairs.push((key, self.value()));
                self.eat(",");
            }
            return Node::Object(pairs);
        }
        if self.eat("[") {
            let mut items = Vec::new();
            while !self.eat("]") {
                items.push(self.value());
                self.eat(",");
            }
            return Node::Array(items);
        }
        if self.eat("true") {
            return Node::Bool;
        }
        if self.eat("__gen.subschema_for::<") {
            let path = self.until(">()");
            return Node::Ref(path, None);
        }
        Node::Str(self.string())
    }

    /// `({ let mut schema_obj = …; schema_obj.ensure_object().insert("description".into(), "…".into());
    /// schema_obj })`
    fn block(&mut self) -> Node {
        self.until("subschema_for::<");
        let path = self.until(">()");
        self.until("insert(\"description\".into(),");
        let description = self.string();
        self.until("})");
        Node::Ref(path, Some(description))
    }

    fn until(&mut self, end: &str) -> String {
        let i = self
            .rest()
            .find(end)
            .unwrap_or_else(|| panic!("no {end:?} after {:.80?}", self.rest()));
        let s = self.rest()[..i].to_owned();
        self.at += i + end.len();
        s
    }

    fn string(&mut self) -> String {
        self.expect("\"");
        let mut out = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    return out;
                }
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    Some('r') => out.push('\r'),
                    Some('u') => {
                        let hex: String = chars
                            .by_ref()
                            .skip(1)
                            .map(|(_, c)| c)
                            .take_while(|c| *c != '}')
                            .collect();
                        out.push(
                            u32::from_str_radix(&hex, 16)
                                .ok()
                                .and_then(char::from_u32)
                                .expect("an escape"),
                        );
                    }
                    Some(c) => out.push(c),
                    None => break,
                },
                c => out.push(c),
            }
        }
        panic!("an unterminated string");
    }
}
