//! `pods/eviction`: deletes a pod if its PodDisruptionBudget allows (upstream's
//! `pkg/registry/core/pod/storage/eviction.go`). Start at [`Eviction`]'s `evict`.
//!
//! ```text
//! pod pending, terminal or terminating ──→ delete
//! no budget covers it ───────────────────→ delete
//! two or more budgets ───────────────────→ 500
//! not ready, budget healthy ─────────────→ delete, with the pod's resourceVersion as precondition
//! else ──────────────────────────────────→ decrement the budget by compare-and-swap (or 429), then delete
//! ```

use super::pod_condition::update_pod_condition;
use crate::apimachinery::field::{FieldError, FieldPath};
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::selector::labels::LabelSelector;
use crate::apimachinery::status::{Cause, Result, Status};
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::strings;
use crate::endpoints::options::DeleteQuery;
use crate::registry::StoreLookup;
use crate::registry::resource::SubresourceHandler;
use crate::registry::store::Store;
use crate::registry::strategy::Context;
use crate::registry::write::{DeleteOptions, WriteOptions};
use crate::tasks::compute;
use async_trait::async_trait;
use std::sync::Arc;

/// Attempts to delete a pod that no budget counts, when it changes concurrently: the steps of upstream's
/// `EvictionsRetry`, without its pauses.
const RETRIES: usize = 20;
/// Maximum evictions per budget that the disruption controller has not confirmed yet (upstream's
/// `MaxDisruptedPodSize`).
const MAX_DISRUPTED_PODS: usize = 2000;
const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Serves `pods/eviction`.
pub(in crate::controlplane) struct Eviction(pub(in crate::controlplane) StoreLookup);

impl Eviction {
    /// The store of pods, without admission: the Eviction has passed admission already.
    fn pods(&self) -> Result<Store> {
        Ok(self.0.get("", "pods")?.without_admission())
    }

    fn budgets(&self) -> Result<Arc<Store>> {
        self.0.get("policy", "poddisruptionbudgets")
    }
}

fn unsupported(action: &str) -> Status {
    Status::method_not_supported(&GroupResource::new("", "pods"), action)
}

/// The embedded delete options, and the context with dry run merged from request and options.
fn options(cx: &Context, eviction: &Value) -> Result<(Context, DeleteOptions)> {
    let sent = eviction.get("deleteOptions");
    // The option deletes objects that cannot be decoded, but an eviction has to decode the pod to find its
    // budget.
    const UNSAFE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    if sent.get(UNSAFE).as_bool() == Some(true) {
        let path = FieldPath::new("deleteOptions").child(UNSAFE);
        let why = "can not be set for pod eviction, try after removing the option";
        let errors = vec![FieldError::invalid(&path, true, why)];
        return Err(Status::invalid("policy", "Eviction", eviction.name(), &errors));
    }
    let dry = strings(sent.get("dryRun"));
    // The query string and the body must agree.
    if cx.dry_run && !dry.is_empty() && dry != ["All"] {
        let why = format!(
            "Non-matching dry-run options in request and content: [All] and [{}]",
            dry.join(" ")
        );
        return Err(Status::raw_error(why));
    }
    let mut cx = cx.clone();
    cx.dry_run |= !dry.is_empty();
    let mut sent = sent.clone();
    // `dryRun` is merged into the context already; the type is that of the embedded wire object.
    for key in ["dryRun", "kind", "apiVersion"] {
        sent.unset(&[key]);
    }
    Ok((cx, DeleteQuery::from_body(&sent)?.options))
}

/// Whether the pod can be deleted without consulting a budget: upstream's `canIgnorePDB`.
fn can_ignore_budget(pod: &Value) -> bool {
    has_ended(pod) || pod.str_at(&["status", "phase"]) == "Pending"
}

fn has_ended(pod: &Value) -> bool {
    matches!(pod.str_at(&["status", "phase"]), "Succeeded" | "Failed") || pod.is_being_deleted()
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod.at(&["status", "conditions"]).items().iter();
    conditions.any(|c| c.str_at(&["type"]) == "Ready" && c.str_at(&["status"]) == "True")
}

fn number(budget: &Value, key: &str) -> i64 {
    // Go integers upstream: absent means zero.
    budget.at(&["status", key]).as_i64().unwrap_or(0)
}

