//! The parameter objects of a binding (upstream's `generic.CollectParams`).

use super::stored::{Binding, Choice, ParamKind};
use crate::admission::{Attributes, ObjectLookup, Wanted};
use crate::apimachinery::gvk::GroupVersionResource;
use crate::apimachinery::value::Value;
use crate::tasks::compute;
use std::fmt;
use std::sync::Arc;

/// Maximum number of parameter objects that a policy is evaluated with on a reactor. Each evaluation is bounded, but
/// their number is not.
const FEW: usize = 8;

/// A configuration error of the policy or of the binding, because of which no parameters were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Misconfigured {
    Policy(String),
    Binding(String),
}

/// Worded as upstream.
impl fmt::Display for Misconfigured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(why) => write!(f, "failed to configure policy: {why}"),
            Self::Binding(why) => write!(f, "failed to configure binding: {why}"),
        }
    }
}

/// The parameters to evaluate a policy of this parameter kind with, one after the other; empty if the binding
/// is to be skipped. Null stands for a policy without parameters and for a binding without `paramRef`.
///
/// # Errors
/// [`Misconfigured`].
pub(super) async fn collect(
    cluster: &ObjectLookup,
    kind: Option<&ParamKind>,
    binding: &Binding,
    attributes: &Attributes,
) -> Result<Vec<Arc<Value>>, Misconfigured> {
    let (Some(kind), Some(params)) = (kind, &binding.params) else {
        return Ok(vec![Arc::default()]);
    };
    let group = &kind.version.group;
    let found = cluster.resource_of(group, &kind.kind);
    let (plural, namespaced) = found.ok_or_else(|| Misconfigured::Policy(unknown(kind)))?;
    let mut namespace = params.namespace.as_str();
    if namespaced && namespace.is_empty() {
        // Parameters of the request's own namespace: each namespace can have its own.
        namespace = attributes.request_namespace();
        if namespace.is_empty() {
            let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Err(Misconfigured::Binding(why.to_owned()));
        }
    } else if !namespaced && !namespace.is_empty() {
        let why = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`";
        return Err(Misconfigured::Binding(why.to_owned()));
    }
    let resource = GroupVersionResource::new(group, &kind.version.version, &plural);
    let choice = params
        .choice
        .as_ref()
        .map_err(|e| Misconfigured::Binding(e.to_string()))?;
    let wanted = match choice {
        Choice::Name(name) => Wanted::Name(name),
        Choice::Selector(selector) => Wanted::Labels(selector),
    };
    let objects = cluster.objects(&resource, namespace, wanted).await;
    // The cause is not passed on: the message is upstream's.
    let objects = objects.map_err(|_| Misconfigured::Policy(unknown(kind)))?;
    if objects.len() > FEW {
        compute::leave_reactor(0).await;
    }
    // Otherwise the binding is skipped: there is nothing to evaluate.
    if objects.is_empty() && params.deny_if_missing {
        let why = "no params found for policy binding with `Deny` parameterNotFoundAction";
        return Err(Misconfigured::Binding(why.to_owned()));
    }
    Ok(objects.into_iter().map(Arc::new).collect())
}

fn unknown(kind: &ParamKind) -> String {
    let (version, kind) = (kind.version.to_string(), &kind.kind);
    format!("failed to find resource referenced by paramKind: '{version}, Kind={kind}'")
}
