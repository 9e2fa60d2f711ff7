//! GET of a collection, with paging. [`options`] and [`meta`] also serve delete collection.

use super::super::call::Call;
use super::super::negotiate::{Negotiated, Offer};
use super::super::offload;
use super::super::options::{ListQuery, Query};
use super::super::respond::list::{ListMeta, list as respond_list};
use super::VerbResult;
use crate::apimachinery::status::{Result, Status};
use crate::storage::{ContinueToken, ListOptions, Listing, continue_token};

/// Queries of up to this many bytes are parsed on the reactor. Parsing and validating a selector takes some
/// 100 ns per byte.
pub(super) const SHORT_QUERY: usize = 2 << 10;
/// With more objects than this, selecting and encoding the first chunk may block a reactor thread for too
/// long.
const MANY: usize = 256;
/// The same for comparisons: all terms of the selectors with each object, at some 20 ns.
const MANY_COMPARISONS: usize = 8 << 10;
/// Memory reserved for the first chunk; the objects themselves belong to the cache.
const MEMORY: usize = 512 << 10;

pub(crate) async fn list(call: Call) -> VerbResult {
    // Decided before the list runs, by the number of all objects of the kind: which of them match is only known
    // after the comparisons.
    let objects = call.store().storage().count();
    if is_of_another_state(&call.query) || takes_long(&call.query, query_length(&call), objects) {
        offload::run_offloaded(MEMORY, answer(call)).await
    } else {
        answer(call).await
    }
}

pub(super) fn query_length(call: &Call) -> usize {
    call.parts.uri.query().map_or(0, str::len)
}

/// True if a list of so many objects would block a reactor thread for too long.
fn takes_long(query: &Query, length: usize, objects: usize) -> bool {
    // Before parsing, the commas tell how many terms there are at most.
    let commas = |name: &str| query.text(name).bytes().filter(|b| *b == b',').count();
    let terms = || 2 + commas("labelSelector") + commas("fieldSelector");
    // Each of the two selectors has one term more than it has commas, hence the 2 in `terms`.
    length > SHORT_QUERY || objects > MANY || objects * terms() > MANY_COMPARISONS
}

/// True if the list may read another state than the current one, whose number of objects is not known: a past one,
/// of which a hundred thousand objects may have been deleted since, or a future one that it waits for.
fn is_of_another_state(query: &Query) -> bool {
    // "0" is any state, for which the current one is taken.
    !matches!(query.text("resourceVersion"), "" | "0") || !query.text("continue").is_empty()
}

/// Parses the query of a watch and passes it to `check`, on the compute pool if it is long. `check` also drops
/// the query there if it refuses it. `is_watch` selects the rules, as for [`ListQuery::parse`].
pub(super) async fn parse<T: Send + 'static>(
    call: Call,
    is_watch: bool,
    check: impl FnOnce(&Call, ListQuery) -> Result<T> + Send + 'static,
) -> Result<(Call, T)> {
    let is_long = query_length(&call) > SHORT_QUERY;
    let parse = move || {
        let query = ListQuery::parse(&call.query, call.resource(), is_watch)?;
        let checked = check(&call, query)?;
        Ok((call, checked))
    };
    match is_long {
        true => offload::run_offloaded(MEMORY, async move { parse() }).await,
        false => parse(),
    }
}

async fn answer(call: Call) -> VerbResult {
    let negotiated = call.negotiate(Offer::Objects)?;
    let query = ListQuery::parse(&call.query, call.resource(), false)?;
    let options = options(&call, &query)?;
    let prefix = token_prefix(&options);
    let listing = match call.store().list(options).await {
        // Pagination that outlives compaction: the client may continue with objects of a newer revision
        // (`handleCompactedErrorForPaging` in upstream's `etcd3/errors.go`).
        Err(s) if s.code == 410 && !query.token.is_empty() => return Err(renewed(s, &query, &prefix)),
        other => other?,
    };
    let meta = meta(&prefix, &listing);
    // The stored size approximates the cost of converting: it is known without reading the objects.
    let size: usize = listing.entries.iter().map(|e| e.json.len()).sum();
    let response = move || respond(&call, listing, &meta, negotiated);
    // A small number of objects may still be large. Plain JSON is spliced from stored bytes, chunk by chunk, on the
    // pool.
    if !negotiated.is_plain() && offload::is_heavy(size) {
        return offload::run_offloaded(MEMORY, async move { response() }).await;
    }
    response()
}

