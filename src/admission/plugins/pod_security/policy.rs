//! Levels, versions, and the policy that a namespace's labels define ([`Policy::of`]).

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use std::fmt;

/// A level of the Pod Security Standards, ordered by strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Unrestricted.
    Privileged,
    /// Prevents known privilege escalations.
    Baseline,
    /// Hardening best practices.
    Restricted,
}

/// The version of a level: `v1.N` or `latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// `v1.N`
    Minor(u32),
    /// `latest`
    Latest,
}

/// A level at a version; displayed as `baseline:v1.30`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LevelVersion {
    pub level: Level,
    /// The version of its definition.
    pub version: Version,
}

/// The effective policy of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Violating pods are rejected.
    pub enforce: LevelVersion,
    /// Violations are recorded in the audit log.
    pub audit: LevelVersion,
    /// Violations cause a warning to the client.
    pub warn: LevelVersion,
}

/// The label keys of each mode: level and version.
const ENFORCE: [&str; 2] = [
    "pod-security.kubernetes.io/enforce",
    "pod-security.kubernetes.io/enforce-version",
];
const AUDIT: [&str; 2] = [
    "pod-security.kubernetes.io/audit",
    "pod-security.kubernetes.io/audit-version",
];
const WARN: [&str; 2] = [
    "pod-security.kubernetes.io/warn",
    "pod-security.kubernetes.io/warn-version",
];

/// A text names no level, or no version. The messages are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParseError {
    #[error("must be one of privileged, baseline, restricted")]
    Level,
    #[error("must be \"latest\" or \"v1.x\"")]
    Version,
}

impl Level {
    /// Parses a level.
    ///
    /// # Errors
    /// [`ParseError::Level`].
    pub(crate) fn parse(text: &str) -> Result<Self, ParseError> {
        match text {
            "privileged" => Ok(Self::Privileged),
            "baseline" => Ok(Self::Baseline),
            "restricted" => Ok(Self::Restricted),
            _ => Err(ParseError::Level),
        }
    }
}

impl Version {
    /// Parses a version.
    ///
    /// # Errors
    /// [`ParseError::Version`].
    pub(crate) fn parse(text: &str) -> Result<Self, ParseError> {
        if text == "latest" {
            return Ok(Self::Latest);
        }
        let digits = text.strip_prefix("v1.").ok_or(ParseError::Version)?;
        // `u32::parse` alone would accept a sign and leading zeros, which upstream's pattern excludes.
        let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
        let minor = if plain { digits.parse().ok() } else { None };
        minor.map(Self::Minor).ok_or(ParseError::Version)
    }

    /// The minor version; greater than any real one for `latest`.
    pub(super) const fn minor(self) -> u32 {
        match self {
            Self::Minor(minor) => minor,
            // Below `NEVER` in the table of checks.
            Self::Latest => u32::MAX - 1,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minor(minor) => write!(f, "v1.{minor}"),
            Self::Latest => f.write_str("latest"),
        }
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level, self.version)
    }
}

impl LevelVersion {
    /// `privileged:latest`, which permits everything.
    pub(crate) const PRIVILEGED: Self = Self {
        level: Level::Privileged,
        version: Version::Latest,
    };

    /// Equality, except that `privileged` is the same in all versions.
    fn is_like(self, other: Self) -> bool {
        self == other || self.level == Level::Privileged && other.level == Level::Privileged
    }
}

/// Applies a pair of labels. An invalid level becomes `fallback`, an invalid version `latest`. Returns
/// whether the level and the version were set.
fn overlay<'a>(
    into: &mut LevelVersion,
    [level, version]: [&str; 2],
    fallback: Level,
    label: &dyn Fn(&str) -> Option<&'a str>,
    errors: &mut ErrorList,
) -> (bool, bool) {
    let mut wrong = |key: &str, value: &str, why: ParseError| {
        let path = FieldPath::new("metadata").child("labels").key(key);
        errors.push(FieldError::invalid(&path, value, why.to_string()));
    };
    let configured = (label(level), label(version));
    if let Some(text) = configured.0 {
        into.level = Level::parse(text).unwrap_or_else(|why| {
            wrong(level, text, why);
            fallback
        });
    }
    if let Some(text) = configured.1 {
        into.version = Version::parse(text).unwrap_or_else(|why| {
            wrong(version, text, why);
            Version::Latest
        });
    }
    (configured.0.is_some(), configured.1.is_some())
}

impl Policy {
    /// The policy that permits everything silently.
    pub(crate) const PRIVILEGED: Self = Self {
        enforce: LevelVersion::PRIVILEGED,
        audit: LevelVersion::PRIVILEGED,
        warn: LevelVersion::PRIVILEGED,
    };

