//! Service account tokens: builds their issuer and authenticators from the options, and publishes the OpenID
//! Connect discovery documents.

use super::Error;
use super::error::Cause;
use super::token_objects::TokenObjects;
use crate::authn::jwt::{PublicKey, Signer};
use crate::authn::service_account::{
    Issuer, ServiceAccountTokens, VerificationDependencies, VerificationKeys, discovery, system_clock,
};
use crate::cli::CompletedOptions;
use crate::controlplane::TokenRequests;
use crate::request::{Request, Response};
use crate::server::container::WebService;
use crate::server::generic::GenericServer;
use crate::server::respond::{self, FnHandler};
use crate::telemetry::Telemetry;
use http::header::{CACHE_CONTROL, HeaderValue};
use http::{Method, StatusCode};
use std::path::Path;
use std::sync::Arc;

/// Authenticators and issuer of service account tokens.
pub(crate) struct ServiceAccounts {
    /// Authenticates tokens stored in Secrets.
    pub legacy: Arc<ServiceAccountTokens>,
    /// Authenticates tokens issued through TokenRequest.
    pub bound: Arc<ServiceAccountTokens>,
    pub requests: TokenRequests,
    /// The keys that verify tokens.
    pub keys: VerificationKeys,
}

fn read<T, E: Into<Cause>>(flag: &'static str, path: &Path, parse: impl Fn(&[u8]) -> Result<T, E>) -> Result<T, Error> {
    let bytes = std::fs::read(path).map_err(|e| Error::file(flag, path)(format!("cannot be read: {e}")))?;
    parse(&bytes).map_err(Error::file(flag, path))
}

/// Reads the keys. Generated ones must exist already.
///
/// # Errors
/// A file cannot be read or contains no usable key.
pub(crate) fn build(
    options: &CompletedOptions,
    objects: Arc<TokenObjects>,
    telemetry: &Telemetry,
) -> Result<ServiceAccounts, Error> {
    let (o, audiences) = (
        &options.authentication.service_account,
        options.authentication.api_audiences.clone(),
    );
    let made = options.pki_options().dir;
    let key_flag = "service-account-key-file";
    let signing = o.signing_key.clone().unwrap_or_else(|| made.join("sa.key"));
    let signer = read("service-account-signing-key-file", &signing, |pem| {
        Signer::from_pem(pem).map_err(|e| e.0)
    })?;
    let public = |path: &Path| read(key_flag, path, |pem| PublicKey::from_pem(pem).map_err(|e| e.0));
    let mut keys = Vec::new();
    for path in &o.key_files {
        keys.extend(public(path)?);
    }
    // Tokens we sign must be accepted. Besides the generated key, sa.pub may hold earlier ones.
    keys.push(signer.public().clone());
    if o.signing_key.is_none() && o.key_files.is_empty() {
        keys.extend(public(&made.join("sa.pub"))?);
    }
    let (keys, clock) = (VerificationKeys::new(keys), system_clock());
    // The first one signs; the others are former issuers whose tokens still verify.
    let issuer = o.issuers.first().cloned().unwrap_or_default();
    let counts = &telemetry.service_account_tokens;
    let dependencies = VerificationDependencies {
        keys: keys.clone(),
        audiences: audiences.clone(),
        objects,
        clock: clock.clone(),
    };
    // No issuers: tokens in Secrets all name `kubernetes/serviceaccount`.
    let legacy = ServiceAccountTokens::legacy(o.lookup, dependencies.clone());
    let bound = ServiceAccountTokens::bound(o.issuers.clone(), dependencies);
    Ok(ServiceAccounts {
        legacy: Arc::new(legacy.counting(counts.clone())),
        bound: Arc::new(bound.counting(counts.clone())),
        requests: TokenRequests {
            issuer: Issuer::new(issuer, Arc::new(signer), clock),
            audiences,
            max_seconds: i64::try_from(o.max_expiration.as_secs()).unwrap_or(i64::MAX),
            extend: o.extend_expiration,
        },
        keys,
    })
}

impl ServiceAccounts {
    /// The discovery documents; `None` if the issuer does not allow any. `external` is the `host:port` under
    /// which clients reach this server.
    pub(crate) fn documents(&self, options: &CompletedOptions, external: &str) -> Option<discovery::Documents> {
        let o = &options.authentication.service_account;
        let uri = o.jwks_uri.clone();
        let uri = uri.unwrap_or_else(|| format!("https://{external}{}", discovery::KEY_SET_PATH));
        let issuer = o.issuers.first().map(String::as_str).unwrap_or_default();
        let documents = discovery::Documents::new(issuer, &self.keys, &uri);
        if documents.is_none() {
            tracing::warn!(
                issuer,
                "no OpenID Connect discovery: --service-account-issuer is not an https URL without query and fragment"
            );
        }
        documents
    }
}

/// Serves the discovery documents; the authorizer decides who may read them.
pub(crate) fn publish(server: &GenericServer, documents: discovery::Documents) {
    type Render = fn(&discovery::Documents) -> String;
    let both: [(_, _, Render); 2] = [
        (
            discovery::DOCUMENT_PATH,
            "application/json",
            discovery::Documents::configuration,
        ),
        (
            discovery::KEY_SET_PATH,
            discovery::KEY_SET_TYPE,
            discovery::Documents::key_set,
        ),
    ];
    for (path, media, render) in both {
        let documents = documents.clone();
        // In the container, as upstream, whose router refuses other methods and media types.
        server.container().replace(WebService {
            root: path.to_owned(),
            handler: Arc::new(FnHandler(move |req: &Request| {
                document(req, path, media, || render(&documents))
            })),
        });
    }
}

fn document(req: &Request, path: &str, media: &'static str, body: impl Fn() -> String) -> Response {
    if respond::path(req).trim_end_matches('/') != path {
        return respond::route_not_found(req.headers());
    }
    if req.method() != Method::GET {
        return respond::method_not_allowed(req.headers());
    }
    if !respond::is_accepted(media, req.headers()) {
        return respond::not_acceptable(media, req.headers());
    }
    let mut r = respond::bytes(
        StatusCode::OK,
        HeaderValue::from_static(media),
        bytes::Bytes::from(body()),
    );
    r.headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static(discovery::CACHE_CONTROL));
    r
}
