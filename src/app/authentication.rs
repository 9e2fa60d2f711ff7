//! Builds the authenticators from the options and the loaded certificates, in upstream's order. Entry point:
//! [`build`]. Service account keys are read by `service_accounts`, identity providers by
//! `identity_providers`; the filter chain calls the result.

use super::Error;
use super::identity_providers;
use super::port::Port;
use super::service_accounts::{self, ServiceAccounts};
use super::token_objects::TokenObjects;
use crate::authn;
use crate::authn::bootstrap::BootstrapTokens;
use crate::authn::cache::TokenCache;
use crate::authn::service_account::system_clock;
use crate::authn::webhook::WebhookTokens;
use crate::authn::{
    Anonymous, Authenticator, BearerToken, RequestHeader, RequestHeaderNames, TokenAuthenticator, TokenFile,
    TokenUnion, WebSocketToken, WithAnonymous, WithServerAudiences, X509,
};
use crate::cli::CompletedOptions;
use crate::client::ClientConfig;
use crate::request::ClientCaSource;
use crate::request::headers::IdentityHeaders;
use crate::tasks::TaskGroup;
use crate::tasks::compute::ComputePool;
use crate::telemetry::Telemetry;
use crate::telemetry::authentication::TokenCacheMetrics;
use http::HeaderName;
use std::sync::Arc;

/// The authenticators, and what is derived from the same options.
pub(crate) struct Authentication {
    /// Tries front proxy, client certificate, bearer token, WebSocket token and anonymous, in this order.
    pub authenticator: Arc<dyn Authenticator>,
    /// Tokens only, for TokenReviews.
    pub tokens: Arc<dyn TokenAuthenticator>,
    /// Whether anonymous requests are allowed on any path.
    pub anonymous: bool,
    /// Issues service account tokens, and publishes the keys that verify them.
    pub service_accounts: ServiceAccounts,
    /// Identity headers to remove from every request.
    pub identity_headers: IdentityHeaders,
}

fn header_names(flag: &'static str, names: &[String]) -> Result<Vec<HeaderName>, Error> {
    let wrong = Error::flag(flag);
    let parse = |n: &String| {
        n.parse()
            .map_err(|_| wrong(format!("{n:?} is not a valid header name")))
    };
    names.iter().map(parse).collect()
}

/// Builds the authenticators.
///
/// # Errors
/// A header name, token file or key that cannot be used.
pub(crate) fn build(
    options: &CompletedOptions,
    port: &Port,
    token_objects: &Arc<TokenObjects>,
    compute: &ComputePool,
    tasks: &TaskGroup,
    telemetry: &Telemetry,
) -> Result<Authentication, Error> {
    let o = &options.authentication;
    let names = RequestHeaderNames {
        username: header_names("requestheader-username-headers", &o.request_header.username_headers)?,
        uid: header_names("requestheader-uid-headers", &o.request_header.uid_headers)?,
        group: header_names("requestheader-group-headers", &o.request_header.group_headers)?,
        extra_prefix: o
            .request_header
            .extra_prefixes
            .iter()
            // `http` keeps header names in lower case.
            .map(|p| p.to_ascii_lowercase())
            .collect(),
    };
    // Removed from each request, trusted or not: a backend must only ever see what this gateway has set.
    let identity_headers = IdentityHeaders {
        names: [&names.username, &names.uid, &names.group]
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
        prefixes: names.extra_prefix.clone(),
    };
    let audiences = &o.api_audiences;
    // Upstream's order (`pkg/kubeapiserver/authenticator/config.go`): from local lookups to those that call
    // other servers.
    let mut kinds: Vec<Arc<dyn TokenAuthenticator>> = Vec::new();
    if let Some(path) = &o.token_file {
        let file = TokenFile::read(path).map_err(Error::flag("token-auth-file"))?;
        kinds.push(Arc::new(WithServerAudiences::new(file, audiences.clone())));
    }
    let accounts = service_accounts::build(options, token_objects.clone(), telemetry)?;
    kinds.push(accounts.legacy.clone());
    kinds.push(accounts.bound.clone());
    if o.bootstrap_tokens {
        let bootstrap = BootstrapTokens::new(token_objects.clone(), system_clock());
        kinds.push(Arc::new(WithServerAudiences::new(bootstrap, audiences.clone())));
    }
    let providers = identity_providers::build(options, compute, tasks, telemetry)?;
    kinds.push(Arc::new(WithServerAudiences::new(providers.tokens, audiences.clone())));
    if let Some(webhook) = &o.webhook {
        const FLAG: &str = "authentication-token-webhook-config-file";
        let config = ClientConfig::from_kubeconfig(&webhook.config_file).map_err(Error::flag(FLAG))?;
        let asked = WebhookTokens::try_new(&config, &webhook.version, webhook.ttl).map_err(Error::flag(FLAG))?;
        let asked = asked.counting(telemetry.client_requests.clone());
        kinds.push(Arc::new(asked));
    }
    let counts = Arc::new(TokenCacheMetrics::new(telemetry.registry()));
    let tokens: Arc<dyn TokenAuthenticator> =
        // In front of the whole union, so that one lookup in the cache answers for every type of token.
        Arc::new(TokenCache::try_new(Arc::new(TokenUnion::new(kinds)), Some(counts)).map_err(Error::other)?);
    let proxies = port.request_header_ca.clone() as Arc<dyn ClientCaSource>;
    let clients = port.client_ca.clone() as Arc<dyn ClientCaSource>;
    let union: Arc<dyn Authenticator> = Arc::new(authn::Union::new(vec![
        // Before X509, which would take the certificate of a front proxy for the caller's.
        Arc::new(RequestHeader::new(
            proxies,
            o.request_header.allowed_names.clone(),
            names,
        )),
        Arc::new(X509::new(clients).observing(telemetry.client_certificates.clone())),
        Arc::new(BearerToken::for_audiences(tokens.clone(), audiences.clone())),
        // Browsers cannot set the headers of a WebSocket, so the token comes as a subprotocol.
        Arc::new(WebSocketToken::for_audiences(tokens.clone(), audiences.clone())),
    ]));
    let anonymous = match (o.anonymous, providers.anonymous) {
        // The flag can only narrow: the file must not open what the command line has closed.
        (false, _) => None,
        (true, None) => Some(Anonymous::new()),
        (true, Some(said)) if !said.enabled => None,
        (true, Some(said)) if said.paths.is_empty() => Some(Anonymous::new()),
        (true, Some(said)) => Some(Anonymous::only_at(said.paths)),
    };
    let anonymous_allowed = anonymous.is_some();
    let authenticator = match anonymous {
        Some(anonymous) => Arc::new(WithAnonymous::new(union, anonymous)),
        None => union,
    };
    Ok(Authentication {
        authenticator,
        tokens,
        anonymous: anonymous_allowed,
        service_accounts: accounts,
        identity_headers,
    })
}
