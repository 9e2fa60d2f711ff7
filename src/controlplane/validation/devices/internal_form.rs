//! Fields of upstream's internal structs in Go's order (`pkg/apis/resource/types.go`), for printing bad
//! values with `go_form::compact`. The wire names differ from Go's names.

use crate::controlplane::validation::go_form::Printing::{Any, Int, List, Ptr, Str, Struct};
use crate::controlplane::validation::go_form::{Field, TOLERATION};

const CEL: &[Field] = &[("Expression", "expression", Str)];
const SELECTOR: &[Field] = &[("CEL", "cel", Ptr(CEL))];
const CAPACITY: &[Field] = &[("Requests", "requests", Any)];
const EXACT: &[Field] = &[
    ("DeviceClassName", "deviceClassName", Str),
    ("Selectors", "selectors", List(SELECTOR)),
    ("AllocationMode", "allocationMode", Str),
    ("Count", "count", Int),
    ("AdminAccess", "adminAccess", Any),
    ("Tolerations", "tolerations", List(TOLERATION)),
    ("Capacity", "capacity", Ptr(CAPACITY)),
];
const ALTERNATIVE: &[Field] = &[
    ("Name", "name", Str),
    ("DeviceClassName", "deviceClassName", Str),
    ("Selectors", "selectors", List(SELECTOR)),
    ("AllocationMode", "allocationMode", Str),
    ("Count", "count", Int),
    ("Tolerations", "tolerations", List(TOLERATION)),
    ("Capacity", "capacity", Ptr(CAPACITY)),
];
const REQUEST: &[Field] = &[
    ("Name", "name", Str),
    ("Exactly", "exactly", Ptr(EXACT)),
    ("FirstAvailable", "firstAvailable", List(ALTERNATIVE)),
];
const CONSTRAINT: &[Field] = &[
    ("Requests", "requests", Any),
    ("MatchAttribute", "matchAttribute", Any),
    ("DistinctAttribute", "distinctAttribute", Any),
];
const OPAQUE: &[Field] = &[("Driver", "driver", Str), ("Parameters", "parameters", Any)];
const CONFIG: &[Field] = &[("Requests", "requests", Any), ("Opaque", "opaque", Ptr(OPAQUE))];
const DEVICES: &[Field] = &[
    ("Requests", "requests", List(REQUEST)),
    ("Constraints", "constraints", List(CONSTRAINT)),
    ("Config", "config", List(CONFIG)),
];

/// `ResourceClaimSpec`.
pub(super) const CLAIM_SPEC: &[Field] = &[("Devices", "devices", Struct(DEVICES))];

const RESULT: &[Field] = &[
    ("Request", "request", Str),
    ("Driver", "driver", Str),
    ("Pool", "pool", Str),
    ("Device", "device", Str),
    ("AdminAccess", "adminAccess", Any),
    ("Tolerations", "tolerations", List(TOLERATION)),
    ("BindingConditions", "bindingConditions", Any),
    ("BindingFailureConditions", "bindingFailureConditions", Any),
    ("ShareID", "shareID", Any),
    ("ConsumedCapacity", "consumedCapacity", Any),
];
const ALLOCATED_CONFIG: &[Field] = &[
    ("Source", "source", Str),
    ("Requests", "requests", Any),
    ("Opaque", "opaque", Ptr(OPAQUE)),
];
const ALLOCATED: &[Field] = &[
    ("Results", "results", List(RESULT)),
    ("Config", "config", List(ALLOCATED_CONFIG)),
];
const REQUIREMENT: &[Field] = &[
    ("Key", "key", Str),
    ("Operator", "operator", Str),
    ("Values", "values", Any),
];

/// `NodeSelectorTerm`.
pub(super) const NODE_TERM: &[Field] = &[
    ("MatchExpressions", "matchExpressions", List(REQUIREMENT)),
    ("MatchFields", "matchFields", List(REQUIREMENT)),
];
const NODE_SELECTOR: &[Field] = &[("NodeSelectorTerms", "nodeSelectorTerms", List(NODE_TERM))];

/// `AllocationResult`.
pub(super) const ALLOCATION: &[Field] = &[
    ("Devices", "devices", Struct(ALLOCATED)),
    ("NodeSelector", "nodeSelector", Ptr(NODE_SELECTOR)),
    ("AllocationTimestamp", "allocationTimestamp", Any),
];

/// `DeviceAttribute`.
pub(super) const ATTRIBUTE: &[Field] = &[
    ("IntValue", "int", Any),
    ("BoolValue", "bool", Any),
    ("StringValue", "string", Any),
    ("VersionValue", "version", Any),
    ("IntValues", "ints", Any),
    ("BoolValues", "bools", Any),
    ("StringValues", "strings", Any),
    ("VersionValues", "versions", Any),
];
