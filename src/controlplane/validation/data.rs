//! Validation of ConfigMaps and Secrets, including the keys each Secret type requires.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::config_map_key;
use crate::apimachinery::value::{Map, Value};
use crate::controlplane::fields::{IMMUTABLE, invalid_each, same};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Maximum size of all values together, in bytes (`MaxSecretSize`).
const MAX: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";

pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn decode(v: &Value) -> Vec<u8> {
    // The codec has checked the base64 of `[]byte` fields.
    STANDARD.decode(v.as_str().unwrap_or("")).unwrap_or_default()
}

fn entries(v: &Value) -> impl Iterator<Item = (&str, &Value)> {
    v.as_object().into_iter().flat_map(Map::iter)
}

/// Length of the decoded bytes, without decoding them.
fn encoded_len(v: &Value) -> usize {
    let s = v.as_str().unwrap_or("").trim_end_matches('=');
    s.len() * 3 / 4
}

pub(crate) fn config_map(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let mut size = 0;
    let binary = v.get("binaryData");
    let path = FieldPath::new("data");
    for (key, value) in entries(v.get("data")) {
        invalid_each(&mut out, &path.key(key), key, config_map_key(key));
        if !binary.get(key).is_null() {
            out.push(FieldError::invalid(
                &path.key(key),
                key,
                "duplicate of key present in binaryData",
            ));
        }
        // Only values count, as upstream; keys are bounded by their own rule.
        size += value.as_str().map_or(0, str::len);
    }
    let path = FieldPath::new("binaryData");
    for (key, value) in entries(binary) {
        invalid_each(&mut out, &path.key(key), key, config_map_key(key));
        size += encoded_len(value);
    }
    if size > MAX {
        // Upstream passes an empty path, which prints as brackets.
        out.push(FieldError::too_long(&FieldPath::new("[]"), MAX as i64));
    }
    out
}

pub(crate) fn config_map_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = frozen(new, old, &["data", "binaryData"]);
    out.extend(config_map(new));
    out
}

fn frozen(new: &Value, old: &Value, members: &[&str]) -> ErrorList {
    let mut out = ErrorList::new();
    // Setting the flag is allowed at any time; only a set one restricts the update.
    if old.get("immutable").as_bool() != Some(true) {
        return out;
    }
    if new.get("immutable").as_bool() != Some(true) {
        out.push(FieldError::forbidden(&FieldPath::new("immutable"), FROZEN));
    }
    // Metadata stays mutable.
    for m in members.iter().filter(|m| !same(new.get(m), old.get(m))) {
        out.push(FieldError::forbidden(&FieldPath::new(m), FROZEN));
    }
    out
}

pub(crate) fn secret(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let path = FieldPath::new("data");
    let data = v.get("data");
    let mut size = 0;
    for (key, value) in entries(data) {
        invalid_each(&mut out, &path.key(key), key, config_map_key(key));
        size += encoded_len(value);
    }
    if size > MAX {
        out.push(FieldError::too_long(&path, MAX as i64));
    }
    let has = |key: &str| !data.get(key).is_null();
    let mut required = |key: &str| out.push(FieldError::required(&path.key(key), ""));
    match v.str_at(&["type"]) {
        "kubernetes.io/service-account-token" => {
            // The token controller fills in the token for this account later, so no key is required.
            const NAME: &str = "kubernetes.io/service-account.name";
            if v.str_at(&["metadata", "annotations", NAME]).is_empty() {
                let at = FieldPath::new("metadata").child("annotations").key(NAME);
                out.push(FieldError::required(&at, ""));
            }
        }
        "kubernetes.io/dockercfg" => docker_config(&mut out, data, ".dockercfg", &path),
        "kubernetes.io/dockerconfigjson" => docker_config(&mut out, data, ".dockerconfigjson", &path),
        // Either one suffices. If both are missing, both are reported.
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            required("username");
            required("password");
        }
        // The only type for which an empty value counts as missing.
        "kubernetes.io/ssh-auth" if decode(data.get("ssh-privatekey")).is_empty() => required("ssh-privatekey"),
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !has(key) {
                    required(key);
                }
            }
        }
        _ => {}
    }
    out
}

fn docker_config(out: &mut ErrorList, data: &Value, key: &str, path: &FieldPath) {
    if data.get(key).is_null() {
        out.push(FieldError::required(&path.key(key), ""));
        return;
    }
    // Messages of Go's decoder for a map.
    let why = match crate::apimachinery::codec::json::decode(&decode(data.get(key))) {
        Err(why) => why.to_string(),
        // Go decodes `null` into a nil map without an error.
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(other) => {
            let kind = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
        }
    };
    // The value must not appear in a response or an audit log.
    out.push(FieldError::invalid(&path.key(key), "<secret contents redacted>", why));
}

pub(crate) fn secret_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    if new.get("type") != old.get("type") {
        let kind = new.str_at(&["type"]);
        out.push(FieldError::invalid_enum(&FieldPath::new("type"), kind, IMMUTABLE));
    }
    out.extend(frozen(new, old, &["data"]));
    // The keys are checked against the new type even if the change of type is refused.
    out.extend(secret(new));
    out
}

