//! `serviceaccounts/token`: issues tokens for TokenRequests (upstream's
//! `pkg/registry/core/serviceaccount/storage/token.go`). Signing is left to [`Issuer`].

use crate::apimachinery::field::{FieldError, FieldPath};
use crate::apimachinery::gvk::{GroupResource, GroupVersionKind};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::authn::service_account::{Bound, Claimed, Issuer};
use crate::controlplane::fields::strings;
use crate::registry::resource::SubresourceHandler;
use crate::registry::strategy::Context;
use crate::registry::{Store, StoreLookup};
use async_trait::async_trait;

/// Upstream's default and limits of `spec.expirationSeconds`.
const DEFAULT_SECONDS: i64 = 3600;
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;
/// The lifetime that the kubelet requests for projected tokens. Upstream recognizes it by this odd number and
/// extends the token, for clients that never reload theirs.
const PROJECTED_SECONDS: i64 = 3607;
/// Lifetime of extended projected tokens.
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;

/// Configuration of token issuance.
#[derive(Clone)]
pub(crate) struct TokenRequests {
    pub issuer: Issuer,
    /// The server's own audiences, used for requests that name none.
    pub audiences: Vec<String>,
    /// `--service-account-max-token-expiration` in seconds; 0 is unlimited.
    pub max_seconds: i64,
    /// `--service-account-extend-token-expiration`.
    pub extend: bool,
}

/// Serves `serviceaccounts/token`.
pub(in crate::controlplane) struct Token {
    pub(in crate::controlplane) config: TokenRequests,
    pub(in crate::controlplane) stores: StoreLookup,
}

fn invalid(name: &str, error: FieldError) -> Status {
    Status::invalid("authentication.k8s.io", "TokenRequest", name, &[error])
}

fn claimed(object: &Value) -> Claimed {
    Claimed {
        name: object.name().to_owned(),
        uid: object.uid().to_owned(),
    }
}

fn unsupported(action: &str) -> Status {
    Status::method_not_supported(&GroupResource::new("", "serviceaccounts"), action)
}

impl Token {
    /// Resolves `spec.boundObjectRef` into `bound`. `account` is the service account's name.
    async fn bind(&self, cx: &Context, account: &str, reference: &Value, bound: &mut Bound) -> Result<()> {
        if reference.is_null() {
            return Ok(());
        }
        let of = |key: &str| reference.str_at(&[key]);
        let (kind, name) = (of("kind"), of("name"));
        let (group, version) = of("apiVersion").split_once('/').unwrap_or(("", of("apiVersion")));
        if matches!((group, kind), ("", "Pod" | "Node" | "Secret")) {
            // A name in a body has not passed the router, and would become part of a storage key.
            Store::check_name(name)?;
        }
        let object = match (group, kind) {
            ("", "Pod") => {
                let pod = self.stores.get("", "pods")?.get_value(&cx.namespace, name).await?;
                if pod.str_at(&["spec", "serviceAccountName"]) != account {
                    return Err(Status::bad_request(format!(
                        "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                        crate::apimachinery::field::quote(account)
                    )));
                }
                bound.pod = Some(claimed(&pod));
                // So that whoever authenticates the token learns where the pod runs.
                bound.node = self.node_of(&pod).await?;
                pod
            }
            ("", "Node") => {
                let node = self.stores.get("", "nodes")?.get_value("", name).await?;
                bound.node = Some(claimed(&node));
                node
            }
            ("", "Secret") => {
                let secret = self.stores.get("", "secrets")?.get_value(&cx.namespace, name).await?;
                bound.secret = Some(claimed(&secret));
                secret
            }
            _ => {
                let other = GroupVersionKind::new(group, version, kind);
                return Err(Status::bad_request(format!(
                    "cannot bind token to object of type {other}"
                )));
            }
        };
        match of("uid") {
            "" => Ok(()),
            uid if uid == object.uid() => Ok(()),
            uid => Err(Status::conflict(
                &GroupResource::new(group, kind),
                name,
                &format!(
                    "the UID in the bound object reference ({uid}) does not match the UID in record. The object might \
                     have been deleted and then recreated"
                ),
            )),
        }
    }

    /// The node a pod runs on; without a UID if the Node object does not exist.
    async fn node_of(&self, pod: &Value) -> Result<Option<Claimed>> {
        let name = pod.str_at(&["spec", "nodeName"]);
        if name.is_empty() {
            return Ok(None);
        }
        Ok(Some(match self.stores.get("", "nodes")?.get_value("", name).await {
            Ok(node) => claimed(&node),
            Err(e) if e.code == 404 => Claimed {
                name: name.to_owned(),
                uid: String::new(),
            },
            Err(e) => return Err(e),
        }))
    }
}

