//! Parser of the ConfigMap `kube-system/extension-apiserver-authentication`.

use super::error::ConfigurationError;
use crate::apimachinery::Value;
use crate::apimachinery::codec::json;
use crate::authn::RequestHeaderNames;
use http::HeaderName;

/// The authentication configuration published by the core API server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Configuration {
    /// PEM bundle of the client CA.
    pub client_ca: Option<String>,
    /// PEM bundle of the front proxies' CA.
    pub proxy_ca: Option<String>,
    /// Allowed common names of front-proxy certificates; empty: any.
    pub allowed_names: Vec<String>,
    /// The headers in which front proxies pass the identity.
    pub headers: RequestHeaderNames,
}

impl Configuration {
    /// Parses the ConfigMap.
    ///
    /// # Errors
    /// [`ConfigurationError`]
    pub(crate) fn parse(config_map: &Value) -> Result<Self, ConfigurationError> {
        let text = |key: &str| {
            let text = config_map.str_at(&["data", key]);
            (!text.is_empty()).then(|| text.to_owned())
        };
        let list = |key: &str| -> Result<Vec<String>, ConfigurationError> {
            let Some(text) = text(key) else { return Ok(Vec::new()) };
            let wrong = || ConfigurationError::NoList(key.to_owned());
            let value = json::decode(text.as_bytes()).map_err(|_| wrong())?;
            let strings = value.as_array().ok_or_else(wrong)?.iter();
            strings
                .map(|v| v.as_str().map(str::to_owned).ok_or_else(wrong))
                .collect()
        };
        let names = |key: &str| -> Result<Vec<HeaderName>, ConfigurationError> {
            let wrong = |name| ConfigurationError::HeaderName {
                key: key.to_owned(),
                name,
            };
            let parse = |n: String| n.parse().map_err(|_| wrong(n));
            list(key)?.into_iter().map(parse).collect()
        };
        let proxy_ca = text("requestheader-client-ca-file");
        let headers = match &proxy_ca {
            // Without a proxy CA nobody may set these headers, so they are not even parsed: errors in unused
            // keys must not stop the server.
            None => RequestHeaderNames::default(),
            Some(_) => RequestHeaderNames {
                username: names("requestheader-username-headers")?,
                uid: names("requestheader-uid-headers")?,
                group: names("requestheader-group-headers")?,
                extra_prefix: list("requestheader-extra-headers-prefix")?
                    .into_iter()
                    // `HeaderName` is lower-case, and the prefixes are compared with it.
                    .map(|p| p.to_ascii_lowercase())
                    .collect(),
            },
        };
        Ok(Self {
            client_ca: text("client-ca-file"),
            proxy_ca,
            allowed_names: list("requestheader-allowed-names")?,
            headers,
        })
    }
}
