//! Delegated authorization for extension servers: a SubjectAccessReview per decision, sent to the core API
//! server and cached. Follows upstream's `k8s.io/apiserver/pkg/server/options/authorization.go`. A failed
//! review never allows a request.

use super::verdict_cache::VerdictCache;
use super::{AllowedPaths, Attributes, Authorizer, PrivilegedGroups, Rules, Union, Verdict, review};
use crate::apimachinery::Value;
use crate::apimachinery::codec::json;
use crate::apimachinery::value::Map;
use crate::client::retry::retry;
use crate::client::{Client, ClientError};
use crate::request::UserInfo;
use crate::tasks::Backoff;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// How long a positive result is cached. Upstream's default of `--authorization-webhook-cache-authorized-ttl`
/// for extension servers.
const ALLOW_TTL: Duration = Duration::from_secs(10);
/// How long a negative result is cached. A newly granted role takes up to this long to work.
const DENY_TTL: Duration = Duration::from_secs(10);

/// Sends reviews. A trait so that decisions and caching can be tested without a server.
#[async_trait]
pub trait Reviewer: Send + Sync + 'static {
    /// Submits a SubjectAccessReview and returns it with its status.
    async fn review(&self, review: &Value) -> Result<Value, ClientError>;
}

#[async_trait]
impl Reviewer for Client {
    async fn review(&self, review: &Value) -> Result<Value, ClientError> {
        self.create(PATH, review).await
    }
}

/// Authorizes by SubjectAccessReviews against another server.
///
/// ```
/// use async_trait::async_trait;
/// use std::sync::Arc;
/// use torana::apimachinery::Value;
/// use torana::json;
/// use torana::sdk::authn::UserInfo;
/// use torana::sdk::authz::{Attributes, Authorizer, Decision, Delegated, Reviewer};
/// use torana::sdk::client::ClientError;
///
/// /// Replaces the other server; outside of tests, the reviewer is a `Client` of it.
/// struct OnlyJane;
///
/// #[async_trait]
/// impl Reviewer for OnlyJane {
///     async fn review(&self, review: &Value) -> Result<Value, ClientError> {
///         let allowed = review.str_at(&["spec", "user"]) == "jane";
///         Ok(json!({"status": {"allowed": allowed}}))
///     }
/// }
///
/// # #[tokio::main]
/// # async fn main() {
/// let access = Delegated::recommended(Arc::new(OnlyJane));
/// for (name, expected) in [("jane", Decision::Allow), ("joe", Decision::NoOpinion)] {
///     let user = UserInfo { name: name.to_owned(), ..UserInfo::default() };
///     let list = Attributes { verb: "list", is_resource: true, resource: "pods", ..Attributes::empty(&user) };
///     assert_eq!(access.authorize(&list).await.decision, expected);
/// }
/// # }
/// ```
pub struct Delegated {
    reviewer: Arc<dyn Reviewer>,
    known: VerdictCache,
}

impl Delegated {
    /// Sends reviews through `reviewer`.
    pub fn new(reviewer: Arc<dyn Reviewer>) -> Self {
        Self {
            reviewer,
            known: VerdictCache::new(ALLOW_TTL, DENY_TTL),
        }
    }

    /// The recommended chain for extension servers: `system:masters` may do everything, health checks are
    /// open to all, and anything else is reviewed.
    pub fn recommended(reviewer: Arc<dyn Reviewer>) -> Union {
        Union::new(vec![
            // Before the review, so that administrators and probes get through while the core API server is
            // unreachable.
            Arc::new(PrivilegedGroups::masters()),
            Arc::new(AllowedPaths::new(["/healthz", "/readyz", "/livez"])),
            Arc::new(Self::new(reviewer)),
        ])
    }

    async fn ask(&self, spec: Value) -> Result<Value, ClientError> {
        let mut review = Map::new();
        review.insert("apiVersion", "authorization.k8s.io/v1");
        review.insert("kind", "SubjectAccessReview");
        review.insert("spec", spec);
        let review = Value::Object(review);
        retry(Backoff::WEBHOOK, || self.reviewer.review(&review)).await
    }
}

