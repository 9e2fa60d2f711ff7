//! Validation of bound tokens (from TokenRequests): their times, and the objects they are bound to. Entry
//! point: [`check`], for claims whose signature has been verified. Follows upstream's
//! `pkg/serviceaccount/claims.go`.

use super::{LEEWAY, ObjectReader, ResolvedObject, user_info};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::authn::jwt::seconds;
use crate::authn::x509::CREDENTIAL_ID;
use crate::authn::{AuthenticationError, CacheDependency, TokenUser};
use crate::telemetry::access::ServiceAccountTokenMetrics;
use std::sync::Arc;

const GONE: &str = "service account token has been invalidated";

fn times(claims: &Value, now: i64) -> Result<(), AuthenticationError> {
    let unreadable = |e| AuthenticationError(format!("service account token claims could not be validated: {e}"));
    let at = |claim| seconds(claims, claim).map_err(unreadable);
    if at("nbf")?.is_some_and(|t| now.saturating_add(LEEWAY) < t) {
        return Err(AuthenticationError::new("service account token is not valid yet"));
    }
    // No `exp` is accepted, as upstream: tokens that we issue always have one.
    if at("exp")?.is_some_and(|t| now.saturating_sub(LEEWAY) > t) {
        return Err(AuthenticationError::new("service account token has expired"));
    }
    if at("iat")?.is_some_and(|t| now.saturating_add(LEEWAY) < t) {
        return Err(AuthenticationError::new(
            "service account token is issued in the future",
        ));
    }
    Ok(())
}

/// True if the object's deletion time passed longer ago than [`LEEWAY`].
fn deleted(object: &Value, now: i64) -> bool {
    let at = object.str_at(&["metadata", "deletionTimestamp"]);
    !at.is_empty() && time::parse(at).map_or(true, |t| t.unix_timestamp() < now.saturating_sub(LEEWAY))
}

async fn referred(
    objects: &dyn ObjectReader,
    claim: &Value,
    (resource, word): (&'static str, &str),
    namespace: &str,
    now: i64,
) -> Result<Option<Arc<dyn CacheDependency>>, AuthenticationError> {
    if claim.is_null() {
        return Ok(None);
    }
    let found = objects.get(resource, namespace, claim.str_at(&["name"])).await;
    // Failed reads count as gone, as upstream: better to reject a valid token for a moment than to accept a
    // revoked one.
    let Ok(Some(ResolvedObject { object, dependency })) = found else {
        return Err(AuthenticationError::new(GONE));
    };
    if deleted(&object, now) {
        return Err(AuthenticationError::new(GONE));
    }
    let (live, claimed) = (object.uid(), claim.str_at(&["uid"]));
    // A new object of the same name is not the one the token was bound to.
    if live != claimed {
        return Err(AuthenticationError(format!(
            "{word} UID ({live}) does not match service account {word} ref claim ({claimed})"
        )));
    }
    Ok(Some(dependency))
}

/// Validates the claims of a token whose signature has been verified.
pub(super) async fn check(
    objects: &dyn ObjectReader,
    claims: &Value,
    now: i64,
    counts: &ServiceAccountTokenMetrics,
) -> Result<TokenUser, AuthenticationError> {
    times(claims, now)?;
    let private = claims.get("kubernetes.io");
    let namespace = private.str_at(&["namespace"]);
    let (name, uid) = (
        private.str_at(&["serviceaccount", "name"]),
        private.str_at(&["serviceaccount", "uid"]),
    );
    let account = objects
        .get("serviceaccounts", namespace, name)
        .await
        .map_err(|e| AuthenticationError(e.to_string()))?;
    let account = account.ok_or_else(|| AuthenticationError(format!("serviceaccounts \"{name}\" not found")))?;
    let ResolvedObject {
        object: account,
        dependency,
    } = account;
    // Collected so that the token cache drops the result as soon as one of these objects changes.
    let mut dependencies = vec![dependency];
    if deleted(&account, now) {
        return Err(AuthenticationError(format!(
            "service account {namespace}/{name} has been deleted"
        )));
    }
    if account.uid() != uid {
        return Err(AuthenticationError(format!(
            "service account UID ({}) does not match claim ({uid})",
            account.uid()
        )));
    }
    let (pod, node) = (private.get("pod"), private.get("node"));
    dependencies.extend(referred(objects, private.get("secret"), ("secrets", "secret"), namespace, now).await?);
    dependencies.extend(referred(objects, pod, ("pods", "pod"), namespace, now).await?);
    if pod.is_null() {
        // With a pod, the node claim is informational: it is where the pod runs, not what the token is bound
        // to.
        dependencies.extend(referred(objects, node, ("nodes", "node"), "", now).await?);
    }
    let mut user = user_info(namespace, name, uid);
    let mut extra = |key: &str, value: &str| {
        if !value.is_empty() {
            user.extra.insert(key.to_owned(), vec![value.to_owned()]);
        }
    };
    for (claim, word) in [(pod, "pod"), (node, "node")] {
        extra(
            &format!("authentication.kubernetes.io/{word}-name"),
            claim.str_at(&["name"]),
        );
        extra(
            &format!("authentication.kubernetes.io/{word}-uid"),
            claim.str_at(&["uid"]),
        );
    }
    match claims.str_at(&["jti"]) {
        "" => {}
        id => extra(CREDENTIAL_ID, &format!("JTI={id}")),
    }
    let mut found = TokenUser::from(Arc::new(user));
    found.dependencies = dependencies;
    // Malformed values are ignored: the claim only serves statistics.
    let late = seconds(private, "warnafter")
        .ok()
        .flatten()
        .filter(|t| *t != 0 && now > *t);
    if let Some(warn_after) = late {
        let text = format!(
            "subject: {}, seconds after warning threshold: {}",
            claims.str_at(&["sub"]),
            now - warn_after
        );
        found.annotations.push(("authentication.k8s.io/stale-token", text));
        counts.stale.inc();
    } else {
        counts.valid.inc();
    }
    Ok(found)
}
