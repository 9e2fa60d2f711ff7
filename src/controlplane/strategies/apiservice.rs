//! Strategy of APIServices, following upstream's `kube-aggregator/pkg/registry/apiservice/strategy.go`.
//!
//! Probing availability is left to the aggregator, which writes its result with [`set_condition`].

use super::common::{keep_all_but_status, keep_meta};
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::object::restore;
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::set_default;
use crate::controlplane::validation;
use crate::proxy::target;
use crate::registry::strategy::{NameRule, Rules, Strategy};

pub(crate) struct ApiService;

/// Sets a condition. `lastTransitionTime` is updated only if the status changes; reason and message always
/// are.
pub(crate) fn set_condition(object: &mut Value, kind: &str, status: &str, reason: &str, message: &str) {
    let mut all = object.at(&["status", "conditions"]).items().to_vec();
    let now = time::now();
    let fresh = crate::json!({
        "type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message,
    });
    match all.iter_mut().find(|c| c.str_at(&["type"]) == kind) {
        Some(c) => {
            let since = c.get("lastTransitionTime").clone();
            let kept = c.str_at(&["status"]) == status;
            *c = fresh;
            if kept {
                c.set(&["lastTransitionTime"], since);
            }
        }
        None => all.push(fresh),
    }
    object.set(&["status", "conditions"], all);
}

/// Marks an APIService that this server serves itself as available.
pub(crate) fn set_local_condition(object: &mut Value) {
    set_condition(
        object,
        "Available",
        "True",
        "Local",
        "Local APIServices are always available",
    );
}

impl Strategy for ApiService {
    fn rules(&self) -> Rules {
        Rules {
            names_by_content: Some(validation::apiservice::name),
            ..Rules::named(NameRule::PathSegment)
        }
    }

    fn default(&self, object: &mut Value) {
        if !object.at(&["spec", "service"]).is_null() {
            set_default(object, &["spec", "service", "port"], 443i64);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object.set(&["status"], Value::object());
        // One with a service has no condition until the aggregator has probed it.
        if object.at(&["spec", "service"]).is_null() {
            set_local_condition(object);
        }
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        validation::apiservice::api_service(object)
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        target::warnings(new)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        restore(new, old, &["status"]);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        keep_meta(new, old);
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> ErrorList {
        validation::apiservice::status(new)
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["spec", "metadata"],
            _ => &["status"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn local_apiservice_is_available_on_create() {
        let mut v = json!({"spec": {"group": "g"}, "status": {"conditions": [{"type": "X"}]}});
        ApiService.prepare_create(&mut v);
        let c = &v.at(&["status", "conditions"]).items()[0];
        assert_eq!((c.str_at(&["reason"]), c.str_at(&["status"])), ("Local", "True"));
        let mut v = json!({"spec": {"service": {"name": "s"}}, "status": {"conditions": []}});
        ApiService.default(&mut v);
        ApiService.prepare_create(&mut v);
        assert_eq!(
            v,
            json!({"spec": {"service": {"name": "s", "port": 443}}, "status": {}})
        );
    }

    #[test]
    fn transition_time_changes_only_with_the_status() {
        let mut v = json!({"status": {"conditions": [{"type": "A", "status": "True", "lastTransitionTime": "t", "reason": "r"}]}});
        set_condition(&mut v, "A", "True", "other", "m");
        let c = v.at(&["status", "conditions"]).items()[0].clone();
        assert_eq!(
            (c.str_at(&["lastTransitionTime"]), c.str_at(&["reason"])),
            ("t", "other")
        );
        set_condition(&mut v, "A", "False", "other", "m");
        assert_ne!(
            v.at(&["status", "conditions"]).items()[0].str_at(&["lastTransitionTime"]),
            "t"
        );
    }
}
