//! Strategy of pods, following upstream's `pkg/registry/core/pod/strategy.go`.
//!
//! Start at [`Pod`]. `parts` handles the subresources that update only part of a pod, `app_armor` the legacy
//! annotations. Running pods is left to kubelets.

mod app_armor;
mod parts;

use super::common::{bump_generation, first_generation, keep_all_but_status};
use super::disabled_fields::drop_disabled;
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::object::{ObjectView, restore};
use crate::apimachinery::status;
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{elements_mut, strings};
use crate::controlplane::quality_of_service::quality_of_service;
use crate::controlplane::{defaults, validation};
use crate::registry::strategy::{Context, DeleteStrategy, Outcome, SideEffects, Strategy};
use async_trait::async_trait;

pub(crate) struct Pod;

/// Expands `matchLabelKeys` and `mismatchLabelKeys` into selector requirements with the pod's own label
/// values. This happens once, on create: later changes of the labels do not affect scheduling.
fn merge_label_keys(pod: &mut Value) {
    const TERMS: [&str; 2] = ["podAffinity", "podAntiAffinity"];
    // Cloned, because the terms below are changed in place.
    let labels = pod.at(&["metadata", "labels"]).clone();
    for kind in TERMS {
        let required = [
            "spec",
            "affinity",
            kind,
            "requiredDuringSchedulingIgnoredDuringExecution",
        ];
        for term in elements_mut(pod, &required) {
            select_own(
                term,
                &labels,
                &[("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")],
            );
        }
        let preferred = [
            "spec",
            "affinity",
            kind,
            "preferredDuringSchedulingIgnoredDuringExecution",
        ];
        for term in elements_mut(pod, &preferred).filter_map(|p| p.at_mut(&["podAffinityTerm"])) {
            select_own(
                term,
                &labels,
                &[("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")],
            );
        }
    }
    for constraint in elements_mut(pod, &["spec", "topologySpreadConstraints"]) {
        select_own(constraint, &labels, &[("matchLabelKeys", "In")]);
    }
}

fn select_own(term: &mut Value, labels: &Value, lists: &[(&str, &str)]) {
    // An absent selector matches no pod; adding requirements would make it match some.
    if term.get("labelSelector").is_null() {
        return;
    }
    let mut all = term.at(&["labelSelector", "matchExpressions"]).items().to_vec();
    let before = all.len();
    for (list, operator) in lists {
        for key in strings(term.get(list)) {
            if let Some(value) = labels.get(key).as_str() {
                all.push(crate::json!({"key": (key), "operator": (*operator), "values": [(value)]}));
            }
        }
    }
    if all.len() > before {
        term.set(&["labelSelector", "matchExpressions"], all);
    }
}

