//! The test plan: for each kind its sites, for each site the ways to grow it and to send it.

use crate::catalogue::{Resource, Subresource, resources, seeds};
use crate::documents::{self, Document, TARGET};
use crate::fit::fit;
use crate::growth::Growth;
use crate::growth_check::{Finding, Sample, check_growth};
use crate::make::{self, Variation};
use crate::meter;
use crate::server::{NAMESPACE, Server, call};
use crate::shards::Shard;
use crate::sites::{Seen, Site, Step, sites_of};
use crate::submissions::{Codec, Submission, Target, renamed};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use torana::api::{ListType, Ty};
use torana::apimachinery::Value;
use torana::apimachinery::codec::json;
use torana::json;

/// The nesting depth of free-form values. Decoders accept a thousand levels.
const DEEPEST: usize = 900;

/// How much to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Every field once, as JSON, in the first kind that has it. Encodings and patch types are tried for one
    /// field of each sort (list type, element type, patch strategy), because their code is generic over
    /// fields.
    Once,
    /// Every field of every kind in every way.
    Everything,
}

/// The state of a run.
pub(crate) struct Plan<'s> {
    pub server: &'s Server,
    extent: Extent,
    resources: Vec<Resource>,
    seeds: HashMap<(String, String), Value>,
    pub counter: Cell<usize>,
    sorts: HashSet<Sort>,
    random: u64,
    pub findings: Vec<String>,
    pub tally: Tally,
}

/// Statistics of a run.
#[derive(Default)]
pub(crate) struct Tally {
    pub sites: usize,
    pub accepted: usize,
    pub requests: Cell<usize>,
    /// Sites for which no valid object could be built, so growing them was refused.
    pub refused: BTreeMap<String, String>,
}

