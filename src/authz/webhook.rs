//! Webhook authorization: `--authorization-webhook-*`, or an entry of the authorization configuration.
//! Follows upstream's `plugin/pkg/authorizer/webhook`. Results are cached. If the webhook cannot be reached,
//! the failure policy decides, and the error makes the request a 500 unless another authorizer allows it.

use super::match_conditions::{ConditionError, MatchConditions};
use super::review::{Busy, Contradiction};
use super::verdict_cache::VerdictCache;
use super::{Attributes, Authorizer, Rules, Verdict, review};
use crate::apimachinery::codec::json;
use crate::client::fetch::{FetchError, Fetcher};
use crate::client::retry::retry;
use crate::client::{ClientConfig, KubeconfigError};
use crate::request::UserInfo;
use crate::tasks::Backoff;
use crate::telemetry::clients::ClientRequestMetrics;
use crate::telemetry::match_conditions::AuthorizerConditionMetrics;
use async_trait::async_trait;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// API version of the SubjectAccessReviews sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `authorization.k8s.io/v1`
    V1,
    /// `authorization.k8s.io/v1beta1`
    V1Beta1,
}

/// Configuration of one webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfig {
    /// Path of the kubeconfig; the URL is the server of its current context.
    pub kubeconfig: PathBuf,
    /// API version of the reviews.
    pub version: ReviewVersion,
    /// How long an allow is cached; zero: not at all.
    pub authorized_ttl: Duration,
    /// How long any other result is cached; zero: not at all.
    pub unauthorized_ttl: Duration,
    /// Timeout of one attempt.
    pub timeout: Duration,
    /// Failure policy: true denies the request, false leaves it to the next authorizer.
    pub deny_on_failure: bool,
    /// The webhook is asked only if these hold.
    pub(crate) conditions: Option<Arc<MatchConditions>>,
}

/// Why the webhook cannot be called at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The kubeconfig cannot be read.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// A certificate, key, token or name in it cannot be used.
    #[error("kubeconfig {}: {source}", .file.display())]
    Client { file: PathBuf, source: FetchError },
}

/// Why no decision was reached. The message becomes part of the response to the request.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error(transparent)]
    Conditions(ConditionError),
    #[error(transparent)]
    Fetch(FetchError),
    #[error("the webhook's response is not valid JSON: {0}")]
    Json(#[source] json::Error),
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    #[error(transparent)]
    Busy(#[from] Busy),
}

/// Sends reviews to a URL. A trait so that decisions and caching can be tested without a server.
#[async_trait]
pub(crate) trait ReviewTransport: Send + Sync + 'static {
    /// Posts a review and returns the response body.
    async fn ask(&self, review: Vec<u8>) -> Result<Vec<u8>, FetchError>;
}

struct Url {
    fetcher: Fetcher,
    url: String,
}

#[async_trait]
impl ReviewTransport for Url {
    async fn ask(&self, review: Vec<u8>) -> Result<Vec<u8>, FetchError> {
        Ok(self.fetcher.post(&self.url, review).await?.to_vec())
    }
}

pub(crate) struct Webhook {
    ask: Arc<dyn ReviewTransport>,
    config: WebhookConfig,
    known: VerdictCache,
    /// Metrics of match conditions, with the name of the authorizer.
    metrics: Option<(AuthorizerConditionMetrics, String)>,
}

