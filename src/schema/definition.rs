//! The checks of a schema in a CustomResourceDefinition. The entry point is [`check`].
//!
//! Upstream reports the same mistake in several places of its code, and the order of these passes shows on
//! the wire:
//!
//! 1. `structural`: the rules of structural schemas, sorted by their text. Only without errors there:
//! 2. `defaults`: every default is valid and pruned.
//! 3. `keywords`: what each keyword may be.
//! 4. `rules`: the expressions compile, and cost no more than the limits. Where nothing else is wrong.
//! 5. Keywords that upstream's conversion refuses, if nothing else was wrong, and our `limits`.

use super::limits;
use super::unsupported::unsupported;
use super::{CompileError, StructuralSchema, compile, defaults, keywords, rules, structural};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;
use std::sync::Arc;

pub(crate) use super::field_path::{ArrayNotation, resolve};
pub(crate) use super::keywords::{Ratcheted, any, children};
pub(crate) use super::options::Options;

/// The errors of a schema at `path`, and the compiled schema unless it exceeds a limit.
pub(crate) fn check(schema: &Value, path: &FieldPath, options: &Options) -> (Option<StructuralSchema>, ErrorList) {
    let mut errors = ErrorList::new();
    if schema.as_object().is_none() {
        errors.push(FieldError::invalid(path, schema.clone(), "must be a schema object"));
        return (None, errors);
    }
    if let Err(e) = limits::check(schema) {
        errors.push(too_costly(path, e));
        return (None, errors);
    }
    // Compiled with a cache of its own: a definition that is rejected must not fill the shared one.
    let root = match compile::root(schema, &Arc::default()) {
        Ok(root) => root,
        Err(e) => {
            errors.push(too_costly(path, e));
            return (None, errors);
        }
    };
    let unsupported = unsupported(schema);
    let is_convertible = unsupported.is_none();
    // A schema that upstream cannot convert is not judged by structural rules or expressions.
    let mut judges_rules = options.structural && is_convertible;
    if judges_rules {
        errors = structural::check(schema, path);
        if errors.is_empty() {
            // Rules are compiled here, since defaults are checked by them.
            rules::programs::prepare(&root);
            errors = defaults::check(&root, path, options.pruned_defaults);
        }
        judges_rules = errors.is_empty();
    }
    // Always, also for schemas that are not structural.
    errors.extend(keywords::check(schema, path, options, is_convertible));
    if judges_rules {
        errors.extend(rules::budget::check(&root, path, &errors, options.rule_costs));
    }
    // Only if nothing else is wrong, because upstream converts last.
    if let Some(why) = unsupported.filter(|_| options.structural && errors.is_empty()) {
        errors.push(FieldError::invalid(path, "", why));
    }
    (Some(StructuralSchema::of(root)), errors)
}

fn too_costly(path: &FieldPath, e: CompileError) -> FieldError {
    FieldError::forbidden(path, e.to_string())
}

/// A schema has a keyword that structural schemas do not support. Message as upstream words it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UnsupportedKeyword(String);

/// The violations of the rules for structural schemas, for the condition `NonStructuralSchema`.
///
/// # Errors
/// [`UnsupportedKeyword`]: the schema cannot be judged.
pub(crate) fn violations(schema: &Value, path: &FieldPath) -> Result<ErrorList, UnsupportedKeyword> {
    convertible(schema).map(|schema| structural::check(schema, path))
}

/// The schema, if upstream can convert it to its structural form, whether or not that is valid.
///
/// # Errors
/// [`UnsupportedKeyword`], the first in upstream's order.
pub(crate) fn convertible(schema: &Value) -> Result<&Value, UnsupportedKeyword> {
    match unsupported(schema) {
        Some(why) => Err(UnsupportedKeyword(why)),
        None => Ok(schema),
    }
}

/// True if a schema of a stored definition violates the rules for structural schemas.
pub(crate) fn is_structural(schema: &Value) -> bool {
    violations(schema, &FieldPath::default()).is_ok_and(|e| e.is_empty())
}

/// True if a default of a schema has fields that the schema lacks.
pub(crate) fn has_unpruned_defaults(schema: &Value) -> bool {
    is_structural(schema) && compile::root(schema, &Arc::default()).is_ok_and(|root| !defaults::are_pruned(&root))
}

/// True if the schema, or one in it, violates a rule that may be ratcheted.
pub(crate) fn violates(schema: &Value, rule: Ratcheted) -> bool {
    any(schema, &mut |s| keywords::violates(s, rule))
}
