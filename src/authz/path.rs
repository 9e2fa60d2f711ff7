//! Authorizers that look only at groups or paths: [`PrivilegedGroups`] and [`AllowedPaths`]. They need no
//! storage, so they work while everything else is starting or broken.

use super::{Attributes, Authorizer, Verdict};
use crate::request::user::MASTERS;
use async_trait::async_trait;

/// Allows members of the given groups everything. Gives no reason, like upstream.
pub(crate) struct PrivilegedGroups(Vec<String>);

impl PrivilegedGroups {
    /// Allows members of `system:masters`.
    pub(crate) fn masters() -> Self {
        Self(vec![MASTERS.to_owned()])
    }

    fn decide(&self, attributes: &Attributes<'_>) -> Verdict {
        if self.0.iter().any(|g| attributes.user.in_group(g)) {
            Verdict::allow("")
        } else {
            Verdict::no_opinion("")
        }
    }
}

#[async_trait]
impl Authorizer for PrivilegedGroups {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        self.decide(attributes)
    }

    fn authorize_sync(&self, attributes: &Attributes<'_>) -> Option<Verdict> {
        Some(self.decide(attributes))
    }
}

/// Allows non-resource paths. A trailing `*` matches any suffix.
pub(crate) struct AllowedPaths {
    exact: Vec<String>,
    prefixes: Vec<String>,
    /// `None`: any verb.
    verb: Option<&'static str>,
    /// `None`: any caller.
    group: Option<&'static str>,
    reason: &'static str,
}

impl AllowedPaths {
    /// Lets everyone `get` the paths of ClusterRole `system:public-info-viewer`, whose default binding
    /// includes both authenticated and unauthenticated users.
    #[cfg(test)]
    pub(crate) fn public_info() -> Self {
        let mut me = Self::new(["/healthz", "/livez", "/readyz", "/version", "/version/"]);
        me.verb = Some("get");
        me.reason = "allowed to everybody: public information";
        me
    }

    /// Lets authenticated users `get` the paths of ClusterRole `system:discovery`, as its default binding
    /// does.
    #[cfg(test)]
    pub(crate) fn discovery() -> Self {
        let mut me = Self::new(["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]);
        me.verb = Some("get");
        me.group = Some(crate::request::user::AUTHENTICATED);
        me.reason = "allowed to callers with credentials: discovery";
        me
    }

    /// Any paths with any verb: `--authorization-always-allow-paths` of extension servers.
    pub(crate) fn new(paths: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let (mut exact, mut prefixes) = (Vec::new(), Vec::new());
        for path in paths {
            let path: String = path.into();
            // Split once, so that decisions need not look for stars.
            match path.strip_suffix('*') {
                Some(prefix) => prefixes.push(prefix.to_owned()),
                None => exact.push(path),
            }
        }
        Self {
            exact,
            prefixes,
            verb: None,
            group: None,
            reason: "",
        }
    }
}

#[async_trait]
impl Authorizer for AllowedPaths {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        self.decide(attributes)
    }

    fn authorize_sync(&self, attributes: &Attributes<'_>) -> Option<Verdict> {
        Some(self.decide(attributes))
    }
}

impl AllowedPaths {
    fn decide(&self, attributes: &Attributes<'_>) -> Verdict {
        // Resource requests never match, even if their path would, as in upstream's `pkg/authorization/path`.
        if !attributes.is_resource
            && self.verb.is_none_or(|v| v == attributes.verb)
            && self.group.is_none_or(|g| attributes.user.in_group(g))
            && (self.exact.iter().any(|p| p == attributes.path)
                || self.prefixes.iter().any(|p| attributes.path.starts_with(p)))
        {
            Verdict::allow(self.reason)
        } else {
            Verdict::no_opinion("")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::Decision;
    use crate::request::{RequestInfo, UserInfo};
    use http::Method;

    async fn ask(authorizer: &dyn Authorizer, user: &UserInfo, method: Method, uri: &str) -> Decision {
        let info = RequestInfo::resolve(&method, &uri.parse().unwrap()).unwrap();
        authorizer.authorize(&Attributes::of(user, &info)).await.decision
    }

    #[tokio::test]
    async fn public_info_paths_are_open_to_everyone_and_exact() {
        let a = AllowedPaths::public_info();
        let nobody = UserInfo::anonymous();
        for path in ["/healthz", "/livez", "/readyz", "/version", "/version/"] {
            assert_eq!(ask(&a, &nobody, Method::GET, path).await, Decision::Allow, "{path}");
        }
        for path in ["/livez/ping", "/livez/", "/metrics", "/", "/api/v1/pods"] {
            assert_eq!(ask(&a, &nobody, Method::GET, path).await, Decision::NoOpinion, "{path}");
        }
        assert_eq!(ask(&a, &nobody, Method::POST, "/version").await, Decision::NoOpinion);
    }

    #[tokio::test]
    async fn discovery_is_readable_by_authenticated_users_only() {
        let a = AllowedPaths::discovery();
        let user = UserInfo::system("u", &["system:authenticated"]);
        for path in ["/api", "/apis/apps/v1", "/openapi/v3/apis/apps/v1"] {
            assert_eq!(ask(&a, &user, Method::GET, path).await, Decision::Allow, "{path}");
            assert_eq!(ask(&a, &user, Method::POST, path).await, Decision::NoOpinion, "{path}");
            assert_eq!(
                ask(&a, &UserInfo::anonymous(), Method::GET, path).await,
                Decision::NoOpinion
            );
        }
        for path in ["/api/v1/pods", "/apis/apps/v1/deployments", "/metrics", "/apiserver"] {
            assert_eq!(ask(&a, &user, Method::GET, path).await, Decision::NoOpinion, "{path}");
        }
    }

    #[tokio::test]
    async fn masters_may_do_everything() {
        let a = PrivilegedGroups::masters();
        let root = UserInfo::system("root", &["system:masters"]);
        assert_eq!(ask(&a, &root, Method::DELETE, "/api/v1/nodes/a").await, Decision::Allow);
        let user = UserInfo::system("u", &["users"]);
        assert_eq!(
            ask(&a, &user, Method::GET, "/api/v1/nodes/a").await,
            Decision::NoOpinion
        );
    }
}
