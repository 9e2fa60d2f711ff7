//! Issuing of service account tokens: [`Issuer::issue`] for TokenRequests, [`Issuer::issue_legacy`] for
//! Secrets. Whether the caller may have one, and for how long, is decided before.

use super::{Clock, user_name};
use crate::apimachinery::value::Value;
use crate::authn::jwt::{KeyError, Signer};
use std::sync::Arc;

/// Signs tokens with the server's primary issuer URL as `iss`.
#[derive(Clone)]
pub(crate) struct Issuer {
    name: String,
    signer: Arc<Signer>,
    clock: Clock,
}

/// Reference to an object in a claim. The uid is empty if it is unknown, and then omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claimed {
    /// `metadata.name`
    pub name: String,
    /// `metadata.uid`
    pub uid: String,
}

/// The parameters of a bound token.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bound {
    /// The service account's namespace.
    pub namespace: String,
    pub service_account: Claimed,
    /// The pod the token is bound to.
    pub pod: Option<Claimed>,
    /// The Secret the token is bound to.
    pub secret: Option<Claimed>,
    /// The node the token is bound to or, if it is bound to a pod, the node that the pod runs on.
    pub node: Option<Claimed>,
    /// The audiences the token is valid for.
    pub audiences: Vec<String>,
    /// Lifetime in seconds.
    pub seconds: i64,
    /// Seconds after which use of the token is counted as stale; 0: never.
    pub warn_after: i64,
}

fn claimed(of: &Claimed) -> Value {
    let mut v = crate::json!({"name": (of.name.as_str())});
    if !of.uid.is_empty() {
        v.set(&["uid"], of.uid.as_str());
    }
    v
}

impl Issuer {
    /// Signs with `signer`; `name` is the issuer URL.
    pub(crate) fn new(name: String, signer: Arc<Signer>, clock: Clock) -> Self {
        Self { name, signer, clock }
    }

    /// Issues a bound token; returns it with its id (`jti`).
    ///
    /// # Errors
    /// If signing fails.
    pub(crate) fn issue(&self, bound: &Bound) -> Result<(String, String), KeyError> {
        let now = (self.clock)();
        // Returned for the audit log, so that uses of the token can be traced to the request that issued it.
        let id = uuid::Uuid::new_v4().to_string();
        let mut private = crate::json!({
            "namespace": (bound.namespace.as_str()), "serviceaccount": (claimed(&bound.service_account)),
        });
        for (key, object) in [("pod", &bound.pod), ("secret", &bound.secret), ("node", &bound.node)] {
            if let Some(object) = object {
                private.set(&[key], claimed(object));
            }
        }
        if bound.warn_after != 0 {
            private.set(&["warnafter"], now + bound.warn_after);
        }
        let mut claims = crate::json!({
            "iss": (self.name.as_str()), "jti": (id.as_str()), "iat": now, "nbf": now,
            "exp": (now + bound.seconds),
            "sub": (user_name(&bound.namespace, &bound.service_account.name)),
        });
        claims.set(&["aud"], bound.audiences.clone());
        claims.set(&["kubernetes.io"], private);
        Ok((self.signer.sign(&claims)?, id))
    }

    /// Issues a legacy token for storage in a Secret. It has no expiry and is valid while the Secret contains
    /// it.
    ///
    /// # Errors
    /// If signing fails.
    pub(crate) fn issue_legacy(&self, namespace: &str, account: &Claimed, secret: &str) -> Result<String, KeyError> {
        let mut claims = crate::json!({"iss": (super::LEGACY_ISSUER), "sub": (user_name(namespace, &account.name))});
        for (key, text) in [
            ("namespace", namespace),
            ("secret.name", secret),
            ("service-account.name", &account.name),
            ("service-account.uid", &account.uid),
        ] {
            // Flat claims with a slash in the name: the form from before TokenRequest, which verifiers still
            // expect in Secrets.
            claims.set(&[&format!("kubernetes.io/serviceaccount/{key}")], text);
        }
        self.signer.sign(&claims)
    }
}
