//! Parses `corrections.txt`: one correction per line, whose first word is its type.

use std::collections::{BTreeMap, BTreeSet};

/// A list type given by a correction.
#[derive(Debug, Clone)]
pub enum List {
    Atomic,
    Set,
    Map(Vec<String>),
}

/// A field added by a correction.
#[derive(Debug)]
pub struct Added {
    pub ty: String,
    pub words: BTreeSet<String>,
    pub description: String,
}

/// All corrections. Keys are `definition.field`, or a definition, without `io.k8s.`.
#[derive(Debug, Default)]
pub struct Corrections {
    /// `optional`, `required`, `always`, `omitted`, `omitzero`, `pointer`, `value`: the fields each applies
    /// to.
    pub marks: BTreeMap<String, BTreeSet<String>>,
    pub defaults: BTreeMap<String, String>,
    pub lists: BTreeMap<String, List>,
    /// Patch strategies (empty for none) and merge key.
    pub patches: BTreeMap<String, (String, Option<String>)>,
    pub atomic: BTreeSet<String>,
    pub mapping: BTreeMap<String, bool>,
    pub unions: BTreeMap<String, String>,
    /// Versions of the core group in which a definition is a kind.
    pub kinds: BTreeMap<String, String>,
    /// Added definitions, with group and version if they are kinds.
    pub defines: BTreeMap<String, Option<(String, String)>>,
    /// Protobuf field numbers.
    pub tags: BTreeMap<String, u8>,
    /// The fields of a definition in the order of Go's struct.
    pub orders: BTreeMap<String, Vec<String>>,
    /// Embedded messages: definition, then number and message.
    pub inline: Vec<(String, (u8, String))>,
    /// The allowed values of a field or of its elements.
    pub enums: BTreeMap<String, Vec<String>>,
    pub fields: BTreeMap<String, Added>,
}

impl Corrections {
    pub fn has(&self, mark: &str, field: &str) -> bool {
        self.marks.get(mark).is_some_and(|m| m.contains(field))
    }

    /// Every definition or field named, to check that each exists.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let fields = self.marks.values().flatten().filter(|f| !f.starts_with("*."));
        fields
            .chain(self.defaults.keys())
            .chain(self.lists.keys())
            .chain(self.patches.keys())
            .chain(&self.atomic)
            .chain(self.mapping.keys())
            .chain(self.orders.keys())
            .chain(self.unions.keys())
            .chain(self.kinds.keys())
            .chain(self.enums.keys())
            .map(String::as_str)
    }

    pub fn parse(text: &str) -> Self {
        let mut out = Self::default();
        for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let (verb, rest) = line
                .split_once(' ')
                .unwrap_or_else(|| panic!("no arguments in {line:?}"));
            let (name, args) = rest.split_once(' ').unwrap_or((rest, ""));
            let owned = || name.to_owned();
            match verb {
                "optional" | "required" | "always" | "omitted" | "omitzero" | "pointer" | "value" => {
                    let def = name.trim_end_matches(':');
                    let fields = args.split(' ').map(|f| format!("{def}.{f}"));
                    out.marks.entry(verb.to_owned()).or_default().extend(fields);
                }
                "default" => drop(out.defaults.insert(owned(), args.to_owned())),
                "list" => {
                    let list = match args.split_once(' ') {
                        Some((_, keys)) => List::Map(keys.split(',').map(str::to_owned).collect()),
                        None if args == "set" => List::Set,
                        None => List::Atomic,
                    };
                    out.lists.insert(owned(), list);
                }
                "patch" => {
                    let (strategy, key) = args.split_once(' ').unwrap_or((args, ""));
                    let key = Some(key.to_owned()).filter(|k| !k.is_empty());
                    out.patches
                        .insert(owned(), (strategy.trim_matches('-').to_owned(), key));
                }
                "atomic" => drop(out.atomic.insert(owned())),
                "mapping" => drop(out.mapping.insert(owned(), args == "atomic")),
                "define" => {
                    let root = args.split_once(' ').map(|(g, v)| (g.to_owned(), v.to_owned()));
                    out.defines.insert(owned(), root);
                }
                "tags" => {
                    let message = name.trim_end_matches(':');
                    out.tags.extend(args.split(' ').map(|pair| {
                        let (field, tag) = pair.split_once('=').expect("field=number");
                        (format!("{message}.{field}"), tag.parse().expect("a number"))
                    }));
                }
                "inline" => {
                    let (tag, message) = args.split_once(' ').expect("number and message");
                    out.inline
                        .push((owned(), (tag.parse().expect("a number"), message.to_owned())));
                }
                "order" => {
                    let definition = name.trim_end_matches(':').to_owned();
                    let fields = args.split(' ').map(str::to_owned).collect();
                    out.orders.insert(definition, fields);
                }
                "kind" => drop(out.kinds.insert(owned(), args.to_owned())),
                "union" => drop(out.unions.insert(owned(), args.to_owned())),
                "enum" => {
                    let (values, fields) = rest.split_once("]: ").expect("enum [values]: fields");
                    let values: Vec<String> = serde_json::from_str(&format!("{values}]")).expect("a JSON array");
                    out.enums
                        .extend(fields.split(' ').map(|f| (f.to_owned(), values.clone())));
                }
                "field" => {
                    let (spec, description) = args.split_once(" -- ").unwrap_or((args, ""));
                    let mut words = spec.split(' ').map(str::to_owned);
                    let ty = words.next().expect("a field has a type");
                    let (numbers, words): (Vec<String>, Vec<String>) = words.partition(|w| w.starts_with('='));
                    for number in numbers {
                        out.tags.insert(owned(), number[1..].parse().expect("a number"));
                    }
                    out.fields.insert(
                        owned(),
                        Added {
                            ty,
                            words: words.into_iter().collect(),
                            description: description.to_owned(),
                        },
                    );
                }
                _ => panic!("unknown correction {verb:?} in {line:?}"),
            }
        }
        out
    }
}
