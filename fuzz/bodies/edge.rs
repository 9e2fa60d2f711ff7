//! Bodies for requests and files: whole objects and patches with the schema table, schemas, tokens,
//! request targets, headers, certificates.

use torana::api::apply_schema::ApplyType;
use torana::api::patch_schema::PatchType;
use torana::api::{self, decode};
use torana::apimachinery::apply::managed::Writer;
use torana::apimachinery::apply::{self, ApplyRequest, FieldSet};
use torana::apimachinery::codec::json;
use torana::apimachinery::codec::json::projection::{self, Mask};
use torana::apimachinery::jsonpath::JsonPath;
use torana::apimachinery::object::ObjectView;
use torana::apimachinery::patch::strategic;
use torana::apimachinery::value::Value;
use torana::sdk::authn::TokenFile;
use torana::testing::audit::Policy;
use torana::testing::authn::{
    Configuration, PublicKey, Token, seconds, unescape_key, unverified_claims, user_of_claims,
};
use torana::testing::endpoints::clauses;
use torana::testing::pki::CaPool;
use torana::testing::request::RequestInfo;
use torana::testing::schema::StructuralSchema;
use torana::testing::storage;

fn service() -> Value {
    torana::json!({"metadata": {"name": "a", "finalizers": ["a", "b"], "labels": {"l": "1"}},
        "spec": {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 81, "protocol": "TCP"}]}})
}

/// A policy decides about any request, or is refused with a line number.
pub(crate) fn audit_policy(data: &[u8]) {
    match Policy::parse(data) {
        Ok(policy) => {
            let info = RequestInfo {
                is_resource: true,
                resource: "pods".into(),
                verb: "get".into(),
                ..RequestInfo::default()
            };
            let _ = policy.decide(None, &info);
            let _ = policy.decide(None, &RequestInfo::default());
        }
        Err(e) => {
            let why = e.to_string();
            assert!(why.contains("line") || why.starts_with("yaml"), "{why}");
        }
    }
}

/// A strategic patch applies or is refused.
pub(crate) fn strategic_patch(data: &[u8]) {
    let def = api::by_gvk("", "v1", "Service").expect("the table has it");
    if let Ok((patch, _)) = strategic::decode(data) {
        let mut doc = service();
        let _ = strategic::apply(&mut doc, patch, PatchType::Def(def));
    }
}

/// Normalising is idempotent: the second time it finds and changes nothing. Also computes managed fields.
pub(crate) fn object(data: &[u8]) {
    let Ok(mut v) = json::decode(data) else { return };
    let kind = v.gvk();
    let Some(def) = api::by_gvk(&kind.group, &kind.version, &kind.kind) else {
        return;
    };
    if decode::normalize(def, &mut v).is_err() {
        return;
    }
    let mut again = v.clone();
    let found = decode::normalize(def, &mut again).expect("what is normal has the right types");
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(again, v);
    apply::update_managed_fields(ApplyType::Root(def), None, &mut again, &writer(), &FieldSet::new());
}

fn writer() -> Writer<'static> {
    Writer {
        manager: "fuzz",
        subresource: "",
        api_version: "v1",
        now: "2026-01-01T00:00:00Z",
    }
}

/// Applying a configuration a second time changes nothing.
pub(crate) fn apply(data: &[u8]) {
    let def = api::by_gvk("", "v1", "ConfigMap").expect("the table has it");
    let Ok(config) = json::decode(data) else { return };
    let reset = FieldSet::new();
    let request = || ApplyRequest {
        writer: writer(),
        force: false,
        reset: &reset,
    };
    let Ok(once) = apply::apply(ApplyType::Root(def), None, &config, &request()) else {
        return;
    };
    let mut live = once.object;
    if decode::normalize(def, &mut live).is_ok() {
        let _ = apply::apply(ApplyType::Root(def), Some(&live), &config, &request());
    }
}

/// Any schema compiles unless it exceeds a limit, and one that is accepted compiles. Either can prune,
/// default and validate any object, and doing the first two again changes nothing.
pub(crate) fn structural_schema(data: &[u8]) {
    let Ok(v) = json::decode(data) else { return };
    let accepted = StructuralSchema::parse(&v).is_ok();
    let Ok(schema) = StructuralSchema::compile(&v) else {
        assert!(!accepted);
        return;
    };
    let objects = [service(), torana::json!({"a": [1, 2], "b": "xyz", "c": {"d": null}}), v];
    for mut object in objects {
        // Defaults of map values are not validated with the schema, so the first round may set what the
        // second removes.
        for _ in 0..2 {
            schema.prune(&mut object);
            schema.default(&mut object);
        }
        let before = object.clone();
        schema.validate(&object, None);
        schema.validate(&object, Some(&before));
        if accepted {
            schema.prune(&mut object);
            schema.default(&mut object);
            assert_eq!(object, before);
        }
    }
}

