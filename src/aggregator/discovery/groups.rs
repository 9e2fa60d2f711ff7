//! `/apis` and `/apis/<group>` from APIService objects. Availability does not matter here.

use crate::aggregator::apiservice::{ApiService, OWN_GROUP, sorted_by_group_and_version};
use crate::apimachinery::value::{Str, Value};
use crate::client::Informer;
use crate::endpoints::discovery::{api_group, api_group_list, group_entry, plain};
use crate::endpoints::options::Query;
use crate::request::{Authorized, Request, Response, UnprotectedHandler};
use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use imbl::OrdMap;
use std::sync::Arc;

type Snapshot = Arc<OrdMap<Arc<str>, Arc<ApiService>>>;

/// Serves the list of all groups. The document is made once per change of any APIService.
pub struct GroupListHandler {
    informer: Informer<ApiService>,
    made: ArcSwapOption<(Snapshot, Value)>,
}

impl GroupListHandler {
    /// Of these APIServices.
    pub fn new(informer: Informer<ApiService>) -> Self {
        Self {
            informer,
            made: ArcSwapOption::empty(),
        }
    }

    fn document(&self) -> Arc<(Snapshot, Value)> {
        let now = self.informer.snapshot();
        if let Some(made) = self.made.load_full()
            && Arc::ptr_eq(&made.0, &now)
        {
            return made;
        }
        let made = Arc::new((now.clone(), list(&now)));
        self.made.store(Some(made.clone()));
        made
    }
}

fn list(snapshot: &Snapshot) -> Value {
    let groups = sorted_by_group_and_version(snapshot.values().cloned().collect());
    let mut entries = vec![group_entry(OWN_GROUP, &["v1"])];
    for group in groups.iter().filter(|g| !g[0].group.is_empty()) {
        entries.push(group_entry(&group[0].group, &versions(group)));
    }
    api_group_list(entries)
}

fn versions(group: &[Arc<ApiService>]) -> Vec<&str> {
    group.iter().map(|s| s.version.as_str()).collect()
}

#[async_trait]
impl UnprotectedHandler for GroupListHandler {
    async fn serve(&self, req: Request, _: Authorized) -> Response {
        let query = Query::parse(req.uri().query().unwrap_or(""));
        plain(&self.document().1, req.headers(), &query)
    }
}

/// Serves one group; a group without APIServices is the next server's.
pub struct GroupHandler {
    group: Str,
    informer: Informer<ApiService>,
    delegate: Arc<dyn UnprotectedHandler>,
    made: ArcSwapOption<(Snapshot, Option<Value>)>,
}

impl GroupHandler {
    /// Of this group.
    pub fn new(group: Str, informer: Informer<ApiService>, delegate: Arc<dyn UnprotectedHandler>) -> Self {
        Self {
            group,
            informer,
            delegate,
            made: ArcSwapOption::empty(),
        }
    }

    /// Made once per change of any APIService; `None`: the group has none.
    fn document(&self) -> Arc<(Snapshot, Option<Value>)> {
        let now = self.informer.snapshot();
        if let Some(made) = self.made.load_full()
            && Arc::ptr_eq(&made.0, &now)
        {
            return made;
        }
        let mine = now.values().filter(|s| s.group == self.group).cloned().collect();
        let groups = sorted_by_group_and_version(mine);
        let document = groups.first().map(|g| api_group(&self.group, &versions(g)));
        let made = Arc::new((now, document));
        self.made.store(Some(made.clone()));
        made
    }
}

#[async_trait]
impl UnprotectedHandler for GroupHandler {
    async fn serve(&self, req: Request, authorized: Authorized) -> Response {
        match &self.document().1 {
            Some(document) => {
                let query = Query::parse(req.uri().query().unwrap_or(""));
                plain(document, req.headers(), &query)
            }
            None => self.delegate.serve(req, authorized).await,
        }
    }
}
