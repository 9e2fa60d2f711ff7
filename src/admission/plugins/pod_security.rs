//! PodSecurity: enforces the Pod Security Standards set by namespace labels, as upstream's
//! `k8s.io/pod-security-admission`.
//!
//! Only the labels of the namespace are needed, which the store keeps in parsed form. In the common case that
//! no level is set, nothing is decoded.

mod checks;
mod config;
mod existing;
mod pod;
mod policy;

pub(crate) use checks::{details, violations};
pub(crate) use config::PodSecurityConfig;
pub(crate) use pod::Pod;
pub(crate) use policy::{Level, LevelVersion, Policy};

use crate::admission::{Admission, Attributes, ObjectLookup, Operation, forbidden};
use crate::apimachinery::field::{ErrorList, aggregate, quote};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use async_trait::async_trait;
use std::collections::HashMap;

pub(crate) struct PodSecurity {
    cluster: ObjectLookup,
    config: PodSecurityConfig,
}

/// The evaluation of one pod.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The error message if the pod is rejected.
    pub refusal: Option<String>,
    /// The warning to the client if it is admitted.
    pub warning: Option<String>,
    /// Audit annotations, by key below `pod-security.kubernetes.io/`.
    pub annotations: Vec<(&'static str, String)>,
}

/// Prefix of the plugin's audit annotations.
const ANNOTATIONS: &str = "pod-security.kubernetes.io/";

/// Subresources of pods that cannot change what runs.
const IGNORED: [&str; 8] = [
    "exec",
    "attach",
    "binding",
    "eviction",
    "log",
    "portforward",
    "proxy",
    "status",
];

/// The path of the pod template in objects of this resource; `None` if they have none.
fn template(group: &str, resource: &str) -> Option<&'static [&'static str]> {
    match (group, resource) {
        ("", "podtemplates") => Some(&["template"]),
        ("", "replicationcontrollers")
        | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => Some(&["spec", "template"]),
        ("batch", "cronjobs") => Some(&["spec", "jobTemplate", "spec", "template"]),
        _ => None,
    }
}

impl PodSecurityConfig {
    fn exempts_runtime_class(&self, spec: &Value) -> bool {
        let class = spec.get("runtimeClassName").as_str();
        class.is_some_and(|class| self.runtime_classes.iter().any(|c| c == class))
    }
}

/// Evaluates a pod, or a template (with `enforce` false, as templates are never rejected), under the policy
/// of its namespace. `errors` are those of parsing the namespace's labels.
pub(crate) fn evaluate_pod(policy: &Policy, errors: &ErrorList, pod: Pod<'_>, enforce: bool) -> Verdict {
    let mut verdict = Verdict::default();
    if !errors.is_empty() {
        // Annotated, not rejected: labels may be from before a version of the standards was known.
        let text = format!("Failed to parse policy: {}", aggregate(errors));
        verdict.annotations.push(("error", text));
    }
    if enforce {
        verdict.annotations.push(("enforce-policy", policy.enforce.to_string()));
        // Enforced even with errors: invalid labels mean `restricted`.
        let found = violations(policy.enforce, pod);
        if !found.is_empty() {
            let level = quote(&policy.enforce.to_string());
            verdict.refusal = Some(format!("violates PodSecurity {level}: {}", details(&found)));
        }
    }
    let would = |level: LevelVersion| {
        let found = violations(level, pod);
        let level = quote(&level.to_string());
        (!found.is_empty()).then(|| format!("would violate PodSecurity {level}: {}", details(&found)))
    };
    if let Some(text) = would(policy.audit) {
        verdict.annotations.push(("audit-violations", text));
    }
    // A rejected client sees the violations in the error already.
    if verdict.refusal.is_none() {
        verdict.warning = would(policy.warn);
    }
    verdict
}

/// True if an update may affect the checks: a changed image or a changed number of containers. The other fields
/// that the checks read are immutable.
fn is_significant(new: &Value, old: &Value) -> bool {
    let other_image = |a: &Value, b: &Value| a.get("image") != b.get("image");
    let changed = |field: &str| {
        let (a, b) = (new.at(&["spec", field]).items(), old.at(&["spec", field]).items());
        a.len() != b.len() || a.iter().zip(b).any(|(a, b)| other_image(a, b))
    };
    changed("containers") || changed("initContainers") || {
        // If names repeat, the first one counts: reversed, so that it is inserted last.
        let before = old.at(&["spec", "ephemeralContainers"]).items().iter().rev();
        let before: HashMap<&str, &Value> = before.map(|c| (c.str_at(&["name"]), c)).collect();
        let mut now = new.at(&["spec", "ephemeralContainers"]).items().iter();
        now.any(|c| before.get(c.str_at(&["name"])).is_none_or(|b| other_image(c, b)))
    }
}

fn exempt(attributes: &Attributes, by: &str) {
    attributes.audit.annotate(&format!("{ANNOTATIONS}exempt"), by);
}

impl PodSecurity {
    /// Reads namespaces and pods from `cluster`.
    pub(crate) fn new(cluster: ObjectLookup, config: PodSecurityConfig) -> Self {
        Self { cluster, config }
    }

    /// True if the namespace or user is exempt; records that for audit.
    fn is_exempt(&self, attributes: &Attributes) -> bool {
        let has = |list: &[String], name: &str| list.iter().any(|n| n == name);
        // Upstream's order: it decides what the annotation says if both are exempt.
        let by = if has(&self.config.namespaces, &attributes.namespace) {
            "namespace"
        } else if has(&self.config.usernames, &attributes.user.name) {
            "user"
        } else {
            return false;
        };
        exempt(attributes, by);
        true
    }

