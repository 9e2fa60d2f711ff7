//! Create: system fields, defaulting, admission, validation, and the write (upstream:
//! `registry/generic/registry/store.go`).
//!
//! Entry point: [`create`]. Mutating admission runs before the kind's preparation, validating admission after
//! validation. A rejection by mutating admission therefore precedes a 422, which in turn precedes a rejection
//! by validating admission.

use super::admit::{self, Mutated};
use super::meta;
use super::store::Store;
use super::strategy::{Change, Context, NameRule, Outcome};
use super::write::{ResultObject, WriteOptions};
use super::{dry_run, empties, errors, size_fallback};
use crate::admission::Operation;
use crate::apimachinery::apply::Writer;
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::apimachinery::{names, time};
use crate::storage::{Error, Precondition};
use crate::tasks::compute;

impl Store {
    /// Creates `object`, which must be decoded and normalised and have a name or generateName, in
    /// `cx.namespace`. Not cancel safe.
    ///
    /// # Errors
    /// The Status of validation, admission or storage.
    pub(crate) async fn create(&self, cx: &Context, object: Value, options: &WriteOptions) -> Result<ResultObject> {
        create(self, cx, object, options).await
    }
}

/// Attempts to find a free generated name, as upstream.
const ATTEMPTS: usize = 8;
const LABELS: [&str; 2] = ["metadata", "labels"];

pub(super) async fn create(
    store: &Store,
    cx: &Context,
    mut object: Value,
    options: &WriteOptions,
) -> Result<ResultObject> {
    let resource = &store.resource;
    // Checked before anything is changed: the error names the kind as the client wrote it.
    let foreign = meta::type_errors(resource, &object);
    if !foreign.is_empty() {
        let given = object.gvk();
        return Err(Status::invalid(&given.group, &given.kind, object.name(), &foreign));
    }
    meta::set_kind(resource, &mut object);
    meta::wipe_system_fields(&mut object);
    meta::set_namespace(resource, cx, &mut object);
    meta::dedup_owner_references(&mut object, &cx.warnings, false);
    let labels_from = store.strategy.rules().labels_from;
    let labels_from = labels_from.filter(|_| object.at(&LABELS).is_empty_value());
    // Defaults precede admission, as for upstream's decoder.
    store.strategy.default(&mut object);
    let now = time::now();
    // Ownership is recorded before mutating admission, as in upstream's create handler.
    if let Some(manager) = &options.manager {
        let who = Writer {
            manager,
            subresource: &options.subresource,
            now: &now,
            api_version: &resource.gvk().api_version(),
        };
        empties::manage(store, cx, None, &mut object, &who);
    }
    let name = object.name().to_owned();
    let write = (Operation::Create, name.as_str());
    let mutated = admit::mutate(store, cx, write, None, options, &mut object).await?;
    // A plugin may have set fields that are not stored.
    resource.schema.forget_unstored(&mut object);
    meta::dedup_owner_references(&mut object, &cx.warnings, true);
    // After mutating admission, so that plugins cannot choose them.
    object.set_meta("creationTimestamp", now.as_str());
    object.set_meta("uid", names::uid());

    let base = object.meta("generateName").to_owned();
    let tries = if object.name().is_empty() && !base.is_empty() {
        ATTEMPTS
    } else {
        1
    };
    // Unless there were none to take, or mutating admission has set others.
    let labels_from = labels_from.filter(|from| !object.at(from).is_null() && object.at(from) == object.at(&LABELS));
    let mut taken = None;
    // Every attempt restarts from the admitted object, because preparation may depend on the name.
    for left in (0..tries).rev() {
        // The last attempt takes the object and saves a copy.
        let mut attempt = match left {
            0 => std::mem::take(&mut object),
            _ => object.clone(),
        };
        if tries > 1 {
            attempt.set_meta("name", generated(store.strategy.rules().names, &base));
        }
        match once(store, cx, attempt, &mutated, options, labels_from).await? {
            Ok(written) => return Ok(written),
            Err(refused) => taken = Some(refused),
        }
    }
    Err(taken.expect("at least one attempt is made, and it was refused"))
}

/// A name that begins with `base`.
fn generated(rule: NameRule, base: &str) -> String {
    match rule {
        // No suffix would make it an address.
        NameRule::CanonicalIp => base.to_owned(),
        _ => names::generate(base),
    }
}

/// One attempt with a fixed name. `Ok(Err(_))` means that the name is taken. The labels are those at `labels_from`, if
/// given, also after the preparation.
async fn once(
    store: &Store,
    cx: &Context,
    mut object: Value,
    mutated: &Mutated<'_>,
    options: &WriteOptions,
    labels_from: Option<&[&str]>,
) -> Result<std::result::Result<ResultObject, Status>> {
    let strategy = &store.strategy;
    strategy.prepare(&mut object, Change::Create);
    if let Some(from) = labels_from {
        let labels = object.at(from).clone();
        object.set(&LABELS, labels);
    }
    let effects = strategy.effects();
    if let Some(effects) = effects {
        effects.begin(cx, &mut object, None).await?;
    }
    let written = checked(store, cx, &object, mutated, options).await;
    // Effects of a refused create (an allocated address, say) are undone by `Abandoned`.
    if let Some(effects) = effects {
        let outcome = match written {
            Ok(Ok(_)) if !cx.dry_run => Outcome::Created,
            _ => Outcome::Abandoned { old: None },
        };
        effects.end(cx, &object, outcome).await;
    }
    written
}

fn unversioned(mut object: Value) -> Value {
    object.unset_meta("resourceVersion");
    object
}