/// Responds with the objects of a list, which a delete of a collection returns too.
pub(super) fn respond(call: &Call, listing: Listing, meta: &ListMeta, negotiated: Negotiated) -> VerbResult {
    respond_list(
        listing,
        meta,
        call.resource(),
        negotiated,
        &call.parts.headers,
        &call.query,
        call.store().budget(),
    )
}

/// The metadata of a list. `prefix` is what its continue token is relative to.
pub(crate) fn meta(prefix: &str, listing: &Listing) -> ListMeta {
    ListMeta {
        // Computed resources have no revision.
        version: match listing.revision.0 {
            0 => String::new(),
            version => version.to_string(),
        },
        token: listing
            .next
            .as_ref()
            .map_or_else(String::new, |t| continue_token::encode(t, prefix)),
        // Without a continue token there is nothing left to count.
        remaining: listing.next.as_ref().and(listing.remaining),
    }
}

/// Builds the storage options of a list.
pub(crate) fn options(call: &Call, query: &ListQuery) -> Result<ListOptions> {
    let (prefix, single) = query.prefix(call.resource(), &call.cx.namespace);
    let token = match query.token.as_str() {
        "" => None,
        text => {
            // Tokens are relative to the prefix, so a forged one cannot read another namespace.
            let token = continue_token::decode(text, if single { "" } else { &prefix });
            let token = token.map_err(|e| Status::bad_request(format!("invalid continue token: {e}")))?;
            // The token already contains the revision to read.
            if !matches!(query.version.as_str(), "" | "0") {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            Some(token)
        }
    };
    Ok(ListOptions {
        prefix,
        single,
        version: query.version_match()?,
        predicate: query.predicate(call.resource()),
        limit: query.limit,
        token,
    })
}

/// The key prefix that continue tokens are relative to.
pub(crate) fn token_prefix(options: &ListOptions) -> String {
    if options.single {
        String::new()
    } else {
        options.prefix.clone()
    }
}

/// Adds a fresh continue token to a 410, which continues the list at the latest revision (an inconsistent
/// list).
fn renewed(mut status: Status, query: &ListQuery, prefix: &str) -> Status {
    if let Ok(token) = continue_token::decode(&query.token, prefix) {
        let token = ContinueToken {
            // The rest of the list is that of the latest state.
            revision: None,
            ..token
        };
        status.continue_token = Some(continue_token::encode(&token, prefix));
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_list_is_objects_times_terms() {
        let query = |terms: usize| Query::parse(&format!("labelSelector={}", vec!["a"; terms].join(",")));
        assert!(!takes_long(&query(1), 100, MANY) && takes_long(&query(1), 100, MANY + 1));
        assert!(!takes_long(&query(1), SHORT_QUERY, 0) && takes_long(&query(1), SHORT_QUERY + 1, 0));
        assert!(!takes_long(&query(680), 2000, 10) && takes_long(&query(680), 2000, 20));
    }

    #[test]
    fn past_and_future_states_are_not_estimated_from_the_current_one() {
        let of_another = |query: &str| is_of_another_state(&Query::parse(query));
        for query in [
            "resourceVersion=7&resourceVersionMatch=Exact",
            "resourceVersion=7&limit=1",
            "resourceVersion=7",
            "continue=x",
        ] {
            assert!(of_another(query), "{query}");
        }
        assert!(!of_another("") && !of_another("resourceVersion=0&limit=1"));
    }
}
