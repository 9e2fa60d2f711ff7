//! Token authentication by TokenReview against the core API server. Entry point: [`TokenReviews`]. Revocation
//! is noticed only when a cached result expires, as with upstream's extension servers.

use crate::authn::token_tag::{NoRandomNumbers, Tag, Tagger};
use crate::authn::{AuthenticationError, PresentedToken, TokenAuthenticator, TokenUser, reviewed};
use crate::cache::TtlCache;
use crate::client::Client;
use crate::client::retry::retry;
use crate::json;
use crate::request::UserInfo;
use crate::tasks::Backoff;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// How long a result is cached: upstream's default for delegated authentication in extension servers.
const TTL: Duration = Duration::from_secs(10);
const MAX_ENTRIES: usize = 4096;

type ReviewedUser = Option<Arc<UserInfo>>;

/// Sends tokens for review and caches the results. The cache holds tags, not tokens.
pub(crate) struct TokenReviews {
    client: Arc<Client>,
    known: TtlCache<Tag, ReviewedUser>,
    tagger: Tagger,
}

impl TokenReviews {
    /// Reviews tokens through `client`.
    ///
    /// # Errors
    /// [`NoRandomNumbers`]
    pub(crate) fn try_new(client: Arc<Client>) -> Result<Self, NoRandomNumbers> {
        Ok(Self {
            client,
            known: TtlCache::new(MAX_ENTRIES),
            tagger: Tagger::try_new()?,
        })
    }
}

#[async_trait]
impl TokenAuthenticator for TokenReviews {
    async fn authenticate_token(
        &self,
        presented: PresentedToken<'_>,
    ) -> Result<Option<TokenUser>, AuthenticationError> {
        Ok(self.review(presented).await?.map(TokenUser::from))
    }
}

impl TokenReviews {
    async fn review(&self, presented: PresentedToken<'_>) -> Result<ReviewedUser, AuthenticationError> {
        let tag = self.tagger.tag(presented);
        if let Some(answer) = self.known.get(&tag) {
            return Ok(answer);
        }
        let token = presented.token;
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        // A lost connection is no reason to refuse a valid token. A review has no side effects, so repeating it is
        // safe.
        let review = retry(Backoff::WEBHOOK, || self.client.create(PATH, &review)).await;
        let review = review.map_err(|e| AuthenticationError(format!("the token could not be reviewed: {e}")))?;
        let answer = reviewed::user(review.get("status"))?.map(Arc::new);
        // Rejected tokens are cached too, as upstream: a client with a stale token retries quickly, and each
        // review is a request. Errors are not.
        self.known.insert(tag, answer.clone(), TTL);
        Ok(answer)
    }
}
