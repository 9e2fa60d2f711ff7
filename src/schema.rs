//! Structural schemas: the OpenAPI v3 schema of a kind, parsed once, then used to prune, default, validate,
//! apply and publish its objects.
//!
//! Entry points: [`StructuralSchema::parse`] checks and compiles a schema, [`StructuralSchema::compile`] only
//! compiles one that was accepted before; [`definition`] checks the schemas of a CustomResourceDefinition;
//! [`KindSchema`] and [`SchemaStrategy`] serve a kind. Nothing here has state beyond its arguments, and a
//! compiled schema depends only on the schema's JSON, so that it can be shared by content.
//!
//! The semantics are upstream's (`k8s.io/apiextensions-apiserver/pkg/apiserver/schema`). `rules` compiles and
//! evaluates the CEL rules. `limits` bounds what a schema may cost.

mod compile;
mod cost;
mod defaulting;
mod defaults;
pub(crate) mod definition;
mod embedded;
mod enumeration;
mod field_path;
pub(crate) mod format;
mod keywords;
mod kind;
mod limits;
mod lists;
mod openapi;
mod options;
mod path;
mod pattern;
mod prune;
mod ratchet;
mod rules;
mod structural;
mod typed;
mod unsupported;
mod validate;

pub(crate) use format::is_absolute_url;
pub(crate) use kind::{KindSchema, SchemaStrategy};
pub(crate) use pattern::PatternCache;
pub(crate) use typed::Typed;

use crate::apimachinery::codec::json;
use crate::apimachinery::field::{ErrorList, FieldError, FieldErrorKind, FieldPath};
use crate::apimachinery::value::{Str, Value};
use enumeration::Enumeration;
use format::FormatCheck;
use pattern::Pattern;
use rules::Ruleset;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The schema of an object.
#[derive(Debug)]
pub struct StructuralSchema {
    root: Node,
    /// True if validating or defaulting a small object may take long.
    is_costly: bool,
    /// Set once the rules are compiled.
    prepared: OnceLock<()>,
}

/// Why a schema cannot be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// It is nested more deeply than the limit.
    TooDeep,
    /// One of its nodes has more schemas in `allOf`, `anyOf`, `oneOf` and `not` than the limit.
    TooManyBranches,
    /// It is not JSON.
    NotJson,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooDeep => "must not be nested any deeper",
            Self::TooManyBranches => "must not have as many schemas in allOf, anyOf, oneOf and not",
            Self::NotJson => "must be JSON",
        })
    }
}

impl std::error::Error for CompileError {}

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
#[derive(Debug, std::default::Default)]
struct Node {
    /// `None` allows any type.
    ty: Option<Type>,
    nullable: bool,
    int_or_string: bool,
    preserve_unknown: bool,
    embedded: bool,
    atomic_map: bool,
    /// Its strings have another format than `byte`; to server-side apply, such a value is any scalar.
    is_formatted: bool,
    /// Sorted by name.
    properties: Box<[(Str, Node)]>,
    additional: Additional,
    items: Option<Box<Node>>,
    default: Option<Box<Default>>,
    list: ListKind,
    required: Box<[Str]>,
    rules: Option<Box<Ruleset>>,
    /// True if this schema or one in it, apart from those in junctors, has rules.
    has_rules: bool,
    /// True if this schema or one in it, apart from those in junctors, is one of embedded objects.
    has_embedded: bool,
    /// Boxed to keep nodes small; most have none.
    checks: Option<Box<Checks>>,
}

/// A default, and about how much memory it takes in bytes.
#[derive(Debug)]
struct Default {
    value: Value,
    size: usize,
}

// Not a derived default of `Any(true)`: in upstream absence prunes unknown members, while `true` keeps them.
#[derive(Debug, std::default::Default)]
enum Additional {
    #[default]
    Absent,
    Any(bool),
    Schema(Box<Node>),
}

#[derive(Debug, std::default::Default)]
enum ListKind {
    #[default]
    Atomic,
    Set,
    Map(Box<[Str]>),
}

