//! The authentication flags: anonymous access, client CAs, static tokens, service accounts, OIDC, webhooks
//! and front proxies. Files are validated by `complete` and used by `app::authentication`.

use super::{UsageError, Values, file};
use crate::authn::jwt::Algorithm;
use crate::authn::oidc::{JwtIssuer, Mapping, Prefixed};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct AuthenticationOptions {
    /// `--anonymous-auth`.
    pub anonymous: bool,
    /// `--client-ca-file`; absent for the generated CA.
    pub client_ca: Option<PathBuf>,
    /// `--token-auth-file`; the authenticator reads the file.
    pub token_file: Option<PathBuf>,
    /// `--api-audiences`; defaults to the issuers, so never empty.
    pub api_audiences: Vec<String>,
    /// `--authentication-config`; the file is read, and watched, elsewhere.
    pub config_file: Option<PathBuf>,
    /// `--enable-bootstrap-token-auth`.
    pub bootstrap_tokens: bool,
    /// `--oidc-*`; together they describe a single provider.
    pub oidc: Option<OidcOptions>,
    /// `--authentication-token-webhook-*`.
    pub webhook: Option<TokenWebhookOptions>,
    /// `--requestheader-*`: front proxies.
    pub request_header: RequestHeaderOptions,
    /// `--service-account-*` and `--api-audiences`.
    pub service_account: ServiceAccountOptions,
}

/// `--oidc-*`.
#[derive(Clone, Debug)]
pub(crate) struct OidcOptions {
    /// The provider, without its CA certificates.
    pub issuer: JwtIssuer,
    /// `--oidc-ca-file`.
    pub ca_file: Option<PathBuf>,
}

/// `--authentication-token-webhook-*`.
#[derive(Clone, Debug)]
pub(crate) struct TokenWebhookOptions {
    /// Kubeconfig of the webhook.
    pub config_file: PathBuf,
    /// `v1` or `v1beta1`.
    pub version: String,
    /// Time for which answers are cached; zero disables the cache.
    pub ttl: Duration,
}

/// `--requestheader-*`.
#[derive(Clone, Debug)]
pub(crate) struct RequestHeaderOptions {
    /// CA bundle; absent for the generated CA.
    pub client_ca: Option<PathBuf>,
    /// Allowed common names; empty for any.
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    /// Those that the flag names, which are published to extension servers: none by default, as upstream.
    pub published_uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    /// Prefixes of headers with extra user attributes.
    pub extra_prefixes: Vec<String>,
}

/// `--service-account-*`.
#[derive(Clone, Debug)]
pub(crate) struct ServiceAccountOptions {
    /// Accepted issuers; the first is used for new tokens.
    pub issuers: Vec<String>,
    /// Keys that verify tokens; if empty, the public half of the signing key does.
    pub key_files: Vec<PathBuf>,
    /// Key that signs tokens; absent for the generated one.
    pub signing_key: Option<PathBuf>,
    /// `--generated-signing-key=RS256`
    pub generated_key_is_rsa: bool,
    /// Whether tokens of deleted service accounts are rejected.
    pub lookup: bool,
    /// Maximum lifetime of a requested token; zero for no limit.
    pub max_expiration: Duration,
    /// Whether projected tokens are extended to a year.
    pub extend_expiration: bool,
    /// URI of the key set in the discovery document.
    pub jwks_uri: Option<String>,
}

/// The default issuer, the same as kubeadm's.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

fn list_or(values: &Values, name: &str, default: &str) -> Vec<String> {
    let list = values.list(name);
    if list.is_empty() {
        vec![default.to_owned()]
    } else {
        list
    }
}

impl AuthenticationOptions {
    pub(super) fn read(values: &Values) -> Result<Self, UsageError> {
        let service_account = ServiceAccountOptions::read(values)?;
        let mut api_audiences = values.list("api-audiences");
        if api_audiences.is_empty() {
            // As upstream: tokens that this server issues must be valid for it.
            api_audiences.clone_from(&service_account.issuers);
        }
        Ok(Self {
            anonymous: values.bool("anonymous-auth")?,
            client_ca: file(values, "client-ca-file"),
            token_file: file(values, "token-auth-file"),
            api_audiences,
            config_file: file(values, "authentication-config"),
            bootstrap_tokens: values.bool("enable-bootstrap-token-auth")?,
            oidc: OidcOptions::read(values)?,
            webhook: TokenWebhookOptions::read(values)?,
            request_header: RequestHeaderOptions::read(values)?,
            service_account,
        })
    }
}

