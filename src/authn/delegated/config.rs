//! What the ConfigMap says.

use crate::apimachinery::Value;
use crate::apimachinery::codec::json;
use crate::authn::RequestHeaderNames;
use http::HeaderName;

/// The core API server's authentication, as it publishes it.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// PEM of the CA of client certificates.
    pub client_ca: Option<String>,
    /// PEM of the CA of front proxies.
    pub proxy_ca: Option<String>,
    /// Names a front proxy's certificate may have; empty: any.
    pub allowed_names: Vec<String>,
    /// The headers a front proxy names the caller in.
    pub headers: RequestHeaderNames,
}

impl Configuration {
    /// Reads the ConfigMap.
    ///
    /// # Errors
    /// What is no JSON list of strings, or no header name.
    pub fn parse(config_map: &Value) -> Result<Self, String> {
        let text = |key: &str| {
            let text = config_map.str_at(&["data", key]);
            (!text.is_empty()).then(|| text.to_owned())
        };
        let list = |key: &str| -> Result<Vec<String>, String> {
            let Some(text) = text(key) else { return Ok(Vec::new()) };
            let wrong = || format!("{key}: expected a JSON list of strings");
            let value = json::decode(text.as_bytes()).map_err(|_| wrong())?;
            let strings = value.as_array().ok_or_else(wrong)?.iter();
            strings
                .map(|v| v.as_str().map(str::to_owned).ok_or_else(wrong))
                .collect()
        };
        let names = |key: &str| -> Result<Vec<HeaderName>, String> {
            let parse = |n: String| n.parse().map_err(|_| format!("{key}: {n:?} is no header name"));
            list(key)?.into_iter().map(parse).collect()
        };
        let proxy_ca = text("requestheader-client-ca-file");
        let headers = match &proxy_ca {
            None => RequestHeaderNames::default(),
            Some(_) => RequestHeaderNames {
                username: names("requestheader-username-headers")?,
                uid: names("requestheader-uid-headers")?,
                group: names("requestheader-group-headers")?,
                extra_prefix: list("requestheader-extra-headers-prefix")?
                    .into_iter()
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