    /// The policy that the labels define on top of the defaults, and the errors in them. An invalid level
    /// fails closed for `enforce` and open for the other modes. As upstream, `enforce` also raises `warn`
    /// unless a label sets that.
    pub(crate) fn of<'a>(label: &dyn Fn(&str) -> Option<&'a str>, defaults: Self) -> (Self, ErrorList) {
        let (mut policy, mut errors) = (defaults, ErrorList::new());
        let (enforced, _) = overlay(&mut policy.enforce, ENFORCE, Level::Restricted, label, &mut errors);
        // An invalid level enforces `restricted`, but does not warn about it: upstream's default is only derived from a
        // valid label.
        let enforced = enforced && !errors.iter().any(|e| e.field.ends_with("/enforce]"));
        overlay(&mut policy.audit, AUDIT, Level::Privileged, label, &mut errors);
        let (warned, versioned) = overlay(&mut policy.warn, WARN, Level::Privileged, label, &mut errors);
        if enforced && !warned && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if !versioned {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }

    /// True if the policy neither rejects nor reports anything.
    pub(crate) fn is_privileged(&self) -> bool {
        self.is_like(&Self::PRIVILEGED)
    }

    fn is_like(&self, other: &Self) -> bool {
        self.enforce.is_like(other.enforce) && self.audit.is_like(other.audit) && self.warn.is_like(other.warn)
    }

    /// Formats the labels that have no effect in an exempt namespace: `enforce=baseline:latest, warn=…`.
    /// `None` if there are none.
    pub(super) fn ineffective_labels<'a>(
        &self,
        label: &dyn Fn(&str) -> Option<&'a str>,
        defaults: &Self,
    ) -> Option<String> {
        if self.is_privileged() || self.is_like(defaults) {
            return None;
        }
        let modes = [
            ("enforce", self.enforce, ENFORCE),
            ("audit", self.audit, AUDIT),
            ("warn", self.warn, WARN),
        ];
        let configured = modes.into_iter().filter(|(_, policy, labels)| {
            policy.level != Level::Privileged && labels.iter().any(|key| label(key).is_some())
        });
        let configured: Vec<String> = configured.map(|(mode, policy, _)| format!("{mode}={policy}")).collect();
        Some(configured.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(labels: &[(&str, &str)]) -> (String, usize) {
        let label = |key: &str| {
            let key = key.strip_prefix("pod-security.kubernetes.io/")?;
            labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
        };
        let (policy, errors) = Policy::of(&label, Policy::PRIVILEGED);
        (
            format!("{} {} {}", policy.enforce, policy.audit, policy.warn),
            errors.len(),
        )
    }

    #[test]
    fn labels_define_the_policy() {
        let p = "privileged:latest";
        for (labels, want, wrong) in [
            (&[][..], format!("{p} {p} {p}"), 0),
            (
                &[("enforce", "baseline")],
                format!("baseline:latest {p} baseline:latest"),
                0,
            ),
            (
                &[("enforce", "restricted"), ("enforce-version", "v1.22")],
                format!("restricted:v1.22 {p} restricted:v1.22"),
                0,
            ),
            (
                &[
                    ("enforce", "restricted"),
                    ("enforce-version", "v1.22"),
                    ("warn-version", "v1.0"),
                ],
                format!("restricted:v1.22 {p} restricted:v1.0"),
                0,
            ),
            (
                &[("enforce", "restricted"), ("warn", "baseline")],
                format!("restricted:latest {p} baseline:latest"),
                0,
            ),
            (&[("enforce", "no")], format!("restricted:latest {p} {p}"), 1),
            (
                &[("audit", "no"), ("warn", "no"), ("warn-version", "v2.0")],
                format!("{p} {p} {p}"),
                3,
            ),
        ] {
            assert_eq!(policy(labels), (want, wrong), "{labels:?}");
        }
    }

    #[test]
    fn errors_have_the_words_of_upstream() {
        let words = |e: ParseError| e.to_string();
        assert_eq!(
            Level::parse("no").map_err(words),
            Err("must be one of privileged, baseline, restricted".to_owned())
        );
        assert_eq!(
            Version::parse("no").map_err(words),
            Err("must be \"latest\" or \"v1.x\"".to_owned())
        );
    }

    #[test]
    fn versions_are_latest_or_v1_minor() {
        assert_eq!(Version::parse("v1.0"), Ok(Version::Minor(0)));
        assert_eq!(Version::parse("v1.36"), Ok(Version::Minor(36)));
        for bad in [
            "",
            "v1",
            "v1.",
            "v1.01",
            "v1.+1",
            "1.2",
            "v2.0",
            "Latest",
            "v1.99999999999",
        ] {
            assert!(Version::parse(bad).is_err(), "{bad}");
        }
    }
}
