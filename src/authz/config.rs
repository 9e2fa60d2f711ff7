//! The list of authorizers, from `--authorization-mode` and related flags or from an
//! AuthorizationConfiguration (`apiserver.config.k8s.io` v1, v1beta1, v1alpha1). Validation follows
//! upstream's `apis/apiserver/validation`. Entry point: [`parse`].

use super::match_conditions::MatchConditions;
use super::webhook::{ReviewVersion, WebhookConfig};
use crate::apimachinery::codec::yaml;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, aggregate};
use crate::apimachinery::time::parse_duration;
use crate::apimachinery::validation::dns1123_subdomain;
use crate::apimachinery::value::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Type of an authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Allows what no authorizer before it has denied.
    AlwaysAllow,
    /// Has no opinion on any request; what nothing else allows is denied.
    AlwaysDeny,
    /// The lines of a policy file (`--authorization-policy-file`).
    Abac,
    /// SubjectAccessReviews sent to a webhook.
    Webhook,
    /// Roles and bindings stored in `rbac.authorization.k8s.io`.
    Rbac,
    /// Access of kubelets to the objects their pods need.
    Node,
}

/// Configuration of one authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizerConfig {
    /// The type of authorizer.
    pub mode: Mode,
    /// Unique name, used in metrics and errors.
    pub name: String,
    /// Present if and only if the type is `Webhook`.
    pub webhook: Option<WebhookConfig>,
}

impl Mode {
    /// All modes, in upstream's order.
    pub const ALL: [Self; 6] = [
        Self::AlwaysAllow,
        Self::AlwaysDeny,
        Self::Abac,
        Self::Webhook,
        Self::Rbac,
        Self::Node,
    ];

    /// The name in flags and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AlwaysAllow => "AlwaysAllow",
            Self::AlwaysDeny => "AlwaysDeny",
            Self::Abac => "ABAC",
            Self::Webhook => "Webhook",
            Self::Rbac => "RBAC",
            Self::Node => "Node",
        }
    }

    /// The mode with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.name() == name)
    }
}

impl AuthorizerConfig {
    /// An authorizer without options, with its default name.
    pub fn of(mode: Mode) -> Self {
        Self {
            mode,
            name: mode.name().to_ascii_lowercase(),
            webhook: None,
        }
    }
}

/// Why an AuthorizationConfiguration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not valid YAML.
    #[error(transparent)]
    Yaml(#[from] yaml::Error),
    /// It is of another kind or version.
    #[error(
        "expected kind AuthorizationConfiguration of apiserver.config.k8s.io/v1, v1beta1 or v1alpha1, found {kind:?} of {api_version:?}"
    )]
    Kind {
        /// The `kind` found; empty if absent.
        kind: String,
        /// The `apiVersion` found; empty if absent.
        api_version: String,
    },
    /// A field is unknown.
    #[error(transparent)]
    Unknown(#[from] UnknownField),
    /// Fields have invalid values.
    #[error("{}", aggregate(.0))]
    Invalid(ErrorList),
}

/// A field that does not exist, reported in the words of upstream's strict decoder.
#[derive(Debug, thiserror::Error)]
#[error("strict decoding error: unknown field {0:?}")]
pub struct UnknownField(String);

const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
const WEBHOOK: [&str; 10] = [
    "authorizedTTL",
    "cacheAuthorizedRequests",
    "unauthorizedTTL",
    "cacheUnauthorizedRequests",
    "timeout",
    "subjectAccessReviewVersion",
    "matchConditionSubjectAccessReviewVersion",
    "failurePolicy",
    "connectionInfo",
    "matchConditions",
];

/// Parses an AuthorizationConfiguration.
///
/// # Errors
/// The first structural problem, or all invalid fields together.
pub fn parse(text: &[u8]) -> Result<Vec<AuthorizerConfig>, Error> {
    let file = yaml::decode(text)?;
    let (group, version) = file.str_at(&["apiVersion"]).split_once('/').unwrap_or_default();
    if group != "apiserver.config.k8s.io"
        || !VERSIONS.contains(&version)
        || file.str_at(&["kind"]) != "AuthorizationConfiguration"
    {
        return Err(Error::Kind {
            kind: file.str_at(&["kind"]).to_owned(),
            api_version: file.str_at(&["apiVersion"]).to_owned(),
        });
    }
    // Unknown fields end the parse at once, as in upstream's strict decoder: validation would report a
    // misspelled field as missing, which hides the cause.
    strict(&file, &["apiVersion", "kind", "authorizers"], "")?;
    let mut errors = ErrorList::new();
    let mut out: Vec<AuthorizerConfig> = Vec::new();
    let at = FieldPath::new("authorizers");
    let list = file.get("authorizers").items();
    if list.is_empty() {
        errors.push(FieldError::required(
            &at,
            "at least one authorization mode must be defined",
        ));
    }
    for (i, v) in list.iter().enumerate() {
        strict(v, &["type", "name", "webhook"], &format!("authorizers[{i}]."))?;
        if let Some(one) = entry(v, &at.index(i), &out, &mut errors) {
            out.push(one);
        }
    }
    if errors.is_empty() {
        Ok(out)
    } else {
        Err(Error::Invalid(errors))
    }
}

