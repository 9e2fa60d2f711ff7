//! A write judged by any number of ValidatingAdmissionPolicies, without a store (the `expressions`
//! benchmark).

use crate::admission::policy::{Binding, Snapshot, StoredPolicy, Surroundings, ValidatingPolicy, validate};
use crate::admission::{Attributes, Cluster, ObjectLookup, Operation, ServedKind, Versions, Wanted};
use crate::apimachinery::apply::OverlayError;
use crate::apimachinery::gvk::GroupVersionResource;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::authz::AlwaysAllow;
use crate::telemetry::admission_policies::AdmissionPolicyMetrics;
use crate::telemetry::match_conditions::MatchConditionMetrics;
use async_trait::async_trait;
use prometheus::Registry;
use std::sync::Arc;

/// A cluster without objects.
struct Empty;

fn not_served<T>() -> Result<T> {
    Err(Status::internal("this cluster is empty"))
}

#[async_trait]
impl Versions for Empty {
    fn equivalents(&self, _: &GroupVersionResource, _: &str) -> Vec<ServedKind> {
        Vec::new()
    }

    async fn convert(&self, _: Value, _: &GroupVersionResource, _: &GroupVersionResource) -> Result<Value> {
        not_served()
    }

    async fn objects(&self, _: &GroupVersionResource, _: &str, _: Wanted<'_>) -> Result<Vec<Value>> {
        not_served()
    }

    async fn complete(&self, _: &ServedKind, _: &str, _: &mut Value) -> Result<Vec<String>> {
        not_served()
    }

    async fn overlay(
        &self,
        _: &ServedKind,
        _: &str,
        _: &Value,
        _: &Value,
    ) -> Result<std::result::Result<Value, OverlayError>> {
        not_served()
    }
}

#[async_trait]
impl Cluster for Empty {
    fn storage(&self, _: &str, _: &str) -> Option<Arc<dyn crate::storage::Storage>> {
        None
    }

    fn resource_of(&self, _: &str, _: &str) -> Option<(String, bool)> {
        None
    }

    async fn create_namespace(&self, _: &str) -> Result<()> {
        not_served()
    }
}

/// ValidatingAdmissionPolicies, each with a binding that denies, and a write of a ConfigMap.
pub struct Policies {
    surroundings: Surroundings<AdmissionPolicyMetrics>,
    snapshot: Snapshot<ValidatingPolicy>,
    write: Attributes,
}

impl Policies {
    /// Compiles the policies.
    pub fn new(policies: &[Value]) -> Self {
        let binding = |policy: &Value| {
            let name = policy.str_at(&["metadata", "name"]);
            let spec = crate::json!({"policyName": name, "validationActions": ["Deny"]});
            Arc::new(Binding::parse(
                &crate::json!({"metadata": {"name": name}, "spec": spec}),
            ))
        };
        let bindings: Vec<_> = policies.iter().map(binding).collect();
        let policies: Vec<_> = policies.iter().map(|p| Arc::new(ValidatingPolicy::parse(p))).collect();
        let registry = Registry::new();
        Self {
            surroundings: Surroundings {
                cluster: ObjectLookup::new(Arc::new(Empty)),
                authorizer: Arc::new(AlwaysAllow),
                metrics: AdmissionPolicyMetrics::new(&registry),
                conditions: MatchConditionMetrics::new(&registry),
            },
            snapshot: Snapshot::new(policies.iter(), bindings.iter()),
            write: Attributes {
                namespace: "default".to_owned(),
                name: "c".to_owned(),
                ..Attributes::hypothetical(Operation::Create, "", "ConfigMap", "configmaps")
            },
        }
    }

    /// Admits or denies the write of `object`, as the plugin does with policies already loaded.
    ///
    /// # Errors
    /// A policy denies it.
    pub async fn admit(&self, object: &Value) -> Result<()> {
        validate(&self.surroundings, &self.snapshot, &self.write, object).await
    }
}
