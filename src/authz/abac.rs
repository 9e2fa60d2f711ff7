//! ABAC (`--authorization-policy-file`): a file read once, with one JSON policy of
//! `abac.authorization.kubernetes.io/v1beta1` per line. Follows upstream's `pkg/auth/authorizer/abac`.

use super::rbac::PolicyRule;
use super::{Attributes, Authorizer, Rules, Verdict};
use crate::apimachinery::codec::json;
use crate::request::UserInfo;
use crate::request::user::AUTHENTICATED;
use async_trait::async_trait;

struct Policy {
    user: String,
    group: String,
    readonly: bool,
    api_group: String,
    resource: String,
    namespace: String,
    path: String,
}

/// The ABAC authorizer: the policies in file order.
pub struct Abac(Vec<Policy>);

/// A line of a policy file is invalid.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {source}")]
pub struct Error {
    /// Counted from 1.
    line: usize,
    source: InvalidLine,
}

/// An error in a line.
#[derive(Debug, thiserror::Error)]
enum InvalidLine {
    #[error(transparent)]
    Json(#[from] json::Error),
    #[error("expected apiVersion abac.authorization.kubernetes.io/v1beta1 and kind Policy")]
    Kind,
}

const READS: [&str; 3] = ["get", "list", "watch"];

fn one_or_any(policy: &str, attributes: &str) -> bool {
    policy == "*" || policy == attributes
}

impl Policy {
    fn parse(line: &str) -> Result<Self, InvalidLine> {
        let v = json::decode(line.as_bytes())?;
        if v.str_at(&["apiVersion"]) != "abac.authorization.kubernetes.io/v1beta1" || v.str_at(&["kind"]) != "Policy" {
            return Err(InvalidLine::Kind);
        }
        let text = |key: &str| v.str_at(&["spec", key]).to_owned();
        Ok(Self {
            user: text("user"),
            group: text("group"),
            readonly: v.at(&["spec", "readonly"]).as_bool() == Some(true),
            api_group: text("apiGroup"),
            resource: text("resource"),
            namespace: text("namespace"),
            path: text("nonResourcePath"),
        })
    }

    /// True if the policy's subject matches. `*` as user or group matches every authenticated user, whatever the
    /// other field says; otherwise both must match if both are given.
    fn is_about(&self, user: &UserInfo) -> bool {
        // In v1beta1, `*` means every authenticated user, not everybody: anonymous requests must not match it
        // (upstream's `pkg/apis/abac/v1beta1/conversion.go`).
        match (self.user.as_str(), self.group.as_str()) {
            ("*", _) | (_, "*") => user.in_group(AUTHENTICATED),
            // A policy without a subject matches nobody, as in upstream's `subjectMatches`: a forgotten field
            // must not open the server.
            ("", "") => false,
            (name, "") => name == user.name,
            ("", group) => user.in_group(group),
            (name, group) => name == user.name && user.in_group(group),
        }
    }

    fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if self.readonly && !READS.contains(&attributes.verb) {
            return false;
        }
        if attributes.is_resource {
            one_or_any(&self.namespace, attributes.namespace)
                && one_or_any(&self.resource, attributes.resource)
                && one_or_any(&self.api_group, attributes.api_group)
        } else {
            // A policy without a path cannot match here: request paths are never empty.
            let prefix = self.path.strip_suffix('*');
            self.path == attributes.path || prefix.is_some_and(|p| attributes.path.starts_with(p))
        }
    }

    fn rule(&self, namespace: &str) -> Vec<PolicyRule> {
        let verbs: Vec<_> = if self.readonly {
            READS.iter().map(|v| (*v).into()).collect()
        } else {
            vec!["*".into()]
        };
        let mut out = Vec::new();
        // One policy may describe both a resource and a path; a review lists them as two rules.
        if !self.resource.is_empty() && one_or_any(&self.namespace, namespace) {
            out.push(PolicyRule {
                verbs: verbs.clone(),
                api_groups: vec![self.api_group.as_str().into()],
                resources: vec![self.resource.as_str().into()],
                ..PolicyRule::default()
            });
        }
        if !self.path.is_empty() {
            out.push(PolicyRule {
                verbs,
                non_resource_urls: vec![self.path.as_str().into()],
                ..PolicyRule::default()
            });
        }
        out
    }
}

impl Abac {
    /// Parses a policy file. Empty lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// The number of the first invalid line, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut policies = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let policy = Policy::parse(line).map_err(|source| Error { line: n + 1, source });
            policies.push(policy?);
        }
        Ok(Self(policies))
    }
}

impl Abac {
    fn decide(&self, attributes: &Attributes<'_>) -> Verdict {
        if self
            .0
            .iter()
            .any(|p| p.is_about(attributes.user) && p.allows(attributes))
        {
            Verdict::allow("")
        } else {
            Verdict::no_opinion("No policy matched.")
        }
    }
}

#[async_trait]
impl Authorizer for Abac {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        self.decide(attributes)
    }

    fn authorize_sync(&self, attributes: &Attributes<'_>) -> Option<Verdict> {
        Some(self.decide(attributes))
    }

    async fn rules_for(&self, user: &UserInfo, namespace: &str) -> Rules {
        let mine = self.0.iter().filter(|p| p.is_about(user));
        Rules {
            rules: mine.flat_map(|p| p.rule(namespace)).collect(),
            ..Rules::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::Decision;
    use crate::request::RequestInfo;
    use http::Method;

    #[tokio::test]
    async fn policies_are_parsed_line_by_line() {
        let a = Abac::parse(
            r##"
# people
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"bob","namespace":"n","resource":"pods","apiGroup":"*","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"dev","namespace":"*","resource":"*","apiGroup":"*"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"*","nonResourcePath":"/version*"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"*","group":"ops","nonResourcePath":"/metrics"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"joe","group":"*","nonResourcePath":"/logs"}}
"##,
        )
        .unwrap();
        let may = async |user: UserInfo, method: Method, uri: &str| {
            let info = RequestInfo::resolve(&method, &uri.parse().unwrap()).unwrap();
            let verdict = a.authorize(&Attributes::of(&user, &info)).await;
            verdict.decision == Decision::Allow
        };
        let bob = || UserInfo::system("bob", &["system:authenticated"]);
        assert!(may(bob(), Method::GET, "/api/v1/namespaces/n/pods").await);
        assert!(!may(bob(), Method::DELETE, "/api/v1/namespaces/n/pods/x").await);
        assert!(!may(bob(), Method::GET, "/api/v1/namespaces/m/pods").await);
        assert!(
            may(
                UserInfo::system("x", &["dev"]),
                Method::DELETE,
                "/apis/apps/v1/namespaces/m/deployments/d"
            )
            .await
        );
        assert!(may(bob(), Method::GET, "/version").await);
        assert!(!may(UserInfo::anonymous(), Method::GET, "/version").await);
        // Only one of user and group is `*`.
        assert!(may(bob(), Method::GET, "/metrics").await);
        assert!(may(bob(), Method::GET, "/logs").await);
        assert!(!may(UserInfo::anonymous(), Method::GET, "/logs").await);
        assert!(Abac::parse("{}\n").is_err_and(|e| e.to_string().starts_with("line 1: ")));
    }
}
