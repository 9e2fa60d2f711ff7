//! Structural schemas: the OpenAPI v3 schema of a kind, parsed once, then used to prune, default, validate, apply and
//! publish its objects.
//!
//! Entry points: [`StructuralSchema::parse`] for a schema alone; [`KindSchema`] and [`SchemaStrategy`] to serve a kind
//! with it. The semantics are upstream's (`k8s.io/apiextensions-apiserver/pkg/apiserver/schema`), with these
//! differences:
//!
//! * `x-kubernetes-validations` is rejected; rules across fields belong in a [`Strategy`](crate::registry::Strategy).
//! * The formats `isbn`, `creditcard`, `ssn` and `rgbcolor` are published but not checked.

mod defaulting;
mod embedded;
mod format;
mod kind;
mod lists;
mod openapi;
mod parse;
mod pattern;
mod prune;
mod typed;
mod validate;

pub use kind::{KindSchema, SchemaStrategy};
pub use typed::Typed;

use crate::apimachinery::field::{ErrorList, FieldPath};
use crate::apimachinery::value::{Str, Value};
use format::Format;
use pattern::Pattern;

/// The schema of an object.
#[derive(Debug)]
pub struct StructuralSchema {
    root: Node,
}

/// The JSON type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    String,
}

/// The schema of one location in an object.
#[derive(Debug, Default)]
struct Node {
    /// `None` allows any type.
    ty: Option<Type>,
    nullable: bool,
    int_or_string: bool,
    preserve_unknown: bool,
    embedded: bool,
    atomic_map: bool,
    /// Sorted by name.
    properties: Vec<(Str, Node)>,
    additional: Additional,
    items: Option<Box<Node>>,
    default: Option<Box<Value>>,
    list: ListKind,
    required: Vec<Str>,
    /// Boxed to keep nodes small; most have none.
    checks: Option<Box<Checks>>,
}

#[derive(Debug, Default)]
enum Additional {
    #[default]
    Absent,
    Any(bool),
    Schema(Box<Node>),
}

#[derive(Debug, Default)]
enum ListKind {
    #[default]
    Atomic,
    Set,
    Map(Box<[Str]>),
}

/// Constraints on a value in addition to its type.
#[derive(Debug, Default)]
struct Checks {
    enumeration: Vec<Value>,
    minimum: Option<Bound>,
    maximum: Option<Bound>,
    multiple_of: Option<f64>,
    min_length: Option<usize>,
    max_length: Option<usize>,
    pattern: Option<Pattern>,
    format: Option<Format>,
    min_items: Option<usize>,
    max_items: Option<usize>,
    min_properties: Option<usize>,
    max_properties: Option<usize>,
    all_of: Vec<Node>,
    any_of: Vec<Node>,
    one_of: Vec<Node>,
    not: Option<Node>,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    at: f64,
    exclusive: bool,
}

impl Type {
    const ALL: [&'static str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "array" => Self::Array,
            "boolean" => Self::Boolean,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "object" => Self::Object,
            "string" => Self::String,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        Self::ALL[self as usize]
    }
}

impl Node {
    fn property(&self, name: &str) -> Option<&Self> {
        let found = self.properties.binary_search_by(|(k, _)| k.as_str().cmp(name));
        found.ok().map(|i| &self.properties[i].1)
    }

    /// The schema of the member `name`: that of the property, or of additional properties.
    fn member(&self, name: &str) -> Option<&Self> {
        self.property(name).or(match &self.additional {
            Additional::Schema(s) => Some(s),
            _ => None,
        })
    }

    /// True if the value is null and the schema does not allow it.
    fn rejects_null(&self, v: &Value) -> bool {
        v.is_null() && !self.nullable && (self.ty.is_some() || self.int_or_string)
    }
}

impl StructuralSchema {
    /// Parses a schema. `path` is its location in the enclosing document, for error messages.
    ///
    /// # Errors
    /// All errors of the schema, worded as upstream words them.
    pub fn parse_at(schema: &Value, path: &FieldPath) -> Result<Self, ErrorList> {
        let root = parse::root(schema, path)?;
        Ok(Self { root })
    }

    /// Parses a schema without an enclosing document.
    ///
    /// # Errors
    /// As [`parse_at`](Self::parse_at).
    pub fn parse(schema: &Value) -> Result<Self, ErrorList> {
        Self::parse_at(schema, &FieldPath::default())
    }

    /// Removes fields that are not in the schema, and nulls that it does not allow. `apiVersion`, `kind` and `metadata`
    /// are left alone. Returns the sorted paths of the removed unknown fields, which strict field validation reports.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let found = prune::unknown(&self.root, object, true);
        prune::nulls(&self.root, object);
        found
    }

    /// Applies defaults. Idempotent.
    pub fn default(&self, object: &mut Value) {
        defaulting::fill(&self.root, object, true);
    }

    /// Validates an object except for its metadata. With `old`, errors in unchanged values are ignored (ratcheting).
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> ErrorList {
        let mut errors = validate::validate(&self.root, object, old);
        errors.extend(embedded::validate(&self.root, object));
        errors.extend(lists::validate(&self.root, object, old));
        errors
    }

    /// Like [`validate`](Self::validate), but for `status` only. As upstream, the error's field path starts at the
    /// object's root, while paths inside messages start at `status`.
    pub fn validate_status(&self, object: &Value, old: Option<&Value>) -> ErrorList {
        let (Some(node), status) = (self.root.property("status"), object.get("status")) else {
            return ErrorList::new();
        };
        if status.is_null() {
            return ErrorList::new();
        }
        let mut errors = validate::validate(node, status, old.map(|o| o.get("status")));
        errors.extend(lists::validate(node, status, old.map(|o| o.get("status"))));
        for e in &mut errors {
            e.field = match e.field.as_str() {
                "<nil>" => "status".to_owned(),
                below if below.starts_with('[') => format!("status{below}"),
                below => format!("status.{below}"),
            };
        }
        errors
    }

    /// The schema in the form used by server-side apply.
    pub fn typed(&self) -> Typed<'_> {
        Typed::root(&self.root)
    }
}

#[cfg(test)]
mod tests;
