//! Subresources with an object of their own.

pub(super) mod approval;
pub(super) mod binding;
pub(super) mod cleanup;
pub(super) mod finalize;
pub(super) mod scale;

use crate::apimachinery::status::{Result, Status};
use crate::registry::Store;
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
}
