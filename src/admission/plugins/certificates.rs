//! Who may approve, sign or attest for a signer, and which certificates nobody may ask for. As upstream's
//! `certificates/{approval,signing,subjectrestriction,ctbattest}`.

use crate::admission::{Admission, Attributes, Operation, forbidden};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::authz::{self, Authorizer, Decision};
use crate::request::user::MASTERS;
use async_trait::async_trait;
use base64::Engine as _;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, Pem, X509CertificationRequest, X509Name};

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Whether the caller may do `verb` for the signer, or for all of its domain.
async fn may(authorizer: &dyn Authorizer, attributes: &Attributes, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    for name in [signer, &format!("{domain}/*")] {
        let asked = authz::Attributes {
            user: &attributes.user,
            verb,
            is_resource: true,
            api_group: GROUP,
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

/// Approving needs the verb `approve` on the signer.
pub struct CertificateApproval(pub Arc<dyn Authorizer>);

#[async_trait]
impl Admission for CertificateApproval {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Update
            && attributes.subresource == "approval"
            && attributes.is_for(GROUP, REQUESTS)
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        let signer = signer(attributes.old_object.as_deref().unwrap_or(object));
        if may(&*self.0, attributes, "approve", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to approve requests with signerName {signer:?}");
        Err(forbidden(attributes, object, why))
    }
}

/// Writing a certificate or conditions needs the verb `sign` on the signer.
pub struct CertificateSigning(pub Arc<dyn Authorizer>);

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

/// A trust bundle of a signer needs the verb `attest` on it.
pub struct ClusterTrustBundleAttest(pub Arc<dyn Authorizer>);

#[async_trait]
impl Admission for ClusterTrustBundleAttest {
    fn handles(&self, attributes: &Attributes) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && attributes.is(GROUP, "clustertrustbundles")
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        if let Some(old) = attributes.old_object.as_deref() {
            let same = |field: &str| old.at(&["spec", field]) == object.at(&["spec", field]);
            if same("signerName") && same("trustBundle") {
                return Ok(());
            }
        }
        let signer = signer(object);
        if signer.is_empty() || may(&*self.0, attributes, "attest", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to attest for signerName {signer:?}");
        Err(forbidden(attributes, object, why))
    }
}

/// Nobody gets a client certificate of the group that may do everything.
pub struct CertificateSubjectRestriction;

/// What is found in a request's subject.
///
/// # Errors
/// Why it cannot be read.
fn in_subject<T>(request: &Value, find: impl FnOnce(&X509Name<'_>) -> T) -> std::result::Result<T, String> {
    let text = request.as_str().unwrap_or_default();
    let bytes = base64::engine::general_purpose::STANDARD.decode(text);
    let bytes = bytes.map_err(|e| e.to_string())?;
    let pem = Pem::iter_from_buffer(&bytes).next();
    let pem = pem.and_then(std::result::Result::ok);
    let pem = pem.filter(|p| p.label == "CERTIFICATE REQUEST");
    let pem = pem.ok_or("PEM block type must be CERTIFICATE REQUEST")?;
    let (_, parsed) = X509CertificationRequest::from_der(&pem.contents).map_err(|e| e.to_string())?;
    Ok(find(&parsed.certification_request_info.subject))
}

/// The organizations a request is for.
fn organizations(request: &Value) -> std::result::Result<Vec<String>, String> {
    in_subject(request, |name| {
        let all = name.iter_organization();
        all.filter_map(|o| o.as_str().ok().map(str::to_owned)).collect()
    })
}

/// The common name a request is for, empty where it has none.
///
/// # Errors
/// Why it cannot be read.
pub(super) fn common_name(request: &Value) -> std::result::Result<String, String> {
    in_subject(request, |name| {
        let last = name.iter_common_name().last();
        last.and_then(|cn| cn.as_str().ok()).unwrap_or_default().to_owned()
    })
}

#[async_trait]
impl Admission for CertificateSubjectRestriction {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Create && attributes.is(GROUP, REQUESTS)
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        if signer(object) != CLIENT_SIGNER {
            return Ok(());
        }
        let groups = organizations(object.at(&["spec", "request"]));
        let groups = groups.map_err(|e| forbidden(attributes, object, format!("failed to parse CSR: {e}")))?;
        if !groups.iter().any(|g| g == MASTERS) {
            return Ok(());
        }
        let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
        Err(forbidden(attributes, object, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{ask, request, update};
    use crate::authz::Verdict;
    use crate::json;

    /// Allows one verb on one name.
    struct Only(&'static str, &'static str);

    #[async_trait]
    impl Authorizer for Only {
        async fn authorize(&self, asked: &authz::Attributes<'_>) -> Verdict {
            match asked.verb == self.0 && asked.name == self.1 && asked.resource == "signers" {
                true => Verdict::allow(""),
                false => Verdict::no_opinion(""),
            }
        }
    }

    fn csr() -> Value {
        json!({"metadata": {"name": "c"}, "spec": {"signerName": "example.com/a"}})
    }

    #[tokio::test]
    async fn approving_needs_the_signer_or_its_domain() {
        let approval = update(GROUP, "certificatesigningrequests/approval", csr());
        for name in ["example.com/a", "example.com/*"] {
            let plugin = CertificateApproval(Arc::new(Only("approve", name)));
            assert!(ask(&plugin, &approval, &csr()).await.is_ok());
        }
        let plugin = CertificateApproval(Arc::new(Only("sign", "example.com/a")));
        assert_eq!(
            ask(&plugin, &approval, &csr()).await.unwrap_err(),
            "certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: user not permitted to approve requests \
             with signerName \"example.com/a\""
        );
    }

    #[tokio::test]
    async fn signing_is_a_change_of_certificate_or_conditions() {
        let plugin = CertificateSigning(Arc::new(Only("approve", "example.com/a")));
        let status = update(GROUP, "certificatesigningrequests/status", csr());
        assert!(ask(&plugin, &status, &csr()).await.is_ok());
        let mut signed = csr();
        signed.set(&["status", "certificate"], "eA==");
        let refused = ask(&plugin, &status, &signed).await.unwrap_err();
        assert!(refused.ends_with("user not permitted to sign requests with signerName \"example.com/a\""));
    }

    #[tokio::test]
    async fn nobody_asks_to_be_a_master() {
        let asking = |organization: &str| {
            let mut params = rcgen::CertificateParams::default();
            let name = rcgen::DnType::OrganizationName;
            params.distinguished_name.push(name, organization);
            let key = rcgen::KeyPair::generate().unwrap();
            let pem = params.serialize_request(&key).unwrap().pem().unwrap();
            let text = base64::engine::general_purpose::STANDARD.encode(pem);
            json!({"metadata": {"name": "c"}, "spec": {"signerName": (CLIENT_SIGNER), "request": (text)}})
        };
        let create = request(Operation::Create, GROUP, REQUESTS, "c");
        assert!(
            ask(&CertificateSubjectRestriction, &create, &asking("demo"))
                .await
                .is_ok()
        );
        let refused = ask(&CertificateSubjectRestriction, &create, &asking(MASTERS))
            .await
            .unwrap_err();
        assert!(refused.ends_with("signer with system:masters group is not allowed"));
    }
}
