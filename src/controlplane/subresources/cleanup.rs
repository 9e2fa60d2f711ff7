//! Deletes the Endpoints of a deleted Service.

use crate::controlplane::strategies::service::EndpointsCleanup;
use crate::registry::StoreLookup;
use crate::registry::strategy::Context;
use async_trait::async_trait;

/// Deletes the Endpoints with the Service's name. Best effort: failures are only logged, as upstream does.
pub(in crate::controlplane) struct DeleteEndpoints(pub(in crate::controlplane) StoreLookup);

#[async_trait]
impl EndpointsCleanup for DeleteEndpoints {
    async fn remove(&self, namespace: &str, name: &str) {
        let Ok(store) = self.0.get("", "endpoints") else { return };
        // Without admission: the deletion of the Service has passed it.
        match store
            .without_admission()
            .delete_by_name(&Context::system(namespace), name)
            .await
        {
            Ok(_) => {}
            // A Service without a selector need not have any.
            Err(e) if e.code == 404 => {}
            Err(e) => tracing::warn!(namespace, name, error = %e, "deleting the endpoints of a deleted service failed"),
        }
    }
}
