//! [`BuiltinSchema`] implements the registry's [`Schema`] for built-in kinds over the generated table in
//! [`api`](crate::api).

use super::defaults::workloads::TEMPLATE_GENERATION;
use super::validation::workloads::ROLLBACK_TO;
use super::versions::BuiltinVersions;
use crate::api::TypeDef;
use crate::api::apply_schema::ApplyType;
use crate::api::decode;
use crate::api::patch_schema::PatchType;
use crate::apimachinery::apply::{self, ApplyRequest, FieldSet, OverlayError, Writer};
use crate::apimachinery::apply::{Versions as _, managed};
use crate::apimachinery::field::quote;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::patch::strategic;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::schema::Schema;
use std::num::IntErrorKind;

/// The schema of a built-in kind.
#[derive(Clone, Copy)]
pub(crate) struct BuiltinSchema(pub &'static TypeDef);

impl Schema for BuiltinSchema {
    fn definition(&self) -> Option<&'static TypeDef> {
        Some(self.0)
    }

    fn normalize(&self, object: &mut Value) -> Result<Vec<String>> {
        self.normalize_with_empties(object).map(|(findings, _)| findings)
    }

    fn normalize_with_empties(&self, object: &mut Value) -> Result<(Vec<String>, decode::Empties)> {
        let refused = |why: &str| {
            let (version, kind) = self.0.gvks.first().map_or(("", self.0.go_name()), |(_, v, k)| (*v, *k));
            Status::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
            ))
        };
        let decoded = decode::normalize_with_empties(self.0, object).map_err(|e| refused(&e.0))?;
        match inconvertible(self.0, object) {
            Some(why) => Err(refused(&why)),
            None => Ok(decoded),
        }
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
        self.apply_with_empties(live, patch, request).map(|(object, _)| object)
    }

    fn apply_with_empties(
        &self,
        live: Option<&Value>,
        patch: Value,
        request: &ApplyRequest<'_>,
    ) -> Result<(Value, decode::Empties)> {
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
        let refused =
            |e: decode::DecodeError| match live.is_some_and(|live| self.has_other_versions(live, &request.writer)) {
                // Upstream gets to know when it looks for what the other managers lose, which it does in their versions.
                true => Status::raw_error(format!("failed to convert new object: {}", unstructured(&patch, &e.0))),
                false => unconvertible(&patch, &e.0),
            };
        decode::coerce(self.0, &mut applied).map_err(refused)?;
        let (_, empties) = decode::normalize_with_empties(self.0, &mut applied).map_err(refused)?;
        if let Some(why) = inconvertible(self.0, &applied) {
            let described = apply::described(&patch);
            return Err(Status::raw_error(format!(
                "failed to convert to unversioned ({described}): {why}"
            )));
        }
        Ok((applied, empties))
    }

    fn overlay(&self, object: &Value, config: &Value) -> std::result::Result<Value, OverlayError> {
        apply::overlay(ApplyType::Root(self.0), object, config)
    }
}

impl BuiltinSchema {
    /// True if a manager other than the writer owns fields of the object in another version of the kind.
    fn has_other_versions(&self, object: &Value, writer: &Writer<'_>) -> bool {
        object.at(&["metadata", "managedFields"]).items().iter().any(|entry| {
            let version = entry.str_at(&["apiVersion"]);
            let is_writer = entry.str_at(&["manager"]) == writer.manager
                && entry.str_at(&["operation"]) == "Apply"
                && entry.str_at(&["subresource"]) == writer.subresource;
            // The entries of versions that the kind does not have, such as those of the other group of events, are dropped.
            !is_writer && version != writer.api_version && BuiltinVersions(self.0).shape(version).is_some()
        })
    }
}

/// Why upstream cannot convert an object of this type to its internal type, if it cannot.
fn inconvertible(def: &TypeDef, object: &Value) -> Option<String> {
    // Fields of the internal type, which v1 keeps in annotations.
    let (text, context) = match def.name {
        "io.k8s.api.apps.v1.DaemonSet" => (object.annotation(TEMPLATE_GENERATION)?, String::new()),
        "io.k8s.api.apps.v1.Deployment" => {
            // An empty one counts as absent.
            let text = object.annotation(ROLLBACK_TO).filter(|text| !text.is_empty())?;
            let context = format!("failed to parse annotation[{ROLLBACK_TO}]={text} as int64: ");
            (text, context)
        }
        _ => return None,
    };
    let error = text.parse::<i64>().err()?;
    let why = match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    Some(format!("{context}strconv.ParseInt: parsing {}: {why}", quote(text)))
}

/// The 500 of upstream's field manager for an applied object that fits the schema but does not convert to its
/// Go type.
fn unconvertible(config: &Value, why: &str) -> Status {
    Status::raw_error(format!(
        "failed to convert new object ({}) to proper version: {}",
        apply::described(config),
        unstructured(config, why)
    ))
}

