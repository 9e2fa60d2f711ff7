//! Strict parser of `AuthenticationConfiguration` (apiserver.config.k8s.io). Unknown fields and CEL expressions are
//! errors rather than ignored. Validation messages are upstream's.

use crate::apimachinery::codec::yaml;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, aggregate};
use crate::apimachinery::value::Value;
use crate::authn::jwt::Algorithm;

/// Maximum number of providers.
const MAX_ISSUERS: usize = 64;

/// A claim, and the prefix prepended to its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixed {
    /// The name of the claim.
    pub claim: String,
    /// The prefix; may be empty.
    pub prefix: String,
}

/// An identity provider and how its claims map to a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtIssuer {
    /// The issuer URL, which must equal the `iss` claim.
    pub url: String,
    /// URL of the discovery document; `None`: the well-known path under `url`.
    pub discovery_url: Option<String>,
    /// PEM bundle of the CAs that verify the provider's certificate; `None`: the system's roots.
    pub ca_pem: Option<String>,
    /// Accepted audiences; a token must have at least one.
    pub audiences: Vec<String>,
    /// Claims that must be present with the given value.
    pub required: Vec<(String, String)>,
    /// Maps to the user name.
    pub username: Prefixed,
    /// Maps to the groups.
    pub groups: Option<Prefixed>,
    /// The claim that holds the user's uid.
    pub uid: Option<String>,
    /// Accepted signature algorithms.
    pub algorithms: Vec<Algorithm>,
}

/// The `anonymous` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnonymousConfig {
    /// Whether anonymous requests are allowed at all.
    pub enabled: bool,
    /// The exact paths where they are; empty: everywhere.
    pub paths: Vec<String>,
}

/// A parsed configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The identity providers.
    pub issuers: Vec<JwtIssuer>,
    /// Anonymous access; `None`: `--anonymous-auth` decides.
    pub anonymous: Option<AnonymousConfig>,
}

/// Why a file is not a valid configuration.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file is not YAML.
    #[error(transparent)]
    Yaml(#[from] yaml::Error),
    /// A key that a map has twice, with its line.
    #[error("strict decoding error: yaml: {0}")]
    DuplicateKey(String),
    /// The file is of another kind.
    #[error("the kind must be AuthenticationConfiguration")]
    Kind,
    /// The file is of another version than these.
    #[error("the apiVersion must be one of {0}")]
    ApiVersion(String),
    /// Fields that do not exist.
    #[error("strict decoding error: {0}")]
    Unknown(String),
    /// A value of another type.
    #[error("{path}: expected {expected}")]
    Type {
        /// The field.
        path: String,
        /// The type, with its article.
        expected: &'static str,
    },
    /// An expression, which is not evaluated.
    #[error("{line}{path}: CEL expressions are not evaluated in this release; use a claim instead, or leave it out")]
    Expression {
        /// The first line of the file with that key, as `line 3: `; empty if there is none.
        line: String,
        /// The field.
        path: String,
    },
    /// An issuer that is reached through an egress selector.
    #[error("{0}.egressSelectorType: there are no egress selectors in this release")]
    EgressSelector(String),
    /// Upstream's field errors, joined.
    #[error("{0}")]
    Fields(String),
}

impl Error {
    fn expected(path: &str, expected: &'static str) -> Self {
        let path = path.to_owned();
        Self::Type { path, expected }
    }
}

