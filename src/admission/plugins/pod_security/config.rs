//! `PodSecurityConfiguration` in the `--admission-control-config-file`: the default policy and exemptions.

use super::policy::{Level, LevelVersion, ParseError, Policy, Version};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, aggregate};
use crate::apimachinery::validation;
use crate::apimachinery::value::Value;

/// The PodSecurity plugin's configuration.
#[derive(Clone, Debug)]
pub(crate) struct PodSecurityConfig {
    /// The policy where a namespace has no labels.
    pub defaults: Policy,
    /// Users whose pods are exempt.
    pub usernames: Vec<String>,
    /// Namespaces whose pods are exempt.
    pub namespaces: Vec<String>,
    /// Runtime classes whose pods are exempt.
    pub runtime_classes: Vec<String>,
}

impl Default for PodSecurityConfig {
    fn default() -> Self {
        Self {
            defaults: Policy::PRIVILEGED,
            usernames: Vec::new(),
            namespaces: Vec::new(),
            runtime_classes: Vec::new(),
        }
    }
}

fn mode(defaults: &Value, name: &str, errors: &mut ErrorList) -> LevelVersion {
    let path = FieldPath::new("defaults");
    let versions = format!("{name}-version");
    let mut wrong = |key: &str, value: &str, why: ParseError| {
        errors.push(FieldError::invalid(&path.child(key), value, why.to_string()));
    };
    let setting = |key: &str, default: &'static str| match defaults.str_at(&[key]) {
        "" => default.to_owned(),
        text => text.to_owned(),
    };
    let (level, version) = (setting(name, "privileged"), setting(&versions, "latest"));
    LevelVersion {
        level: Level::parse(&level).unwrap_or_else(|why| {
            wrong(name, &level, why);
            // Not used: any error makes `parse` fail.
            Level::Restricted
        }),
        version: Version::parse(&version).unwrap_or_else(|why| {
            wrong(&versions, &version, why);
            Version::Latest
        }),
    }
}

fn exempt(
    exemptions: &Value,
    list: &str,
    errors: &mut ErrorList,
    check: fn(&FieldPath, &str) -> Option<FieldError>,
) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (i, name) in exemptions.get(list).items().iter().enumerate() {
        let name = name.as_str().unwrap_or("");
        let path = FieldPath::new("exemptions").child(list).index(i);
        match check(&path, name) {
            Some(error) => errors.push(error),
            // Quadratic, but the administrator writes this file.
            None if names.iter().any(|n| n == name) => errors.push(FieldError::duplicate(&path, name)),
            None => names.push(name.to_owned()),
        }
    }
    names
}

/// The configuration is invalid, with upstream's messages.
#[derive(Debug, thiserror::Error)]
#[error("{}", aggregate(.0))]
pub(crate) struct InvalidConfig(ErrorList);

impl PodSecurityConfig {
    /// Parses the configuration object. Omitted levels are `privileged`, omitted versions `latest`.
    ///
    /// # Errors
    /// All errors.
    pub(crate) fn parse(configuration: &Value) -> Result<Self, InvalidConfig> {
        let mut errors = ErrorList::new();
        let defaults = configuration.get("defaults");
        let enforce = mode(defaults, "enforce", &mut errors);
        let warn = mode(defaults, "warn", &mut errors);
        let audit = mode(defaults, "audit", &mut errors);
        let exemptions = configuration.get("exemptions");
        let namespaces = exempt(exemptions, "namespaces", &mut errors, |path, name| {
            let wrong = validation::dns1123_label(name);
            (!wrong.is_empty()).then(|| FieldError::invalid(path, name, wrong.join(", ")))
        });
        let runtime_classes = exempt(exemptions, "runtimeClasses", &mut errors, |path, name| {
            let wrong = validation::dns1123_subdomain(name);
            (!wrong.is_empty()).then(|| FieldError::invalid(path, name, wrong.join(", ")))
        });
        let usernames = exempt(exemptions, "usernames", &mut errors, |path, name| {
            name.is_empty().then(|| FieldError::required(path, ""))
        });
        if !errors.is_empty() {
            return Err(InvalidConfig(errors));
        }
        Ok(Self {
            defaults: Policy { enforce, audit, warn },
            usernames,
            namespaces,
            runtime_classes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_levels_default_to_privileged() {
        let config = PodSecurityConfig::parse(&crate::json!({
            "apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
            "defaults": {"enforce": "baseline", "enforce-version": "v1.30"},
            "exemptions": {"usernames": ["a"], "namespaces": ["kube-system"], "runtimeClasses": ["kata"]}}));
        let config = config.unwrap();
        assert_eq!(config.defaults.enforce.to_string(), "baseline:v1.30");
        assert_eq!(config.defaults.warn.to_string(), "privileged:latest");
        assert_eq!(config.namespaces, ["kube-system"]);
        assert_eq!((config.usernames.len(), config.runtime_classes.len()), (1, 1));
        assert!(PodSecurityConfig::parse(&Value::Null).unwrap().defaults.is_privileged());
    }

    #[test]
    fn all_errors_are_reported_together() {
        let wrong = PodSecurityConfig::parse(&crate::json!({
            "defaults": {"enforce": "x"}, "exemptions": {"usernames": [""], "namespaces": ["a", "a"]}}));
        assert_eq!(
            wrong.unwrap_err().to_string(),
            "[defaults.enforce: Invalid value: \"x\": must be one of privileged, baseline, restricted, \
             exemptions.namespaces[1]: Duplicate value: \"a\", exemptions.usernames[0]: Required value]"
        );
    }
}