/// Whether a pod that is not ready may be evicted without a charge: by policy, or because the budget is met
/// without it.
fn unready_may_go(budget: &Value) -> bool {
    let healthy = number(budget, "currentHealthy") >= number(budget, "desiredHealthy");
    budget.str_at(&["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow"
        || (healthy && number(budget, "desiredHealthy") > 0)
}

fn too_many(message: String, retry_after: u32) -> Status {
    let mut status = Status::too_many_requests(VIOLATES, retry_after);
    status.details_mut().causes.push(Cause {
        reason: "DisruptionBudget".to_owned(),
        message,
        field: String::new(),
    });
    status
}

fn still_processed(budget: &str) -> Status {
    let why = format!("The disruption budget {budget} is still being processed by the server.");
    too_many(why, 10)
}

/// The 429 for a budget without allowed disruptions, with the most specific reason.
fn too_many_disruptions(budget: &Value) -> Status {
    let name = budget.name();
    let mut conditions = budget.at(&["status", "conditions"]).items().iter();
    let condition = conditions.find(|c| c.str_at(&["type"]) == "DisruptionAllowed");
    // One without a message, as `allow_no_more` leaves it, has nothing to add.
    let refusing = condition.filter(|c| c.str_at(&["status"]) == "False" && !c.str_at(&["message"]).is_empty());
    let (current, desired) = (number(budget, "currentHealthy"), number(budget, "desiredHealthy"));
    let not_now = format!("The disruption budget {name} does not allow evicting pods currently");
    let field = |c: &Value, key: &str| c.str_at(&[key]).to_owned();
    let why = match refusing {
        // Before the counts, which are stale while the disruption controller cannot sync.
        Some(c) if field(c, "reason") == "SyncFailed" => {
            format!("{not_now} because it failed sync: {}", field(c, "message"))
        }
        _ if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        Some(c) => format!("{not_now} ({}): {}", field(c, "reason"), field(c, "message")),
        None => not_now,
    };
    too_many(why, 0)
}

/// The budget after charging one eviction: upstream's `checkAndDecrement`.
fn check_and_decrement(budget: &Value, pod: &str) -> Result<Value> {
    let gr = GroupResource::new("policy", "poddisruptionbudget");
    let generation = budget.at(&["metadata", "generation"]).as_i64().unwrap_or(0);
    // The status may predate the current spec.
    if number(budget, "observedGeneration") < generation {
        return Err(still_processed(budget.name()));
    }
    let allowed = number(budget, "disruptionsAllowed");
    if allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(Status::forbidden(&gr, budget.name(), why));
    }
    let disrupted = budget.at(&["status", "disruptedPods"]).as_object();
    if disrupted.is_some_and(|m| m.keys().count() > MAX_DISRUPTED_PODS) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Status::forbidden(&gr, budget.name(), why));
    }
    if allowed == 0 {
        return Err(too_many_disruptions(budget));
    }
    let mut new = budget.clone();
    new.set(&["status", "disruptionsAllowed"], allowed - 1);
    // Makes the disruption controller count the pod as gone before it sees the deletion; it would otherwise
    // grant the same disruption again.
    new.set(&["status", "disruptedPods", pod], time::now());
    // The controller sets it only at its next sync; until then, clients would read a budget that still allows
    // disruptions.
    if allowed == 1 {
        allow_no_more(&mut new);
    }
    Ok(new)
}

/// Sets the `DisruptionAllowed` condition to false, keeping its transition time if it was false already.
fn allow_no_more(budget: &mut Value) {
    let observed = budget.at(&["status", "observedGeneration"]).clone();
    let mut all = budget.at(&["status", "conditions"]).items().to_vec();
    let at = all.iter().position(|c| c.str_at(&["type"]) == "DisruptionAllowed");
    // Put back at the same index below: upstream's `meta.SetStatusCondition` updates in place.
    let mut condition = at.map_or_else(|| crate::json!({"type": "DisruptionAllowed"}), |i| all.remove(i));
    if condition.str_at(&["status"]) != "False" {
        condition.set(&["status"], "False");
        condition.set(&["lastTransitionTime"], time::now());
    }
    condition.set(&["reason"], "InsufficientPods");
    condition.set(&["message"], "");
    if !observed.is_null() {
        condition.set(&["observedGeneration"], observed);
    }
    all.insert(at.unwrap_or(all.len()), condition);
    budget.set(&["status", "conditions"], all);
}

/// The pod with a `DisruptionTarget` condition, which tells controllers why it is deleted.
fn with_disruption_target(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let condition = crate::json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    });
    update_pod_condition(&mut pod, condition);
    pod
}

