use super::*;
use proptest::prelude::*;

fn fields(bytes: &[u8]) -> Result<Vec<(u32, Payload<'_>)>, WireError> {
    let mut reader = Reader::new(bytes);
    std::iter::from_fn(|| reader.next().transpose()).collect()
}

#[test]
fn fields_round_trip() {
    let mut out = Vec::new();
    put_number(&mut out, 1, 300);
    put_bytes(&mut out, 44, b"x");
    put_double(&mut out, 3, 1.5);
    assert_eq!(out[..3], [8, 0xac, 2]);
    let want = vec![
        (1, Payload::Varint(300)),
        (44, Payload::Bytes(b"x")),
        (3, Payload::Fixed64(1.5f64.to_bits())),
    ];
    assert_eq!(fields(&out), Ok(want));
}

#[test]
fn malformed_fields_are_rejected() {
    for (bytes, want) in [
        (&b"\x0a\x05abc"[..], WireError::UnexpectedEof),
        (b"\x08", WireError::UnexpectedEof),
        (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", WireError::Overflow),
        (
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            WireError::NegativeLength,
        ),
        (b"\x00\x00", WireError::IllegalTag),
        (b"\x0c", WireError::EndGroup),
        (b"\x0b\x0b\x0c", WireError::UnexpectedEof),
        (b"\x0e", WireError::IllegalWireType(6)),
    ] {
        assert_eq!(fields(bytes), Err(want), "{bytes:x?}");
    }
    assert_eq!(fields(b"\x0b\x08\x01\x13\x14\x0c"), Ok(vec![(1, Payload::Group)]));
}

#[test]
fn envelope_round_trips_or_reports_the_error() {
    let mut out = Vec::new();
    envelope(&mut out, "v1", "Pod", |out| put_bytes(out, 1, b"m"));
    let unknown = open(&out).expect("an envelope");
    assert_eq!(
        (&*unknown.api_version, &*unknown.kind, unknown.raw),
        ("v1", "Pod", &b"\x0a\x01m"[..])
    );
    assert_eq!(open(b"").unwrap_err().to_string(), "empty data");
    assert_eq!(open(b"k8s\0").unwrap_err().to_string(), "empty body");
    assert!(open(b"{}").unwrap_err().to_string().ends_with("[107 56 115 0]"));
    assert_eq!(open(b"k8s\0\x12\x05").unwrap_err().to_string(), "unexpected EOF");
}

#[test]
fn errors_of_the_envelope_name_its_messages_and_fields() {
    for (body, want) in [
        (&b"k8s\0\x12\x01m\0"[..], "proto: Unknown: illegal tag 0 (wire type 0)"),
        (
            b"k8s\0\x80\x80\x80\x80\x40",
            "proto: Unknown: illegal tag -2147483648 (wire type 17179869184)",
        ),
        (b"k8s\0\x0a\x01\x03", "proto: TypeMeta: illegal tag 0 (wire type 3)"),
        (
            b"k8s\0\x0a\x01\x0c",
            "proto: TypeMeta: wiretype end group for non-group",
        ),
        (b"k8s\0\x04", "proto: Unknown: wiretype end group for non-group"),
        // Nothing follows the tag, and 7 is no wire type.
        (b"k8s\0\x20", "proto: wrong wireType = 0 for field ContentType"),
        (b"k8s\0\x0f", "proto: wrong wireType = 7 for field TypeMeta"),
        (b"k8s\0\x0a\x02\x15\0", "proto: wrong wireType = 5 for field Kind"),
        // Fields that are not known are only skipped.
        (b"k8s\0\x2f", "proto: illegal wireType 7"),
        (b"k8s\0\x28", "unexpected EOF"),
    ] {
        assert_eq!(open(body).unwrap_err().to_string(), want, "{body:x?}");
    }
    assert!(open(b"k8s\0\x28\x01").is_ok());
}

proptest! {
    #[test]
    fn put_message_encodes_lengths_of_any_size(n in 0usize..70_000, before in 0usize..5) {
        let mut out = vec![7u8; before];
        put_message(&mut out, 2, |out| out.resize(out.len() + n, 9));
        let body = vec![9u8; n];
        prop_assert_eq!(fields(&out[before..]), Ok(vec![(2, Payload::Bytes(&body))]));
        prop_assert_eq!(out.len(), before + 1 + varint_len(n as u64) + n);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = fields(&bytes);
        let _ = open(&bytes);
    }
}
