use super::*;
use crate::api::decode::normalize;
use crate::api::{Emit, Free, SchemaOr, Ty, by_gvk, types};
use crate::apimachinery::codec::{json, protobuf};
use crate::apimachinery::value::Map;
use crate::json;
use proptest::prelude::*;

fn nests(ty: Ty) -> bool {
    match ty {
        Ty::SchemaOr(_) => true,
        Ty::List(t) | Ty::Map(t) => nests(*t),
        _ => false,
    }
}

/// Makes objects of any kind; a choice is a few bits of the seed.
struct Maker(u64);

impl Maker {
    fn pick(&mut self, n: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn word(&mut self) -> &'static str {
        [
            "a",
            "x-1",
            "größer",
            "a somewhat longer text than fits inline",
            "\u{1F600}",
        ][self.pick(5) as usize]
    }

    fn object(&mut self, def: &'static TypeDef, depth: usize) -> Value {
        let mut out = Map::new();
        for f in def.fields.iter().filter(|f| f.tag != 0) {
            let wanted = if depth > 2 {
                self.pick(12) == 0
            } else {
                self.pick(3) > 0
            };
            let ends = depth < 4 || !(f.ty.struct_def().is_some() || nests(f.ty));
            if wanted && ends {
                let empty = f.emit == Emit::OmitNil && self.pick(4) == 0;
                let v = if empty {
                    self.empty(f.ty, depth)
                } else {
                    self.value(f.ty, depth)
                };
                out.insert(f.name, v);
            }
        }
        Value::Object(out)
    }

    /// The zero value behind a pointer, which is not the same as none.
    fn empty(&mut self, ty: Ty, depth: usize) -> Value {
        match ty {
            Ty::String => json!(""),
            Ty::Int32 | Ty::Int64 | Ty::Float | Ty::IntOrString => json!(0),
            Ty::Bool | Ty::SchemaOr(SchemaOr::Bool) => json!(false),
            Ty::Struct(_) => Value::object(),
            _ => self.value(ty, depth),
        }
    }

    fn value(&mut self, ty: Ty, depth: usize) -> Value {
        match ty {
            Ty::String => json!(self.word()),
            Ty::Int32 => json!([1i64, -1, 80, i64::from(i32::MIN), i64::from(i32::MAX)][self.pick(5) as usize]),
            Ty::Int64 => json!([1i64, -1, 1000, i64::MIN, i64::MAX][self.pick(5) as usize]),
            Ty::Float => [json!(1.5), json!(-2), Value::Float(1e300)][self.pick(3) as usize].clone(),
            Ty::Bool => json!(true),
            Ty::Bytes => json!(["YQ==", "/v8=", "AAEC"][self.pick(3) as usize]),
            Ty::Time => json!(["2024-01-02T03:04:05Z", "1969-12-31T23:59:59Z"][self.pick(2) as usize]),
            Ty::MicroTime => {
                json!(["2024-01-02T03:04:05.000006Z", "1969-12-31T23:59:59.999999Z"][self.pick(2) as usize])
            }
            Ty::Quantity => json!(["100m", "1Gi", "0"][self.pick(3) as usize]),
            Ty::IntOrString => [json!(8080), json!("50%"), json!(-1)][self.pick(3) as usize].clone(),
            Ty::Any(Free::RawExtension | Free::Json) if self.pick(3) == 0 => json!([1, "x", true]),
            Ty::Any(_) => json!({"f:a": {".": {}}, "b": 1.25}),
            Ty::SchemaOr(SchemaOr::Bool) if self.pick(2) == 0 => json!(true),
            Ty::SchemaOr(SchemaOr::StringArray) if self.pick(2) == 0 => json!(["a", "b"]),
            Ty::SchemaOr(or) => {
                let schema = self.object(crate::api::by_name(SCHEMA).unwrap(), depth + 2);
                let list = or == SchemaOr::Array && self.pick(2) == 0;
                if list { Value::Array(vec![schema]) } else { schema }
            }
            Ty::Struct(r) => self.object(r.get(), depth + 1),
            Ty::List(t) => {
                let n = 1 + self.pick(2);
                Value::Array((0..n).map(|_| self.value(*t, depth)).collect())
            }
            Ty::Map(t) => {
                let n = 1 + self.pick(3);
                Value::Object((0..n).map(|_| (self.word(), self.value(*t, depth))).collect())
            }
        }
    }
}