/// The properties of a field that generic code depends on.
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
    /// Reads the catalogue and creates the namespace for the objects.
    pub(crate) fn new(server: &'s Server, extent: Extent) -> Self {
        let (mut resources, seeds) = (resources(server), seeds());
        let seed = |resource: &Resource| seeds.get(&(resource.api_version(), resource.kind.clone()));
        // A field shared by several kinds is tried in one that is stored and has an example. ConfigMaps come
        // first because they add the least cost of their own.
        resources.sort_by_key(|resource| {
            (
                seed(resource).is_none() || !resource.has("update"),
                resource.kind != "ConfigMap",
            )
        });
        for kind in ["Namespace", "ServiceAccount"] {
            let resource = resources.iter().find(|r| r.kind == kind).expect("a core kind");
            let made = server.create(resource, seed(resource).expect("the manifest has every kind"));
            assert_eq!(made.code, 201, "{:?}", made.body);
        }
        Self {
            server,
            extent,
            resources,
            seeds,
            counter: Cell::new(0),
            sorts: HashSet::new(),
            random: 1,
            findings: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Rotates the order of kinds and the choice of pairs by a seed.
    pub(crate) fn seed_with(&mut self, seed: u64) {
        self.random = seed | 1;
        let first = self.below(self.resources.len());
        self.resources.rotate_left(first);
    }

    /// xorshift64*: small and identical on every platform.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) % n.max(1) as u64) as usize
    }

    /// Tries every site of every kind of `shard` whose name contains `only`, while `more` returns true.
    pub(crate) fn run(&mut self, only: &str, shard: Shard, more: &dyn Fn() -> bool) {
        let hosts = if self.extent == Extent::Once { 1 } else { usize::MAX };
        let mut seen = Seen::default();
        let resources = std::mem::take(&mut self.resources);
        for (n, resource) in resources.iter().enumerate() {
            // Also for kinds of other shards: all shards must agree on which kind tries a shared field.
            let found = sites_of(resource.def, &mut seen, hosts);
            if !shard.has(n) || !resource.shown().contains(only) {
                continue;
            }
            let base = self.base(resource);
            for site in &found {
                if !more() {
                    return;
                }
                self.site(resource, status_of(resource, site), site, &base, &base);
            }
            self.subresources(resource, &found, &base, &mut seen, more);
            self.grow_together(resource, &found, &base);
            if self.extent == Extent::Everything {
                self.pairs(resource, &found, &base, more);
            }
        }
        self.resources = resources;
    }

    /// Tries subresources: those that write the object use the object's fields, those with a kind of their
    /// own use that kind's.
    fn subresources(
        &mut self,
        resource: &Resource,
        found: &[Site],
        base: &Value,
        seen: &mut Seen,
        more: &dyn Fn() -> bool,
    ) {
        let all = self.extent == Extent::Everything;
        for subresource in resource
            .subresources
            .iter()
            .filter(|p| p.is_written() && p.name != "status")
        {
            let Some(def) = subresource.def else { continue };
            if def.name == resource.def.name {
                // A subresource handles few fields of the object itself, so only collections near the root
                // are tried.
                let near = |site: &&Site| site.is_collection() && site.path.len() <= 2 && !site.in_status();
                for site in found.iter().filter(|site| all || near(site)) {
                    if more() {
                        self.site(resource, Some(subresource), site, base, base);
                    }
                }
                continue;
            }
            let mut body = make::object(def);
            body.set(&["apiVersion"], subresource.api_version.as_str());
            body.set(&["kind"], subresource.kind.as_str());
            body.set(&["metadata"], json!({"name": NAMESPACE}));
            for site in sites_of(def, seen, if all { usize::MAX } else { 1 }) {
                if more() {
                    self.site(resource, Some(subresource), &site, &body, base);
                }
            }
        }
    }

    /// Tries the requests of [`documents`], which do not depend on a kind.
    pub(crate) fn documents(&mut self, only: &str) {
        for document in documents::ALL.iter().filter(|d| d.name.contains(only)) {
            let run = |n| self.document(document, n);
            if let Some(finding) = check_growth(&run, document.lengths) {
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
        // The HTTP library's limit on request targets.
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

    /// The initial object: from the manifest, or the minimal one that the schema allows.
    fn base(&self, resource: &Resource) -> Value {
        let seed = self.seeds.get(&(resource.api_version(), resource.kind.clone()));
        seed.cloned().unwrap_or_else(|| {
            let mut object = make::object(resource.def);
            object.set(&["apiVersion"], resource.api_version());
            object.set(&["kind"], resource.kind.clone());
            // Reviews have no name. Where a name is required, the refusal says so.
            object.set(&["metadata"], Value::object());
            object
        })
    }

    pub(crate) fn found(&mut self, what: String, finding: &Finding) {
        let line = format!("{what}: {finding}");
        println!("FOUND {line}");
        self.findings.push(line);
    }

    /// A valid object that has the site, if one can be built, and its value at the site.
    pub(crate) fn valid_object(&mut self, target: &Target<'_>) -> (Value, Value) {
        let (resource, site, def) = (target.resource, target.site, target.def());
        let mut object = target.base.clone();
        make::reach(&mut object, def, &site.path);
        let refusal = |object: &Value| target.refusal(&renamed(resource, object, target.count()));
        if fit(def, &mut object, &site.shown(), &refusal) {
            self.tally.accepted += 1;
        } else {
            let why = refusal(&object).str_at(&["message"]).chars().take(160).collect();
            self.tally
                .refused
                .insert(format!("{} {}", resource.shown(), site.shown()), why);
        }
        let whole = make::reach(&mut object, def, &site.path).clone();
        (object, whole)
    }

    /// Tries one field of an object or of a subresource body. `parent` is a valid object of the resource.
    fn site(
        &mut self,
        resource: &Resource,
        subresource: Option<&Subresource>,
        site: &Site,
        base: &Value,
        parent: &Value,
    ) {
        if site.path == [Step::Field("metadata"), Step::Field("name")] {
            return;
        }
        self.tally.sites += 1;
        let server = self.server;
        let counter = std::mem::take(&mut self.counter);
        let target = Target {
            server,
            resource,
            subresource,
            site,
            base,
            parent,
            counter: &counter,
        };
        let (object, whole) = self.valid_object(&target);
        let target = Target {
            base: &object,
            ..target
        };
        let accepted = |how: &Variation| {
            let value = Growth::Distinct(*how).value(site, &whole, 3);
            let tried = target.run(Submission::Create(Codec::Json), &value);
            tried.is_some_and(|s| s.code < 300)
        };
        let variation = site
            .is_collection()
            .then(|| [Variation::Keys, Variation::All].into_iter().find(accepted))
            .flatten();
        let growths = self.growths(site, variation);
        let first_of_sort = variation.is_some() && self.sorts.insert(sort(site));
        for growth in growths {
            let valid = growth == Growth::Distinct(variation.unwrap_or(Variation::Wrong)) && variation.is_some();
            for submission in self.submissions(valid, first_of_sort) {
                let run = |n: usize| {
                    self.tally.requests.set(self.tally.requests.get() + 1);
                    let fits = growth != Growth::Nested || n <= DEEPEST;
                    fits.then(|| target.run(submission, &growth.value(site, &whole, n)))
                        .flatten()
                };
                if let Some(finding) = check_growth(&run, self.lengths(site, growth)) {
                    self.found(
                        describe(resource, subresource, &site.shown(), submission, &growth.shown()),
                        &finding,
                    );
                }
            }
        }
        self.counter = counter;
    }

    /// Initial lengths, larger when there is time.
    fn lengths(&self, site: &Site, growth: Growth) -> [usize; 2] {
        match growth {
            Growth::Nested => growth.lengths(site),
            _ if self.extent == Extent::Everything => growth.lengths(site).map(|n| 4 * n),
            _ => growth.lengths(site),
        }
    }

    fn growths(&self, site: &Site, variation: Option<Variation>) -> Vec<Growth> {
        let all = Growth::of(site, variation.unwrap_or(Variation::All));
        if self.extent == Extent::Everything || site.is_collection() || matches!(site.ty, Ty::Any(_)) {
            return all;
        }
        // Pick one of the string variants per field, by hashing its path.
        let sum: usize = site
            .owner
            .name
            .bytes()
            .chain(site.field.name.bytes())
            .map(usize::from)
            .sum();
        vec![all[sum % all.len()]]
    }

    fn submissions(&self, valid: bool, first_of_sort: bool) -> Vec<Submission> {
        let json = Submission::Create(Codec::Json);
        match (valid, first_of_sort || self.extent == Extent::Everything) {
            (false, false) => vec![json],
            (true, false) => vec![json, Submission::UpdateLong],
            (false, true) if self.extent == Extent::Once => vec![json],
            (false, true) => vec![json, Submission::Update(Codec::Json), Submission::Apply],
            (true, true) => Submission::ALL.to_vec(),
        }
    }
}

/// The subresource through which status fields are written.
pub(crate) fn status_of<'r>(resource: &'r Resource, site: &Site) -> Option<&'r Subresource> {
    let status = |p: &&Subresource| site.in_status() && p.name == "status";
    resource.subresources.iter().find(status)
}

pub(crate) fn describe(
    resource: &Resource,
    subresource: Option<&Subresource>,
    field: &str,
    submission: Submission,
    growth: &str,
) -> String {
    let subresource = subresource.map_or(String::new(), |p| format!("/{}", p.name));
    format!(
        "{}{subresource} {field}, {}, {growth}",
        resource.shown(),
        submission.shown()
    )
}
