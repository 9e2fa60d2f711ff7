//! Strategies of ConfigMaps, Secrets, ServiceAccounts and the read-only ComponentStatuses.

use crate::apimachinery::field::ErrorList;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::elements_mut;
use crate::controlplane::validation;
use crate::registry::strategy::{Rules, Strategy};

pub(crate) struct ConfigMap;

impl Strategy for ConfigMap {
    fn validate_create(&self, object: &Value) -> ErrorList {
        validation::data::config_map(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        validation::data::config_map_update(new, old)
    }
}

pub(crate) struct Secret;

impl Strategy for Secret {
    fn default(&self, object: &mut Value) {
        // Upstream does this in the conversion from v1 (`Convert_v1_Secret_To_core_Secret`), before any other
        // default.
        fold_string_data(object);
        if object.str_at(&["type"]).is_empty() {
            object.set(&["type"], "Opaque");
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        // As upstream. Defaulting normally sets `Opaque` first, so this affects only objects that bypass it.
        if new.str_at(&["type"]).is_empty() {
            new.set(&["type"], old.get("type").clone());
        }
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        validation::data::secret(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        validation::data::secret_update(new, old)
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        validation::data::secret_warnings(new)
    }
}

/// Moves the write-only `stringData` into `data`, base64-encoded; it takes precedence over existing keys.
fn fold_string_data(object: &mut Value) {
    let Some(Value::Object(plain)) = object.unset(&["stringData"]) else {
        return;
    };
    for (key, text) in plain {
        let encoded = validation::data::encode(text.as_str().unwrap_or("").as_bytes());
        object.set(&["data", &key], encoded);
    }
}

/// Strategy of ServiceAccounts. References to secrets are reduced to their names.
pub(crate) struct ServiceAccount;

fn strip_secrets(object: &mut Value) {
    for s in elements_mut(object, &["secrets"]) {
        if let Some(m) = s.as_object_mut() {
            // Upstream's type has more fields, of which only the name is used.
            m.retain(|k, _| k == "name");
        }
    }
}

const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

impl Strategy for ServiceAccount {
    fn prepare_create(&self, object: &mut Value) {
        strip_secrets(object);
    }

    fn prepare_update(&self, new: &mut Value, _old: &Value) {
        strip_secrets(new);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let set = |v: &Value| !v.at(&["metadata", "annotations", MOUNTABLE]).is_null();
        if !set(new) || old.is_some_and(set) {
            return Vec::new();
        }
        vec![format!(
            "metadata.annotations[{MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        )]
    }
}

/// Strategy of ComponentStatuses, which are read-only and deprecated.
pub(crate) struct ComponentStatus;

impl Strategy for ComponentStatus {
    fn rules(&self) -> Rules {
        Rules {
            deprecation: Some("v1 ComponentStatus is deprecated in v1.19+"),
            ..Rules::DEFAULT
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn string_data_overrides_data_and_is_removed() {
        let mut v = json!({"stringData": {"a": "plain", "b": "wins"}, "data": {"b": "bG9zZXM=", "c": "Yw=="}});
        Secret.default(&mut v);
        assert_eq!(
            v,
            json!({"data": {"a": "cGxhaW4=", "b": "d2lucw==", "c": "Yw=="}, "type": "Opaque"})
        );
    }

    #[test]
    fn service_account_secrets_keep_only_their_name() {
        let mut v = json!({"secrets": [{"name": "s", "namespace": "x"}]});
        ServiceAccount.prepare_create(&mut v);
        assert_eq!(v, json!({"secrets": [{"name": "s"}]}));
    }
}
