//! Acceptance of names as a pure function of the requested, accepted and taken ones.

use crate::apimachinery::conditions;
use crate::apimachinery::value::{Str, Value};
use std::collections::HashSet;

/// The names of a definition, requested or accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    plural: Str,
    singular: Str,
    short: Vec<Str>,
    kind: Str,
    list_kind: Str,
    categories: Vec<Str>,
}

fn list(v: &Value) -> Vec<Str> {
    v.items().iter().filter_map(Value::as_str).map(Str::new).collect()
}

impl Names {
    /// Reads `spec.names` or `status.acceptedNames`.
    pub(crate) fn of(v: &Value) -> Self {
        Self {
            plural: v.str_at(&["plural"]).into(),
            singular: v.str_at(&["singular"]).into(),
            short: list(v.get("shortNames")),
            kind: v.str_at(&["kind"]).into(),
            list_kind: v.str_at(&["listKind"]).into(),
            categories: list(v.get("categories")),
        }
    }

    /// The plural, which is the resource's name in paths.
    pub(crate) fn plural(&self) -> &str {
        &self.plural
    }

    pub(crate) fn singular(&self) -> &str {
        &self.singular
    }

    pub(crate) fn short(&self) -> &[Str] {
        &self.short
    }

    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    pub(crate) fn list_kind(&self) -> &str {
        &self.list_kind
    }

    pub(crate) fn categories(&self) -> &[Str] {
        &self.categories
    }
}

/// The names in use within a group, by any definition including the one being decided.
#[derive(Default)]
pub(super) struct TakenNames {
    resources: HashSet<Str>,
    kinds: HashSet<Str>,
}

impl TakenNames {
    /// Collects the accepted names of definitions.
    pub(super) fn by<'a>(accepted: impl Iterator<Item = &'a Names>) -> Self {
        let mut taken = Self::default();
        for n in accepted {
            taken.resources.extend([n.plural.clone(), n.singular.clone()]);
            taken.resources.extend(n.short.iter().cloned());
            taken.kinds.extend([n.kind.clone(), n.list_kind.clone()]);
        }
        // Unset names are empty strings, which do not conflict.
        taken.resources.remove("");
        taken.kinds.remove("");
        taken
    }
}

/// The conflict message if another definition uses the name.
fn conflict(requested: &str, own: &str, taken: &HashSet<Str>) -> Option<String> {
    (requested != own && taken.contains(requested)).then(|| format!("{requested:?} is already in use"))
}

