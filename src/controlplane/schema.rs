//! The schema of built-in kinds: the generated table, seen through the registry's eyes.

use crate::api::TypeDef;
use crate::apimachinery::patch::strategic;
use crate::apimachinery::apply::managed;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::registry::schema::{ManagerInfo, Schema};
