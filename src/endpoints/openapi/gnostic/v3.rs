//! The message table of `openapi.v3` (gnostic-models' `openapiv3/OpenAPIv3.proto`), without callbacks, links
//! and server variables, which no API server publishes.

use super::Form::{Any, Bool, Choice, Double, Each, Int, List, Message as One, Text};
use super::Message;
use super::Test::{Boolean, Has, Number, Object, Otherwise, String};
use super::common::{CONTACT, EXTERNAL_DOCS, LICENSE, TAG, TEXTS, XML};

/// A oneof of the message and a reference, chosen by the presence of `$ref`.
macro_rules! or_reference {
    ($message:ident) => {
        Choice(&[(Has("$ref"), 2, One(&REFERENCE)), (Otherwise, 1, One(&$message))])
    };
}

/// A map from names to values of one form.
macro_rules! map_of {
    ($form:expr) => {
        Message {
            fields: &[],
            named: &[("", 1, $form)],
        }
    };
}

pub(super) static DOCUMENT: Message = Message {
    fields: &[
        ("openapi", 1, Text),
        ("info", 2, One(&INFO)),
        ("servers", 3, Each(&One(&SERVER))),
        ("paths", 4, One(&PATHS)),
        ("components", 5, One(&COMPONENTS)),
        ("security", 6, Each(&One(&SECURITY_REQUIREMENT))),
        ("tags", 7, Each(&One(&TAG))),
        ("externalDocs", 8, One(&EXTERNAL_DOCS)),
    ],
    named: &[("x-", 9, Any)],
};

static INFO: Message = Message {
    fields: &[
        ("title", 1, Text),
        ("description", 2, Text),
        ("termsOfService", 3, Text),
        ("contact", 4, One(&CONTACT)),
        ("license", 5, One(&LICENSE)),
        ("version", 6, Text),
        ("summary", 8, Text),
    ],
    named: &[("x-", 7, Any)],
};

static SERVER: Message = Message {
    fields: &[("url", 1, Text), ("description", 2, Text)],
    named: &[("x-", 4, Any)],
};

static REFERENCE: Message = Message {
    fields: &[("$ref", 1, Text), ("summary", 2, Text), ("description", 3, Text)],
    named: &[],
};

// Paths

static PATHS: Message = Message {
    fields: &[],
    named: &[("/", 1, One(&PATH_ITEM)), ("x-", 2, Any)],
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("$ref", 1, Text),
        ("summary", 2, Text),
        ("description", 3, Text),
        ("get", 4, One(&OPERATION)),
        ("put", 5, One(&OPERATION)),
        ("post", 6, One(&OPERATION)),
        ("delete", 7, One(&OPERATION)),
        ("options", 8, One(&OPERATION)),
        ("head", 9, One(&OPERATION)),
        ("patch", 10, One(&OPERATION)),
        ("trace", 11, One(&OPERATION)),
        ("servers", 12, Each(&One(&SERVER))),
        ("parameters", 13, Each(&or_reference!(PARAMETER))),
    ],
    named: &[("x-", 14, Any)],
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, TEXTS),
        ("summary", 2, Text),
        ("description", 3, Text),
        ("externalDocs", 4, One(&EXTERNAL_DOCS)),
        ("operationId", 5, Text),
        ("parameters", 6, Each(&or_reference!(PARAMETER))),
        ("requestBody", 7, or_reference!(REQUEST_BODY)),
        ("responses", 8, One(&RESPONSES)),
        ("deprecated", 10, Bool),
        ("security", 11, Each(&One(&SECURITY_REQUIREMENT))),
        ("servers", 12, Each(&One(&SERVER))),
    ],
    named: &[("x-", 13, Any)],
};

static PARAMETER: Message = Message {
    fields: &[
        ("name", 1, Text),
        ("in", 2, Text),
        ("description", 3, Text),
        ("required", 4, Bool),
        ("deprecated", 5, Bool),
        ("allowEmptyValue", 6, Bool),
        ("style", 7, Text),
        ("explode", 8, Bool),
        ("allowReserved", 9, Bool),
        ("schema", 10, or_reference!(SCHEMA)),
        ("example", 11, Any),
        ("examples", 12, One(&EXAMPLES)),
        ("content", 13, One(&MEDIA_TYPES)),
    ],
    named: &[("x-", 14, Any)],
};

static REQUEST_BODY: Message = Message {
    fields: &[
        ("description", 1, Text),
        ("content", 2, One(&MEDIA_TYPES)),
        ("required", 3, Bool),
    ],
    named: &[("x-", 4, Any)],
};

static RESPONSES: Message = Message {
    fields: &[("default", 1, or_reference!(RESPONSE))],
    named: &[("x-", 3, Any), ("", 2, or_reference!(RESPONSE))],
};

static RESPONSE: Message = Message {
    fields: &[
        ("description", 1, Text),
        ("headers", 2, One(&HEADERS)),
        ("content", 3, One(&MEDIA_TYPES)),
    ],
    named: &[("x-", 5, Any)],
};

