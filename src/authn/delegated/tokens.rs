//! Token authentication by TokenReview against the core API server.

use crate::apimachinery::Value;
use crate::authn::token_tag::{Tag, Tagger};
use crate::authn::{AuthenticationError, PresentedToken, TokenAuthenticator, TokenUser};
use crate::cache::TtlCache;
use crate::client::Client;
use crate::json;
use crate::request::UserInfo;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// How long a result is cached: upstream's default for delegated authentication in extension servers.
const TTL: Duration = Duration::from_secs(10);
const MAX_ENTRIES: usize = 4096;

type Answer = Option<Arc<UserInfo>>;

/// Sends tokens for review and caches the results. The cache holds tags, not tokens.
pub struct TokenReviews {
    client: Arc<Client>,
    known: TtlCache<Tag, Answer>,
    tagger: Tagger,
}

impl TokenReviews {
    /// Reviews tokens through `client`.
    ///
    /// # Errors
    /// If the system's random number generator fails.
    pub fn try_new(client: Arc<Client>) -> Result<Self, String> {
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
    async fn review(&self, presented: PresentedToken<'_>) -> Result<Answer, AuthenticationError> {
        let tag = self.tagger.tag(presented);
        if let Some(answer) = self.known.get(&tag) {
            return Ok(answer);
        }
        let token = presented.token;
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let review = self.client.create(PATH, &review).await;
        let review = review.map_err(|e| AuthenticationError(format!("the token could not be reviewed: {e}")))?;
        let answer = user(review.get("status"))?;
        self.known.insert(tag, answer.clone(), TTL);
        Ok(answer)
    }
}

fn user(status: &Value) -> Result<Answer, AuthenticationError> {
    if status.get("authenticated").as_bool() != Some(true) {
        return match status.str_at(&["error"]) {
            "" => Ok(None),
            error => Err(AuthenticationError::new(error)),
        };
    }
    let strings = |v: &Value| {
        v.items()
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let reported = status.get("user");
    let extra = reported.get("extra").as_object();
    Ok(Some(Arc::new(UserInfo {
        name: reported.str_at(&["username"]).to_owned(),
        uid: reported.str_at(&["uid"]).to_owned(),
        groups: strings(reported.get("groups")),
        extra: extra
            .into_iter()
            .flat_map(|m| m.iter())
            .map(|(k, v)| (k.to_owned(), strings(v)))
            .collect(),
    })))
}
