//! The message table of `openapi.v2` (gnostic-models' `openapiv2/OpenAPIv2.proto`).

use super::Form::{Any, Bool, Choice, Double, Each, Int, List, Message as One, Text};
use super::Test::{Boolean, Has, Is, Object, Otherwise};
use super::common::{CONTACT, EXTERNAL_DOCS, LICENSE, TAG, TEXTS, XML};
use super::{Form, Message};

type Row = (&'static str, u32, Form);

const STRINGS: Form = List(&Text);

pub(super) static DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, Text),
        ("info", 2, One(&INFO)),
        ("host", 3, Text),
        ("basePath", 4, Text),
        ("schemes", 5, TEXTS),
        ("consumes", 6, TEXTS),
        ("produces", 7, TEXTS),
        ("paths", 8, One(&PATHS)),
        ("definitions", 9, One(&SCHEMAS)),
        ("parameters", 10, One(&PARAMETERS)),
        ("responses", 11, One(&RESPONSE_DEFINITIONS)),
        ("security", 12, Each(&One(&SECURITY_REQUIREMENT))),
        ("securityDefinitions", 13, One(&SECURITY_DEFINITIONS)),
        ("tags", 14, Each(&One(&TAG))),
        ("externalDocs", 15, One(&EXTERNAL_DOCS)),
    ],
    named: &[("x-", 16, Any)],
};

static INFO: Message = Message {
    fields: &[
        ("title", 1, Text),
        ("version", 2, Text),
        ("description", 3, Text),
        ("termsOfService", 4, Text),
        ("contact", 5, One(&CONTACT)),
        ("license", 6, One(&LICENSE)),
    ],
    named: &[("x-", 7, Any)],
};

static PATHS: Message = Message {
    fields: &[],
    named: &[("x-", 1, Any), ("/", 2, One(&PATH_ITEM))],
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("$ref", 1, Text),
        ("get", 2, One(&OPERATION)),
        ("put", 3, One(&OPERATION)),
        ("post", 4, One(&OPERATION)),
        ("delete", 5, One(&OPERATION)),
        ("options", 6, One(&OPERATION)),
        ("head", 7, One(&OPERATION)),
        ("patch", 8, One(&OPERATION)),
        ("parameters", 9, Each(&PARAMETERS_ITEM)),
    ],
    named: &[("x-", 10, Any)],
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, TEXTS),
        ("summary", 2, Text),
        ("description", 3, Text),
        ("externalDocs", 4, One(&EXTERNAL_DOCS)),
        ("operationId", 5, Text),
        ("produces", 6, TEXTS),
        ("consumes", 7, TEXTS),
        ("parameters", 8, Each(&PARAMETERS_ITEM)),
        ("responses", 9, One(&RESPONSES)),
        ("schemes", 10, TEXTS),
        ("deprecated", 11, Bool),
        ("security", 12, Each(&One(&SECURITY_REQUIREMENT))),
    ],
    named: &[("x-", 13, Any)],
};

// Parameters

const PARAMETERS_ITEM: Form = Choice(&[(Has("$ref"), 2, One(&JSON_REFERENCE)), (Otherwise, 1, PARAMETER)]);

const PARAMETER: Form = Choice(&[(Is("in", "body"), 1, One(&BODY_PARAMETER)), (Otherwise, 2, NON_BODY)]);

const NON_BODY: Form = Choice(&[
    (Is("in", "header"), 1, One(&HEADER_PARAMETER)),
    (Is("in", "formData"), 2, One(&FORM_DATA_PARAMETER)),
    (Is("in", "query"), 3, One(&QUERY_PARAMETER)),
    (Is("in", "path"), 4, One(&PATH_PARAMETER)),
]);

static PARAMETERS: Message = Message {
    fields: &[],
    named: &[("", 1, PARAMETER)],
};

static JSON_REFERENCE: Message = Message {
    fields: &[("$ref", 1, Text), ("description", 2, Text)],
    named: &[],
};

static BODY_PARAMETER: Message = Message {
    fields: &[
        ("description", 1, Text),
        ("name", 2, Text),
        ("in", 3, Text),
        ("required", 4, Bool),
        ("schema", 5, One(&SCHEMA)),
    ],
    named: &[("x-", 6, Any)],
};

