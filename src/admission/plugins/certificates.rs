//! The certificate plugins: which users may approve, sign or attest for a signer, and which subjects are
//! forbidden. As upstream's `certificates/{approval,signing,subjectrestriction,ctbattest}`.

use crate::admission::{Admission, Attributes, Operation, forbidden};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::authz::{self, Authorizer, Decision};
use crate::request::user::MASTERS;
use crate::x509::{CertificateRequest, Malformed, Name};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// True if the caller may perform `verb` for the signer, or for all signers of its domain (`example.com/*`).
async fn may(authorizer: &dyn Authorizer, attributes: &Attributes, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    // The authorizer compares names literally, so the wildcard is asked for as a name.
    for name in [signer, &format!("{domain}/*")] {
        let asked = authz::Attributes {
            user: &attributes.user,
            verb,
            is_resource: true,
            api_group: GROUP,
            // As upstream: a permission on a signer holds for all versions.
            api_version: "*",
            namespace: "",
            resource: "signers",
            subresource: "",
            name,
            path: "",
            field_selector: "",
            label_selector: "",
        };
        if authorizer.authorize(&asked).await.decision == Decision::Allow {
            return true;
        }
    }
    false
}

fn signer(object: &Value) -> &str {
    object.str_at(&["spec", "signerName"])
}

/// CertificateApproval: approving a request requires the verb `approve` on its signer.
pub(crate) struct CertificateApproval(pub Arc<dyn Authorizer>);

#[async_trait]
impl Admission for CertificateApproval {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Update
            && attributes.subresource == "approval"
            && attributes.is_for(GROUP, REQUESTS)
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        // The stored one: the object of the request could name a signer for which the caller has the permission.
        let signer = signer(attributes.old_object.as_deref().unwrap_or(object));
        if may(&*self.0, attributes, "approve", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to approve requests with signerName {signer:?}");
        Err(forbidden(attributes, object, why))
    }
}

/// CertificateSigning: setting a certificate or conditions requires the verb `sign` on the signer.
pub(crate) struct CertificateSigning(pub Arc<dyn Authorizer>);

#[async_trait]
impl Admission for CertificateSigning {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Update
            && attributes.subresource == "status"
            && attributes.is_for(GROUP, REQUESTS)
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        let old = attributes.old_object.as_deref().unwrap_or(&Value::Null);
        let same = |field: &str| old.at(&["status", field]) == object.at(&["status", field]);
        // Other status updates, such as of managed fields, need no permission.
        if same("certificate") && same("conditions") {
            return Ok(());
        }
        let signer = signer(old);
        if may(&*self.0, attributes, "sign", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to sign requests with signerName {signer:?}");
        Err(forbidden(attributes, object, why))
    }
}

/// ClusterTrustBundleAttest: a bundle for a signer requires the verb `attest` on that signer.
pub(crate) struct ClusterTrustBundleAttest(pub Arc<dyn Authorizer>);

#[async_trait]
impl Admission for ClusterTrustBundleAttest {
    fn handles(&self, attributes: &Attributes) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && attributes.is(GROUP, "clustertrustbundles")
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        if let Some(old) = attributes.old_object.as_deref() {
            let same = |field: &str| old.at(&["spec", field]) == object.at(&["spec", field]);
            // Metadata may be changed by whoever may update the object.
            if same("signerName") && same("trustBundle") {
                return Ok(());
            }
        }
        let signer = signer(object);
        // Bundles without a signer are governed by RBAC on the resource alone.
        if signer.is_empty() || may(&*self.0, attributes, "attest", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to attest for signerName {signer:?}");
        Err(forbidden(attributes, object, why))
    }
}

/// CertificateSubjectRestriction: forbids client certificates for the group `system:masters`.
pub(crate) struct CertificateSubjectRestriction;

