//! Making tokens.

use super::{Clock, LEGACY_ISSUER, user_name};
use crate::apimachinery::value::Value;
use crate::authn::jwt::{KeyError, Signer};
use std::sync::Arc;

/// Signs in the name of the first issuer.
#[derive(Clone)]
pub struct Issuer {
    name: String,
    signer: Arc<Signer>,
    clock: Clock,
}

/// An object by name and uid; the uid is empty where the object is only named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// What a token is for.
#[derive(Clone, Debug, Default)]
pub struct Bound {
    /// The service account's namespace.
    pub namespace: String,
    /// The service account.
    pub service_account: Claimed,
    /// The pod whose life limits the token's.
    pub pod: Option<Claimed>,
    /// The Secret whose life limits the token's.
    pub secret: Option<Claimed>,
    /// The node whose life limits the token's or, beside a pod, on which the pod runs.
    pub node: Option<Claimed>,
    /// Who may accept it.
    pub audiences: Vec<String>,
    /// Seconds from now until it ends.
    pub seconds: i64,
    /// Seconds from now until its use is remarkable; 0: never.
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
    /// Signs with `signer` in the name of `name`.
    pub fn new(name: String, signer: Arc<Signer>, clock: Clock) -> Self {
        Self { name, signer, clock }
    }

    /// A token and its id (`jti`).
    ///
    /// # Errors
    /// It cannot be signed.
    pub fn issue(&self, bound: &Bound) -> Result<(String, String), KeyError> {
        let now = (self.clock)();
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

    /// A token to be kept in a Secret: it never ends, and is good as long as the Secret holds it.
    ///
    /// # Errors
    /// It cannot be signed.
    pub fn issue_legacy(&self, namespace: &str, account: &Claimed, secret: &str) -> Result<String, KeyError> {
        let mut claims = crate::json!({"iss": LEGACY_ISSUER, "sub": (user_name(namespace, &account.name))});
        for (key, text) in [
            ("namespace", namespace),
            ("secret.name", secret),
            ("service-account.name", &account.name),
            ("service-account.uid", &account.uid),
        ] {
            claims.set(&[&format!("kubernetes.io/serviceaccount/{key}")], text);
        }
        self.signer.sign(&claims)
    }
}
