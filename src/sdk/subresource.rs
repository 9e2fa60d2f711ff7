//! [`Subresource`]: a subresource with a kind of its own. It is served with the verbs that it has handlers for, and
//! discovery and OpenAPI list these.

use crate::apimachinery::gvk::{GroupResource, GroupVersion};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::{Str, Value};
use crate::registry::resource::SubresourceHandler;
use crate::registry::{self, Context, SubresourceBehaviour, Verbs};
use async_trait::async_trait;
use std::sync::Arc;

/// Serves GET of a subresource.
///
/// ```
/// use async_trait::async_trait;
/// use std::sync::Arc;
/// use torana::apimachinery::Value;
/// use torana::apimachinery::status::Result;
/// use torana::json;
/// use torana::sdk::{Context, GetSubresource, Kind, Store, Subresource};
///
/// /// Serves GET of `gadgets/size`.
/// struct Size(Arc<Store>);
///
/// #[async_trait]
/// impl GetSubresource for Size {
///     async fn get(&self, cx: &Context, name: &str) -> Result<Value> {
///         let gadget = self.0.get_value(&cx.namespace, name).await?;
///         let mut size = json!({"apiVersion": "gadgets.example.com/v1", "kind": "Size", "metadata": {"name": name}});
///         size.set(&["spec", "size"], gadget.at(&["spec", "size"]).clone());
///         Ok(size)
///     }
/// }
///
/// let gadget = Kind::namespaced("Gadget", "gadgets", json!({"type": "object"}))
///     .subresource(|gadgets| Subresource::new("size", "Size").get(Arc::new(Size(gadgets))));
/// ```
#[async_trait]
pub trait GetSubresource: Send + Sync + 'static {
    /// Returns the object of the subresource. `name` is that of the object it belongs to, in `cx.namespace`.
    ///
    /// # Errors
    /// The Status to respond with.
    async fn get(&self, cx: &Context, name: &str) -> Result<Value>;
}

/// Serves POST to a subresource, such as an action.
#[async_trait]
pub trait CreateSubresource: Send + Sync + 'static {
    /// Performs the action that `object` describes, and returns the object to respond with. `object` is of the
    /// subresource's kind and has passed mutating and validating admission, but has not been validated otherwise.
    /// Nothing may be written if `cx.dry_run` is set; methods of [`Store`](super::Store) observe that.
    ///
    /// # Errors
    /// The Status to respond with.
    ///
    /// # Cancel safety
    /// Runs to its end even if the client disconnects.
    async fn create(&self, cx: &Context, name: &str, object: Value) -> Result<Value>;
}

/// Serves PUT and PATCH of a subresource. A patch applies to what [`GetSubresource::get`] returns; a conflict (409)
/// repeats it with a newer object.
///
/// ```
/// use async_trait::async_trait;
/// use std::sync::Arc;
/// use torana::apimachinery::Value;
/// use torana::apimachinery::status::Result;
/// use torana::json;
/// use torana::sdk::{Context, GetSubresource, Kind, Store, Subresource, UpdateSubresource};
///
/// /// Serves GET, PUT and PATCH of `gadgets/size`.
/// struct Size(Arc<Store>);
///
/// fn size_of(gadget: &Value) -> Value {
///     let mut size = json!({"apiVersion": "gadgets.example.com/v1", "kind": "Size"});
///     for key in ["name", "namespace", "resourceVersion"] {
///         size.set(&["metadata", key], gadget.at(&["metadata", key]).clone());
///     }
///     size.set(&["spec", "size"], gadget.at(&["spec", "size"]).clone());
///     size
/// }
///
/// #[async_trait]
/// impl GetSubresource for Size {
///     async fn get(&self, cx: &Context, name: &str) -> Result<Value> {
///         Ok(size_of(&self.0.get_value(&cx.namespace, name).await?))
///     }
/// }
///
/// #[async_trait]
/// impl UpdateSubresource for Size {
///     async fn update(&self, cx: &Context, name: &str, size: Value) -> Result<Value> {
///         let resized = |live: &Value| {
///             let mut gadget = live.clone();
///             gadget.set(&["spec", "size"], size.at(&["spec", "size"]).clone());
///             // The store refuses the update with 409 if the client has read an older object.
///             let version = size.at(&["metadata", "resourceVersion"]);
///             if !version.is_null() {
///                 gadget.set(&["metadata", "resourceVersion"], version.clone());
///             }
///             Ok(gadget)
///         };
///         Ok(size_of(&self.0.update_with(cx, name, "", resized).await?))
///     }
/// }
///
/// let gadget = Kind::namespaced("Gadget", "gadgets", json!({"type": "object"}))
///     .subresource(|gadgets| Subresource::new("size", "Size").update(Arc::new(Size(gadgets))));
/// ```
#[async_trait]
pub trait UpdateSubresource: GetSubresource {
    /// Replaces the object of the subresource by `object`, and returns what it is then. As for
    /// [`CreateSubresource::create`], `object` has passed admission only.
    ///
    /// # Errors
    /// The Status to respond with.
    ///
    /// # Cancel safety
    /// Runs to its end even if the client disconnects.
    async fn update(&self, cx: &Context, name: &str, object: Value) -> Result<Value>;
}