impl Strategy for Pod {
    fn default(&self, object: &mut Value) {
        defaults::pod::pod(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        drop_disabled(object, &["spec"]);
        first_generation(object);
        let mut status = crate::json!({"phase": "Pending"});
        // Computed once: later changes of resources do not change the class.
        status.set(&["qosClass"], quality_of_service(object));
        // The scheduler does not look at gated pods, so the condition it would report is set here.
        if !object.at(&["spec", "schedulingGates"]).items().is_empty() {
            let condition = crate::json!({
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": null,
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastTransitionTime": (time::now()),
            });
            status.set(&["conditions"], vec![condition]);
        }
        object.set(&["status"], status);
        merge_label_keys(object);
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        validation::pod::pod(object)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled(new, &["spec"]);
        restore(new, old, &["status"]);
        bump_generation(new, old, &["spec"]);
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        validation::pod::pod_update(new, old)
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        // Old kubelets corrupt owner references, and drop the QoS class of pods they reject.
        restore(new, old, &["metadata", "ownerReferences"]);
        restore(new, old, &["metadata", "deletionTimestamp"]);
        if new.str_at(&["status", "qosClass"]).is_empty() {
            restore(new, old, &["status", "qosClass"]);
        }
        parts::keep_observed_generations(new, old);
        parts::drop_disabled_status(new);
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> ErrorList {
        validation::pod::pod_status(new, old)
    }

    fn prepare_subresource_update(&self, subresource: &str, new: &mut Value, old: &Value) {
        match subresource {
            "ephemeralcontainers" => parts::keep_all_but_ephemeral_containers(new, old),
            "resize" => parts::keep_all_but_resources(new, old),
            _ => restore(new, old, &["status"]),
        }
        drop_disabled(new, &["spec"]);
        bump_generation(new, old, &["spec"]);
    }

    fn validate_subresource_update(&self, subresource: &str, new: &Value, old: &Value) -> ErrorList {
        match subresource {
            "ephemeralcontainers" => validation::pod::ephemeral_containers_update(new, old),
            "resize" => validation::pod::resize(new, old),
            _ => validation::pod::pod_update(new, old),
        }
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        if old.is_some() {
            // Mostly controllers update pods, and nobody reads their warnings.
            return Vec::new();
        }
        let messages = crate::apimachinery::validation::dns1123_label(new.name());
        let mut out = Vec::new();
        if !messages.is_empty() {
            out.push(format!(
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
                messages.join(" ")
            ));
        }
        out.extend(validation::pod::template_warnings(new, ""));
        out
    }

    fn subresource_warnings(&self, subresource: &str, new: &Value, _old: &Value) -> Vec<String> {
        if subresource != "status" {
            return Vec::new();
        }
        let mut out = Vec::new();
        for list in ["podIPs", "hostIPs"] {
            for (i, e) in new.at(&["status", list]).items().iter().enumerate() {
                let path = format!("status.{list}[{i}].ip");
                out.extend(validation::service::warnings::ip_warning(&path, e.str_at(&["ip"])));
            }
        }
        out
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "" => &["status"],
            "status" => &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"],
            // Upstream defines reset fields for `resize` and `ephemeralcontainers` but does not use them: a
            // label that a resize drops is owned nevertheless.
            _ => &[],
        }
    }

    fn effects(&self) -> Option<&dyn SideEffects> {
        Some(self)
    }

    fn deletion(&self) -> Option<&dyn DeleteStrategy> {
        Some(self)
    }
}

#[async_trait]
impl SideEffects for Pod {
    /// Applies the AppArmor annotations of a new pod. Here rather than in `prepare_create`, because only what
    /// copies them can tell which ones to warn about.
    async fn begin(&self, cx: &Context, new: &mut Value, old: Option<&Value>) -> status::Result<()> {
        if old.is_none() {
            for warning in app_armor::copy(new) {
                cx.warnings.add(warning);
            }
        }
        Ok(())
    }

    async fn end(&self, _cx: &Context, _object: &Value, _outcome: Outcome<'_>) {}
}

impl DeleteStrategy for Pod {
    fn check(&self, _object: &Value) -> status::Result<()> {
        Ok(())
    }

    fn holds(&self, _object: &Value) -> bool {
        false
    }

    fn grace(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        let phase = object.str_at(&["status", "phase"]);
        // Nothing runs that could be stopped gracefully, whatever period was requested.
        if object.str_at(&["spec", "nodeName"]).is_empty() || matches!(phase, "Succeeded" | "Failed") {
            return Some(0);
        }
        let own = object.at(&["spec", "terminationGracePeriodSeconds"]).as_i64();
        let seconds = requested.or(own).unwrap_or(0);
        // As upstream, a negative grace period means one second.
        Some(if seconds < 0 { 1 } else { seconds })
    }

    fn mark(&self, _object: &mut Value, _old: &Value) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn label_keys_select_the_pods_own_values() {
        let mut v = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"topologySpreadConstraints": [
            {"labelSelector": {}, "matchLabelKeys": ["a", "b"]}, {"matchLabelKeys": ["a"]}]}});
        merge_label_keys(&mut v);
        let all = v.at(&["spec", "topologySpreadConstraints"]).items();
        assert_eq!(
            all[0].get("labelSelector"),
            &json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]})
        );
        assert_eq!(all[1], json!({"matchLabelKeys": ["a"]}));
    }

    #[test]
    fn a_status_update_keeps_deletion_and_disabled_fields() {
        let old =
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"qosClass": "Burstable"}});
        let mut new = json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"},
            "status": {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "c"}], "containerStatuses": [
                {"name": "a", "volumeMounts": [{"name": "v", "volumeStatus": {"image": {"imageRef": "i"}}}]}]}});
        Pod.prepare_status_update(&mut new, &old);
        let want = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"qosClass": "Burstable",
            "containerStatuses": [{"name": "a", "volumeMounts": [{"name": "v"}]}]}});
        assert_eq!(new, want);
    }

    #[test]
    fn unscheduled_pod_has_no_grace_period() {
        let v = json!({"spec": {"terminationGracePeriodSeconds": 30}, "status": {"phase": "Pending"}});
        assert_eq!(Pod.grace(&v, Some(10)), Some(0));
        let v = json!({"spec": {"terminationGracePeriodSeconds": 30, "nodeName": "n"}, "status": {"phase": "Running"}});
        assert_eq!((Pod.grace(&v, None), Pod.grace(&v, Some(-3))), (Some(30), Some(1)));
    }
}