/// Why a certificate request cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidRequest {
    #[error(transparent)]
    Base64(#[from] base64::DecodeError),
    #[error(transparent)]
    Request(#[from] Malformed),
}

/// The subject of a PEM-encoded certificate request in base64 (`spec.request`).
///
/// # Errors
/// [`InvalidRequest`].
pub(super) fn subject(request: &Value) -> std::result::Result<Name, InvalidRequest> {
    let text = request.as_str().unwrap_or_default();
    Ok(CertificateRequest::from_pem(&STANDARD.decode(text)?)?.subject)
}

#[async_trait]
impl Admission for CertificateSubjectRestriction {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Create && attributes.is(GROUP, REQUESTS)
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        // Of the built-in signers, only this one signs groups of the requester's choice.
        if signer(object) != CLIENT_SIGNER {
            return Ok(());
        }
        let subject = subject(object.at(&["spec", "request"]));
        let subject = subject.map_err(|e| forbidden(attributes, object, format!("failed to parse CSR: {e}")))?;
        if !subject.organizations().iter().any(|g| g == MASTERS) {
            return Ok(());
        }
        let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
        Err(forbidden(attributes, object, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{AllowIf, ask, request, update};
    use crate::json;

    /// Allows one verb on one signer.
    fn only(verb: &'static str, name: &'static str) -> Arc<dyn Authorizer> {
        Arc::new(AllowIf(move |asked: &authz::Attributes<'_>| {
            asked.verb == verb && asked.name == name && asked.resource == "signers"
        }))
    }

    fn csr() -> Value {
        json!({"metadata": {"name": "c"}, "spec": {"signerName": "example.com/a"}})
    }

    #[tokio::test]
    async fn approval_requires_permission_on_the_signer_or_its_domain() {
        let approval = update(GROUP, "certificatesigningrequests/approval", csr());
        for name in ["example.com/a", "example.com/*"] {
            let plugin = CertificateApproval(only("approve", name));
            assert!(ask(&plugin, &approval, &csr()).await.is_ok());
        }
        let plugin = CertificateApproval(only("sign", "example.com/a"));
        assert_eq!(
            ask(&plugin, &approval, &csr()).await.unwrap_err(),
            "certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: user not permitted to approve requests \
             with signerName \"example.com/a\""
        );
    }

    #[tokio::test]
    async fn changing_certificate_or_conditions_requires_sign() {
        let plugin = CertificateSigning(only("approve", "example.com/a"));
        let status = update(GROUP, "certificatesigningrequests/status", csr());
        assert!(ask(&plugin, &status, &csr()).await.is_ok());
        let mut signed = csr();
        signed.set(&["status", "certificate"], "eA==");
        let refused = ask(&plugin, &status, &signed).await.unwrap_err();
        assert!(refused.ends_with("user not permitted to sign requests with signerName \"example.com/a\""));
    }

    #[tokio::test]
    async fn masters_is_rejected_in_every_string_type() {
        use crate::x509::testing::{ORGANIZATION, csr};
        let create = request(Operation::Create, GROUP, REQUESTS, "c");
        let asking = async |tag: u8, organization: &[u8]| {
            let text = STANDARD.encode(csr(ORGANIZATION, tag, organization));
            let object = json!({"metadata": {"name": "c"}, "spec": {"signerName": (CLIENT_SIGNER), "request": (text)}});
            ask(&CertificateSubjectRestriction, &create, &object).await
        };
        assert!(asking(0x0c, b"demo").await.is_ok());
        let wide: Vec<u8> = MASTERS.encode_utf16().flat_map(u16::to_be_bytes).collect();
        let wider: Vec<u8> = MASTERS.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect();
        for (tag, bytes) in [
            (0x0c, MASTERS.as_bytes()),
            (0x13, MASTERS.as_bytes()),
            (0x14, MASTERS.as_bytes()),
            (0x16, MASTERS.as_bytes()),
            (0x1a, MASTERS.as_bytes()),
            (0x1b, MASTERS.as_bytes()),
            (0x1e, &wide),
            (0x1c, &wider),
        ] {
            let refused = asking(tag, bytes).await.unwrap_err();
            assert!(
                refused.ends_with("signer with system:masters group is not allowed"),
                "{tag:#x}: {refused}"
            );
        }
        let refused = asking(0x04, MASTERS.as_bytes()).await.unwrap_err();
        assert!(refused.contains("failed to parse CSR"), "{refused}");
    }
}
