//! Messages that both versions define alike.

use super::Form::{Any, Bool, Each, Message as One, Text};
use super::{Form, Message};

pub(super) const TEXTS: Form = Each(&Text);

pub(super) static CONTACT: Message = Message {
    fields: &[("name", 1, Text), ("url", 2, Text), ("email", 3, Text)],
    named: &[("x-", 4, Any)],
};

pub(super) static LICENSE: Message = Message {
    fields: &[("name", 1, Text), ("url", 2, Text)],
    named: &[("x-", 3, Any)],
};

pub(super) static TAG: Message = Message {
    fields: &[
        ("name", 1, Text),
        ("description", 2, Text),
        ("externalDocs", 3, One(&EXTERNAL_DOCS)),
    ],
    named: &[("x-", 4, Any)],
};

pub(super) static EXTERNAL_DOCS: Message = Message {
    fields: &[("description", 1, Text), ("url", 2, Text)],
    named: &[("x-", 3, Any)],
};

pub(super) static XML: Message = Message {
    fields: &[
        ("name", 1, Text),
        ("namespace", 2, Text),
        ("prefix", 3, Text),
        ("attribute", 4, Bool),
        ("wrapped", 5, Bool),
    ],
    named: &[("x-", 6, Any)],
};
