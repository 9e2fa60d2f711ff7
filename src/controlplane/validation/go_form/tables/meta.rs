//! Fields of `metav1.ObjectMeta` and its parts, which print under their wire names even inside internal types.

use super::super::Field;
use super::super::Printing::{OmitEmpty, OmitEmptyList, OmitNil, Str};

/// `metav1.OwnerReference`.
const OWNER: &[Field] = &[
    ("apiVersion", "apiVersion", Str),
    ("kind", "kind", Str),
    ("name", "name", Str),
    ("uid", "uid", Str),
    ("controller", "controller", OmitNil),
    ("blockOwnerDeletion", "blockOwnerDeletion", OmitNil),
];

/// `metav1.ManagedFieldsEntry`.
const MANAGED_FIELDS: &[Field] = &[
    ("manager", "manager", OmitEmpty),
    ("operation", "operation", OmitEmpty),
    ("apiVersion", "apiVersion", OmitEmpty),
    ("time", "time", OmitEmpty),
    ("fieldsType", "fieldsType", OmitEmpty),
    ("fieldsV1", "fieldsV1", OmitNil),
    ("subresource", "subresource", OmitEmpty),
];

/// `metav1.ObjectMeta`.
pub(in super::super) const META: &[Field] = &[
    ("name", "name", OmitEmpty),
    ("generateName", "generateName", OmitEmpty),
    ("namespace", "namespace", OmitEmpty),
    ("selfLink", "selfLink", OmitEmpty),
    ("uid", "uid", OmitEmpty),
    ("resourceVersion", "resourceVersion", OmitEmpty),
    ("generation", "generation", OmitEmpty),
    ("creationTimestamp", "creationTimestamp", OmitEmpty),
    ("deletionTimestamp", "deletionTimestamp", OmitEmpty),
    ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds", OmitEmpty),
    ("labels", "labels", OmitEmpty),
    ("annotations", "annotations", OmitEmpty),
    ("ownerReferences", "ownerReferences", OmitEmptyList(OWNER)),
    ("finalizers", "finalizers", OmitEmpty),
    ("managedFields", "managedFields", OmitEmptyList(MANAGED_FIELDS)),
];