static HEADER_PARAMETER: Message = Message {
    fields: &concat::<4, 17, 21>(&PLACE, &primitive(5)),
    named: &[("x-", 22, Any)],
};

static PATH_PARAMETER: Message = Message {
    fields: &concat::<4, 17, 21>(&PLACE, &primitive(5)),
    named: &[("x-", 22, Any)],
};

static QUERY_PARAMETER: Message = Message {
    fields: &concat::<5, 17, 22>(&PLACE_OR_EMPTY, &primitive(6)),
    named: &[("x-", 23, Any)],
};

static FORM_DATA_PARAMETER: Message = Message {
    fields: &concat::<5, 17, 22>(&PLACE_OR_EMPTY, &primitive(6)),
    named: &[("x-", 23, Any)],
};

const PLACE: [Row; 4] = [
    ("required", 1, Bool),
    ("in", 2, Text),
    ("description", 3, Text),
    ("name", 4, Text),
];

const PLACE_OR_EMPTY: [Row; 5] = concat(&PLACE, &[("allowEmptyValue", 5, Bool)]);

/// The fields of a primitive value, numbered from `n`.
const fn primitive(n: u32) -> [Row; 17] {
    [
        ("type", n, Text),
        ("format", n + 1, Text),
        ("items", n + 2, One(&PRIMITIVES_ITEMS)),
        ("collectionFormat", n + 3, Text),
        ("default", n + 4, Any),
        ("maximum", n + 5, Double),
        ("exclusiveMaximum", n + 6, Bool),
        ("minimum", n + 7, Double),
        ("exclusiveMinimum", n + 8, Bool),
        ("maxLength", n + 9, Int),
        ("minLength", n + 10, Int),
        ("pattern", n + 11, Text),
        ("maxItems", n + 12, Int),
        ("minItems", n + 13, Int),
        ("uniqueItems", n + 14, Bool),
        ("enum", n + 15, Each(&Any)),
        ("multipleOf", n + 16, Double),
    ]
}

static PRIMITIVES_ITEMS: Message = Message {
    fields: &primitive(1),
    named: &[("x-", 18, Any)],
};

static HEADER: Message = Message {
    fields: &concat::<17, 1, 18>(&primitive(1), &[("description", 18, Text)]),
    named: &[("x-", 19, Any)],
};

static HEADERS: Message = Message {
    fields: &[],
    named: &[("", 1, One(&HEADER))],
};

const fn concat<const A: usize, const B: usize, const C: usize>(a: &[Row; A], b: &[Row; B]) -> [Row; C] {
    assert!(A + B == C);
    let mut out = [("", 0, Text); C];
    let mut i = 0;
    // Constant functions have no `for`.
    while i < C {
        out[i] = if i < A { a[i] } else { b[i - A] };
        i += 1;
    }
    out
}

// Responses

static RESPONSES: Message = Message {
    fields: &[],
    named: &[("x-", 2, Any), ("", 1, RESPONSE_VALUE)],
};

const RESPONSE_VALUE: Form = Choice(&[(Has("$ref"), 2, One(&JSON_REFERENCE)), (Otherwise, 1, One(&RESPONSE))]);

static RESPONSE_DEFINITIONS: Message = Message {
    fields: &[],
    named: &[("", 1, One(&RESPONSE))],
};

static RESPONSE: Message = Message {
    fields: &[
        ("description", 1, Text),
        ("schema", 2, SCHEMA_ITEM),
        ("headers", 3, One(&HEADERS)),
        ("examples", 4, One(&ANYS)),
    ],
    named: &[("x-", 5, Any)],
};

const SCHEMA_ITEM: Form = Choice(&[(Is("type", "file"), 2, One(&FILE_SCHEMA)), (Otherwise, 1, One(&SCHEMA))]);

static ANYS: Message = Message {
    fields: &[],
    named: &[("", 1, Any)],
};