impl Eviction {
    /// Adds the `DisruptionTarget` condition to the pod, then deletes it.
    async fn delete(&self, cx: &Context, name: &str, options: &DeleteOptions) -> Result<()> {
        let (store, mut options) = (self.pods()?, options.clone());
        // A dry run simulates only the deletion, as upstream's `addConditionAndDeletePod` does.
        if !cx.dry_run {
            let gr = store.resource().group_resource();
            // Upstream passes the kind as the resource in these two conflicts, and messages show it.
            let about = GroupResource::new("", "Pod");
            let expected = options.clone();
            let write = WriteOptions {
                subresource: "status".to_owned(),
                ..WriteOptions::default()
            };
            let mut transform = |live: Option<&Value>| {
                let live = live.ok_or_else(|| Status::not_found(&gr, name))?;
                // The deletion checks the preconditions again, but by then a pod it refuses would already
                // carry the condition.
                if let Some(uid) = expected.uid.as_deref().filter(|u| *u != live.uid()) {
                    let why = format!(
                        "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might \
                         have been deleted and then recreated",
                        live.uid()
                    );
                    return Err(Status::conflict(&about, name, &why));
                }
                let version = expected.resource_version.as_deref();
                if let Some(version) = version.filter(|v| *v != live.resource_version()) {
                    let why = format!(
                        "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in \
                         record ({}). The object might have been modified",
                        live.resource_version()
                    );
                    return Err(Status::conflict(&about, name, &why));
                }
                Ok(with_disruption_target(live))
            };
            let updated = store.update(cx, name, &mut transform, false, &write).await?;
            // The condition was a write: the precondition of the deletion must follow it.
            if options.resource_version.is_some() {
                options.resource_version = Some(updated.object.to_value().resource_version().to_owned());
            }
        }
        store.delete(cx, name, &options).await.map(drop)
    }

    /// Deletes the pod if no budget counts it and returns `None`; otherwise returns the pod.
    async fn delete_uncounted(&self, cx: &Context, name: &str, options: &DeleteOptions) -> Result<Option<Value>> {
        let mut left = RETRIES;
        loop {
            let pod = self.pods()?.get_value(&cx.namespace, name).await?;
            if !can_ignore_budget(&pod) {
                return Ok(Some(pod));
            }
            let mut own = options.clone();
            // A pending pod may start running concurrently, and then its budget applies.
            if !has_ended(&pod) && own.resource_version.is_none() {
                own.resource_version = Some(pod.resource_version().to_owned());
            }
            left -= 1;
            match self.delete(cx, name, &own).await {
                // A precondition of the caller's own fails the same way every time.
                Err(s) if s.reason == "Conflict" && options.resource_version.is_none() && left > 0 => {}
                done => return done.map(|()| None),
            }
        }
    }

    /// The budgets whose selector matches the pod.
    async fn covering(&self, pod: &Value) -> Result<Vec<Value>> {
        let entries = self.budgets()?.list_entries(pod.namespace()).await?;
        // Decoding every budget of a namespace may take long enough to stall other requests on this thread.
        compute::leave_reactor_to_decode(entries.iter().map(|e| e.json.len()).sum()).await;
        let covers = |budget: &Value| {
            let selector = budget.at(&["spec", "selector"]);
            // In policy/v1 an empty selector matches every pod and an absent one none; an invalid one matches
            // none either.
            !selector.is_null()
                && LabelSelector::from_object(selector).is_ok_and(|s| s.matches_map(pod.at(&["metadata", "labels"])))
        };
        Ok(entries.iter().map(|e| e.decode()).filter(covers).collect())
    }

    async fn evict(&self, cx: &Context, name: &str, options: &DeleteOptions) -> Result<()> {
        let Some(pod) = self.delete_uncounted(cx, name, options).await? else {
            return Ok(());
        };
        let budgets = self.covering(&pod).await?;
        let budget = match budgets.as_slice() {
            [] => return self.delete(cx, name, options).await,
            [budget] => budget,
            _ => {
                let why =
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Status::raw_error(why));
            }
        };
        if !is_ready(&pod) && unready_may_go(budget) {
            // The precondition fails if the pod has become ready concurrently.
            let mut own = options.clone();
            own.resource_version = Some(pod.resource_version().to_owned());
            return match self.delete(cx, name, &own).await {
                Err(s) if s.reason == "Conflict" && options.resource_version.is_none() => {
                    Err(still_processed(budget.name()))
                }
                done => done,
            };
        }
        if cx.dry_run {
            check_and_decrement(budget, name)?;
        } else {
            // Charged before the deletion: a failed deletion leaves the budget too strict for a while, never
            // too lax.
            // As the server: the caller needs permission for the eviction, not for the budget.
            let system = Context::system(&cx.namespace);
            let charge = |live: &Value| check_and_decrement(live, name);
            let store = self.budgets()?;
            // `charge` runs again on the live budget after each conflict, so that concurrent evictions cannot
            // spend one disruption twice.
            store.update_with(&system, budget.name(), "status", charge).await?;
        }
        self.delete(cx, name, options).await
    }
}

