//! Schemas of backends' documents: the members of upstream's types (`k8s.io/api/apidiscovery/v2`, `metav1`,
//! `k8s.io/kube-openapi/pkg/validation/spec` and `spec3`).

use super::pruning_parser::Shape::{self, Any, Extensible, Fields, Map, Scalar};

/// Far more than any API server publishes.
const MAX_PATHS: usize = 20_000;
const MAX_DEFINITIONS: usize = 20_000;
/// Limit for all other maps.
const MAX_NAMED: usize = 20_000;

// Discovery.

static KIND: Shape = Fields(&[("group", &Scalar), ("version", &Scalar), ("kind", &Scalar)]);
static RESOURCE: Shape = Fields(&[
    ("resource", &Scalar),
    ("responseKind", &KIND),
    ("scope", &Scalar),
    ("singularResource", &Scalar),
    ("verbs", &WORDS),
    ("shortNames", &WORDS),
    ("categories", &WORDS),
    ("subresources", &SUBRESOURCES),
]);
/// A list of scalars. Objects in it lose all members.
static WORDS: Shape = Fields(&[]);
static SUBRESOURCES: Shape = Fields(&[
    ("subresource", &Scalar),
    ("responseKind", &KIND),
    ("acceptedTypes", &KIND),
    ("verbs", &WORDS),
]);
static VERSION: Shape = Fields(&[("version", &Scalar), ("freshness", &Scalar), ("resources", &RESOURCE)]);
static NAME: Shape = Fields(&[("name", &Scalar)]);
static GROUP: Shape = Fields(&[("metadata", &NAME), ("versions", &VERSION)]);
/// APIGroupDiscoveryList.
pub(super) static GROUPS: Shape = Fields(&[("items", &GROUP)]);

static LISTED: Shape = Fields(&[
    ("name", &Scalar),
    ("singularName", &Scalar),
    ("namespaced", &Scalar),
    ("group", &Scalar),
    ("version", &Scalar),
    ("kind", &Scalar),
    ("verbs", &WORDS),
    ("shortNames", &WORDS),
    ("categories", &WORDS),
]);
/// APIResourceList.
pub(super) static RESOURCES: Shape = Fields(&[("resources", &LISTED)]);

// OpenAPI v2 and v3. One schema of schemas covers both versions.

