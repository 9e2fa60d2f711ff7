//! A Status in protobuf: the envelope `k8s\0` + `runtime.Unknown`, and `metav1.Status` inside. Strings that are not
//! optional in the schema are written even where they are empty, as upstream's generated code writes them.

use crate::apimachinery::status::{Details, Status};

/// The envelope and the Status.
pub fn status(s: &Status) -> Vec<u8> {
    let mut type_meta = Vec::new();
    string(&mut type_meta, 1, "v1");
    string(&mut type_meta, 2, "Status");
    let mut out = b"k8s\0".to_vec();
    bytes(&mut out, 1, &type_meta);
    bytes(&mut out, 2, &raw(s));
    string(&mut out, 3, "");
    string(&mut out, 4, "");
    out
}

fn raw(s: &Status) -> Vec<u8> {
    let mut metadata = Vec::new();
    string(&mut metadata, 1, "");
    string(&mut metadata, 2, "");
    string(&mut metadata, 3, s.continue_token.as_deref().unwrap_or(""));
    let mut out = Vec::new();
    bytes(&mut out, 1, &metadata);
    string(&mut out, 2, if s.code < 400 { "Success" } else { "Failure" });
    string(&mut out, 3, &s.message);
    string(&mut out, 4, s.reason);
    if let Some(d) = &s.details {
        bytes(&mut out, 5, &details(d));
    }
    number(&mut out, 6, u64::from(s.code));
    out
}

fn details(d: &Details) -> Vec<u8> {
    let mut out = Vec::new();
    string(&mut out, 1, &d.name);
    string(&mut out, 2, &d.group);
    string(&mut out, 3, &d.kind);
    for c in &d.causes {
        let mut cause = Vec::new();
        string(&mut cause, 1, &c.reason);
        string(&mut cause, 2, &c.message);
        string(&mut cause, 3, &c.field);
        bytes(&mut out, 4, &cause);
    }
    number(&mut out, 5, u64::from(d.retry_after_seconds));
    string(&mut out, 6, &d.uid);
    out
}

fn string(out: &mut Vec<u8>, field: u8, value: &str) {
    bytes(out, field, value.as_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(field << 3);
    varint(out, value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_401_is_the_recorded_one() {
        // authentication/failures, step token-proto-401.
        let want =
            b"k8s\0\n\x0c\n\x02v1\x12\x06Status\x12\x30\n\x06\n\0\x12\0\x1a\0\x12\x07Failure\x1a\x0cUnauthorized\
            \x22\x0cUnauthorized\x30\x91\x03\x1a\0\x22\0";
        assert_eq!(status(&Status::unauthorized()), want.to_vec());
    }
}