/// Warns if the key pair of a TLS Secret does not load, with the messages of Go's `tls.X509KeyPair`. As
/// upstream, such a Secret is stored nevertheless.
pub(crate) fn secret_warnings(v: &Value) -> Vec<String> {
    if v.str_at(&["type"]) != "kubernetes.io/tls" {
        return Vec::new();
    }
    let cert = decode(v.at(&["data", "tls.crt"]));
    let key = decode(v.at(&["data", "tls.key"]));
    key_pair_error(&cert, &key).into_iter().collect()
}

fn key_pair_error(cert: &[u8], key: &[u8]) -> Option<String> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let blocks = |bytes: &[u8]| {
        // The Secret may hold arbitrary bytes; only the marker lines matter here.
        let text = String::from_utf8_lossy(bytes);
        let labels: Vec<String> = text
            .lines()
            .filter_map(|l| l.trim().strip_prefix("-----BEGIN ")?.strip_suffix("-----"))
            .map(str::to_owned)
            .collect();
        labels
    };
    // As Go, blocks of other types are skipped; only their complete absence is an error.
    let chain: Vec<_> = CertificateDer::pem_slice_iter(cert).filter_map(Result::ok).collect();
    if chain.is_empty() {
        let found = blocks(cert);
        return Some(if found.is_empty() {
            "tls: failed to find any PEM data in certificate input".to_owned()
        // Go has its own message for the common mistake of swapped files.
        } else if found.len() == 1 && found[0].ends_with("PRIVATE KEY") {
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".to_owned()
        } else {
            format!(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]",
                found.join(" ")
            )
        });
    }
    let Ok(private) = PrivateKeyDer::from_pem_slice(key) else {
        let found = blocks(key);
        return Some(if found.is_empty() {
            "tls: failed to find any PEM data in key input".to_owned()
        } else if found.len() == 1 && found[0] == "CERTIFICATE" {
            "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
        } else {
            format!(
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]",
                found.join(" ")
            )
        });
    };
    let Ok(signing) = rustls::crypto::aws_lc_rs::sign::any_supported_type(&private) else {
        return Some("tls: failed to parse private key".to_owned());
    };
    // Only a proven mismatch is reported: some key types cannot be compared.
    match rustls::sign::CertifiedKey::new(chain, signing).keys_match() {
        Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
            Some("tls: private key does not match public key".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn config_map_keys_are_valid_and_distinct() {
        let errors = |v: Value| aggregate(&config_map(&v));
        assert!(
            errors(json!({"data": {"a b": "c"}}))
                .starts_with("data[a b]: Invalid value: \"a b\": a valid config key must")
        );
        assert_eq!(
            errors(json!({"data": {"..": "c"}})),
            "data[..]: Invalid value: \"..\": must not be '..'"
        );
        assert_eq!(
            errors(json!({"data": {"a": "b"}, "binaryData": {"a": "AA=="}})),
            "data[a]: Invalid value: \"a\": duplicate of key present in binaryData"
        );
        assert_eq!(
            errors(json!({"data": {"a": "x".repeat(MAX + 1)}})),
            "[]: Too long: may not be more than 1048576 bytes"
        );
        assert!(config_map(&json!({"data": {"a": "x".repeat(MAX)}})).is_empty());
    }

    #[test]
    fn immutable_config_map_cannot_change() {
        let old = json!({"data": {"k": "v"}, "immutable": true});
        let errors = |v: Value| aggregate(&config_map_update(&v, &old));
        assert_eq!(
            errors(json!({"data": {"k": "x"}, "immutable": true})),
            format!("data: Forbidden: {FROZEN}")
        );
        assert_eq!(
            errors(json!({"data": {"k": "v"}, "immutable": false})),
            format!("immutable: Forbidden: {FROZEN}")
        );
        assert!(config_map_update(&old, &old).is_empty());
    }

    #[test]
    fn secret_type_requires_its_keys() {
        let old = json!({"data": {"k": "dg=="}, "type": "Opaque"});
        let mut new = old.clone();
        new.set(&["type"], "kubernetes.io/tls");
        assert_eq!(
            aggregate(&secret_update(&new, &old)),
            "[type: Invalid value: \"kubernetes.io/tls\": field is immutable, data[tls.crt]: Required value, data[tls.key]: Required value]"
        );
        new.set(&["type"], "<");
        assert_eq!(
            aggregate(&secret_update(&new, &old)),
            "type: Invalid value: \"\\u003c\": field is immutable"
        );
        let errors = |v: Value| aggregate(&secret(&v));
        assert_eq!(
            errors(json!({"type": "kubernetes.io/basic-auth"})),
            "[data[username]: Required value, data[password]: Required value]"
        );
        assert_eq!(
            errors(json!({"type": "kubernetes.io/dockerconfigjson"})),
            "data[.dockerconfigjson]: Required value"
        );
    }

    #[test]
    fn invalid_key_pair_yields_a_warning() {
        let v = json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "YQ==", "tls.key": "Yg=="}});
        assert_eq!(
            secret_warnings(&v),
            ["tls: failed to find any PEM data in certificate input"]
        );
        let a = rcgen::generate_simple_self_signed(vec!["a".into()]).unwrap();
        let b = rcgen::generate_simple_self_signed(vec!["b".into()]).unwrap();
        let (cert, key) = (a.cert.pem(), a.signing_key.serialize_pem());
        assert_eq!(key_pair_error(cert.as_bytes(), key.as_bytes()), None);
        assert_eq!(
            key_pair_error(cert.as_bytes(), b.signing_key.serialize_pem().as_bytes()).as_deref(),
            Some("tls: private key does not match public key")
        );
    }
}
