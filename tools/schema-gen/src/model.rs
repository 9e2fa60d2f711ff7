//! Joins sources and corrections into the table's rows.

use crate::corrections::{Corrections, List};
use crate::docs::Docs;
use crate::source::{Merge, Node, Source};
use crate::tags::{Tags, Wire};
use std::collections::BTreeMap;

/// The type of a field, a list element or a map value.
#[derive(Debug, Clone, PartialEq)]
pub enum Ty {
    /// The library's `Ty` variant, as Rust text.
    Leaf(&'static str),
    /// A definition name.
    Struct(String),
    List(Box<Ty>),
    Map(Box<Ty>),
}

/// One field of a definition.
pub struct Field {
    pub ty: Ty,
    pub required: bool,
    /// The library's `Emit` variant.
    pub emit: &'static str,
    pub list: Option<List>,
    /// `x-kubernetes-map-type` of the property itself.
    pub mapping: Option<bool>,
    /// Patch strategies and the merge key.
    pub patch: (String, Option<String>),
    pub default: Option<String>,
    pub values: Vec<String>,
    /// Its protobuf field number, if it has one.
    pub wire: Option<Wire>,
    pub description: String,
}

/// One definition.
#[derive(Default)]
pub struct Def {
    pub description: String,
    pub fields: BTreeMap<String, Field>,
    /// Set if the definition is not an object.
    pub scalar: Option<&'static str>,
    pub atomic: bool,
    pub gvks: Vec<(String, String, String)>,
    pub union: Option<String>,
}

/// Definitions that are not decoded as objects with fields.
const SCALARS: [(&str, &str); 11] = [
    ("apimachinery.pkg.apis.meta.v1.Time", "Time"),
    ("apimachinery.pkg.apis.meta.v1.MicroTime", "MicroTime"),
    ("apimachinery.pkg.api.resource.Quantity", "Quantity"),
    ("apimachinery.pkg.util.intstr.IntOrString", "IntOrString"),
    ("apimachinery.pkg.runtime.RawExtension", "Any(FreeForm::RawExtension)"),
    ("apimachinery.pkg.apis.meta.v1.FieldsV1", "Any(FreeForm::FieldsV1)"),
    ("apimachinery.pkg.apis.meta.v1.Patch", "Any(FreeForm::Patch)"),
    (
        "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
        "Any(FreeForm::Json)",
    ),
    (
        "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
        "SchemaOr(SchemaOr::Bool)",
    ),
    (
        "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
        "SchemaOr(SchemaOr::Array)",
    ),
    (
        "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
        "SchemaOr(SchemaOr::StringArray)",
    ),
];
const PREFIX: &str = "io.k8s.";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// A definition's name in the corrections.
pub fn short(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

fn named(name: &str) -> Ty {
    match SCALARS.iter().find(|(n, _)| *n == short(name)) {
        Some((_, leaf)) => Ty::Leaf(leaf),
        None => Ty::Struct(name.to_owned()),
    }
}

fn primitive(kind: &str, format: &str) -> Option<&'static str> {
    Some(match (kind, format) {
        ("string", "byte") | ("byte", _) => "Bytes",
        ("string", _) => "String",
        ("integer", "int32") | ("int32", _) => "Int32",
        ("integer", _) | ("int64", _) => "Int64",
        ("number", _) => "Float",
        ("boolean", _) => "Bool",
        _ => return None,
    })
}

fn node_type(node: &Node, paths: &BTreeMap<String, String>) -> Ty {
    if let Node::Ref(path, _) = node {
        return named(paths.get(path).unwrap_or_else(|| panic!("no definition at {path}")));
    }
    match (node.str("type"), node.get("items"), node.get("additionalProperties")) {
        (Some("array"), Some(items), _) => Ty::List(Box::new(node_type(items, paths))),
        (Some("object"), _, Some(values)) => Ty::Map(Box::new(node_type(values, paths))),
        (Some("object"), ..) => Ty::Leaf("Any(FreeForm::Object)"),
        (Some(t), ..) => {
            Ty::Leaf(primitive(t, node.str("format").unwrap_or_default()).unwrap_or_else(|| panic!("no type {t}")))
        }
        _ => panic!("an untyped node: {node:?}"),
    }
}

fn written_type(text: &str) -> Ty {
    if let Some(t) = text.strip_prefix("[]") {
        Ty::List(Box::new(written_type(t)))
    } else if let Some(t) = text.strip_prefix("map") {
        Ty::Map(Box::new(written_type(t)))
    } else {
        primitive(text, "").map_or_else(|| named(&format!("{PREFIX}{text}")), Ty::Leaf)
    }
}

/// Go's encoding of the field when it is not set.
fn emit(ty: &Ty, required: bool, key: &str, c: &Corrections) -> &'static str {
    let omitempty = if required {
        c.has("omitted", key)
    } else {
        !c.has("always", key)
    };
    let pointer = match ty {
        // A list behind a pointer, where an empty list differs from an absent one.
        Ty::List(_) if omitempty && c.has("pointer", key) => return "OmitNil",
        Ty::List(_) | Ty::Map(_) | Ty::Leaf("Bytes") => return if omitempty { "OmitEmpty" } else { "Null" },
        Ty::Struct(_) => c.has("pointer", key) || !required && !c.has("value", key),
        Ty::Leaf(leaf) if leaf.starts_with("Any") => !required && !c.has("value", key),
        Ty::Leaf(leaf) if leaf.starts_with("SchemaOr") => true,
        Ty::Leaf(_) => c.has("pointer", key),
    };
    match (pointer, ty) {
        (true, _) if omitempty => "OmitNil",
        (true, _) => "Null",
        (false, _) if c.has("omitzero", key) => "OmitEmpty",
        // Go's `omitempty` has no effect on structs held by value.
        (false, Ty::Leaf("Time" | "MicroTime")) => "Null",
        (false, Ty::Leaf(leaf)) if leaf.starts_with("Any") => "Null",
        (false, Ty::Struct(_) | Ty::Leaf("Quantity" | "IntOrString")) => "Zero",
        (false, _) if omitempty => "OmitEmpty",
        (false, _) => "Zero",
    }
}