static HEADER: Message = Message {
    fields: &[
        ("description", 1, Text),
        ("required", 2, Bool),
        ("deprecated", 3, Bool),
        ("allowEmptyValue", 4, Bool),
        ("style", 5, Text),
        ("explode", 6, Bool),
        ("allowReserved", 7, Bool),
        ("schema", 8, or_reference!(SCHEMA)),
        ("example", 9, Any),
        ("examples", 10, One(&EXAMPLES)),
        ("content", 11, One(&MEDIA_TYPES)),
    ],
    named: &[("x-", 12, Any)],
};

static MEDIA_TYPE: Message = Message {
    fields: &[
        ("schema", 1, or_reference!(SCHEMA)),
        ("example", 2, Any),
        ("examples", 3, One(&EXAMPLES)),
        ("encoding", 4, One(&ENCODINGS)),
    ],
    named: &[("x-", 5, Any)],
};

static ENCODING: Message = Message {
    fields: &[
        ("contentType", 1, Text),
        ("headers", 2, One(&HEADERS)),
        ("style", 3, Text),
        ("explode", 4, Bool),
        ("allowReserved", 5, Bool),
    ],
    named: &[("x-", 6, Any)],
};

static EXAMPLE: Message = Message {
    fields: &[
        ("summary", 1, Text),
        ("description", 2, Text),
        ("value", 3, Any),
        ("externalValue", 4, Text),
    ],
    named: &[("x-", 5, Any)],
};

static MEDIA_TYPES: Message = map_of!(One(&MEDIA_TYPE));
static ENCODINGS: Message = map_of!(One(&ENCODING));
static HEADERS: Message = map_of!(or_reference!(HEADER));
static EXAMPLES: Message = map_of!(or_reference!(EXAMPLE));

// Components

static COMPONENTS: Message = Message {
    fields: &[
        ("schemas", 1, One(&SCHEMAS)),
        ("responses", 2, One(&COMPONENT_RESPONSES)),
        ("parameters", 3, One(&PARAMETERS)),
        ("examples", 4, One(&EXAMPLES)),
        ("requestBodies", 5, One(&REQUEST_BODIES)),
        ("headers", 6, One(&HEADERS)),
        ("securitySchemes", 7, One(&SECURITY_SCHEMES)),
    ],
    named: &[("x-", 10, Any)],
};

static COMPONENT_RESPONSES: Message = map_of!(or_reference!(RESPONSE));
static PARAMETERS: Message = map_of!(or_reference!(PARAMETER));
static REQUEST_BODIES: Message = map_of!(or_reference!(REQUEST_BODY));
static SECURITY_SCHEMES: Message = map_of!(or_reference!(SECURITY_SCHEME));
static SECURITY_REQUIREMENT: Message = map_of!(List(&Text));

static SECURITY_SCHEME: Message = Message {
    fields: &[
        ("type", 1, Text),
        ("description", 2, Text),
        ("name", 3, Text),
        ("in", 4, Text),
        ("scheme", 5, Text),
        ("bearerFormat", 6, Text),
        ("openIdConnectUrl", 8, Text),
    ],
    named: &[("x-", 9, Any)],
};

// Schemas

static SCHEMAS: Message = map_of!(or_reference!(SCHEMA));

static SCHEMA: Message = Message {
    fields: &[
        ("nullable", 1, Bool),
        ("discriminator", 2, One(&DISCRIMINATOR)),
        ("readOnly", 3, Bool),
        ("writeOnly", 4, Bool),
        ("xml", 5, One(&XML)),
        ("externalDocs", 6, One(&EXTERNAL_DOCS)),
        ("example", 7, Any),
        ("deprecated", 8, Bool),
        ("title", 9, Text),
        ("multipleOf", 10, Double),
        ("maximum", 11, Double),
        ("exclusiveMaximum", 12, Bool),
        ("minimum", 13, Double),
        ("exclusiveMinimum", 14, Bool),
        ("maxLength", 15, Int),
        ("minLength", 16, Int),
        ("pattern", 17, Text),
        ("maxItems", 18, Int),
        ("minItems", 19, Int),
        ("uniqueItems", 20, Bool),
        ("maxProperties", 21, Int),
        ("minProperties", 22, Int),
        ("required", 23, TEXTS),
        ("enum", 24, Each(&Any)),
        ("type", 25, Text),
        ("allOf", 26, Each(&or_reference!(SCHEMA))),
        ("oneOf", 27, Each(&or_reference!(SCHEMA))),
        ("anyOf", 28, Each(&or_reference!(SCHEMA))),
        ("not", 29, One(&SCHEMA)),
        ("items", 30, List(&or_reference!(SCHEMA))),
        ("properties", 31, One(&SCHEMAS)),
        (
            "additionalProperties",
            32,
            Choice(&[(Boolean, 2, Bool), (Object, 1, or_reference!(SCHEMA))]),
        ),
        // The message has no field for a default that is an object or an array.
        (
            "default",
            33,
            Choice(&[(Number, 1, Double), (Boolean, 2, Bool), (String, 3, Text)]),
        ),
        ("description", 34, Text),
        ("format", 35, Text),
    ],
    named: &[("x-", 36, Any)],
};

static DISCRIMINATOR: Message = Message {
    fields: &[("propertyName", 1, Text), ("mapping", 2, One(&STRINGS))],
    named: &[("x-", 3, Any)],
};

static STRINGS: Message = map_of!(Text);
