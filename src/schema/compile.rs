//! Compiles the JSON of a schema into [`Node`]s, without validating it. Invalid keywords are skipped:
//! [`keywords`](super::keywords) and [`structural`](super::structural) report them, and a definition that was
//! stored before the validation existed must still work as far as possible.

use super::enumeration::Enumeration;
use super::format::{FormatCheck, Formats};
use super::limits::{self, MAX_DEPTH};
use super::pattern::{Pattern, PatternCache};
use super::rules::Ruleset;
use super::{Additional, Bound, Checks, CompileError, Default, ListKind, Node, Type};
use crate::apimachinery::value::{Str, Value};
use crate::interrupt::checkpoint;
use std::collections::HashMap;
use std::sync::Arc;

/// Compiles the schema of an object, whose patterns `cache` will keep.
pub(super) fn root(schema: &Value, cache: &Arc<PatternCache>) -> Result<Node, CompileError> {
    // Before compilation, which recurses as deep as the schema.
    limits::check(schema)?;
    let mut compiler = Compiler {
        patterns: HashMap::new(),
        cache,
    };
    compiler.node(schema, 0)
}

struct Compiler<'s> {
    /// Many fields of generated definitions have the same pattern (those of quantities, for example).
    patterns: HashMap<&'s str, Option<Arc<Pattern>>>,
    cache: &'s Arc<PatternCache>,
}

fn flag(s: &Value, name: &str) -> bool {
    s.get(name).as_bool() == Some(true)
}

fn strings(v: &Value) -> Box<[Str]> {
    v.items().iter().filter_map(Value::as_str).map(Str::new).collect()
}

fn count(s: &Value, name: &str) -> Option<usize> {
    s.get(name).as_i64().and_then(|n| usize::try_from(n).ok())
}

impl<'s> Compiler<'s> {
    fn node(&mut self, s: &'s Value, depth: usize) -> Result<Node, CompileError> {
        checkpoint();
        if depth > MAX_DEPTH {
            return Err(CompileError::TooDeep);
        }
        let mut node = Node {
            ty: Type::parse(s.str_at(&["type"])),
            nullable: flag(s, "nullable"),
            int_or_string: flag(s, "x-kubernetes-int-or-string"),
            embedded: flag(s, "x-kubernetes-embedded-resource"),
            preserve_unknown: flag(s, "x-kubernetes-preserve-unknown-fields"),
            is_formatted: !matches!(s.str_at(&["format"]), "" | "byte"),
            atomic_map: s.str_at(&["x-kubernetes-map-type"]) == "atomic",
            required: strings(s.get("required")),
            // Upstream ignores a default of null as well.
            default: Some(s.get("default"))
                .filter(|d| !d.is_null())
                .map(|d| Box::new(default(d))),
            list: match s.str_at(&["x-kubernetes-list-type"]) {
                "set" => ListKind::Set,
                "map" => ListKind::Map(strings(s.get("x-kubernetes-list-map-keys"))),
                _ => ListKind::Atomic,
            },
            rules: Ruleset::of(s),
            ..Node::default()
        };
        let properties = s.get("properties").as_object().into_iter().flat_map(|m| m.iter());
        let mut compiled = Vec::new();
        for (name, property) in properties {
            compiled.push((Str::new(name), self.node(property, depth + 1)?));
        }
        // Keys of a map are sorted, which lookups rely on.
        node.properties = compiled.into();
        node.additional = match s.get("additionalProperties") {
            Value::Bool(b) => Additional::Any(*b),
            schema @ Value::Object(_) => Additional::Schema(Box::new(self.node(schema, depth + 1)?)),
            _ => Additional::Absent,
        };
        if let items @ Value::Object(_) = s.get("items") {
            node.items = Some(Box::new(self.node(items, depth + 1)?));
        }
        node.checks = self.checks(s, &node, depth)?.map(Box::new);
        let additional = match &node.additional {
            Additional::Schema(s) => Some(&**s),
            _ => None,
        };
        let properties = node.properties.iter().map(|(_, p)| p);
        let mut below = properties.chain(node.items.as_deref()).chain(additional);
        node.has_rules = node.rules.is_some() || below.clone().any(|n| n.has_rules);
        node.has_embedded = node.embedded || below.any(|n| n.has_embedded);
        Ok(node)
    }

    fn checks(&mut self, s: &'s Value, node: &Node, depth: usize) -> Result<Option<Checks>, CompileError> {
        const WORDS: [&str; 16] = [
            "enum",
            "minimum",
            "maximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "pattern",
            "format",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        let foreign_type = Some(s.str_at(&["type"])).filter(|ty| !ty.is_empty() && node.ty.is_none());
        // `not: {}` refuses everything. The last test finds numeric keywords whose value is zero: `minLength: 0` counts
        // as set.
        if foreign_type.is_none()
            && s.get("not").is_null()
            && WORDS.iter().all(|w| s.get(w).is_empty_value())
            && !WORDS.iter().any(|w| s.get(w).as_f64().is_some())
        {
            return Ok(None);
        }
        let bound = |word: &str, exclusive: &str| {
            let at = s.get(word).as_f64()?;
            let exclusive = flag(s, exclusive);
            Some(Bound { at, exclusive })
        };
        let mut list = |word: &str| -> Result<Box<[Node]>, CompileError> {
            let branches = s.get(word).items().iter();
            branches.map(|b| self.node(b, depth + 1)).collect()
        };
        // Sequentially, since each compiles its branches with the same pattern table.
        let (all_of, any_of, one_of) = (list("allOf")?, list("anyOf")?, list("oneOf")?);
        let not = match s.get("not") {
            not @ Value::Object(_) => Some(Box::new(self.node(not, depth + 1)?)),
            _ => None,
        };
        // Formats of int-or-string apply to its strings only.
        let types = match node.int_or_string {
            true => Formats::Strings,
            false => Formats::of(node.ty),
        };
        let named = s.str_at(&["format"]);
        let format = FormatCheck::parse(types, named);
        Ok(Some(Checks {
            foreign_type: foreign_type.map(Box::from),
            enumeration: Enumeration::of(s),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: s.get("multipleOf").as_f64(),
            min_length: count(s, "minLength"),
            max_length: count(s, "maxLength"),
            pattern: Some(s.str_at(&["pattern"]))
                .filter(|p| !p.is_empty())
                .and_then(|p| self.pattern(p)),
            foreign_format: (format.is_none() && !named.is_empty()).then(|| named.into()),
            format,
            min_items: count(s, "minItems"),
            max_items: count(s, "maxItems"),
            min_properties: count(s, "minProperties"),
            max_properties: count(s, "maxProperties"),
            all_of,
            any_of,
            one_of,
            not,
        }))
    }

    // Invalid patterns are remembered as `None`, so that they are parsed once as well.
    fn pattern(&mut self, source: &'s str) -> Option<Arc<Pattern>> {
        let known = self.patterns.entry(source);
        let new = || Pattern::new(source, self.cache).ok().map(Arc::new);
        known.or_insert_with(new).clone()
    }
}

fn default(value: &Value) -> Default {
    Default {
        value: value.clone(),
        size: limits::size(value),
    }
}