fn unstructured(config: &Value, why: &str) -> String {
    format!("unable to convert unstructured object to {}: {why}", config.gvk())
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
    fn template_generations_of_daemon_sets_are_numbers() {
        let schema = BuiltinSchema(crate::api::by_gvk("apps", "v1", "DaemonSet").unwrap());
        let with = |generation: &str| {
            let mut v = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}});
            v.set(&["metadata", "annotations", TEMPLATE_GENERATION], generation);
            v
        };
        let normalized = |generation: &str| schema.normalize(&mut with(generation)).map_err(|e| e.message);
        assert_eq!(normalized("-7"), Ok(Vec::new()));
        assert_eq!(
            normalized("x"),
            Err("DaemonSet in version \"v1\" cannot be handled as a DaemonSet: strconv.ParseInt: parsing \"x\": invalid \
                 syntax"
                .to_owned())
        );
        assert!(normalized("9223372036854775808").is_err_and(|e| e.ends_with("value out of range")));
        let request = ApplyRequest {
            writer: Writer {
                manager: "m",
                subresource: "",
                now: "2026-01-01T00:00:00Z",
                api_version: "apps/v1",
            },
            force: false,
            reset: &FieldSet::new(),
        };
        let applied = schema.apply(None, with(""), &request).unwrap_err();
        let why = "failed to convert to unversioned (/d; apps/v1, Kind=DaemonSet): strconv.ParseInt: parsing \"\": invalid syntax";
        assert_eq!((applied.code, applied.message.as_str()), (500, why));
    }

    #[test]
    fn rollback_revisions_of_deployments_are_numbers() {
        let schema = BuiltinSchema(crate::api::by_gvk("apps", "v1", "Deployment").unwrap());
        let normalized = |revision: &str| {
            let mut v = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}});
            v.set(&["metadata", "annotations", ROLLBACK_TO], revision);
            schema.normalize(&mut v).map_err(|e| e.message)
        };
        assert_eq!(normalized("-7"), Ok(Vec::new()));
        assert_eq!(normalized(""), Ok(Vec::new()));
        let why = "Deployment in version \"v1\" cannot be handled as a Deployment: failed to parse \
                   annotation[deprecated.deployment.rollback.to]=x as int64: strconv.ParseInt: parsing \"x\": invalid syntax";
        assert_eq!(normalized("x"), Err(why.to_owned()));
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
    fn list_items_without_their_key_have_no_managers() {
        let who = Writer {
            manager: "m",
            subresource: "",
            now: "2026-01-01T00:00:00Z",
            api_version: "v1",
        };
        let account = |secrets: Value| {
            let mut v =
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "n"}});
            v.set(&["secrets"], secrets);
            v
        };
        let schema = builtin_schema("ServiceAccount");
        let managers = |live: Option<&Value>, mut new: Value| {
            schema.manage_update(live, &mut new, &who, &FieldSet::new());
            new.at(&["metadata", "managedFields"]).items().len()
        };
        let (named, nameless) = (json!([{"name": "x"}]), json!([{"name": "x"}, {"kind": "y"}]));
        assert_eq!(managers(None, account(named.clone())), 1);
        assert_eq!(managers(None, account(nameless.clone())), 0);
        // Once it is stored, no field has an owner any more.
        let mut tracked = account(named);
        schema.manage_update(None, &mut tracked, &who, &FieldSet::new());
        assert_eq!(managers(Some(&tracked), account(nameless.clone())), 0);
        let request = ApplyRequest {
            writer: who,
            force: false,
            reset: &FieldSet::new(),
        };
        let refused = schema.apply(Some(&account(nameless)), account(json!([])), &request);
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, 500);
        assert_eq!(
            refused.message,
            "failed to create manager for existing fields: failed to convert new object (n/a; /v1, Kind=ServiceAccount) to \
             smd typed: .secrets: element 1: associative list with keys has an element that omits all key fields [\"name\"] \
             (and doesn't have default values for any key fields)"
        );
    }

    #[test]
    fn an_applied_object_is_first_converted_to_the_versions_of_other_managers() {
        let schema = BuiltinSchema(crate::api::by_gvk("autoscaling", "v1", "HorizontalPodAutoscaler").unwrap());
        let refused = |version: &str| {
            let owned = json!({"f:spec": {"f:maxReplicas": {}}});
            let entry = json!({"manager": "a", "operation": "Update", "apiVersion": version, "fieldsType": "FieldsV1",
                "fieldsV1": owned});
            let of = |spec: Value| {
                json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
                    "metadata": {"name": "h", "namespace": "n"}, "spec": spec})
            };
            let mut live = of(json!({"maxReplicas": 3, "scaleTargetRef": {"kind": "D", "name": "d"}}));
            live.set(&["metadata", "managedFields"], Value::Array(vec![entry]));
            let request = ApplyRequest {
                writer: Writer {
                    manager: "m",
                    subresource: "",
                    now: "2026-01-01T00:00:00Z",
                    api_version: "autoscaling/v1",
                },
                force: true,
                reset: &FieldSet::new(),
            };
            let patch = of(json!({"minReplicas": 1.5}));
            schema.apply(Some(&live), patch, &request).unwrap_err().message
        };
        let why = "unable to convert unstructured object to autoscaling/v1, Kind=HorizontalPodAutoscaler: cannot convert \
                   float64 to int32";
        assert_eq!(
            refused("autoscaling/v2"),
            format!("failed to convert new object: {why}")
        );
        let described = "n/h; autoscaling/v1, Kind=HorizontalPodAutoscaler";
        assert_eq!(
            refused("autoscaling/v1"),
            format!("failed to convert new object ({described}) to proper version: {why}")
        );
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
