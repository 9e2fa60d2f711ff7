//! Token authentication by TokenReview against the core API server.

use crate::apimachinery::Value;
use crate::authn::{AuthenticationError, PresentedToken, TokenAuthenticator, TokenUser};
use crate::client::Client;
use crate::json;
use crate::request::UserInfo;
use async_trait::async_trait;
use aws_lc_rs::digest;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// How long a result is cached: upstream's default for delegated authentication in extension servers.
const TTL: Duration = Duration::from_secs(10);
const MAX_ENTRIES: usize = 4096;

type Answer = Option<Arc<UserInfo>>;

/// Sends tokens for review and caches the results. The cache holds digests, not tokens.
pub struct TokenReviews {
    client: Arc<Client>,
    known: Mutex<HashMap<[u8; 32], (Answer, Instant)>>,
}

impl TokenReviews {
    /// Reviews tokens through `client`.
    pub fn new(client: Arc<Client>) -> Self {
        Self {
            client,
            known: Mutex::default(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 32], (Answer, Instant)>> {
        self.known.lock().expect("no code panics while holding this lock")
    }
}

#[async_trait]
impl TokenAuthenticator for TokenReviews {
    async fn authenticate_token(
        &self,
        presented: PresentedToken<'_>,
    ) -> Result<Option<TokenUser>, AuthenticationError> {
        Ok(self.review(presented.token).await?.map(TokenUser::from))
    }
}

impl TokenReviews {
    async fn review(&self, token: &str) -> Result<Answer, AuthenticationError> {
        let mut key = [0; 32];
        key.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
        let now = Instant::now();
        if let Some((answer, until)) = self.lock().get(&key)
            && *until > now
        {
            return Ok(answer.clone());
        }
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let review = self.client.create(PATH, &review).await;
        let review = review.map_err(|e| AuthenticationError(format!("the token could not be reviewed: {e}")))?;
        let answer = user(review.get("status"))?;
        let mut known = self.lock();
        if known.len() >= MAX_ENTRIES {
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() < MAX_ENTRIES {
            known.insert(key, (answer.clone(), now + TTL));
        }
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
