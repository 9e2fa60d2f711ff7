//! The API group: its kind, its schema, and the rules that the schema cannot express.

use torana::apimachinery::{ErrorList, FieldError, FieldPath, Value};
use torana::json;
use torana::sdk::{ApiGroup, Kind, Strategy};

/// The API group's name.
pub(crate) const GROUP: &str = "notes.example.com";
pub(crate) const VERSION: &str = "v1";

/// The group to serve besides the built-in ones. An extension server can serve the same value:
/// `ApiServer::builder(dir).group(notes::group())`.
pub(crate) fn group() -> ApiGroup {
    let schema = json!({
        "description": "Note is a few words that somebody wants to keep.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "description": "What is kept.",
                "type": "object",
                "required": ["text"],
                "properties": {
                    "text": {"type": "string", "maxLength": 280, "description": "The words."},
                    "pinned": {"type": "boolean", "default": false, "description": "It comes first."},
                }
            },
            "status": {
                "description": "What became of it.",
                "type": "object",
                "properties": {"read": {"type": "boolean", "description": "Somebody has read it."}}
            }
        }
    });
    let note = Kind::namespaced("Note", "notes", schema)
        .short_name("nt")
        .status()
        .column("Text", "string", "spec.text")
        .column("Pinned", "boolean", "spec.pinned")
        .strategy(NoteStrategy);
    ApiGroup::new(GROUP, VERSION, [note]).with_priorities(1500, 20)
}

struct NoteStrategy;

impl Strategy for NoteStrategy {
    fn validate_create(&self, note: &Value) -> ErrorList {
        let text = note.str_at(&["spec", "text"]);
        if !text.trim().is_empty() {
            return ErrorList::default();
        }
        let at = FieldPath::new("spec").child("text");
        vec![FieldError::invalid(&at, text, "must hold a word")].into()
    }
}