#[async_trait]
impl SubresourceHandler for Token {
    async fn get(&self, _cx: &Context, _name: &str) -> Result<Value> {
        Err(unsupported("get"))
    }

    // The UID in the body is that of the account that the caller expects.
    fn keeps_system_fields(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        if object.at(&["spec", "expirationSeconds"]).is_null() {
            object.set(&["spec", "expirationSeconds"], DEFAULT_SECONDS);
        }
    }

    async fn prepare_create(&self, cx: &Context, name: &str, mut object: Value) -> Result<Value> {
        let meta = FieldPath::new("metadata");
        // In upstream's order (`TokenREST.Create`); validating admission runs after this and sees the
        // completed request.
        for (key, is, want, why) in [
            (
                "name",
                object.name(),
                name,
                "must match the service account name if specified",
            ),
            (
                "namespace",
                object.namespace(),
                &*cx.namespace,
                "must match the service account namespace if specified",
            ),
        ] {
            if !is.is_empty() && is != want {
                return Err(invalid(name, FieldError::invalid(&meta.child(key), is, why)));
            }
        }
        let account = self
            .stores
            .get("", "serviceaccounts")?
            .get_value(&cx.namespace, name)
            .await?;
        if object.at(&["spec", "audiences"]).items().is_empty() {
            object.set(&["spec", "audiences"], self.config.audiences.clone());
        }
        if !object.uid().is_empty() && object.uid() != account.uid() {
            return Err(Status::conflict(
                &GroupResource::new("authentication.k8s.io", "TokenRequest"),
                name,
                &format!(
                    "the UID in the token request ({}) does not match the UID of the service account ({})",
                    object.uid(),
                    account.uid()
                ),
            ));
        }
        object.set_meta("name", name);
        object.set_meta("namespace", cx.namespace.as_str());
        object.set_meta("uid", account.uid());
        object.set_meta("creationTimestamp", time::now());
        // A token of the caller's own must not be returned as if it had been issued.
        object.unset(&["status"]);
        let seconds = object.at(&["spec", "expirationSeconds"]).as_i64().unwrap_or_default();
        let why = match seconds {
            n if n < MIN_SECONDS => "may not specify a duration less than 10 minutes",
            n if n > MAX_SECONDS => "may not specify a duration larger than 2^32 seconds",
            _ => return Ok(object),
        };
        // Upstream reports this error without a name.
        let path = FieldPath::new("spec").child("expirationSeconds");
        Err(invalid("", FieldError::invalid(&path, seconds, why)))
    }

    async fn create(&self, cx: &Context, name: &str, mut object: Value) -> Result<Value> {
        let config = &self.config;
        let spec = object.get("spec");
        let mut bound = Bound {
            namespace: cx.namespace.clone(),
            service_account: claimed(&object),
            audiences: strings(spec.get("audiences")).into_iter().map(str::to_owned).collect(),
            seconds: spec.get("expirationSeconds").as_i64().unwrap_or(DEFAULT_SECONDS),
            ..Bound::default()
        };
        self.bind(cx, name, spec.get("boundObjectRef"), &mut bound).await?;
        if config.max_seconds > 0 && bound.seconds > config.max_seconds {
            cx.warnings.add(format!(
                "requested expiration of {} seconds shortened to {} seconds",
                bound.seconds, config.max_seconds
            ));
            bound.seconds = config.max_seconds;
            object.set(&["spec", "expirationSeconds"], bound.seconds);
        }
        let asked = bound.seconds;
        // Only tokens for this server: other verifiers cannot warn about the overdue reload.
        let own = bound.audiences.iter().all(|a| config.audiences.contains(a));
        if config.extend && bound.pod.is_some() && asked == PROJECTED_SECONDS && own {
            bound.warn_after = asked;
            bound.seconds = EXTENDED_SECONDS;
        }
        // The reported expiry is the requested one, even for an extended token.
        let until = time::parse(object.str_at(&["metadata", "creationTimestamp"]))
            .ok()
            .and_then(|now| time::format_unix(now.unix_timestamp() + asked));
        let issued = config.issuer.issue(&bound);
        let (token, id) = issued.map_err(|e| Status::internal(format!("failed to generate token: {e}")))?;
        // The id lets an audit log follow a token without containing it.
        cx.audit
            .annotate("authentication.kubernetes.io/issued-credential-id", format!("JTI={id}"));
        object.set(&["status", "token"], token);
        object.set(&["status", "expirationTimestamp"], until.unwrap_or_default());
        Ok(object)
    }

    async fn update(&self, _cx: &Context, _name: &str, _object: Value) -> Result<Value> {
        Err(unsupported("update"))
    }
}
