//! Strict parser of `AuthenticationConfiguration` (apiserver.config.k8s.io). Unknown fields are errors rather
//! than ignored. Validation, its order and its messages are upstream's
//! (`apiserver/pkg/apis/apiserver/validation`): `issuer` has the `issuer` of a provider, `rules` the rules
//! and mappings with their expressions.

mod issuer;
mod rules;

use super::expressions::Expression;
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

/// Where an attribute of the user comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// The claim of this name, with a prefix that keeps its values apart from other issuers'.
    Claim(Prefixed),
    /// An expression on the claims.
    Expression(Expression),
}

/// A condition that must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Evaluates to true if it holds.
    pub expression: Expression,
    /// The message if it does not hold; may be empty.
    pub message: String,
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
    /// Conditions on the claims.
    pub claim_rules: Vec<Rule>,
    /// Maps to the user name.
    pub username: Mapping,
    /// Maps to the groups.
    pub groups: Option<Mapping>,
    /// Maps to the user's uid. A claim has no prefix.
    pub uid: Option<Mapping>,
    /// Keys of the user's extra information, and the expressions on the claims whose results are its values.
    pub extra: Vec<(String, Expression)>,
    /// Conditions on the resulting user.
    pub user_rules: Vec<Rule>,
    /// Signature algorithms that tokens of this issuer may use.
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
    /// `jwt`: the identity providers, in the order of the file.
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
        /// The field, as `jwt[0].issuer.url`.
        path: String,
        /// The type, with its article.
        expected: &'static str,
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
    /// The invalid field or line.
    pub fn parse(text: &str, service_accounts: &[String]) -> Result<Self, Error> {
        // Parsers keep different ones of two equal keys; in a trust configuration neither may be picked
        // silently.
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
            service_accounts,
            unknown: Vec::new(),
            errors: ErrorList::new(),
        };
        // Type errors end the parse, unknown fields are collected, and invalid values are reported only if
        // there are neither: upstream decodes strictly before it validates.
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
    service_accounts: &'a [String],
    unknown: Vec<String>,
    errors: ErrorList,
}

impl Reader<'_> {
    fn check_fields(&mut self, v: &Value, path: &str, fields: &[&str]) -> Result<(), Error> {
        let Some(map) = v.as_object() else {
            // As in Go, null is the same as absent.
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

    fn document(&mut self, doc: &Value) -> Result<Configuration, Error> {
        self.check_fields(doc, "", &["apiVersion", "kind", "jwt", "anonymous"])?;
        let jwt = self.list(doc, "jwt", "")?;
        let at = FieldPath::new("jwt");
        let mut issuers: Vec<JwtIssuer> = Vec::new();
        for (i, entry) in jwt.iter().enumerate() {
            let issuer = self.issuer(entry, &at.index(i))?;
            let path = at.index(i).child("issuer");
            // A token is routed by its `iss` alone, so two entries with one URL would be ambiguous.
            if issuers.iter().any(|other| other.url == issuer.url) {
                self.errors
                    .push(FieldError::duplicate(&path.child("url"), issuer.url.as_str()));
            }
            let discovery = issuer.discovery_url.as_deref();
            // Two providers behind one document could not both be named by its `issuer`.
            if discovery.is_some() && issuers.iter().any(|other| other.discovery_url.as_deref() == discovery) {
                let path = path.child("discoveryURL");
                self.errors
                    .push(FieldError::duplicate(&path, discovery.unwrap_or_default()));
            }
            issuers.push(issuer);
        }
        let anonymous = self.anonymous(doc.get("anonymous"))?;
        if jwt.len() > MAX_ISSUERS {
            // Upstream then looks at nothing else.
            self.errors = ErrorList::new();
            self.errors.push(FieldError::too_many(&at, jwt.len(), MAX_ISSUERS));
        }
        Ok(Configuration { issuers, anonymous })
    }

    fn anonymous(&mut self, v: &Value) -> Result<Option<AnonymousConfig>, Error> {
        if v.is_null() {
            return Ok(None);
        }
        self.check_fields(v, "anonymous", &["enabled", "conditions"])?;
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
            self.check_fields(condition, &path, &["path"])?;
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
        let fields = ["issuer", "claimValidationRules", "claimMappings", "userValidationRules"];
        self.check_fields(v, at.as_str(), &fields)?;
        let issuer::Issuer {
            url,
            discovery_url,
            ca_pem,
            audiences,
        } = self.provider(v.get("issuer"), &at.child("issuer"))?;
        let claims = self.claim_rules(v, at)?;
        let mappings = self.mappings(v.get("claimMappings"), &at.child("claimMappings"), &claims.rules)?;
        let user_rules = self.user_rules(v, at)?;
        Ok(JwtIssuer {
            url,
            discovery_url,
            ca_pem,
            audiences,
            required: claims.required,
            claim_rules: claims.rules,
            username: mappings.username,
            groups: mappings.groups,
            uid: mappings.uid,
            extra: mappings.extra,
            user_rules,
            // The file has no field for it; upstream allows all asymmetric algorithms there, unlike
            // --oidc-signing-algs.
            algorithms: Algorithm::ALL.to_vec(),
        })
    }
}