impl OidcOptions {
    fn read(values: &Values) -> Result<Option<Self>, UsageError> {
        // Any of them: a provider without URL or client would otherwise be ignored silently.
        let given = values.given().any(|name| name.starts_with("oidc-"));
        let url = values.text("oidc-issuer-url");
        let client = values.text("oidc-client-id");
        if url.is_empty() && client.is_empty() && !given {
            return Ok(None);
        }
        if given && values.some_text("authentication-config").is_some() {
            return Err(UsageError::new(
                "authentication-config file and oidc-* flags are mutually exclusive",
            ));
        }
        if url.is_empty() || client.is_empty() {
            return Err(UsageError::new(
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
            ));
        }
        if !url.starts_with("https://") || url.contains(['?', '#']) {
            let why = "URL scheme must be https, and there may be neither a query nor a fragment";
            return Err(UsageError::invalid("oidc-issuer-url", url, why));
        }
        let claim = values.text("oidc-username-claim").to_owned();
        let prefix = match values.text("oidc-username-prefix") {
            "-" => String::new(),
            // An email address is taken to be globally unique.
            "" if claim == "email" => String::new(),
            // Upstream's default, so that users of a provider cannot take the names of system users.
            "" => format!("{url}#"),
            prefix => prefix.to_owned(),
        };
        let mut required = Vec::new();
        for pair in values.list("oidc-required-claim") {
            let (claim, value) = pair
                .split_once('=')
                .ok_or_else(|| UsageError::invalid("oidc-required-claim", &pair, "must be key=value"))?;
            required.push((claim.trim().to_owned(), value.trim().to_owned()));
        }
        let mut algorithms = Vec::new();
        for name in values.list("oidc-signing-algs") {
            let unknown = || UsageError::invalid("oidc-signing-algs", &name, "unsupported signing algorithm");
            algorithms.push(Algorithm::of(&name).ok_or_else(unknown)?);
        }
        let groups = values.some_text("oidc-groups-claim").map(|claim| {
            Mapping::Claim(Prefixed {
                claim: claim.to_owned(),
                prefix: values.text("oidc-groups-prefix").to_owned(),
            })
        });
        Ok(Some(Self {
            issuer: JwtIssuer {
                url: url.to_owned(),
                discovery_url: None,
                ca_pem: None,
                audiences: vec![client.to_owned()],
                required,
                claim_rules: Vec::new(),
                username: Mapping::Claim(Prefixed { claim, prefix }),
                groups,
                uid: None,
                extra: Vec::new(),
                user_rules: Vec::new(),
                algorithms,
            },
            ca_file: file(values, "oidc-ca-file"),
        }))
    }
}

impl TokenWebhookOptions {
    fn read(values: &Values) -> Result<Option<Self>, UsageError> {
        let Some(config_file) = file(values, "authentication-token-webhook-config-file") else {
            return Ok(None);
        };
        let version = values.text("authentication-token-webhook-version").to_owned();
        if !matches!(version.as_str(), "v1" | "v1beta1") {
            let flag = "authentication-token-webhook-version";
            return Err(UsageError::invalid(flag, &version, "must be v1 or v1beta1"));
        }
        Ok(Some(Self {
            config_file,
            version,
            ttl: values.duration("authentication-token-webhook-cache-ttl")?,
        }))
    }
}

impl RequestHeaderOptions {
    fn read(values: &Values) -> Result<Self, UsageError> {
        let client_ca = file(values, "requestheader-client-ca-file");
        let mut allowed_names = values.list("requestheader-allowed-names");
        if client_ca.is_none() && allowed_names.is_empty() {
            // The generated CA issues a single certificate, so no other name is legitimate.
            allowed_names.push("front-proxy-client".to_owned());
        }
        let published_uid_headers = values.list("requestheader-uid-headers");
        let uid_headers = list_or(values, "requestheader-uid-headers", "X-Remote-Uid");
        // As upstream: the aggregator sends this header to backends, whatever the flag says.
        if !uid_headers.iter().any(|h| h.eq_ignore_ascii_case("X-Remote-Uid")) {
            return Err(UsageError::new(
                "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - \
                 API aggregation will not work",
            ));
        }
        Ok(Self {
            client_ca,
            allowed_names,
            username_headers: list_or(values, "requestheader-username-headers", "X-Remote-User"),
            uid_headers,
            published_uid_headers,
            group_headers: list_or(values, "requestheader-group-headers", "X-Remote-Group"),
            extra_prefixes: list_or(values, "requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        })
    }
}

impl ServiceAccountOptions {
    fn read(values: &Values) -> Result<Self, UsageError> {
        let issuers = list_or(values, "service-account-issuer", ISSUER);
        for (n, issuer) in issuers.iter().enumerate() {
            // By RFC 7519 any string may be an issuer, but one with a colon must be a URI.
            if issuer.contains(':') && !issuer.contains("://") {
                return Err(UsageError::invalid(
                    "service-account-issuer",
                    issuer,
                    "contains a ':' but is not a URL",
                ));
            }
            // The order of issuers matters (the first one signs), so a repeated one is likely a mistake.
            if issuers[..n].contains(issuer) {
                return Err(UsageError::invalid("service-account-issuer", issuer, "is given twice"));
            }
        }
        let max_expiration = values.duration("service-account-max-token-expiration")?;
        // Upstream's bounds.
        const HOUR: Duration = Duration::from_secs(3600);
        const MAX: Duration = Duration::from_secs(1 << 32);
        if !max_expiration.is_zero() && !(HOUR..=MAX).contains(&max_expiration) {
            return Err(UsageError::new(
                "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds",
            ));
        }
        Ok(Self {
            issuers,
            key_files: values
                .list("service-account-key-file")
                .into_iter()
                .map(PathBuf::from)
                .collect(),
            signing_key: file(values, "service-account-signing-key-file"),
            generated_key_is_rsa: match values.text("generated-signing-key") {
                "ES256" => false,
                "RS256" => true,
                other => {
                    return Err(UsageError::invalid(
                        "generated-signing-key",
                        other,
                        "expected ES256 or RS256",
                    ));
                }
            },
            lookup: values.bool("service-account-lookup")?,
            max_expiration,
            extend_expiration: values.bool("service-account-extend-token-expiration")?,
            jwks_uri: values.some_text("service-account-jwks-uri").map(str::to_owned),
        })
    }
}
