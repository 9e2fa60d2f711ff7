//! Validation of legacy tokens, which are stored in Secrets. Entry point: [`Check::validate`], for claims
//! whose signature has been verified. Follows upstream's `pkg/serviceaccount/legacy.go`.

use super::{ObjectReader, ResolvedObject, user_info, user_name};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::authn::{AuthenticationError, TokenUser};
use crate::telemetry::access::ServiceAccountTokenMetrics;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;

const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const DAY: i64 = 24 * 3600;

fn refused<T>(why: impl Into<String>) -> Result<T, AuthenticationError> {
    Err(AuthenticationError(why.into()))
}

/// Validates tokens as of one point in time.
pub(super) struct Check<'a> {
    pub objects: &'a Arc<dyn ObjectReader>,
    pub counts: &'a ServiceAccountTokenMetrics,
    pub now: i64,
}

impl Check<'_> {
    /// Validates the claims of a token whose signature has been verified. `lookup` also checks its Secret and
    /// account.
    pub(super) async fn validate(
        &self,
        claims: &Value,
        text: &str,
        lookup: bool,
    ) -> Result<TokenUser, AuthenticationError> {
        let claim = |name: &str| claims.str_at(&[name]);
        let private = |name: &str| claims.str_at(&[&format!("kubernetes.io/serviceaccount/{name}")]);
        let (namespace, secret) = (private("namespace"), private("secret.name"));
        let (name, uid) = (private("service-account.name"), private("service-account.uid"));
        // In upstream's order, which decides the message.
        for (word, value) in [
            ("sub", claim("sub")),
            ("namespace", namespace),
            ("secretName", secret),
            ("serviceAccountName", name),
            ("serviceAccountUID", uid),
        ] {
            if value.is_empty() {
                return refused(format!("{word} claim is missing"));
            }
        }
        if claim("sub") != user_name(namespace, name) {
            return refused("sub claim is invalid");
        }
        let mut found = TokenUser::from(Arc::new(user_info(namespace, name, uid)));
        if lookup {
            let at = LegacyLookup { check: self, namespace };
            at.validate_objects(&mut found, (name, uid), secret, text).await?;
        }
        Ok(found)
    }
}

struct LegacyLookup<'a> {
    check: &'a Check<'a>,
    namespace: &'a str,
}

impl LegacyLookup<'_> {
    async fn validate_objects(
        &self,
        found: &mut TokenUser,
        (name, uid): (&str, &str),
        secret: &str,
        text: &str,
    ) -> Result<(), AuthenticationError> {
        let (objects, namespace) = (self.check.objects, self.namespace);
        let ResolvedObject {
            object: stored,
            dependency,
        } = match objects.get("secrets", namespace, secret).await {
            Ok(Some(stored)) if !stored.object.is_being_deleted() => stored,
            // A failed read, too, as upstream: rather refuse a valid token for a moment than accept a revoked
            // one.
            _ => return refused("Token has been invalidated"),
        };
        // A Secret whose token was replaced revokes the old one, although its signature still verifies.
        let copy = STANDARD.decode(stored.str_at(&["data", "token"])).unwrap_or_default();
        if verify_slices_are_equal(&copy, text.as_bytes()).is_err() {
            return refused("Token does not match server's copy");
        }
        found.dependencies.push(dependency);
        let account = objects
            .get("serviceaccounts", namespace, name)
            .await
            .map_err(|e| AuthenticationError(e.to_string()))?;
        let Some(ResolvedObject {
            object: account,
            dependency,
        }) = account
        else {
            return refused(format!("serviceaccounts \"{name}\" not found"));
        };
        found.dependencies.push(dependency);
        if account.is_being_deleted() {
            return refused(format!("ServiceAccount {namespace}/{name} has been deleted"));
        }
        if account.uid() != uid {
            return refused(format!(
                "ServiceAccount UID ({}) does not match claim ({uid})",
                account.uid()
            ));
        }
        // Before the check below, so that use of an invalidated token is recorded too.
        self.note_use(&stored, secret).await;
        if stored.label(INVALID_SINCE).is_some_and(|l| !l.is_empty()) {
            self.check.counts.invalid.inc();
            return refused(format!(
                "the token in secret {namespace}/{secret} for service account {namespace}/{name} has been marked \
                 invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the \
                 '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
            ));
        }
        // Secrets listed in the account were generated for it by old controllers; those that users create are
        // not listed.
        let listed = account
            .get("secrets")
            .items()
            .iter()
            .any(|s| s.str_at(&["name"]) == secret);
        if listed {
            found.warnings.push(
                "Use tokens from the TokenRequest API or manually created secret-based tokens instead of \
                 auto-generated secret-based tokens."
                    .to_owned(),
            );
            let which = "authentication.k8s.io/legacy-token-autogenerated-secret";
            found.annotations.push((which, secret.to_owned()));
            self.check.counts.automatic.inc();
        } else {
            let which = "authentication.k8s.io/legacy-token-manual-secret";
            found.annotations.push((which, secret.to_owned()));
            self.check.counts.manual.inc();
        }
        Ok(())
    }

    /// Updates the last-used label once a day. Tomorrow's date is accepted too, as another server's clock may
    /// be ahead.
    async fn note_use(&self, stored: &Value, secret: &str) {
        let day = |at: i64| time::format_unix(at).map(|t| t[..10].to_owned()).unwrap_or_default();
        let (today, tomorrow) = (day(self.check.now), day(self.check.now + DAY));
        let last = stored.label(LAST_USED).unwrap_or_default();
        // At most one write per Secret and day, however often the token is used.
        if last != today && last != tomorrow {
            self.check
                .objects
                .label_secret(self.namespace, secret, LAST_USED, &today)
                .await;
        }
    }
}
