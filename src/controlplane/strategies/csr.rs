//! Strategies of CertificateSigningRequests, following upstream's
//! `pkg/registry/certificates/certificates/strategy.go`.
//!
//! The requester's identity is recorded on create. Afterwards the object changes only through `status`
//! ([`Csr`]) and `approval` ([`Approval`]); spec updates through the main resource are dropped.

use super::common::keep_all_but_status;
use crate::apimachinery::field::{ErrorList, FieldPath};
use crate::apimachinery::object::restore;
use crate::apimachinery::status::Result;
use crate::apimachinery::time;
use crate::apimachinery::validation::meta::{MetaRules, validate_object_meta, validate_object_meta_update};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::elements_mut;
use crate::controlplane::validation::csr as check;
use crate::registry::strategy::{Context, NameRule, Outcome, Rules, SideEffects, Strategy};
use async_trait::async_trait;
use std::collections::HashMap;

/// Strategy of the main resource and of `status`.
pub(crate) struct Csr;

/// Fills in missing condition times (upstream's `populateConditionTimestamps`). A condition whose type and
/// status already existed keeps its transition time.
fn stamp(new: &mut Value, old: &Value) {
    let now = time::now();
    // Reversed, so that the first of several entries with one key wins.
    let was = old.at(&["status", "conditions"]).items().iter().rev();
    let was: HashMap<(&str, &str), &Value> = was.map(|o| ((o.str_at(&["type"]), o.str_at(&["status"])), o)).collect();
    for c in elements_mut(new, &["status", "conditions"]) {
        if c.get("lastUpdateTime").is_null() {
            c.set(&["lastUpdateTime"], now.as_str());
        }
        if !c.get("lastTransitionTime").is_null() {
            continue;
        }
        let before = was
            .get(&(c.str_at(&["type"]), c.str_at(&["status"])))
            .map(|o| o.get("lastTransitionTime").clone())
            .filter(|t| !t.is_null());
        c.set(&["lastTransitionTime"], before.unwrap_or_else(|| now.as_str().into()));
    }
}

/// Resets the conditions of one of the approver's types to the stored ones, if the update has as many of them
/// (upstream's `preserveConditionInstances`). With other numbers, validation rejects the update.
fn keep_approvals(new: &mut Value, old: &Value, answer: &str) {
    let is_answer = |c: &&Value| c.str_at(&["type"]) == answer;
    let stored = || old.at(&["status", "conditions"]).items().iter().filter(is_answer);
    let sent = new.at(&["status", "conditions"]).items().iter().filter(is_answer);
    if sent.count() != stored().count() {
        return;
    }
    let mut kept = stored().cloned();
    for c in elements_mut(new, &["status", "conditions"]).filter(|c| c.str_at(&["type"]) == answer) {
        if let Some(was) = kept.next() {
            *c = was;
        }
    }
}

impl Strategy for Csr {
    fn rules(&self) -> Rules {
        Rules::named(NameRule::Any)
    }

    fn prepare_create(&self, object: &mut Value) {
        object.set(&["status"], Value::object());
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        check::create(object)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        restore(new, old, &["spec"]);
        restore(new, old, &["status"]);
    }

    fn validate_update(&self, _new: &Value, _old: &Value) -> ErrorList {
        // The spec and the status have been restored; only the metadata is new, which the registry validates.
        ErrorList::new()
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        // Only approvers decide, through a subresource of their own; signers write the status.
        for answer in ["Approved", "Denied"] {
            keep_approvals(new, old, answer);
        }
        stamp(new, old);
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> ErrorList {
        with_metadata(new, old, check::status(new, old))
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["spec", "status.conditions"],
            "approval" => APPROVAL_RESETS,
            _ => &["spec", "status"],
        }
    }

    fn effects(&self) -> Option<&dyn SideEffects> {
        Some(self)
    }
}

#[async_trait]
impl SideEffects for Csr {
    async fn begin(&self, cx: &Context, object: &mut Value, old: Option<&Value>) -> Result<()> {
        if old.is_some() {
            return Ok(());
        }
        // The identity comes from authentication; whatever the client sent is discarded.
        for key in ["username", "uid", "groups", "extra"] {
            object.unset(&["spec", key]);
        }
        object.set(&["spec", "username"], cx.user.name.as_str());
        if !cx.user.uid.is_empty() {
            object.set(&["spec", "uid"], cx.user.uid.as_str());
        }
        let list = |all: &[String]| all.iter().map(|g| Value::from(g.as_str())).collect::<Vec<_>>();
        if !cx.user.groups.is_empty() {
            object.set(&["spec", "groups"], list(&cx.user.groups));
        }
        for (key, values) in &cx.user.extra {
            object.set(&["spec", "extra", key], list(values));
        }
        Ok(())
    }

