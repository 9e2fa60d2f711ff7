//! `namespaces/finalize`: the only way to change a namespace's `spec.finalizers`.

use super::replace;
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::object::restore;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::controlplane::strategies::namespace::{self, Namespace};
use crate::registry::StoreLookup;
use crate::registry::resource::SubresourceHandler;
use crate::registry::strategy::{Context, DeleteStrategy, NameRule, Rules, Strategy};
use crate::registry::write::WriteOptions;
use async_trait::async_trait;

/// Strategy that finalize writes with: accepts metadata and spec, keeps the status (upstream's
/// `namespaceFinalizeStrategy` in `pkg/registry/core/namespace/strategy.go`).
struct FinalizeStrategy;

impl Strategy for FinalizeStrategy {
    fn rules(&self) -> Rules {
        Rules::named(NameRule::Label)
    }
    fn default(&self, object: &mut Value) {
        Namespace.default(object);
    }
    // Not the namespace's own preparation, which would restore the finalizers that this write is about.
    fn prepare_update(&self, new: &mut Value, old: &Value) {
        restore(new, old, &["status"]);
    }
    fn validate_update(&self, new: &Value, _old: &Value) -> ErrorList {
        namespace::finalizers(new, true)
    }
    fn reset_fields(&self, _subresource: &str) -> &'static [&'static str] {
        &["status"]
    }
    // Clearing the last finalizer of a terminating namespace removes the namespace.
    fn deletion(&self) -> Option<&dyn DeleteStrategy> {
        Some(&Namespace)
    }
}

/// Serves the subresource through the store of namespaces, with [`FinalizeStrategy`].
pub(in crate::controlplane) struct Finalize(pub(in crate::controlplane) StoreLookup);

fn unsupported(action: &str) -> Status {
    Status::method_not_supported(&crate::apimachinery::GroupResource::new("", "namespaces"), action)
}

#[async_trait]
impl SubresourceHandler for Finalize {
    async fn get(&self, _cx: &Context, name: &str) -> Result<Value> {
        self.0.get("", "namespaces")?.get_value("", name).await
    }

    async fn create(&self, _cx: &Context, _name: &str, _object: Value) -> Result<Value> {
        Err(unsupported("create"))
    }

    async fn update(&self, cx: &Context, name: &str, object: Value) -> Result<Value> {
        self.update_as(cx, name, object, &WriteOptions::default()).await
    }

    async fn update_as(&self, cx: &Context, name: &str, object: Value, write: &WriteOptions) -> Result<Value> {
        let store = self.0.get("", "namespaces")?.with_strategy(FinalizeStrategy);
        replace(&store, cx, name, object, ("finalize", write.manager.as_deref())).await
    }
}
