//! Conversion between attributes and a SubjectAccessReview's `spec`, and between its `status` and a verdict.

use super::attributes::OwnedAttributes;
use super::{Attributes, Verdict};
use crate::apimachinery::selector::labels::Operator;
use crate::apimachinery::selector::{FieldSelector, LabelSelector};
use crate::apimachinery::value::{Map, Value};
use crate::json;
use crate::tasks::off_thread;

/// Bytes of selectors that are read on the reactor. Reading one takes some 100 ns per byte.
const SHORT: usize = 2 << 10;
/// Memory of a review per byte of its selectors.
const GROWTH: usize = 64;

/// The compute pool is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is too busy to read the selectors of the request")]
pub(super) struct Busy;

fn selector_bytes(attributes: &Attributes<'_>) -> usize {
    attributes.field_selector.len() + attributes.label_selector.len()
}

/// True if a review of the request may be too large for a reactor.
pub(super) fn is_long(attributes: &Attributes<'_>) -> bool {
    selector_bytes(attributes) > SHORT
}

/// The result of `read`, which builds a review, off the reactor if the selectors are long: a request may have 64 KiB of
/// them.
///
/// # Errors
/// [`Busy`].
pub(super) async fn build<T: Send + 'static>(
    attributes: &Attributes<'_>,
    read: impl FnOnce(&Attributes<'_>) -> T + Send + 'static,
) -> Result<T, Busy> {
    if !is_long(attributes) {
        return Ok(read(attributes));
    }
    let owned = OwnedAttributes::of(attributes);
    let memory = GROWTH * selector_bytes(attributes);
    off_thread(memory, move || read(&owned.as_attributes()))
        .await
        .ok_or(Busy)
}

fn requirement(key: &str, operator: &str, values: Vec<Value>) -> Value {
    let mut v = json!({"key": key, "operator": operator});
    if !values.is_empty() {
        v.set(&["values"], values);
    }
    v
}

/// The requirements of both selectors; empty if a selector matches everything or does not parse.
fn requirements(attributes: &Attributes<'_>) -> [(&'static str, Vec<Value>); 2] {
    // An unparsable selector is omitted: the review is then about an unrestricted list, which is the stricter
    // question.
    let fields = FieldSelector::parse(attributes.field_selector).unwrap_or_default();
    let field = fields.terms().iter().map(|t| {
        let operator = if t.equal { "In" } else { "NotIn" };
        requirement(&t.field, operator, vec![Value::from(t.value.as_str())])
    });
    let labels = LabelSelector::parse(attributes.label_selector);
    let labels = labels.as_ref().map_or(&[][..], LabelSelector::requirements);
    let label = labels.iter().filter_map(|r| {
        let operator = match r.operator() {
            Operator::In | Operator::Equals | Operator::DoubleEquals => "In",
            Operator::NotIn | Operator::NotEquals => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            // `Gt` and `Lt` have no counterpart in a review. Leaving the requirement out widens the question,
            // so the answer can only be stricter.
            _ => return None,
        };
        Some(requirement(r.key(), operator, r.values().map(Value::from).collect()))
    });
    [("fieldSelector", field.collect()), ("labelSelector", label.collect())]
}

/// Builds the spec; in [`build`], since the selectors may be long. `groups` is the name of that field: `groups` in v1, `group` in v1beta1.
pub(super) fn spec(attributes: &Attributes<'_>, groups: &str) -> Value {
    let mut spec = Map::new();
    let mut what = Map::new();
    let mut put = |key: &str, value: &str| {
        // Absent, as with Go's `omitempty`: webhooks may tell absent from empty.
        if !value.is_empty() {
            what.insert(key, value);
        }
    };
    put("verb", attributes.verb);
    if attributes.is_resource {
        put("namespace", attributes.namespace);
        put("group", attributes.api_group);
        put("version", attributes.api_version);
        put("resource", attributes.resource);
        put("subresource", attributes.subresource);
        put("name", attributes.name);
        for (key, list) in requirements(attributes) {
            if !list.is_empty() {
                let mut selector = Map::new();
                selector.insert("requirements", list);
                what.insert(key, selector);
            }
        }
        spec.insert("resourceAttributes", what);
    } else {
        put("path", attributes.path);
        spec.insert("nonResourceAttributes", what);
    }
    if !attributes.user.name.is_empty() {
        spec.insert("user", attributes.user.name.as_str());
    }
    if !attributes.user.uid.is_empty() {
        spec.insert("uid", attributes.user.uid.as_str());
    }
    if !attributes.user.groups.is_empty() {
        spec.insert(groups, attributes.user.groups.clone());
    }
    let extra: Map = attributes
        .user
        .extra
        .iter()
        .map(|(k, v)| (k.as_str(), v.clone()))
        .collect();
    if !extra.is_empty() {
        spec.insert("extra", extra);
    }
    Value::Object(spec)
}

/// A review both allows and denies. Message as upstream words it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("webhook subject access review returned both allow and deny response")]
pub(super) struct Contradiction;

/// Interprets a status.
///
/// # Errors
/// [`Contradiction`].
pub(super) fn verdict(status: &Value) -> Result<Verdict, Contradiction> {
    let reason = status.str_at(&["reason"]).to_owned();
    let is = |field: &str| status.get(field).as_bool() == Some(true);
    match (is("allowed"), is("denied")) {
        (true, true) => Err(Contradiction),
        (true, false) => Ok(Verdict::allow(reason)),
        (false, true) => Ok(Verdict::deny(reason)),
        (false, false) => Ok(Verdict::no_opinion(reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::UserInfo;
    use std::thread;

    #[tokio::test]
    async fn reviews_with_long_selectors_are_built_off_the_reactor() {
        let (user, long) = (UserInfo::anonymous(), "a=b,".repeat(1_000));
        let here = thread::current().id();
        for (field_selector, label_selector, stays) in [("a=b", "a=b", true), (&*long, "", false), ("", &*long, false)]
        {
            let attributes = Attributes {
                field_selector,
                label_selector,
                ..Attributes::empty(&user)
            };
            let at = build(&attributes, |_| thread::current().id()).await;
            assert_eq!(at.map(|at| at == here), Ok(stays));
        }
    }
}