fn strict(v: &Value, known: &[&str], at: &str) -> Result<(), UnknownField> {
    let members = v.as_object().into_iter().flat_map(|m| m.keys());
    match members.into_iter().find(|k| !known.contains(k)) {
        Some(odd) => Err(UnknownField(format!("{at}{odd}"))),
        None => Ok(()),
    }
}

fn entry(v: &Value, at: &FieldPath, before: &[AuthorizerConfig], errors: &mut ErrorList) -> Option<AuthorizerConfig> {
    let name = v.str_at(&["name"]);
    let kind = v.str_at(&["type"]);
    let mode = Mode::parse(kind);
    match mode {
        None if kind.is_empty() => errors.push(FieldError::required(&at.child("type"), "")),
        None => {
            let mut known = Mode::ALL.map(Mode::name);
            known.sort_unstable();
            errors.push(FieldError::not_supported_string(&at.child("type"), kind, &known));
        }
        // Only webhooks may occur more than once (upstream's `repeatableAuthorizerTypes`).
        Some(mode) if mode != Mode::Webhook && before.iter().any(|b| b.mode == mode) => {
            errors.push(FieldError::duplicate(&at.child("type"), kind));
        }
        Some(_) => {}
    }
    if name.is_empty() {
        errors.push(FieldError::required(&at.child("name"), ""));
    } else if before.iter().any(|b| b.name == name) {
        errors.push(FieldError::duplicate(&at.child("name"), name));
    } else {
        for why in dns1123_subdomain(name) {
            errors.push(FieldError::invalid(
                &at.child("name"),
                name,
                format!("authorizer name is invalid: {why}"),
            ));
        }
        // Types that occur once have a fixed name: the type in lower case.
        if let Some(mode) = mode.filter(|m| *m != Mode::Webhook) {
            let expected = mode.name().to_ascii_lowercase();
            if name != expected {
                errors.push(FieldError::invalid(
                    &at.child("name"),
                    name,
                    format!("expected name {expected} for authorizer {kind} instead of {name}"),
                ));
            }
        }
    }
    let hook = v.get("webhook");
    let webhook = match mode {
        Some(Mode::Webhook) if hook.is_null() => {
            errors.push(FieldError::required(&at.child("webhook"), "required when type=Webhook"));
            None
        }
        Some(Mode::Webhook) => webhook(hook, &at.child("webhook"), errors),
        _ if !hook.is_null() => {
            errors.push(FieldError::invalid(
                &at.child("webhook"),
                "non-null",
                "may only be specified when type=Webhook",
            ));
            None
        }
        _ => None,
    };
    Some(AuthorizerConfig {
        mode: mode?,
        name: name.to_owned(),
        webhook,
    })
}

fn duration(v: &Value, key: &str, default: Duration, at: &FieldPath, errors: &mut ErrorList) -> Duration {
    let text = match v.get(key) {
        Value::Null => return default,
        v => v.as_str().unwrap_or_default(),
    };
    match parse_duration(text) {
        // Zero counts as absent: upstream's defaulting cannot tell them apart, since the field is not a
        // pointer.
        Ok(d) if d.is_zero() => default,
        Ok(d) => d,
        Err(_) => {
            errors.push(FieldError::invalid(&at.child(key), text, "must be > 0s"));
            default
        }
    }
}

fn one_of(v: &Value, key: &str, known: &[&str], at: &FieldPath, errors: &mut ErrorList) -> String {
    let value = v.str_at(&[key]);
    if value.is_empty() {
        errors.push(FieldError::required(&at.child(key), ""));
    } else if !known.contains(&value) {
        errors.push(FieldError::not_supported_string(&at.child(key), value, known));
    }
    value.to_owned()
}