static FILE_SCHEMA: Message = Message {
    fields: &[
        ("format", 1, Text),
        ("title", 2, Text),
        ("description", 3, Text),
        ("default", 4, Any),
        ("required", 5, TEXTS),
        ("type", 6, Text),
        ("readOnly", 7, Bool),
        ("externalDocs", 8, One(&EXTERNAL_DOCS)),
        ("example", 9, Any),
    ],
    named: &[("x-", 10, Any)],
};

// Schemas

static SCHEMAS: Message = Message {
    fields: &[],
    named: &[("", 1, One(&SCHEMA))],
};

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Text),
        ("format", 2, Text),
        ("title", 3, Text),
        ("description", 4, Text),
        ("default", 5, Any),
        ("multipleOf", 6, Double),
        ("maximum", 7, Double),
        ("exclusiveMaximum", 8, Bool),
        ("minimum", 9, Double),
        ("exclusiveMinimum", 10, Bool),
        ("maxLength", 11, Int),
        ("minLength", 12, Int),
        ("pattern", 13, Text),
        ("maxItems", 14, Int),
        ("minItems", 15, Int),
        ("uniqueItems", 16, Bool),
        ("maxProperties", 17, Int),
        ("minProperties", 18, Int),
        ("required", 19, TEXTS),
        ("enum", 20, Each(&Any)),
        (
            "additionalProperties",
            21,
            Choice(&[(Boolean, 2, Bool), (Object, 1, One(&SCHEMA))]),
        ),
        ("type", 22, STRINGS),
        ("items", 23, List(&One(&SCHEMA))),
        ("allOf", 24, Each(&One(&SCHEMA))),
        ("properties", 25, One(&SCHEMAS)),
        ("discriminator", 26, Text),
        ("readOnly", 27, Bool),
        ("xml", 28, One(&XML)),
        ("externalDocs", 29, One(&EXTERNAL_DOCS)),
        ("example", 30, Any),
    ],
    named: &[("x-", 31, Any)],
};

// Security

static SECURITY_REQUIREMENT: Message = Message {
    fields: &[],
    named: &[("", 1, STRINGS)],
};

static SECURITY_DEFINITIONS: Message = Message {
    fields: &[],
    named: &[("", 1, SECURITY_DEFINITION)],
};

const SECURITY_DEFINITION: Form = Choice(&[
    (Is("type", "basic"), 1, One(&BASIC_SECURITY)),
    (Is("type", "apiKey"), 2, One(&API_KEY_SECURITY)),
    (Is("flow", "implicit"), 3, One(&IMPLICIT_SECURITY)),
    (Is("flow", "password"), 4, One(&TOKEN_SECURITY)),
    (Is("flow", "application"), 5, One(&TOKEN_SECURITY)),
    (Is("flow", "accessCode"), 6, One(&ACCESS_CODE_SECURITY)),
]);

static BASIC_SECURITY: Message = Message {
    fields: &[("type", 1, Text), ("description", 2, Text)],
    named: &[("x-", 3, Any)],
};

static API_KEY_SECURITY: Message = Message {
    fields: &[
        ("type", 1, Text),
        ("name", 2, Text),
        ("in", 3, Text),
        ("description", 4, Text),
    ],
    named: &[("x-", 5, Any)],
};

static SCOPES: Message = Message {
    fields: &[],
    named: &[("", 1, Text)],
};

static IMPLICIT_SECURITY: Message = Message {
    fields: &[
        ("type", 1, Text),
        ("flow", 2, Text),
        ("scopes", 3, One(&SCOPES)),
        ("authorizationUrl", 4, Text),
        ("description", 5, Text),
    ],
    named: &[("x-", 6, Any)],
};

static TOKEN_SECURITY: Message = Message {
    fields: &[
        ("type", 1, Text),
        ("flow", 2, Text),
        ("scopes", 3, One(&SCOPES)),
        ("tokenUrl", 4, Text),
        ("description", 5, Text),
    ],
    named: &[("x-", 6, Any)],
};

static ACCESS_CODE_SECURITY: Message = Message {
    fields: &[
        ("type", 1, Text),
        ("flow", 2, Text),
        ("scopes", 3, One(&SCOPES)),
        ("authorizationUrl", 4, Text),
        ("tokenUrl", 5, Text),
        ("description", 6, Text),
    ],
    named: &[("x-", 7, Any)],
};