/// A subresource whose objects are of a kind of their own, in the group version of the kind that it belongs to.
///
/// ```
/// use async_trait::async_trait;
/// use std::sync::Arc;
/// use torana::apimachinery::Value;
/// use torana::apimachinery::status::Result;
/// use torana::json;
/// use torana::sdk::{Context, CreateSubresource, Kind, Store, Subresource};
///
/// /// Serves POST of `gadgets/reset`.
/// struct Reset(Arc<Store>);
///
/// #[async_trait]
/// impl CreateSubresource for Reset {
///     async fn create(&self, cx: &Context, name: &str, request: Value) -> Result<Value> {
///         let idle = |live: &Value| {
///             let mut gadget = live.clone();
///             gadget.set(&["status", "phase"], "Idle");
///             Ok(gadget)
///         };
///         self.0.update_with(cx, name, "status", idle).await?;
///         Ok(request)
///     }
/// }
///
/// let gadget = Kind::namespaced("Gadget", "gadgets", json!({"type": "object"}))
///     .status()
///     .subresource(|gadgets| Subresource::new("reset", "Reset").create(Arc::new(Reset(gadgets))));
/// ```
pub struct Subresource {
    name: Str,
    kind: Str,
    handlers: Handlers,
}

#[derive(Default)]
struct Handlers {
    get: Option<Arc<dyn GetSubresource>>,
    create: Option<Arc<dyn CreateSubresource>>,
    update: Option<Arc<dyn UpdateSubresource>>,
}

impl Subresource {
    /// A subresource without handlers: `name` in the path, objects of `kind`.
    pub fn new(name: impl Into<Str>, kind: impl Into<Str>) -> Self {
        Self {
            name: name.into(),
            kind: kind.into(),
            handlers: Handlers::default(),
        }
    }

    /// Serves the verb `get`.
    #[must_use]
    pub fn get(mut self, handler: Arc<impl GetSubresource>) -> Self {
        self.handlers.get = Some(handler);
        self
    }

    /// Serves the verb `create`.
    #[must_use]
    pub fn create(mut self, handler: Arc<impl CreateSubresource>) -> Self {
        self.handlers.create = Some(handler);
        self
    }

    /// Serves the verbs `get`, `update` and `patch`.
    #[must_use]
    pub fn update(mut self, handler: Arc<impl UpdateSubresource>) -> Self {
        // A patch needs the object that it applies to, so an update is never served without a get.
        self.handlers.get = Some(handler.clone());
        self.handlers.update = Some(handler);
        self
    }

