//! The debug dumps, as upstream prints them (`apf_controller_debug.go`): text tables whose cells end in a
//! comma.

use super::controller::FlowController;
use super::level::Request;
use super::metrics::Series;
use super::queueset::{QueueDigest, QueueSet, Queuing, Waiting};
use super::work_estimate::WorkEstimate;
use crate::apimachinery::time;
use crate::request::{RequestInfo, UserInfo};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Upstream's path of all dumps.
pub(crate) const PATH: &str = "/debug/api_priority_and_fairness/";
/// A level may have millions of queues: beyond this number only those in use are listed.
const MAX_EMPTY_QUEUES: u32 = 4096;
/// Minimum width of a column, including its comma and space (`minwidth` of upstream's tabwriter).
const MIN_WIDTH: usize = 8;

/// One of the dumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// `dump_priority_levels`
    Levels,
    /// `dump_queues`
    Queues,
    /// `dump_requests`, with or without details.
    Requests(bool),
}

type Row = Vec<String>;

fn row(cells: &[&dyn ToString]) -> Row {
    cells.iter().map(|cell| cell.to_string()).collect()
}

fn header(names: &[&str]) -> Row {
    names.iter().map(|name| (*name).to_owned()).collect()
}

impl FlowController {
    /// Renders a dump in upstream's columns, from the levels as they are now.
    pub fn dump(&self, dump: Dump) -> String {
        table(&match dump {
            Dump::Levels => self.levels(),
            Dump::Queues => self.queues(),
            Dump::Requests(details) => self.requests(details),
        })
    }

    fn levels(&self) -> Vec<Row> {
        let mut rows = vec![header(&[
            "PriorityLevelName",
            "ActiveQueues",
            "IsIdle",
            "IsQuiescing",
            "WaitingRequests",
            "ExecutingRequests",
            "DispatchedRequests",
            "RejectedRequests",
            "TimedoutRequests",
            "CancelledRequests",
        ])];
        self.inspect(|levels| {
            rows.extend(levels.iter().map(|m| {
                m.level.inspect(|set, _| {
                    let t = set.totals();
                    let active = set.queues().iter().filter(|q| q.waiting > 0).count();
                    let (name, idle) = (m.level.name(), set.is_idle());
                    // Upstream counts a request whose waiting time is over as cancelled.
                    let timed_out = 0;
                    row(&[
                        name,
                        &active,
                        &idle,
                        &m.quiescing,
                        &t.waiting,
                        &t.executing,
                        &t.dispatched,
                        &t.rejected,
                        &timed_out,
                        &t.cancelled,
                    ])
                })
            }));
        });
        rows
    }

    fn queues(&self) -> Vec<Row> {
        let mut rows = vec![header(&[
            "PriorityLevelName",
            "Index",
            "PendingRequests",
            "ExecutingRequests",
            "SeatsInUse",
            "NextDispatchR",
            "InitialSeatsSum",
            "MaxSeatsSum",
            "TotalWorkSum",
        ])];
        self.inspect(|levels| {
            for m in levels.iter() {
                let queues = m.level.inspect(|set, _| with_empty(set.queues(), set.queuing()));
                rows.extend(queues.iter().map(|q| {
                    row(&[
                        m.level.name(),
                        &q.index,
                        &q.waiting,
                        &q.executing,
                        &q.seats_in_use,
                        &q.next_dispatch,
                        &q.initial_seats,
                        &q.max_seats,
                        &q.work,
                    ])
                }));
            }
        });
        rows
    }

    fn requests(&self, details: bool) -> Vec<Row> {
        let mut names = header(&[
            "PriorityLevelName",
            "FlowSchemaName",
            "QueueIndex",
            "RequestIndexInQueue",
            // Upstream's spelling; scripts parse the header.
            "FlowDistingsher",
            "ArriveTime",
            "InitialSeats",
            "FinalSeats",
            "AdditionalLatency",
            "StartTime",
        ]);
        if details {
            names.extend(header(&[
                "UserName",
                "Verb",
                "APIPath",
                "Namespace",
                "Name",
                "APIVersion",
                "Resource",
                "SubResource",
            ]));
        }
        let mut rows = vec![names];
        // Copied under the level's lock, rendered outside of it.
        let all: Vec<Copied> = self.inspect(|levels| {
            let all = levels.iter();
            all.flat_map(|m| m.level.inspect(|set, schemas| copies(m.level.name(), set, schemas)))
                .collect()
        });
        rows.extend(all.iter().map(|request| self.request(request, details)));
        rows
    }

