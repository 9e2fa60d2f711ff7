//! Options and loaded certificates → the authenticators, in upstream's order.

use super::port::Port;
use crate::authn;
use crate::authn::{
    Anonymous, Authenticator, BearerToken, RequestHeader, RequestHeaderNames, TokenAuthenticator, TokenFile,
    WebSocketToken, WithAnonymous, X509,
};
use crate::cli::CompletedOptions;
use crate::request::ClientCaSource;
use crate::server::chain::IdentityHeaders;
use http::HeaderName;
use std::sync::Arc;

/// Who calls, and which headers must not travel on.
pub struct Authentication {
    /// Front proxy, client certificate, token, WebSocket token, anonymous.
    pub authenticator: Arc<dyn Authenticator>,
    /// Tokens alone, for TokenReviews.
    pub tokens: Arc<dyn TokenAuthenticator>,
    /// To be removed from every request.
    pub identity_headers: IdentityHeaders,
}

fn header_names(flag: &str, names: &[String]) -> Result<Vec<HeaderName>, String> {
    let parse = |n: &String| n.parse().map_err(|_| format!("--{flag}: {n:?} is no header name"));
    names.iter().map(parse).collect()
}

/// Builds them.
///
/// # Errors
/// One line: a header name or the token file cannot be used.
pub fn build(options: &CompletedOptions, port: &Port) -> Result<Authentication, String> {
    let o = &options.authentication;
    let names = RequestHeaderNames {
        username: header_names("requestheader-username-headers", &o.request_header.username_headers)?,
        uid: header_names("requestheader-uid-headers", &o.request_header.uid_headers)?,
        group: header_names("requestheader-group-headers", &o.request_header.group_headers)?,
        extra_prefix: o
            .request_header
            .extra_prefixes
            .iter()
            .map(|p| p.to_ascii_lowercase())
            .collect(),
    };
    let identity_headers = IdentityHeaders {
        names: [&names.username, &names.uid, &names.group]
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
        prefixes: names.extra_prefix.clone(),
    };
    let tokens: Arc<dyn TokenAuthenticator> = Arc::new(match &o.token_file {
        Some(path) => TokenFile::read(path).map_err(|e| format!("--token-auth-file: {e}"))?,
        None => TokenFile::parse("", "").map_err(|e| e.to_string())?,
    });
    let proxies = port.request_header_ca.clone() as Arc<dyn ClientCaSource>;
    let clients = port.client_ca.clone() as Arc<dyn ClientCaSource>;
    let union: Arc<dyn Authenticator> = Arc::new(authn::Union::new(vec![
        Arc::new(RequestHeader::new(
            proxies,
            o.request_header.allowed_names.clone(),
            names,
        )),
        Arc::new(X509::new(clients)),
        Arc::new(BearerToken::new(tokens.clone())),
        Arc::new(WebSocketToken::new(tokens.clone())),
    ]));
    let authenticator = if o.anonymous {
        Arc::new(WithAnonymous::new(union, Anonymous::new()))
    } else {
        union
    };
    Ok(Authentication {
        authenticator,
        tokens,
        identity_headers,
    })
}