    /// The entry in the row of `parent`.
    pub(super) fn into_row(self, gv: &GroupVersion, parent: GroupResource) -> registry::Subresource {
        registry::Subresource {
            name: self.name,
            kind: gv.with_kind(&self.kind),
            verbs: self.handlers.verbs(),
            behaviour: SubresourceBehaviour::Custom(Arc::new(Served {
                parent,
                handlers: self.handlers,
            })),
            printable: true,
        }
    }
}

impl Handlers {
    fn verbs(&self) -> Verbs {
        [
            (self.get.is_some(), Verbs::GET),
            (self.create.is_some(), Verbs::CREATE),
            (self.update.is_some(), Verbs::GET_PATCH_UPDATE),
        ]
        .into_iter()
        .filter(|(served, _)| *served)
        .fold(Verbs::NONE, |all, (_, verbs)| all.with(verbs))
    }
}

/// The handlers as the registry calls them.
struct Served {
    parent: GroupResource,
    handlers: Handlers,
}

impl Served {
    /// 405. Requests with a verb that is not served end earlier, when they are routed.
    fn unsupported(&self, verb: &str) -> Status {
        Status::method_not_supported(&self.parent, verb)
    }
}

#[async_trait]
impl SubresourceHandler for Served {
    async fn get(&self, cx: &Context, name: &str) -> Result<Value> {
        let handler = self.handlers.get.as_ref();
        handler.ok_or_else(|| self.unsupported("get"))?.get(cx, name).await
    }

    async fn create(&self, cx: &Context, name: &str, object: Value) -> Result<Value> {
        let handler = self.handlers.create.as_ref();
        let handler = handler.ok_or_else(|| self.unsupported("create"))?;
        handler.create(cx, name, object).await
    }

    async fn update(&self, cx: &Context, name: &str, object: Value) -> Result<Value> {
        let handler = self.handlers.update.as_ref();
        let handler = handler.ok_or_else(|| self.unsupported("update"))?;
        handler.update(cx, name, object).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    #[async_trait]
    impl GetSubresource for Nothing {
        async fn get(&self, _: &Context, _: &str) -> Result<Value> {
            Ok(Value::Null)
        }
    }

    #[async_trait]
    impl CreateSubresource for Nothing {
        async fn create(&self, _: &Context, _: &str, object: Value) -> Result<Value> {
            Ok(object)
        }
    }

    #[async_trait]
    impl UpdateSubresource for Nothing {
        async fn update(&self, _: &Context, _: &str, object: Value) -> Result<Value> {
            Ok(object)
        }
    }

    fn row(subresource: Subresource) -> registry::Subresource {
        let gv = GroupVersion::new("g.example.com", "v1");
        subresource.into_row(&gv, GroupResource::new("g.example.com", "gadgets"))
    }

    #[test]
    fn the_verbs_are_those_with_a_handler() {
        let new = || Subresource::new("part", "Part");
        assert!(row(new()).verbs.names().is_empty());
        assert_eq!(row(new().get(Arc::new(Nothing))).verbs.names(), ["get"]);
        assert_eq!(row(new().create(Arc::new(Nothing))).verbs.names(), ["create"]);
        let all = new().create(Arc::new(Nothing)).update(Arc::new(Nothing));
        assert_eq!(row(all).verbs.names(), ["create", "get", "patch", "update"]);
    }

    #[tokio::test]
    async fn a_verb_without_a_handler_is_not_allowed() {
        let row = row(Subresource::new(String::from("part"), "Part").create(Arc::new(Nothing)));
        assert_eq!((&*row.name, &*row.kind.kind), ("part", "Part"));
        let SubresourceBehaviour::Custom(handler) = row.behaviour else {
            panic!("it has a handler of its own");
        };
        let cx = Context::system("ns");
        let refused = handler.update(&cx, "one", Value::Null).await.unwrap_err();
        assert_eq!((refused.code, refused.reason), (405, "MethodNotAllowed"));
        assert_eq!(
            handler.create(&cx, "one", Value::from(1i64)).await,
            Ok(Value::from(1i64))
        );
    }
}
