//! Limits on the content of a backend's discovery documents, since everybody's `/apis` includes them.

use super::Rejected;
use super::limits::{MAX_GROUPS, MAX_NAME_LENGTH, MAX_RESOURCES, MAX_SUBRESOURCES, MAX_VERSIONS, MAX_WORDS};
use crate::apimachinery::field::quote;
use crate::apimachinery::value::Value;

type Checked = Result<(), Rejected>;

/// Checks an APIGroupDiscoveryList.
///
/// # Errors
/// Which limit is exceeded, and where.
pub fn groups(document: &Value) -> Checked {
    let groups = document.get("items").items();
    count("the document", groups, MAX_GROUPS, "groups")?;
    for group in groups {
        let name = group.str_at(&["metadata", "name"]);
        // First, because the messages below quote the name.
        named("a group", name)?;
        let versions = group.get("versions").items();
        count(&format!("group {}", quote(name)), versions, MAX_VERSIONS, "versions")?;
        versions.iter().try_for_each(|v| version(name, v))?;
    }
    Ok(())
}

/// Checks the entry of one version of a group.
///
/// # Errors
/// Which limit is exceeded, and where.
pub fn version(group: &str, entry: &Value) -> Checked {
    let version = entry.str_at(&["version"]);
    // First, because `at` repeats it.
    named("a version", version)?;
    let at = format!("{group}/{version}");
    let resources = entry.get("resources").items();
    count(&at, resources, MAX_RESOURCES, "resources")?;
    for r in resources {
        let name = r.str_at(&["resource"]);
        named("a resource", name)?;
        // Formatted only on failure: this runs for every resource of every poll.
        let at = || format!("{} of {at}", quote(name));
        for field in ["scope", "singularResource"] {
            named(field, r.str_at(&[field]))?;
        }
        kind(r.get("responseKind"))?;
        for field in ["verbs", "shortNames", "categories"] {
            words(at, r.get(field), field)?;
        }
        let subresources = r.get("subresources").items();
        if subresources.len() > MAX_SUBRESOURCES {
            count(&at(), subresources, MAX_SUBRESOURCES, "subresources")?;
        }
        for sub in subresources {
            named("a subresource", sub.str_at(&["subresource"]))?;
            kind(sub.get("responseKind"))?;
            words(at, sub.get("verbs"), "verbs")?;
            let types = sub.get("acceptedTypes").items();
            if types.len() > MAX_WORDS {
                count(&at(), types, MAX_WORDS, "accepted types")?;
            }
            types.iter().try_for_each(kind)?;
        }
    }
    Ok(())
}

/// Checks an APIResourceList before its conversion.
///
/// # Errors
/// Which limit is exceeded.
pub(crate) fn list(document: &Value) -> Checked {
    count(
        "the document",
        document.get("resources").items(),
        MAX_RESOURCES,
        "resources",
    )
}

fn count(at: &str, all: &[Value], most: usize, what: &'static str) -> Checked {
    match all.len() > most {
        true => Err(Rejected::Discovery {
            at: at.to_owned(),
            found: all.len(),
            what,
            most,
        }),
        false => Ok(()),
    }
}

fn named(what: &'static str, name: &str) -> Checked {
    match name.len() > MAX_NAME_LENGTH {
        true => Err(Rejected::LongName {
            what,
            bytes: name.len(),
        }),
        false => Ok(()),
    }
}

fn words(at: impl Fn() -> String, all: &Value, what: &'static str) -> Checked {
    let all = all.items();
    if all.len() > MAX_WORDS {
        return count(&at(), all, MAX_WORDS, what);
    }
    all.iter().try_for_each(|w| named(what, w.as_str().unwrap_or("")))
}

fn kind(of: &Value) -> Checked {
    ["group", "version", "kind"]
        .iter()
        .try_for_each(|field| named(field, of.str_at(&[field])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn document(resource: Value) -> Value {
        json!({"items": [{"metadata": {"name": "g"}, "versions": [{"version": "v1", "resources": [resource]}]}]})
    }

    #[test]
    fn every_count_and_name_is_bounded() {
        groups(&document(json!({"resource": "things", "verbs": ["get"]}))).unwrap();
        let long = "x".repeat(254);
        for (resource, why) in [
            (
                json!({"resource": "things", "verbs": (vec!["get"; 65])}),
                "\"things\" of g/v1 has 65 verbs, at most 64 are taken",
            ),
            (
                json!({"resource": "things", "categories": (vec!["all"; 65])}),
                "\"things\" of g/v1 has 65 categories, at most 64 are taken",
            ),
            (
                json!({"resource": (long.as_str())}),
                "a resource has a name of 254 bytes, at most 253 are taken",
            ),
            (
                json!({"resource": "things", "responseKind": {"kind": (long.as_str())}}),
                "kind has a name of 254 bytes, at most 253 are taken",
            ),
            (
                json!({"resource": "things", "subresources": (vec![json!({}); 65])}),
                "\"things\" of g/v1 has 65 subresources, at most 64 are taken",
            ),
        ] {
            let message = groups(&document(resource)).unwrap_err().to_string();
            assert_eq!(message, format!("discovery is refused: {why}"));
        }
        let many = json!({"version": "v1", "resources": (vec![json!({"resource": "r"}); 4_001])});
        let message = version("g", &many).unwrap_err().to_string();
        assert_eq!(
            message,
            "discovery is refused: g/v1 has 4001 resources, at most 4000 are taken"
        );
        let message = groups(&json!({"items": (vec![json!({}); 1_001])}))
            .unwrap_err()
            .to_string();
        assert_eq!(
            message,
            "discovery is refused: the document has 1001 groups, at most 1000 are taken"
        );
    }
}