static SCHEMA: Shape = Extensible(&[
    ("$ref", &Scalar),
    ("additionalItems", &SCHEMA),
    ("additionalProperties", &SCHEMA),
    ("allOf", &SCHEMA),
    ("anyOf", &SCHEMA),
    ("default", &Any),
    ("deprecated", &Scalar),
    ("description", &Scalar),
    // A name in v2, an object in v3.
    ("discriminator", &Any),
    ("enum", &Any),
    ("example", &Any),
    ("exclusiveMaximum", &Scalar),
    ("exclusiveMinimum", &Scalar),
    ("externalDocs", &DOCS),
    ("format", &Scalar),
    ("id", &Scalar),
    ("items", &SCHEMA),
    ("maxItems", &Scalar),
    ("maxLength", &Scalar),
    ("maxProperties", &Scalar),
    ("maximum", &Scalar),
    ("minItems", &Scalar),
    ("minLength", &Scalar),
    ("minProperties", &Scalar),
    ("minimum", &Scalar),
    ("multipleOf", &Scalar),
    ("not", &SCHEMA),
    ("nullable", &Scalar),
    ("oneOf", &SCHEMA),
    ("pattern", &Scalar),
    ("patternProperties", &PROPERTIES),
    ("properties", &PROPERTIES),
    ("readOnly", &Scalar),
    ("required", &WORDS),
    ("title", &Scalar),
    // A word; JSON schema also has lists of them.
    ("type", &WORDS),
    ("uniqueItems", &Scalar),
    ("writeOnly", &Scalar),
    ("xml", &Any),
]);
static PROPERTIES: Shape = Map(&SCHEMA, MAX_NAMED, "properties of one schema");
static DEFINITIONS: Shape = Map(&SCHEMA, MAX_DEFINITIONS, "definitions");
static DOCS: Shape = Extensible(&[("description", &Scalar), ("url", &Scalar)]);
static PARAMETER: Shape = Extensible(&[
    ("$ref", &Scalar),
    ("allowEmptyValue", &Scalar),
    ("allowReserved", &Scalar),
    ("collectionFormat", &Scalar),
    ("content", &CONTENT),
    ("default", &Any),
    ("deprecated", &Scalar),
    ("description", &Scalar),
    ("enum", &Any),
    ("example", &Any),
    ("examples", &Any),
    ("exclusiveMaximum", &Scalar),
    ("exclusiveMinimum", &Scalar),
    ("explode", &Scalar),
    ("format", &Scalar),
    ("in", &Scalar),
    ("items", &SCHEMA),
    ("maxItems", &Scalar),
    ("maxLength", &Scalar),
    ("maximum", &Scalar),
    ("minItems", &Scalar),
    ("minLength", &Scalar),
    ("minimum", &Scalar),
    ("multipleOf", &Scalar),
    ("name", &Scalar),
    ("pattern", &Scalar),
    ("required", &Scalar),
    ("schema", &SCHEMA),
    ("style", &Scalar),
    ("type", &Scalar),
    ("uniqueItems", &Scalar),
]);
static PARAMETERS: Shape = Map(&PARAMETER, MAX_NAMED, "parameters");
static MEDIA: Shape = Extensible(&[
    ("encoding", &Any),
    ("example", &Any),
    ("examples", &Any),
    ("schema", &SCHEMA),
]);
static CONTENT: Shape = Map(&MEDIA, MAX_NAMED, "media types");
static BODY: Shape = Extensible(&[
    ("$ref", &Scalar),
    ("content", &CONTENT),
    ("description", &Scalar),
    ("required", &Scalar),
]);
static RESPONSE: Shape = Extensible(&[
    ("$ref", &Scalar),
    ("content", &CONTENT),
    ("description", &Scalar),
    ("examples", &Any),
    ("headers", &PARAMETERS),
    ("links", &Any),
    ("schema", &SCHEMA),
]);
static RESPONSES: Shape = Map(&RESPONSE, MAX_NAMED, "responses");
static OPERATION: Shape = Extensible(&[
    ("consumes", &WORDS),
    ("deprecated", &Scalar),
    ("description", &Scalar),
    ("externalDocs", &DOCS),
    ("operationId", &Scalar),
    ("parameters", &PARAMETER),
    ("produces", &WORDS),
    ("requestBody", &BODY),
    ("responses", &RESPONSES),
    ("schemes", &WORDS),
    ("security", &Any),
    ("servers", &Any),
    ("summary", &Scalar),
    ("tags", &WORDS),
]);
static PATH: Shape = Extensible(&[
    ("$ref", &Scalar),
    ("delete", &OPERATION),
    ("description", &Scalar),
    ("get", &OPERATION),
    ("head", &OPERATION),
    ("options", &OPERATION),
    ("parameters", &PARAMETER),
    ("patch", &OPERATION),
    ("post", &OPERATION),
    ("put", &OPERATION),
    ("servers", &Any),
    ("summary", &Scalar),
    ("trace", &OPERATION),
]);
static PATHS: Shape = Map(&PATH, MAX_PATHS, "paths");
/// OpenAPI v2 document.
pub(super) static SWAGGER: Shape = Extensible(&[
    ("basePath", &Scalar),
    ("consumes", &WORDS),
    ("definitions", &DEFINITIONS),
    ("externalDocs", &DOCS),
    ("host", &Scalar),
    ("info", &Any),
    ("parameters", &PARAMETERS),
    ("paths", &PATHS),
    ("produces", &WORDS),
    ("responses", &RESPONSES),
    ("schemes", &WORDS),
    ("security", &Any),
    ("securityDefinitions", &Any),
    ("swagger", &Scalar),
    ("tags", &Any),
]);
static COMPONENTS: Shape = Extensible(&[
    ("callbacks", &Any),
    ("examples", &Any),
    ("headers", &PARAMETERS),
    ("links", &Any),
    ("parameters", &PARAMETERS),
    ("requestBodies", &BODIES),
    ("responses", &RESPONSES),
    ("schemas", &DEFINITIONS),
    ("securitySchemes", &Any),
]);
static BODIES: Shape = Map(&BODY, MAX_NAMED, "request bodies");
/// OpenAPI v3 document.
pub(super) static OPENAPI: Shape = Extensible(&[
    ("components", &COMPONENTS),
    ("externalDocs", &DOCS),
    ("info", &Any),
    ("openapi", &Scalar),
    ("paths", &PATHS),
    ("security", &Any),
    ("servers", &Any),
    ("tags", &Any),
]);
static PLACE: Shape = Fields(&[("serverRelativeURL", &Scalar)]);
static PLACES: Shape = Map(&PLACE, MAX_PATHS, "paths");
/// OpenAPI v3 index.
pub(super) static INDEX: Shape = Fields(&[("paths", &PLACES)]);

// Files of the disk cache: the same documents with the UID of their APIService.

pub(super) static CACHED_DISCOVERY: Shape = Fields(&[("uid", &Scalar), ("document", &VERSION)]);
pub(super) static CACHED_SWAGGER: Shape = Fields(&[("uid", &Scalar), ("document", &SWAGGER)]);
pub(super) static CACHED_INDEX: Shape = Fields(&[("uid", &Scalar), ("document", &PLACES)]);
static LAST: Shape = Fields(&[("url", &Scalar), ("document", &OPENAPI)]);
pub(super) static CACHED_OPENAPI: Shape = Fields(&[("uid", &Scalar), ("document", &LAST)]);
