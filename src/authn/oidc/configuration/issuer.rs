//! The `issuer` of a provider: its URLs, CA certificates and audiences. Validation follows upstream's
//! `validateIssuer` and what it calls; connecting to the provider is left to `provider`.

use super::{Error, Reader};
use crate::apimachinery::field::{FieldError, FieldPath};
use crate::apimachinery::value::Value;
use crate::pki::certs::CaPool;
use crate::request::go_url;

/// The identity of a provider.
pub(super) struct Issuer {
    pub url: String,
    pub discovery_url: Option<String>,
    pub ca_pem: Option<String>,
    pub audiences: Vec<String>,
}

impl Reader<'_> {
    pub(super) fn provider(&mut self, v: &Value, at: &FieldPath) -> Result<Issuer, Error> {
        let fields = [
            "url",
            "discoveryURL",
            "certificateAuthority",
            "audiences",
            "audienceMatchPolicy",
            "egressSelectorType",
        ];
        let path = at.as_str();
        self.check_fields(v, path, &fields)?;
        let url = self.text(v, "url", path)?;
        let discovery = self.text(v, "discoveryURL", path)?;
        let ca = self.text(v, "certificateAuthority", path)?;
        let egress = self.text(v, "egressSelectorType", path)?;
        self.urls(&url, &discovery, at);
        let audiences = self.audiences(v, at)?;
        if !ca.is_empty()
            && let Err(why) = CaPool::from_pem(ca.clone())
        {
            let path = at.child("certificateAuthority");
            // Without any certificate block the message is upstream's; a broken block gets the more specific
            // one of our parser.
            let why = match ca.contains("-----BEGIN CERTIFICATE-----") {
                true => why.to_string(),
                false => "data does not contain any valid RSA or ECDSA certificates".to_owned(),
            };
            // As upstream, which does not repeat the whole bundle.
            self.errors.push(FieldError::invalid(&path, "<omitted>", why));
        }
        match egress.as_str() {
            "" => {}
            "controlplane" | "cluster" => return Err(Error::EgressSelector(path.to_owned())),
            _ => {
                let why = "egress selector must be either controlplane or cluster";
                let path = at.child("egressSelectorType");
                self.errors.push(FieldError::invalid(&path, egress, why));
            }
        }
        Ok(Issuer {
            url,
            discovery_url: Some(discovery).filter(|u| !u.is_empty()),
            ca_pem: Some(ca).filter(|pem| !pem.is_empty()),
            audiences,
        })
    }

    fn urls(&mut self, url: &str, discovery: &str, at: &FieldPath) {
        let path = at.child("url");
        if url.is_empty() {
            self.errors.push(FieldError::required(&path, ""));
        } else {
            // Otherwise a provider could issue tokens that pass for service accounts of this cluster.
            if self.service_accounts.iter().any(|s| s == url) {
                let mut all: Vec<&str> = self.service_accounts.iter().map(String::as_str).collect();
                // As upstream, which prints a sorted set.
                all.sort_unstable();
                all.dedup();
                let why = format!("URL must not overlap with disallowed issuers: [{}]", all.join(" "));
                self.errors.push(FieldError::invalid(&path, url, why));
            }
            self.url(url, &path);
        }
        if discovery.is_empty() {
            return;
        }
        let path = at.child("discoveryURL");
        // As upstream, a slash at the end makes no difference.
        if !url.is_empty() && discovery.trim_end_matches('/') == url.trim_end_matches('/') {
            let why = "discoveryURL must be different from URL";
            self.errors.push(FieldError::invalid(&path, discovery, why));
        }
        self.url(discovery, &path);
    }

    fn url(&mut self, url: &str, path: &FieldPath) {
        // Go's parser first: its messages are part of upstream's, and it rejects some URLs that `http::Uri`
        // accepts.
        if let Some(why) = go_url::parse_error(url) {
            self.errors.push(FieldError::invalid(path, url, why));
            return;
        }
        let Ok(parsed) = url.parse::<http::Uri>() else {
            self.errors.push(FieldError::invalid(path, url, "must be a valid URL"));
            return;
        };
        let (before, fragment) = url.split_once('#').unwrap_or((url, ""));
        let query = before.split_once('?').map_or("", |(_, query)| query);
        let user = parsed.authority().is_some_and(|a| a.as_str().contains('@'));
        for (wrong, why) in [
            (parsed.scheme_str() != Some("https"), "URL scheme must be https"),
            (user, "URL must not contain a username or password"),
            (!query.is_empty(), "URL must not contain a query"),
            (!fragment.is_empty(), "URL must not contain a fragment"),
        ] {
            if wrong {
                self.errors.push(FieldError::invalid(path, url, why));
            }
        }
    }

    fn audiences(&mut self, issuer: &Value, at: &FieldPath) -> Result<Vec<String>, Error> {
        let path = at.child("audiences");
        let mut audiences: Vec<String> = Vec::new();
        for (i, v) in self.list(issuer, "audiences", at.as_str())?.iter().enumerate() {
            let path = path.index(i);
            let audience = v.as_str().ok_or_else(|| Error::expected(path.as_str(), "a string"))?;
            if audience.is_empty() {
                self.errors.push(FieldError::required(&path, ""));
            }
            if audiences.iter().any(|a| a == audience) {
                self.errors.push(FieldError::duplicate(&path, audience));
            }
            audiences.push(audience.to_owned());
        }
        let policy = self.text(issuer, "audienceMatchPolicy", at.as_str())?;
        let wrong = match (audiences.len(), policy.as_str()) {
            (0, _) => {
                let why = format!("at least one {path} is required");
                self.errors.push(FieldError::required(&path, why));
                None
            }
            (_, "MatchAny") | (1, "") => None,
            (1, _) => Some("audienceMatchPolicy must be empty or MatchAny for single audience"),
            _ => Some("audienceMatchPolicy must be MatchAny for multiple audiences"),
        };
        if let Some(why) = wrong {
            let path = at.child("audienceMatchPolicy");
            self.errors.push(FieldError::invalid(&path, policy, why));
        }
        Ok(audiences)
    }
}
