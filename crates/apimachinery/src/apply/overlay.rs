//! [`overlay`] merges a configuration into an object without ownership, as mutating admission policies do
//! (upstream: `admission/plugin/policy/mutating/patch/smd.go`): nothing is removed, and `managedFields` is
//! left alone.

use super::check::nonconformity;
use super::merge::merge;
use super::typed::shape_of;
use super::{ApplySchema, Shape};
use crate::field::{MAX_ERRORS, MAX_TEXT};
use crate::interrupt::checkpoint;
use crate::value::Value;
use std::fmt::Write as _;

/// Why a configuration cannot be merged. Messages as upstream words them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverlayError {
    /// The configuration does not conform to the schema.
    #[error("failed to convert patch object to typed object: {0}")]
    Nonconforming(String),
    /// It contains lists or objects that can only be replaced as a whole, at these paths.
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {0}")]
    Atomic(String),
}

/// The object with the configuration merged into it. Both are of the kind of the schema.
///
/// # Errors
/// The configuration does not conform to the schema, or contains a list or an object that can only be
/// replaced as a whole.
pub fn overlay<S: ApplySchema>(schema: S, object: &Value, config: &Value) -> Result<Value, OverlayError> {
    if let Some(why) = nonconformity(config, schema) {
        return Err(OverlayError::Nonconforming(why));
    }
    let mut atomics = Atomics::default();
    // Before merging: replacing an atomic value would silently drop elements that the policy did not mention.
    atomics.find(config, schema, &mut String::new());
    if !atomics.paths.is_empty() {
        return Err(OverlayError::Atomic(atomics.paths.join(", ")));
    }
    Ok(merge(Some(object), Some(config), schema).unwrap_or_default())
}

/// The paths of atomic lists and objects, bounded in number and size.
#[derive(Default)]
struct Atomics {
    paths: Vec<String>,
    size: usize,
}

impl Atomics {
    fn push(&mut self, path: &str) {
        // The first path is always reported, however long, since the message must name one.
        if self.paths.is_empty() || self.paths.len() < MAX_ERRORS && self.size + path.len() <= MAX_TEXT {
            self.size += path.len();
            self.paths.push(path.to_owned());
        }
    }

    fn find<S: ApplySchema>(&mut self, v: &Value, schema: S, path: &mut String) {
        checkpoint();
        let shape = shape_of(schema, v);
        match v {
            Value::Object(m) => {
                if matches!(shape, Shape::AtomicObject) {
                    self.push(path);
                }
                for (name, v) in m.iter() {
                    // Like upstream, values of maps are not checked.
                    // Keys of maps are not part of the schema that upstream walks (`findAtomics` in `smd.go`).
                    let Some(member) = schema.member(name).filter(|m| m.declared) else {
                        continue;
                    };
                    self.below(path, format_args!(".{name}"), v, member.schema);
                }
            }
            Value::Array(items) => match shape {
                Shape::AtomicList | Shape::Deduced => self.push(path),
                Shape::Set(of) | Shape::Keyed(of) => {
                    for (i, item) in items.iter().enumerate() {
                        self.below(path, format_args!("[{i}]"), item, of);
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn below<S: ApplySchema>(&mut self, path: &mut String, step: std::fmt::Arguments<'_>, v: &Value, schema: S) {
        let len = path.len();
        let _ = path.write_fmt(step);
        self.find(v, schema, path);
        path.truncate(len);
    }
}
