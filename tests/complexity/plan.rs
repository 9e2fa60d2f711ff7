//! What is tried: for each kind the sites it has, for each site the ways to grow and to be sent.

use crate::catalogue::{Part, Row, rows, seeds};
use crate::documents::{self, Document, TARGET};
use crate::fit::fit;
use crate::growth::Growth;
use crate::judge::{Finding, Sample, climb, judge};
use crate::make::{self, Differ};
use crate::meter;
use crate::server::{NAMESPACE, Server, call};
use crate::sites::{Seen, Site, Step, sites};
use crate::ways::{Codec, Target, Way, renamed};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use torana::api::{ListType, Ty};
use torana::apimachinery::Value;
use torana::apimachinery::codec::json;
use torana::json;

/// How deep free-form values are nested: decoders take a thousand levels.
const DEEPEST: usize = 900;

/// Pairs of fields that are tried of a kind.
const PAIRS: usize = 12;

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Every field once: in the first kind that holds it, as JSON; every encoding and kind of patch for one field of each
    /// sort (list type, element type, patch strategy), since those are code that knows no fields.
    Once,
    /// Every field in every kind, in every way.
    Everything,
}

/// The state of a run.
pub struct Plan<'s> {
    server: &'s Server,
    extent: Extent,
    rows: Vec<Row>,
    seeds: HashMap<(String, String), Value>,
    counter: Cell<usize>,
    sorts: HashSet<Sort>,
    random: u64,
    pub findings: Vec<String>,
    pub tally: Tally,
}

/// What was done.
#[derive(Default)]
pub struct Tally {
    pub sites: usize,
    pub accepted: usize,
    pub requests: Cell<usize>,
    /// Sites of which no valid object could be made: their growth is refused.
    pub refused: BTreeMap<String, String>,
}

