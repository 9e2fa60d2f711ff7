//! `certificatesigningrequests/approval`: sets the Approved and Denied conditions.

use super::LateStore;
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::resource::SubresourceHandler;
use crate::registry::store::WriteOptions;
use crate::registry::strategy::Context;
use async_trait::async_trait;

/// Serves the subresource through a second store over the same storage, whose strategy allows only approval changes.
pub(in crate::controlplane) struct ApprovalHandler(pub(in crate::controlplane) LateStore);

#[async_trait]
impl SubresourceHandler for ApprovalHandler {
    async fn get(&self, _cx: &Context, name: &str) -> Result<Value> {
        self.0.get()?.get_value("", name).await
    }

    async fn create(&self, _cx: &Context, _name: &str, _object: Value) -> Result<Value> {
        let gr = GroupResource::new("certificates.k8s.io", "certificatesigningrequests");
        Err(Status::method_not_supported(&gr, "create"))
    }

    async fn update(&self, cx: &Context, name: &str, object: Value) -> Result<Value> {
        self.update_as(cx, name, object, &WriteOptions::default()).await
    }

    async fn update_as(&self, cx: &Context, name: &str, object: Value, write: &WriteOptions) -> Result<Value> {
        self.0
            .replace(cx, name, object, ("approval", write.manager.as_deref()))
            .await
    }
}
