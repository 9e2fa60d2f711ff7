//! The kinds of this server: names, schemas, and the rules that a schema cannot express.

use crate::polish;
use torana::apimachinery::{ErrorList, FieldError, FieldPath, Value};
use torana::json;
use torana::sdk::{Kind, Strategy};

/// The API group.
pub(crate) const GROUP: &str = "gadgets.example.com";
pub(crate) const VERSION: &str = "v1";

/// All kinds of this server.
pub(crate) fn all() -> Vec<Kind> {
    vec![gadget(), workshop()]
}

fn gadget() -> Kind {
    let schema = json!({
        "description": "Gadget is a thing of some size and colour.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "description": "What the gadget shall be.",
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "format": "int64", "minimum": 0, "description": "Its size in millimetres."},
                    "colour": {"type": "string", "enum": ["red", "green", "blue"], "default": "red", "description": "Its colour."},
                }
            },
            "status": {
                "description": "What the gadget is.",
                "type": "object",
                "properties": {
                    "phase": {"type": "string", "description": "Where it is in its life."},
                    "polished": {"type": "integer", "minimum": 0, "description": "How often it was polished."},
                }
            }
        }
    });
    Kind::namespaced("Gadget", "gadgets", schema)
        .short_name("gd")
        .category("all")
        .status()
        .column("Size", "integer", "spec.size")
        .column("Colour", "string", "spec.colour")
        .column("Phase", "string", "status.phase")
        .subresource(polish::subresource)
}

fn workshop() -> Kind {
    let schema = json!({
        "description": "Workshop is a place that makes gadgets.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "minSize": {"type": "integer", "minimum": 0, "default": 0, "description": "The smallest gadget it makes."},
                    "maxSize": {"type": "integer", "minimum": 0, "description": "The largest gadget it makes."},
                }
            }
        }
    });
    Kind::cluster_scoped("Workshop", "workshops", schema)
        .column("Min", "integer", "spec.minSize")
        .column("Max", "integer", "spec.maxSize")
        .strategy(WorkshopStrategy)
}

/// Validates a rule across two fields, which a schema cannot express.
struct WorkshopStrategy;

impl Strategy for WorkshopStrategy {
    fn validate_create(&self, workshop: &Value) -> ErrorList {
        let size = |field| workshop.at(&["spec", field]).as_i64();
        let (Some(min), Some(max)) = (size("minSize"), size("maxSize")) else {
            return ErrorList::default();
        };
        if min <= max {
            return ErrorList::default();
        }
        let at = FieldPath::new("spec").child("maxSize");
        vec![FieldError::invalid(&at, max, "must not be less than spec.minSize")].into()
    }
}
