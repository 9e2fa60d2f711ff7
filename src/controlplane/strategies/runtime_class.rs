//! Strategy of RuntimeClasses.

use super::declarative::{BASE, DeclarativeStrategy};
use crate::controlplane::validation::runtime_class as check;

pub(crate) const RUNTIME_CLASS: DeclarativeStrategy = DeclarativeStrategy {
    validate: check::class,
    validate_update: Some(check::class_update),
    warn: |new, _| check::warnings(new),
    ..BASE
};
