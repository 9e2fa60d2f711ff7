//! `certificatesigningrequests/approval`: an approver's answer.

use super::LateStore;
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::restore;
use crate::registry::resource::SubresourceHandler;
use crate::registry::store::WriteOptions;
use crate::registry::strategy::Context;
use async_trait::async_trait;

/// Serves it, over a store of its own on the requests' storage.
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
        let store = self.0.get()?;
        if object.name() != name {
            return Err(Status::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                object.name()
            )));
        }
        let options = WriteOptions {
            subresource: "approval".to_owned(),
            uid: Some(object.uid().to_owned()).filter(|u| !u.is_empty()),
            ..WriteOptions::default()
        };
        let gr = store.resource().group_resource();
        let mut transform = |live: Option<&Value>| match live {
            None => Err(Status::not_found(&gr, name)),
            Some(live) => {
                let mut new = object.clone();
                restore(&mut new, live, &["metadata", "managedFields"]);
                Ok(new)
            }
        };
        let updated = store.update(cx, name, &mut transform, false, &options).await?;
        Ok(updated.object.to_value())
    }
}
