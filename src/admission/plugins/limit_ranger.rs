//! LimitRanger: applies default requests and limits from the namespace's LimitRanges, and rejects pods and
//! claims that violate them. As upstream's `plugin/pkg/admission/limitranger`.

mod constraints;
mod defaults;

use crate::admission::{Admission, Attributes, ObjectLookup, Operation, forbidden};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;
use std::collections::HashSet;

pub(crate) struct LimitRanger {
    cluster: ObjectLookup,
}

/// The type of object that limits apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Pod,
    Claim,
}

/// The kind of limits that a write is checked against; `None` if limits do not apply. Pods are checked on
/// creation and resize, as nothing else changes their resources.
fn subject(attributes: &Attributes) -> Option<Subject> {
    if !attributes.resource.group.is_empty() {
        return None;
    }
    let subject = match (
        &*attributes.resource.resource,
        &*attributes.subresource,
        attributes.operation,
    ) {
        ("pods", "", Operation::Create) | ("pods", "resize", Operation::Update) => Subject::Pod,
        ("persistentvolumeclaims", "", Operation::Create | Operation::Update) => Subject::Claim,
        _ => return None,
    };
    // Otherwise finalizers of an object that violates new limits could not be removed.
    let going = attributes.old_object.as_ref().is_some_and(|old| old.is_being_deleted());
    (!going).then_some(subject)
}

/// Collected violations without duplicates. Every container may violate every limit, so the number of
/// messages is bounded.
#[derive(Default)]
struct Violations {
    texts: Vec<String>,
    seen: HashSet<String>,
    more: bool,
}

impl Violations {
    const MAX: usize = 100;

    fn push(&mut self, text: String) {
        if self.seen.contains(&text) {
        } else if self.is_full() {
            self.more = true;
        } else {
            self.seen.insert(text.clone());
            self.texts.push(text);
        }
    }

    fn is_full(&self) -> bool {
        self.texts.len() >= Self::MAX
    }

    /// A single message as is, several in brackets, like Go's aggregate errors.
    fn joined(mut self) -> Option<String> {
        if self.more {
            self.texts.push("and more".to_owned());
        }
        match self.texts.len() {
            0 => None,
            1 => self.texts.pop(),
            _ => Some(format!("[{}]", self.texts.join(", "))),
        }
    }
}

impl LimitRanger {
    /// Reads LimitRanges from `cluster`.
    pub(crate) fn new(cluster: ObjectLookup) -> Self {
        Self { cluster }
    }

    async fn limit_ranges(&self, attributes: &Attributes, object: &Value) -> Result<Vec<Value>> {
        let listed = self.cluster.list("", "limitranges", &attributes.namespace).await;
        // The cause is not passed on: the message is upstream's.
        listed.map_err(|_| {
            let (verb, resource) = (attributes.operation.as_str(), &attributes.resource.resource);
            let why =
                format!("unable to {verb} {resource} at this time because there was an error enforcing limit ranges");
            forbidden(attributes, object, &why)
        })
    }
}

#[async_trait]
impl Admission for LimitRanger {
    fn handles(&self, attributes: &Attributes) -> bool {
        subject(attributes).is_some()
    }

    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        if subject(attributes) == Some(Subject::Pod) {
            // In key order, where upstream's lister has none: the first range that has a default wins.
            for range in self.limit_ranges(attributes, object).await? {
                defaults::apply(object, &range).map_err(|e| forbidden(attributes, object, e.to_string()))?;
            }
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        let Some(subject) = subject(attributes) else {
            return Ok(());
        };
        for range in self.limit_ranges(attributes, object).await? {
            let limits = range.at(&["spec", "limits"]).items();
            let violations = match subject {
                Subject::Pod => constraints::of_pod(object, limits),
                Subject::Claim => constraints::of_claim(object, limits),
            };
            if let Some(why) = violations.joined() {
                return Err(forbidden(attributes, object, &why));
            }
        }
        Ok(())
    }
}