    async fn end(&self, _cx: &Context, _object: &Value, _outcome: Outcome<'_>) {}
}

/// The errors of a status or an approval between those of the metadata, which upstream checks before as that of a new
/// object and afterwards against the stored one.
fn with_metadata(new: &Value, old: &Value, own: ErrorList) -> ErrorList {
    const RULES: MetaRules = MetaRules {
        namespaced: false,
        name: |_, _| Vec::new(),
        strict_finalizers: true,
    };
    let (metadata, path) = (new.get("metadata"), FieldPath::new("metadata"));
    let mut out = validate_object_meta(metadata, RULES, &path);
    out.extend(own);
    out.extend(validate_object_meta_update(metadata, old.get("metadata"), RULES, &path));
    out
}

/// The fields that writers through `approval` never own.
const APPROVAL_RESETS: &[&str] = &["spec", "status.certificate"];

/// Strategy of the `approval` subresource, which may change the conditions and metadata; spec and certificate
/// stay.
pub(crate) struct Approval;

impl Strategy for Approval {
    fn rules(&self) -> Rules {
        Rules::named(NameRule::Any)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        restore(new, old, &["status", "certificate"]);
        stamp(new, old);
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        with_metadata(new, old, check::approval(new, old))
    }

    fn reset_fields(&self, _subresource: &str) -> &'static [&'static str] {
        APPROVAL_RESETS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[tokio::test]
    async fn create_records_the_requester() {
        let mut v = json!({"spec": {"username": "somebody", "groups": ["x"]}});
        Csr.begin(&Context::system(""), &mut v, None).await.unwrap();
        assert_eq!(v.str_at(&["spec", "username"]), "system:apiserver");
        assert_eq!(v.at(&["spec", "groups"]), &json!(["system:masters"]));
    }

    #[test]
    fn status_update_keeps_approvals_if_their_number_is_unchanged() {
        let old = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "r"}]}});
        let kind_of = |sent: Value| {
            let mut new = json!({"status": {"conditions": [sent]}});
            Csr.prepare_status_update(&mut new, &old);
            let c = &new.at(&["status", "conditions"]).items()[0];
            (c.str_at(&["type"]).to_owned(), c.str_at(&["reason"]).to_owned())
        };
        let (kind, reason) = kind_of(json!({"type": "Approved", "status": "True"}));
        assert_eq!((kind.as_str(), reason.as_str()), ("Approved", "r"));
        assert_eq!(
            kind_of(json!({"type": "Denied", "status": "True"})).0,
            "Denied",
            "for validation to refuse"
        );
    }

    #[test]
    fn metadata_is_checked_before_and_after_a_status() {
        let of = |label: &str, conditions: Value| {
            let metadata = json!({"name": "c", "resourceVersion": "1", "labels": {"a": (label)}});
            json!({"metadata": (metadata), "spec": {"request": ""}, "status": {"conditions": (conditions)}})
        };
        let old = of("x", json!([]));
        let new = of("not valid", json!([{"type": "Failed"}]));
        let expected = [
            "metadata.labels",
            "spec.request",
            "status.conditions[0].status",
            "metadata.labels",
        ];
        for errors in [
            Csr.validate_status_update(&new, &old),
            Approval.validate_update(&new, &old),
        ] {
            let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
            assert_eq!(fields, expected);
        }
    }

    #[test]
    fn only_approvals_own_conditions() {
        assert_eq!(Csr.reset_fields("approval"), Approval.reset_fields("approval"));
        assert!(!Csr.reset_fields("approval").contains(&"status.conditions"));
        assert!(Csr.reset_fields("status").contains(&"status.conditions"));
    }

    #[test]
    fn unchanged_condition_keeps_its_transition_time() {
        let old = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"}]}});
        let mut new = json!({"status": {"conditions": [{"type": "Approved", "status": "True"}]}});
        stamp(&mut new, &old);
        let c = &new.at(&["status", "conditions"]).items()[0];
        assert_eq!(c.str_at(&["lastTransitionTime"]), "2024-01-01T00:00:00Z");
        assert!(!c.get("lastUpdateTime").is_null());
    }
}
