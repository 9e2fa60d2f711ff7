//! Verification of tokens against the configured providers. Entry point: [`JwtAuthenticators`]. Checks
//! issuer, audience and times here; signatures are verified by `provider`, and `claims` maps verified claims
//! to a user.

use super::claims;
use super::configuration::{JwtIssuer, Mapping};
use super::expressions::Failure;
use super::provider::Provider;
use crate::apimachinery::field::quote;
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::authn::jwt::{self, Token, seconds};
use crate::authn::service_account::Clock;
use crate::authn::{AuthenticationError, PresentedToken, TokenAuthenticator, TokenUser};
use crate::client::FetchError;
use crate::request::UserInfo;
use crate::tasks::TaskGroup;
use crate::tasks::compute::{self, ComputePool};
use arc_swap::ArcSwap;
use async_trait::async_trait;
use std::sync::Arc;
use torana_cel::Budget;

/// Tolerance for `nbf` in seconds, for providers whose clock is ahead. `exp` has no tolerance, as in
/// upstream's go-oidc.
const NOT_BEFORE_LEEWAY: i64 = 300;
/// Estimated allocations of evaluating a provider's expressions, whose cost bounds the sizes of their values.
const MEMORY: usize = 16 << 20;

/// One provider with its token rules.
struct JwtAuthenticator {
    issuer: Arc<JwtIssuer>,
    provider: Arc<Provider>,
}

impl Drop for JwtAuthenticator {
    fn drop(&mut self) {
        // A reload drops the old set; without this, discovery of a provider that is never reachable would go
        // on forever.
        self.provider.dropped.fire();
    }
}

/// A set of providers. Configuration reloads replace it as a whole.
#[derive(Clone, Default)]
pub(crate) struct JwtAuthenticatorSet(Arc<Vec<JwtAuthenticator>>);

impl JwtAuthenticatorSet {
    /// True once every provider has been discovered.
    pub(crate) fn is_ready(&self) -> bool {
        self.0.iter().all(|a| a.provider.is_ready())
    }
}

/// The CA certificates of an issuer cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {source}")]
pub(crate) struct IssuerError {
    url: String,
    source: FetchError,
}

/// Builds the authenticators for `issuers` and starts discovery in tasks of `tasks`. Discovery of a provider
/// ends when the last clone of the set is dropped.
///
/// # Errors
/// `IssuerError`
pub(crate) fn discover(issuers: &[JwtIssuer], tasks: &TaskGroup) -> Result<JwtAuthenticatorSet, IssuerError> {
    let mut all = Vec::new();
    for issuer in issuers {
        let provider = Provider::try_new(issuer).map_err(|source| IssuerError {
            url: issuer.url.clone(),
            source,
        })?;
        all.push((issuer.clone(), provider));
    }
    Ok(set(all, tasks))
}

/// Like [`discover`], with the providers already built.
pub(super) fn set(providers: Vec<(JwtIssuer, Provider)>, tasks: &TaskGroup) -> JwtAuthenticatorSet {
    let start = |(issuer, provider): (JwtIssuer, Provider)| {
        let provider = Arc::new(provider);
        let (discovered, stop, dropped) = (provider.clone(), tasks.stop_signal().clone(), provider.dropped.clone());
        // Fails only while the server ends, which then needs no keys any more.
        tasks.spawn(format!("discovery of {}", issuer.url), async move {
            // All three branches end the task and lose nothing, so the order does not matter.
            tokio::select! {
                () = stop.wait() => {}
                () = dropped.wait() => {}
                () = discovered.discover() => {}
            }
        });
        let issuer = Arc::new(issuer);
        JwtAuthenticator { issuer, provider }
    };
    JwtAuthenticatorSet(Arc::new(providers.into_iter().map(start).collect()))
}

/// Authenticates tokens of the providers in the current set.
pub(crate) struct JwtAuthenticators {
    set: ArcSwap<JwtAuthenticatorSet>,
    clock: Clock,
    pool: Option<ComputePool>,
}

impl JwtAuthenticators {
    /// Starts with `set`, which may be empty.
    pub(crate) fn new(set: JwtAuthenticatorSet, clock: Clock) -> Self {
        Self {
            set: ArcSwap::from_pointee(set),
            clock,
            pool: None,
        }
    }

    /// Evaluates expensive expressions on this pool. Requests get to one of their own only after they are
    /// authenticated.
    #[must_use]
    pub(crate) fn with_pool(mut self, pool: ComputePool) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Replaces the trusted providers.
    pub(crate) fn replace(&self, set: JwtAuthenticatorSet) {
        self.set.store(Arc::new(set));
    }
}

