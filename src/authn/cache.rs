//! Cache of successful token authentications (upstream's `pkg/authentication/token/cache`): successes are reused for
//! ten seconds, failures are not cached. Keys are MACs of tokens, so no token is held in memory. Concurrent requests
//! with the same token share one lookup.
//!
//! Upstream accepts a revoked token until its ten seconds are over. Here a cached success is reused only while the
//! objects it depends on are unchanged ([`TokenUser::is_current`]). Once the deletion of a ServiceAccount, a Secret,
//! or the Pod or Node that a token is bound to has been acknowledged, no request that begins later is accepted. This
//! also covers requests that join a lookup already under way: the lookup may have read the objects before the deletion,
//! so its result is checked again.

use super::{AuthenticationError, PresentedToken, TokenAuthenticator, TokenUser, add_authenticated};
use crate::telemetry::authentication::TokenCacheMetrics;
use async_trait::async_trait;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// How long a success is cached.
const SUCCESS: Duration = Duration::from_secs(10);
/// Timeout of a lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of independently locked shards, to keep contention low.
const SHARDS: usize = 32;
/// Maximum number of tokens in a shard.
const MAX: usize = 1024;

type Key = [u8; 16];
type TokenResult = Result<Option<TokenUser>, AuthenticationError>;
type Lookup = Shared<BoxFuture<'static, TokenResult>>;

enum Slot {
    /// A success, and when it expires.
    Known(Arc<TokenUser>, Instant),
    /// A lookup under way. Weak, because only the waiting requests keep it alive: if all disconnect, it is cancelled.
    Asking(WeakShared<BoxFuture<'static, TokenResult>>),
}

/// Derives cache keys from tokens: GMAC, that is AES-GCM over associated data only.
///
/// Under a random secret key, two different texts of up to 64 KiB collide with a probability below 2^-115, whoever
/// chose them: GHASH is a universal hash, and AES derives its secret point from the key. GCM requires unique nonces
/// because an observer of several tags under one nonce could solve for that point. These tags never leave the cache's
/// map, so a constant nonce is safe here. Hashing a service account token this way costs little more than a short one.
struct KeyMac(LessSafeKey);

/// Separates the token from audiences in the MAC input. 0xff occurs in no UTF-8 text, so the encoding is unambiguous.
const SEPARATOR: u8 = 0xff;

impl KeyMac {
    fn try_new() -> Result<Self, String> {
        let mut key = [0; 32];
        let key = aws_lc_rs::rand::fill(&mut key).and_then(|()| UnboundKey::new(&AES_256_GCM, &key));
        let key = key.map_err(|_| "no random numbers for the token cache".to_owned())?;
        Ok(Self(LessSafeKey::new(key)))
    }

    fn tag(&self, presented: PresentedToken<'_>) -> Key {
        let audiences: usize = presented.audiences.iter().map(|a| 1 + a.len()).sum();
        let mut text = Vec::with_capacity(presented.token.len() + audiences);
        text.extend_from_slice(presented.token.as_bytes());
        for audience in presented.audiences {
            text.push(SEPARATOR);
            text.extend_from_slice(audience.as_bytes());
        }
        // Constant on purpose; see the type's documentation for why that is safe.
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(text), &mut []);
        let tag = tag.expect("a text in memory is not too long for GCM");
        tag.as_ref().try_into().expect("GCM's tags have 16 bytes")
    }
}

type Shard = Mutex<HashMap<Key, Slot>>;

/// A cache in front of another token authenticator.
pub struct TokenCache {
    tokens: Arc<dyn TokenAuthenticator>,
    key_mac: KeyMac,
    shards: Arc<[Shard]>,
    counts: Option<Arc<TokenCacheMetrics>>,
}

fn lock(shard: &Shard) -> MutexGuard<'_, HashMap<Key, Slot>> {
    shard.lock().expect("no code panics while holding this lock")
}

impl TokenCache {
    /// A cache in front of `tokens`, with a random key of its own.
    ///
    /// # Errors
    /// If the system's random number generator fails.
    pub fn try_new(
        tokens: Arc<dyn TokenAuthenticator>,
        counts: Option<Arc<TokenCacheMetrics>>,
    ) -> Result<Self, String> {
        Ok(Self {
            tokens,
            key_mac: KeyMac::try_new()?,
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            counts,
        })
    }

    fn lookup(&self, key: Key, shard: usize, presented: PresentedToken<'_>) -> Lookup {
        let (token, audiences) = (presented.token.to_owned(), presented.audiences.to_vec());
        let (tokens, shards, counts) = (self.tokens.clone(), self.shards.clone(), self.counts.clone());
        let look_up = async move {
            let presented = PresentedToken {
                token: &token,
                audiences: &audiences,
            };
            let answer = tokio::time::timeout(LOOKUP_TIMEOUT, tokens.authenticate_token(presented)).await;
            let answer = answer.unwrap_or_else(|_| Err(AuthenticationError::new("looking the token up took too long")));
            if let Some(counts) = counts {
                counts.fetched(answer.is_ok());
            }
            let mut known = lock(&shards[shard]);
            match answer {
                Ok(Some(mut found)) => {
                    // Add the group once per lookup instead of once per request.
                    add_authenticated(Arc::make_mut(&mut found.user));
                    let now = Instant::now();
                    // When the shard is full even after expired entries are dropped, the result is simply not cached.
                    if known.len() >= MAX {
                        known.retain(|_, slot| matches!(slot, Slot::Known(_, until) if *until > now));
                    }
                    if known.len() < MAX {
                        known.insert(key, Slot::Known(Arc::new(found.clone()), now + SUCCESS));
                    }
                    Ok(Some(found))
                }
                other => {
                    known.remove(&key);
                    other
                }
            }
        };
        look_up.boxed().shared()
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
        let now = Instant::now();
        let key = self.key_mac.tag(presented);
        let found = match lock(&self.shards[usize::from(key[0]) % SHARDS]).get(&key) {
            Some(Slot::Known(found, until)) if *until > now => found.clone(),
            _ => return None,
        };
        if !found.is_current() {
            return None;
        }
        if let Some(counts) = &self.counts {
            counts.looked_up(true, now.elapsed());
        }
        Some(found)
    }
}

