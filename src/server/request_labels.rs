//! [`request_labels`]: the metric labels of a request, by upstream's rules
//! (`apiserver/pkg/endpoints/metrics/metrics.go`, `CleanVerb` and `CleanScope`). Filters and the aggregator
//! use them alike; [`RequestMetrics`](crate::telemetry::requests::RequestMetrics) bounds the number of
//! values.

use crate::request::RequestInfo;
use crate::telemetry::requests::Labels;

/// The labels of a request. `apply` marks a patch that is a server-side apply. As upstream, the component is
/// `apiserver` for resources and empty for other paths.
pub(crate) fn request_labels(info: &RequestInfo, apply: bool) -> Labels<'_> {
    Labels {
        verb: verb(info, apply),
        dry_run: "",
        group: &info.api_group,
        version: &info.api_version,
        resource: &info.resource,
        // Upstream puts the path of other requests into this label.
        subresource: if info.is_resource {
            &info.subresource
        } else {
            &info.path
        },
        scope: scope(info),
        component: if info.is_resource { "apiserver" } else { "" },
    }
}

fn verb(info: &RequestInfo, apply: bool) -> &'static str {
    if matches!(
        info.subresource.as_str(),
        "log" | "exec" | "attach" | "portforward" | "proxy"
    ) {
        return "CONNECT";
    }
    match info.verb.as_str() {
        // For paths that are not resources the verb is the HTTP method.
        "get" | "head" => "GET",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" if apply => "APPLY",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "list" => "LIST",
        "watch" => "WATCH",
        "deletecollection" => "DELETECOLLECTION",
        "proxy" => "CONNECT",
        // Clients choose the method, which must not add series.
        _ => "other",
    }
}

fn scope(info: &RequestInfo) -> &'static str {
    if !info.is_resource {
        ""
    // A create counts as an access to one object, although its path has no name (`CleanScope`).
    } else if !info.name.is_empty() || info.verb == "create" {
        "resource"
    } else if !info.namespace.is_empty() {
        "namespace"
    } else {
        "cluster"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(
        verb: &str,
        resource: &str,
        subresource: &str,
        namespace: &str,
        name: &str,
    ) -> (&'static str, &'static str) {
        let info = RequestInfo {
            is_resource: !resource.is_empty(),
            verb: verb.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..RequestInfo::default()
        };
        let labels = request_labels(&info, false);
        (labels.verb, labels.scope)
    }

    #[test]
    fn verb_and_scope_follow_the_request() {
        for (verb, resource, subresource, namespace, name, want) in [
            ("get", "pods", "", "n", "p", ("GET", "resource")),
            ("list", "pods", "", "n", "", ("LIST", "namespace")),
            ("watch", "pods", "", "", "", ("WATCH", "cluster")),
            ("create", "pods", "", "n", "", ("POST", "resource")),
            (
                "deletecollection",
                "pods",
                "",
                "n",
                "",
                ("DELETECOLLECTION", "namespace"),
            ),
            ("create", "pods", "exec", "n", "p", ("CONNECT", "resource")),
            ("get", "", "", "", "", ("GET", "")),
            ("head", "", "", "", "", ("GET", "")),
            ("bogus", "", "", "", "", ("other", "")),
        ] {
            assert_eq!(
                labels(verb, resource, subresource, namespace, name),
                want,
                "{verb} {resource}"
            );
        }
    }
}
