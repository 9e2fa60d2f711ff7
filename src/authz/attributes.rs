//! The input of authorization: user, verb, and resource or path. [`Attributes`] borrows from the request and
//! is cheap to vary; [`OwnedAttributes`] is a copy for other threads.

use crate::request::{RequestInfo, UserInfo};

/// The attributes of a request to authorize. Strings are empty where the request does not specify a value.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// The user whose permission is examined: the caller, or the subject of an access review.
    pub user: &'a UserInfo,
    /// The API verb, such as `list`, or the lower-case method of a non-resource request.
    pub verb: &'a str,
    /// True for resource requests, false for other paths.
    pub is_resource: bool,
    /// API group; empty for core.
    pub api_group: &'a str,
    /// API version. Only webhook authorizers see it: RBAC rules name groups.
    pub api_version: &'a str,
    /// Namespace; empty for cluster scope and for all namespaces.
    pub namespace: &'a str,
    /// Resource name in lower-case plural; empty for non-resource requests.
    pub resource: &'a str,
    /// Subresource; empty for the resource itself.
    pub subresource: &'a str,
    /// Name of the object; empty for collections.
    pub name: &'a str,
    /// The path of the request, which the rules of non-resource requests match.
    pub path: &'a str,
    /// Raw field selector of list, watch and deletecollection.
    pub field_selector: &'a str,
    /// Raw label selector of list, watch and deletecollection.
    pub label_selector: &'a str,
}

impl<'a> Attributes<'a> {
    /// The attributes of a request.
    pub fn of(user: &'a UserInfo, info: &'a RequestInfo) -> Self {
        Self {
            user,
            verb: &info.verb,
            is_resource: info.is_resource,
            api_group: &info.api_group,
            api_version: &info.api_version,
            namespace: &info.namespace,
            resource: &info.resource,
            subresource: &info.subresource,
            name: &info.name,
            path: &info.path,
            field_selector: &info.field_selector,
            label_selector: &info.label_selector,
        }
    }

    /// Empty attributes, to be filled by struct update.
    pub fn empty(user: &'a UserInfo) -> Self {
        Self {
            user,
            verb: "",
            is_resource: false,
            api_group: "",
            api_version: "",
            namespace: "",
            resource: "",
            subresource: "",
            name: "",
            path: "",
            field_selector: "",
            label_selector: "",
        }
    }

    /// The same attributes with another verb.
    pub fn with_verb(self, verb: &'a str) -> Self {
        Self { verb, ..self }
    }
}

/// Owned attributes, for a decision on another thread.
pub(super) struct OwnedAttributes {
    user: UserInfo,
    is_resource: bool,
    texts: [String; 10],
}

impl OwnedAttributes {
    pub(crate) fn of(attributes: &Attributes<'_>) -> Self {
        // The order must be that of `as_attributes`, which takes the array apart by position.
        let texts = [
            attributes.verb,
            attributes.api_group,
            attributes.api_version,
            attributes.namespace,
            attributes.resource,
            attributes.subresource,
            attributes.name,
            attributes.path,
            attributes.field_selector,
            attributes.label_selector,
        ];
        Self {
            user: attributes.user.clone(),
            is_resource: attributes.is_resource,
            texts: texts.map(str::to_owned),
        }
    }

    pub(crate) fn as_attributes(&self) -> Attributes<'_> {
        let [
            verb,
            api_group,
            api_version,
            namespace,
            resource,
            subresource,
            name,
            path,
            field_selector,
            label_selector,
        ] = &self.texts;
        Attributes {
            user: &self.user,
            verb,
            is_resource: self.is_resource,
            api_group,
            api_version,
            namespace,
            resource,
            subresource,
            name,
            path,
            field_selector,
            label_selector,
        }
    }
}
