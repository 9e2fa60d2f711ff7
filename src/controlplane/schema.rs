//! [`BuiltinSchema`] implements the registry's [`Schema`] for built-in kinds over the generated table in
//! [`api`](crate::api).

use super::versions::BuiltinVersions;
use crate::api::TypeDef;
use crate::api::apply_schema::ApplyType;
use crate::api::decode;
use crate::api::patch_schema::PatchType;
use crate::apimachinery::apply::managed;
use crate::apimachinery::apply::{self, ApplyRequest, FieldSet, OverlayError, Writer};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::patch::strategic;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::schema::Schema;

/// The schema of a built-in kind.
#[derive(Clone, Copy)]
pub(crate) struct BuiltinSchema(pub &'static TypeDef);

impl Schema for BuiltinSchema {
    fn definition(&self) -> Option<&'static TypeDef> {
        Some(self.0)
    }

    fn normalize(&self, object: &mut Value) -> Result<Vec<String>> {
        decode::normalize(self.0, object).map_err(|e| {
            let (version, kind) = self.0.gvks.first().map_or(("", self.0.go_name()), |(_, v, k)| (*v, *k));
            Status::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {e}"
            ))
        })
    }

    fn forget_unstored(&self, object: &mut Value) {
        decode::forget_empty_lists(self.0, object);
    }

    fn strategic_merge(&self, object: &Value, patch: &Value) -> Option<Result<Value>> {
        let mut merged = object.clone();
        let patch = patch.as_object().cloned().unwrap_or_default();
        Some(strategic::apply(&mut merged, patch, PatchType::Def(self.0)).map(|()| merged))
    }

    fn manage_update(&self, live: Option<&Value>, new: &mut Value, who: &Writer<'_>, reset: &FieldSet) {
        managed::update_managed_fields_across(ApplyType::Root(self.0), live, new, who, reset, &BuiltinVersions(self.0));
    }

    fn apply(&self, live: Option<&Value>, patch: Value, request: &ApplyRequest<'_>) -> Result<Value> {
        let mut applied =
            apply::apply_across(ApplyType::Root(self.0), live, &patch, request, &BuiltinVersions(self.0))?.object;
        // The server's managed fields have replaced those of the configuration, which upstream converts too.
        let sent = patch.at(&["metadata", "managedFields"]);
        if !sent.is_null() {
            let mut fields = Value::object();
            fields.set(&["metadata", "managedFields"], sent.clone());
            decode::normalize(self.0, &mut fields).map_err(|e| unconvertible(&patch, &e.0))?;
        }
        // The merge result lacks always-written fields, and may hold scalars that do not parse or fit: the
        // apply schema checks neither their text nor their size.
        decode::coerce(self.0, &mut applied).map_err(|e| unconvertible(&patch, &e.0))?;
        decode::normalize(self.0, &mut applied).map_err(|e| unconvertible(&patch, &e.0))?;
        Ok(applied)
    }

    fn overlay(&self, object: &Value, config: &Value) -> std::result::Result<Value, OverlayError> {
        apply::overlay(ApplyType::Root(self.0), object, config)
    }
}

/// The 500 of upstream's field manager for an applied object that fits the schema but does not convert to its
/// Go type.
fn unconvertible(config: &Value, why: &str) -> Status {
    Status::raw_error(format!(
        "failed to convert new object ({}) to proper version: unable to convert unstructured object to {}: {why}",
        apply::described(config),
        config.gvk()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn builtin_schema(kind: &str) -> BuiltinSchema {
        BuiltinSchema(crate::api::by_gvk("", "v1", kind).unwrap())
    }

    #[test]
    fn type_errors_have_upstreams_message() {
        let mut v = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"a": 1}});
        assert_eq!(
            builtin_schema("ConfigMap").normalize(&mut v).unwrap_err().message,
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
        );
    }

    #[test]
    fn managers_own_only_the_fields_they_set() {
        let mut v = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}});
        let who = Writer {
            manager: "m",
            subresource: "",
            now: "2024-01-01T00:00:00Z",
            api_version: "v1",
        };
        builtin_schema("ConfigMap").manage_update(None, &mut v, &who, &FieldSet::new());
        let entry = &v.at(&["metadata", "managedFields"]).items()[0];
        assert_eq!(entry.get("fieldsV1"), &json!({"f:data": {".": {}, "f:k": {}}}));
    }

    #[test]
    fn service_ports_merge_by_key() {
        let old = json!({"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81}]}});
        let merged =
            builtin_schema("Service").strategic_merge(&old, &json!({"spec": {"ports": [{"port": 80, "name": "b"}]}}));
        let merged = merged.unwrap().unwrap();
        assert_eq!(merged.at(&["spec", "ports"]).items().len(), 2);
        assert_eq!(merged.at(&["spec", "ports"]).items()[0].str_at(&["name"]), "b");
    }

    #[test]
    fn applying_unparsable_scalars_is_a_conversion_error() {
        let request = ApplyRequest {
            writer: Writer {
                manager: "m",
                subresource: "",
                now: "2026-01-01T00:00:00Z",
                api_version: "v1",
            },
            force: false,
            reset: &FieldSet::new(),
        };
        let refused = |kind: &str, patch: Value| builtin_schema(kind).apply(None, patch, &request).unwrap_err();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "!"}});
        let refused_secret = refused("Secret", secret);
        assert_eq!(refused_secret.code, 500);
        assert_eq!(
            refused_secret.message,
            "failed to convert new object (/s; /v1, Kind=Secret) to proper version: unable to convert unstructured object \
             to /v1, Kind=Secret: error decoding from json: illegal base64 data at input byte 0"
        );
        let mut time = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
        time.set(&["metadata", "managedFields"], json!([{"manager": "m", "time": "x"}]));
        let refused_time = refused("Secret", time);
        assert_eq!(refused_time.code, 500);
        assert!(
            refused_time.message.contains("Kind=Secret: parsing time \"x\" as"),
            "{refused_time:?}"
        );
        let port = |port: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": port}]}});
        assert!(
            refused("Service", port(json!(1.5)))
                .message
                .ends_with("Kind=Service: cannot convert float64 to int32")
        );
        // An int-or-string accepts anything until it is decoded.
        let target = |v: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "targetPort": v}]}});
        for (value, found) in [
            (json!({"a": 1}), "object"),
            (json!([1]), "array"),
            (json!(true), "bool"),
        ] {
            let message = refused("Service", target(value)).message;
            let end = format!("Kind=Service: json: cannot unmarshal {found} into Go value of type int32");
            assert!(message.ends_with(&end), "{message}");
        }
        let wide = builtin_schema("Service")
            .apply(None, port(json!(4294967376i64)), &request)
            .unwrap();
        assert_eq!(wide.at(&["spec", "ports"]).items()[0].get("port"), &json!(80));
        let limits = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "n"},
            "spec": {"limits": [{"type": "Pod", "max": {"cpu": "100m1"}}]}});
        let refused = refused("LimitRange", limits).message;
        assert!(
            refused.starts_with("failed to convert new object (n/l; /v1, Kind=LimitRange)"),
            "{refused}"
        );
        assert!(
            refused.ends_with("Kind=LimitRange: unable to parse quantity's suffix"),
            "{refused}"
        );
    }
}
