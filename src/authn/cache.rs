//! Cache of successful token authentications (upstream's `pkg/authentication/token/cache`): successes are reused for
//! ten seconds, failures are not cached. Keys are MACs of tokens, so no token is held in memory. Concurrent requests
//! with the same token share one lookup.
//!
//! Upstream accepts a revoked token until its ten seconds are over. Here a cached success is reused only while the
//! objects it depends on are unchanged ([`TokenUser::holds`]). Once the deletion of a ServiceAccount, a Secret, or the
//! Pod or Node that a token is bound to has been acknowledged, no request that begins later is accepted. This also
//! covers requests that join a lookup already under way: the lookup may have read the objects before the deletion, so
//! its result is checked again.

use super::{Asked, Refused, TokenAuthenticator, TokenUser, add_authenticated};
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
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of independently locked shards, to keep contention low.
const STRIPES: usize = 32;
/// Maximum number of tokens in a shard.
const MOST: usize = 1024;

type Key = [u8; 16];
type Answer = Result<Option<TokenUser>, Refused>;
type Flight = Shared<BoxFuture<'static, Answer>>;

enum Slot {
    /// A success, and when it expires.
    Known(Arc<TokenUser>, Instant),
    /// A lookup under way. Weak, because only the waiting requests keep it alive: if all disconnect, it is cancelled.
    Asking(WeakShared<BoxFuture<'static, Answer>>),
}

/// Derives cache keys from tokens: GMAC, that is AES-GCM over associated data only.
///
/// Under a random secret key, two different texts of up to 64 KiB collide with a probability below 2^-115, whoever
/// chose them: GHASH is a universal hash, and AES derives its secret point from the key. GCM requires unique nonces
/// because an observer of several tags under one nonce could solve for that point. These tags never leave the cache's
/// map, so a constant nonce is safe here. Hashing a service account token this way costs little more than a short one.
struct Tagger(LessSafeKey);

/// Separates the token from audiences in the MAC input. 0xff occurs in no UTF-8 text, so the encoding is unambiguous.
const BORDER: u8 = 0xff;

impl Tagger {
    fn try_new() -> Result<Self, String> {
        let mut key = [0; 32];
        let key = aws_lc_rs::rand::fill(&mut key).and_then(|()| UnboundKey::new(&AES_256_GCM, &key));
        let key = key.map_err(|_| "no random numbers for the token cache".to_owned())?;
        Ok(Self(LessSafeKey::new(key)))
    }

    fn tag(&self, asked: Asked<'_>) -> Key {
        let audiences: usize = asked.audiences.iter().map(|a| 1 + a.len()).sum();
        let mut text = Vec::with_capacity(asked.token.len() + audiences);
        text.extend_from_slice(asked.token.as_bytes());
        for audience in asked.audiences {
            text.push(BORDER);
            text.extend_from_slice(audience.as_bytes());
        }
        // Constant on purpose; see the type's documentation for why that is safe.
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(text), &mut []);
        let tag = tag.expect("a text in memory is not too long for GCM");
        tag.as_ref().try_into().expect("GCM's tags have 16 bytes")
    }
}

type Stripe = Mutex<HashMap<Key, Slot>>;

/// A cache in front of another token authenticator.
pub struct TokenCache {
    tokens: Arc<dyn TokenAuthenticator>,
    tagger: Tagger,
    stripes: Arc<[Stripe]>,
    counts: Option<Arc<TokenCacheMetrics>>,
}

