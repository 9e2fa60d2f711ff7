//! Subresources with an object of their own.

pub(super) mod approval;
pub(super) mod binding;
pub(super) mod cleanup;
pub(super) mod connect;
pub(super) mod eviction;
pub(super) mod finalize;
pub(super) mod scale;
pub(super) mod token;

use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::Store;
use crate::registry::store::WriteOptions;
use crate::registry::strategy::Context;
use std::sync::{Arc, OnceLock};

/// A store that is filled in once it is built: rows need handlers, handlers need stores, stores need rows.
#[derive(Clone, Default)]
pub(super) struct LateStore(Arc<OnceLock<Arc<Store>>>);

impl LateStore {
    /// Fills it in, once.
    pub(super) fn fill(&self, store: Arc<Store>) {
        // A second store for the same rows cannot happen within one build.
        let _ = self.0.set(store);
    }

    pub(super) fn get(&self) -> Result<&Arc<Store>> {
        self.0
            .get()
            .ok_or_else(|| Status::service_unavailable("the server is still starting"))
    }

    /// Replaces the object through this store's strategy, recorded for `manager`; `None`: managed fields are those of
    /// the object (an apply).
    ///
    /// # Errors
    /// Any Status.
    pub(super) async fn replace(
        &self,
        cx: &Context,
        name: &str,
        object: Value,
        write: (&str, Option<&str>),
    ) -> Result<Value> {
        let (subresource, manager) = write;
        let store = self.get()?;
        if object.name() != name {
            return Err(Status::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                object.name()
            )));
        }
        let options = WriteOptions {
            subresource: subresource.to_owned(),
            manager: manager.map(str::to_owned),
            uid: Some(object.uid().to_owned()).filter(|u| !u.is_empty()),
            ..WriteOptions::default()
        };
        let gr = store.resource().group_resource();
        let mut transform = |live: Option<&Value>| match live {
            None => Err(Status::not_found(&gr, name)),
            Some(_) => Ok(object.clone()),
        };
        let updated = store.update(cx, name, &mut transform, false, &options).await?;
        Ok(updated.object.to_value())
    }
}
