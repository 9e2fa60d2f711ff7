//! Decides which writes concern a webhook or a policy: rules, selectors and match policy (upstream's
//! `admission/plugin/webhook/predicates` and `admission/plugin/policy/matching`).
//!
//! Entry points: [`Criteria`], parsed when a configuration changes; [`Matcher`], made for a write, which
//! shares lookups between all criteria; [`PluralIndex`] and [`NameIndex`], which find the criteria that may match.
//! Match conditions are left to the caller.

mod index;
mod rule;
#[cfg(test)]
mod tests;

pub(crate) use index::{NameIndex, PluralIndex};
pub(crate) use rule::Rule;

use super::{Attributes, ObjectLookup, Operation, ServedKind};
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::selector::{LabelSelector, labels};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use tokio::sync::OnceCell;

/// The kinds of `admissionregistration.k8s.io`. No webhook is called for them, so that a broken configuration
/// can always be repaired.
const EXEMPT_KINDS: [&str; 6] = [
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
];

/// The criteria that select the writes of a webhook, a policy or a binding.
#[derive(Clone, Debug)]
pub(crate) struct Criteria {
    rules: Vec<Rule>,
    /// Rules whose writes are left out.
    excluded: Vec<Rule>,
    /// Whether an empty list of rules matches every write (bindings) or none (webhooks).
    all_without_rules: bool,
    /// Whether rules also match the other versions of the resource (`matchPolicy: Equivalent`).
    equivalent: bool,
    namespaces: std::result::Result<LabelSelector, labels::Error>,
    objects: std::result::Result<LabelSelector, labels::Error>,
    /// A hash of a label that `objects` requires; see [`ObjectLabels`].
    required: Option<u64>,
}

/// The labels of the object of a write and of the stored object, with a hash of each, so that criteria which
/// require another label are left out by comparing numbers.
pub(crate) struct ObjectLabels<'v> {
    labels: [Option<&'v Value>; 2],
    /// Sorted. Computed for the first criteria that require a label.
    hashes: OnceLock<Vec<u64>>,
}

impl ObjectLabels<'_> {
    /// False only if none of the objects has the label.
    fn may_have(&self, label: u64) -> bool {
        let hashes = self.hashes.get_or_init(|| {
            let maps = self.labels.iter().flatten().filter_map(|v| v.as_object());
            let pairs = maps.flat_map(|m| m.iter());
            let mut hashes: Vec<u64> = pairs.map(|(key, v)| hash(key, v.as_str().unwrap_or(""))).collect();
            hashes.sort_unstable();
            hashes
        });
        hashes.binary_search(&label).is_ok()
    }
}

/// Equal for equal labels.
fn hash(key: &str, value: &str) -> u64 {
    // Unkeyed: a collision only costs an exact comparison.
    let mut hasher = DefaultHasher::new();
    (key, value).hash(&mut hasher);
    hasher.finish()
}

/// Matches one write against any number of criteria.
pub(crate) struct Matcher<'a> {
    cluster: &'a ObjectLookup,
    attributes: &'a Attributes,
    /// The labels of the stored object, if there is one.
    old_labels: Option<&'a Value>,
    /// The other versions of the resource, which rules with `matchPolicy: Equivalent` also match.
    // On demand, since most rules match a write in its own version.
    equivalents: OnceLock<Vec<ServedKind>>,
    // Read once for all criteria of the write, and only if a selector asks for it.
    namespace: OnceCell<Arc<Value>>,
}

/// True for the kinds that no webhook may intercept.
pub(crate) fn is_exempt(attributes: &Attributes) -> bool {
    attributes.kind.group == "admissionregistration.k8s.io" && EXEMPT_KINDS.contains(&attributes.kind.kind.as_str())
}

/// The labels of an object; `None` if there is no object.
pub(crate) fn labels_of(object: &Value) -> Option<&Value> {
    (!object.is_null()).then(|| object.at(&["metadata", "labels"]))
}

fn rules(list: &Value) -> Vec<Rule> {
    list.items().iter().map(Rule::parse).collect()
}

impl Criteria {
    /// Reads a valid webhook of a `MutatingWebhookConfiguration` or `ValidatingWebhookConfiguration`.
    pub(crate) fn of_webhook(webhook: &Value) -> Self {
        Self {
            all_without_rules: false,
            ..Self::read(webhook, "rules")
        }
    }

    /// Reads the valid `matchConstraints` of a policy or `matchResources` of a binding.
    pub(crate) fn of_policy(resources: &Value) -> Self {
        Self {
            excluded: rules(resources.get("excludeResourceRules")),
            ..Self::read(resources, "resourceRules")
        }
    }

    fn read(v: &Value, member: &str) -> Self {
        // An absent selector is not defaulted in objects from before the default existed; it selects
        // everything.
        let selector = |key: &str| match v.get(key) {
            Value::Null => Ok(LabelSelector::default()),
            selector => LabelSelector::from_object(selector),
        };
        let objects = selector("objectSelector");
        // Hashed at parse time: with thousands of webhooks the comparison runs for each of them on each write.
        let required = objects.as_ref().ok().and_then(LabelSelector::required);
        Self {
            rules: rules(v.get(member)),
            excluded: Vec::new(),
            all_without_rules: true,
            // `Equivalent` is the default, also for objects that were stored without it.
            equivalent: v.str_at(&["matchPolicy"]) != "Exact",
            namespaces: selector("namespaceSelector"),
            required: required.map(|(key, value)| hash(key, value)),
            objects,
        }
    }
}

