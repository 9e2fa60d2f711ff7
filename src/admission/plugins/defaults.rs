//! Selection of the default class among those annotated as default: the newest, then the first by name.

use crate::admission::ObjectLookup;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::{Str, Value};
use std::cmp::Reverse;

/// The name of the default object of a cluster-scoped resource. `marks` are the annotations whose value
/// "true" makes an object the default.
///
/// # Errors
/// 500 if the storage fails.
pub(crate) async fn default_of(
    cluster: &ObjectLookup,
    group: &str,
    resource: &str,
    marks: &'static [&'static str],
) -> Result<Option<Str>> {
    let is_default = |class: &Value| marks.iter().any(|mark| class.annotation(mark) == Some("true"));
    let mut found: Vec<Value> = cluster.list_containing(group, resource, marks).await?;
    // The search by text may have found the mark elsewhere, or with another value.
    found.retain(is_default);
    let first = found
        .iter()
        // Timestamps in RFC 3339 compare as text.
        .min_by_key(|c| (Reverse(c.meta("creationTimestamp")), c.name()));
    Ok(first.map(|class| class.name().into()))
}
