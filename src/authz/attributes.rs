//! What is being asked, by whom.

use crate::request::{RequestInfo, UserInfo};

/// One question to an authorizer. Empty strings where the request does not say.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a UserInfo,
    /// The verb.
    pub verb: &'a str,
    /// True for resources, false for plain paths.
    pub is_resource: bool,
    /// Group.
    pub api_group: &'a str,
    /// Version.
    pub api_version: &'a str,
    /// Namespace.
    pub namespace: &'a str,
    /// Resource.
    pub resource: &'a str,
    /// Subresource.
    pub subresource: &'a str,
    /// Name.
    pub name: &'a str,
    /// The path.
    pub path: &'a str,
    /// Raw field selector of list, watch and deletecollection.
    pub field_selector: &'a str,
    /// Raw label selector of list, watch and deletecollection.
    pub label_selector: &'a str,
}

impl<'a> Attributes<'a> {
    /// What a request asks.
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

    /// A question about nothing yet.
    pub fn nothing(user: &'a UserInfo) -> Self {
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

    /// Another verb on the same thing.
    pub fn with_verb(self, verb: &'a str) -> Self {
        Self { verb, ..self }
    }
}

/// A question that owns its parts, to be answered on another thread.
pub(super) struct Question {
    user: UserInfo,
    is_resource: bool,
    texts: [String; 10],
}

impl Question {
    pub fn of(asked: &Attributes<'_>) -> Self {
        let texts = [
            asked.verb,
            asked.api_group,
            asked.api_version,
            asked.namespace,
            asked.resource,
            asked.subresource,
            asked.name,
            asked.path,
            asked.field_selector,
            asked.label_selector,
        ];
        Self {
            user: asked.user.clone(),
            is_resource: asked.is_resource,
            texts: texts.map(str::to_owned),
        }
    }

    pub fn asked(&self) -> Attributes<'_> {
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