#[async_trait]
impl Authorizer for Delegated {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        let built = review::build(attributes, |a| {
            let spec = review::spec(a, "groups");
            // The whole question is the key: a verdict must never be reused for another user, group list or
            // selector.
            let key = json::to_string(&spec);
            (spec, key)
        });
        let (spec, key) = match built.await {
            Ok(built) => built,
            Err(busy) => {
                return Verdict {
                    error: Some(busy.to_string()),
                    ..Verdict::no_opinion("")
                };
            }
        };
        if let Some(verdict) = self.known.get(&key) {
            return verdict;
        }
        // Errors are not cached: the next request should find out whether the core API server is back.
        let failed = |error: String, verdict: Verdict| {
            tracing::warn!("SubjectAccessReview failed: {error}");
            Verdict {
                error: Some(error),
                ..verdict
            }
        };
        let review = match self.ask(spec).await {
            Ok(review) => review,
            Err(e) => return failed(e.to_string(), Verdict::no_opinion("")),
        };
        let verdict = match review::verdict(review.get("status")) {
            Ok(verdict) => verdict,
            // Denied, and an error: the error is the reviewer's, not the user's.
            Err(both) => return failed(both.to_string(), Verdict::deny("")),
        };
        self.known.insert(key, &verdict);
        verdict
    }

    async fn rules_for(&self, _: &UserInfo, _: &str) -> Rules {
        Rules::unknown("webhook authorizer does not support user rule resolution")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Decision;
    use super::*;
    use crate::json;
    use crate::request::RequestInfo;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct FakeReviewer(AtomicUsize, Option<Value>);

    #[async_trait]
    impl Reviewer for FakeReviewer {
        async fn review(&self, review: &Value) -> Result<Value, ClientError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert_eq!(review.str_at(&["spec", "user"]), "jane");
            let status = self.1.clone().ok_or(ClientError::Transport("gone".into()))?;
            Ok(json!({"status": (serde_json::Value::from(status))}))
        }
    }

    async fn ask(a: &dyn Authorizer, user: &UserInfo, uri: &str) -> Verdict {
        let info = RequestInfo::resolve(&http::Method::GET, &uri.parse().unwrap()).unwrap();
        a.authorize(&Attributes::of(user, &info)).await
    }

    fn delegated_to(answer: Option<Value>) -> (Arc<FakeReviewer>, Union) {
        let reviewer = Arc::new(FakeReviewer(AtomicUsize::new(0), answer));
        (reviewer.clone(), Delegated::recommended(reviewer))
    }

    #[tokio::test(start_paused = true)]
    async fn results_are_cached_for_ten_seconds() {
        let (attributes, a) = delegated_to(Some(json!({"allowed": true, "reason": "role"})));
        let jane = UserInfo::system("jane", &["dev"]);
        let path = "/apis/g/v1/namespaces/n/gadgets/x";
        assert_eq!(ask(&a, &jane, path).await, Verdict::allow("role"));
        assert_eq!(ask(&a, &jane, path).await, Verdict::allow("role"));
        assert_eq!(attributes.0.load(Ordering::Relaxed), 1);
        ask(&a, &jane, "/apis/g/v1/namespaces/n/gadgets/y").await;
        assert_eq!(
            attributes.0.load(Ordering::Relaxed),
            2,
            "another name needs its own review"
        );
        tokio::time::advance(Duration::from_secs(11)).await;
        ask(&a, &jane, path).await;
        assert_eq!(attributes.0.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_review_does_not_allow_and_is_not_cached() {
        let (attributes, a) = delegated_to(None);
        let jane = UserInfo::system("jane", &[]);
        let v = ask(&a, &jane, "/apis/g/v1/gadgets").await;
        assert_eq!((v.decision, v.error.as_deref()), (Decision::NoOpinion, Some("gone")));
        assert_eq!(attributes.0.load(Ordering::Relaxed), 5, "retried before giving up");
        ask(&a, &jane, "/apis/g/v1/gadgets").await;
        assert_eq!(attributes.0.load(Ordering::Relaxed), 10);
    }

    #[tokio::test]
    async fn a_contradictory_review_denies_with_an_error() {
        let (attributes, a) = delegated_to(Some(json!({"allowed": true, "denied": true})));
        let jane = UserInfo::system("jane", &[]);
        for asked in 1..=2 {
            let v = ask(&a, &jane, "/apis/g/v1/gadgets").await;
            assert_eq!(v.decision, Decision::Deny);
            assert!(v.error.is_some_and(|e| e.contains("both allow and deny")));
            assert_eq!(attributes.0.load(Ordering::Relaxed), asked, "it is not cached");
        }
    }

    #[tokio::test]
    async fn masters_and_health_checks_need_no_review() {
        let (attributes, a) = delegated_to(None);
        let root = UserInfo::system("root", &["system:masters"]);
        assert_eq!(ask(&a, &root, "/apis/g/v1/gadgets").await.decision, Decision::Allow);
        assert_eq!(
            ask(&a, &UserInfo::anonymous(), "/readyz").await.decision,
            Decision::Allow
        );
        assert_eq!(attributes.0.load(Ordering::Relaxed), 0);
        let (_, a) = delegated_to(Some(json!({"denied": true})));
        assert_eq!(
            ask(&a, &UserInfo::system("jane", &[]), "/apis/g/v1/x").await.decision,
            Decision::Deny
        );
    }
}