/// Accepts the free names of a definition and sets its conditions.
pub(super) fn accept_names(definition: &mut Value, taken: &TakenNames, now: &str) {
    let requested = definition.at(&["spec", "names"]).clone();
    let mut accepted = definition.at(&["status", "acceptedNames"]).clone();
    // As upstream, only the last conflict is reported.
    let mut refused: Option<(&str, String)> = None;
    let mut single = |accepted: &mut Value, key: &str, taken: &HashSet<Str>, reason: &'static str| {
        // One rule for the four single names; lists have their own below.
        let name = requested.str_at(&[key]);
        match conflict(name, accepted.str_at(&[key]), taken) {
            Some(why) => refused = Some((reason, why)),
            // A name that is not requested any more is given up.
            None if name.is_empty() => drop(accepted.unset(&[key])),
            None => accepted.set(&[key], name),
        }
    };
    single(&mut accepted, "plural", &taken.resources, "PluralConflict");
    single(&mut accepted, "singular", &taken.resources, "SingularConflict");
    single(&mut accepted, "kind", &taken.kinds, "KindConflict");
    single(&mut accepted, "listKind", &taken.kinds, "ListKindConflict");
    let own = list(accepted.get("shortNames"));
    let short: Vec<String> = list(requested.get("shortNames"))
        .iter()
        // Own short names stay accepted even if another definition would like them.
        .filter(|s| !own.contains(s))
        .filter_map(|s| conflict(s, "", &taken.resources))
        .collect();
    // Copied as it was sent, so that absent and empty lists stay apart.
    let copy = |accepted: &mut Value, key: &str| match requested.get(key) {
        Value::Null => drop(accepted.unset(&[key])),
        v => accepted.set(&[key], v.clone()),
    };
    if short.is_empty() {
        copy(&mut accepted, "shortNames");
    } else if refused.as_ref().is_none_or(|(r, _)| !r.ends_with("KindConflict")) {
        // Upstream checks kinds after short names, so a conflict of kinds takes precedence.
        let all = if short.len() == 1 {
            short[0].clone()
        } else {
            format!("[{}]", short.join(", "))
        };
        refused = Some(("ShortNamesConflict", all));
    }
    // Categories never conflict: many kinds share `all`.
    copy(&mut accepted, "categories");
    // Written even with conflicts: the free names are served.
    definition.set(&["status", "acceptedNames"], accepted);

    let fine = refused.is_none();
    let (status, reason, message) = match &refused {
        None => ("True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => ("False", *reason, message.as_str()),
    };
    conditions::set(definition, "NamesAccepted", status, reason, message, now);
    let established = conditions::find(definition, "Established").map(|c| c.str_at(&["status"]).to_owned());
    match established.as_deref() {
        // An established definition stays so; a later conflict must not stop serving its objects.
        Some("True") => {}
        _ if fine => conditions::set(
            definition,
            "Established",
            "False",
            "Installing",
            "the initial names have been accepted",
            now,
        ),
        None => conditions::set(
            definition,
            "Established",
            "False",
            "NotAccepted",
            "not all names are accepted",
            now,
        ),
        // A definition that lost a name keeps the reason it has.
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn crd(plural: &str, short: &[&str], kind: &str) -> Value {
        json!({"spec": {"group": "x.io", "names": {"plural": plural, "singular": plural, "shortNames": short,
               "kind": kind, "listKind": (format!("{kind}List"))}},
               "status": {"acceptedNames": {"plural": "", "kind": ""}, "conditions": null}})
    }

    fn reasons(v: &Value) -> Vec<String> {
        let one = |c: &Value| {
            format!(
                "{}={} {}: {}",
                c.str_at(&["type"]),
                c.str_at(&["status"]),
                c.str_at(&["reason"]),
                c.str_at(&["message"])
            )
        };
        v.at(&["status", "conditions"]).items().iter().map(one).collect()
    }

    #[test]
    fn free_names_are_accepted() {
        let mut v = crd("as", &["a"], "A");
        accept_names(&mut v, &TakenNames::default(), "now");
        assert_eq!(v.at(&["status", "acceptedNames"]), v.at(&["spec", "names"]));
        assert_eq!(
            reasons(&v),
            [
                "NamesAccepted=True NoConflicts: no conflicts found",
                "Established=False Installing: the initial names have been accepted"
            ]
        );
    }

    #[test]
    fn taken_names_are_rejected_and_free_ones_accepted() {
        let other = Names::of(crd("as", &["a", "b"], "A").at(&["spec", "names"]));
        let mut v = crd("bs", &["a", "b"], "B");
        accept_names(&mut v, &TakenNames::by([&other].into_iter()), "then");
        assert_eq!(
            reasons(&v),
            [
                "NamesAccepted=False ShortNamesConflict: [\"a\" is already in use, \"b\" is already in use]",
                "Established=False NotAccepted: not all names are accepted"
            ]
        );
        assert_eq!(
            v.at(&["status", "acceptedNames"]),
            &json!({"plural": "bs", "singular": "bs", "kind": "B", "listKind": "BList"})
        );
        accept_names(&mut v, &TakenNames::default(), "now");
        assert_eq!(reasons(&v)[0], "NamesAccepted=True NoConflicts: no conflicts found");
        let times: Vec<&str> = v
            .at(&["status", "conditions"])
            .items()
            .iter()
            .map(|c| c.str_at(&["lastTransitionTime"]))
            .collect();
        assert_eq!(times, ["now", "then"], "a time changes with the status");
    }
}