    fn request(&self, r: &Copied, details: bool) -> Row {
        // Upstream prints -1 for the index of a request that is not in a queue.
        let place = |at: Option<u32>| at.map_or(-1, i64::from);
        let (user, info) = (&r.user, &r.info);
        let mut cells = row(&[
            &r.level,
            &r.schema,
            &place(r.place.0),
            &place(r.place.1),
            &self.distinguisher(&r.schema, user, info),
            &rfc3339_nano(self.clock().wall(r.arrived)),
            &r.work.initial_seats,
            &r.work.final_seats,
            &time::go_duration(r.work.additional_latency),
            // Go's zero time stands for a request that has not started.
            &r.started.map_or_else(
                || "0001-01-01T00:00:00Z".to_owned(),
                |at| rfc3339_nano(self.clock().wall(at)),
            ),
        ]);
        if details {
            let version = match info.api_group.as_str() {
                "" => info.api_version.to_string(),
                group => format!("{group}/{}", info.api_version),
            };
            cells.extend(row(&[
                &user.name,
                &info.verb,
                &info.path,
                &info.namespace,
                &info.name,
                &version,
                &info.resource,
                &info.subresource,
            ]));
        }
        cells
    }
}

/// A request, copied from its level.
struct Copied {
    level: Arc<str>,
    schema: Arc<str>,
    place: (Option<u32>, Option<u32>),
    work: WorkEstimate,
    arrived: Duration,
    started: Option<Duration>,
    user: Arc<UserInfo>,
    info: Arc<RequestInfo>,
}

fn copies(level: &Arc<str>, set: &QueueSet<Request>, schemas: &[Series]) -> Vec<Copied> {
    let copy = |r: Waiting<'_, Request>| Copied {
        level: level.clone(),
        schema: schemas[r.account as usize].schema().clone(),
        place: r.place,
        work: r.work,
        arrived: r.arrived,
        started: r.started,
        user: r.item.user.clone(),
        info: r.item.info.clone(),
    };
    set.requests().into_iter().map(copy).collect()
}

/// The queues in use among the empty ones.
fn with_empty(used: Vec<QueueDigest>, queuing: Queuing) -> Vec<QueueDigest> {
    let count = match queuing {
        Queuing::Queues { dealer, .. } if dealer.deck() <= MAX_EMPTY_QUEUES => dealer.deck(),
        _ => return used,
    };
    let mut all: Vec<QueueDigest> = (0..count)
        .map(|index| QueueDigest {
            index,
            ..QueueDigest::default()
        })
        .collect();
    for queue in used {
        match all.get_mut(queue.index as usize) {
            Some(place) => *place = queue,
            // It drains after a reduction of the number.
            None => all.push(queue),
        }
    }
    all
}

/// As Go's `time.RFC3339Nano`: without trailing zeros.
fn rfc3339_nano(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let whole = time::format_unix(since.as_secs() as i64).unwrap_or_default();
    let nanos = format!("{:09}", since.subsec_nanos());
    match nanos.trim_end_matches('0') {
        "" => whole,
        digits => format!("{}.{digits}Z", whole.trim_end_matches('Z')),
    }
}

/// Aligns the columns as Go's `text/tabwriter` does. The last cell of a row is not padded.
fn table(rows: &[Row]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let longest = rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
        // A comma, and a space between columns.
        (longest + 2).max(MIN_WIDTH)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            if at + 1 == columns {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{cell}");
            } else {
                let _ = write!(text, "{:<1$}", format!("{cell},"), widths[at]);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let rows = [
            header(&["PriorityLevelName", "Index", "R"]),
            row(&[&"system", &7, &"0.0ss"]),
        ];
        assert_eq!(
            table(&rows),
            "PriorityLevelName, Index,  R\nsystem,            7,      0.0ss\n"
        );
    }

    #[test]
    fn times_have_no_trailing_zeros() {
        let at = |nanos| rfc3339_nano(UNIX_EPOCH + Duration::from_nanos(nanos));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(1_500_000_000), "1970-01-01T00:00:01.5Z");
    }
}
