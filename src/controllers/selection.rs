//! `--controllers`: which loops run, by kube-controller-manager's names (`cmd/kube-controller-manager/names`)
//! and rules: `*` stands for all that are on by default, `name` adds one, `-name` removes one.

/// A loop: its name, and the name that it had before v1.28, which is still accepted.
pub(super) const NAMES: &[(&str, &str)] = &[
    ("bootstrap-signer-controller", "bootstrapsigner"),
    ("certificatesigningrequest-approving-controller", "csrapproving"),
    ("certificatesigningrequest-cleaner-controller", "csrcleaner"),
    ("certificatesigningrequest-signing-controller", "csrsigning"),
    ("clusterrole-aggregation-controller", "clusterrole-aggregation"),
    ("endpoints-controller", "endpoint"),
    ("endpointslice-controller", "endpointslice"),
    ("endpointslice-mirroring-controller", "endpointslicemirroring"),
    ("garbage-collector-controller", "garbagecollector"),
    (
        "legacy-serviceaccount-token-cleaner-controller",
        "legacy-service-account-token-cleaner",
    ),
    ("namespace-controller", "namespace"),
    ("persistentvolume-protection-controller", "pv-protection"),
    ("persistentvolumeclaim-protection-controller", "pvc-protection"),
    ("resourcequota-controller", "resourcequota"),
    ("root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
    ("service-cidr-controller", "service-cidr-controller"),
    ("serviceaccount-controller", "serviceaccount"),
    ("serviceaccount-token-controller", "serviceaccount-token"),
    ("token-cleaner-controller", "tokencleaner"),
    ("ttl-after-finished-controller", "ttl-after-finished"),
    (
        "validatingadmissionpolicy-status-controller",
        "validatingadmissionpolicy-status-controller",
    ),
];

/// The loops that `*` does not include, as upstream's `ControllersDisabledByDefault`.
const OFF_BY_DEFAULT: [&str; 2] = ["bootstrap-signer-controller", "token-cleaner-controller"];

/// The names of the loops to run, by `--controllers`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection(Vec<&'static str>);

/// A name in the list is not the name of a loop.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not in the list of known controllers: {known}", known = known_names())]
pub(crate) struct UnknownController(pub String);

fn known_names() -> String {
    let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

fn find(given: &str) -> Option<&'static str> {
    let found = NAMES.iter().find(|(name, alias)| *name == given || *alias == given);
    found.map(|(name, _)| *name)
}

impl Selection {
    /// Parses the values of the flag. If several values name the same loop, the first one wins, as in upstream's
    /// `IsControllerEnabled`; the position of `*` does not matter.
    ///
    /// # Errors
    /// The first unknown name.
    pub(crate) fn parse(values: &[String]) -> Result<Self, UnknownController> {
        let (mut all, mut named) = (false, Vec::new());
        for value in values.iter().map(|v| v.trim()).filter(|v| !v.is_empty()) {
            // Without the sign, so that the message repeats the name to look up.
            let unknown = || UnknownController(value.trim_start_matches('-').to_owned());
            match value.strip_prefix('-') {
                None if value == "*" => all = true,
                None => named.push((find(value).ok_or_else(unknown)?, true)),
                Some(name) => named.push((find(name).ok_or_else(unknown)?, false)),
            }
        }
        let is_on = |name: &&'static str| match named.iter().find(|(given, _)| given == name) {
            Some((_, on)) => *on,
            None => all && !OFF_BY_DEFAULT.contains(name),
        };
        Ok(Self(NAMES.iter().map(|(name, _)| *name).filter(is_on).collect()))
    }

    /// Whether no loop is selected.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of the loops.
    pub(crate) fn names(&self) -> &[&'static str] {
        &self.0
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Selection, UnknownController> {
        Selection::parse(&text.split(',').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn names_enable_and_disable_and_the_first_match_wins() {
        assert!(parse("").unwrap().is_empty());
        let usual = NAMES.len() - OFF_BY_DEFAULT.len();
        assert_eq!(parse("*").unwrap().names().len(), usual);
        assert_eq!(parse("*,tokencleaner").unwrap().names().len(), usual + 1);
        assert_eq!(parse("namespace").unwrap(), parse("namespace-controller").unwrap());
        let others = parse("-namespace-controller,*").unwrap();
        assert_eq!(others, parse("*,-namespace-controller").unwrap());
        assert!(!others.contains("namespace-controller") && others.contains("serviceaccount-controller"));
        // The former name is a mention, too.
        assert_eq!(
            parse("namespace,-namespace-controller").unwrap(),
            parse("namespace").unwrap()
        );
        assert!(parse("-namespace-controller,namespace").unwrap().is_empty());
    }

    #[test]
    fn unknown_names_are_refused() {
        let refused = parse("*,-nonsense").unwrap_err();
        assert_eq!(refused.0, "nonsense");
        let text = refused.to_string();
        assert!(
            text.starts_with("\"nonsense\" is not in the list of known controllers: "),
            "{text}"
        );
    }
}