/// A decoded token encodes to one that decodes to the same value.
pub(crate) fn continue_token(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(token) = storage::decode(text, "ns/") {
        assert_eq!(
            storage::decode(&storage::encode(&token, "ns/"), "ns/").as_ref(),
            Ok(&token)
        );
    }
}

/// Any target accepted by the HTTP layer can be parsed, and canonicalising is idempotent.
pub(crate) fn request_target(data: &[u8]) {
    use torana::testing::proxy::{canonical_path_and_query, cleaned_path};
    let Ok(uri) = http::Uri::try_from(data) else { return };
    let _ = RequestInfo::resolve(&http::Method::GET, &uri);
    cleaned_path(uri.path());
    let canonical = canonical_path_and_query(&uri);
    if let Ok(again) = http::Uri::try_from(canonical.as_str())
        && again.path().starts_with('/')
        && uri.path().starts_with('/')
        && !again.path().contains('%')
    {
        assert_eq!(canonical_path_and_query(&again), canonical);
    }
}

/// Any header value is parsed into clauses without a panic.
pub(crate) fn accept(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for clause in clauses(text) {
        clause.takes("application/json");
        clause.param("as");
    }
}

/// A token file is accepted, or refused with its line.
pub(crate) fn token_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = TokenFile::parse("tokens.csv", text);
}

/// No input verifies as a token under a key that did not sign it.
pub(crate) fn jwt(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = unverified_claims(text);
    if let Ok(token) = Token::parse(text) {
        let _ = token.audiences();
        for claim in ["exp", "nbf", "iat"] {
            let _ = seconds(&token.claims, claim);
        }
        let key = PublicKey::from_pem(FOREIGN_KEY.as_bytes()).expect("it is a key");
        assert!(!key.iter().any(|k| token.verified_by(k)), "a forged signature");
    }
}

const FOREIGN_KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE1L5S9Za+6tfnuvJ42t85AHf3DRbq
A/fFPLBcf514yl/VSJbhezPODXpUraEQNv2BHv7zylObKcvrNk5RAkU1kQ==
-----END PUBLIC KEY-----
";

/// Key sets of identity providers, and PEM files with keys.
pub(crate) fn keys(data: &[u8]) {
    if let Ok(v) = json::decode(data)
        && let Ok(Some(key)) = PublicKey::from_jwk(&v)
    {
        let again = json::decode(key.to_jwk().as_bytes());
        assert!(PublicKey::from_jwk(&again.expect("what we publish is JSON")).is_ok());
    }
    let _ = PublicKey::from_pem(data);
}

/// `AuthenticationConfiguration` files: an accepted issuer has an https URL and an audience. Claims map to a
/// user with a name, or are refused.
pub(crate) fn authentication_config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(config) = Configuration::parse(text, &["https://kubernetes".to_owned()]) {
        for issuer in config.issuers {
            assert!(issuer.url.to_ascii_lowercase().starts_with("https://") && !issuer.audiences.is_empty());
            let claims = torana::json!({
                "sub": "jane", "email": "j@x", "email_verified": true, "jti": "7", "n": 3, "groups": ["a", "", "b"], "nothing": null,
                "kubernetes.io": {"pod": {"name": "p"}, "mixed": ["a", 1, {"b": 2.5}]}});
            if let Some(user) = user_of_claims(&issuer, &claims) {
                assert!(!user.name.is_empty() && user.extra.values().all(|values| !values.is_empty()));
            }
        }
    }
}

/// Keys of extra headers.
pub(crate) fn extra_key(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    unescape_key(text);
}

/// CA bundles of untrusted objects.
pub(crate) fn certificates(data: &[u8]) {
    let _ = CaPool::from_pem(data.to_vec());
}

/// A path is refused with a message, or leads to the same values in an object and in the parts of it that the
/// path reads.
pub(crate) fn json_path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let path = match JsonPath::parse(text) {
        Ok(path) => path,
        Err(e) => return assert!(!e.to_string().is_empty()),
    };
    let object = torana::json!({
        "spec": {"list": [{"k": "v", "n": [1, 2]}, {"k": "w"}, null, "text"], "a": {"b.c": 1, "d": 2.5}},
        "a": [[{"a": {"a": true}}]], "y": ""});
    let mut reads = Mask::default();
    path.add_reads(&mut reads);
    let parts = projection::read(&json::to_vec(&object), &reads).expect("the encoding is this crate's own");
    let values = |v| path.find(v).ok().map(|found| format!("{found:?}"));
    assert_eq!(values(&object), values(&parts), "{text}");
}
