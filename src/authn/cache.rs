//! Cache of successful token authentications (upstream's `pkg/authentication/token/cache`): successes are
//! reused for ten seconds, failures are not cached. Keys are tags of tokens, so no token is held in memory.
//! Concurrent requests with the same token share one lookup.
//!
//! Upstream accepts a revoked token until its ten seconds are over. Here a cached success is reused only
//! while the objects it depends on are unchanged ([`TokenUser::is_current`]). Once the deletion of a
//! ServiceAccount, a Secret, or the Pod or Node that a token is bound to has been acknowledged, no request
//! that begins later is accepted. This also covers requests that join a lookup already under way: the lookup
//! may have read the objects before the deletion, so its result is checked again.

use super::token_tag::{NoRandomNumbers, Tag, Tagger};
use super::{AuthenticationError, PresentedToken, TokenAuthenticator, TokenUser, add_authenticated};
use crate::cache::TtlCache;
use crate::sync::Mutex;
use crate::telemetry::authentication::TokenCacheMetrics;
use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a success is cached.
const SUCCESS: Duration = Duration::from_secs(10);
// As long as one request to a webhook or provider; without it, all requests with the token would wait for a
// lookup that hangs.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of cached tokens.
const MAX: usize = 32 << 10;

type TokenResult = Result<Option<TokenUser>, AuthenticationError>;
type Lookup = Shared<BoxFuture<'static, TokenResult>>;

