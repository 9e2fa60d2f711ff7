//! The table of flags: every flag of kube-apiserver v1.36 and our own, with type, default, support and help.
//!
//! [`FLAGS`] is the single source for the parser, `--help`, the start-up warnings and docs/flags.md. A flag
//! that is not supported is never dropped silently: it is accepted with a warning, or rejected if ignoring it
//! would weaken security or break a promise to the user.

mod docs;
mod table;

pub(crate) use docs::markdown;
pub(crate) use table::FLAGS;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    /// Section of the help that lists it.
    pub group: Group,
    /// Name without dashes.
    pub name: &'static str,
    /// Type of its value.
    pub value_type: ValueType,
    /// Default value as it would be written on the command line.
    pub default: &'static str,
    /// How it is supported.
    pub support: Support,
    pub help: &'static str,
}

/// The field of a flag: its name in camelCase.
pub(crate) fn field_of(flag: &str) -> String {
    let mut words = flag.split('-');
    let mut field = words.next().unwrap_or_default().to_owned();
    for word in words {
        // At a byte: names of flags are ASCII. An empty word comes from two dashes in a row.
        let (first, rest) = word.split_at(word.len().min(1));
        field += &first.to_ascii_uppercase();
        field += rest;
    }
    field
}

/// The type of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueType {
    /// `--x`, `--x=true`, `--x=false`.
    Bool,
    Int,
    Float,
    /// A Go duration such as `1m30s`.
    Duration,
    Text,
    /// Comma-separated, repeatable.
    List,
    /// One value per occurrence, repeatable.
    Array,
}

/// How a flag is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Support {
    Supported,
    /// Accepted without effect; a start-up warning gives this reason.
    Ignored(&'static str),
    /// Rejected; the server does not start, for this reason.
    Rejected(&'static str),
}

/// Sections of `--help` and docs/flags.md: upstream's, and one of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Flags that upstream does not have.
    Torana,
    /// Upstream's generic section.
    Generic,
    Etcd,
    Serving,
    Auditing,
    Features,
    Authentication,
    Authorization,
    Enablement,
    Egress,
    Admission,
    Metrics,
    Logs,
    Traces,
    Misc,
}

impl Group {
    /// All sections in the order of the help.
    pub(crate) const ALL: [Self; 15] = [
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

    pub(crate) const fn title(self) -> &'static str {
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

/// Looks up a flag by name.
pub(crate) fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

/// The candidate that a misspelt name probably means: the one at the smallest edit distance, if that is at
/// most a third of its length.
pub(super) fn like(name: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    // The distance is quadratic in the length.
    const MAX: usize = 100;
    if name.len() > MAX {
        return None;
    }
    let measured = candidates.map(|candidate| (distance(name, &candidate), candidate));
    let (distance, nearest) = measured.min_by_key(|(distance, _)| *distance)?;
    (distance * 3 <= nearest.len()).then_some(nearest)
}

/// Levenshtein distance without case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    // One row instead of the matrix: each cell needs its neighbours only.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_nearest_name_is_suggested() {
        let names = || FLAGS.iter().map(|f| f.name.to_owned());
        assert_eq!(like("secure-prot", names()).as_deref(), Some("secure-port"));
        assert_eq!(like("ETCD-SERVER", names()).as_deref(), Some("etcd-servers"));
        assert_eq!(like("colour", names()), None);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }

    /// The flag names of kube-apiserver v1.36, from its `--help`.
    const UPSTREAM: &str = include_str!("flags/upstream-v1.36.txt");

    #[test]
    fn the_table_has_every_upstream_flag_exactly_once() {
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
    fn every_default_is_valid_for_its_kind() {
        for flag in FLAGS {
            crate::cli::value::check(flag, flag.default).unwrap();
        }
    }

    #[test]
    fn flags_md_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/flags.md");
        let on_disk = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            on_disk == markdown(),
            "docs/flags.md is stale: cargo run -- docs-flags > docs/flags.md"
        );
    }
}
