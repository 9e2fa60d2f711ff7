//! The 403 Status of denied requests, with upstream's exact wording
//! (`pkg/endpoints/handlers/responsewriters/errors.go`).

use super::Attributes;
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::status::Status;
use std::fmt::Write;

/// The Status for a denied request. `reason` is appended to the message unless it is empty.
pub(crate) fn forbidden(attributes: &Attributes<'_>, reason: &str) -> Status {
    let mut why = String::new();
    // Writing to a String cannot fail.
    let _ = write!(why, "User {:?} cannot {} ", attributes.user.name, attributes.verb);
    if attributes.is_resource {
        let slash = if attributes.subresource.is_empty() { "" } else { "/" };
        let resource = format!("{}{slash}{}", attributes.resource, attributes.subresource);
        let _ = write!(why, "resource {resource:?} in API group {:?} ", attributes.api_group);
        if attributes.namespace.is_empty() {
            why.push_str("at the cluster scope");
        } else {
            let _ = write!(why, "in the namespace {:?}", attributes.namespace);
        }
    } else {
        let _ = write!(why, "path {:?}", attributes.path);
    }
    // Before the reason is appended: upstream escapes the attributes only.
    let mut why = escape(&why);
    if !reason.is_empty() {
        why.push_str(": ");
        why.push_str(reason);
    }
    if attributes.is_resource {
        Status::forbidden(
            &GroupResource::new(attributes.api_group, attributes.resource),
            attributes.name,
            &why,
        )
    } else {
        Status::forbidden(&GroupResource::new("", ""), "", &why)
    }
}

/// Upstream HTML-escapes the part of the message with client-supplied names, but not the reason.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::codec::json;
    use crate::request::{RequestInfo, UserInfo};
    use http::Method;

    fn say(method: Method, uri: &str, reason: &str) -> String {
        let info = RequestInfo::resolve(&method, &uri.parse().unwrap()).unwrap();
        forbidden(&Attributes::of(&UserInfo::system("u<1>", &[]), &info), reason).message
    }

    #[test]
    fn messages_match_upstream() {
        assert_eq!(
            say(Method::GET, "/apis", ""),
            r#"forbidden: User "u&lt;1&gt;" cannot get path "/apis""#
        );
        assert_eq!(
            say(Method::GET, "/api/v1/namespaces/default", ""),
            r#"namespaces "default" is forbidden: User "u&lt;1&gt;" cannot get resource "namespaces" in API group "" in the namespace "default""#
        );
        assert_eq!(
            say(Method::GET, "/apis/apps/v1/deployments", "because <x>"),
            r#"deployments.apps is forbidden: User "u&lt;1&gt;" cannot list resource "deployments" in API group "apps" at the cluster scope: because <x>"#
        );
        assert_eq!(
            say(Method::OPTIONS, "/api/v1/namespaces/a/pods/p/log", ""),
            r#"pods "p" is forbidden: User "u&lt;1&gt;" cannot  resource "pods/log" in API group "" in the namespace "a""#
        );
    }

    #[test]
    fn details_of_a_path_are_an_empty_object() {
        let info = RequestInfo::resolve(&Method::GET, &"/apis".parse().unwrap()).unwrap();
        let user = UserInfo::anonymous();
        let text = json::to_string(&forbidden(&Attributes::of(&user, &info), "").to_value());
        assert!(text.contains(r#""details":{}"#), "{text}");
    }
}
