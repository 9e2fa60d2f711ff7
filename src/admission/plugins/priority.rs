//! Priority: resolves a pod's priority class to its number, and allows only one default class. As upstream's
//! `plugin/pkg/admission/priority`.

use crate::admission::{Admission, Attributes, ObjectLookup, Operation, forbidden};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;

const GROUP: &str = "scheduling.k8s.io";
/// Occurs in the encoding of every default class.
const DEFAULT_MARK: &[&str] = &["\"globalDefault\":true"];
/// The preemption policy of pods without a class.
const PREEMPT: &str = "PreemptLowerPriority";

pub(crate) struct Priority {
    cluster: ObjectLookup,
}

impl Priority {
    /// Reads priority classes from `cluster`.
    pub(crate) fn new(cluster: ObjectLookup) -> Self {
        Self { cluster }
    }

    /// The default class. If there are several, the one with the lowest value.
    async fn default_class(&self) -> Result<Option<Value>> {
        let marked = self
            .cluster
            .list_containing(GROUP, "priorityclasses", DEFAULT_MARK)
            .await?;
        let defaults = marked
            .into_iter()
            .filter(|c| c.get("globalDefault").as_bool() == Some(true));
        // Two concurrent creates can both succeed. The lowest value is the least harmful default, as upstream.
        Ok(defaults.min_by_key(|c| c.get("value").as_i64()))
    }

    async fn class_of(&self, attributes: &Attributes, pod: &Value) -> Result<Option<Value>> {
        let name = pod.str_at(&["spec", "priorityClassName"]);
        if name.is_empty() {
            return self.default_class().await;
        }
        match self.cluster.get_cached(GROUP, "priorityclasses", "", name).await? {
            Some(class) => Ok(Some(class)),
            None => {
                let why = format!("no PriorityClass with name {name} was found");
                Err(forbidden(attributes, pod, why))
            }
        }
    }

    async fn resolve(&self, attributes: &Attributes, pod: &mut Value) -> Result<()> {
        let class = self.class_of(attributes, pod).await?;
        let priority = class.as_ref().and_then(|c| c.get("value").as_i64()).unwrap_or(0);
        // Empty for classes that were stored before the field existed.
        let preemption = class.as_ref().map_or(PREEMPT, |c| c.str_at(&["preemptionPolicy"]));
        // Only the class is subject to quota and authorization, so a number of the client's own must not pass.
        if let Some(given) = pod.at(&["spec", "priority"]).as_i64().filter(|p| *p != priority) {
            let why = format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
                 computed {priority} from the given PriorityClass name"
            );
            return Err(forbidden(attributes, pod, why));
        }
        let given = pod.at(&["spec", "preemptionPolicy"]).as_str();
        if let Some(given) = given.filter(|given| !preemption.is_empty() && *given != preemption) {
            let why = format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
                 controller computed {preemption} from the given PriorityClass name"
            );
            return Err(forbidden(attributes, pod, why));
        }
        pod.set(&["spec", "priority"], priority);
        if !preemption.is_empty() {
            pod.set(&["spec", "preemptionPolicy"], preemption);
        }
        // The default class, so that the pod shows where its number is from.
        if let Some(class) = class.filter(|_| pod.str_at(&["spec", "priorityClassName"]).is_empty()) {
            pod.set(&["spec", "priorityClassName"], class.name());
        }
        Ok(())
    }
}

/// Restores fields that an update omits: clients that predate them drop them.
fn keep(pod: &mut Value, old: Option<&Value>) {
    for field in ["priority", "preemptionPolicy"] {
        let was = old.map_or(&Value::Null, |old| old.at(&["spec", field]));
        if !was.is_null() && pod.at(&["spec", field]).is_null() {
            pod.set(&["spec", field], was.clone());
        }
    }
}

#[async_trait]
impl Admission for Priority {
    fn handles(&self, attributes: &Attributes) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && (attributes.is("", "pods") || attributes.is(GROUP, "priorityclasses"))
    }

    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        if attributes.is_new_pod() {
            self.resolve(attributes, object).await?;
        } else if attributes.is("", "pods") {
            keep(object, attributes.old_object.as_deref());
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        let wants = attributes.is(GROUP, "priorityclasses") && object.get("globalDefault").as_bool() == Some(true);
        if !wants {
            return Ok(());
        }
        match self.default_class().await? {
            // On create even one of the same name counts: the create is going to fail anyway.
            Some(other) if attributes.operation == Operation::Create || other.name() != object.name() => {
                let why = format!(
                    "PriorityClass {} is already marked as default. Only one default can exist",
                    other.name()
                );
                Err(forbidden(attributes, object, why))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{ask, cluster, pod, request, update};
    use crate::json;

    fn class(name: &str, value: i64, default: bool) -> Value {
        json!({"metadata": {"name": (name)}, "value": (value), "globalDefault": (default),
            "preemptionPolicy": "Never"})
    }

    fn plugin(classes: Vec<Value>) -> Priority {
        Priority::new(cluster(&[(GROUP, "priorityclasses", classes)]))
    }

    fn create() -> Attributes {
        request(Operation::Create, "", "pods", "p")
    }

    #[tokio::test]
    async fn without_a_class_the_priority_is_zero() {
        let got = ask(&plugin(vec![class("other", 3, false)]), &create(), &pod(json!({}))).await;
        assert_eq!(
            *got.unwrap().get("spec"),
            json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"})
        );
    }

    #[tokio::test]
    async fn of_two_default_classes_the_lower_value_wins() {
        let two = plugin(vec![class("high", 9, true), class("low", 2, true)]);
        assert_eq!(
            *ask(&two, &create(), &pod(json!({}))).await.unwrap().get("spec"),
            json!({"priority": 2, "preemptionPolicy": "Never", "priorityClassName": "low"})
        );
    }

    #[tokio::test]
    async fn values_that_contradict_the_class_are_rejected() {
        let one = plugin(vec![class("c", 9, false)]);
        let other = pod(json!({"priorityClassName": "c", "priority": 5}));
        assert!(ask(&one, &create(), &other).await.unwrap_err().ends_with(
            "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed \
             9 from the given PriorityClass name"
        ));
        let same = pod(json!({"priorityClassName": "c", "priority": 9, "preemptionPolicy": "Never"}));
        assert_eq!(ask(&one, &create(), &same).await.unwrap(), same);
        let absent = pod(json!({"priorityClassName": "x"}));
        let refused = ask(&one, &create(), &absent).await.unwrap_err();
        assert_eq!(
            refused,
            "pods \"p\" is forbidden: no PriorityClass with name x was found"
        );
    }

    #[tokio::test]
    async fn an_update_keeps_omitted_values() {
        let old = pod(json!({"priority": 4, "preemptionPolicy": "Never"}));
        let got = ask(&plugin(vec![]), &update("", "pods", old.clone()), &pod(json!({}))).await;
        assert_eq!(got.unwrap(), old);
    }

    #[tokio::test]
    async fn a_second_default_is_rejected_and_the_first_may_be_updated() {
        let one = plugin(vec![class("c", 9, true)]);
        let create = request(Operation::Create, GROUP, "priorityclasses", "d");
        assert_eq!(
            ask(&one, &create, &class("d", 1, true)).await.unwrap_err(),
            "priorityclasses.scheduling.k8s.io \"d\" is forbidden: PriorityClass c is already marked as default. Only one \
             default can exist"
        );
        let again = update(GROUP, "priorityclasses", class("c", 9, true));
        assert!(ask(&one, &again, &class("c", 9, true)).await.is_ok());
    }
}
