//! Every flag of kube-apiserver v1.36, and ours: what it takes, what it is without being given, and what becomes of it.
//!
//! The table is the one source: the parser, `--help`, the start-up warnings and docs/flags.md come out of it. A flag
//! that is not honoured is said so, never silently dropped; one whose neglect would open a door or lose a promise is
//! refused.

mod docs;
mod table;

pub use docs::markdown;
pub use table::FLAGS;

/// One flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Where it is listed.
    pub group: Group,
    /// Name without dashes.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Its value when not given, as it would be written.
    pub default: &'static str,
    /// What becomes of it.
    pub fate: Fate,
    /// What it is for.
    pub help: &'static str,
}

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `--x`, `--x=true`, `--x=false`.
    Bool,
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// Go's duration: `1m30s`.
    Duration,
    /// Text.
    Text,
    /// Comma-separated, repeatable.
    List,
    /// One value each time, repeatable.
    Array,
}

/// What becomes of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Does what it says.
    Honoured,
    /// Accepted; a start-up warning names it with this reason.
    Ignored(&'static str),
    /// The server does not start with it, for this reason.
    Refused(&'static str),
}

/// Sections of `--help` and docs/flags.md, upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Not upstream's.
    Torana,
    /// Generic.
    Generic,
    /// Etcd.
    Etcd,
    /// Secure serving.
    Serving,
    /// Auditing.
    Auditing,
    /// Features.
    Features,
    /// Authentication.
    Authentication,
    /// Authorization.
    Authorization,
    /// API enablement.
    Enablement,
    /// Egress selector.
    Egress,
    /// Admission.
    Admission,
    /// Metrics.
    Metrics,
    /// Logs.
    Logs,
    /// Traces.
    Traces,
    /// Misc.
    Misc,
}

impl Group {
    /// All, in order.
    pub const ALL: [Self; 15] = [
        Self::Torana,
        Self::Generic,
        Self::Serving,
        Self::Authentication,
        Self::Authorization,
        Self::Etcd,
        Self::Admission,
        Self::Auditing,
        Self::Features,
        Self::Enablement,
        Self::Egress,
        Self::Metrics,
        Self::Logs,
        Self::Traces,
        Self::Misc,
    ];

    /// The heading.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Torana => "Torana",
            Self::Generic => "Generic",
            Self::Etcd => "Storage",
            Self::Serving => "Secure serving",
            Self::Auditing => "Auditing",
            Self::Features => "Features",
            Self::Authentication => "Authentication",
            Self::Authorization => "Authorization",
            Self::Enablement => "API enablement",
            Self::Egress => "Egress selector",
            Self::Admission => "Admission",
            Self::Metrics => "Metrics",
            Self::Logs => "Logs",
            Self::Traces => "Traces",
            Self::Misc => "Misc",
        }
    }
}

/// The flag of that name.
pub fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The names kube-apiserver v1.36 answers to, from its own list.
    const UPSTREAM: &str = include_str!("flags/upstream-v1.36.txt");

    #[test]
    fn every_upstream_flag_is_known_and_no_name_is_there_twice() {
        let ours: BTreeSet<&str> = FLAGS.iter().map(|f| f.name).collect();
        assert_eq!(ours.len(), FLAGS.len());
        let upstream: BTreeSet<&str> = UPSTREAM.split_whitespace().collect();
        assert!(upstream.len() > 170, "{}", upstream.len());
        let missing: Vec<_> = upstream.difference(&ours).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let invented: Vec<_> = FLAGS
            .iter()
            .filter(|f| f.group != Group::Torana && !upstream.contains(f.name))
            .map(|f| f.name)
            .collect();
        assert!(invented.is_empty(), "{invented:?}");
    }

    #[test]
    fn every_default_is_a_value_of_its_kind() {
        for flag in FLAGS {
            crate::cli::value::check(flag, flag.default).unwrap();
        }
    }

    #[test]
    fn the_document_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/flags.md");
        let on_disk = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            on_disk == markdown(),
            "docs/flags.md is stale: cargo run -- docs-flags > docs/flags.md"
        );
    }
}