struct Row<'a> {
    def: &'a str,
    name: &'a str,
    ty: Ty,
    required: bool,
    derived: Option<List>,
    description: String,
}

fn field(row: Row<'_>, c: &Corrections) -> Field {
    let key = format!("{}.{}", short(row.def), row.name);
    let anywhere = c.has("optional", &format!("*.{}", row.name));
    let required = (row.required && !anywhere && !c.has("optional", &key)) || c.has("required", &key);
    let list = match row.ty {
        Ty::List(_) | Ty::Leaf("Bytes") => c.lists.get(&key).cloned().or(row.derived),
        _ => None,
    };
    let patch = c.patches.get(&key).cloned().unwrap_or_else(|| match &list {
        Some(List::Map(keys)) => ("merge".into(), keys.first().cloned()),
        Some(List::Set) => ("merge".into(), None),
        _ => Default::default(),
    });
    Field {
        emit: emit(&row.ty, required, &key, c),
        required,
        list,
        mapping: c.mapping.get(&key).copied(),
        patch,
        default: c.defaults.get(&key).cloned(),
        wire: None,
        values: c.enums.get(&key).cloned().unwrap_or_default(),
        description: row.description,
        ty: row.ty,
    }
}

/// Builds every definition.
pub fn build(
    sources: &[Source],
    paths: &BTreeMap<String, String>,
    c: &Corrections,
    tags: &Tags,
    docs: &Docs,
) -> BTreeMap<String, Def> {
    // The crate gives the keys of map lists as Rust field names of the element.
    let json_name = |element: &Ty, rust: &str| -> String {
        let Ty::Struct(name) = element else {
            return rust.to_owned();
        };
        let source = sources.iter().find(|s| s.name == *name);
        let pair = source.and_then(|s| s.rust_names.iter().find(|(_, r)| *r == rust));
        pair.map_or_else(|| rust.to_owned(), |(json, _)| json.clone())
    };
    let mut defs = BTreeMap::new();
    for source in sources {
        let def = short(&source.name);
        let mut out = Def {
            description: source.schema.str("description").unwrap_or_default().to_owned(),
            scalar: SCALARS.iter().find(|(n, _)| *n == def).map(|(_, leaf)| *leaf),
            atomic: c.atomic.contains(def),
            gvks: source.gvk.iter().cloned().chain(core_kind(def, c)).collect(),
            union: c.unions.get(def).cloned(),
            ..Def::default()
        };
        let required: Vec<&str> = match source.schema.get("required") {
            Some(Node::Array(names)) => names
                .iter()
                .filter_map(|n| if let Node::Str(s) = n { Some(&**s) } else { None })
                .collect(),
            _ => Vec::new(),
        };
        let Some(Node::Object(properties)) = source.schema.get("properties") else {
            defs.insert(source.name.clone(), out);
            continue;
        };
        for (name, node) in properties {
            let ty = node_type(node, paths);
            let derived =
                match &ty {
                    Ty::List(element) => source
                        .rust_names
                        .get(name)
                        .and_then(|rust| source.lists.get(rust))
                        .map(|m| match m {
                            Merge::Atomic => List::Atomic,
                            Merge::Set => List::Set,
                            Merge::Map(keys) => List::Map(keys.iter().map(|k| json_name(element, k)).collect()),
                        }),
                    _ => None,
                };
            let description = match node {
                Node::Ref(_, d) => d.clone().unwrap_or_default(),
                n => n.str("description").unwrap_or_default().to_owned(),
            };
            let required = required.contains(&name.as_str());
            let row = Row {
                def: &source.name,
                name,
                ty,
                required,
                derived,
                description,
            };
            out.fields.insert(name.clone(), field(row, c));
        }
        if let Some(kind) = &source.list_kind {
            let (name, list) = list_definition(source, kind, &out, c, docs);
            defs.insert(name, list);
        }
        defs.insert(source.name.clone(), out);
    }
    for (name, root) in &c.defines {
        let kind = name.rsplit('.').next().unwrap_or_default().to_owned();
        let gvks = root.iter().map(|(g, v)| (g.clone(), v.clone(), kind.clone())).collect();
        defs.insert(format!("{PREFIX}{name}"), Def { gvks, ..Def::default() });
    }
    for (key, added) in &c.fields {
        let (def, name) = key.rsplit_once('.').expect("definition.field");
        let def = format!("{PREFIX}{def}");
        let ty = written_type(&added.ty);
        let required = added.words.contains("required");
        let derived = matches!(ty, Ty::List(_)).then_some(List::Atomic);
        let row = Row {
            def: &def,
            name,
            ty,
            required,
            derived,
            description: added.description.clone(),
        };
        let mut f = field(row, c);
        if added.words.contains("pointer") {
            f.emit = if added.words.contains("always") {
                "Null"
            } else {
                "OmitNil"
            };
        }
        defs.get_mut(&def)
            .expect("the definition exists")
            .fields
            .insert(name.to_owned(), f);
    }
    for (name, def) in &mut defs {
        for (field_name, f) in &mut def.fields {
            f.wire = tags.find(short(name), field_name, c);
            let order = c
                .orders
                .get(short(name))
                .map(|order| order.iter().position(|n| n == field_name));
            if let (Some(wire), Some(place)) = (&mut f.wire, order) {
                let place = place.unwrap_or_else(|| panic!("the order of {name} lacks {field_name}"));
                wire.place = vec![u16::try_from(place).expect("few fields")];
            }
        }
    }
    check(&defs, c);
    defs
}