impl Webhook {
    /// Builds the authorizer from its kubeconfig.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub(crate) fn try_new(config: WebhookConfig, counts: ClientRequestMetrics) -> Result<Self, ConfigError> {
        let client = ClientConfig::from_kubeconfig(&config.kubeconfig)?;
        let fetcher = Fetcher::with(&client, config.timeout).map_err(|source| ConfigError::Client {
            file: config.kubeconfig.clone(),
            source,
        })?;
        let (fetcher, url) = (fetcher.with_metrics(counts), client.server);
        Ok(Self::asking(Arc::new(Url { fetcher, url }), config))
    }

    /// Sends reviews through `ask`.
    pub(crate) fn asking(ask: Arc<dyn ReviewTransport>, config: WebhookConfig) -> Self {
        Self {
            ask,
            known: VerdictCache::new(config.authorized_ttl, config.unauthorized_ttl),
            config,
            metrics: None,
        }
    }

    /// Counts evaluations of match conditions under the name of the authorizer.
    pub(crate) fn with_condition_metrics(mut self, metrics: AuthorizerConditionMetrics, name: &str) -> Self {
        self.metrics = Some((metrics, name.to_owned()));
        self
    }

    /// Whether the match conditions hold.
    async fn applies(&self, attributes: &Attributes<'_>) -> Result<bool, ReviewError> {
        let Some(conditions) = &self.config.conditions else {
            return Ok(true);
        };
        let began = Instant::now();
        let result = conditions.evaluate(attributes).await;
        if let Some((metrics, name)) = &self.metrics {
            // An exclusion counts only if it is certain. An error is a failure, whatever the policy makes of
            // it.
            metrics.evaluated(name, began.elapsed(), result.failed, result.applies == Ok(false));
        }
        result.applies.map_err(ReviewError::Conditions)
    }

    fn failed(&self, error: &ReviewError, deny: bool) -> Verdict {
        let verdict = match deny {
            true => Verdict::deny(""),
            false => Verdict::no_opinion(""),
        };
        Verdict {
            error: Some(error.to_string()),
            ..verdict
        }
    }

    /// Asks the webhook; `spec` is encoded.
    async fn fetch(&self, spec: &str) -> Result<Verdict, ReviewError> {
        let version = match self.config.version {
            ReviewVersion::V1 => "v1",
            ReviewVersion::V1Beta1 => "v1beta1",
        };
        // With the zero values that Go encodes: webhooks may decode strictly.
        // As text, because a spec with long selectors takes milliseconds to encode.
        let body = format!(
            r#"{{"apiVersion":"authorization.k8s.io/{version}","kind":"SubjectAccessReview","metadata":{{}},"spec":{spec},"status":{{"allowed":false}}}}"#
        );
        let answer = retry(Backoff::WEBHOOK, || self.ask.ask(body.clone().into_bytes())).await;
        let answer = json::decode(&answer.map_err(ReviewError::Fetch)?).map_err(ReviewError::Json)?;
        Ok(review::verdict(answer.get("status"))?)
    }
}

