//! Tokens recognised a moment ago are recognised at once (upstream's `token/cache`): successes for ten seconds,
//! refusals not at all. What is kept is a keyed tag, never a token. Several requests with one token ask once.
//!
//! Upstream accepts a revoked token until its ten seconds are over. Here a success is believed again only while the objects
//! it rests on are unchanged ([`TokenUser::holds`]): once the deletion of a ServiceAccount, a Secret, or the Pod or Node a
//! token is bound to has been acknowledged, no request that begins later gets in with the token. That goes for a look-up
//! under way, too: it may have read the objects before they went, so who joined it checks its answer.

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

/// How long a success counts.
const SUCCESS: Duration = Duration::from_secs(10);
/// How long one look-up may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Locks; requests with different tokens seldom meet.
const STRIPES: usize = 32;
/// Most tokens of a stripe.
const MOST: usize = 1024;

type Key = [u8; 16];
type Answer = Result<Option<TokenUser>, Refused>;
type Flight = Shared<BoxFuture<'static, Answer>>;

enum Slot {
    Known(Arc<TokenUser>, Instant),
    /// Asked for by somebody who may have gone away since.
    Asking(WeakShared<BoxFuture<'static, Answer>>),
}

/// Makes the tags that stand for tokens: GMAC, which is AES-GCM of nothing but associated data.
///
/// Under a random key that nobody knows, two different texts of up to 64 KiB have the same tag with a probability below
/// 2^-115, whoever chose them: GHASH is a universal hash, whose secret point AES makes from the key. GCM's rule of a new
/// nonce for each text keeps those who *see* tags from working out that point; these tags are seen by nobody, they stay in
/// the cache's map. The token of a service account costs little more than a short one.
struct Tagger(LessSafeKey);

/// No text has this byte in UTF-8: what is on either side of it can be told apart.
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
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(text), &mut []);
        let tag = tag.expect("a text in memory is not too long for GCM");
        tag.as_ref().try_into().expect("GCM's tags have 16 bytes")
    }
}

type Stripe = Mutex<HashMap<Key, Slot>>;

/// Remembers what `tokens` said.
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
    /// A cache in front of `tokens`, under a random key of its own.
    ///
    /// # Errors
    /// The system has no random numbers.
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
                    // Once here, instead of in every request.
                    add_authenticated(Arc::make_mut(&mut found.user));
                    let now = Instant::now();
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
    /// With whether it was known.
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

    /// Holds until its object is gone.
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
            // As a look-up that reads first, and then checks signatures.
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
    async fn a_success_counts_for_ten_seconds_and_a_refusal_never() {
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
        assert_eq!(asked(), 2, "other audiences are another question");
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
    fn a_tag_stands_for_one_token_and_its_audiences() {
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
    async fn several_requests_ask_once_and_survive_the_first_going_away() {
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
    async fn a_success_ends_with_the_object_it_rests_on() {
        let (cache, slow) = cache();
        let bound = || of("bound", &[]);
        assert!(cache.authenticate_token(bound()).await.unwrap().is_some());
        assert!(cache.at_once(bound()).is_some());
        slow.gone.store(true, Ordering::Relaxed);
        assert!(cache.at_once(bound()).is_none());
        assert!(cache.authenticate_token(bound()).await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_up_that_read_before_the_deletion_lets_nobody_in_after_it() {
        let (cache, slow) = cache();
        let ask = || {
            let cache = cache.clone();
            tokio::spawn(async move { cache.authenticate_token(of("bound", &[])).await })
        };
        let before = ask();
        tokio::task::yield_now().await;
        slow.gone.store(true, Ordering::Relaxed);
        let after = ask();
        assert!(before.await.unwrap().unwrap().is_some(), "this one began before");
        assert!(after.await.unwrap().unwrap().is_none());
        assert_eq!(slow.asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let (cache, _) = cache();
        assert!(cache.authenticate_token(of("slow", &[])).await.is_err());
    }
}
