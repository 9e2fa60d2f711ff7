//! The resources of certificates.k8s.io/v1.

use crate::apimachinery::gvk::GroupVersionKind;
use crate::controlplane::columns::network as columns;
use crate::controlplane::fields::text;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::strategies::csr;
use crate::registry::resource::{Resource, SubresourceHandler, Verbs};
use std::sync::Arc;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: "certificates.k8s.io",
    version: "v1",
};

/// The resources of the group; `approval` serves the subresource of that name.
pub(crate) fn rows(approval: Arc<dyn SubresourceHandler>) -> Vec<Resource> {
    let kind = GroupVersionKind::new(V1.group, V1.version, "CertificateSigningRequest");
    vec![
        V1.kind("certificatesigningrequests", "CertificateSigningRequest")
            .short(&["csr"])
            .strategy(csr::Csr)
            .columns(columns::certificate_signing_requests())
            .selectable(["spec.signerName"], |v| [text(v, &["spec", "signerName"])])
            .custom("approval", kind, Verbs::GET_PATCH_UPDATE, approval)
            .status()
            .build(),
    ]
}