/// Lookups under way; as many as there are tokens in concurrent requests. Weak, because only the waiting
/// requests keep a lookup alive: if all disconnect, it is cancelled.
#[derive(Clone, Default)]
struct Lookups(Arc<Mutex<HashMap<Tag, WeakShared<BoxFuture<'static, TokenResult>>>>>);

/// Removes a lookup when it ends or is cancelled. A new lookup of the same token may take the place of a
/// cancelled one just before that, and is removed instead; the next request then starts another one.
struct Registered(Lookups, Tag);

impl Drop for Registered {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

impl Lookups {
    fn lock(&self) -> crate::sync::MutexGuard<'_, HashMap<Tag, WeakShared<BoxFuture<'static, TokenResult>>>> {
        self.0.lock()
    }
}

/// A cache in front of another token authenticator.
pub struct TokenCache {
    tokens: Arc<dyn TokenAuthenticator>,
    tagger: Tagger,
    known: Arc<TtlCache<Tag, Arc<TokenUser>>>,
    lookups: Lookups,
    counts: Option<Arc<TokenCacheMetrics>>,
}

impl TokenCache {
    /// A cache in front of `tokens`, with a random key of its own.
    ///
    /// # Errors
    /// [`NoRandomNumbers`]
    pub fn try_new(
        tokens: Arc<dyn TokenAuthenticator>,
        counts: Option<Arc<TokenCacheMetrics>>,
    ) -> Result<Self, NoRandomNumbers> {
        Ok(Self {
            tokens,
            tagger: Tagger::try_new()?,
            known: Arc::new(TtlCache::new(MAX)),
            lookups: Lookups::default(),
            counts,
        })
    }

    fn lookup(&self, tag: Tag, presented: PresentedToken<'_>) -> Lookup {
        let (token, audiences) = (presented.token.to_owned(), presented.audiences.to_vec());
        // Owned copies: the lookup outlives the request that starts it.
        let (tokens, known, counts) = (self.tokens.clone(), self.known.clone(), self.counts.clone());
        let registered = Registered(self.lookups.clone(), tag);
        let look_up = async move {
            // Dropped after the result is cached, so that a request finds one or the other.
            let _registered = registered;
            let presented = PresentedToken {
                token: &token,
                audiences: &audiences,
            };
            let answer = tokio::time::timeout(LOOKUP_TIMEOUT, tokens.authenticate_token(presented)).await;
            let answer = answer.unwrap_or_else(|_| Err(AuthenticationError::new("token lookup timed out")));
            if let Some(counts) = counts {
                counts.fetched(answer.is_ok());
            }
            // Failures are not cached, as in upstream's configuration: a token may become valid at any time,
            // for instance when its provider is reachable again.
            let Ok(Some(mut found)) = answer else { return answer };
            // Add the group once per lookup instead of once per request.
            add_authenticated(Arc::make_mut(&mut found.user));
            known.insert(tag, Arc::new(found.clone()), SUCCESS);
            Ok(Some(found))
        };
        look_up.boxed().shared()
    }

    /// The answer, and whether it was served from the cache.
    async fn answer(&self, presented: PresentedToken<'_>) -> (bool, TokenResult) {
        let tag = self.tagger.tag(presented);
        let (lookup, joined) = {
            // The cache is read under this lock: a lookup that ends caches its result before it deregisters,
            // so one of both is found, and a token is never looked up twice at once.
            let mut lookups = self.lookups.lock();
            if let Some(found) = self.known.get(&tag).filter(|found| found.is_current()) {
                return (true, Ok(Some(TokenUser::clone(&found))));
            }
            match lookups.get(&tag).and_then(WeakShared::upgrade) {
                Some(running) => (running, true),
                None => {
                    let lookup = self.lookup(tag, presented);
                    // A future that has not been polled to its end can always be downgraded.
                    lookups.extend(lookup.downgrade().map(|weak| (tag, weak)));
                    (lookup, false)
                }
            }
        };
        // A joined lookup may have read its objects before this request began: repeat it if they have changed
        // since.
        match lookup.await {
            Ok(Some(found)) if joined && !found.is_current() => (false, self.lookup(tag, presented).await),
            answer => (false, answer),
        }
    }
}

#[async_trait]
impl TokenAuthenticator for TokenCache {
    async fn authenticate_token(&self, presented: PresentedToken<'_>) -> TokenResult {
        let start = std::time::Instant::now();
        let (hit, answer) = self.answer(presented).await;
        if let Some(counts) = &self.counts {
            counts.looked_up(hit, start.elapsed());
        }
        answer
    }

    fn authenticate_sync(&self, presented: PresentedToken<'_>) -> Option<Arc<TokenUser>> {
        // Read once: it is used for the expiry and for the metric.
        let now = Instant::now();
        let found = self.known.get_at(&self.tagger.tag(presented), now)?;
        if !found.is_current() {
            return None;
        }
        if let Some(counts) = &self.counts {
            counts.looked_up(true, now.elapsed());
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::CacheDependency;
    use crate::request::UserInfo;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    #[derive(Default)]
    struct Slow {
        lookups: AtomicUsize,
        gone: Arc<AtomicBool>,
    }

    /// Holds until its object is deleted.
    #[derive(Debug)]
    struct There(Arc<AtomicBool>);

    impl CacheDependency for There {
        fn is_unchanged(&self) -> bool {
            !self.0.load(Ordering::Relaxed)
        }
    }

    #[async_trait]
    impl TokenAuthenticator for Slow {
        async fn authenticate_token(&self, presented: PresentedToken<'_>) -> TokenResult {
            self.lookups.fetch_add(1, Ordering::Relaxed);
            // Reads the object before a slow step, as a real lookup does before it verifies signatures.
            let gone = self.gone.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            match presented.token {
                "bound" if gone => Ok(None),
                "bound" => Ok(Some(TokenUser {
                    dependencies: vec![Arc::new(There(self.gone.clone()))],
                    ..Arc::new(UserInfo::system("u", &[])).into()
                })),
                "good" => Ok(Some(Arc::new(UserInfo::system("u", &[])).into())),
                "slow" => std::future::pending().await,
                _ => Ok(None),
            }
        }
    }

    fn cache() -> (Arc<TokenCache>, Arc<Slow>) {
        let slow = Arc::new(Slow::default());
        (Arc::new(TokenCache::try_new(slow.clone(), None).unwrap()), slow)
    }

    fn presented<'a>(token: &'a str, audiences: &'a [String]) -> PresentedToken<'a> {
        PresentedToken { token, audiences }
    }

    #[tokio::test(start_paused = true)]
    async fn successes_are_cached_for_ten_seconds_and_failures_never() {
        let (cache, slow) = cache();
        let lookups = || slow.lookups.load(Ordering::Relaxed);
        let authenticate_sync = |token| {
            cache
                .authenticate_sync(presented(token, &[]))
                .map(|found| found.user.name.clone())
        };
        assert_eq!(authenticate_sync("good"), None);
        for _ in 0..3 {
            let found = cache.authenticate_token(presented("good", &[])).await.unwrap().unwrap();
            assert_eq!(found.user.groups, ["system:authenticated"]);
        }
        assert_eq!(
            (
                lookups(),
                authenticate_sync("good").as_deref(),
                authenticate_sync("bad")
            ),
            (1, Some("u"), None)
        );
        let aud = ["a".to_owned()];
        cache.authenticate_token(presented("good", &aud)).await.unwrap();
        assert_eq!(lookups(), 2, "other audiences need their own lookup");
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(authenticate_sync("good"), None);
        cache.authenticate_token(presented("good", &[])).await.unwrap();
        assert_eq!(lookups(), 3);
        for _ in 0..2 {
            assert!(cache.authenticate_token(presented("bad", &[])).await.unwrap().is_none());
        }
        assert_eq!(lookups(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_share_a_lookup_that_survives_the_first_disconnecting() {
        let (cache, slow) = cache();
        let first = {
            let cache = cache.clone();
            tokio::spawn(async move { cache.authenticate_token(presented("good", &[])).await })
        };
        tokio::task::yield_now().await;
        let second = {
            let cache = cache.clone();
            tokio::spawn(async move { cache.authenticate_token(presented("good", &[])).await })
        };
        tokio::task::yield_now().await;
        first.abort();
        assert!(second.await.unwrap().unwrap().is_some());
        assert_eq!(slow.lookups.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_is_invalidated_with_the_object_it_depends_on() {
        let (cache, slow) = cache();
        let bound = || presented("bound", &[]);
        assert!(cache.authenticate_token(bound()).await.unwrap().is_some());
        assert!(cache.authenticate_sync(bound()).is_some());
        slow.gone.store(true, Ordering::Relaxed);
        assert!(cache.authenticate_sync(bound()).is_none());
        assert!(cache.authenticate_token(bound()).await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_joined_lookup_from_before_a_deletion_is_repeated() {
        let (cache, slow) = cache();
        let ask = || {
            let cache = cache.clone();
            tokio::spawn(async move { cache.authenticate_token(presented("bound", &[])).await })
        };
        let before = ask();
        tokio::task::yield_now().await;
        slow.gone.store(true, Ordering::Relaxed);
        let after = ask();
        assert!(
            before.await.unwrap().unwrap().is_some(),
            "this request began before the deletion"
        );
        assert!(after.await.unwrap().unwrap().is_none());
        assert_eq!(slow.lookups.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lookup_times_out() {
        let (cache, _) = cache();
        assert!(cache.authenticate_token(presented("slow", &[])).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_lookup_is_forgotten() {
        let (cache, _) = cache();
        let asking = {
            let cache = cache.clone();
            tokio::spawn(async move { cache.authenticate_token(presented("slow", &[])).await })
        };
        tokio::task::yield_now().await;
        assert_eq!(cache.lookups.lock().len(), 1);
        asking.abort();
        assert!(asking.await.is_err());
        assert_eq!(cache.lookups.lock().len(), 0);
        cache.authenticate_token(presented("good", &[])).await.unwrap();
        assert_eq!(cache.lookups.lock().len(), 0);
    }
}
