//! What is tried: for each kind the sites it has, for each site the ways to grow and to be sent.

use crate::catalogue::{Part, Row, rows, seeds};
use crate::documents::{self, Document, TARGET};
use crate::fit::fit;
use crate::growth::Growth;
use crate::judge::{Finding, Sample, judge};
use crate::make::{self, Differ};
use crate::meter;
use crate::server::{NAMESPACE, Server, call};
use crate::sites::{Seen, Site, Step, sites_of};
use crate::ways::{Codec, Target, Way, renamed};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use torana::api::{ListType, Ty};
use torana::apimachinery::Value;
use torana::apimachinery::codec::json;
use torana::json;

/// How deep free-form values are nested: decoders take a thousand levels.
const DEEPEST: usize = 900;

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
    pub server: &'s Server,
    extent: Extent,
    rows: Vec<Row>,
    seeds: HashMap<(String, String), Value>,
    pub counter: Cell<usize>,
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
    pub fn below(&mut self, n: usize) -> usize {
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
            let found = sites_of(row.def, &mut seen, hosts);
            if !row.shown().contains(only) {
                continue;
            }
            let base = self.base(row);
            for site in &found {
                if !more() {
                    return;
                }
                self.site(row, status_of(row, site), site, &base, &base);
            }
            self.parts(row, &found, &base, &mut seen, more);
            self.together(row, &found, &base);
            if self.extent == Extent::Everything {
                self.pairs(row, &found, &base, more);
            }
        }
        self.rows = rows;
    }

    /// Subresources: those that write the object, with its fields, and those that speak a kind of their own, with that one's.
    fn parts(&mut self, row: &Row, found: &[Site], base: &Value, seen: &mut Seen, more: &dyn Fn() -> bool) {
        let all = self.extent == Extent::Everything;
        for part in row.parts.iter().filter(|p| p.is_written() && p.name != "status") {
            let Some(def) = part.def else { continue };
            if def.name == row.def.name {
                // Each knows a few fields of the object: those near the root stand for all.
                let near = |site: &&Site| site.is_collection() && site.path.len() <= 2 && !site.in_status();
                for site in found.iter().filter(|site| all || near(site)) {
                    if more() {
                        self.site(row, Some(part), site, base, base);
                    }
                }
                continue;
            }
            let mut body = make::object(def);
            body.set(&["apiVersion"], part.api_version.as_str());
            body.set(&["kind"], part.kind.as_str());
            body.set(&["metadata"], json!({"name": NAMESPACE}));
            for site in sites_of(def, seen, if all { usize::MAX } else { 1 }) {
                if more() {
                    self.site(row, Some(part), &site, &body, base);
                }
            }
        }
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
            // Reviews have no name; where one is needed, the refusal says so.
            object.set(&["metadata"], Value::object());
            object
        })
    }

    pub fn found(&mut self, what: String, finding: &Finding) {
        let line = format!("{what}: {finding}");
        println!("FOUND {line}");
        self.findings.push(line);
    }

    /// A valid object that has the site, if one can be made, and what it holds there.
    pub fn fitted(&mut self, target: &Target<'_>) -> (Value, Value) {
        let (row, site, def) = (target.row, target.site, target.def());
        let mut object = target.base.clone();
        make::reach(&mut object, def, &site.path);
        let refusal = |object: &Value| target.refusal(&renamed(row, object, target.count()));
        if fit(def, &mut object, &site.shown(), &refusal) {
            self.tally.accepted += 1;
        } else {
            let why = refusal(&object).str_at(&["message"]).chars().take(160).collect();
            self.tally
                .refused
                .insert(format!("{} {}", row.shown(), site.shown()), why);
        }
        let whole = make::reach(&mut object, def, &site.path).clone();
        (object, whole)
    }

    /// Tries one field of an object, or of the body of a part of it; `parent` is a valid object.
    fn site(&mut self, row: &Row, part: Option<&Part>, site: &Site, base: &Value, parent: &Value) {
        if site.path == [Step::Field("metadata"), Step::Field("name")] {
            return;
        }
        self.tally.sites += 1;
        let server = self.server;
        let counter = std::mem::take(&mut self.counter);
        let target = Target {
            server,
            row,
            part,
            site,
            base,
            parent,
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
                if let Some(finding) = judge(&run, self.lengths(site, growth)) {
                    self.found(describe(row, part, &site.shown(), way, &growth.shown()), &finding);
                }
            }
        }
        self.counter = counter;
    }

    /// Longer where there is time.
    fn lengths(&self, site: &Site, growth: Growth) -> [usize; 2] {
        match growth {
            Growth::Nested => growth.lengths(site),
            _ if self.extent == Extent::Everything => growth.lengths(site).map(|n| 4 * n),
            _ => growth.lengths(site),
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
}

/// The subresource that reported fields are written by.
pub fn status_of<'r>(row: &'r Row, site: &Site) -> Option<&'r Part> {
    let status = |p: &&Part| site.in_status() && p.name == "status";
    row.parts.iter().find(status)
}

pub fn describe(row: &Row, part: Option<&Part>, field: &str, way: Way, growth: &str) -> String {
    let part = part.map_or(String::new(), |p| format!("/{}", p.name));
    format!("{}{part} {field}, {}, {growth}", row.shown(), way.shown())
}