/// Constraints on a value in addition to its type.
#[derive(Debug, std::default::Default)]
struct Checks {
    /// A type that does not exist, which no value has.
    foreign_type: Option<Box<str>>,
    enumeration: Option<Box<Enumeration>>,
    minimum: Option<Bound>,
    maximum: Option<Bound>,
    multiple_of: Option<f64>,
    min_length: Option<usize>,
    max_length: Option<usize>,
    pattern: Option<Arc<Pattern>>,
    format: Option<FormatCheck>,
    /// A format that values do not have to be of. It still decides how the type of a default is checked.
    foreign_format: Option<Box<str>>,
    min_items: Option<usize>,
    max_items: Option<usize>,
    min_properties: Option<usize>,
    max_properties: Option<usize>,
    all_of: Box<[Node]>,
    any_of: Box<[Node]>,
    one_of: Box<[Node]>,
    not: Option<Box<Node>>,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    at: f64,
    exclusive: bool,
}

impl Type {
    // In the order of the variants, which `name` relies on; upstream also prints them sorted.
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
        // `compile` takes the properties from a sorted map.
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
        v.is_null() && !self.nullable
    }
}

impl StructuralSchema {
    /// Checks and compiles a schema. `path` is its location in the enclosing document, for error messages.
    ///
    /// # Errors
    /// All errors of the schema, worded as upstream words them.
    pub fn parse_at(schema: &Value, path: &FieldPath) -> Result<Self, ErrorList> {
        // Errors do not stop compilation, so both come back; a schema with errors is never served.
        let (compiled, errors) = definition::check(schema, path, &definition::Options::default());
        match compiled {
            Some(compiled) if errors.is_empty() => Ok(compiled),
            _ => Err(errors),
        }
    }

    /// Checks and compiles a schema without an enclosing document.
    ///
    /// # Errors
    /// As [`parse_at`](Self::parse_at).
    pub fn parse(schema: &Value) -> Result<Self, ErrorList> {
        Self::parse_at(schema, &FieldPath::default())
    }

    /// Compiles a schema that was accepted before. Keywords that make no sense are skipped. Takes time and
    /// memory in proportion to the schema.
    ///
    /// # Errors
    /// The schema exceeds a limit.
    pub fn compile(schema: &Value) -> Result<Self, CompileError> {
        Self::compile_with(schema, &Arc::default())
    }

    /// As [`compile`](Self::compile), with a cache of compiled patterns that schemas share.
    ///
    /// # Errors
    /// The schema exceeds a limit.
    pub(crate) fn compile_with(schema: &Value, cache: &Arc<PatternCache>) -> Result<Self, CompileError> {
        compile::root(schema, cache).map(Self::of)
    }

    /// As [`compile`](Self::compile), from JSON.
    ///
    /// # Errors
    /// The schema exceeds a limit, or is not JSON.
    pub fn compile_json(schema: &[u8]) -> Result<Self, CompileError> {
        Self::compile(&json::decode(schema).map_err(|_| CompileError::NotJson)?)
    }