impl TokenCache {
    /// The answer, and whether it was served from the cache.
    async fn answer(&self, presented: PresentedToken<'_>) -> (bool, TokenResult) {
        let key = self.key_mac.tag(presented);
        let shard = usize::from(key[0]) % SHARDS;
        let (lookup, joined) = {
            let mut known = lock(&self.shards[shard]);
            let running = match known.get(&key) {
                Some(Slot::Known(found, until)) if *until > Instant::now() && found.is_current() => {
                    return (true, Ok(Some(TokenUser::clone(found))));
                }
                Some(Slot::Asking(lookup)) => lookup.upgrade(),
                _ => None,
            };
            let joined = running.is_some();
            let lookup = running.unwrap_or_else(|| {
                let lookup = self.lookup(key, shard, presented);
                if let Some(weak) = lookup.downgrade().filter(|_| known.len() < MAX) {
                    known.insert(key, Slot::Asking(weak));
                }
                lookup
            });
            (lookup, joined)
        };
        // A joined lookup may have read its objects before this request began: repeat it if they have changed since.
        match lookup.await {
            Ok(Some(found)) if joined && !found.is_current() => (false, self.lookup(key, shard, presented).await),
            answer => (false, answer),
        }
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

    fn of<'a>(token: &'a str, audiences: &'a [String]) -> PresentedToken<'a> {
        PresentedToken { token, audiences }
    }

    #[tokio::test(start_paused = true)]
    async fn successes_are_cached_for_ten_seconds_and_failures_never() {
        let (cache, slow) = cache();
        let lookups = || slow.lookups.load(Ordering::Relaxed);
        let authenticate_sync = |token| {
            cache
                .authenticate_sync(of(token, &[]))
                .map(|found| found.user.name.clone())
        };
        assert_eq!(authenticate_sync("good"), None);
        for _ in 0..3 {
            let found = cache.authenticate_token(of("good", &[])).await.unwrap().unwrap();
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
        cache.authenticate_token(of("good", &aud)).await.unwrap();
        assert_eq!(lookups(), 2, "other audiences need their own lookup");
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(authenticate_sync("good"), None);
        cache.authenticate_token(of("good", &[])).await.unwrap();
        assert_eq!(lookups(), 3);
        for _ in 0..2 {
            assert!(cache.authenticate_token(of("bad", &[])).await.unwrap().is_none());
        }
        assert_eq!(lookups(), 5);
    }

    #[test]
    fn a_key_identifies_one_token_with_its_audiences() {
        let key_mac = KeyMac::try_new().unwrap();
        let [a, b, ab] = ["a", "b", "ab"].map(str::to_owned);
        let long = "t".repeat(1000);
        let questions: [(&str, &[String]); 9] = [
            ("", &[]),
            ("t", &[]),
            ("ta", &[]),
            (&long, &[]),
            (&long[1..], &[]),
            ("t", std::slice::from_ref(&a)),
            ("t", std::slice::from_ref(&ab)),
            ("t", &[a.clone(), b.clone()]),
            ("t", &[b.clone(), a.clone()]),
        ];
        let tags: std::collections::HashSet<Key> = questions.iter().map(|(t, a)| key_mac.tag(of(t, a))).collect();
        assert_eq!(tags.len(), questions.len());
        assert!(questions.iter().all(|(t, a)| tags.contains(&key_mac.tag(of(t, a)))));
        let other = KeyMac::try_new().unwrap();
        assert_ne!(
            key_mac.tag(of("t", &[])),
            other.tag(of("t", &[])),
            "each cache has its own key"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn requests_share_a_lookup_that_survives_the_first_disconnecting() {
        let (cache, slow) = cache();
        let first = {
            let cache = cache.clone();
            tokio::spawn(async move { cache.authenticate_token(of("good", &[])).await })
        };
        tokio::task::yield_now().await;
        let second = {
            let cache = cache.clone();
            tokio::spawn(async move { cache.authenticate_token(of("good", &[])).await })
        };
        tokio::task::yield_now().await;
        first.abort();
        assert!(second.await.unwrap().unwrap().is_some());
        assert_eq!(slow.lookups.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_is_invalidated_with_the_object_it_depends_on() {
        let (cache, slow) = cache();
        let bound = || of("bound", &[]);
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
            tokio::spawn(async move { cache.authenticate_token(of("bound", &[])).await })
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
        assert!(cache.authenticate_token(of("slow", &[])).await.is_err());
    }
}