fn lock(stripe: &Stripe) -> MutexGuard<'_, HashMap<Key, Slot>> {
    stripe.lock().expect("no code panics while holding this lock")
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
            tagger: Tagger::try_new()?,
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            counts,
        })
    }

    fn flight(&self, key: Key, stripe: usize, asked: Asked<'_>) -> Flight {
        let (token, audiences) = (asked.token.to_owned(), asked.audiences.to_vec());
        let (tokens, stripes, counts) = (self.tokens.clone(), self.stripes.clone(), self.counts.clone());
        let look_up = async move {
            let asked = Asked {
                token: &token,
                audiences: &audiences,
            };
            let answer = tokio::time::timeout(PATIENCE, tokens.authenticate_token(asked)).await;
            let answer = answer.unwrap_or_else(|_| Err(Refused::new("looking the token up took too long")));
            if let Some(counts) = counts {
                counts.fetched(answer.is_ok());
            }
            let mut known = lock(&stripes[stripe]);
            match answer {
                Ok(Some(mut found)) => {
                    // Add the group once per lookup instead of once per request.
                    add_authenticated(Arc::make_mut(&mut found.user));
                    let now = Instant::now();
                    // When the shard is full even after expired entries are dropped, the result is simply not cached.
                    if known.len() >= MOST {
                        known.retain(|_, slot| matches!(slot, Slot::Known(_, until) if *until > now));
                    }
                    if known.len() < MOST {
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
    async fn authenticate_token(&self, asked: Asked<'_>) -> Answer {
        let start = std::time::Instant::now();
        let (hit, answer) = self.answer(asked).await;
        if let Some(counts) = &self.counts {
            counts.asked(hit, start.elapsed());
        }
        answer
    }

    fn at_once(&self, asked: Asked<'_>) -> Option<Arc<TokenUser>> {
        let now = Instant::now();
        let key = self.tagger.tag(asked);
        let found = match lock(&self.stripes[usize::from(key[0]) % STRIPES]).get(&key) {
            Some(Slot::Known(found, until)) if *until > now => found.clone(),
            _ => return None,
        };
        if !found.holds() {
            return None;
        }
        if let Some(counts) = &self.counts {
            counts.asked(true, now.elapsed());
        }
        Some(found)
    }
}

impl TokenCache {
    /// The answer, and whether it was served from the cache.
    async fn answer(&self, asked: Asked<'_>) -> (bool, Answer) {
        let key = self.tagger.tag(asked);
        let stripe = usize::from(key[0]) % STRIPES;
        let (flight, joined) = {
            let mut known = lock(&self.stripes[stripe]);
            let under_way = match known.get(&key) {
                Some(Slot::Known(found, until)) if *until > Instant::now() && found.holds() => {
                    return (true, Ok(Some(TokenUser::clone(found))));
                }
                Some(Slot::Asking(flight)) => flight.upgrade(),
                _ => None,
            };
            let joined = under_way.is_some();
            let flight = under_way.unwrap_or_else(|| {
                let flight = self.flight(key, stripe, asked);
                if let Some(weak) = flight.downgrade().filter(|_| known.len() < MOST) {
                    known.insert(key, Slot::Asking(weak));
                }
                flight
            });
            (flight, joined)
        };
        // A joined lookup may have read its objects before this request began: repeat it if they have changed since.
        match flight.await {
            Ok(Some(found)) if joined && !found.holds() => (false, self.flight(key, stripe, asked).await),
            answer => (false, answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::Ground;
    use crate::request::UserInfo;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    #[derive(Default)]
    struct Slow {
        asked: AtomicUsize,
        gone: Arc<AtomicBool>,
    }

    /// Holds until its object is deleted.
    #[derive(Debug)]
    struct There(Arc<AtomicBool>);

    impl Ground for There {
        fn holds(&self) -> bool {
            !self.0.load(Ordering::Relaxed)
        }
    }

    #[async_trait]
    impl TokenAuthenticator for Slow {
        async fn authenticate_token(&self, asked: Asked<'_>) -> Answer {
            self.asked.fetch_add(1, Ordering::Relaxed);
            // Reads the object before a slow step, as a real lookup does before it verifies signatures.
            let gone = self.gone.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            match asked.token {
                "bound" if gone => Ok(None),
                "bound" => Ok(Some(TokenUser {
                    grounds: vec![Arc::new(There(self.gone.clone()))],
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

    fn of<'a>(token: &'a str, audiences: &'a [String]) -> Asked<'a> {
        Asked { token, audiences }
    }

    #[tokio::test(start_paused = true)]
    async fn successes_are_cached_for_ten_seconds_and_failures_never() {
        let (cache, slow) = cache();
        let asked = || slow.asked.load(Ordering::Relaxed);
        let at_once = |token| cache.at_once(of(token, &[])).map(|found| found.user.name.clone());
        assert_eq!(at_once("good"), None);
        for _ in 0..3 {
            let found = cache.authenticate_token(of("good", &[])).await.unwrap().unwrap();
            assert_eq!(found.user.groups, ["system:authenticated"]);
        }
        assert_eq!(
            (asked(), at_once("good").as_deref(), at_once("bad")),
            (1, Some("u"), None)
        );
        let aud = ["a".to_owned()];
        cache.authenticate_token(of("good", &aud)).await.unwrap();
        assert_eq!(asked(), 2, "other audiences need their own lookup");
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(at_once("good"), None);
        cache.authenticate_token(of("good", &[])).await.unwrap();
        assert_eq!(asked(), 3);
        for _ in 0..2 {
            assert!(cache.authenticate_token(of("bad", &[])).await.unwrap().is_none());
        }
        assert_eq!(asked(), 5);
    }

    #[test]
    fn a_key_identifies_one_token_with_its_audiences() {
        let tagger = Tagger::try_new().unwrap();
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
        let tags: std::collections::HashSet<Key> = questions.iter().map(|(t, a)| tagger.tag(of(t, a))).collect();
        assert_eq!(tags.len(), questions.len());
        assert!(questions.iter().all(|(t, a)| tags.contains(&tagger.tag(of(t, a)))));
        let other = Tagger::try_new().unwrap();
        assert_ne!(
            tagger.tag(of("t", &[])),
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
        assert_eq!(slow.asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_is_invalidated_with_the_object_it_depends_on() {
        let (cache, slow) = cache();
        let bound = || of("bound", &[]);
        assert!(cache.authenticate_token(bound()).await.unwrap().is_some());
        assert!(cache.at_once(bound()).is_some());
        slow.gone.store(true, Ordering::Relaxed);
        assert!(cache.at_once(bound()).is_none());
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
        assert_eq!(slow.asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lookup_times_out() {
        let (cache, _) = cache();
        assert!(cache.authenticate_token(of("slow", &[])).await.is_err());
    }
}