    /// Removes fields that are not in the schema, and nulls that it does not allow. `apiVersion`, `kind` and
    /// `metadata` are left alone. Returns the sorted paths of the removed unknown fields, which strict field
    /// validation reports.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let found = prune::unknown(&self.root, object, true);
        // After pruning, so that nulls of unknown members are not looked at.
        prune::nulls(&self.root, object);
        found
    }

    /// Applies defaults. Idempotent. Stops after a megabyte of defaults; see
    /// [`is_defaulted`](Self::is_defaulted).
    pub fn default(&self, object: &mut Value) {
        defaulting::fill(&self.root, object, true);
    }

    /// True if the object has all its defaults.
    pub fn is_defaulted(&self, object: &Value) -> bool {
        defaulting::is_filled(&self.root, object, true)
    }

    /// Validates an object except for its metadata. With `old`, errors in unchanged values are ignored
    /// (ratcheting).
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> ErrorList {
        // Values first: upstream's order, which shows in the list of errors.
        let mut errors = self.validate_values(object, old);
        errors.extend(self.validate_structure(object, old));
        errors
    }

    /// The first half of [`validate`](Self::validate): the OpenAPI keywords. Upstream checks scale paths
    /// after it.
    pub fn validate_values(&self, object: &Value, old: Option<&Value>) -> ErrorList {
        validate::values(&self.root, object, old, &FieldPath::default())
    }

    /// The second half: embedded objects, and duplicates in lists of type set and map.
    pub fn validate_structure(&self, object: &Value, old: Option<&Value>) -> ErrorList {
        let mut errors = embedded::validate(&self.root, object, &FieldPath::default(), false);
        errors.extend(lists::validate(&self.root, object, old));
        errors
    }

    /// Like [`validate`](Self::validate) for an update of `status`, where upstream checks the keywords of
    /// `status` and the lists of the whole object. As upstream, field paths start at the object's root, while
    /// paths inside messages start at `status`.
    pub fn validate_status(&self, object: &Value, old: Option<&Value>) -> ErrorList {
        let mut errors = ErrorList::new();
        let status = object.get("status");
        if let Some(node) = self.root.property("status").filter(|_| !status.is_null()) {
            // A status that is new has nothing to be compared with.
            let old = old.map(|o| o.get("status")).filter(|o| !o.is_null());
            errors = validate::values(node, status, old, &FieldPath::new("status"));
        }
        errors.extend(lists::validate(&self.root, object, old));
        errors
    }

    /// True if defaulting or validating an object of some kilobytes may take long because of the schema, or
    /// its CEL rules.
    pub(crate) fn is_costly(&self) -> bool {
        self.is_costly || self.has_rules()
    }

    /// True if there are CEL rules.
    pub fn has_rules(&self) -> bool {
        self.root.has_rules
    }

    /// Evaluates the CEL rules, unless `errors`, those that were found before, include one that rules may
    /// rely on not to exist.
    pub fn validate_rules(&self, object: &Value, old: Option<&Value>, errors: &ErrorList) -> ErrorList {
        if !self.has_rules() {
            return ErrorList::new();
        }
        // Rules may rely on types, sizes and required members being right; running them anyway gives misleading
        // errors.
        let blocking = |e: &FieldError| {
            matches!(
                e.kind,
                FieldErrorKind::NotSupported
                    | FieldErrorKind::Required
                    | FieldErrorKind::TooLong
                    | FieldErrorKind::TooMany
                    | FieldErrorKind::TypeInvalid
            )
        };
        if errors.iter().any(blocking) {
            let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            let mut skipped = ErrorList::new();
            skipped.push(FieldError::invalid(&FieldPath::default(), Value::Null, why));
            return skipped;
        }
        self.evaluate(object, old).errors
    }

    /// The failures of CEL rules that ratcheting tolerates, because the update did not change the values.
    pub fn rule_warnings(&self, object: &Value, old: &Value) -> Vec<String> {
        match self.has_rules() {
            true => self.evaluate(object, Some(old)).warnings,
            false => Vec::new(),
        }
    }

    fn evaluate(&self, object: &Value, old: Option<&Value>) -> rules::evaluate::Verdict {
        // Not `get_or_init`: compiling may be interrupted, and nobody waits for another's.
        if self.prepared.get().is_none() {
            rules::programs::prepare(&self.root);
            // Another thread may have set it in the meantime, after compiling the same programs.
            let _ = self.prepared.set(());
        }
        let mut budget = rules::evaluate::Budget::new();
        rules::evaluate::run(
            &self.root,
            object,
            old,
            &FieldPath::default(),
            old.is_some(),
            &mut budget,
        )
    }

    fn of(root: Node) -> Self {
        // Estimated once per schema: it decides for every write where it runs.
        Self {
            is_costly: cost::is_costly(&root),
            root,
            prepared: OnceLock::new(),
        }
    }

    /// The schema in the form used by server-side apply.
    pub fn typed(&self) -> Typed<'_> {
        Typed::root(&self.root)
    }
}

#[cfg(test)]
mod tests;