fn message(def: &'static TypeDef, object: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    encode_message(def, object, &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn every_kind_survives_the_way_there_and_back(seed: u64) {
        let mut maker = Maker(seed);
        let messages = types().iter().filter(|t| t.fields.iter().any(|f| f.tag != 0));
        for def in messages {
            let mut object = maker.object(def, 0);
            normalize(def, &mut object).unwrap();
            let bytes = message(def, &object);
            let mut again = decode_message(def, &bytes).unwrap();
            prop_assert_eq!(message(def, &again), bytes.clone(), "{}", def.name);
            normalize(def, &mut again).unwrap();
            prop_assert_eq!(json::to_string(&again), json::to_string(&object), "{}", def.name);
        }
    }

    #[test]
    fn a_cut_or_changed_message_is_read_or_refused(seed: u64, at: prop::sample::Index, byte: u8) {
        let def = by_gvk("apps", "v1", "Deployment").unwrap();
        let mut bytes = message(def, &Maker(seed).object(def, 0));
        let at = at.index(bytes.len());
        let _ = decode_message(def, &bytes[..at]);
        bytes[at] = byte;
        if let Ok(mut v) = decode_message(def, &bytes) {
            let _ = normalize(def, &mut v);
        }
    }
}

#[test]
fn a_config_map_is_written_as_upstream_writes_it() {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "d", "creationTimestamp": "1970-01-01T00:00:07Z"},
        "data": {"k": "v"}, "binaryData": {"b": "/w=="},
    });
    let want = b"k8s\0\n\x0f\n\x02v1\x12\x09ConfigMap\x12\x28\
        \n\x16\n\x01a\x12\0\x1a\x01d\x22\0\x2a\0\x32\0\x38\0\x42\x04\x08\x07\x10\0\
        \x12\x06\n\x01k\x12\x01v\x1a\x06\n\x01b\x12\x01\xff\x1a\0\x22\0";
    let got = encode(&object).unwrap();
    let unknown = protobuf::open(&got).unwrap();
    let def = definition(&unknown.api_version, &unknown.kind).unwrap();
    let again = decode(def, &unknown.api_version, &unknown.kind, unknown.raw).unwrap();
    assert_eq!(again, object);
    assert_eq!(got, want);
}

#[test]
fn a_services_port_is_written_whole() {
    let def = by_gvk("", "v1", "Service").unwrap();
    let mut bytes = Vec::new();
    let spec = json!({"spec": {"ports": [{"port": 80, "targetPort": "http"}], "clusterIP": "None"}});
    encode_message(def, &spec, &mut bytes);
    let metadata = b"\n\x10\n\0\x12\0\x1a\0\x22\0\x2a\0\x32\0\x38\0\x42\0";
    assert_eq!(bytes[..metadata.len()], metadata[..]);
    let port = b"\n\x14\n\0\x12\0\x18\x50\x22\x0a\x08\x01\x10\0\x1a\x04http\x28\0";
    assert!(bytes.windows(port.len()).any(|w| w == port), "{bytes:x?}");
    // spec.status: an empty load balancer stands in it.
    assert!(bytes.ends_with(b"\x1a\x02\n\0"), "{bytes:x?}");
}

#[test]
fn inlined_members_stand_in_messages_of_their_own() {
    let def = crate::api::by_name("io.k8s.api.core.v1.Volume").unwrap();
    let volume = json!({"name": "v", "configMap": {"name": "c"}});
    let bytes = message(def, &volume);
    // volumeSource{configMap{localObjectReference{name}}}
    assert_eq!(bytes, b"\n\x01v\x12\x08\x9a\x01\x05\n\x03\n\x01c");
    assert_eq!(decode_message(def, &bytes).unwrap(), volume);
    assert_eq!(message(def, &json!({"name": "v"})), b"\n\x01v\x12\0");
}

#[test]
fn unknown_fields_are_passed_over_and_wrong_ones_refused() {
    let def = by_gvk("", "v1", "ConfigMap").unwrap();
    assert_eq!(decode_message(def, b"\xfa\x07\x01x").unwrap(), json!({}));
    assert_eq!(
        decode_message(def, b"\x08\x01").unwrap_err().0,
        "proto: wrong wireType = 0 for field metadata"
    );
}

#[test]
fn a_schema_without_end_is_refused() {
    let def = crate::api::by_name(SCHEMA).unwrap();
    let not = def.field("not").unwrap().tag;
    let mut bytes = Vec::new();
    for _ in 0..300 {
        let mut outer = Vec::new();
        protobuf::put_bytes(&mut outer, not, &bytes);
        bytes = outer;
    }
    assert_eq!(decode_message(def, &bytes).unwrap_err().0, "exceeded max depth");
}

#[test]
fn fields_stand_by_their_numbers() {
    for def in types() {
        let places = order::of(def);
        assert_eq!(places.len(), def.fields.len(), "{}", def.name);
        let numbers = places.iter().map(|p| order::number(&def.fields[usize::from(*p)], 0).0);
        assert!(numbers.is_sorted(), "{}", def.name);
    }
}

#[test]
fn the_deepest_schema_that_json_can_hold_is_written() {
    let written = std::thread::Builder::new().stack_size(8 << 20).spawn(|| {
        let schema = (0..999).fold(Value::object(), |inner, _| {
            let mut outer = Map::new();
            outer.insert("not", inner);
            Value::Object(outer)
        });
        message(crate::api::by_name(SCHEMA).unwrap(), &schema).len()
    });
    assert!(written.unwrap().join().unwrap() > 999);
}
