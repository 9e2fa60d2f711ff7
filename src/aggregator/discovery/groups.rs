//! The plain discovery documents `/apis` and `/apis/<group>`, built from APIService objects whether available or not,
//! as in upstream (`kube-aggregator/pkg/apiserver/handler_apis.go`).

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

/// Serves the list of all groups. The document is rebuilt after a change of any APIService.
pub(crate) struct GroupListHandler {
    informer: Informer<ApiService>,
    made: ArcSwapOption<(Snapshot, Value)>,
}

impl GroupListHandler {
    /// Serves the groups of these APIServices.
    pub(crate) fn new(informer: Informer<ApiService>) -> Self {
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
    async fn serve(self: Arc<Self>, req: Request, _: Authorized) -> Response {
        let query = Query::parse(req.uri().query().unwrap_or(""));
        plain(&self.document().1, req.headers(), &query)
    }
}

/// Serves the document of one group. If the group has no APIService, the delegate answers.
pub(crate) struct GroupHandler {
    group: Str,
    informer: Informer<ApiService>,
    delegate: Arc<dyn UnprotectedHandler>,
    made: ArcSwapOption<(Snapshot, Option<Value>)>,
}

impl GroupHandler {
    /// Serves the document of this group.
    pub(crate) fn new(group: Str, informer: Informer<ApiService>, delegate: Arc<dyn UnprotectedHandler>) -> Self {
        Self {
            group,
            informer,
            delegate,
            made: ArcSwapOption::empty(),
        }
    }

    /// Rebuilt after a change of any APIService; `None` if the group has none.
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
    async fn serve(self: Arc<Self>, req: Request, authorized: Authorized) -> Response {
        match &self.document().1 {
            Some(document) => {
                let query = Query::parse(req.uri().query().unwrap_or(""));
                plain(document, req.headers(), &query)
            }
            None => self.delegate.clone().serve(req, authorized).await,
        }
    }
}