fn webhook(v: &Value, at: &FieldPath, errors: &mut ErrorList) -> Option<WebhookConfig> {
    if let Err(odd) = strict(v, &WEBHOOK, &format!("{at}.")) {
        errors.push(FieldError::forbidden(at, odd.to_string()));
    }
    const MAX_TIMEOUT: Duration = Duration::from_secs(30);
    let timeout = duration(v, "timeout", Duration::ZERO, at, errors);
    // Unlike the TTLs, upstream has no default for the timeout: it must be chosen.
    if v.get("timeout").is_null() {
        errors.push(FieldError::required(&at.child("timeout"), ""));
    } else if timeout.is_zero() || timeout > MAX_TIMEOUT {
        let shown = v.str_at(&["timeout"]);
        errors.push(FieldError::invalid(
            &at.child("timeout"),
            shown,
            "must be > 0s and <= 30s",
        ));
    }
    let mut authorized_ttl = duration(v, "authorizedTTL", Duration::from_secs(300), at, errors);
    let mut unauthorized_ttl = duration(v, "unauthorizedTTL", Duration::from_secs(30), at, errors);
    // A TTL of zero turns the cache off; the file cannot express that by the TTL itself (see `duration`).
    if v.get("cacheAuthorizedRequests").as_bool() == Some(false) {
        authorized_ttl = Duration::ZERO;
    }
    if v.get("cacheUnauthorizedRequests").as_bool() == Some(false) {
        unauthorized_ttl = Duration::ZERO;
    }
    let version = one_of(v, "subjectAccessReviewVersion", &["v1", "v1beta1"], at, errors);
    let policy = one_of(v, "failurePolicy", &["Deny", "NoOpinion"], at, errors);
    let review = "matchConditionSubjectAccessReviewVersion";
    if !v.str_at(&[review]).is_empty() {
        one_of(v, review, &["v1"], at, errors);
    } else if !v.get("matchConditions").items().is_empty() {
        errors.push(FieldError::required(
            // The version fixes the variables that the expressions see, so it is required with the first of
            // them.
            &at.child(review),
            "required if match conditions are specified",
        ));
    }
    let conditions = MatchConditions::parse(v.get("matchConditions"), &at.child("matchConditions"), errors);
    let (info, at) = (v.get("connectionInfo"), at.child("connectionInfo"));
    let path = info.str_at(&["kubeConfigFile"]);
    match info.str_at(&["type"]) {
        "KubeConfigFile" if path.is_empty() => errors.push(FieldError::required(&at.child("kubeConfigFile"), "")),
        "KubeConfigFile" if !path.starts_with('/') => errors.push(FieldError::invalid(
            &at.child("kubeConfigFile"),
            path,
            "must be an absolute path",
        )),
        "KubeConfigFile" => {}
        "InClusterConfig" => errors.push(FieldError::forbidden(
            &at.child("type"),
            "this server does not run in the cluster it serves; give a KubeConfigFile",
        )),
        "" => errors.push(FieldError::required(&at.child("type"), "")),
        other => errors.push(FieldError::not_supported_string(
            &at.child("type"),
            other,
            &["InClusterConfig", "KubeConfigFile"],
        )),
    }
    Some(WebhookConfig {
        kubeconfig: PathBuf::from(path),
        // An invalid version is already an error, so the fallback is never used.
        version: if version == "v1" {
            ReviewVersion::V1
        } else {
            ReviewVersion::V1Beta1
        },
        authorized_ttl,
        unauthorized_ttl,
        timeout,
        deny_on_failure: policy == "Deny",
        conditions: conditions.map(Arc::new),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Node
  name: node
- type: RBAC
  name: rbac
- type: Webhook
  name: them
  webhook:
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    cacheUnauthorizedRequests: false
    connectionInfo:
      type: KubeConfigFile
      kubeConfigFile: /etc/them
";

    #[test]
    fn a_valid_file_is_parsed() {
        let all = parse(GOOD.as_bytes()).unwrap();
        let modes: Vec<Mode> = all.iter().map(|a| a.mode).collect();
        assert_eq!(modes, [Mode::Node, Mode::Rbac, Mode::Webhook]);
        let hook = all[2].webhook.as_ref().unwrap();
        assert_eq!(hook.timeout, Duration::from_secs(3));
        assert_eq!(hook.authorized_ttl, Duration::from_secs(300));
        assert!(hook.unauthorized_ttl.is_zero() && hook.deny_on_failure);
    }

    #[test]
    fn invalid_fields_are_named() {
        let with = |from: &str, to: &str| parse(GOOD.replace(from, to).as_bytes()).unwrap_err().to_string();
        assert!(with("name: rbac", "name: x").contains("expected name rbac for authorizer RBAC instead of x"));
        assert!(with("timeout: 3s", "timeout: 31s").contains("must be > 0s and <= 30s"));
        assert!(with("kubeConfigFile: /etc", "kubeConfigFile: etc").contains("absolute"));
        assert!(with("type: RBAC\n  name: rbac", "type: Node\n  name: node").contains("Duplicate value"));
        assert!(with("failurePolicy", "failurePolicies").contains("unknown field"));
        let e = with(
            "    timeout",
            "    matchConditions:\n    - expression: \"1\"\n    timeout",
        );
        assert!(
            e.contains("matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but got int"),
            "{e}"
        );
        let unversioned = GOOD.replace("    matchConditionSubjectAccessReviewVersion: v1\n", "");
        let e = parse(
            unversioned
                .replace(
                    "    timeout",
                    "    matchConditions:\n    - expression: \"true\"\n    timeout",
                )
                .as_bytes(),
        );
        assert!(
            e.unwrap_err()
                .to_string()
                .contains("required if match conditions are specified")
        );
    }
}