impl Configuration {
    /// Parses a file. `service_accounts` are our own token issuers, which no provider may claim.
    ///
    /// # Errors
    /// The field or line at fault.
    pub fn parse(text: &str, service_accounts: &[String]) -> Result<Self, Error> {
        let (doc, twice) = yaml::decode_with_duplicates(text.as_bytes())?;
        if let Some(twice) = twice.first() {
            return Err(Error::DuplicateKey(twice.clone()));
        }
        if doc.str_at(&["kind"]) != "AuthenticationConfiguration" {
            return Err(Error::Kind);
        }
        let versions = ["v1", "v1beta1", "v1alpha1"].map(|v| format!("apiserver.config.k8s.io/{v}"));
        if !versions.iter().any(|v| v == doc.str_at(&["apiVersion"])) {
            return Err(Error::ApiVersion(versions.join(", ")));
        }
        let mut reader = Reader {
            text,
            service_accounts,
            unknown: Vec::new(),
            errors: ErrorList::new(),
        };
        let read = reader.document(&doc)?;
        if !reader.unknown.is_empty() {
            return Err(Error::Unknown(reader.unknown.join(", ")));
        }
        match reader.errors.is_empty() {
            true => Ok(read),
            false => Err(Error::Fields(aggregate(&reader.errors))),
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    service_accounts: &'a [String],
    unknown: Vec<String>,
    errors: ErrorList,
}

impl Reader<'_> {
    fn known(&mut self, v: &Value, path: &str, fields: &[&str]) -> Result<(), Error> {
        let Some(map) = v.as_object() else {
            return match v.is_null() {
                true => Ok(()),
                false => Err(Error::expected(path, "an object")),
            };
        };
        let dot = if path.is_empty() { "" } else { "." };
        let new = map.keys().filter(|k| !fields.contains(k));
        self.unknown
            .extend(new.map(|k| format!("unknown field \"{path}{dot}{k}\"")));
        Ok(())
    }

    /// A string field; empty if absent.
    fn text(&mut self, v: &Value, field: &str, path: &str) -> Result<String, Error> {
        match v.get(field) {
            Value::Null => Ok(String::new()),
            v => v
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| Error::expected(&format!("{path}.{field}"), "a string")),
        }
    }

