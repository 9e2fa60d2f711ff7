//! `certificatesigningrequests/approval`: sets the Approved and Denied conditions.

use super::replace;
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::controlplane::strategies::csr::Approval;
use crate::registry::resource::SubresourceHandler;
use crate::registry::strategy::Context;
use crate::registry::write::WriteOptions;
use crate::registry::{Store, StoreLookup};
use async_trait::async_trait;

/// Serves the subresource with a strategy that allows only approval changes.
pub(in crate::controlplane) struct ApprovalHandler(pub(in crate::controlplane) StoreLookup);

impl ApprovalHandler {
    fn store(&self) -> Result<Store> {
        let requests = self.0.get("certificates.k8s.io", "certificatesigningrequests")?;
        Ok(requests.with_strategy(Approval))
    }
}

#[async_trait]
impl SubresourceHandler for ApprovalHandler {
    async fn get(&self, _cx: &Context, name: &str) -> Result<Value> {
        self.store()?.get_value("", name).await
    }

    async fn create(&self, _cx: &Context, _name: &str, _object: Value) -> Result<Value> {
        let gr = GroupResource::new("certificates.k8s.io", "certificatesigningrequests");
        Err(Status::method_not_supported(&gr, "create"))
    }

    async fn update(&self, cx: &Context, name: &str, object: Value) -> Result<Value> {
        self.update_as(cx, name, object, &WriteOptions::default()).await
    }

    async fn update_as(&self, cx: &Context, name: &str, object: Value, write: &WriteOptions) -> Result<Value> {
        let as_approval = ("approval", write.manager.as_deref());
        replace(&self.store()?, cx, name, object, as_approval).await
    }
}