fn core_kind(def: &str, c: &Corrections) -> Option<(String, String, String)> {
    let kind = def.rsplit('.').next().unwrap_or_default();
    c.kinds
        .get(def)
        .map(|version| (String::new(), version.clone(), kind.to_owned()))
}

/// A list definition such as `PodList`, which the crate has as one generic type.
fn list_definition(source: &Source, kind: &str, item: &Def, c: &Corrections, docs: &Docs) -> (String, Def) {
    let prefix = &source.name[..=source.name.rfind('.').expect("a dotted name")];
    let (name, item_name) = (
        format!("{prefix}{kind}"),
        source.name.rsplit('.').next().unwrap_or_default(),
    );
    let message = name.trim_start_matches(PREFIX);
    let documented = |field: &str, otherwise: &str| docs.find(message, field).unwrap_or(otherwise).to_owned();
    let mut def = Def {
        description: documented("", &format!("{kind} is a list of {item_name} objects.")),
        ..Def::default()
    };
    if let Some((g, v, _)) = &source.gvk {
        def.gvks.push((g.clone(), v.clone(), kind.to_owned()));
    }
    let mut add = |field_name: &str, ty: Ty, required: bool, description: &str| {
        let row = Row {
            def: &name,
            name: field_name,
            ty,
            required,
            derived: None,
            description: description.to_owned(),
        };
        let mut f = field(row, c);
        if field_name == "metadata" {
            f.emit = "Zero";
        }
        def.fields.insert(field_name.to_owned(), f);
    };
    for meta in ["apiVersion", "kind"] {
        add(
            meta,
            Ty::Leaf("String"),
            false,
            item.fields.get(meta).map_or("", |f| &f.description),
        );
    }
    add(
        "items",
        Ty::List(Box::new(Ty::Struct(source.name.clone()))),
        true,
        &documented("items", "The objects of the list."),
    );
    add(
        "metadata",
        Ty::Struct(format!("{META}ListMeta")),
        false,
        &documented("metadata", "Standard list metadata."),
    );
    (name, def)
}

/// Checks that every correction applies to something, and that every reference resolves.
fn check(defs: &BTreeMap<String, Def>, c: &Corrections) {
    let exists = |name: &str| {
        let full = format!("{PREFIX}{name}");
        defs.contains_key(&full)
            || full
                .rsplit_once('.')
                .is_some_and(|(d, f)| defs.get(d).is_some_and(|d| d.fields.contains_key(f)))
    };
    for name in c.names() {
        assert!(exists(name), "corrections.txt names {name}, which does not exist");
    }
    fn follow(ty: &Ty, defs: &BTreeMap<String, Def>) {
        match ty {
            Ty::Struct(name) => assert!(defs.contains_key(name), "no definition {name}"),
            Ty::List(t) | Ty::Map(t) => follow(t, defs),
            Ty::Leaf(_) => {}
        }
    }
    for f in defs.values().flat_map(|d| d.fields.values()) {
        follow(&f.ty, defs);
    }
}
