//! Which class is the default: the newest of those that are marked, and of equally old ones the first by name.

use crate::admission::Cluster;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::{Str, Value};
use std::cmp::Reverse;

/// The name of the default object of a resource of cluster scope; `marks` are the annotations that say so with "true".
///
/// # Errors
/// 500: the store does not answer.
pub async fn default_of(
    cluster: &Cluster,
    group: &str,
    resource: &str,
    marks: &'static [&'static str],
) -> Result<Option<Str>> {
    let is_default = |class: &Value| marks.iter().any(|mark| class.annotation(mark) == Some("true"));
    let mut found: Vec<Value> = cluster.marked(group, resource, marks).await?;
    found.retain(is_default);
    let first = found
        .iter()
        .min_by_key(|c| (Reverse(c.meta("creationTimestamp")), c.name()));
    Ok(first.map(|class| class.name().into()))
}