impl<'a> Matcher<'a> {
    /// A matcher for this write.
    pub(crate) fn new(cluster: &'a ObjectLookup, attributes: &'a Attributes) -> Self {
        Self {
            cluster,
            attributes,
            old_labels: attributes.old_object.as_deref().and_then(labels_of),
            equivalents: OnceLock::new(),
            namespace: OnceCell::new(),
        }
    }

    /// True if the operation or the labels of the object already rule the criteria out. With many criteria,
    /// this rejects most of them without a future for each.
    pub(crate) fn rules_out(&self, criteria: &Criteria, labels: &ObjectLabels<'_>) -> bool {
        let without_rules = criteria.rules.is_empty() && criteria.all_without_rules;
        let operation = self.attributes.operation;
        let has_operation = without_rules || criteria.rules.iter().any(|r| r.has_operation(operation));
        !has_operation
            || match criteria.required {
                Some(label) if !labels.may_have(label) => true,
                _ => matches!(self.has_labels(criteria, labels.labels[0]), Ok(false)),
            }
    }

    /// The labels of the object in its current state, and of the stored object.
    pub(crate) fn labels<'v>(&self, object: &'v Value) -> ObjectLabels<'v>
    where
        'a: 'v,
    {
        ObjectLabels {
            labels: [labels_of(object), self.old_labels],
            hashes: OnceLock::new(),
        }
    }

    /// The version of the resource in which the write is evaluated, if the criteria match. `object` is the
    /// object of the write in its current state.
    ///
    /// # Errors
    /// 404 if the namespace does not exist; 500 for selectors that cannot be evaluated. Both only if the
    /// rules match.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn matches(&self, criteria: &Criteria, object: &Value) -> Result<Option<ServedKind>> {
        // Upstream evaluates the selectors first, but ignores their errors if the rules do not match. This
        // order has the same result and usually needs no lookup.
        let Some(target) = self.target(criteria) else {
            return Ok(None);
        };
        let by_namespace = self.in_namespace(criteria, object).await;
        if let Ok(false) = by_namespace {
            return Ok(None);
        }
        let by_object = self.has_labels(criteria, labels_of(object));
        if let Ok(false) = by_object {
            return Ok(None);
        }
        by_namespace?;
        by_object?;
        Ok(Some(target))
    }

    /// The stored namespace of the write; `None` for cluster-scoped resources.
    ///
    /// # Errors
    /// 404 if it does not exist.
    pub(crate) async fn namespace(&self) -> Result<Option<&Arc<Value>>> {
        let name = self.attributes.request_namespace();
        if name.is_empty() {
            return Ok(None);
        }
        let read = async || {
            let found = self.cluster.get_cached("", "namespaces", "", name).await?;
            found.map(Arc::new).ok_or_else(|| {
                let namespaces = GroupResource::new("", "namespaces");
                Status::not_found(&namespaces, name)
            })
        };
        self.namespace.get_or_try_init(read).await.map(Some)
    }

    fn target(&self, criteria: &Criteria) -> Option<ServedKind> {
        // Exclusions win over any rule.
        if self.first_match(&criteria.excluded, criteria.equivalent).is_some() {
            return None;
        }
        if criteria.rules.is_empty() && criteria.all_without_rules {
            return Some(self.own());
        }
        self.first_match(&criteria.rules, criteria.equivalent)
    }

    fn own(&self) -> ServedKind {
        ServedKind {
            resource: self.attributes.resource.clone(),
            kind: self.attributes.kind.clone(),
        }
    }

    /// The version that the first matching rule names. The request's own version precedes all others.
    fn first_match(&self, rules: &[Rule], equivalent: bool) -> Option<ServedKind> {
        let attributes = self.attributes;
        if rules.iter().any(|r| r.matches(attributes, &attributes.resource)) {
            return Some(self.own());
        }
        if !equivalent || rules.is_empty() {
            return None;
        }
        let others = self
            .equivalents
            .get_or_init(|| self.cluster.equivalents(&attributes.resource, &attributes.subresource));
        let named = |rule: &Rule| others.iter().find(|other| rule.matches(attributes, &other.resource));
        rules.iter().find_map(named).cloned()
    }

    async fn in_namespace(&self, criteria: &Criteria, object: &Value) -> Result<bool> {
        let attributes = self.attributes;
        // By plural in any group, as upstream's `predicates/namespace/matcher.go`.
        let is_namespace = attributes.resource.resource == "namespaces";
        if attributes.request_namespace().is_empty() && !is_namespace {
            return Ok(true);
        }
        let selector = criteria
            .namespaces
            .as_ref()
            .map_err(|e| Status::internal(e.to_string()))?;
        if selector.is_everything() {
            return Ok(true);
        }
        let written = matches!(attributes.operation, Operation::Create | Operation::Update);
        if is_namespace && attributes.subresource.is_empty() && written {
            // The stored namespace does not have the new labels yet.
            return Ok(selector.matches_map(object.at(&["metadata", "labels"])));
        }
        let namespace = self.namespace().await?;
        let labels = namespace.map_or(&Value::Null, |n| n.at(&["metadata", "labels"]));
        Ok(selector.matches_map(labels))
    }

    fn has_labels(&self, criteria: &Criteria, labels: Option<&Value>) -> Result<bool> {
        let selector = criteria.objects.as_ref().map_err(|e| Status::internal(e.to_string()))?;
        if selector.is_everything() {
            return Ok(true);
        }
        // Options of connections have no metadata, and match no selector that requires something.
        if self.attributes.operation == Operation::Connect {
            return Ok(false);
        }
        Ok([labels, self.old_labels]
            .into_iter()
            .flatten()
            // Old or new: otherwise a write that removes the label would escape the webhook.
            .any(|l| selector.matches_map(l)))
    }
}
