//! Memory use of decoding, measured by a counting allocator: for each codec, worst-case bodies either decode
//! within a small factor of their length or are refused within it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use torana_apimachinery::codec::budget::{DecodeBudget, decoded_size_limit, decoded_yaml_size_limit};
use torana_apimachinery::codec::{cbor, json, yaml};
use torana_kube_schema as api;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// An allocator that counts, per thread, the bytes allocated and their peak.
struct Counting;

fn count(bytes: isize) {
    // Thread-local storage is gone while a thread exits, so its last calls are not counted.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

#[allow(unsafe_code, reason = "a global allocator cannot be implemented without it")]
// SAFETY: forwards each call unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // During a reallocation the old and the new block may both exist.
        count(size.cast_signed());
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Decodes, and returns the peak number of bytes and whether the body was refused for its size.
fn decoded<T>(decode: impl FnOnce() -> Result<T, String>) -> (usize, bool) {
    let before = NOW.get();
    PEAK.set(before);
    let outcome = decode();
    let peak = PEAK.get() - before;
    let refused = match outcome {
        Ok(_) => false,
        Err(e) => {
            assert!(
                e.contains("bytes of memory") || e.contains("excessive aliasing") || e.contains("indicators"),
                "{e}"
            );
            true
        }
    };
    (peak.try_into().expect("more is allocated than freed"), refused)
}

const LENGTH: usize = 1 << 20;

/// Repeats a part until the whole has about [`LENGTH`] bytes.
fn repeated(open: &str, part: impl Fn(usize) -> String, close: &str) -> Vec<u8> {
    let mut out = open.to_owned();
    for i in 0.. {
        let part = part(i);
        if out.len() + part.len() + close.len() > LENGTH {
            break;
        }
        out.push_str(&part);
    }
    out.push_str(close);
    out.into_bytes()
}

fn list(part: &str, close: &str) -> Vec<u8> {
    repeated("[0", |_| format!(",{part}"), &format!("]{close}"))
}

fn check(
    cases: &[(&str, Vec<u8>)],
    may_refuse: bool,
    limit: fn(usize) -> usize,
    decode: impl Fn(&[u8]) -> Result<(), String>,
) {
    for (name, body) in cases {
        let (peak, refused) = decoded(|| decode(body));
        let factor = peak as f64 / body.len() as f64;
        println!(
            "{name}: {factor:.1} times its {} bytes{}",
            body.len(),
            if refused { ", refused" } else { "" }
        );
        assert!(may_refuse || !refused, "{name} is refused");
        // A growing vector holds its old buffer until it has moved.
        let most = limit(body.len()).max(DecodeBudget::MIN) * 3 / 2;
        assert!(peak <= most, "{name}: {peak} bytes, expected {most}");
    }
}

#[test]
fn json_trees_are_within_their_budget() {
    let cases = [
        ("numbers", list("0", "")),
        ("floats", list("1.5", "")),
        ("empty lists", list("[]", "")),
        ("empty objects", list("{}", "")),
        ("lists of one", list("[0]", "")),
        ("lists of three", list("[0,0,0]", "")),
        ("objects of one", list(r#"{"":0}"#, "")),
        ("objects of five", list(r#"{"a":0,"b":0,"c":0,"d":0,"e":0}"#, "")),
        ("distinct keys", repeated("{\"a\":0", |i| format!(",\"{i:x}\":0"), "}")),
        ("equal keys", repeated("{\"a\":0", |_| ",\"a\":0".to_owned(), "}")),
        ("strings", list(r#""0123456789012345678901234""#, "")),
        ("escapes", list(r#""\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n""#, "")),
        ("one number", repeated("0.", |_| "1".to_owned(), "")),
        ("one long string", repeated("\"", |_| "\\u00e9".to_owned(), "\"")),
    ];
    check(&cases, false, decoded_size_limit, |b| {
        Ok(json::decode_with_duplicates(b).map(drop)?)
    });
}

#[test]
fn yaml_trees_are_within_their_budget() {
    let text = "x".repeat(LENGTH / 4);
    let nested: String = (0..200).map(|i| format!("[&a{i} ")).collect();
    let cases = [
        ("a flow list", list("0", "")),
        (
            "a flow list that is read",
            format!("a: [{}0]", "0,".repeat(100_000)).into_bytes(),
        ),
        ("a block list", repeated("", |_| "- 0\n".to_owned(), "")),
        ("lists of one", repeated("", |_| "- - 0\n".to_owned(), "")),
        ("distinct keys", repeated("", |i| format!("{i:x}: 0\n"), "")),
        ("equal keys", repeated("", |_| "a: 0\n".to_owned(), "")),
        (
            "aliases of a text",
            repeated(&format!("- &a {text}\n"), |_| "- *a\n".to_owned(), ""),
        ),
        ("anchors", repeated("", |i| format!("- &a{i} 0\n"), "")),
        (
            "anchors in anchors",
            format!("{nested}[{}]{}", "0,".repeat(LENGTH / 4), "]".repeat(200)).into_bytes(),
        ),
        ("merges", {
            let keys: String = (0..500).map(|i| format!("  k{i}: 0\n")).collect();
            repeated(&format!("m: &m\n{keys}l:\n"), |_| "- {<<: *m}\n".to_owned(), "")
        }),
    ];
    check(&cases, true, decoded_yaml_size_limit, |b| {
        Ok(yaml::decode_with_duplicates(b).map(drop)?)
    });
}

#[test]
fn cbor_trees_are_within_their_budget() {
    let claims = |head: &[u8], part: &[u8]| [head, &part.repeat(LENGTH / part.len())].concat();
    let n = u32::try_from(LENGTH).expect("it fits").to_be_bytes();
    let cases = [
        ("numbers", [&[0x9a][..], &n, &vec![0u8; LENGTH]].concat()),
        (
            "numbers without a length",
            [&[0x9f][..], &vec![0u8; LENGTH], &[0xff]].concat(),
        ),
        (
            "lists of a claimed length",
            claims(&[], &[0x9a, 0xff, 0xff, 0xff, 0xff]),
        ),
        (
            "maps of a claimed length",
            claims(&[0x9f], &[0xba, 0xff, 0xff, 0xff, 0xff, 0x40]),
        ),
        ("empty maps", [&[0x9f][..], &vec![0xa0; LENGTH], &[0xff]].concat()),
    ];
    check(&cases, true, decoded_size_limit, |b| match cbor::decode(b) {
        Err(cbor::Error::TooDeep | cbor::Error::UnexpectedEof | cbor::Error::MapKey { .. }) => Ok(()),
        other => Ok(other.map(drop)?),
    });
}

#[test]
fn protobuf_trees_are_within_their_budget() {
    let pod = api::by_gvk("", "v1", "Pod").expect("the table has it");
    let field = |number: u8, content: Vec<u8>| {
        let mut out = Vec::new();
        torana_apimachinery::codec::protobuf::put_bytes(&mut out, number, &content);
        out
    };
    let cases = [
        ("empty containers", field(2, [0x12, 0].repeat(LENGTH / 2))),
        ("empty entries of labels", field(1, [0x5a, 0].repeat(LENGTH / 2))),
        ("empty finalizers", field(1, [0x72, 0].repeat(LENGTH / 2))),
        ("supplemental groups", field(2, field(14, field(4, vec![0; LENGTH])))),
    ];
    check(&cases, true, decoded_size_limit, |b| {
        let mut budget = DecodeBudget::of_body(b.len());
        api::protobuf::decode_message_within(pod, b, &mut budget)
            .map(drop)
            .map_err(|e| e.0)
    });
}

#[test]
fn always_written_fields_are_bounded() {
    let pod = api::by_gvk("", "v1", "Pod").expect("the table has it");
    let text = format!("{{\"spec\":{{\"containers\":[{{}}{}]}}}}", ",{}".repeat(LENGTH / 3));
    let (peak, refused) = decoded(|| {
        let (mut v, _) = json::decode_with_duplicates(text.as_bytes())?;
        api::decode::normalize(pod, &mut v).map_err(|e| e.0)
    });
    assert!(refused && peak < 48 << 20, "{peak}");
}