/// What generic code sees of a field.
type Sort = (bool, bool, &'static str, String, bool);

fn sort(site: &Site) -> Sort {
    let (inner, is_list) = match site.ty {
        Ty::List(inner) => (*inner, true),
        Ty::Map(inner) => (*inner, false),
        ty => (ty, false),
    };
    let list = match site.field.list {
        ListType::None => "none",
        ListType::Atomic => "atomic",
        ListType::Set => "set",
        ListType::Map(_) => "map",
    };
    let scalar = inner.struct_def().is_none();
    (
        is_list,
        scalar,
        list,
        format!("{:?}", site.field.patch_strategy),
        site.field.merge_key.is_some(),
    )
}

impl<'s> Plan<'s> {
    /// Reads what there is, and creates the namespace it lives in.
    pub fn new(server: &'s Server, extent: Extent) -> Self {
        let (mut rows, seeds) = (rows(server), seeds());
        let seed = |row: &Row| seeds.get(&(row.api_version(), row.kind.clone()));
        // A field that several kinds have is tried in one that is stored and has an example, ConfigMaps first: they add the least.
        rows.sort_by_key(|row| (seed(row).is_none() || !row.has("update"), row.kind != "ConfigMap"));
        for kind in ["Namespace", "ServiceAccount"] {
            let row = rows.iter().find(|r| r.kind == kind).expect("a core kind");
            let made = server.create(row, seed(row).expect("the manifest has every kind"));
            assert_eq!(made.code, 201, "{:?}", made.body);
        }
        Self {
            server,
            extent,
            rows,
            seeds,
            counter: Cell::new(0),
            sorts: HashSet::new(),
            random: 1,
            findings: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Begins with another kind, and makes other pairs, for each seed.
    pub fn begin_at(&mut self, seed: u64) {
        self.random = seed | 1;
        let first = self.below(self.rows.len());
        self.rows.rotate_left(first);
    }

    /// xorshift64*: small, and the same everywhere.
    fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) % n.max(1) as u64) as usize
    }

    /// Tries every site of every kind whose name contains `only`, until `more` says to stop.
    pub fn run(&mut self, only: &str, more: &dyn Fn() -> bool) {
        let hosts = if self.extent == Extent::Once { 1 } else { usize::MAX };
        let mut seen = Seen::default();
        let rows = std::mem::take(&mut self.rows);
        for row in &rows {
            let found = sites(row, &mut seen, hosts);
            if !row.shown().contains(only) {
                continue;
            }
            let base = self.base(row);
            for site in &found {
                if !more() {
                    return;
                }
                self.site(row, site, &base);
            }
            self.together(row, &found, &base);
            if self.extent == Extent::Everything {
                self.pairs(row, &found, &base, more);
            }
        }
        self.rows = rows;
    }

    /// Requests of no kind in particular.
    pub fn documents(&mut self, only: &str) {
        for document in documents::ALL.iter().filter(|d| d.name.contains(only)) {
            let run = |n| self.document(document, n);
            if let Some(finding) = judge(&run, document.lengths) {
                self.found(document.name.to_owned(), &finding);
            }
        }
    }

    fn document(&self, document: &Document, n: usize) -> Option<Sample> {
        let configmaps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
        if let Some(stored) = document.stored {
            let made = self
                .server
                .send(&call("POST", configmaps.clone(), json::to_vec(&stored(n))));
            if !made.is_fine() {
                return None;
            }
        }
        let request = (document.call)(n);
        // The HTTP library takes no longer ones.
        let sample = (request.path.len() < 1 << 16).then(|| {
            let (cost, answer) = meter::measure(|| self.server.send(&request));
            let sent = request.path.len() + request.body.len();
            Sample {
                cost,
                sent,
                code: answer.code,
            }
        });
        if document.stored.is_some() {
            let item = format!("{configmaps}/{TARGET}");
            let free = br#"{"metadata":{"finalizers":null}}"#.to_vec();
            let mut free = call("PATCH", item.clone(), free);
            free.content_type = "application/merge-patch+json";
            self.server.send(&free);
            self.server.send(&call("DELETE", item, Vec::new()));
        }
        sample
    }

    /// An object to begin with: the manifest's, or the least the schema allows.
    fn base(&self, row: &Row) -> Value {
        let seed = self.seeds.get(&(row.api_version(), row.kind.clone()));
        seed.cloned().unwrap_or_else(|| {
            let mut object = make::object(row.def);
            object.set(&["apiVersion"], row.api_version());
            object.set(&["kind"], row.kind.clone());
            object.set(&["metadata"], json!({"name": NAMESPACE}));
            object
        })
    }

    fn found(&mut self, what: String, finding: &Finding) {
        let line = format!("{what}: {finding}");
        println!("FOUND {line}");
        self.findings.push(line);
    }

    /// A valid object that has the site, if one can be made, and what it holds there.
    fn fitted(&mut self, target: &Target<'_>) -> (Value, Value) {
        let (row, site) = (target.row, target.site);
        let mut object = target.base.clone();
        make::reach(&mut object, row.def, &site.path);
        let refusal = |object: &Value| target.refusal(&renamed(row, object, target.count()));
        if fit(row.def, &mut object, &site.shown(), &refusal) {
            self.tally.accepted += 1;
        } else {
            let why = refusal(&object).str_at(&["message"]).chars().take(160).collect();
            self.tally
                .refused
                .insert(format!("{} {}", row.shown(), site.shown()), why);
        }
        let whole = make::reach(&mut object, row.def, &site.path).clone();
        (object, whole)
    }

    fn site(&mut self, row: &Row, site: &Site, base: &Value) {
        if site.path == [Step::Field("metadata"), Step::Field("name")] {
            return;
        }
        self.tally.sites += 1;
        let server = self.server;
        let counter = std::mem::take(&mut self.counter);
        let part = row.parts.iter().find(|p| site.in_status() && p.name == "status");
        let target = Target {
            server,
            row,
            part,
            site,
            base,
            counter: &counter,
        };
        let (object, whole) = self.fitted(&target);
        let target = Target {
            base: &object,
            ..target
        };
        let accepted = |how: &Differ| {
            let value = Growth::Distinct(*how).value(site, &whole, 3);
            let tried = target.run(Way::Create(Codec::Json), &value);
            tried.is_some_and(|s| s.code < 300)
        };
        let differ = site
            .is_collection()
            .then(|| [Differ::Keys, Differ::All].into_iter().find(accepted))
            .flatten();
        let growths = self.growths(site, differ);
        let first_of_sort = differ.is_some() && self.sorts.insert(sort(site));
        for growth in growths {
            let valid = growth == Growth::Distinct(differ.unwrap_or(Differ::Wrong)) && differ.is_some();
            for way in self.ways(valid, first_of_sort) {
                let run = |n: usize| {
                    self.tally.requests.set(self.tally.requests.get() + 1);
                    let fits = growth != Growth::Nested || n <= DEEPEST;
                    fits.then(|| target.run(way, &growth.value(site, &whole, n))).flatten()
                };
                if let Some(finding) = judge(&run, growth.lengths()) {
                    self.found(describe(row, part, &site.shown(), way, &growth.shown()), &finding);
                }
            }
        }
        self.counter = counter;
    }

    /// Two fields of an object that grow at the same time: a few pairs of the many.
    fn pairs(&mut self, row: &Row, found: &[Site], base: &Value, more: &dyn Fn() -> bool) {
        let long: Vec<&Site> = found.iter().filter(|s| s.is_collection()).collect();
        for _ in 0..long.len().min(PAIRS) {
            if !more() {
                return;
            }
            let (a, b) = (long[self.below(long.len())], long[self.below(long.len())]);
            if a.path.starts_with(&b.path) || b.path.starts_with(&a.path) || a.in_status() != b.in_status() {
                continue;
            }
            let server = self.server;
            let counter = std::mem::take(&mut self.counter);
            let part = row.parts.iter().find(|p| a.in_status() && p.name == "status");
            let (first, all_b) = self.fitted(&Target {
                server,
                row,
                part,
                site: b,
                base,
                counter: &counter,
            });
            let (object, all_a) = self.fitted(&Target {
                server,
                row,
                part,
                site: a,
                base: &first,
                counter: &counter,
            });
            let growth = Growth::Distinct(Differ::All);
            let run = |n: usize| {
                let mut base = object.clone();
                *make::reach(&mut base, row.def, &b.path) = growth.value(b, &all_b, n);
                let target = Target {
                    server,
                    row,
                    part,
                    site: a,
                    base: &base,
                    counter: &counter,
                };
                target.run(Way::Create(Codec::Json), &growth.value(a, &all_a, n))
            };
            if let Some(finding) = judge(&run, growth.lengths()) {
                let field = format!("{} and {}", a.shown(), b.shown());
                self.found(
                    describe(row, part, &field, Way::Create(Codec::Json), &growth.shown()),
                    &finding,
                );
            }
            self.counter = counter;
        }
    }

    fn growths(&self, site: &Site, differ: Option<Differ>) -> Vec<Growth> {
        let all = Growth::of(site, differ.unwrap_or(Differ::All));
        if self.extent == Extent::Everything || site.is_collection() || matches!(site.ty, Ty::Any(_)) {
            return all;
        }
        // Of the texts one, another for each field.
        let sum: usize = site
            .owner
            .name
            .bytes()
            .chain(site.field.name.bytes())
            .map(usize::from)
            .sum();
        vec![all[sum % all.len()]]
    }

    fn ways(&self, valid: bool, first_of_sort: bool) -> Vec<Way> {
        let json = Way::Create(Codec::Json);
        match (valid, first_of_sort || self.extent == Extent::Everything) {
            (false, false) => vec![json],
            (true, false) => vec![json, Way::UpdateLong],
            (false, true) if self.extent == Extent::Once => vec![json],
            (false, true) => vec![json, Way::Update(Codec::Json), Way::Apply],
            (true, true) => Way::ALL.to_vec(),
        }
    }

    /// Lists of one object that grow together, in three equal objects where those stand in a list: what multiplies them
    /// shows at small lengths.
    fn together(&mut self, row: &Row, found: &[Site], base: &Value) {
        let mut groups: BTreeMap<String, Vec<&Site>> = BTreeMap::new();
        for site in found {
            let lists = matches!(site.ty, Ty::List(inner) if inner.struct_def().is_none());
            if lists && matches!(site.path.last(), Some(Step::Field(_))) {
                let parent = Site {
                    path: site.path[..site.path.len() - 1].to_vec(),
                    ..site.clone()
                };
                groups.entry(parent.shown()).or_default().push(site);
            }
        }
        for (parent, group) in groups.into_iter().filter(|(_, g)| g.len() > 1) {
            let server = self.server;
            let counter = std::mem::take(&mut self.counter);
            let part = row.parts.iter().find(|p| group[0].in_status() && p.name == "status");
            let target = Target {
                server,
                row,
                part,
                site: group[0],
                base,
                counter: &counter,
            };
            let (mut object, _) = self.fitted(&target);
            for site in &group {
                make::reach(&mut object, row.def, &site.path);
            }
            // The object that holds the lists, or the list of such.
            let (path, repeated) = match group[0].path.as_slice() {
                [path @ .., Step::First, _] => (path.to_vec(), true),
                [path @ .., _] => (path.to_vec(), false),
                [] => continue,
            };
            let holder = Site {
                path,
                ..group[0].clone()
            };
            let target = Target {
                site: &holder,
                base: &object,
                ..target
            };
            let run = |n: usize| {
                let mut whole = make::reach(&mut object.clone(), row.def, &holder.path).clone();
                let one = if repeated {
                    whole.items().first().cloned().unwrap_or_default()
                } else {
                    whole.clone()
                };
                let mut one = one;
                for site in &group {
                    let list = (0..n).map(|i| json!(format!("a{i}"))).collect();
                    one.set(&[site.field.name], Value::Array(list));
                }
                if repeated {
                    whole = Value::Array(vec![one; 3]);
                } else {
                    whole = one;
                }
                target.run(Way::Create(Codec::Json), &whole)
            };
            let names: Vec<&str> = group.iter().map(|s| s.field.name).collect();
            if let Some(finding) = climb(&run, 4, 512) {
                let what = describe(
                    row,
                    part,
                    &parent,
                    Way::Create(Codec::Json),
                    &format!("{names:?} together"),
                );
                self.found(what, &finding);
            }
            self.counter = counter;
        }
    }
}

fn describe(row: &Row, part: Option<&Part>, field: &str, way: Way, growth: &str) -> String {
    let part = part.map_or(String::new(), |p| format!("/{}", p.name));
    format!("{}{part} {field}, {}, {growth}", row.shown(), way.shown())
}