async fn checked(
    store: &Store,
    cx: &Context,
    object: &Value,
    mutated: &Mutated<'_>,
    options: &WriteOptions,
) -> Result<std::result::Result<ResultObject, Status>> {
    let resource = &store.resource;
    let bare;
    let object = match meta::parse_version(object.resource_version()) {
        Err(_) | Ok(0) if !cx.dry_run && !object.resource_version().is_empty() => {
            // An unparsable or zero resourceVersion counts as unset.
            bare = unversioned(object.clone());
            &bare
        }
        _ => object,
    };
    let mut found = match empties::with_empties(store, cx, &options.subresource, object) {
        Some(whole) => meta::validate_create(store, &whole),
        None => ErrorList::new(),
    };
    // The object has to be valid without its empty lists, too, because it is stored without them.
    if found.is_empty() {
        found = meta::validate_create(store, object);
    }
    if !found.is_empty() {
        return Err(Status::invalid(
            resource.error_group(),
            &resource.kind,
            object.name(),
            &found,
        ));
    }
    // Warnings only for objects that are valid, as upstream.
    for text in store.strategy.warnings(object, Change::Create) {
        cx.warnings.add(text);
    }
    mutated.validate_named(object.name(), object).await?;

    let key = resource.key(object.namespace(), object.name());
    let existing = if cx.dry_run {
        // Dry run reads the latest state, or it would promise a name that is taken.
        match dry_run::create(&store.storage, &key, object).await {
            Ok(Ok(written)) => return Ok(Ok(written)),
            Ok(Err(existing)) => Some(existing),
            Err(e) => return Err(errors::write(&e, &resource.group_resource(), object.name())),
        }
    } else {
        // Only here: upstream's dry-run storage accepts a resourceVersion.
        if !object.resource_version().is_empty() {
            return Err(Status::raw_error(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let rules = store.strategy.rules();
        let mut draft = meta::draft(resource, object);
        draft.incomplete = rules.completed_by_reads.is_some_and(|completed| completed(object));
        let may_forget = options.manager.is_some();
        match size_fallback::put(
            store,
            &key,
            Precondition::Absent,
            (object, draft),
            rules.ttl_seconds,
            may_forget,
        )
        .await
        {
            Ok(entry) => return Ok(Ok(ResultObject::Stored(entry))),
            Err(Error::Conflict(existing)) => existing,
            Err(e) => return Err(errors::write(&e, &resource.group_resource(), object.name())),
        }
    };
    let dying = match existing {
        Some(entry) => {
            compute::leave_reactor_to_decode(entry.json.len()).await;
            entry.decode().is_being_deleted()
        }
        None => false,
    };
    Ok(Err(taken(store, object, dying)))
}

/// 409, worded for a given or a generated name.
fn taken(store: &Store, object: &Value, dying: bool) -> Status {
    let mut status = Status::already_exists(&store.resource.group_resource(), object.name());
    // Upstream words it by `generateName` even if the client gave a name as well.
    if !object.meta("generateName").is_empty() {
        status
            .message
            .push_str(", the server was not able to generate a unique name for the object");
        // Another attempt draws another suffix.
        status = status.with_retry_after(1);
    } else if dying {
        status.message.insert_str(0, "object is being deleted: ");
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::AdmitAll;
    use crate::json;
    use crate::registry::strategy::{Rules, Strategy};
    use crate::registry::testing::{config_maps, embedded};
    use std::sync::Arc;

    /// A kind whose objects have the labels of their data unless they have others.
    struct Labelled;

    impl Strategy for Labelled {
        fn rules(&self) -> Rules {
            Rules {
                labels_from: Some(&["data"]),
                ..Rules::DEFAULT
            }
        }

        fn default(&self, object: &mut Value) {
            if object.at(&LABELS).is_null() {
                let data = object.get("data").clone();
                object.set(&LABELS, data);
            }
        }

        fn prepare_create(&self, object: &mut Value) {
            object.set(&["data", "generated"], "g");
        }
    }

    #[tokio::test]
    async fn defaulted_labels_include_those_that_preparation_adds() {
        let storage = Arc::new(crate::controlplane::reviews::NoStorage);
        let row = config_maps().strategy(Labelled).build();
        let store = Store::new(Arc::new(row), storage, Arc::new(AdmitAll));
        let cx = Context {
            dry_run: true,
            ..Context::system("ns")
        };
        for (labels, expected) in [
            (Value::Null, json!({"a": "b", "generated": "g"})),
            // The client's own, even if they are equal.
            (json!({"a": "b"}), json!({"a": "b"})),
        ] {
            let object = json!({"metadata": {"name": "a", "labels": (labels)}, "data": {"a": "b"}});
            let created = store.create_value(&cx, object).await.unwrap();
            assert_eq!(created.at(&LABELS), &expected);
        }
    }

    #[test]
    fn names_of_addresses_get_no_suffix() {
        assert_eq!(generated(NameRule::CanonicalIp, "10.0.0.1"), "10.0.0.1");
        assert_eq!(generated(NameRule::Subdomain, "a-").len(), "a-12345".len());
    }

    #[tokio::test]
    async fn a_version_that_go_does_not_parse_counts_as_unset() {
        let (storage, engine, _dir) = embedded();
        let store = Store::new(Arc::new(config_maps().build()), storage, Arc::new(AdmitAll));
        let cx = Context::system("ns");
        let of = |name: &str, version: &str| json!({"metadata": {"name": (name), "resourceVersion": (version)}});
        assert!(store.create_value(&cx, of("a", "5")).await.is_err());
        // Go's `ParseUint` takes no sign.
        assert!(store.create_value(&cx, of("a", "+5")).await.is_ok());
        assert!(store.create_value(&cx, of("b", "0")).await.is_ok());
        engine.shutdown();
    }
}