#[async_trait]
impl Authorizer for Webhook {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        // Conditions before the cache, as upstream: their metrics count every request, cached or not.
        match self.applies(attributes).await {
            Ok(true) => {}
            Ok(false) => return Verdict::no_opinion(""),
            Err(error) => {
                tracing::warn!("match conditions of an authorization webhook failed: {error}");
                return self.failed(&error, self.config.deny_on_failure);
            }
        }
        let groups = match self.config.version {
            ReviewVersion::V1 => "groups",
            ReviewVersion::V1Beta1 => "group",
        };
        let spec = review::build(attributes, move |a| json::to_string(&review::spec(a, groups))).await;
        let spec = match spec {
            Ok(spec) => spec,
            Err(busy) => return self.failed(&busy.into(), self.config.deny_on_failure),
        };
        if let Some(verdict) = self.known.get(&spec) {
            return verdict;
        }
        match self.fetch(&spec).await {
            Ok(verdict) => {
                self.known.insert(spec, &verdict);
                verdict
            }
            Err(error) => {
                tracing::warn!("authorization webhook failed: {error}");
                // A contradictory response is denied regardless of the failure policy.
                let both = matches!(error, ReviewError::Contradiction(_));
                self.failed(&error, both || self.config.deny_on_failure)
            }
        }
    }

    async fn rules_for(&self, _: &UserInfo, _: &str) -> Rules {
        Rules::unknown("webhook authorizer does not support user rule resolution")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Decision;
    use super::*;
    use crate::apimachinery::field::{ErrorList, FieldPath};
    use crate::request::RequestInfo;
    use crate::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct FakeFetcher(AtomicUsize, Mutex<Vec<u8>>, Result<&'static str, FetchError>);

    #[async_trait]
    impl ReviewTransport for FakeFetcher {
        async fn ask(&self, review: Vec<u8>) -> Result<Vec<u8>, FetchError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            *self.1.lock() = review;
            self.2.clone().map(|s| s.as_bytes().to_vec())
        }
    }

    fn hook(says: Result<&'static str, FetchError>, deny: bool, version: ReviewVersion) -> (Arc<FakeFetcher>, Webhook) {
        let says = Arc::new(FakeFetcher(AtomicUsize::new(0), Mutex::default(), says));
        let config = WebhookConfig {
            kubeconfig: PathBuf::new(),
            version,
            authorized_ttl: Duration::from_secs(300),
            unauthorized_ttl: Duration::from_secs(30),
            timeout: Duration::from_secs(30),
            deny_on_failure: deny,
            conditions: None,
        };
        (says.clone(), Webhook::asking(says, config))
    }

    #[tokio::test]
    async fn only_requests_that_match_are_sent_to_the_webhook() {
        let conditioned = |expression: &str, deny: bool| {
            let (says, mut w) = hook(Ok(r#"{"status":{"allowed":true}}"#), deny, ReviewVersion::V1);
            let list = crate::json!([{"expression": expression}]);
            let mut errors = ErrorList::new();
            let conditions = MatchConditions::parse(&list, &FieldPath::default(), &mut errors);
            w.config.conditions = conditions.map(Arc::new);
            (says, w)
        };
        let (says, w) = conditioned("request.resourceAttributes.namespace == 'n'", false);
        assert_eq!(ask(&w, "/api/v1/namespaces/m/pods").await, Verdict::no_opinion(""));
        assert_eq!(says.0.load(Ordering::Relaxed), 0);
        assert_eq!(ask(&w, "/api/v1/namespaces/n/pods").await.decision, Decision::Allow);
        for (deny, decision) in [(false, Decision::NoOpinion), (true, Decision::Deny)] {
            let (_, w) = conditioned("request.resourceAttributes.namespace == 'n'", deny);
            let verdict = ask(&w, "/healthz").await;
            assert_eq!(verdict.decision, decision);
            assert!(verdict.error.unwrap().ends_with("no such key: resourceAttributes"));
        }
    }

    async fn ask(w: &Webhook, uri: &str) -> Verdict {
        let info = RequestInfo::resolve(&http::Method::GET, &uri.parse().unwrap()).unwrap();
        let user = UserInfo::system("jane", &["dev"]);
        w.authorize(&Attributes::of(&user, &info)).await
    }

    #[tokio::test(start_paused = true)]
    async fn results_are_cached_by_their_ttl() {
        let (attributes, w) = hook(
            Ok(r#"{"status":{"allowed":true,"reason":"r"}}"#),
            false,
            ReviewVersion::V1Beta1,
        );
        let uri = "/api/v1/namespaces/n/pods?fieldSelector=spec.nodeName%3Da&labelSelector=x%20in%20(a,b)";
        assert_eq!(ask(&w, uri).await, Verdict::allow("r"));
        let sent = json::decode(&attributes.1.lock()).unwrap();
        assert_eq!(sent.str_at(&["apiVersion"]), "authorization.k8s.io/v1beta1");
        assert_eq!(sent.at(&["spec", "group"]), &crate::json!(["dev"]));
        assert_eq!(
            sent.at(&["spec", "resourceAttributes", "fieldSelector"]),
            &crate::json!({"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["a"]}]})
        );
        assert_eq!(
            sent.at(&["spec", "resourceAttributes", "labelSelector"]),
            &crate::json!({"requirements": [{"key": "x", "operator": "In", "values": ["a", "b"]}]})
        );
        tokio::time::advance(Duration::from_secs(299)).await;
        ask(&w, uri).await;
        assert_eq!(attributes.0.load(Ordering::Relaxed), 1);
        tokio::time::advance(Duration::from_secs(2)).await;
        ask(&w, uri).await;
        assert_eq!(attributes.0.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unreachable_webhook_follows_the_failure_policy() {
        let gone = || {
            Err(FetchError {
                what: "gone".into(),
                transient: true,
                retry_after: None,
            })
        };
        for (deny, decision) in [(false, Decision::NoOpinion), (true, Decision::Deny)] {
            let (attributes, w) = hook(gone(), deny, ReviewVersion::V1);
            let v = ask(&w, "/version").await;
            assert_eq!((v.decision, v.error.as_deref()), (decision, Some("gone")));
            assert_eq!(attributes.0.load(Ordering::Relaxed), 5, "five attempts");
            ask(&w, "/version").await;
            assert_eq!(attributes.0.load(Ordering::Relaxed), 10, "failures are not cached");
        }
        let (_, w) = hook(
            Ok(r#"{"status":{"allowed":true,"denied":true}}"#),
            false,
            ReviewVersion::V1,
        );
        let v = ask(&w, "/version").await;
        assert_eq!(v.decision, Decision::Deny);
        assert!(v.error.unwrap().contains("both allow and deny"));
    }
}
