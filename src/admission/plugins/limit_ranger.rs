//! Containers without requests and limits get those of the namespace's LimitRanges; pods and claims beyond them are
//! refused. As upstream's `LimitRanger`, except that LimitRanges are always read live: reads are from memory.

mod constraints;
mod defaults;

use crate::admission::{Admission, Attributes, Cluster, Operation, forbidden};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;
use std::collections::HashSet;

/// The plugin.
pub struct LimitRanger {
    cluster: Cluster,
}

/// What limits are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Pod,
    Claim,
}

/// `None`: this write is of no interest. Of pods creation and resizing are: nothing else changes resources.
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
    let going = attributes.old_object.as_ref().is_some_and(|old| old.is_being_deleted());
    (!going).then_some(subject)
}

/// What an object has against it, each once. Every container may break every limit: a hundred messages are enough.
#[derive(Default)]
struct Violations {
    texts: Vec<String>,
    seen: HashSet<String>,
    more: bool,
}

impl Violations {
    const MOST: usize = 100;

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
        self.texts.len() >= Self::MOST
    }

    /// One message bare, several in brackets.
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
    /// Reads LimitRanges there.
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster }
    }

    async fn limit_ranges(&self, attributes: &Attributes, object: &Value) -> Result<Vec<Value>> {
        let listed = self.cluster.list("", "limitranges", &attributes.namespace).await;
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
            for range in self.limit_ranges(attributes, object).await? {
                defaults::apply(object, &range).map_err(|why| forbidden(attributes, object, why))?;
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
