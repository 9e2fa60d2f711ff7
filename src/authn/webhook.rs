//! Token authentication by webhook (`--authentication-token-webhook-config-file`), as upstream's
//! `plugin/pkg/authenticator/token/webhook`. Accepted and rejected tokens are cached; errors are not.

use super::bearer::intersection;
use super::reviewed;
use super::{AuthenticationError, PresentedToken, TokenAuthenticator, TokenUser};
use crate::apimachinery::codec::json;
use crate::apimachinery::value::Value;
use crate::authn::jwt::texts;
use crate::authn::token_tag::{NoRandomNumbers, Tag, Tagger};
use crate::cache::TtlCache;
use crate::client::retry::retry;
use crate::client::{ClientConfig, FetchError, Fetcher};
use crate::tasks::Backoff;
use crate::telemetry::clients::ClientRequestMetrics;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of one attempt.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of cached results.
const MAX: usize = 8192;

/// Why a webhook cannot be called.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebhookError {
    /// A certificate, key, token or name of the client configuration cannot be used.
    #[error(transparent)]
    Client(#[from] FetchError),
    /// Its answers cannot be cached.
    #[error(transparent)]
    Cache(#[from] NoRandomNumbers),
}

/// Sends TokenReviews to a webhook.
pub(crate) struct WebhookTokens {
    fetcher: Fetcher,
    url: String,
    version: String,
    ttl: Duration,
    known: TtlCache<Tag, Option<TokenUser>>,
    tagger: Tagger,
}

impl WebhookTokens {
    /// The webhook of a kubeconfig, called in `version` (`v1` or `v1beta1`). Results are cached for `ttl`.
    ///
    /// # Errors
    /// [`WebhookError`]
    pub(crate) fn try_new(config: &ClientConfig, version: &str, ttl: Duration) -> Result<Self, WebhookError> {
        Ok(Self {
            fetcher: Fetcher::with(config, REQUEST_TIMEOUT)?,
            url: config.server.clone(),
            version: format!("authentication.k8s.io/{version}"),
            ttl,
            known: TtlCache::new(MAX),
            tagger: Tagger::try_new()?,
        })
    }

    /// Sets the metrics to update.
    #[must_use]
    pub(crate) fn counting(mut self, counts: ClientRequestMetrics) -> Self {
        self.fetcher = self.fetcher.with_metrics(counts);
        self
    }

    async fn review(&self, presented: PresentedToken<'_>) -> Result<Value, AuthenticationError> {
        // With the empty members that Go's encoder writes for upstream.
        let mut review = crate::json!({
            "apiVersion": (self.version.as_str()), "kind": "TokenReview",
            "metadata": {"creationTimestamp": null}, "spec": {"token": (presented.token)}, "status": {"user": {}},
        });
        if !presented.audiences.is_empty() {
            review.set(&["spec", "audiences"], presented.audiences.to_vec());
        }
        let body = json::to_vec(&review);
        // The same body for each attempt: a review has no side effects, so repeating it is safe.
        let answer = retry(Backoff::WEBHOOK, || self.fetcher.post(&self.url, body.clone())).await;
        let answer = answer.map_err(|e| AuthenticationError(e.what))?;
        let answer = json::decode(&answer)
            .map_err(|e| AuthenticationError(format!("the webhook's response is not valid JSON: {e}")))?;
        Ok(answer.get("status").clone())
    }
}

fn parse_status(status: &Value, presented: PresentedToken<'_>) -> Result<Option<TokenUser>, AuthenticationError> {
    let Some(user) = reviewed::user(status)? else {
        return Ok(None);
    };
    // A webhook that returns no audiences is not audience-aware. Its tokens are valid for the server's own
    // audiences, which are the requested ones.
    let audiences = match texts(status.get("audiences")) {
        reported if reported.is_empty() => presented.audiences.to_vec(),
        reported => intersection(presented.audiences, &reported),
    };
    if audiences.is_empty() && !presented.audiences.is_empty() {
        return Ok(None);
    }
    Ok(Some(TokenUser {
        audiences,
        ..TokenUser::from(Arc::new(user))
    }))
}

#[async_trait]
impl TokenAuthenticator for WebhookTokens {
    async fn authenticate_token(
        &self,
        presented: PresentedToken<'_>,
    ) -> Result<Option<TokenUser>, AuthenticationError> {
        let tag = self.tagger.tag(presented);
        if let Some(answer) = self.known.get(&tag) {
            return Ok(answer);
        }
        // Errors leave here, so that only clear answers are cached.
        let answer = parse_status(&self.review(presented).await?, presented)?;
        self.known.insert(tag, answer.clone(), self.ttl);
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn responses_are_interpreted_as_upstream() {
        let ours = ["a".to_owned(), "b".to_owned()];
        let presented = PresentedToken {
            token: "t",
            audiences: &ours,
        };
        let yes = |audiences: Value| {
            let mut v =
                json!({"authenticated": true, "user": {"username": "u", "groups": ["g"], "extra": {"k": ["v"]}}});
            v.set(&["audiences"], audiences);
            parse_status(&v, presented).unwrap()
        };
        let found = yes(Value::Null).unwrap();
        assert_eq!((found.user.name.as_str(), found.audiences.len()), ("u", 2));
        assert_eq!(found.user.extra["k"], ["v"]);
        assert_eq!(yes(json!(["b", "c"])).unwrap().audiences, ["b"]);
        assert!(yes(json!(["c"])).is_none());
        assert!(parse_status(&json!({}), presented).unwrap().is_none());
        assert_eq!(parse_status(&json!({"error": "no"}), presented).unwrap_err().0, "no");
    }
}
