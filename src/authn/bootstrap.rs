//! Bootstrap tokens (`--enable-bootstrap-token-auth`): `<id>.<secret>`, stored in Secrets of kube-system,
//! used by joining nodes. Follows upstream's `plugin/pkg/auth/authenticator/token/bootstrap`: an invalid
//! token is never an error, only unrecognised.

use super::service_account::{Clock, ObjectReader, ResolvedObject};
use super::{AuthenticationError, PresentedToken, TokenAuthenticator, TokenUser};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::time;
use crate::request::UserInfo;
use async_trait::async_trait;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeSet;
use std::sync::Arc;

const GROUP: &str = "system:bootstrappers";

pub(crate) struct BootstrapTokens {
    objects: Arc<dyn ObjectReader>,
    clock: Clock,
}

impl BootstrapTokens {
    /// Reads the Secrets through `objects`.
    pub(crate) fn new(objects: Arc<dyn ObjectReader>, clock: Clock) -> Self {
        Self { objects, clock }
    }

    async fn user(&self, token: &str) -> Option<TokenUser> {
        let (id, secret) = split(token)?;
        let name = format!("bootstrap-token-{id}");
        // Unreadable counts as unknown: this authenticator never fails, so that others can still accept the
        // token.
        let found = self.objects.get("secrets", "kube-system", &name).await.ok()??;
        let ResolvedObject {
            object: stored,
            dependency,
        } = found;
        // A Secret that waits for finalizers is already revoked.
        if stored.is_being_deleted() || stored.str_at(&["type"]) != "bootstrap.kubernetes.io/token" {
            return None;
        }
        let data = |key: &str| STANDARD.decode(stored.str_at(&["data", key])).unwrap_or_default();
        let text = |key: &str| String::from_utf8(data(key)).unwrap_or_default();
        // Constant time, so that response times do not reveal a prefix of the secret.
        if text("token-id") != id || verify_slices_are_equal(&data("token-secret"), secret.as_bytes()).is_err() {
            return None;
        }
        let expiration = text("expiration");
        // An expiration that cannot be parsed counts as over: failing open would make the token permanent.
        let expired = || time::parse(&expiration).map_or(true, |t| t.unix_timestamp() <= (self.clock)());
        if !expiration.is_empty() && expired() {
            return None;
        }
        if text("usage-bootstrap-authentication") != "true" {
            return None;
        }
        // A set, because upstream returns the groups sorted.
        let mut groups = BTreeSet::from([GROUP.to_owned()]);
        let more = text("auth-extra-groups");
        // `split` yields one empty string for an empty text, which would be an invalid group.
        for group in more.split(',').filter(|_| !more.is_empty()) {
            // Invalid as a whole, not merely without the group: Secrets are writable by more people than may
            // grant system:masters.
            if !is_bootstrap_group(group) {
                return None;
            }
            groups.insert(group.to_owned());
        }
        let user = UserInfo {
            name: format!("system:bootstrap:{id}"),
            groups: groups.into_iter().collect(),
            ..UserInfo::default()
        };
        Some(TokenUser {
            dependencies: vec![dependency],
            ..TokenUser::from(Arc::new(user))
        })
    }
}

/// Splits a token into its id (6 characters) and secret (16 characters).
fn split(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |s: &str| s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some((id, secret))
}

fn is_bootstrap_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else {
        return false;
    };
    let end = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    rest.len() <= 256
        && rest.bytes().all(|b| end(b) || matches!(b, b':' | b'-'))
        && rest.bytes().next_back().is_some_and(end)
}

#[async_trait]
impl TokenAuthenticator for BootstrapTokens {
    async fn authenticate_token(
        &self,
        presented: PresentedToken<'_>,
    ) -> Result<Option<TokenUser>, AuthenticationError> {
        Ok(self.user(presented.token).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::value::Value;
    use crate::authn::service_account::Unreadable;
    use crate::json;

    struct One(Value);

    #[derive(Debug)]
    struct Fixed;

    impl crate::authn::CacheDependency for Fixed {
        fn is_unchanged(&self) -> bool {
            true
        }
    }

    #[async_trait]
    impl ObjectReader for One {
        async fn get(&self, _: &'static str, ns: &str, name: &str) -> Result<Option<ResolvedObject>, Unreadable> {
            assert_eq!(ns, "kube-system");
            Ok((name == "bootstrap-token-abcdef").then(|| ResolvedObject {
                object: self.0.clone(),
                dependency: Arc::new(Fixed),
            }))
        }
        async fn label_secret(&self, _: &str, _: &str, _: &'static str, _: &str) {}
    }

    async fn ask(token: &str, edits: &[(&str, &str)]) -> Option<TokenUser> {
        let mut secret = json!({"type": "bootstrap.kubernetes.io/token"});
        let data = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
        ];
        for (k, v) in data.iter().chain(edits) {
            secret.set(&["data", k], STANDARD.encode(v));
        }
        let tokens = BootstrapTokens::new(Arc::new(One(secret)), Arc::new(|| 1_800_000_000));
        let presented = PresentedToken { token, audiences: &[] };
        tokens.authenticate_token(presented).await.unwrap()
    }

    #[tokio::test]
    async fn a_token_is_valid_while_its_secret_allows_it() {
        let good = "abcdef.0123456789abcdef";
        let groups = [("auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a")];
        let user = ask(good, &groups).await.unwrap().user;
        assert_eq!(user.name, "system:bootstrap:abcdef");
        assert_eq!(
            user.groups,
            [
                "system:bootstrappers",
                "system:bootstrappers:a",
                "system:bootstrappers:b"
            ]
        );
        assert!(ask(good, &[("expiration", "2027-01-15T08:00:01Z")]).await.is_some());
        for bad in [
            ("expiration", "2027-01-15T08:00:00Z"),
            ("expiration", "soon"),
            ("usage-bootstrap-authentication", "yes"),
            ("token-secret", "0123456789abcdeg"),
            ("token-id", "abcdeg"),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:a,"),
        ] {
            assert!(ask(good, &[bad]).await.is_none(), "{bad:?}");
        }
        for token in [
            "abcdef.0123456789abcde",
            "ABCDEF.0123456789abcdef",
            "abcdef",
            "xxxxxx.0123456789abcdef",
        ] {
            assert!(ask(token, &[]).await.is_none(), "{token}");
        }
    }
}
