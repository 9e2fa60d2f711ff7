//! [`ServiceAccountTokens`]: the checks common to bound and legacy tokens, which are issuer, signature and
//! audiences. The checks of claims and objects are in `bound` and `legacy`.

use super::{Clock, LEGACY_ISSUER, ObjectReader};
use crate::authn::bearer::intersection;
use crate::authn::jwt::{self, PublicKey, Token};
use crate::authn::{AuthenticationError, PresentedToken, TokenAuthenticator, TokenUser};
use crate::telemetry::access::ServiceAccountTokenMetrics;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use std::collections::HashSet;
use std::sync::Arc;

/// The keys that verify service account tokens: this gateway's in the order of their files, then those that
/// other gateways share. Clones see the same keys.
#[derive(Clone, Debug)]
pub(crate) struct VerificationKeys {
    own: Arc<[PublicKey]>,
    all: Arc<ArcSwap<Vec<PublicKey>>>,
}

impl VerificationKeys {
    /// Deduplicates `keys`.
    pub(crate) fn new(keys: Vec<PublicKey>) -> Self {
        // The same key often comes twice: once as the signing key, once in a file of
        // --service-account-key-file.
        let own = distinct(keys);
        Self {
            own: own.as_slice().into(),
            all: Arc::new(ArcSwap::from_pointee(own)),
        }
    }

    /// All keys, in order.
    pub(crate) fn all(&self) -> Arc<Vec<PublicKey>> {
        self.all.load_full()
    }

    /// The keys of this gateway, as PEM blocks `PUBLIC KEY`.
    pub(crate) fn own_pem(&self) -> String {
        self.own.iter().map(PublicKey::to_pem).collect()
    }

    /// Replaces the keys that other gateways share.
    pub(crate) fn share(&self, others: Vec<PublicKey>) {
        self.all
            .store(Arc::new(distinct(self.own.iter().cloned().chain(others).collect())));
    }
}

/// The keys without those that occur before.
fn distinct(keys: Vec<PublicKey>) -> Vec<PublicKey> {
    let mut seen = HashSet::new();
    keys.into_iter()
        .filter(|k| seen.insert((k.id.clone(), k.algorithm().name())))
        .collect()
}

/// The candidates for a key id; all keys if the token names none.
fn candidates<'a>(keys: &'a [PublicKey], id: &'a str) -> impl Iterator<Item = &'a PublicKey> {
    keys.iter().filter(move |k| id.is_empty() || k.id == id)
}

enum TokenFormat {
    Bound,
    Legacy { lookup: bool },
}

/// The dependencies of the verification of either type.
#[derive(Clone)]
pub(crate) struct VerificationDependencies {
    pub keys: VerificationKeys,
    /// The server's audiences. Tokens without an audience are valid for these.
    pub audiences: Vec<String>,
    pub objects: Arc<dyn ObjectReader>,
    pub clock: Clock,
}

/// Authenticates one type of service account token.
pub(crate) struct ServiceAccountTokens {
    kind: TokenFormat,
    issuers: Vec<String>,
    dependencies: VerificationDependencies,
    counts: ServiceAccountTokenMetrics,
}

impl ServiceAccountTokens {
    /// Authenticates bound tokens (from TokenRequests) of any of `issuers`.
    pub(crate) fn bound(issuers: Vec<String>, dependencies: VerificationDependencies) -> Self {
        Self {
            kind: TokenFormat::Bound,
            issuers,
            dependencies,
            counts: ServiceAccountTokenMetrics::default(),
        }
    }

    /// Authenticates legacy tokens. `lookup` (`--service-account-lookup`) requires that the Secret still
    /// exists.
    pub(crate) fn legacy(lookup: bool, dependencies: VerificationDependencies) -> Self {
        Self {
            kind: TokenFormat::Legacy { lookup },
            issuers: vec![LEGACY_ISSUER.to_owned()],
            dependencies,
            counts: ServiceAccountTokenMetrics::default(),
        }
    }

    /// Sets the metrics to update.
    #[must_use]
    pub(crate) fn counting(mut self, counts: ServiceAccountTokenMetrics) -> Self {
        self.counts = counts;
        self
    }

    /// Verifies the signature. `None` if the token is not from one of our issuers.
    fn verify<'a>(&self, text: &'a str) -> Result<Option<Token<'a>>, AuthenticationError> {
        let Some(unverified) = jwt::unverified_claims(text) else {
            return Ok(None);
        };
        let issuer = unverified.str_at(&["iss"]);
        // Before the signature: a token of another issuer is left to that issuer's authenticator, however it
        // is signed.
        if !self.issuers.iter().any(|i| i == issuer) {
            return Ok(None);
        }
        // Not ours, rather than an error: upstream hands what does not parse to the next authenticator.
        let Ok(token) = Token::parse(text) else { return Ok(None) };
        let keys = self.dependencies.keys.all();
        if candidates(&keys, &token.key_id).any(|key| token.verified_by(key)) {
            return Ok(Some(token));
        }
        // Error texts are upstream's: clients see them in a TokenReview's status.
        Err(AuthenticationError::new(
            match candidates(&keys, &token.key_id).next() {
                Some(_) => "go-jose/go-jose: error in cryptographic primitive",
                None => "invalid signature, no keys found",
            },
        ))
    }
}

/// Formats a list of strings like Go's `%q`.
fn quoted(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|s| crate::apimachinery::field::quote(s)).collect();
    format!("[{}]", quoted.join(" "))
}

#[async_trait]
impl TokenAuthenticator for ServiceAccountTokens {
    async fn authenticate_token(
        &self,
        presented: PresentedToken<'_>,
    ) -> Result<Option<TokenUser>, AuthenticationError> {
        let Some(token) = self.verify(presented.token)? else {
            return Ok(None);
        };
        let mut token_audiences = token.audiences();
        let mut annotations = Vec::new();
        // Only legacy tokens have no audience.
        if token_audiences.is_empty() {
            let subject = token.claims.str_at(&["sub"]).to_owned();
            annotations.push(("authentication.k8s.io/legacy-token", subject));
            self.counts.legacy.inc();
            token_audiences.clone_from(&self.dependencies.audiences);
        }
        // A caller without audiences stands for this server.
        let wanted = match presented.audiences {
            [] => &self.dependencies.audiences,
            presented => presented,
        };
        let audiences = intersection(&token_audiences, wanted);
        // Before the objects are read, so that a token for another audience costs no storage access.
        if audiences.is_empty() && !self.dependencies.audiences.is_empty() {
            return Err(AuthenticationError(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(&token_audiences),
                quoted(wanted)
            )));
        }
        let now = (self.dependencies.clock)();
        let mut found = match self.kind {
            TokenFormat::Bound => {
                super::bound::check(&*self.dependencies.objects, &token.claims, now, &self.counts).await?
            }
            TokenFormat::Legacy { lookup } => {
                super::legacy::Check {
                    objects: &self.dependencies.objects,
                    counts: &self.counts,
                    now,
                }
                .validate(&token.claims, presented.token, lookup)
                .await?
            }
        };
        annotations.append(&mut found.annotations);
        Ok(Some(TokenUser {
            audiences,
            annotations,
            ..found
        }))
    }
}
