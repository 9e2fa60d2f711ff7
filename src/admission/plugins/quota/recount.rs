//! Recounts the usage of a namespace, for the control loop that keeps the status of quotas (upstream's
//! `CalculateUsage` in `k8s.io/apiserver/pkg/quota/v1`).

use super::amounts::Amounts;
use super::evaluator::Evaluator;
use super::scopes::Selector;
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::value::Value;

/// The usage of one quota, while it is counted.
pub(crate) struct Recount<'a> {
    quota: &'a Value,
    selectors: Vec<Selector>,
    used: Amounts,
}

impl<'a> Recount<'a> {
    /// Starts with zero usage.
    pub(crate) fn new(quota: &'a Value) -> Self {
        Self {
            quota,
            selectors: Selector::of_quota(quota),
            used: Amounts::new(),
        }
    }

    fn limited(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let hard = self.quota.at(&["spec", "hard"]).as_object();
        hard.into_iter().flat_map(|hard| hard.keys())
    }

    /// Whether the quota limits objects of this resource. Then all of them have to be added.
    pub(crate) fn counts(&mut self, resource: &GroupResource) -> bool {
        let evaluator = Evaluator::of(resource);
        let counted: Vec<&str> = self.limited().filter(|name| evaluator.counts(name)).collect();
        for name in &counted {
            // Zero, so that a resource without objects gets a usage, too.
            self.used.entry((*name).to_owned()).or_insert(Quantity::from_i64(0));
        }
        !counted.is_empty()
    }

    /// Whether [`Self::add`] reads objects of this resource. Others are counted only.
    pub(crate) fn reads(resource: &GroupResource) -> bool {
        Evaluator::of(resource).reads_content()
    }

    /// Adds an object of a resource that [`Self::counts`].
    pub(crate) fn add(&mut self, resource: &GroupResource, object: &Value) {
        let evaluator = Evaluator::of(resource);
        if !self.selectors.iter().all(|s| evaluator.matches_scope(s, object)) {
            return;
        }
        for (name, amount) in evaluator.usage(object) {
            // An object uses more than the quota limits; the rest is not recorded.
            if let Some(sum) = self.used.get_mut(&name) {
                *sum = sum.plus(amount);
            }
        }
    }

    /// The status that the quota should have; `None` if it is up to date. Resources without an evaluator keep
    /// their recorded usage.
    pub(crate) fn status(&self) -> Option<Value> {
        let old = self.quota.get("status");
        let mut used = Value::default();
        used.make_object();
        for name in self.limited() {
            match (self.used.get(name), old.at(&["used", name])) {
                (Some(amount), recorded) => {
                    let same = super::super::resources::quantity(recorded) == Some(*amount);
                    let amount = if same {
                        // Kept in its notation: a different spelling of the same amount must not cause a write.
                        recorded.clone()
                    } else {
                        amount.to_string().into()
                    };
                    used.set(&[name], amount);
                }
                // Neither counted nor recorded: the usage stays unknown, and admission rejects writes that need it.
                (None, Value::Null) => {}
                (None, recorded) => used.set(&[name], recorded.clone()),
            }
        }
        let mut status = Value::default();
        status.set(&["hard"], self.quota.at(&["spec", "hard"]).clone());
        status.set(&["used"], used);
        // Every write wakes the loop again, so equal statuses are not written.
        (status != *old).then_some(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn usage_is_recounted_and_written_only_if_it_differs() {
        let mut quota = json!({"spec": {"hard": {"count/configmaps": "5", "pods": "2", "x.io/unknown": "1"}},
            "status": {"hard": {"pods": "1"}, "used": {"pods": "2", "x.io/unknown": "7", "secrets": "1"}}});
        let (maps, pods, secrets) = (
            GroupResource::new("", "configmaps"),
            GroupResource::new("", "pods"),
            GroupResource::new("", "secrets"),
        );
        let before = quota.clone();
        let mut recount = Recount::new(&before);
        assert!(recount.counts(&maps) && recount.counts(&pods) && !recount.counts(&secrets));
        recount.add(&maps, &json!({}));
        recount.add(&maps, &json!({}));
        let status = recount.status().expect("it differs");
        assert_eq!(
            status,
            json!({"hard": {"count/configmaps": "5", "pods": "2", "x.io/unknown": "1"},
                "used": {"count/configmaps": "2", "pods": "0", "x.io/unknown": "7"}})
        );
        quota.set(&["status"], status);
        let mut recount = Recount::new(&quota);
        recount.counts(&maps);
        recount.counts(&pods);
        recount.add(&maps, &json!({}));
        recount.add(&maps, &json!({}));
        assert_eq!(recount.status(), None);
    }

    #[test]
    fn objects_outside_of_the_scopes_do_not_count() {
        let quota = json!({"spec": {"hard": {"pods": "2"}, "scopes": ["Terminating"]}});
        let pods = GroupResource::new("", "pods");
        let mut recount = Recount::new(&quota);
        assert!(recount.counts(&pods));
        recount.add(&pods, &json!({"spec": {"containers": []}}));
        recount.add(&pods, &json!({"spec": {"containers": [], "activeDeadlineSeconds": 5}}));
        assert_eq!(
            recount.status().expect("it has none yet").str_at(&["used", "pods"]),
            "1"
        );
    }
}
