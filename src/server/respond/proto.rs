//! `Status` in protobuf: `metav1.Status` inside the envelope `k8s\0` + `runtime.Unknown`. Required strings
//! are written even if empty, as upstream's generated code does.

use crate::apimachinery::codec::protobuf::{envelope, put_bytes, put_message, put_number};
use crate::apimachinery::status::{Details, Status};

/// The `Status` in its envelope.
pub(crate) fn status(s: &Status) -> Vec<u8> {
    let mut out = Vec::new();
    envelope(&mut out, "v1", "Status", |out| raw(s, out));
    out
}

fn raw(s: &Status, out: &mut Vec<u8>) {
    put_message(out, 1, |out| {
        // `selfLink` and `resourceVersion`: always empty in a Status.
        string(out, 1, "");
        string(out, 2, "");
        string(out, 3, s.continue_token.as_deref().unwrap_or(""));
    });
    string(out, 2, if s.code < 400 { "Success" } else { "Failure" });
    string(out, 3, &s.message);
    string(out, 4, s.reason);
    if let Some(d) = &s.details {
        put_message(out, 5, |out| details(d, out));
    }
    put_number(out, 6, u64::from(s.code));
}

fn details(d: &Details, out: &mut Vec<u8>) {
    string(out, 1, &d.name);
    string(out, 2, &d.group);
    string(out, 3, &d.kind);
    for c in &d.causes {
        put_message(out, 4, |out| {
            string(out, 1, &c.reason);
            string(out, 2, &c.message);
            string(out, 3, &c.field);
        });
    }
    put_number(out, 5, u64::from(d.retry_after_seconds));
    string(out, 6, &d.uid);
}

fn string(out: &mut Vec<u8>, field: u8, value: &str) {
    put_bytes(out, field, value.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_401_matches_the_recording() {
        // Recorded from upstream: area authentication/failures, step token-proto-401.
        let want =
            b"k8s\0\n\x0c\n\x02v1\x12\x06Status\x12\x30\n\x06\n\0\x12\0\x1a\0\x12\x07Failure\x1a\x0cUnauthorized\
            \x22\x0cUnauthorized\x30\x91\x03\x1a\0\x22\0";
        assert_eq!(status(&Status::unauthorized()), want.to_vec());
    }
}
