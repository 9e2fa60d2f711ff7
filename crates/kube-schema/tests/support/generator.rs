//! Generates objects of any built-in kind from the schema table, with all fields filled or a random subset.
//! Shared by the codec tests and the cross-check against the crates (`tests/kube-rs`).

use torana_apimachinery::json;
use torana_apimachinery::value::{Map, Value};
use torana_kube_schema::{Emit, Field, FreeForm, SchemaOr, Ty, TypeDef, by_name};

/// The one definition with unbounded recursion.
const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// A predicate for fields to leave out.
pub(crate) type Exclude = fn(&TypeDef, &Field) -> bool;

/// The generator. Choices are taken from bits of the seed, so a seed reproduces its object.
pub(crate) struct Generator {
    seed: u64,
    full: bool,
    without: Exclude,
    /// Always fill required times and quantities.
    strict: bool,
    /// Give every list one item.
    single_item_lists: bool,
    /// The definitions being generated, outermost first.
    stack: Vec<&'static str>,
}

impl Generator {
    /// Fills every field except those that `without` selects.
    pub(crate) fn full(seed: u64, without: Exclude) -> Self {
        Self {
            seed,
            full: true,
            without,
            strict: false,
            single_item_lists: false,
            stack: Vec::new(),
        }
    }

    /// Fills a random subset of the fields, sometimes with an empty value where that differs from absence.
    pub(crate) fn some(seed: u64, without: Exclude) -> Self {
        Self {
            full: false,
            ..Self::full(seed, without)
        }
    }

    /// Always fills required times and quantities. Go writes null if they are not set, which other decoders
    /// refuse or read as an empty string.
    #[allow(dead_code, reason = "not used by every test that includes the generator")]
    pub(crate) fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Puts one item into every list, so that no list contains duplicate keys.
    #[allow(dead_code, reason = "not used by every test that includes the generator")]
    pub(crate) fn single_item_lists(mut self) -> Self {
        self.single_item_lists = true;
        self
    }

    fn pick(&mut self, n: u64) -> u64 {
        // SplitMix64.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn one<const N: usize>(&mut self, of: [Value; N]) -> Value {
        let i = self.pick(N as u64) as usize;
        of[i].clone()
    }

    fn word(&mut self) -> &'static str {
        [
            "a",
            "x-1",
            "größer",
            "a somewhat longer text than fits inline",
            "\u{1F600}",
            "yes",
            "0o17",
            "<&>\u{2028}",
            " #:\n\"\\",
        ][self.pick(9) as usize]
    }

    /// An object of this definition.
    pub(crate) fn object(&mut self, def: &'static TypeDef) -> Value {
        let mut out = Map::new();
        self.stack.push(def.name);
        for f in def.fields {
            if !self.wanted(def, f) {
                continue;
            }
            let v = match (f.tag, def.gvks) {
                (0, [(group, version, kind)]) if f.name == "apiVersion" || f.name == "kind" => match (f.name, *group) {
                    ("kind", _) => json!(*kind),
                    (_, "") => json!(*version),
                    (_, group) => json!(format!("{group}/{version}")),
                },
                _ if !self.full && f.emit == Emit::OmitNil && self.pick(4) == 0 => self.empty(f.ty),
                _ => self.value(f.ty),
            };
            out.insert(f.name, v);
        }
        self.stack.pop();
        Value::Object(out)
    }

    fn wanted(&mut self, def: &TypeDef, f: &Field) -> bool {
        if (self.without)(def, f) {
            return false;
        }
        let below = if nests(f.ty) {
            Some(SCHEMA)
        } else {
            f.ty.struct_def().map(|d| d.name)
        };
        let again = below.map_or(0, |name| self.stack.iter().filter(|n| **n == name).count());
        if self.full {
            return again < 2;
        }
        // Embedded documents carry their apiVersion and kind.
        if f.tag == 0 && matches!(def.gvks, [_]) {
            return true;
        }
        if self.strict && needs_text(f) {
            return true;
        }
        match self.stack.len() {
            0..4 => self.pick(3) > 0,
            4..6 => self.pick(6) == 0,
            _ => below.is_none() && self.pick(6) == 0,
        }
    }

    /// The zero value behind a pointer.
    fn empty(&mut self, ty: Ty) -> Value {
        match ty {
            Ty::String => json!(""),
            Ty::Int32 | Ty::Int64 | Ty::Float | Ty::IntOrString => json!(0),
            Ty::Bool | Ty::SchemaOr(SchemaOr::Bool) => json!(false),
            Ty::Struct(r) if !(self.strict && r.get().fields.iter().any(needs_text)) => Value::object(),
            _ => self.value(ty),
        }
    }

    fn value(&mut self, ty: Ty) -> Value {
        match ty {
            Ty::String => json!(self.word()),
            Ty::Int32 => self.one([1, -1, 80, i64::from(i32::MIN), i64::from(i32::MAX)].map(Value::Int)),
            Ty::Int64 => self.one([1, -1, 1000, i64::MIN, i64::MAX].map(Value::Int)),
            Ty::Float => self.one([json!(1.5), json!(-2), Value::Float(1e300)]),
            Ty::Bool => json!(true),
            Ty::Bytes => self.one([json!("YQ=="), json!("/v8="), json!("AAEC")]),
            Ty::Time => self.one([json!("2024-01-02T03:04:05Z"), json!("1969-12-31T23:59:59Z")]),
            Ty::MicroTime => self.one([
                json!("2024-01-02T03:04:05.000006Z"),
                json!("1969-12-31T23:59:59.999999Z"),
            ]),
            Ty::Quantity => self.one([json!("100m"), json!("1Gi"), json!("0"), json!("1500m")]),
            Ty::IntOrString => self.one([json!(8080), json!("50%"), json!(-1)]),
            Ty::Any(FreeForm::Json) => self.one([json!([1, "x", true]), json!({"b": 1.25}), json!("x"), json!(false)]),
            Ty::Any(_) => json!({"f:a": {".": {}}, "b": 1.25, "apiVersion": "v1", "kind": "X"}),
            Ty::SchemaOr(SchemaOr::Bool) if self.pick(3) == 0 => json!(true),
            Ty::SchemaOr(SchemaOr::StringArray) if self.pick(3) == 0 => json!(["a", "b"]),
            Ty::SchemaOr(or) => {
                let schema = self.object(by_name(SCHEMA).expect("the table has it"));
                let list = or == SchemaOr::Array && self.pick(2) == 0;
                if list { Value::Array(vec![schema]) } else { schema }
            }
            Ty::Struct(r) => self.object(r.get()),
            Ty::List(t) => {
                let n = self.many(*t);
                Value::Array((0..n).map(|_| self.value(*t)).collect())
            }
            Ty::Map(t) => {
                let n = self.many(*t);
                Value::Object((0..n).map(|_| (self.word(), self.value(*t))).collect())
            }
        }
    }

    /// The number of elements: one for lists of objects if all fields are filled, to bound the size.
    fn many(&mut self, ty: Ty) -> u64 {
        match (self.full, ty.struct_def()) {
            _ if self.single_item_lists => 1,
            (true, Some(_)) => 1,
            (true, None) => 2,
            (false, _) => 1 + self.pick(2),
        }
    }
}

fn needs_text(f: &Field) -> bool {
    f.required && matches!(f.ty, Ty::Time | Ty::MicroTime | Ty::Quantity)
}

fn nests(ty: Ty) -> bool {
    match ty {
        Ty::SchemaOr(_) => true,
        Ty::List(t) | Ty::Map(t) => nests(*t),
        _ => false,
    }
}