    async fn of_namespace(&self, name: &str) -> Option<(Policy, ErrorList)> {
        let namespaces = self.cluster.storage("", "namespaces").ok()?;
        // The entry's parsed labels suffice, so the namespace is not decoded.
        let entry = ObjectLookup::cached_entry(&namespaces, name).await.ok()??;
        Some(Policy::of(&|key| entry.label(key), self.config.defaults))
    }

    async fn validate_namespace(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        let defaults = self.config.defaults;
        let (policy, errors) = Policy::of(&|key| object.label(key), defaults);
        let name = object.name();
        let invalid = || Err(Status::invalid("", "Namespace", name, &errors));
        let exempt = self.config.namespaces.iter().any(|n| n == name);
        let ignored = || {
            if exempt && let Some(policy) = policy.ineffective_labels(&|key| object.label(key), &defaults) {
                attributes.warnings.add(format!(
                    "namespace {} is exempt from Pod Security, and the policy ({policy}) will be ignored",
                    quote(name)
                ));
            }
        };
        let Some(old) = attributes.old_object.as_deref() else {
            if !errors.is_empty() {
                return invalid();
            }
            ignored();
            return Ok(());
        };
        let (before, old_errors) = Policy::of(&|key| old.label(key), defaults);
        let texts = |errors: &ErrorList| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
        // Unchanged errors must not block other updates of the namespace, such as its finalization.
        if !errors.is_empty() && texts(&errors) != texts(&old_errors) {
            return invalid();
        }
        let relaxed = policy.enforce.version == before.enforce.version && policy.enforce.level <= before.enforce.level;
        // A policy that is not stricter cannot make running pods violate it.
        if policy.enforce == before.enforce || policy.enforce.level == Level::Privileged || relaxed {
            return Ok(());
        }
        if exempt {
            ignored();
            return Ok(());
        }
        // A warning only: the new level holds for pods created from now on.
        let texts = match self.cluster.list_entries("", "pods", name).await {
            Err(_) => vec![existing::UNKNOWN.to_owned()],
            Ok(pods) => existing::warnings(name, policy.enforce, &self.config, pods).await,
        };
        texts.into_iter().for_each(|text| attributes.warnings.add(text));
        Ok(())
    }

    async fn validate_pod(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        if self.is_exempt(attributes) {
            return Ok(());
        }
        let namespace = &attributes.namespace;
        let Some((policy, errors)) = self.of_namespace(namespace).await else {
            let why = format!("failed to lookup namespace {}", quote(namespace));
            return Err(Status::internal(why));
        };
        // Most namespaces: nothing to enforce, to record or to warn about.
        if errors.is_empty() && policy.is_privileged() {
            return Ok(());
        }
        let old = attributes.old_object.as_deref();
        if attributes.operation == Operation::Update && old.is_some_and(|old| !is_significant(object, old)) {
            return Ok(());
        }
        self.evaluate(attributes, object, &policy, &errors, Pod::of(object), true)
    }

    async fn validate_template(&self, attributes: &Attributes, object: &Value, path: &[&str]) -> Result<()> {
        if self.is_exempt(attributes) {
            return Ok(());
        }
        // Templates are only warned about, so the write goes on; the pods will be checked.
        let Some((policy, errors)) = self.of_namespace(&attributes.namespace).await else {
            return Ok(());
        };
        let quiet = policy.warn.level == Level::Privileged && policy.audit.level == Level::Privileged;
        let template = object.at(path);
        if errors.is_empty() && quiet || template.is_null() {
            return Ok(());
        }
        self.evaluate(attributes, object, &policy, &errors, Pod::of(template), false)
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        object: &Value,
        policy: &Policy,
        errors: &ErrorList,
        pod: Pod<'_>,
        enforce: bool,
    ) -> Result<()> {
        // Not with the other exemptions, because only the pod or its template has the class.
        if self.config.exempts_runtime_class(pod.spec) {
            exempt(attributes, "runtimeClass");
            return Ok(());
        }
        let verdict = evaluate_pod(policy, errors, pod, enforce);
        for (key, text) in verdict.annotations {
            attributes.audit.annotate(&format!("{ANNOTATIONS}{key}"), text);
        }
        if let Some(why) = verdict.refusal {
            return Err(forbidden(attributes, object, &why));
        }
        if let Some(text) = verdict.warning {
            attributes.warnings.add(text);
        }
        Ok(())
    }
}

#[async_trait]
impl Admission for PodSecurity {
    fn handles(&self, attributes: &Attributes) -> bool {
        let (group, resource) = (&*attributes.resource.group, &*attributes.resource.resource);
        let plain = attributes.subresource.is_empty();
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && match (group, resource) {
                ("", "pods") => !IGNORED.contains(&&*attributes.subresource),
                ("", "namespaces") => plain,
                _ => plain && template(group, resource).is_some(),
            }
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        let (group, resource) = (&*attributes.resource.group, &*attributes.resource.resource);
        match (group, resource) {
            ("", "pods") => self.validate_pod(attributes, object).await,
            ("", "namespaces") if attributes.subresource.is_empty() => {
                self.validate_namespace(attributes, object).await
            }
            _ => match template(group, resource) {
                Some(path) => self.validate_template(attributes, object, path).await,
                None => Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests;