    fn list<'v>(&self, v: &'v Value, field: &str, path: &str) -> Result<&'v [Value], Error> {
        match v.get(field) {
            Value::Null => Ok(&[]),
            v => v
                .as_array()
                .map(Vec::as_slice)
                .ok_or_else(|| Error::expected(&format!("{path}.{field}"), "a list")),
        }
    }

    /// Rejects a CEL expression. The message names the first line of the file with that key.
    fn no_expression(&self, v: &Value, field: &str, path: &str) -> Result<(), Error> {
        let value = v.get(field);
        if value.is_null() || value.as_str() == Some("") {
            return Ok(());
        }
        let starts = |line: &str| {
            let line = line.trim_start_matches([' ', '\t', '-', '{', ',']);
            let rest = line.trim_start_matches(['"', '\'']).strip_prefix(field);
            rest.is_some_and(|r| r.trim_start_matches(['"', '\'']).trim_start().starts_with(':'))
        };
        let line = self.text.lines().position(starts);
        Err(Error::Expression {
            line: line.map_or_else(String::new, |n| format!("line {}: ", n + 1)),
            path: format!("{path}.{field}"),
        })
    }

    fn document(&mut self, doc: &Value) -> Result<Configuration, Error> {
        self.known(doc, "", &["apiVersion", "kind", "jwt", "anonymous"])?;
        let jwt = self.list(doc, "jwt", "")?;
        let at = FieldPath::new("jwt");
        if jwt.len() > MAX_ISSUERS {
            self.errors.push(FieldError::too_many(&at, jwt.len(), MAX_ISSUERS));
        }
        let mut issuers: Vec<JwtIssuer> = Vec::new();
        for (i, entry) in jwt.iter().enumerate() {
            let issuer = self.issuer(entry, &at.index(i))?;
            let path = at.index(i).child("issuer");
            if issuers.iter().any(|other| other.url == issuer.url) {
                self.errors
                    .push(FieldError::duplicate(&path.child("url"), issuer.url.as_str()));
            }
            let discovery = issuer.discovery_url.as_deref();
            if discovery.is_some() && issuers.iter().any(|other| other.discovery_url.as_deref() == discovery) {
                let path = path.child("discoveryURL");
                self.errors
                    .push(FieldError::duplicate(&path, discovery.unwrap_or_default()));
            }
            issuers.push(issuer);
        }
        let anonymous = self.anonymous(doc.get("anonymous"))?;
        Ok(Configuration { issuers, anonymous })
    }

    fn anonymous(&mut self, v: &Value) -> Result<Option<AnonymousConfig>, Error> {
        if v.is_null() {
            return Ok(None);
        }
        self.known(v, "anonymous", &["enabled", "conditions"])?;
        let enabled = match v.get("enabled") {
            Value::Null => false,
            v => {
                let expected = || Error::expected("anonymous.enabled", "true or false");
                v.as_bool().ok_or_else(expected)?
            }
        };
        let mut paths = Vec::new();
        for (i, condition) in self.list(v, "conditions", "anonymous")?.iter().enumerate() {
            let path = format!("anonymous.conditions[{i}]");
            self.known(condition, &path, &["path"])?;
            paths.push(self.text(condition, "path", &path)?);
        }
        if !enabled && !paths.is_empty() {
            self.errors.push(FieldError::invalid(
                &FieldPath::new("anonymous").child("conditions"),
                Value::from(paths.clone()),
                "enabled should be set to true when conditions are defined",
            ));
        }
        Ok(Some(AnonymousConfig { enabled, paths }))
    }

    fn issuer(&mut self, v: &Value, at: &FieldPath) -> Result<JwtIssuer, Error> {
        let path = at.as_str().to_owned();
        let fields = ["issuer", "claimValidationRules", "claimMappings", "userValidationRules"];
        self.known(v, &path, &fields)?;
        let issuer = v.get("issuer");
        let in_issuer = format!("{path}.issuer");
        self.known(
            issuer,
            &in_issuer,
            &[
                "url",
                "discoveryURL",
                "certificateAuthority",
                "audiences",
                "audienceMatchPolicy",
                "egressSelectorType",
            ],
        )?;
        let url = self.text(issuer, "url", &in_issuer)?;
        let discovery = self.text(issuer, "discoveryURL", &in_issuer)?;
        let ca = self.text(issuer, "certificateAuthority", &in_issuer)?;
        if !self.text(issuer, "egressSelectorType", &in_issuer)?.is_empty() {
            return Err(Error::EgressSelector(in_issuer));
        }
        let at_issuer = at.child("issuer");
        self.urls(&url, &discovery, &at_issuer);
        let audiences = self.audiences(issuer, &at_issuer)?;
        for (i, rule) in self.list(v, "userValidationRules", &path)?.iter().enumerate() {
            let path = format!("{path}.userValidationRules[{i}]");
            self.known(rule, &path, &["expression", "message"])?;
            self.no_expression(rule, "expression", &path)?;
            let at = at.child("userValidationRules").index(i).child("expression");
            self.errors.push(FieldError::required(&at, "expression is required"));
        }
        let required = self.required(v, at)?;
        let mappings = v.get("claimMappings");
        let (username, groups, uid) = self.mappings(mappings, &at.child("claimMappings"))?;
        Ok(JwtIssuer {
            url,
            discovery_url: Some(discovery).filter(|u| !u.is_empty()),
            ca_pem: Some(ca).filter(|pem| !pem.is_empty()),
            audiences,
            required,
            username,
            groups,
            uid,
            algorithms: Algorithm::ALL.to_vec(),
        })
    }

    fn urls(&mut self, url: &str, discovery: &str, at: &FieldPath) {
        let path = at.child("url");
        if url.is_empty() {
            self.errors.push(FieldError::required(&path, "URL is required"));
        } else if self.service_accounts.iter().any(|s| s == url) {
            let all = self.service_accounts.join(" ");
            let why = format!("URL must not overlap with disallowed issuers: [{all}]");
            self.errors.push(FieldError::invalid(&path, url, why));
        } else {
            self.url(url, &path);
        }
        if discovery.is_empty() {
            return;
        }
        let path = at.child("discoveryURL");
        if discovery == url {
            let why = "discoveryURL must be different from URL";
            self.errors.push(FieldError::invalid(&path, discovery, why));
        }
        self.url(discovery, &path);
    }

    fn url(&mut self, url: &str, path: &FieldPath) {
        let parsed: Option<http::Uri> = url.parse().ok();
        let why = match parsed {
            None => "must be a valid URL",
            Some(u) if u.scheme_str() != Some("https") => "URL scheme must be https",
            Some(u) if u.authority().is_some_and(|a| a.as_str().contains('@')) => {
                "URL must not contain a username or password"
            }
            Some(_) if url.contains('?') => "URL must not contain a query",
            Some(_) if url.contains('#') => "URL must not contain a fragment",
            Some(_) => return,
        };
        self.errors.push(FieldError::invalid(path, url, why));
    }

    fn audiences(&mut self, issuer: &Value, at: &FieldPath) -> Result<Vec<String>, Error> {
        let path = at.child("audiences");
        let mut audiences: Vec<String> = Vec::new();
        for (i, v) in self.list(issuer, "audiences", at.as_str())?.iter().enumerate() {
            let path = path.index(i);
            let audience = v.as_str().ok_or_else(|| Error::expected(path.as_str(), "a string"))?;
            if audience.is_empty() {
                self.errors.push(FieldError::required(&path, "audience can't be empty"));
            } else if audiences.iter().any(|a| a == audience) {
                self.errors.push(FieldError::duplicate(&path, audience));
            }
            audiences.push(audience.to_owned());
        }
        if audiences.is_empty() {
            let why = "at least one jwt[].issuer.audiences is required";
            self.errors.push(FieldError::required(&path, why));
        }
        let policy = self.text(issuer, "audienceMatchPolicy", at.as_str())?;
        let wrong = match policy.as_str() {
            "" if audiences.len() > 1 => Some("audienceMatchPolicy must be MatchAny for multiple audiences"),
            "" | "MatchAny" => None,
            _ => Some("must be MatchAny or empty"),
        };
        if let Some(why) = wrong {
            let path = at.child("audienceMatchPolicy");
            self.errors.push(FieldError::invalid(&path, policy.as_str(), why));
        }
        Ok(audiences)
    }

    fn required(&mut self, v: &Value, at: &FieldPath) -> Result<Vec<(String, String)>, Error> {
        let at = at.child("claimValidationRules");
        let mut required: Vec<(String, String)> = Vec::new();
        let path = at.as_str().trim_end_matches(".claimValidationRules").to_owned();
        for (i, rule) in self.list(v, "claimValidationRules", &path)?.iter().enumerate() {
            let path = at.index(i);
            self.known(
                rule,
                path.as_str(),
                &["claim", "requiredValue", "expression", "message"],
            )?;
            self.no_expression(rule, "expression", path.as_str())?;
            let claim = self.text(rule, "claim", path.as_str())?;
            let value = self.text(rule, "requiredValue", path.as_str())?;
            if claim.is_empty() {
                self.errors
                    .push(FieldError::required(&path, "claim or expression is required"));
            } else if required.iter().any(|(c, _)| *c == claim) {
                self.errors
                    .push(FieldError::duplicate(&path.child("claim"), claim.as_str()));
            }
            if !self.text(rule, "message", path.as_str())?.is_empty() {
                let why = "message can't be set when claim is set";
                self.errors.push(FieldError::invalid(
                    &path.child("message"),
                    rule.get("message").clone(),
                    why,
                ));
            }
            required.push((claim, value));
        }
        Ok(required)
    }

    fn mappings(&mut self, v: &Value, at: &FieldPath) -> Result<(Prefixed, Option<Prefixed>, Option<String>), Error> {
        let path = at.as_str();
        self.known(v, path, &["username", "groups", "uid", "extra"])?;
        let username = self.prefixed(v.get("username"), &at.child("username"))?;
        if username.claim.is_empty() {
            let why = "claim or expression is required";
            self.errors.push(FieldError::required(&at.child("username"), why));
        }
        let groups = self.prefixed(v.get("groups"), &at.child("groups"))?;
        let uid = v.get("uid");
        let in_uid = format!("{path}.uid");
        self.known(uid, &in_uid, &["claim", "expression"])?;
        self.no_expression(uid, "expression", &in_uid)?;
        let uid = self.text(uid, "claim", &in_uid)?;
        for (i, extra) in self.list(v, "extra", path)?.iter().enumerate() {
            let path = format!("{path}.extra[{i}]");
            self.known(extra, &path, &["key", "valueExpression"])?;
            self.no_expression(extra, "valueExpression", &path)?;
            let at = at.child("extra").index(i).child("valueExpression");
            self.errors
                .push(FieldError::required(&at, "valueExpression is required"));
        }
        Ok((
            username,
            Some(groups).filter(|g| !g.claim.is_empty()),
            Some(uid).filter(|u| !u.is_empty()),
        ))
    }

    fn prefixed(&mut self, v: &Value, at: &FieldPath) -> Result<Prefixed, Error> {
        let path = at.as_str();
        self.known(v, path, &["claim", "prefix", "expression"])?;
        self.no_expression(v, "expression", path)?;
        let claim = self.text(v, "claim", path)?;
        let prefix = self.text(v, "prefix", path)?;
        let given = !v.get("prefix").is_null();
        if !claim.is_empty() && !given {
            let why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
            self.errors.push(FieldError::required(&at.child("prefix"), why));
        }
        if claim.is_empty() && given {
            let why = "non-nil prefix is not allowed when claim is not set";
            self.errors
                .push(FieldError::invalid(&at.child("prefix"), prefix.as_str(), why));
        }
        Ok(Prefixed { claim, prefix })
    }
}
