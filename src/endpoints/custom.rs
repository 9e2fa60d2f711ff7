//! Serves the requests for one custom resource in one version.
//!
//! Unlike built-in resources, custom ones are not routed by their paths but by the RequestInfo that was
//! authorized, and unknown methods and subresources have responses of their own (upstream's
//! `customresource_handler.go` in `k8s.io/apiextensions-apiserver/pkg/apiserver`).

use super::ApiGroupVersion;
use super::options::Query;
use super::respond;
use super::route::{Action, Route, ServedResource, Target};
use crate::apimachinery::status::Status;
use crate::registry::Verbs;
use crate::request::{Authorized, Request, RequestContext, RequestInfo, Response};

impl ApiGroupVersion {
    /// Serves a request for the custom resource `served`, to which its RequestInfo must refer.
    pub(crate) async fn serve_custom(
        &self,
        served: &ServedResource,
        req: Request,
        authorized: &Authorized,
    ) -> Response {
        let (parts, body) = req.into_parts();
        let context = RequestContext::of(&parts);
        let found = match &context.info {
            None => Err(Status::internal("no RequestInfo found in the context")),
            Some(info) => routed(served, info).map(|found| (found, info.clone())),
        };
        match found {
            Ok(((route, action), info)) => self.run(action, parts, body, route, authorized, &info).await,
            // Not a `Call` yet, which otherwise adds the warning.
            Err(refusal) => {
                // Deprecated kinds warn on every request.
                if let (Some(text), Some(warnings)) = (served.0.deprecation(), &context.warnings) {
                    warnings.add(text);
                }
                let query = Query::parse(parts.uri.query().unwrap_or(""));
                respond::status_with(self.codecs, &refusal, &parts.headers, &query)
            }
        }
    }
}

/// Resolves a request to the resource. 404 for a subresource that the version does not have, 405 for another
/// verb.
fn routed(served: &ServedResource, info: &RequestInfo) -> Result<(Route, Action), Status> {
    let resource = &served.0;
    let gr = resource.group_resource();
    let (verbs, subresource) = match info.subresource.as_str() {
        // Custom resources support every verb; upstream has no per-resource list.
        "" => (Verbs::ALL, None),
        name => match resource.subresources.iter().position(|s| s.name == name) {
            Some(place) => (resource.subresources[place].verbs, Some(place)),
            None => return Err(Status::not_found(&gr, &info.name)),
        },
    };
    let all = [
        ("get", Verbs::GET, Action::Get),
        ("list", Verbs::LIST, Action::List),
        ("watch", Verbs::WATCH, Action::Watch),
        ("create", Verbs::CREATE, Action::Create),
        ("update", Verbs::UPDATE, Action::Update),
        ("patch", Verbs::PATCH, Action::Patch),
        ("delete", Verbs::DELETE, Action::Delete),
        ("deletecollection", Verbs::DELETE_COLLECTION, Action::DeleteCollection),
    ];
    let action = all
        .into_iter()
        .find(|(name, verb, _)| *name == info.verb && verbs.has(*verb))
        .map(|(.., action)| action)
        .ok_or_else(|| Status::method_not_supported(&gr, &info.verb))?;
    // Not `info.name`, which for a list is taken from the field selector.
    let name = match action {
        Action::Create => "",
        _ => info.parts.get(1).map_or("", |name| name.as_str()),
    };
    let target = match subresource {
        Some(place) => Target::Subresource(place),
        None if name.is_empty() => Target::Collection,
        None => Target::Item,
    };
    let route = Route {
        served: served.clone(),
        target,
        namespace: info.namespace.to_string(),
        name: name.to_owned(),
        // No subresource of a custom resource takes a path.
        rest: String::new(),
        watch_path: action == Action::Watch && !name.is_empty(),
    };
    Ok((route, action))
}