#[async_trait]
impl SubresourceHandler for Eviction {
    async fn get(&self, _cx: &Context, _name: &str) -> Result<Value> {
        Err(unsupported("get"))
    }

    async fn create(&self, cx: &Context, name: &str, object: Value) -> Result<Value> {
        if object.name() != name {
            return Err(Status::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let (cx, options) = options(cx, &object)?;
        self.evict(&cx, name, &options).await?;
        Ok(crate::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
    }

    async fn update(&self, _cx: &Context, _name: &str, _object: Value) -> Result<Value> {
        Err(unsupported("update"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn budget(status: Value) -> Value {
        let mut v = json!({"metadata": {"name": "b", "generation": 1}});
        v.set(&["status"], status);
        v
    }

    fn refusal(status: Value) -> (u16, u32, String) {
        let s = check_and_decrement(&budget(status), "p").unwrap_err();
        let cause = s.details.as_ref().and_then(|d| d.causes.first());
        (
            s.code,
            s.retry_after(),
            cause.map_or(s.message.clone(), |c| c.message.clone()),
        )
    }

    #[test]
    fn eviction_condition_has_no_observed_generation() {
        let pod = with_disruption_target(&json!({"metadata": {"generation": 3}, "status": {"phase": "Running"}}));
        let condition = &pod.at(&["status", "conditions"]).items()[0];
        assert_eq!(condition.str_at(&["reason"]), "EvictionByEvictionAPI");
        assert!(condition.get("observedGeneration").is_null());
    }

    #[test]
    fn refusals_state_the_budgets_reason() {
        assert_eq!(
            refusal(json!({"disruptionsAllowed": 1})),
            (
                429,
                10,
                "The disruption budget b is still being processed by the server.".into()
            )
        );
        assert_eq!(
            refusal(json!({"observedGeneration": 1, "currentHealthy": 2, "desiredHealthy": 3})),
            (
                429,
                0,
                "The disruption budget b needs 3 healthy pods and has 2 currently".into()
            )
        );
        let conditions =
            json!([{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "m"}]);
        let mut status = json!({"observedGeneration": 1});
        status.set(&["conditions"], conditions);
        assert_eq!(
            refusal(status),
            (
                429,
                0,
                "The disruption budget b does not allow evicting pods currently because it failed sync: m".into()
            )
        );
        assert_eq!(
            refusal(json!({"observedGeneration": 1, "disruptionsAllowed": (-1i64)})),
            (
                403,
                0,
                "poddisruptionbudget.policy \"b\" is forbidden: pdb disruptions allowed is negative".into()
            )
        );
    }

    #[test]
    fn the_last_allowed_disruption_sets_the_condition_to_false() {
        let new = check_and_decrement(&budget(json!({"observedGeneration": 1, "disruptionsAllowed": 1})), "p").unwrap();
        assert_eq!(number(&new, "disruptionsAllowed"), 0);
        assert!(!new.str_at(&["status", "disruptedPods", "p"]).is_empty());
        let condition = &new.at(&["status", "conditions"]).items()[0];
        assert_eq!(condition.str_at(&["reason"]), "InsufficientPods");
        let mut status = new.get("status").clone();
        status.set(&["currentHealthy"], 3i64);
        let why = "The disruption budget b does not allow evicting pods currently";
        assert_eq!(refusal(status), (429, 0, why.into()));
    }

    #[test]
    fn the_unsafe_option_is_refused_before_dry_runs_are_compared() {
        let eviction = json!({"metadata": {"name": "p"}, "deleteOptions": {
            "dryRun": ["x"], "ignoreStoreReadErrorWithClusterBreakingPotential": true}});
        let cx = Context {
            dry_run: true,
            ..Context::system("ns")
        };
        assert_eq!(options(&cx, &eviction).unwrap_err().code, 422);
    }
}
