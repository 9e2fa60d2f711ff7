//! The five conditions of a terminating namespace, in upstream's words (`status_condition_utils.go`).

use super::content::{LISTED, Progress};
use crate::apimachinery::conditions;
use crate::apimachinery::field::{MAX_TEXT, cut};
use crate::apimachinery::value::Value;

pub(crate) fn report(namespace: &mut Value, progress: &Progress, now: &str) {
    let bad = |reason: &'static str, message: String| ("True", reason, message);
    let good = |reason: &'static str, message: &str| ("False", reason, message.to_owned());
    let others = match progress.finalizers.len() > LISTED {
        true => ", and others",
        false => "",
    };
    // In upstream's order.
    let conditions = [
        (
            "NamespaceDeletionDiscoveryFailure",
            match &progress.discovery {
                Some((n, text)) => bad(
                    "DiscoveryFailed",
                    format!("Discovery failed for some groups, {n} failing: {text}"),
                ),
                None => good("ResourcesDiscovered", "All resources successfully discovered"),
            },
        ),
        (
            // Upstream reports malformed names of group versions; discovery here yields names that were
            // parsed.
            "NamespaceDeletionGroupVersionParsingFailure",
            good("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        (
            "NamespaceDeletionContentFailure",
            match progress.content.len() {
                0 => good(
                    "ContentDeleted",
                    "All content successfully deleted, may be waiting on finalization",
                ),
                n => bad(
                    "ContentDeletionFailed",
                    format!(
                        "Failed to delete all resource types, {n} remaining: {}",
                        progress.content.join(", ")
                    ),
                ),
            },
        ),
        (
            "NamespaceContentRemaining",
            match progress.remaining.is_empty() {
                true => good("ContentRemoved", "All content successfully removed"),
                false => bad(
                    "SomeResourcesRemain",
                    format!(
                        "Some resources are remaining: {}",
                        counts(progress.remaining.iter(), "has", "resource instances")
                    ),
                ),
            },
        ),
        (
            "NamespaceFinalizersRemaining",
            match progress.finalizers.is_empty() {
                true => good("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
                false => bad(
                    "SomeFinalizersRemain",
                    format!(
                        "Some content in the namespace has finalizers remaining: {}{others}",
                        counts(progress.finalizers.iter().take(LISTED), "in", "resource instances")
                    ),
                ),
            },
        ),
    ];
    for (kind, (status, reason, message)) in conditions {
        // There may be thousands of groups, and of resources that cannot be deleted.
        let message = cut(message, MAX_TEXT);
        // Keeps `lastTransitionTime` unless the status changes, so repeated passes write nothing.
        conditions::set(namespace, kind, status, reason, &message, now);
    }
}

fn counts<'a>(all: impl Iterator<Item = (&'a String, &'a usize)>, verb: &str, unit: &str) -> String {
    let texts: Vec<String> = all.map(|(what, n)| format!("{what} {verb} {n} {unit}")).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn condition<'a>(namespace: &'a Value, kind: &str) -> [&'a str; 4] {
        let found = conditions::find(namespace, kind).expect("it is set");
        ["status", "reason", "message", "lastTransitionTime"].map(|k| found.str_at(&[k]))
    }

    #[test]
    fn conditions_list_remaining_content_and_change_times_only_with_the_status() {
        let mut namespace = json!({});
        let mut progress = Progress::default();
        progress.remaining.insert("configmaps.".into(), 1);
        progress.remaining.insert("widgets.a.io".into(), 2);
        progress.finalizers.insert("a/b".into(), 3);
        report(&mut namespace, &progress, "t1");
        assert_eq!(
            condition(&namespace, "NamespaceContentRemaining"),
            [
                "True",
                "SomeResourcesRemain",
                "Some resources are remaining: configmaps. has 1 resource instances, widgets.a.io has 2 resource instances",
                "t1"
            ]
        );
        assert_eq!(
            condition(&namespace, "NamespaceFinalizersRemaining")[2],
            "Some content in the namespace has finalizers remaining: a/b in 3 resource instances"
        );
        progress
            .finalizers
            .extend((0..LISTED).map(|n| (format!("a/c{n:03}"), 1)));
        report(&mut namespace, &progress, "t1");
        let many = condition(&namespace, "NamespaceFinalizersRemaining")[2];
        assert!(many.ends_with("a/c098 in 1 resource instances, and others"), "{many}");
        progress.remaining.remove("widgets.a.io");
        report(&mut namespace, &progress, "t2");
        assert_eq!(condition(&namespace, "NamespaceContentRemaining")[3], "t1");
        report(&mut namespace, &Progress::default(), "t3");
        let all = namespace.at(&["status", "conditions"]).items();
        assert_eq!(all.len(), 5);
        assert!(all.iter().all(|c| c.str_at(&["status"]) == "False"));
        assert_eq!(condition(&namespace, "NamespaceContentRemaining")[3], "t3");
    }
}