#[async_trait]
impl TokenAuthenticator for JwtAuthenticators {
    async fn authenticate_token(
        &self,
        presented: PresentedToken<'_>,
    ) -> Result<Option<TokenUser>, AuthenticationError> {
        // One snapshot per token: a reload in between must not verify with one configuration and map with
        // another.
        let set = self.set.load_full();
        if set.0.is_empty() {
            return Ok(None);
        }
        // Not a JWT: another kind of token.
        let Some(unverified) = jwt::unverified_claims(presented.token) else {
            return Ok(None);
        };
        // Issuer URLs are unique within a configuration, so the first match is the only one.
        let named = unverified.str_at(&["iss"]);
        let Some(authenticator) = set.0.iter().find(|a| a.issuer.url == named) else {
            return Ok(None);
        };
        let claims = authenticator.verify(presented.token, (self.clock)()).await?;
        let user = authenticator.user(claims, self.pool.as_ref()).await?;
        Ok(Some(TokenUser::from(Arc::new(user))))
    }
}

fn unverified(why: impl std::fmt::Display) -> AuthenticationError {
    AuthenticationError(format!("oidc: verify token: oidc: {why}"))
}

impl JwtAuthenticator {
    /// The claims of the token.
    async fn verify(&self, text: &str, now: i64) -> Result<Value, AuthenticationError> {
        if !self.provider.is_ready() {
            return Err(AuthenticationError::new("oidc: authenticator not initialized"));
        }
        let token = Token::parse(text).map_err(unverified)?;
        // In go-oidc's order, which decides the message.
        self.check_claims(&token, now)?;
        if !self.issuer.algorithms.contains(&token.algorithm) {
            return Err(unverified(format!(
                "malformed jwt: unexpected signature algorithm {}",
                quote(token.algorithm.name())
            )));
        }
        self.provider.verify(&token).await.map_err(unverified)?;
        Ok(token.claims)
    }

    /// The user that verified claims map to. Cheap expressions are evaluated in place; where that does not
    /// suffice, all of them are evaluated again on the compute pool, each up to upstream's limit.
    async fn user(&self, claims: Value, pool: Option<&ComputePool>) -> Result<UserInfo, AuthenticationError> {
        let mapped = match claims::user(&self.issuer, &claims, Budget::quick()) {
            Err(Failure::Costly) => {
                let issuer = self.issuer.clone();
                let work = async move { claims::user(&issuer, &claims, Budget::full()) };
                // A TokenReview is a request that has its pool, and possibly a job there, already.
                let mapped = match pool.filter(|_| compute::current().is_none()) {
                    Some(pool) => pool.run(pool.flow(&self.issuer.url), MEMORY, work).await,
                    None => compute::offload(MEMORY, work).await,
                };
                // The pool is full or stopped. Too expensive here and nowhere else to run: refused as busy.
                mapped.unwrap_or(Err(Failure::Costly))
            }
            mapped => mapped,
        };
        mapped.map_err(|failure| match failure {
            Failure::Refused(why) => AuthenticationError(why),
            Failure::Costly => {
                AuthenticationError::new("oidc: the server is too busy to evaluate expressions on claims")
            }
        })
    }

    /// Checks issuer, audience and times. Cheaper than the signature, hence first; success means nothing
    /// until the signature is verified too.
    fn check_claims(&self, token: &Token<'_>, now: i64) -> Result<(), AuthenticationError> {
        let claims = &token.claims;
        let issuer = claims.str_at(&["iss"]);
        if issuer != self.issuer.url {
            return Err(unverified(format!(
                "id token issued by a different provider, expected {} got {}",
                quote(&self.issuer.url),
                quote(issuer)
            )));
        }
        let audiences = token.audiences();
        if !audiences.iter().any(|a| self.issuer.audiences.contains(a)) {
            return Err(unverified(format!(
                "expected audience in {:?} got {audiences:?}",
                self.issuer.audiences
            )));
        }
        let at = |claim| seconds(claims, claim).map_err(unverified);
        let shown = |at: i64| time::format_unix(at).unwrap_or_else(|| at.to_string());
        match at("exp")? {
            Some(end) if end >= now => {}
            Some(end) => return Err(unverified(format!("token is expired (Token Expiry: {})", shown(end)))),
            None => return Err(unverified("token is expired (it has no exp claim)")),
        }
        match at("nbf")? {
            // `start` comes from the token, hence the sum on the side of `now`, which cannot overflow.
            Some(start) if now + NOT_BEFORE_LEEWAY < start => Err(unverified(format!(
                "current time {} before the nbf (not before) time: {}",
                shown(now),
                shown(start)
            ))),
            _ => distributed(claims, &self.issuer),
        }
    }
}

/// Rejects tokens whose groups are a distributed claim (`_claim_names`), because those are not fetched.
/// Accepting such a user with missing groups could bypass a rule that denies by group.
fn distributed(claims: &Value, issuer: &JwtIssuer) -> Result<(), AuthenticationError> {
    let Some(Mapping::Claim(groups)) = &issuer.groups else {
        return Ok(());
    };
    if claims.get(&groups.claim).is_null() && !claims.at(&["_claim_names", &groups.claim]).is_null() {
        return Err(AuthenticationError::new(
            "oidc: distributed claims are not resolved; put the groups into the token",
        ));
    }
    Ok(())
}
